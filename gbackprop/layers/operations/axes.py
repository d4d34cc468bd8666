"""Axes and broadcasting of features, whatever axes lead."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.layer import Shape


def axes_of(axis: Any, shape: Shape, least: int = 0) -> tuple[int, ...]:
    """Return axes counted from the end, of one, several, or None for all, given with the batch as axis 0."""
    ndim = len(shape)
    if axis is None:
        return tuple(range(-ndim, 0))
    given = tuple(axis) if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    if not all(isinstance(each, Integral) and not isinstance(each, bool) and each != 0 for each in given):
        raise ValueError(f"axis: expected axes after the batch axis, such as 1 or -1, got {axis!r}")
    found = sorted(int(each) if each < 0 else int(each) - 1 - ndim for each in given)
    if not all(-ndim <= each < 0 for each in found) or len(set(found)) < len(found) or len(found) < least:
        raise ValueError(f"axis: expected different axes of features {shape}, with the batch as axis 0, got {axis!r}")
    return tuple(found)


def axis_of(axis: Any, shape: Shape) -> int:
    """Return one axis counted from the end."""
    found = axes_of(axis, shape)
    if axis is None or len(found) != 1:
        raise ValueError(f"axis: expected one axis after the batch axis, got {axis!r}")
    return found[0]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape to which features are broadcast."""
    ndim = max(map(len, shapes))
    sizes: list[int] = []
    for each in zip(*[(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes], strict=True):
        wide = {size for size in each if size != 1}
        if len(wide) > 1:
            raise ValueError(f"expected features that broadcast, got {' and '.join(map(str, shapes))}")
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


def aligned(x: Array, shape: Shape, ndim: int) -> Array:
    """Return an array of features `shape` with axes of length 1 before these, up to `ndim` of them."""
    if len(shape) == ndim:
        return x
    return x.reshape(*x.shape[: x.ndim - len(shape)], *(1,) * (ndim - len(shape)), *shape)


def summed_to(g: Array, shape: Shape, ndim: int) -> Array:
    """Return the adjoint of broadcasting features of a shape to `ndim` axes: sums over the axes that were repeated."""
    lead = g.shape[: g.ndim - ndim]
    whole = (1,) * (ndim - len(shape)) + tuple(shape)
    axes = tuple(i - ndim for i in range(ndim) if whole[i] == 1 and g.shape[len(lead) + i] != 1)
    return (g.sum(axes, keepdims=True) if axes else g).reshape(*lead, *shape)


def widened(g: Array, axes: tuple[int, ...], keepdims: bool, shape: Shape) -> Array:
    """Return what was summed over `axes` with axes of length 1 in their place; `shape` is that before the sum."""
    if keepdims or not axes:
        return g
    lead = g.shape[: g.ndim - len(shape) + len(axes)]
    return g.reshape(*lead, *(1 if i - len(shape) in axes else size for i, size in enumerate(shape)))


def reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the features' shape after a reduction over axes."""
    each = [(1 if i - len(shape) in axes else size, i - len(shape) in axes) for i, size in enumerate(shape)]
    return tuple(size for size, gone in each if keepdims or not gone)
