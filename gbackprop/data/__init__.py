"""Data in batches, and results of batches merged into the result of all samples."""

from gbackprop.data.batches import batches
from gbackprop.data.merging import Averaged, Rows, Rule, Summed, merge

__all__ = ["Averaged", "Rows", "Rule", "Summed", "batches", "merge"]
