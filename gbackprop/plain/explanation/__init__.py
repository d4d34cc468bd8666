"""Explanations of the sweep: recorded while it runs, printed as text, drawn as a figure."""

from gbackprop.base.names import listing
from gbackprop.plain.explanation.record import Explanation, explain
from gbackprop.plain.explanation.steps import Carried, Extracted, Step

__all__ = ["Carried", "Explanation", "Extracted", "Step", "explain"]
__dir__ = listing(__all__)
