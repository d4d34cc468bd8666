"""A curvature block given by Kronecker factors."""

from __future__ import annotations

from dataclasses import dataclass

from gbackprop.array import Array
from gbackprop.kronecker.factored import FactoredBlock


@dataclass(frozen=True, eq=False)
class Kronecker(FactoredBlock):
    """The block B ⊗ A of a weight (entries in row-major order), or B of a bias.

    B ⊗ A numbers the weight's entries output by output, as a weight (O, …) does. Products, solutions, diagonals and
    `to_dense` are in the order of the parameter's entries, which is another one for a weight that has `channels_first`.

    Attributes
    ----------
    A : ndarray, shape (I, I), or None
        Input factor; None for a bias.
    B : ndarray, shape (O, O)
        Output factor.
    channels_first : int, optional
        C of a weight (C, O, *kernel), whose input channels come before its outputs: that of a transposed convolution.
        The rows of A are numbered (C, *kernel).
    """

    axes = 2

    A: Array | None
    B: Array
    channels_first: int | None = None
