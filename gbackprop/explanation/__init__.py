"""Explanations of the sweep: recorded while it runs, printed as text, drawn as a figure."""

from gbackprop.explanation.record import Explanation, explain
from gbackprop.explanation.steps import Carried, Extracted, Step
from gbackprop.system.names import listing

__all__ = ["Carried", "Explanation", "Extracted", "Step", "explain"]
__dir__ = listing(__all__)
