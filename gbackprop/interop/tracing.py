"""The calls of a torch module, one by one, with every number on an example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.arguments import at, first_line
from gbackprop.interop.sequences import is_known


@dataclass
class Run:
    """The results of all calls of a module for one batch."""

    size: int  # the number of samples
    values: dict[torch.fx.Node, Any]  # without those after a failure
    failure: str = ""  # what torch says if it cannot compute the batch


@dataclass
class Trace:
    """The calls of a module, in the order of computation, and what each gave for batches of several sizes."""

    calls: list[torch.fx.Node]  # that gave tensors on which the output depends, or tuples with them
    input: torch.fx.Node
    output: torch.fx.Node
    runs: list[Run]  # the first for the example

    @property
    def values(self) -> dict[torch.fx.Node, Any]:
        """The result of each call for the example."""
        return self.runs[0].values

    def shape(self, node: torch.fx.Node) -> tuple[int, ...]:
        """Return the shape of a tensor, or of the first one of a tuple."""
        return tuple(first_of(self.values[node]).shape)

    def check_samples(self, node: torch.fx.Node) -> None:
        """Check that a tensor has the samples as axis 0, and features of one shape, in a batch of every size."""
        _, *features = self.shape(node)
        for run in self.runs:
            if node not in run.values:
                words = f"that it takes {run.size} samples as it takes {self.runs[0].size}, got: {run.failure}"
                raise UnsupportedError(f"{said_of(node)}expected {words}")
            wanted, got = (run.size, *features), tuple(first_of(run.values[node]).shape)
            if got != wanted:
                raise UnsupportedError(f"{said_of(node)}expected shape {wanted} for {run.size} samples, got {got}")


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
        self.extra_traceback = False
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
    """Trace a module in evaluation mode, and run it on a batch, on one of one more sample, and on its first sample."""
    with _named("", module), _without_new_attributes(module):
        constants = _constants(module)
        graph = _Tracer().trace(module, constants or None)
        computed = torch.fx.GraphModule(module, graph)
    runs = [_run(computed, batch, constants) for batch in (x, _larger(x), x[:1])[: 3 if len(x) > 1 else 2]]
    if runs[0].failure:
        raise ValueError(f"example: the module cannot compute it: {runs[0].failure}")
    output = next(node for node in graph.nodes if node.op == "output").args[0]
    values = runs[0].values
    given = values[output] if isinstance(output, torch.fx.Node) else output
    if not isinstance(given, torch.Tensor):
        raise at("", module, f"expected one tensor as its output, got {type(given).__name__}")
    used = _used(output)
    calls = [node for node in graph.nodes if node in used and _is_call(node, module, values)]
    start = next(node for node in graph.nodes if node.op == "placeholder")
    return Trace([node for node in calls if node is not start], start, output, runs)


def _run(module: torch.fx.GraphModule, x: torch.Tensor, constants: dict[str, Any]) -> Run:
    """Run a module on a batch."""
    recorder = _Recorder(module)
    try:
        recorder.run(x.clone(), *constants.values())  # the module may change its input
    except Exception as error:  # torch has no common class for what layers raise
        return Run(len(x), recorder.values, first_line(error))
    return Run(len(x), recorder.values)


def _larger(x: torch.Tensor) -> torch.Tensor:
    """Return a batch of one more sample: the others in turned order, and before them one of new floats."""
    new = x[:1].flip(tuple(range(1, x.ndim))) / 2 if x.is_floating_point() else x[:1]
    return torch.cat([new, x.flip(0)])


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


def said_of(node: torch.fx.Node) -> str:
    """Return how a message about a call starts, after the module's name: with the function's, if it calls one."""
    return "" if node.op == "call_module" else f"{name_of(node)}: "
