"""Two records of a function, with 2 and with 3 samples, read as the nodes of a graph.

Each array is taken as what it is for a batch of one sample: its *shape at one*. The axis whose size follows the number
of samples is its batch axis, of one or several numbers for each sample. Where it is the first axis, with one number for
each sample, nodes have the features after it; elsewhere they have the whole shape at one, which NumPy's rules hold for.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from math import prod
from typing import Any, NoReturn

import numpy as np

from gbackprop.base.recording.refused import (
    BatchSizeError,
    MissingFunctionError,
    MixedSamplesError,
    NoDerivativeError,
    NotDeterministicError,
    RandomNumbersError,
    TraceError,
    called,
)
from gbackprop.base.recording.tape import Ref, Tape, refs, same
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.interop.recording.steps import MIXED, ROWS, StepReader, Value, split
from gbackprop.layers import Constant, Operation

SIZES = ("reshape", "broadcast_to", "getitem", "setitem", "tile", "split", "array_split", "resize")
"""Functions with sizes among their arguments, which may follow the number of samples."""

SUMMED = ("add", "matmul", "dot", "einsum", "tensordot")
"""Functions that are sums, of which NumPy makes "or" where all operands are booleans."""

ROUND = ("add", "subtract", "multiply", "negative", "absolute", "square", "power", "matmul", "dot", "einsum",
         "tensordot", "outer")  # fmt: skip
"""Functions whose integers wrap around beyond the range of their dtype: no sum over axes, which NumPy widens first."""


class Reading:
    """The nodes of a graph that does what both records did."""

    def __init__(self, two: tuple[Tape, Any], three: tuple[Tape, Any], again: Callable[[], Tape], table: Any) -> None:
        (self.two, self.result), (self.three, self.other) = two, three
        self.again, self.table = again, table
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.shapes: dict[str, Shape] = {}
        self.values: dict[int, Value] = {}
        self.counts: dict[str, int] = {}
        self.kept: dict[Any, str] = {}
        self.integers: set[str] = set()  # those of the inputs

    def read(self, leaves: dict[str, Layer | None]) -> str:
        """Fill the nodes; return the output's. `leaves` has each leaf's layer, None for the network's input."""
        self.leaves = leaves
        self._check_same()
        for i in self._needed():
            self.step, self.step3 = self.two.steps[i], self.three.steps[i]
            self.position = i
            for k, number in enumerate(self.step.results):
                self.values[number] = self._value(k, number)
        output = self.values[self.result.number]
        if not output.data:
            raise TraceError("function: expected an output that depends on x")
        if output.batch != (0, 1):
            words = f"expected an output with one row for each sample, got shape {self._shapes(self.result.number)}"
            self.refuse(MixedSamplesError, words, output.line)
        name = self.node(output, output.features)
        if self._prune(name).isdisjoint(each for each, layer in leaves.items() if layer is None):  # it was written over
            self.refuse(TraceError, "expected an output that depends on x", output.line)
        return name

    def refuse(self, kind: type[TraceError], words: str, line: Any = None) -> NoReturn:
        """Raise an error that begins with the line of the step."""
        raise kind(f"{line or self.step.line}: {words}")

    # ------------------------------------------------------------------------------------------- comparing two records

    def _check_same(self) -> None:
        """Check that both calls did the same steps; otherwise a third with 2 samples says why not."""
        i = first_other(self.two, self.three)
        if i is not None:
            step = (self.two if i < len(self.two.steps) else self.three).steps[i]
            if all(first_other(self.two, self.again()) is None for _ in range(2)):
                self.refuse(BatchSizeError, "the number of samples decides what is computed from here on: write loops "
                            "over samples as operations of the whole batch", step.line)  # fmt: skip
            self.refuse(NotDeterministicError, "another call did something else from here on: random numbers, or what "
                        "is left by an earlier call, must not decide", step.line)  # fmt: skip
        if not isinstance(self.result, Ref) or not isinstance(self.other, Ref):
            several = " (join them by np.concatenate)" if isinstance(self.result, list | tuple) else ""
            kind = type(self.result).__name__
            raise TraceError(f"function: expected one array that depends on x, got {kind}{several}")

    def _needed(self) -> list[int]:
        """Return the steps on which the output depends."""
        made = {number: i for i, step in enumerate(self.two.steps) for number in step.results}
        found, waiting = set(), [made[self.result.number]]
        while waiting:
            i = waiting.pop()
            if i not in found:
                found.add(i)
                step = self.two.steps[i]
                waiting += [made[number] for number in refs((step.args, step.kwargs))]
        return sorted(found)

    def at_one(self, a: Any, b: Any) -> Any:
        """Return an argument as it is for one sample, with a `Value` for an array."""
        if isinstance(a, Ref) and isinstance(b, Ref):
            return self.values[a.number] if a == b else self._differs("an array, which is another with one sample more")
        if isinstance(a, list | tuple) and type(a) is type(b) and len(a) == len(b):
            return type(a)([self.at_one(*each) for each in zip(a, b, strict=True)])
        if isinstance(a, slice) and isinstance(b, slice):
            return slice(*[self.at_one(getattr(a, k), getattr(b, k)) for k in ("start", "stop", "step")])
        if isinstance(a, int | np.integer) and isinstance(b, int | np.integer) and a != b:
            if self.step.name in SIZES:
                return 2 * int(a) - int(b)
            self._differs(f"the number {a}, which is {b} with one sample more")
        if type(a) is not type(b) or not (a is b or a == b or (a != a and b != b)):
            self._differs(f"{a!r:.60} in one call and {b!r:.60} in another")
        return a

    def _differs(self, words: str) -> NoReturn:
        """Refuse what differs: by chance if it differs between two calls with 2 samples, else by their number."""
        tape = self.again()
        if first_other(self.two, tape) is None:
            other, step = tape.steps[self.position], self.step
            equal = (str((other.args, other.kwargs)) == str((step.args, step.kwargs)) if step.name != "constant"
                     else same(tape.values[other.results[0]], self.two.values[step.results[0]]))  # fmt: skip
            if equal:
                self.refuse(BatchSizeError, f"{words}: the number of samples is a size for reshape, np.zeros or a "
                            "slice, and no number to compute with")  # fmt: skip
        self.refuse(RandomNumbersError, f"{words}: random numbers, or what is left by an earlier call; give them as "
                    "parameters or as part of x")  # fmt: skip

    def _shapes(self, number: int) -> str:
        return f"{self.two.values[number].shape} for 2 samples and {self.three.values[number].shape} for 3"

    def _layout(self, number: int, data: bool) -> tuple[Shape, tuple[int, int] | None]:
        """Return a result's shape for one sample, and its batch axis."""
        two, three = self.two.values[number].shape, self.three.values[number].shape
        differ = [i for i, (a, b) in enumerate(zip(two, three, strict=False)) if a != b]
        if len(two) == len(three) and not differ and not data:
            return two, None
        if len(two) == len(three) and len(differ) == 1:
            (axis,) = differ
            count = three[axis] - two[axis]
            if two[axis] == 2 * count:
                return (*two[:axis], count, *two[axis + 1 :]), (axis, count)
        shapes = self._shapes(number)
        if not data:
            self.refuse(BatchSizeError, f"an array of shape {shapes} depends on the number of samples")
        self.refuse(MixedSamplesError, f"{called(self.step.name)} gives shape {shapes}: {MIXED}")

    # --------------------------------------------------------------------------------------------------- values

    def _value(self, k: int, number: int) -> Value:
        step = self.step
        args = self.at_one(step.args, self.step3.args)
        named = {key: self.at_one(value, self.step3.kwargs.get(key)) for key, value in step.kwargs.items()}
        taken = [self.values[i] for i in refs((step.args, step.kwargs))]
        data = any(each.data for each in taken) or (step.name == "leaf" and self.leaves[args[0]] is None)
        shape, batch = self._layout(number, data)
        value = Value(shape, batch, data, self.two.values[number].dtype.kind, step.line)
        if step.name == "constant":
            value.constant = self._constant(number, value)
            return value
        if step.name == "leaf":
            self._leaf(args[0], value)
            return value
        self._check_range(self.two.values[number].dtype)
        reader = self.table.get(step.name)
        if reader is None:
            near = _nearest(step.name, self.table)
            self.refuse(MissingFunctionError, f"{called(step.name)} is not in the table{near}")
        value.pieces = []
        try:
            found = reader(StepReader(self, value, k), *args, **named)
        except TraceError:
            raise
        except TypeError as error:
            self.refuse(MissingFunctionError, f"{called(step.name)} with these arguments is not in the table ({error})")
        except ValueError as error:
            kind = MixedSamplesError if data and any(each.batch for each in taken) else MissingFunctionError
            self.refuse(kind, f"{called(step.name)}: {error}; {MIXED}")
        if isinstance(found, Value):
            found.line = step.line
            return found
        if prod(self.shapes[found]) != prod(shape):
            self.refuse(MixedSamplesError, f"{called(step.name)} of shapes {[each.shape for each in taken]}: {MIXED}")
        if value.kind == "b" and step.name in SUMMED:
            found = self.add(Operation("clip", most=1.0), found)
        value.pieces = [found]
        return value

    def _check_range(self, dtype: np.dtype) -> None:
        """Refuse sums, products and casts in unsigned or small integers, which wrap around where floats do not."""
        narrow = dtype.kind == "u" or (dtype.kind == "i" and dtype.itemsize < 4)
        given = [self.two.values[number].dtype for number in refs(self.step.args)]
        cast = self.step.name == "astype" and any(d.kind in "iu" and not np.can_cast(d, dtype) for d in given)
        if narrow and (cast or self.step.name in ROUND):
            self.refuse(NoDerivativeError, f"{called(self.step.name)} in {dtype} wraps around beyond its range, and "
                        "a number of the network does not; compute with int64 or floats")  # fmt: skip

    def _constant(self, number: int, value: Value) -> np.ndarray:
        """Return a fixed array for one sample; it must be that of both records, and of every sample."""
        two, three = self.two.values[number], self.three.values[number]
        if value.kind == "c":
            self.refuse(NoDerivativeError, "a constant is complex; compute with its real and imaginary parts")
        if value.batch is None:
            if not same(two, three):
                self._differs("an array that was computed has other numbers in another call")
            return two
        if value.kind in "iu" and all(same(each, np.arange(len(each), dtype=each.dtype)) for each in (two, three)):
            value.kind = ROWS
            return two[:1]
        rows = np.concatenate([split(two, value.batch, 2), split(three, value.batch, 3)])
        if not all(same(rows[0], row) for row in rows):
            self._differs("an array differs from sample to sample")
        return rows[0]

    def _leaf(self, name: str, value: Value) -> None:
        layer = self.leaves[name]
        if layer is None:
            value.pieces, self.shapes[name] = [name], value.features
            self.integers |= {name} if value.kind in "iub" else set()
            return
        value.pieces = [name]
        self.nodes[name], self.shapes[name] = (layer,), value.shape

    # ----------------------------------------------------------------------------------------------------- nodes

    def add(self, layer: Layer, *taken: str) -> str:
        """Append a node; return its name."""
        kind = layer.name if isinstance(layer, Operation) else type(layer).__name__.lower()
        roots = {name.split(".")[0] for name in self.leaves}
        while True:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            name = f"{kind}{self.counts[kind]}"
            if name not in roots:
                break
        self.shapes[name] = tuple(layer.output_shape(*[self.shapes[each] for each in taken]))
        self.nodes[name] = (layer, *taken)
        return name

    def node(self, value: Value, shape: Shape) -> str:
        """Return the node of a value in a shape, which may lack axes of length 1."""
        if value.kind == ROWS:
            self.refuse(BatchSizeError, "np.arange of the number of samples is an index of rows, and no number to "
                        "compute with")  # fmt: skip
        if value.kind in "iub" and self.integers.intersection(value.pieces):
            self.refuse(NoDerivativeError, "integers of x can be an index of a table, `table[x]`, and nothing else; "
                        "give x as floats to compute with it")  # fmt: skip
        if value.constant is not None and not value.pieces:
            array = value.constant if value.constant.dtype.kind == "b" else value.constant.astype("float64")
            value.pieces = [self.add(Constant(array.reshape(shape)))]
        if value.places is not None:
            value.pieces, value.places = [self._joined(value)], None
        return self.shaped(value.pieces[0], shape)

    def shaped(self, name: str, shape: Shape) -> str:
        """Return a node with a shape, by a reshape where it has another."""
        if self.shapes[name] == tuple(shape):
            return name
        key = (name, tuple(shape))
        if key not in self.kept:
            self.kept[key] = self.add(Operation("reshape", shape=tuple(shape)), name)
        return self.kept[key]

    def _joined(self, value: Value) -> str:
        """Return the node of a value that was put together from others."""
        flat = [self.shaped(name, (prod(self.shapes[name]),)) for name in value.pieces]
        joined = flat[0] if len(flat) == 1 else self.add(Operation("concatenate", axis=-1), *flat)
        return self.gathered(joined, value.places, value.features)

    def gathered(self, name: str, places: Any, shape: Shape) -> str:
        """Return a node with the numbers at places of another."""
        if np.array_equal(places.ravel(), np.arange(prod(self.shapes[name]))):
            return self.shaped(name, shape)
        return self.add(Operation("gather", places=places.reshape(shape)), name)

    def _prune(self, output: str) -> set[str]:
        """Delete what the output does not depend on; return the names of what it does depend on."""
        used, waiting = set(), [output]
        while waiting:
            name = waiting.pop()
            if name not in used:
                used.add(name)
                waiting += self.nodes.get(name, (None,))[1:]
        self.nodes = {name: node for name, node in self.nodes.items() if name in used}
        return used


def first_other(one: Tape, two: Tape) -> int | None:
    """Return the first step at which two records differ in the function, its results or the line."""
    for i, (a, b) in enumerate(zip(one.steps, two.steps, strict=False)):
        if (a.name, len(a.results), a.line) != (b.name, len(b.results), b.line):
            return i
    return None if len(one.steps) == len(two.steps) else min(len(one.steps), len(two.steps))


def _nearest(name: str, table: Any) -> str:
    near = get_close_matches(name, list(table), 1, 0.5)
    return f" (the nearest name there is np.{near[0]})" if near else ""
