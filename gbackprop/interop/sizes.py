"""Numbers in a torch module's code: whether they follow from the shape of one sample, or from the number of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.sequences import FixedValue
from gbackprop.interop.tracing import Trace, name_of, said_of

OF_SHAPES = {"size", "dim", "getattr", "numel"}
"""The methods and attributes that give numbers which follow from a tensor's shape."""

OF_NUMBERS = {"getitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pow", "sqrt"}
"""The functions that compute with such numbers."""


class Origin(Enum):
    """The origin of a number: the shape of one sample or none, the number of samples, or that and arithmetic."""

    SAMPLE = "sample"
    SAMPLES = "samples"
    MIXED = "mixed"


class Origins:
    """The origins of the numbers in a module's code, beside what the network computes and constant tensors."""

    def __init__(self, trace: Trace, tensors: Mapping[Any, Any], constants: Mapping[Any, FixedValue]) -> None:
        self.trace = trace
        self.tensors = tensors
        self.constants = constants
        self.known: dict[torch.fx.Node, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the `Origin` of an argument; of several numbers a tuple, of what the network computes an empty one."""
        if isinstance(value, torch.fx.Node):
            return self._of_node(value)
        if isinstance(value, slice):
            return self.of((value.start, value.stop, value.step))
        if isinstance(value, dict):
            return self.of(tuple(value.values()))
        return tuple(map(self.of, value)) if isinstance(value, tuple | list) else Origin.SAMPLE

    def are_of_a_sample(self, *values: Any) -> bool:
        """Return whether no number in arguments comes from the number of samples."""
        return all(found is Origin.SAMPLE for found in flat(self.of(values)))

    def _of_node(self, node: torch.fx.Node) -> Any:
        if node in self.tensors:
            return ()
        if node in self.constants:
            return Origin.SAMPLE if self.constants[node].is_fixed else Origin.MIXED
        if node not in self.known:
            self.known[node] = self._of_number(node)
        return self.known[node]

    def _of_number(self, node: torch.fx.Node) -> Any:
        name, sources = name_of(node), node.all_input_nodes
        of_tensor = name in OF_SHAPES and any(other in self.tensors for other in sources)
        of_numbers = not any(other in self.tensors or other in self.constants for other in sources)
        known = node.op == "placeholder" or name in OF_SHAPES | OF_NUMBERS
        if not known or not (of_tensor or of_numbers):
            raise UnsupportedError(f"{name}: expected one tensor, or numbers that follow from shapes alone")
        if of_tensor:
            runs = [run for run in self.trace.runs if node in run.values]
            return compared([run.values[node] for run in runs], [run.size for run in runs])
        if self.are_of_a_sample(node.args, node.kwargs):
            return Origin.SAMPLE
        given = self.of(node.args)
        if name == "getitem" and isinstance(given[0], tuple) and self.are_of_a_sample(node.args[1]):
            return given[0][torch.fx.node.map_arg(node.args[1], self.trace.values.__getitem__)]
        if name == "add" and all(isinstance(part, tuple) for part in given):
            return given[0] + given[1]
        return Origin.MIXED


def compared(values: list[Any], sizes: list[int]) -> Any:
    """Return the origin of a number that follows from a tensor's shape alone, by its values for several batches."""
    if isinstance(values[0], tuple):
        return tuple(compared(list(entries), sizes) for entries in zip(*values))
    if all(value == values[0] for value in values):
        return Origin.SAMPLE
    return Origin.SAMPLES if values == sizes else Origin.MIXED


def flat(origins: Any) -> Iterator[Origin]:
    """Yield the origins in nested tuples."""
    if isinstance(origins, tuple):
        for part in origins:
            yield from flat(part)
    else:
        yield origins


def check_numbers(node: torch.fx.Node, origins: Origins) -> None:
    """Check that no number that a call takes comes from the number of samples, but as the first size of a shape."""
    found = list(flat(origins.of((node.args, node.kwargs))))
    if name_of(node) in ("view", "reshape") and found[:1] == [Origin.SAMPLES]:
        found = found[1:]
    if any(origin is not Origin.SAMPLE for origin in found):
        words = "numbers that do not follow from the number of samples (the first size of view or reshape may be it)"
        raise UnsupportedError(f"{said_of(node)}expected {words}, got one that does")
