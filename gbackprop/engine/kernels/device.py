"""Kernels on a GPU, for CuPy arrays: the same functions as in `host`.

Each is one kernel where plain code starts one or more for each place in a window. They gather: a thread computes one
number of the result from all numbers that contribute to it, in the definition's order. So none needs atomic operations,
results do not change from run to run, and sums are rounded as in the definition. Images have up to three spatial axes;
missing ones are added in front, with length 1.

Tests check these against the definitions; without a GPU they compile the same source for the host.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.window import Window
from gbackprop.engine.kernels.view import unfold

AXES = 3

_GROUPS = ("size", "out", "window", "stride", "step")

_NUMBERS = ", ".join(["int32 channels", *(f"int32 {name}{axis}" for name in _GROUPS for axis in "dhw")])

_PIXEL = """
ptrdiff_t rest = i;
const int c = rest % channels; rest /= channels;
const int w = rest % sizew; rest /= sizew;
const int h = rest % sizeh; rest /= sizeh;
const int d = rest % sized; rest /= sized;
const ptrdiff_t row = rest;
"""
"""The indices of the number of an image ``[L, *size, C]`` that a thread computes."""

_WINDOWS_AT_PIXEL = """
for (int a = 0; a < windowd; ++a) {
    const int fromd = d - a * stepd;
    if (fromd < 0 || fromd % strided || fromd / strided >= outd) continue;
    for (int b = 0; b < windowh; ++b) {
        const int fromh = h - b * steph;
        if (fromh < 0 || fromh % strideh || fromh / strideh >= outh) continue;
        for (int e = 0; e < windoww; ++e) {
            const int fromw = w - e * stepw;
            if (fromw < 0 || fromw % stridew || fromw / stridew >= outw) continue;
            const int k = (a * windowh + b) * windoww + e;
            const ptrdiff_t at = ((ptrdiff_t)(fromd / strided) * outh + fromh / strideh) * outw + fromw / stridew;
            ADD
        }
    }
}
"""
"""For each window that covers the pixel: its position ``at``, and the pixel's place ``k`` in it."""

_POSITIONS = "(ptrdiff_t)outd * outh * outw"
_PLACES = "(ptrdiff_t)windowd * windowh * windoww"

_FOLD_ADD = f"total += cols[((row * {_POSITIONS} + at) * {_PLACES} + k) * channels + c];"

_SCATTER_ADD = f"""
if (places[((row % samples) * {_POSITIONS} + at) * channels + c] == k)
    total += rows[(row * {_POSITIONS} + at) * channels + c];
"""

_FIRST_PLACES = """
ptrdiff_t rest = i;
const int c = rest % channels; rest /= channels;
const int w = rest % outw; rest /= outw;
const int h = rest % outh; rest /= outh;
const int d = rest % outd; rest /= outd;
int found = 0;
for (int a = 0; a < windowd; ++a)
    for (int b = 0; b < windowh; ++b)
        for (int e = 0; e < windoww; ++e) {
            const ptrdiff_t slice = rest * sized + d * strided + a * stepd;
            const ptrdiff_t line = slice * sizeh + h * strideh + b * steph;
            const ptrdiff_t at = (line * sizew + w * stridew + e * stepw) * channels + c;
            if (found == (a * windowh + b) * windoww + e && x[at] < y) ++found;
        }
places = found;
"""

_SIGMOID = """
const T e = exp(x < 0 ? x : -x);
y = (x < 0 ? e : (T)1) / (1 + e);
"""


def _gather(add: str) -> str:
    """Return the body of a kernel that sums at each pixel over the windows that cover it."""
    return f"{_PIXEL}\nT total = 0;\n{_WINDOWS_AT_PIXEL.replace('ADD', add)}\nimage = total;"


SOURCES = {
    "fold": (f"raw T cols, {_NUMBERS}", "T image", _gather(_FOLD_ADD)),
    "scatter": (f"raw T rows, raw int32 places, int32 samples, {_NUMBERS}", "T image", _gather(_SCATTER_ADD)),
    "first_places": (f"raw T x, T y, {_NUMBERS}", "int32 places", _FIRST_PLACES),
    "sigmoid": ("T x", "T y", _SIGMOID),
}
"""For each kernel: its inputs, its outputs, and the body that computes number i of the result."""


@functools.cache
def _kernel(xp: ModuleType, name: str) -> Any:
    inputs, outputs, body = SOURCES[name]
    return xp.ElementwiseKernel(inputs, outputs, body, f"gbackprop_{name}")


def _numbers(window: Window, channels: int, size: Sequence[int], out: Sequence[int]) -> list[int]:
    """Return the geometry in the order of `_NUMBERS`, on three axes."""
    groups = (size, out, window.kernel, window.stride, window.dilation)
    return [channels, *(number for group in groups for number in (*(1,) * (AXES - len(group)), *group))]


def fold(cols: Array, window: Window, image: Array) -> None:
    """Compute `kernels.host.fold`; `cols` may be any view, strided or broadcast."""
    size = image.shape[1:-1]
    numbers = _numbers(window, image.shape[-1], size, cols.shape[1 : 1 + len(size)])
    _kernel(array_module(cols), "fold")(cols, *numbers, image)


def first_places(image: Array, y: Array, window: Window, places: Array) -> None:
    """Compute `kernels.host.first_places`."""
    numbers = _numbers(window, image.shape[-1], image.shape[1:-1], y.shape[1:-1])
    _kernel(array_module(image), "first_places")(image, y, *numbers, places)


def scatter(rows: Array, places: Array, window: Window, image: Array) -> None:
    """Compute `kernels.host.scatter`."""
    numbers = _numbers(window, rows.shape[-1], image.shape[2:-1], places.shape[1:-1])
    _kernel(array_module(rows), "scatter")(rows, places, places.shape[0], *numbers, image)


def largest(image: Array, window: Window, y: Array) -> None:
    """Compute `kernels.host.largest`: one reduction of a view."""
    unfold(image, window, y.shape[1:-1]).max(_window_axes(y), out=y)


def total(image: Array, window: Window, y: Array) -> None:
    """Compute the sum over each window of the padded image, written to `y` ``[L, *out, C]``."""
    unfold(image, window, y.shape[1:-1]).sum(_window_axes(y), out=y)


def spread(rows: Array, window: Window, image: Array) -> None:
    """Compute the adjoint of `total`: add ``[L, *out, C]`` to all places of its window in the image ``[L, *S, C]``."""
    places = rows.reshape(*rows.shape[:-1], *(1,) * len(window.kernel), rows.shape[-1])
    seen = array_module(rows).broadcast_to(places, (*rows.shape[:-1], *window.kernel, rows.shape[-1]))
    fold(seen, window, image)


def sigmoid(x: Array) -> Array:
    """Compute `layers.activation.sigmoid`."""
    xp = array_module(x)
    y = xp.empty_like(x)
    _kernel(xp, "sigmoid")(x, y)
    return y


def _window_axes(y: Array) -> tuple[int, ...]:
    """Return the axes of the places in a window, in the result of `unfold`."""
    d = y.ndim - 2
    return tuple(range(1 + d, 1 + 2 * d))
