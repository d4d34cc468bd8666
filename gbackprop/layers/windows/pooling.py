"""Pooling: the maximum or the mean over each window, for each channel. The layout inside is channels-last."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.base.checks import check_flag, positive
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Spatial, Window, channels_and_axes, pad, per_axis


class _Pool(Spatial):
    """Base class of maximum and mean pooling."""

    window: Window

    def _set_window(self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        kernel = per_axis("kernel_size", kernel_size, self.dims)
        strides = kernel if stride is None else per_axis("stride", stride, self.dims)
        steps = per_axis("dilation", dilation, self.dims)
        pads = per_axis("padding", padding, self.dims, least=0)
        if any(p > k // 2 for p, k in zip(pads, kernel, strict=True)):  # torch's rule, whatever the dilation
            raise ValueError(f"padding: expected at most half of kernel_size {kernel}, got {pads}")
        self.window = Window(kernel, strides, steps, tuple((p, p) for p in pads), check_flag("ceil_mode", ceil_mode))

    def describe(self) -> str:
        w = self.window
        words = [f"kernel_size={w.kernel}", f"stride={w.stride}"]
        words += [f"padding={tuple(p for p, _ in w.padding)}"] if any(map(any, w.padding)) else []
        words += [f"dilation={w.dilation}"] if set(w.dilation) != {1} else []
        words += ["ceil_mode=True"] if w.ceil_mode else []
        return ", ".join(words)

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims)
        return (shape[0], *self.window.out(shape[1:]))

    def _gathered(self, mat: Array, shares: Iterable[Array]) -> Array:
        """J mat: the sum over places in the window of ``mat * share``, ``[V, N, C, *S] -> [V, N, C, *out]``."""
        window, spatial = self.window, mat.shape[3:]
        image = pad(channels_last(mat.reshape(-1, *mat.shape[2:])), window.fitted(spatial))
        image = image.reshape(*mat.shape[:2], *image.shape[1:])
        places = zip(window.offsets(window.out(spatial)), shares, strict=True)
        total: Any = sum(image[(..., *where, slice(None))] * share for where, share in places)
        return channels_first(total, 2)

    def _spread(self, mat: Array, shares: Iterable[Array], spatial: Shape) -> Array:
        """Jᵀ mat: ``mat * share`` added to each place in the window, ``[V, N, C, *out] -> [V, N, C, *S]``."""
        window, rows = self.window, channels_last(mat, 2)
        image = array_module(mat).zeros((*mat.shape[:2], *window.padded(spatial), mat.shape[2]), dtype=mat.dtype)
        for where, share in zip(window.offsets(mat.shape[3:]), shares, strict=True):
            image[(..., *where, slice(None))] += rows * share
        return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)


class _MaxPool(_Pool):
    """Maximum over windows.

    Of equal maxima the first in the window, row by row, receives the derivative, as in torch.

    Parameters
    ----------
    kernel_size : int or (int, …)
    stride : int or (int, …), optional
        The kernel's size by default.
    padding : int or (int, …)
        Places outside the image, which never are the maximum; at most half of `kernel_size`, as in torch.
    dilation : int or (int, …)
    ceil_mode : bool
        Whether a last window may reach beyond the padding.
    """

    formulas = {"forward": "y[t] = maxₖ x[t, k]", "mjp": "g[t] to the place of the maximum"}

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        ceil_mode: bool = False,
    ) -> None:
        self._set_window(kernel_size, stride, padding, dilation, ceil_mode)

    def output_shape(self, shape: Shape) -> Shape:
        out = super().output_shape(shape)
        if any(map(any, self.window.padding)) and not self.window.all_see(shape[1:]):  # a maximum of none is −∞
            raise ValueError(f"expected an image of which every window sees something, got {shape}")
        return out

    def forward(self, x: Array) -> tuple[Array, Any]:
        views = self._views(x)
        y = next(views).copy()
        for seen in views:
            y = array_module(x).maximum(y, seen)
        return channels_first(y), (x, y)

    def _views(self, x: Array) -> Iterator[Array]:
        """Yield for each place in the window the entries of all windows there, −∞ in the padding: ``[N, *out, C]``."""
        spatial = x.shape[2:]
        image = pad(channels_last(x), self.window.fitted(spatial), -np.inf)
        return (image[(slice(None), *where)] for where in self.window.offsets(self.window.out(spatial)))

    def _places(self, saved: Any) -> Array:
        """Find the first place of each maximum in its window, places numbered row by row: ``[N, *out, C]``.

        The comparison is "not less" instead of "equal", so that a maximum of NaN also has a place.
        """
        x, y = saved
        less = array_module(x).ones(y.shape, dtype=bool)
        places = array_module(x).zeros(y.shape, dtype=np.int32)
        for seen in self._views(x):
            less &= seen < y
            places += less
        return places

    def jmp(self, saved: Any, mat: Array) -> Array:
        places = self._places(saved)
        return self._gathered(mat, (places == k for k in range(prod(self.window.kernel))))

    def mjp(self, saved: Any, mat: Array) -> Array:
        places = self._places(saved)
        return self._spread(mat, (places == k for k in range(prod(self.window.kernel))), saved[0].shape[2:])


class MaxPool2d(_MaxPool, dims=2):
    """Maximum over windows of an image, per channel: ``[N, C, H, W] -> [N, C, H', W']``."""


class _AvgPool(_Pool):
    """Mean over windows.

    Parameters
    ----------
    kernel_size : int or (int, …)
    stride : int or (int, …), optional
        The kernel's size by default.
    padding : int or (int, …)
        Zeros on each side; at most half of `kernel_size`, as in torch.
    ceil_mode : bool
        Whether a last window may reach beyond the padding. Places beyond it are not counted.
    count_include_pad : bool
        Whether the zeros of the padding count in the mean.
    divisor_override : int, optional
        Divide by this instead.
    """

    constant_jacobian = True
    formulas = {"forward": "y[t] = 1/K Σₖ x[t, k]", "mjp": "g[t]/K to each place of the window"}

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self._set_window(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = check_flag("count_include_pad", count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            positive("divisor_override", divisor_override)

    def describe(self) -> str:
        words = super().describe()
        words += "" if self.count_include_pad else ", count_include_pad=False"
        return words + ("" if self.divisor_override is None else f", divisor_override={self.divisor_override}")

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self.jmp(x.shape, x[None])[0], x.shape

    def _shares(self, spatial: Shape, mat: Array) -> Iterator[Array]:
        """Return 1/K for each place in the window."""
        return itertools.repeat(self.share(spatial, mat), prod(self.window.kernel))

    def share(self, spatial: Shape, mat: Array) -> Array:
        """Return 1/K, K the places that a window counts, ``[*out, 1]``, or one number for all windows."""
        counts = self._counts(spatial)
        if counts.min() == counts.max():  # usually: a number, which needs no transfer to a GPU
            return mat.real.dtype.type(1 / counts.flat[0])
        return array_module(mat).asarray(1 / counts[..., None], dtype=mat.real.dtype)

    def _counts(self, spatial: Shape) -> np.ndarray:
        """Return how many places each window counts, ``[*out]``."""
        window, out = self.window, self.window.out(spatial)
        if self.divisor_override is not None:
            return np.full(out, float(self.divisor_override))
        counts = np.ones(())
        axes = zip(spatial, window.kernel, window.stride, window.padding, out, strict=True)
        for size, k, s, (before, after), o in axes:
            start = np.arange(o) * s - before
            end = np.minimum(start + k, size + after)  # beyond the padding nothing is counted
            if not self.count_include_pad:
                start, end = np.maximum(start, 0), np.minimum(end, size)
            counts = counts[..., None] * (end - start)
        return counts

    def jmp(self, saved: Any, mat: Array) -> Array:
        return self._gathered(mat, self._shares(saved[2:], mat))

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self._spread(mat, self._shares(saved[2:], mat), saved[2:])


class AvgPool2d(_AvgPool, dims=2):
    """Mean over windows of an image, per channel: ``[N, C, H, W] -> [N, C, H', W']``."""
