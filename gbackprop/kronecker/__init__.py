"""What curvature is once it is computed: matrices that are multiplied and solved without being formed."""

from gbackprop.kronecker.grouped import BLOCKS, GroupedKronecker, with_factors
from gbackprop.kronecker.kronecker import Kronecker

__all__ = ["BLOCKS", "GroupedKronecker", "Kronecker", "with_factors"]
