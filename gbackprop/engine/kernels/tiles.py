"""Convolutions of 3 x 3 kernels with 16 products for each 2 x 2 outputs instead of 36.

For a tile of 2 x 2 outputs, computed from the 4 x 4 inputs d, and the kernel w of a pair of channels

    y = Aᵀ m A,   m = Σ_channels U ∘ V,   U = G w Gᵀ,   V = Bᵀ d B

B and A contain only 0, 1 and −1, and G also ½, so rounding errors are of the same order as those of the direct sum. The
sum over channels is one matrix product for each of the 16 places. The adjoints are those of each factor:

    dm = A g Aᵀ,   dV = Σ_out U ∘ dm,   dd = B dV Bᵀ,   dU = Σ_tiles dm ∘ V,   dw = Gᵀ dU G

Source: Winograd 1980; Lavin & Gray 2016, F(2 x 2, 3 x 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window
from gbackprop.engine.scratch import row_blocks

G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
GG = np.kron(G, G)
"""G along both axes, (16, 9)."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a convolution's outputs.

    Attributes
    ----------
    spatial, out : (int, int)
        Sizes of the images.
    before : (int, int)
        Padding above and on the left.
    memory : Allocator
        Makes the arrays.
    transforms : module
        `compiled_tiles`, or `plain_tiles` where there is no Numba: transforms between images and tiles.
    """

    spatial: Shape
    out: Shape
    before: tuple[int, int]
    memory: Any
    transforms: ModuleType

    @staticmethod
    def of(window: Window, spatial: Shape, memory: Any, transforms: ModuleType) -> Tiles:
        """Return the tiles of a convolution with such windows over images of size `spatial`."""
        (top, _), (left, _) = window.padding
        return Tiles(spatial, window.out(spatial), (top, left), memory, transforms)

    @property
    def down(self) -> int:
        """Number of tiles along the first axis."""
        return -(-self.out[0] // 2)

    @property
    def across(self) -> int:
        """Number of tiles along the second axis."""
        return -(-self.out[1] // 2)

    def forward(self, x: Array, weight: Array) -> Array:
        """Compute the convolution without bias: ``[L, *spatial, C] -> [L, *out, O]``."""
        x, u = self.memory.contiguous(x), _windows(weight).swapaxes(1, 2)
        y = self.memory.empty(x, (len(x), *self.out, u.shape[2]))
        for rows in self._blocks(x, u):
            self.transforms.outputs(self.memory.matmul(self._inputs(x[rows]), u), self.across, y[rows])
        return y

    def backward(self, g: Array, weight: Array) -> Array:
        """Compute the adjoint of `forward`: ``[L, *out, O] -> [L, *spatial, C]``."""
        g, u = self.memory.contiguous(g), _windows(weight)
        x = self.memory.empty(g, (len(g), *self.spatial, u.shape[2]))
        for rows in self._blocks(g, u):
            m = self.memory.matmul(self._outputs(g[rows]), u)
            self.transforms.inputs_adjoint(m, *self.before, self.across, x[rows])
        return x

    def weight_sum(self, x: Array, g: Array) -> Array:
        """Compute the weight's gradient, ``[L, *spatial, C], [L, *out, O] -> [O, (*kernel, C)]``."""
        x, g = self.memory.contiguous(x), self.memory.contiguous(g)
        total = np.zeros((16, g.shape[3], x.shape[3]), g.dtype)
        for rows in self._blocks(x, total):
            total += self.memory.matmul(self._outputs(g[rows]).swapaxes(1, 2), self._inputs(x[rows]))
        _, o, c = total.shape
        kernel = GG.T.astype(g.dtype) @ total.reshape(16, -1)
        return kernel.reshape(9, o, c).swapaxes(0, 1).reshape(o, 9 * c)

    def _inputs(self, x: Array) -> Array:
        """Compute V, ``[16, L*T, C]``."""
        tiles = self.memory.empty(x, (16, len(x) * self.down * self.across, x.shape[3]))
        self.transforms.inputs(x, *self.before, self.across, tiles)
        return tiles

    def _outputs(self, g: Array) -> Array:
        """Compute dm, ``[16, L*T, O]``."""
        tiles = self.memory.empty(g, (16, len(g) * self.down * self.across, g.shape[3]))
        self.transforms.outputs_adjoint(g, self.across, tiles)
        return tiles

    def _blocks(self, x: Array, u: Array) -> Iterator[slice]:
        """Return blocks of rows with 2 MiB of tiles on the wider side: less slows the products, more the transforms."""
        return row_blocks(len(x), 16 * self.down * self.across * max(u.shape[1:]) * x.itemsize // 2, x)


def _windows(weight: Array) -> Array:
    """Compute U: ``[O, C, 3, 3] -> [16, O, C]``."""
    o, c = weight.shape[:2]
    return (GG.astype(weight.dtype) @ weight.reshape(o * c, 9).T).reshape(16, o, c)
