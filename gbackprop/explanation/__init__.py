"""The sweep explained: recorded while it runs, written out, drawn."""

from gbackprop.explanation.record import Explanation, explain
from gbackprop.explanation.steps import Carried, Extracted, Step

__all__ = ["Carried", "Explanation", "Extracted", "Step", "explain"]
