"""3 x 3 convolutions with 16 products for each 2 x 2 outputs, instead of 36, where compiled transforms are there.

For a tile of 2 x 2 outputs, which sees the 4 x 4 inputs d, and the window w of a pair of channels

    y = Aᵀ m A,   m = Σ_channels U ∘ V,   U = G w Gᵀ,   V = Bᵀ d B

B and A hold 0, 1 and −1 alone and G halves as well, so what is lost to rounding stays of the order of the direct sum's.
The sum over channels is one matrix product for each of the 16 places. The adjoints are those of each factor:

    dm = A g Aᵀ,   dV = Σ_out U ∘ dm,   dd = B dV Bᵀ,   dU = Σ_tiles dm ∘ V,   dw = Gᵀ dU G

Source: Winograd 1980; Lavin & Gray 2016, F(2 x 2, 3 x 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from gbackprop.array import Array, row_blocks
from gbackprop.kernels import compiled_tiles
from gbackprop.layers.base import Shape
from gbackprop.layers.window import Window
from gbackprop.scratch import contiguous, empty, matmul

G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
GG = np.kron(G, G)
"""G along both axes, (16, 9)."""

LEAST_CHANNELS = 32
"""With fewer, the transforms cost what the products save."""


def tiled(window: Window, channels: tuple[int, int], groups: int, spatial: Shape, like: Array) -> Tiles | None:
    """How to take a convolution by tiles, or None where that is impossible or does not pay."""
    transforms = compiled_tiles(like)
    plain = window.kernel == (3, 3) and window.stride == window.dilation == (1, 1) and groups == 1
    if transforms is None or not plain or min(channels) < LEAST_CHANNELS:
        return None
    height, width = out = window.out(spatial)
    down, across = -(-height // 2), -(-width // 2)
    if 16 * down * across > 6 * height * width:  # instead of 9 height width products: last tiles may be half empty
        return None
    (top, _), (left, _) = window.padding
    return Tiles(transforms, spatial, out, (top, left), down, across)


@dataclass(frozen=True)
class Tiles:
    """The tiles of a convolution's outputs.

    Attributes
    ----------
    transforms : module
    spatial, out : (int, int)
        Sizes of the images.
    before : (int, int)
        Padding above and on the left.
    down, across : int
        Number of tiles along the axes.
    """

    transforms: ModuleType
    spatial: Shape
    out: Shape
    before: tuple[int, int]
    down: int
    across: int

    def forward(self, x: Array, weight: Array) -> Array:
        """The convolution without bias: ``[L, *spatial, C] -> [L, *out, O]``."""
        x, u = contiguous(x), _windows(weight).swapaxes(1, 2)
        y = empty(x, (len(x), *self.out, u.shape[2]))
        for rows in self._blocks(x, u):
            self.transforms.outputs(matmul(self._inputs(x[rows]), u), self.across, y[rows])
        return y

    def backward(self, g: Array, weight: Array) -> Array:
        """The adjoint of `forward`: ``[L, *out, O] -> [L, *spatial, C]``."""
        g, u = contiguous(g), _windows(weight)
        x = empty(g, (len(g), *self.spatial, u.shape[2]))
        for rows in self._blocks(g, u):
            self.transforms.inputs_adjoint(matmul(self._outputs(g[rows]), u), *self.before, self.across, x[rows])
        return x

    def weight_sum(self, x: Array, g: Array) -> Array:
        """The gradient in the weight, ``[L, *spatial, C], [L, *out, O] -> [O, (*kernel, C)]``."""
        x, g = contiguous(x), contiguous(g)
        total = np.zeros((16, g.shape[3], x.shape[3]), g.dtype)
        for rows in self._blocks(x, total):
            total += matmul(self._outputs(g[rows]).swapaxes(1, 2), self._inputs(x[rows]))
        _, o, c = total.shape
        kernel = GG.T.astype(g.dtype) @ total.reshape(16, -1)
        return kernel.reshape(9, o, c).swapaxes(0, 1).reshape(o, 9 * c)

    def _inputs(self, x: Array) -> Array:
        """V: ``[16, L*T, C]``."""
        tiles = empty(x, (16, len(x) * self.down * self.across, x.shape[3]))
        self.transforms.inputs(x, *self.before, self.across, tiles)
        return tiles

    def _outputs(self, g: Array) -> Array:
        """dm: ``[16, L*T, O]``."""
        tiles = empty(g, (16, len(g) * self.down * self.across, g.shape[3]))
        self.transforms.outputs_adjoint(g, self.across, tiles)
        return tiles

    def _blocks(self, x: Array, u: Array) -> Iterator[slice]:
        """Rows whose 16 numbers a tile are 2 MiB on the wider side: less makes the products slower, more the rest."""
        return row_blocks(len(x), 16 * self.down * self.across * max(u.shape[1:]) * x.itemsize // 2, x)


def _windows(weight: Array) -> Array:
    """U: ``[O, C, 3, 3] -> [16, O, C]``."""
    o, c = weight.shape[:2]
    return (GG.astype(weight.dtype) @ weight.reshape(o * c, 9).T).reshape(16, o, c)
