"""Data in batches, and results of batches merged into the result of all samples."""

from gbackprop.data.accumulate import accumulate
from gbackprop.data.batches import batches
from gbackprop.data.merging import merge
from gbackprop.quantities.merging_rules import Averaged, Rows, Rule, Summed
from gbackprop.system.names import listing

__all__ = ["Averaged", "Rows", "Rule", "Summed", "accumulate", "batches", "merge"]
__dir__ = listing(__all__)
