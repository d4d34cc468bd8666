"""Values of an ONNX graph while it is taken over: outputs of nodes of the network, and arrays that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Shape

Axes = tuple[int | tuple[int | None, ...], ...]
"""The axes of an ONNX value: sizes, and for the samples a tuple, of None and the sizes merged with them."""

BATCH = (None,)
"""The axis of the samples with nothing merged."""


def features(axes: Axes) -> Shape:
    """Return the shape of one sample: all sizes but the number of samples."""
    every = [size for axis in axes for size in (axis if isinstance(axis, tuple) else (axis,))]
    return tuple(size for size in every if size is not None)


def batch_of(axes: Axes) -> int | None:
    """Return which axis is the batch, None if the values are those of all samples."""
    return next((i for i, axis in enumerate(axes) if isinstance(axis, tuple)), None)


@dataclass(frozen=True)
class OnnxTensor:
    """The output of a node of the network, by the node's number; features have the order of `axes`."""

    node: int
    axes: Axes

    @property
    def shape(self) -> Shape:
        """Shape of one sample."""
        return features(self.axes)

    def sizes(self, count: int) -> Shape:
        """Return the shape that ONNX has for a number of samples."""
        return tuple(count * prod(features((axis,))) if isinstance(axis, tuple) else axis for axis in self.axes)

    def feature(self, axis: int) -> int:
        """Return an axis of features, counted with the network's batch as axis 0, that is an axis of ONNX."""
        at = range(len(self.axes))[axis]
        if isinstance(self.axes[at], tuple):
            raise UnsupportedError(f"axis {axis} is that of the samples, each of which the network computes alone")
        return 1 + len(features(self.axes[:at]))


@dataclass(frozen=True)
class Known:
    """An array that is known, for each of the numbers of samples with which the graph is read."""

    name: str
    arrays: tuple[np.ndarray, ...]

    @property
    def value(self) -> np.ndarray:
        """The array, if it is the same for all numbers of samples."""
        if self.depends:
            raise UnsupportedError("expected no number that follows from the number of samples, but in shapes")
        return self.arrays[0]

    @property
    def depends(self) -> bool:
        """True if the array follows from the number of samples."""
        return not all(np.array_equal(self.arrays[0], each) for each in self.arrays[1:])

    @property
    def axes(self) -> Axes:
        """Sizes of the array."""
        return self.value.shape


def aligned(operands: Sequence[Axes]) -> tuple[Axes, list[Shape]]:
    """Return the axes to which values are broadcast, and for each value features that broadcast to those."""
    ndim = max(map(len, operands))
    wide = [(1,) * (ndim - len(axes)) + tuple(axes) for axes in operands]
    whole: list[Any] = []
    for sizes in [set(each) - {1} for each in zip(*wide, strict=True)]:
        if len(sizes) > 1:
            words = ", a fixed number of samples" if any(isinstance(size, tuple) for size in sizes) else ""
            raise UnsupportedError(f"expected inputs that broadcast, got axes {_words(operands)}{words}")
        whole.append(sizes.pop() if sizes else 1)
    at = batch_of(tuple(whole))
    if at is None:
        return tuple(whole), list(map(features, wide))
    if sum(isinstance(axis, tuple) for axis in whole) > 1:
        raise UnsupportedError(f"expected the samples along the same axis of all inputs, got axes {_words(operands)}")
    ones = (1,) * (len(whole[at]) - 1)
    shapes = [features((*axes[:at], axes[at] if isinstance(axes[at], tuple) else ones, *axes[at + 1 :]))
              for axes in wide]  # fmt: skip
    return tuple(whole), shapes


def split(axes: Any, target: Sequence[int], count: int) -> Axes:
    """Return the axes after a reshape to ONNX's sizes, for a number of samples; merged with theirs if it must be."""
    at = batch_of(axes)
    sizes: Any = tuple(map(int, target))
    if at is None:
        return sizes
    own = axes[at]
    before = prod(features((*axes[:at], own[: own.index(None)])))
    for merges in (False, True):
        for i, size in enumerate(sizes):
            more = before // max(prod(sizes[:i]), 1)
            whole = more == 1 and (i == 0 or size == 1 or i < len(sizes) - 1)  # a sample alone fits the last axis, too
            if more * prod(sizes[:i]) == before and (merges or whole) and size > 0 and size % (more * count) == 0:
                mark: Any = tuple(each for each in (more, None, size // (more * count)) if each != 1)
                if prod(features(found := (*sizes[:i], mark, *sizes[i + 1 :]))) == prod(features(axes)):
                    return found
    raise UnsupportedError(f"expected a shape with the samples along one axis, got {sizes} from {_words([axes])}")


def marked(target: Sequence[int], count: int, fixed: bool) -> Axes:
    """Return ONNX's sizes as axes: what is a multiple of the number of samples is theirs, if fixed the first alone."""
    return tuple(
        (BATCH if size == count else (None, size // count))
        if (i == 0 and size == count > 1 if fixed else size > 0 and size % count == 0) else int(size)
        for i, size in enumerate(target)
    )  # fmt: skip


def _words(operands: Sequence[Axes]) -> str:
    each = [
        "(" + ", ".join("N" if axis == BATCH else str(axis).replace("None", "N") for axis in axes) + ")"
        for axes in operands
    ]
    return " and ".join(each)


def starts_of(name: str) -> list[str]:
    """Return the paths that start a path."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def is_free(name: str, taken: set[str]) -> bool:
    """Return whether a path is none that is there, or starts one, or starts with one; starts have a dot at the end."""
    return name not in taken and f"{name}." not in taken and taken.isdisjoint(starts_of(name))
