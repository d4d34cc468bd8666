"""Convolution: a linear map of the entries in each window, y[t] = W u[t] + b with u the unfolded input.

The layout inside is channels-last. The columns of u are numbered (*kernel, C); torch numbers those of a weight
(C, *kernel), and `_to_parameter` reorders. `forward` saves (x, u), with its frame around x if `padding_mode` is not
"zeros"; a form that does not store u saves (x, None).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.base.checks import check_flag, positive
from gbackprop.calculus.frame import MODES, Frame
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Spatial, Window, channels_and_axes, per_axis
from gbackprop.layers.linear import uniform


class _ConvBase(Spatial):
    """Base class of convolutions and transposed ones: channels in groups, a window, a weight for it, and a bias."""

    window: Window
    fixed = frozenset({"in_channels", "out_channels", "groups"})
    constant_jacobian = True
    kronecker_factors = True

    def _set_channels(self, in_channels: int, out_channels: int, groups: int, bias: bool) -> None:
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.groups = positive("groups", groups)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(f"groups: expected a divisor of {in_channels} and {out_channels} channels, got {groups}")
        self.bias = check_flag("bias", bias)

    def _set_window(self, kernel_size: Any, stride: Any, dilation: Any) -> None:
        kernel, strides = per_axis("kernel_size", kernel_size, self.dims), per_axis("stride", stride, self.dims)
        self.window = Window(kernel, strides, per_axis("dilation", dilation, self.dims), ((0, 0),) * self.dims)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = self.parameter_shapes()  # torch takes the weight's second axis for its inputs, whatever it is
        return uniform(rng, shapes, prod(shapes["weight"][1:]))


class _Conv(_ConvBase):
    """A convolution over `dims` spatial axes.

    Parameters
    ----------
    in_channels, out_channels : int
        C and O.
    kernel_size, stride, dilation : int or (int, …)
    padding : int, (int, …), "valid" or "same"
        Places on each side; "same" preserves the input's size (stride 1 only; an odd one is added after, as in torch).
    groups : int
        Number of groups of channels, each with weights, and Kronecker factors, of its own.
    bias : bool
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        What the padding contains: zeros, the input reflected at its border, the number at the border, or what is at the
        other side.

    Attributes
    ----------
    parameters : dict
        "weight" (O, C / groups, *kernel), and "bias" (O,); drawn from U(−1/√I, 1/√I), I = C ∏ kernel / groups.
    """

    formulas = {"forward": "y[t] = W u[t] + b, u = unfold(x)", "mjp": "fold(Wᵀ g[t])"}
    fixed = _ConvBase.fixed | {"padding"}

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
        padding_mode: str = "zeros",
    ) -> None:
        self._set_channels(in_channels, out_channels, groups, bias)
        self._set_window(kernel_size, stride, dilation)
        around = _padding(padding, self.window)
        if padding_mode not in ("zeros", *MODES):
            raise ValueError(f"padding_mode: expected 'zeros' or one of {', '.join(MODES)}, got {padding_mode!r}")
        self.frame, self.padding = None if padding_mode == "zeros" else Frame(padding_mode, around), padding
        self.window = self.window if self.frame else replace(self.window, padding=around)

    def describe(self) -> str:
        window = self.window
        words = [f"{self.in_channels}, {self.out_channels}, kernel_size={_short(window.kernel)}"]
        words += [f"stride={_short(window.stride)}"] if set(window.stride) != {1} else []
        words += [f"padding={self.padding!r}"] if self.frame or any(map(any, window.padding)) else []
        words += [f"dilation={_short(window.dilation)}"] if set(window.dilation) != {1} else []
        words += [f"groups={self.groups}"] if self.groups > 1 else []
        words += [] if self.bias else ["bias=False"]
        words += [f"padding_mode={self.frame.mode!r}"] if self.frame else []
        return ", ".join(words)

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.out_channels, self.in_channels // self.groups, *self.window.kernel)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims, self.in_channels)
        return (self.out_channels, *self.window.out(self.frame.size(shape[1:]) if self.frame else shape[1:]))

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        x = self.frame.around(x) if self.frame else x
        u = self._unfolded(x)
        y = self._multiplied(u, self.window.out(x.shape[2:]))
        return y + self.parameters["bias"].reshape(-1, *(1,) * self.dims) if self.bias else y, (x, u)

    def _unfolded(self, x: Array) -> Array:
        """Compute u, the entries in each window: ``[L, C, *S] -> [G, L, T, I]``."""
        seen = self.window.unfold(channels_last(x))
        by_group = seen.reshape(len(x), -1, prod(self.window.kernel), self.groups, self.in_channels // self.groups)
        return array_module(x).moveaxis(by_group, 3, 0).reshape(self.groups, len(x), by_group.shape[1], -1)

    def _multiplied(self, u: Array, out: Shape) -> Array:
        """W u: ``[G, L, T, I] -> [L, O, *out]``."""
        y = array_module(u).moveaxis(u @ self._matrix().swapaxes(1, 2)[:, None], 0, 2)  # [L, T, G, O / G]
        return channels_first(y.reshape(u.shape[1], *out, self.out_channels))

    def _matrix(self) -> Array:
        """Return the weight as ``[G, O / G, I]``, with I numbered (*kernel, C)."""
        weight = self.parameters["weight"]
        return channels_last(weight).reshape(self.groups, self.out_channels // self.groups, -1)

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        x = mat.reshape(-1, *mat.shape[2:])
        x = self.frame.around(x) if self.frame else x
        y = self._multiplied(self._unfolded(x), self.window.out(x.shape[2:]))
        return y.reshape(*mat.shape[:2], *y.shape[1:])

    def mjp(self, saved: Any, mat: Array) -> Array:
        """Fold the product Wᵀ g[t] of each window back to the places that the window covers."""
        (x, _), (columns, n, _, *out) = saved, mat.shape
        g = self.rows(mat).reshape(columns * n, prod(out), self.groups, -1)
        shares = array_module(mat).moveaxis(g, 2, 0) @ self._matrix()[:, None]  # [G, L, T, I]
        by_place = shares.reshape(self.groups, columns * n, *out, *self.window.kernel, -1)
        seen = array_module(mat).moveaxis(by_place, 0, -2).reshape(*by_place.shape[1:-1], self.in_channels)
        image = self.window.fold(seen, x.shape[2:])
        image = channels_first(image.reshape(columns, n, *image.shape[1:]), 2)
        return self.frame.inside(image) if self.frame else image

    def rows(self, mat: Array) -> Array:
        """Return the view by position: ``[V, N, O, *out] -> [V, N, T, O]``."""
        return channels_last(mat, 2).reshape(*mat.shape[:2], prod(mat.shape[3:]), self.out_channels)

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        (x, u), bias = saved, Bias(self.rows)
        inputs = (lambda: self._unfolded(x)) if u is None else (lambda: u)
        jacobians: dict[str, ParameterJacobian] = {
            "weight": Outer(inputs, bias, self._to_parameter, self._from_parameter, self.groups)
        }
        return jacobians | {"bias": bias} if self.bias else jacobians

    def _to_parameter(self, weight: Array) -> Array:
        """``[*lead, O, (*kernel, C)] -> [*lead, O, C, *kernel]``."""
        split = weight.reshape(*weight.shape[:-1], *self.window.kernel, self.in_channels // self.groups)
        return channels_first(split, weight.ndim - 1)

    def _from_parameter(self, weight: Array) -> Array:
        """``[*lead, O, C, *kernel] -> [*lead, O, (*kernel, C)]``."""
        lead = weight.ndim - self.dims - 2
        return channels_last(weight, lead + 1).reshape(*weight.shape[: lead + 1], -1)


class Conv2d(_Conv, dims=2):
    """A convolution of images: ``[N, C, H, W] -> [N, O, H', W']``."""


def _padding(padding: Any, window: Window) -> tuple[tuple[int, int], ...]:
    """Convert torch's padding argument to (before, after) per axis."""
    if padding == "valid":
        return window.padding
    if padding == "same":
        if set(window.stride) != {1}:
            raise ValueError(f"padding: 'same' needs a stride of 1, got stride {window.stride}")
        totals = [reach - 1 for reach in window.reach]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise ValueError(f"padding: expected integers, 'valid' or 'same', got {padding!r}")
    return tuple((p, p) for p in per_axis("padding", padding, len(window.kernel), least=0))


def _short(values: Shape) -> str:
    """Format values, with one number for equal entries."""
    return str(values[0]) if len(set(values)) == 1 else str(values)
