"""The sweep explained: recorded while it runs, written out, drawn."""

from gbackprop.explanation.record import explain
from gbackprop.explanation.steps import Carried, Explanation, Extracted, Step

__all__ = ["Carried", "Explanation", "Extracted", "Step", "explain"]
