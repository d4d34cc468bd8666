"""Twins on a GPU of what `kernels` defines, for CuPy's arrays.

Each is one kernel where the definition starts one or more for each place in a window. They gather: a thread makes one
number of the result, from whichever numbers there are for it, in the definition's order. So none needs atomic
operations, results do not change from run to run, and sums are rounded as the definition's. Images have up to three
spatial axes; fewer are as many with leading axes of length 1.

`kernels` chooses; tests hold these against the definitions, without a GPU by compiling the same source for the host.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module

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
"""Which number of an image ``[L, *size, C]`` a thread makes."""

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
"""For each window that sees the pixel: its position ``at``, and the place ``k`` where it does."""

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
    """A body that sums at each pixel over the windows that see it."""
    return f"{_PIXEL}\nT total = 0;\n{_WINDOWS_AT_PIXEL.replace('ADD', add)}\nimage = total;"


SOURCES = {
    "fold": (f"raw T cols, {_NUMBERS}", "T image", _gather(_FOLD_ADD)),
    "scatter": (f"raw T rows, raw int32 places, int32 samples, {_NUMBERS}", "T image", _gather(_SCATTER_ADD)),
    "first_places": (f"raw T x, T y, {_NUMBERS}", "int32 places", _FIRST_PLACES),
    "sigmoid": ("T x", "T y", _SIGMOID),
}
"""Of each kernel: what goes in, what comes out, and the body for the result's number i."""


@functools.cache
def _kernel(xp: ModuleType, name: str) -> Any:
    inputs, outputs, body = SOURCES[name]
    return xp.ElementwiseKernel(inputs, outputs, body, f"gbackprop_{name}")


def _numbers(
    channels: int,
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """The geometry in the order of `_NUMBERS`, on three axes."""
    groups = (size, out, kernel, stride, dilation)
    return [channels, *(number for group in groups for number in (*(1,) * (AXES - len(group)), *group))]


def fold(cols: Array, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """As `kernels.fold`; `cols` need not lie side by side, or in memory once only."""
    axes, xp = len(size), array_module(cols)
    out, kernel, channels = cols.shape[1 : 1 + axes], cols.shape[1 + axes : -1], cols.shape[-1]
    image = xp.empty((cols.shape[0], *size, channels), dtype=cols.dtype)
    _kernel(xp, "fold")(cols, *_numbers(channels, size, out, kernel, stride, dilation), image)
    return image


def first_places(x: Array, y: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """As `kernels.first_places`."""
    xp = array_module(x)
    places = xp.empty(y.shape, dtype=np.int32)
    numbers = _numbers(x.shape[-1], x.shape[1:-1], y.shape[1:-1], kernel, stride, dilation)
    _kernel(xp, "first_places")(x, y, *numbers, places)
    return places


def scatter(
    rows: Array,
    places: Array,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:
    """As `kernels.scatter`."""
    xp, channels = array_module(rows), rows.shape[-1]
    image = xp.empty((*rows.shape[:2], *size, channels), dtype=rows.dtype)
    numbers = _numbers(channels, size, places.shape[1:-1], kernel, stride, dilation)
    _kernel(xp, "scatter")(rows, places, places.shape[0], *numbers, image)
    return image


def sigmoid(x: Array) -> Array:
    """As `layers.activation.sigmoid`."""
    xp = array_module(x)
    y = xp.empty_like(x)
    _kernel(xp, "sigmoid")(x, y)
    return y
