"""`OneHot`, of a network's input of integers: what an index into a table is a product with."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array, array_module, bounds
from gbackprop.calculus.layer import Layer, Shape


class OneHot(Layer):
    """A layer that makes rows of zeros with a one at each index, ``[N, *S] -> [N, *S, size]``; a table multiplies them.

    Parameters
    ----------
    size : int
        Number of rows of the table; indices are 0 … size − 1.
    """

    takes = "integers"
    formulas = {"forward": "y[t, i] = 1 if x[t] = i else 0", "mjp": "none: x is an index"}
    shown = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape, self.size)

    def check_indices(self, name: str, x: Array) -> None:
        """Check that integers are indices; the error begins with `name`."""
        least, most = bounds(x) if x.size else (0, 0)
        if least < 0 or most >= self.size:
            raise ValueError(f"{name}: expected indices from 0 to {self.size - 1}, got {least if least < 0 else most}")

    def forward(self, x: Array) -> tuple[Array, Any]:
        return (x[..., None] == array_module(x).arange(self.size)).astype(self.dtype or "float32"), None
