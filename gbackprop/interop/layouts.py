"""Layouts: the place of the samples in a torch tensor, and the features of one sample."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Shape

MIXED = "expected that each sample is mapped by itself, with its numbers in one place"


@dataclass(frozen=True)
class TensorLayout:
    """A tensor's shape, in which one axis may have the samples: `outer` times N times others, in this order."""

    shape: Shape  # sizes of torch's axes; that of the samples divided by N
    axis: int | None = None
    outer: int = 1

    def __str__(self) -> str:
        """Return torch's shape, in which N is the number of samples."""
        sizes = [str(size) for size in self.shape]
        if self.axis is not None:
            inner = self.shape[self.axis] // self.outer
            sizes[self.axis] = " ".join([str(self.outer)] * (self.outer > 1) + ["N"] + [str(inner)] * (inner > 1))
        return f"({', '.join(sizes)})"

    @property
    def features(self) -> Shape:
        """The shape of one sample's features; of a whole tensor without samples."""
        if self.axis is None or self.shape[self.axis] > 1:
            return self.shape
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def is_plain(self) -> bool:
        """True if the samples alone are axis 0."""
        return self.axis == 0 and self.shape[0] == 1

    @property
    def first(self) -> int:
        """The number of a sample's rows before the samples, flat."""
        assert self.axis is not None
        return prod(self.shape[: self.axis]) * self.outer

    def axis_of(self, dim: int) -> int:
        """Return the layers' number, with the batch as axis 0, of one of torch's axes that has no samples."""
        dim %= max(len(self.shape), 1)
        if dim == self.axis:
            raise UnsupportedError(f"dim: {MIXED}, got the axis of the samples")
        return dim + (self.axis is None or dim < self.axis or self.shape[self.axis] > 1)

    def axes_of(self, dims: Any) -> tuple[int, ...]:
        """Return the layers' numbers of several axes, or of all."""
        given = range(len(self.shape)) if dims is None or list(dims) == [] else dims
        return tuple(self.axis_of(dim) for dim in given)


def layout_of(shape: Any, symbol: Any, outer: int = 1) -> TensorLayout:
    """Return the layout of a shape in which the number of samples is a symbol."""
    sizes: list[int] = []
    axis = None
    for i, size in enumerate(shape):
        if isinstance(size, torch.SymInt):
            factor = size.node.expr / symbol
            if axis is not None or not factor.is_Integer:
                raise UnsupportedError(f"{MIXED}, got shape {tuple(shape)}, in which {symbol} is their number")
            axis, size = i, int(factor)
        sizes.append(int(size))
    if axis is not None and sizes[axis] % outer:
        raise UnsupportedError(f"{MIXED}, got shape {tuple(shape)}, in which {symbol} is their number")
    return TensorLayout(tuple(sizes), axis, outer if axis is not None else 1)


def reshaped(before: TensorLayout, shape: Any, symbol: Any) -> TensorLayout:
    """Return the layout of a tensor in another shape."""
    after = layout_of(shape, symbol)
    if before.axis is None or after.axis is None:
        return after
    ahead = prod(after.shape[: after.axis])
    outer = before.first // max(ahead, 1)
    if outer * ahead != before.first or after.shape[after.axis] % max(outer, 1):
        raise UnsupportedError(f"{MIXED}, got shape {tuple(shape)}, in which {symbol} is their number")
    return TensorLayout(after.shape, after.axis, outer)


@dataclass(frozen=True)
class Place:
    """A tensor of the network that is being built: its node, and its layout."""

    name: str
    layout: TensorLayout


@dataclass(frozen=True)
class Fixed:
    """A tensor that is the same for all samples and all data, with the name of where it comes from."""

    value: torch.Tensor  # without the axis of the samples
    layout: TensorLayout
    name: str

    @property
    def number(self) -> float | None:
        """The number that it is, None for a tensor with axes."""
        return self.value.item() if self.layout.shape == () else None


def rows_alike(values: list[torch.Tensor], layout: TensorLayout) -> torch.Tensor | None:
    """Return one sample's rows of a tensor for batches of several sizes, None if not all are the same."""
    if layout.axis is None:
        found = values
    else:
        i = layout.axis
        split = [v.reshape(*v.shape[:i], layout.outer, -1, layout.shape[i] // layout.outer, *v.shape[i + 1 :])
                 for v in values]  # fmt: skip
        found = [part.select(i + 1, n).reshape(layout.features) for part in split for n in range(part.shape[i + 1])]
    same = all(torch.equal(found[0], other) for other in found[1:])
    return found[0] if same else None
