"""Explanations of the sweep: recorded while it runs, printed as text, drawn as a figure."""

from gbackprop.explanation.record import Explanation, explain
from gbackprop.explanation.steps import Carried, Extracted, Step

__all__ = ["Carried", "Explanation", "Extracted", "Step", "explain"]
