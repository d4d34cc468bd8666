"""What a torch module computes, call by call, with every number on an example."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gbackprop.errors import UnsupportedError
from gbackprop.interop.arguments import at, first_line
from gbackprop.interop.sequences import is_known

OF_SHAPES = {"size", "dim", "getattr", "numel"}
"""What gives numbers that follow from a tensor's shape: methods and attributes."""

OF_NUMBERS = {"getitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pow", "sqrt"}
"""What computes with such numbers."""


@dataclass
class Trace:
    """The calls of a module, in the order of computation, and what each gave for the example.

    Attributes
    ----------
    calls : list of torch.fx.Node
        Those on which the output depends and that gave tensors, or tuples that are a module's outputs or an entry of
        them, without the input and the output.
    input, output : torch.fx.Node
    values : dict of torch.fx.Node to Any
    """

    calls: list[torch.fx.Node]
    input: torch.fx.Node
    output: torch.fx.Node
    values: dict[torch.fx.Node, Any]

    def shape(self, node: torch.fx.Node) -> tuple[int, ...]:
        """Return the shape of a tensor, or of the first one of a tuple."""
        return tuple(first_of(self.values[node]).shape)


def first_of(value: Any) -> torch.Tensor:
    """Return a tensor, or the first one of nested tuples."""
    return first_of(value[0]) if isinstance(value, tuple) else value


class _Tracer(torch.fx.Tracer):
    """torch's tracer, with errors that name the module."""

    proxy_buffer_attributes = True  # such as masks, of which parts by the length of sequences are taken

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return is_known(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        path = self.path_of_module(m)
        with _named(path, m):
            return super().call_module(m, forward, args, kwargs)


@contextmanager
def _named(path: str, module: torch.nn.Module) -> Iterator[None]:
    """Turn an error of the tracer, such as a condition that depends on data, into one that names the module."""
    try:
        yield
    except UnsupportedError:
        raise
    except Exception as error:  # the module's own code runs here, and may raise anything
        raise at(path, module, f"cannot be traced: {first_line(error)}") from error


class _Recorder(torch.fx.Interpreter):
    """torch's interpreter, which remembers the output of every call: copies, as later calls may change them."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[torch.fx.Node, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without gradients, and its modules to the mode that each had at the end."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _without_new_attributes(module: torch.nn.Module) -> Iterator[None]:
    """Take away what tracing added to a module: the tracer gives tensors that its code makes a name there."""
    before = set(vars(module))
    try:
        yield
    finally:
        for name in set(vars(module)) - before:
            delattr(module, name)


def traced(module: torch.nn.Module, x: torch.Tensor) -> Trace:
    """Trace a module in evaluation mode, and run it on a batch.

    Raises
    ------
    UnsupportedError
        If it cannot be traced, takes several inputs or gives several outputs.
    ValueError
        If it cannot compute `x`.
    """
    with _named("", module), _without_new_attributes(module):
        constants = _constants(module)
        graph = _Tracer().trace(module, constants or None)
        recorder = _Recorder(torch.fx.GraphModule(module, graph))
    try:
        recorder.run(x, *constants.values())
    except Exception as error:  # torch has no common class for what layers raise
        raise ValueError(f"example: the module cannot compute it: {first_line(error)}") from error
    output = next(node for node in graph.nodes if node.op == "output").args[0]
    given = recorder.values[output] if isinstance(output, torch.fx.Node) else output
    if not isinstance(given, torch.Tensor):
        raise at("", module, f"expected one tensor as its output, got {type(given).__name__}")
    used = _used(output)
    calls = [node for node in graph.nodes if node in used and _is_call(node, module, recorder.values)]
    start = next(node for node in graph.nodes if node.op == "placeholder")
    return Trace([node for node in calls if node is not start], start, output, recorder.values)


def _constants(module: torch.nn.Module) -> dict[str, Any]:
    """Return the inputs after the first, which must have defaults."""
    parameters = inspect.signature(type(module).forward).parameters
    several = [p for p in list(parameters.values())[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not several or any(p.default is p.empty for p in several[1:]):
        raise at("", module, f"expected one input, got {[p.name for p in several]}")
    return {p.name: p.default for p in several[1:]}


def _used(output: torch.fx.Node) -> set[torch.fx.Node]:
    """Return the nodes on which the output depends."""
    used: set[torch.fx.Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if node not in used:
            used.add(node)
            waiting += node.all_input_nodes
    return used


def _is_call(node: torch.fx.Node, module: torch.nn.Module, values: dict[torch.fx.Node, Any]) -> bool:
    """Return whether a node gave a tensor, or a tuple that is a module's outputs or an entry of them."""
    if isinstance(values[node], torch.Tensor):
        return True
    if not isinstance(values[node], tuple):
        return False
    while node.op == "call_function" and name_of(node) == "getitem" and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node.op == "call_module" and is_known(module.get_submodule(str(node.target)))


def path_of(node: torch.fx.Node) -> str:
    """Return the path of the module in whose code a call is."""
    if node.op == "call_module":
        return str(node.target)
    if node.op == "get_attr":
        return str(node.target).rpartition(".")[0]
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    return str(list(stack.values())[-1][0])


def name_of(node: torch.fx.Node) -> str:
    """Return the name of the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", repr(node.target))


def check_static(node: torch.fx.Node, tensors: Collection[torch.fx.Node]) -> None:
    """Check that what a node gives, which is no tensor, depends on shapes alone.

    Parameters
    ----------
    node : torch.fx.Node
    tensors : collection of torch.fx.Node
        What the network computes.

    Raises
    ------
    UnsupportedError
        If it may depend on the data of the example.
    """
    of_shapes = name_of(node) in OF_SHAPES
    numbers = node.op == "placeholder" or of_shapes or name_of(node) in OF_NUMBERS
    for other in node.all_input_nodes if numbers else []:
        if other not in tensors:
            check_static(other, tensors)
        numbers &= other not in tensors or of_shapes
    if not numbers:
        raise UnsupportedError(f"{name_of(node)}: expected one tensor, or numbers that follow from shapes alone")
