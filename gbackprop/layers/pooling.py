"""Pooling: the maximum or the mean of what each window sees, channel by channel. Channels-last inside."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

import numpy as np

from gbackprop.arguments import positive
from gbackprop.array import Array, array_module, channels_first, channels_last, row_blocks
from gbackprop.kernels import first_places, largest, pad, scatter, spread, total, window_offsets
from gbackprop.layers.base import Layer, Shape
from gbackprop.layers.jacobian import congruence
from gbackprop.layers.selection import Selection, numbered
from gbackprop.layers.window import Window, channels_and_axes, per_axis


class _Pool(Layer):
    """What maximum and mean share."""

    dims: ClassVar[int]
    window: Window

    def _set_window(self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        kernel = per_axis("kernel_size", kernel_size, self.dims)
        strides = kernel if stride is None else per_axis("stride", stride, self.dims)
        steps = per_axis("dilation", dilation, self.dims)
        pads = per_axis("padding", padding, self.dims, least=0)
        for p, k, d in zip(pads, kernel, steps, strict=True):
            if p > (d * (k - 1) + 1) // 2:
                raise ValueError(f"padding: expected at most half the window {kernel}, got {pads}")
        self.window = Window(kernel, strides, steps, tuple((p, p) for p in pads), bool(ceil_mode))

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

    def _views(self, image: Array, out: Shape) -> Iterator[Array]:
        """For each place in the window, what the windows see of ``[..., *S, C]`` there: ``[..., *out, C]``."""
        for where in window_offsets(self.window.kernel, self.window.stride, self.window.dilation, out):
            yield image[(..., *where, slice(None))]

    def _gathered(self, mat: Array, out: Shape, shares: Iterator[Array]) -> Array:
        """J mat: the sum over places in the window of ``mat * share``, ``[V, N, C, *S] -> [V, N, C, *out]``."""
        image = pad(channels_last(mat.reshape(-1, *mat.shape[2:])), self.window.fitted(mat.shape[3:]))
        image = image.reshape(*mat.shape[:2], *image.shape[1:])
        total = sum(seen * share for seen, share in zip(self._views(image, out), shares, strict=True))
        return channels_first(total, 2)


class MaxPool2d(_Pool):
    """Maximum over windows of an image, per channel: ``[N, C, H, W] -> [N, C, H', W']``.

    Of equal maxima the first in the window, row by row, takes the derivative, as in torch.

    Parameters
    ----------
    kernel_size : int or (int, int)
    stride : int or (int, int), optional
        The kernel's size by default.
    padding : int or (int, int)
        Places outside the image, which never are the maximum; at most half the window.
    dilation : int or (int, int)
    ceil_mode : bool
        Whether a last window may reach beyond the padding.
    """

    dims = 2
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
        if not self.window.all_see(shape[1:]):  # their maximum would be −∞, which later layers make plausible
            raise ValueError(f"expected an image of which every window sees something, got {shape}")
        return out

    def forward(self, x: Array) -> tuple[Array, Any]:
        image, out = self._image(x)
        y = largest(image, self.window.kernel, self.window.stride, self.window.dilation, out)
        return channels_first(y), (x, y)

    def _image(self, x: Array) -> tuple[Array, Shape]:
        """Channels last, with −∞ in the padding; and the number of windows."""
        spatial = x.shape[2:]
        return pad(channels_last(x), self.window.fitted(spatial), -np.inf), self.window.out(spatial)

    def _places(self, saved: Any) -> Array:
        """Where in its window each maximum is, ``[N, *out, C]``."""
        x, y = saved
        window = self.window
        return first_places(self._image(x)[0], y, window.kernel, window.stride, window.dilation)

    def jmp(self, saved: Any, mat: Array) -> Array:
        places = self._places(saved)
        shares = (places == k for k in range(prod(self.window.kernel)))
        return self._gathered(mat, saved[1].shape[1:-1], shares)

    def mjp(self, saved: Any, mat: Array) -> Array:
        window, spatial = self.window, saved[0].shape[2:]
        size = window.padded(spatial)
        image = scatter(channels_last(mat, 2), self._places(saved), size, window.kernel, window.stride, window.dilation)
        return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)

    def selection(self, saved: Any, above: Selection | None) -> Selection | None:
        spatial, out = saved[0].shape[2:], saved[1].shape[1:-1]
        image = pad(numbered(spatial), self.window.fitted(spatial), -1)
        seen = np.stack([view.reshape(-1) for view in self._views(image, out)])  # [K, W]
        places = self._places(saved).reshape(len(saved[0]), prod(out), -1)
        table = seen.take(places * prod(out) + np.arange(prod(out))[:, None])
        return Selection.of(table) if above is None else above.through(table)

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        # A few samples at a time: the [D, D] blocks of a whole batch would be N times KFRA's largest matrix.
        d = max(curvature.shape[0], prod(saved[0].shape[1:]))
        blocks = row_blocks(batch, 4 * d * d * curvature.dtype.itemsize, curvature)
        average = self._congruent(saved, curvature, next(blocks), shape)
        for rows in blocks:
            average += self._congruent(saved, curvature, rows, shape)
        average /= batch
        return average

    def _congruent(self, saved: Any, curvature: Array, rows: slice, shape: Shape) -> Array:
        """Σₙ Jₙᵀ Ḡ Jₙ over some samples."""
        some = tuple(array[rows] for array in saved)
        each = congruence(lambda mat: self.mjp(some, mat), curvature, len(some[0]), shape)
        return each[:, 0] if len(some[0]) == 1 else each.sum(1)


class AvgPool2d(_Pool):
    """Mean over windows of an image, per channel: ``[N, C, H, W] -> [N, C, H', W']``.

    Parameters
    ----------
    kernel_size : int or (int, int)
    stride : int or (int, int), optional
        The kernel's size by default.
    padding : int or (int, int)
        Zeros on each side; at most half the window.
    ceil_mode : bool
        Whether a last window may reach beyond the padding. What is beyond is not counted.
    count_include_pad : bool
        Whether the zeros of the padding count in the mean.
    divisor_override : int, optional
        Divide by this instead.
    """

    dims = 2
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
        self.count_include_pad = bool(count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            positive("divisor_override", divisor_override)

    def describe(self) -> str:
        words = super().describe()
        words += "" if self.count_include_pad else ", count_include_pad=False"
        return words + ("" if self.divisor_override is None else f", divisor_override={self.divisor_override}")

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self.jmp(x.shape, x[None])[0], x.shape

    def _share(self, spatial: Shape, mat: Array) -> Array:
        """1 / (what the window counts), ``[*out, 1]``, or one number for all windows."""
        counts = self._counts(spatial)
        if counts.min() == counts.max():  # as a rule: a number, which has no way to go to a GPU
            return mat.real.dtype.type(1 / counts.flat[0])
        return array_module(mat).asarray(1 / counts[..., None], dtype=mat.real.dtype)

    def _counts(self, spatial: Shape) -> np.ndarray:
        """How many places each window counts, ``[*out]``."""
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
        spatial, window = saved[2:], self.window
        image = pad(channels_last(mat.reshape(-1, *mat.shape[2:])), window.fitted(spatial))
        y = total(image, window.kernel, window.stride, window.dilation, window.out(spatial))
        y *= self._share(spatial, mat)
        return channels_first(y.reshape(*mat.shape[:2], *y.shape[1:]), 2)

    def mjp(self, saved: Any, mat: Array) -> Array:
        spatial, window = saved[2:], self.window
        rows = channels_last(mat, 2) * self._share(spatial, mat)
        rows = rows.reshape(-1, *rows.shape[2:])
        image = spread(rows, window.padded(spatial), window.kernel, window.stride, window.dilation)
        image = image.reshape(*mat.shape[:2], *image.shape[1:])
        return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)
