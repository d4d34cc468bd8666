"""Arrays of both records, as they are for one sample, and what reads the step that makes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from gbackprop.base.recording.refused import MissingFunctionError, MixedSamplesError, TraceError, called
from gbackprop.base.recording.tape import TapeStep
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.layers import Operation

ROWS = "rows"
"""Kind of the numbers of samples, `np.arange(len(x))`, with which an index may begin."""

MIXED = "each sample's result must depend on that sample alone, with the batch as an axis in order"


@dataclass
class Value:
    """An array of both records.

    Attributes
    ----------
    shape : tuple of int
        Its shape for one sample.
    batch : (axis, count) or None
        The axis that follows the number of samples, and how many numbers of it a sample has.
    data : bool
        Whether it depends on the input.
    kind : str
        Its dtype's kind.
    pieces, places
        The nodes whose numbers it has, and for each of its numbers the place in these, one after the other.
    """

    shape: Shape
    batch: tuple[int, int] | None
    data: bool
    kind: str
    line: Any = None
    constant: np.ndarray | None = None
    pieces: list[str] = field(default_factory=list)
    places: np.ndarray | None = None

    @property
    def plain(self) -> bool:
        """True if the batch axis is the first, or there is none."""
        return self.batch in (None, (0, 1))

    @property
    def features(self) -> Shape:
        """Shape of a node with these numbers."""
        return self.shape[1:] if self.batch == (0, 1) else self.shape


@dataclass
class StepReader:
    """A step while it is read: `plain` says that nodes have the features after the batch axis."""

    reading: Any
    out: Value
    k: int
    whole: bool = False

    @property
    def step(self) -> TapeStep:
        """The step."""
        return self.reading.step

    @property
    def plain(self) -> bool:
        """True if nodes lack the batch axis, which is the first."""
        return self.out.batch == (0, 1) and not self.whole

    @property
    def shape(self) -> Shape:
        """Shape of the node to be made."""
        return self.out.shape[1:] if self.plain else self.out.shape

    def add(self, layer: Layer, *taken: str) -> str:
        """Append a node; return its name."""
        return self.reading.add(layer, *taken)

    def op(self, name: str, *taken: str, **options: Any) -> str:
        """Append the node of a row of the table; return its name."""
        return self.add(Operation(name, **options), *taken)

    def value(self, given: Any) -> Value:
        """Return an operand as a value; numbers and lists of them are constants."""
        if isinstance(given, Value):
            return given
        array = np.asarray(given)
        if array.dtype.kind not in "fiub":
            self.refuse(MissingFunctionError, f"an operand {given!r:.60} is no number")
        return Value(array.shape, None, False, array.dtype.kind, constant=array)

    def among(self, *values: Value) -> None:
        """Keep the batch axis in all nodes of this call if one of these values has it elsewhere."""
        self.whole = self.whole or any(not each.plain for each in values)

    def operand(self, given: Any, ndim: int | None = None) -> str:
        """Return the node of an operand; it lacks a first axis of length 1 if it has `ndim` axes, the batch's too."""
        value = self.value(given)
        shape = value.shape
        drops = self.plain and (value.batch or (ndim is not None and len(shape) == ndim and shape[0] == 1))
        return self.reading.node(value, shape[1:] if drops else shape)

    def axes(self, value: Value, axis: Any) -> tuple[int, ...]:
        """Return axes counted from the end, none of which may be the batch's."""
        ndim = len(value.shape)
        given = range(ndim) if axis is None else [axis] if isinstance(axis, int | np.integer) else axis
        found = tuple(int(each) - ndim if each >= 0 else int(each) for each in given)
        if value.batch and value.batch[0] - ndim in found:
            self.refuse(MixedSamplesError, f"{called(self.step.name)} over the batch axis: {MIXED}")
        return found

    def axis(self, value: Value, axis: Any) -> int:
        """Return one axis counted from the end, not the batch's."""
        return self.axes(value, int(axis))[0]

    def refuse(self, kind: type[TraceError], words: str) -> NoReturn:
        """Raise an error that begins with the line."""
        raise kind(f"{self.step.line}: {words}")


def split(array: np.ndarray, batch: tuple[int, int] | None, n: int) -> np.ndarray:
    """Return what each of n samples has of an array, ``[n, *shape at one]``; without a batch axis one row."""
    if batch is None:
        return array[None]
    axis, count = batch
    wide = array.reshape(*array.shape[:axis], n, count, *array.shape[axis + 1 :])
    return np.moveaxis(wide, axis, 0)
