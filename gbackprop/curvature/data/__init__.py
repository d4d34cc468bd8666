"""Data in batches, and results of batches merged into the result of all samples."""

from gbackprop.base.names import listing
from gbackprop.curvature.data.accumulation import accumulate
from gbackprop.curvature.data.batching import batches
from gbackprop.curvature.data.merging import merge
from gbackprop.quantities.merging_rules import Averaged, Rows, Rule, Summed

__all__ = ["Averaged", "Rows", "Rule", "Summed", "accumulate", "batches", "merge"]
__dir__ = listing(__all__)
