"""Computed curvature as matrices that are multiplied and solved without being formed."""

from gbackprop.base.names import listing
from gbackprop.kronecker.block import Block, SumOfBlocks
from gbackprop.kronecker.diagonal import BlockDiagonal
from gbackprop.kronecker.eigen import EigenKronecker
from gbackprop.kronecker.grouped import BLOCKS, GroupedKronecker, with_factors
from gbackprop.kronecker.kronecker import Kronecker

__all__ = [
    "BLOCKS",
    "Block",
    "BlockDiagonal",
    "EigenKronecker",
    "GroupedKronecker",
    "Kronecker",
    "SumOfBlocks",
    "with_factors",
]
__dir__ = listing(__all__)
