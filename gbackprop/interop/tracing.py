"""What a torch module computes, call by call, with every number on an example."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gbackprop.errors import UnsupportedError
from gbackprop.interop.arguments import at, first_line, is_supported

WHOLE_NUMBERS = {"size", "dim", "getattr", "getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "numel"}
"""What computes with shapes: functions, methods and attributes."""


@dataclass
class Trace:
    """The calls of a module, in the order of computation, and what each gave for the example.

    Attributes
    ----------
    calls : list of torch.fx.Node
        Those on which the output depends and that gave tensors, without the input and the output.
    input, output : torch.fx.Node
    values : dict of torch.fx.Node to Any
    """

    calls: list[torch.fx.Node]
    input: torch.fx.Node
    output: torch.fx.Node
    values: dict[torch.fx.Node, Any]


class _Tracer(torch.fx.Tracer):
    """torch's tracer, with errors that name the module."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return is_supported(m) or super().is_leaf_module(m, module_qualified_name)

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


def traced(module: torch.nn.Module, x: torch.Tensor) -> Trace:
    """Trace a module in evaluation mode, and run it on a batch.

    Raises
    ------
    UnsupportedError
        If it cannot be traced, takes several inputs or gives several outputs.
    ValueError
        If it cannot compute `x`.
    """
    with _named("", module):
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
    calls = [node for node in graph.nodes if node in used and isinstance(recorder.values[node], torch.Tensor)]
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
    if node.op != "placeholder" and name_of(node) not in WHOLE_NUMBERS:
        raise UnsupportedError(f"{name_of(node)}: expected one tensor, or numbers that follow from shapes alone")
    for other in node.all_input_nodes:
        if other not in tensors:
            check_static(other, tensors)
