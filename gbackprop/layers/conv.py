"""Convolution: a linear map of what each window sees, y[t] = W u[t] + b with u the unfolded input.

Channels-last inside, so that the unfolding copies whole runs and all positions share one large product. The columns
of u are numbered (*kernel, C); torch numbers those of a weight (C, *kernel), and `_to_parameter` reorders.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

import numpy as np

from gbackprop.arguments import positive
from gbackprop.array import Array, array_module, channels_first, channels_last, row_blocks
from gbackprop.layers.base import Layer, Shape
from gbackprop.layers.jacobian import KRONECKER, Bias, ParameterJacobian
from gbackprop.layers.linear import uniform
from gbackprop.layers.outer import Outer
from gbackprop.layers.selection import SelectedBias, SelectedOuter, Selection, pays
from gbackprop.layers.window import Window, channels_and_axes, per_axis
from gbackprop.layers.winograd import Tiles, tiled
from gbackprop.scratch import contiguous, empty, matmul

KEEP_BYTES = 2**26
"""Unfolded inputs up to this size are kept from the forward pass for the backward, but where tiles need none."""


class _Conv(Layer):
    """Convolution over `dims` spatial axes."""

    dims: ClassVar[int]
    constant_jacobian = True
    formulas = {"forward": "y[t] = W u[t] + b, u = unfold(x)", "mjp": "fold(Wᵀ g[t])"}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.groups = positive("groups", groups)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(f"groups: expected a divisor of {in_channels} and {out_channels} channels, got {groups}")
        kernel = per_axis("kernel_size", kernel_size, self.dims)
        strides = per_axis("stride", stride, self.dims)
        steps = per_axis("dilation", dilation, self.dims)
        self.window = Window(kernel, strides, steps, _padding(padding, kernel, strides, steps))
        self.padding = padding
        self.bias = bool(bias)

    def describe(self) -> str:
        window = self.window
        words = [f"{self.in_channels}, {self.out_channels}, kernel_size={_short(window.kernel)}"]
        words += [f"stride={_short(window.stride)}"] if set(window.stride) != {1} else []
        words += [f"padding={self.padding!r}"] if any(map(any, window.padding)) else []
        words += [f"dilation={_short(window.dilation)}"] if set(window.dilation) != {1} else []
        words += [f"groups={self.groups}"] if self.groups > 1 else []
        words += [] if self.bias else ["bias=False"]
        return ", ".join(words)

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.out_channels, self.in_channels // self.groups, *self.window.kernel)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        fan_in = self.in_channels // self.groups * prod(self.window.kernel)
        return uniform(rng, self.parameter_shapes(), fan_in)

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims, self.in_channels)
        return (self.out_channels, *self.window.out(shape[1:]))

    def unsupported(self, shape: Shape) -> dict[str, str]:
        reason = f"its {self.groups} groups have input factors of their own, and one Kronecker product cannot hold them"
        return {name: reason for name in KRONECKER if self.groups > 1}

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        out = self.window.out(x.shape[2:])
        unfolded_bytes = x.shape[0] * prod(out) * prod(self._columns()) * x.dtype.itemsize
        kept = unfolded_bytes <= KEEP_BYTES and self._tiles(x.shape[2:], x) is None  # a backward will want it again
        u = self._inputs(x) if kept else None
        y = self._linear(x) if u is None else channels_first(self._product(u).reshape(x.shape[0], *out, -1))
        if self.bias:
            y += self.parameters["bias"].reshape(-1, *(1,) * self.dims)
        return y, (x, u)

    def _linear(self, x: Array) -> Array:
        """W u for ``[L, C, *S]``, a block of L at a time: ``[L, O, *out]``."""
        xp, tiles = array_module(x), self._tiles(x.shape[2:], x)
        if tiles is not None:
            return channels_first(tiles.forward(channels_last(x), self.parameters["weight"]))
        out = self.window.out(x.shape[2:])
        y = empty(x, (x.shape[0], prod(out), self.out_channels), xp.result_type(x, self.parameters["weight"]))
        for block in row_blocks(x.shape[0], prod(out) * prod(self._columns()) * x.dtype.itemsize, x):
            y[block] = self._product(self._inputs(x[block]))
        return channels_first(y.reshape(x.shape[0], *out, self.out_channels))

    def _product(self, u: Array) -> Array:
        """W u as one large product: ``[G, L, T, I] -> [L, T, O]``."""
        groups, rows, positions, _ = u.shape
        product = matmul(u.reshape(groups, rows * positions, -1), self._matrix().swapaxes(1, 2))
        return array_module(u).moveaxis(product, 0, 1).reshape(rows, positions, self.out_channels)

    def _tiles(self, spatial: Shape, like: Array) -> Tiles | None:
        """The way with fewer products, if it pays."""
        if self.parameters["weight"].dtype != like.dtype:
            return None
        return tiled(self.window, (self.in_channels, self.out_channels), self.groups, spatial, like)

    def _columns(self) -> tuple[int, int]:
        """(G, I): how many numbers a window sees in each group."""
        return self.groups, prod(self.window.kernel) * self.in_channels // self.groups

    def _matrix(self) -> Array:
        """The weight as ``[G, O, I]``, with I numbered (*kernel, C)."""
        weight = self.parameters["weight"]
        return channels_last(weight).reshape(self.groups, self.out_channels // self.groups, -1)

    def _inputs(self, x: Array) -> Array:
        """u: ``[N, C, *S] -> [G, N, T, I]``."""
        xp = array_module(x)
        last = channels_last(x)
        if xp is np and last.strides[-1] != last.itemsize:  # a small copy, so that the large one copies whole runs
            last = contiguous(last)
        windows = self.window.unfold(last)
        n, kernel = x.shape[0], self.window.kernel
        positions = prod(windows.shape[1 : 1 + self.dims])
        if self.groups == 1:
            return contiguous(windows).reshape(1, n, positions, -1)
        split = windows.reshape(n, positions, *kernel, self.groups, -1)
        return xp.moveaxis(split, -2, 0).reshape(self.groups, n, positions, -1)

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        y = self._linear(mat.reshape(-1, *mat.shape[2:]))
        return y.reshape(*mat.shape[:2], *y.shape[1:])

    def mjp(self, saved: Any, mat: Array) -> Array:
        """Each window's share Wᵀ g[t], folded back to where the window stood; or the same by tiles."""
        xp = array_module(mat)
        spatial = saved[0].shape[2:]
        rows = self._rows(mat)
        columns, n, positions, _ = rows.shape
        tiles = self._tiles(spatial, mat)
        if tiles is not None:
            image = tiles.backward(rows.reshape(columns * n, *mat.shape[3:], -1), self.parameters["weight"])
            return channels_first(image.reshape(columns, n, *image.shape[1:]), 2)
        rows, matrix = rows.reshape(columns * n, positions, self.groups, -1), self._matrix()
        result = empty(mat, (columns * n, *spatial, self.in_channels), xp.result_type(mat, matrix))
        out = mat.shape[3:]
        for block in row_blocks(columns * n, positions * prod(self._columns()) * mat.dtype.itemsize, mat):
            g = rows[block].transpose(2, 0, 1, 3)
            cols = matmul(g.reshape(self.groups, -1, g.shape[3]), matrix)  # [G, L*T, I]
            split = cols.reshape(self.groups, g.shape[1], *out, *self.window.kernel, -1)
            split = split.transpose(*range(1, split.ndim - 1), 0, split.ndim - 1)
            result[block] = self.window.fold(split.reshape(*split.shape[:-2], -1), spatial)
        return channels_first(result.reshape(columns, n, *spatial, self.in_channels), 2)

    def _rows(self, mat: Array) -> Array:
        """``[V, N, O, *out] -> [V, N, T, O]``."""
        return channels_last(mat, 2).reshape(*mat.shape[:2], prod(mat.shape[3:]), self.out_channels)

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        (x, u), bias = saved, Bias(self._rows)
        tiles = self._tiles(x.shape[2:], x)
        last = channels_last(x)
        quick = None if tiles is None else lambda g: tiles.weight_sum(last, g.reshape(len(g), *tiles.out, -1))
        weight = Outer(
            lambda: self._inputs(x) if u is None else u,
            bias,
            self._to_parameter,
            self._from_parameter,
            self.groups,
            quick,
        )
        jacobians: dict[str, ParameterJacobian] = {"weight": weight}
        return jacobians | {"bias": bias} if self.bias else jacobians

    def selection_pays(self, columns: int, windows: int, shape: Shape) -> bool:
        return pays(columns, windows, prod(self.window.out(shape[1:])), self._columns()[1], self.out_channels)

    def selected_jacobians(
        self, jacobians: Mapping[str, ParameterJacobian], selection: Selection
    ) -> dict[str, ParameterJacobian]:
        weight = jacobians["weight"]
        assert isinstance(weight, Outer)
        found: dict[str, ParameterJacobian] = {"weight": SelectedOuter(weight, selection)}
        return found | {"bias": SelectedBias(selection)} if self.bias else found

    def _to_parameter(self, weight: Array) -> Array:
        """``[*lead, O, (*kernel, C)] -> [*lead, O, C, *kernel]``."""
        split = weight.reshape(*weight.shape[:-1], *self.window.kernel, self.in_channels // self.groups)
        return channels_first(split, weight.ndim - 1)

    def _from_parameter(self, weight: Array) -> Array:
        """``[*lead, O, C, *kernel] -> [*lead, O, (*kernel, C)]``."""
        lead = weight.ndim - self.dims - 2
        return channels_last(weight, lead + 1).reshape(*weight.shape[: lead + 1], -1)


class Conv2d(_Conv):
    """Convolution of images: ``[N, C, H, W] -> [N, O, H', W']``.

    Parameters
    ----------
    in_channels, out_channels : int
        C and O.
    kernel_size, stride, dilation : int or (int, int)
    padding : int, (int, int), "valid" or "same"
        Zeros on each side; "same" keeps the image's size (stride 1 only; an odd zero goes after, as in torch).
    groups : int
        Channels fall into this many groups that do not meet. Kronecker factors are given for 1 only.
    bias : bool

    Attributes
    ----------
    parameters : dict
        "weight" (O, C / groups, kH, kW), and "bias" (O,); drawn from U(−1/√I, 1/√I), I = C kH kW / groups.
    """

    dims = 2


def _padding(padding: Any, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[tuple[int, int], ...]:
    """torch's padding argument as (before, after) per axis."""
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if set(stride) != {1}:
            raise ValueError(f"padding: 'same' needs a stride of 1, got stride {stride}")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise ValueError(f"padding: expected integers, 'valid' or 'same', got {padding!r}")
    return tuple((p, p) for p in per_axis("padding", padding, len(kernel), least=0))


def _short(values: Shape) -> str:
    """One number for equal entries."""
    return str(values[0]) if len(set(values)) == 1 else str(values)
