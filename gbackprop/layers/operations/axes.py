"""Axes and broadcasting of features, whatever axes lead, and options that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.layer import Shape


def integers(name: str, value: Any) -> tuple[int, ...]:
    """Return one integer or several as a tuple."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(isinstance(each, Integral) and not isinstance(each, bool) for each in given):
        raise ValueError(f"{name}: expected integers, got {value!r}")
    return tuple(map(int, given))


def each_axis(axis: Any, shape: Shape) -> tuple[int, ...]:
    """Return axes counted from the end, in the order given, of one or several with the batch as axis 0, or None."""
    ndim, given = len(shape), axis if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    if axis is None:
        return tuple(range(-ndim, 0))
    if not all(isinstance(each, Integral) and not isinstance(each, bool) and each != 0 for each in given):
        raise ValueError(f"axis: expected axes after the batch axis, such as 1 or -1, got {axis!r}")
    found = tuple(int(each) if each < 0 else int(each) - 1 - ndim for each in given)
    if not all(-ndim <= each < 0 for each in found) or len(set(found)) < len(found):
        raise ValueError(f"axis: expected different axes of features {shape}, with the batch as axis 0, got {axis!r}")
    return found


def axis_of(axis: Any, shape: Shape) -> int:
    """Return one axis counted from the end."""
    found = each_axis(axis, shape)
    if axis is None or len(found) != 1:
        raise ValueError(f"axis: expected one axis after the batch axis, got {axis!r}")
    return found[0]


def along(axis: int, part: Any) -> tuple[Any, ...]:
    """Return the index that takes a part along an axis counted from the end."""
    return (..., part, *(slice(None),) * (-axis - 1))


def resized(shape: Shape, axis: int, size: int) -> Shape:
    """Return a shape with another size of an axis counted from the end."""
    return tuple(size if i - len(shape) == axis else each for i, each in enumerate(shape))


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape to which features are broadcast."""
    ndim = max(map(len, shapes))
    sizes: list[int] = []
    for each in zip(*[(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes], strict=True):
        wide = {size for size in each if size != 1}
        if len(wide) > 1:
            raise ValueError(f"expected features that broadcast, got {' and '.join(map(str, shapes))}")
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


def lead_of(x: Array, shape: Shape) -> Shape:
    """Return the leading axes of an array of features of a shape."""
    return x.shape[: x.ndim - len(shape)]


def aligned(x: Array, shape: Shape, ndim: int) -> Array:
    """Return an array of features `shape` with axes of length 1 before these, up to `ndim` of them."""
    return x if len(shape) == ndim else x.reshape(*lead_of(x, shape), *(1,) * (ndim - len(shape)), *shape)


def summed_to(g: Array, shape: Shape, ndim: int) -> Array:
    """Return the adjoint of broadcasting features of a shape to `ndim` axes: sums over the axes that were repeated."""
    lead = g.shape[: g.ndim - ndim]
    whole = (1,) * (ndim - len(shape)) + tuple(shape)
    axes = tuple(i - ndim for i in range(ndim) if whole[i] == 1 and g.shape[len(lead) + i] != 1)
    summed = g.sum(axes, keepdims=True) if axes else g
    return summed if len(shape) == ndim else summed.reshape(*lead, *shape)


def reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the features' shape after a reduction over axes."""
    each = [(1 if i - len(shape) in axes else size, i - len(shape) in axes) for i, size in enumerate(shape)]
    return tuple(size for size, gone in each if keepdims or not gone)
