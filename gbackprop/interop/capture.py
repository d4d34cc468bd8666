"""The calls of a torch module as torch.export finds them, and their values."""

from __future__ import annotations

import builtins
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os.path import basename, dirname, sep
from threading import get_ident
from traceback import walk_tb
from typing import Any

import torch
from torch.export import Dim
from torch.export.graph_signature import InputKind

from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.arguments import at, first_line
from gbackprop.interop.inplace import functional
from gbackprop.interop.marks import Visible, columns
from gbackprop.interop.sizes import conditions_of


def _copy(x: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Return numbers in the shape of x, as torch does without a derivative."""
    return src.to(x.dtype).expand(x.shape)


def _cosine(x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """Return torch's cosine similarity, with its derivative where a norm is below eps, which torch does not have."""
    both = torch.broadcast_tensors(x1, x2)
    one, other = (x / x.norm(dim=dim, keepdim=True).clamp_min(eps) for x in both)
    return (one * other).sum(dim)


@dataclass
class Capture:
    """The calls of a module in the order of computation, and what they take."""

    graph: torch.fx.Graph
    module: torch.fx.GraphModule
    input: torch.fx.Node
    output: torch.fx.Node
    symbol: Any  # the number of samples in the shapes
    tensors: dict[torch.fx.Node, torch.Tensor]  # parameters, buffers and constants
    parameters: dict[torch.fx.Node, str]
    buffers: dict[torch.fx.Node, str]
    conditions: tuple[str, ...] = ()  # on the number of samples, N, under which all this was captured

    def run(
        self, x: torch.Tensor, calls: Callable[..., Any], only: Any = None, known: Any = None, gradients: bool = False
    ) -> dict[torch.fx.Node, Any]:
        """Return the value of each call, or of some, for a batch; `calls` computes those that are whole."""
        values: dict[torch.fx.Node, Any] = {**self.tensors, **(known or {}), self.input: x.clone()}
        with torch.set_grad_enabled(gradients):
            for node in self.graph.nodes:
                if node.op == "call_function" and (only is None or node in only):
                    own = {torch.ops.gbackprop.whole.default: calls, torch.ops.gbackprop.columns.default: columns,
                           torch.ops.aten.copy.default: _copy,
                           torch.ops.aten.cosine_similarity.default: _cosine}  # fmt: skip
                    function = own.get(node.target, node.target)
                    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                    values[node] = function(*args, **kwargs)
        return values


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, and its modules to the mode that each had at the end."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def keeping(module: torch.nn.Module) -> Iterator[None]:
    """Give a module the buffers that it had at the end."""
    before = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    values = [(value, value.clone()) for value in module.buffers()]
    try:
        yield
    finally:
        for buffers, given in before:
            buffers.clear()
            buffers.update(given)
        with torch.inference_mode():  # where buffers made in it may be written to
            for value, kept in values:
                if not torch.equal(value, kept):
                    value.copy_(kept)


@contextmanager
def calling(forwards: dict[torch.nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Put other functions in the place of modules' `forward`."""
    before = [(module, module.__dict__.get("forward")) for module in forwards]
    try:
        for module, function in forwards.items():
            module.__dict__["forward"] = function
        yield
    finally:
        for module, given in before:
            del module.__dict__["forward"]
            if given is not None:
                module.__dict__["forward"] = given


def captured(
    module: torch.nn.Module, x: torch.Tensor, tables: frozenset[str] = frozenset(), known: Any = frozenset()
) -> Capture:
    """Capture a module in evaluation mode for batches of any size; functions that are not known are decomposed."""
    try:
        program = _program(module, x, Dim.AUTO)
        if not _is_general(program):
            with _symbolic_len():
                program = _program(module, x, Dim.DYNAMIC)  # which may say why not
        if not _is_general(program):
            raise at("", module, FOR_ONE)
        conditions = conditions_of(program)
        if not functional(program.graph, tables, known):
            program.graph_module.recompile()
            every = torch.export.default_decompositions()
            chosen = {op: every[op] for op in every if op.name().removeprefix("aten::") in tables}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = program.run_decompositions(chosen)
    except UnsupportedError:
        raise
    except Exception as error:  # the module's own code runs here, and may raise anything
        raise _refusal(error, module) from error
    return replace(_capture(program, module), conditions=conditions)


@contextmanager
def _hints_as_given() -> Iterator[None]:
    """Let torch's transformers take it as given whether a mask is causal, as its numbers are not there yet."""
    transformers: Any = torch.nn.modules.transformer
    before = transformers._detect_is_causal_mask
    transformers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        transformers._detect_is_causal_mask = before


@contextmanager
def _symbolic_len() -> Iterator[None]:
    """Let ``len`` of a tensor be its size as a symbol in this thread, which Python's own makes a number."""
    before, here = builtins.len, get_ident()
    builtins.len = lambda of: (
        of.shape[0] if isinstance(of, torch.Tensor) and of.ndim and get_ident() == here else before(of)
    )
    try:
        yield
    finally:
        builtins.len = before


FOR_ONE = (
    "expected code for any number of samples, got code for one: their number as a number of Python (a loop, len, int, "
    "math.sqrt), or a size that is fixed"
)


def _is_general(program: Any) -> bool:
    """Return whether the number of samples is a symbol."""
    name = program.graph_signature.user_inputs[0]
    size = next(node for node in program.graph.nodes if node.name == name).meta["val"].shape[0]
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_Symbol)


def _program(module: torch.nn.Module, x: torch.Tensor, size: Any) -> Any:
    # opt_einsum would choose the order of products by the sizes, the number of samples among them
    ordered = torch.backends.opt_einsum.flags(enabled=False)
    forward = module.forward

    def visible(x: torch.Tensor) -> Any:
        with Visible():
            return forward(x)

    with (
        evaluating(module), calling({module: visible}), _hints_as_given(), warnings.catch_warnings(), ordered,
        torch.inference_mode(False), torch.enable_grad(),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        return torch.export.export(module, (x.clone(),), strict=False, dynamic_shapes=({0: size},))


def _refusal(error: Exception, module: torch.nn.Module) -> UnsupportedError:
    """Return the error that names the module and the user's line where torch.export cannot go on."""
    paths = {id(part): path for path, part in module.named_modules()}
    path, place = "", ""
    for frame, number in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if f"{sep}torch{sep}" not in file and not file.startswith(dirname(__file__)):
            path, place = paths.get(id(frame.f_locals.get("self")), path), f" ({basename(file)}, line {number})"
    text, words = str(error), first_line(error)
    if "Constraints violated" in text or "specialized" in text:
        return at("", module, FOR_ONE)
    elif "Could not guard" in text or "data-dependent" in text:
        words = f"expected no condition or number that depends on the data (torch.where may do): {words}"
    return at(path, module.get_submodule(path), f"torch.export: {words}{place}")


def _capture(program: Any, module: torch.nn.Module) -> Capture:
    names = {id(value): name for name, value in reversed([*module.named_parameters(remove_duplicate=False)])}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = Capture(program.graph, program.graph_module, None, None, None, {}, {}, {})
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            found.input = node
            found.symbol = node.meta["val"].shape[0].node.expr
            continue
        value = (program.state_dict if spec.target in program.state_dict else program.constants)[spec.target]
        if not isinstance(value, torch.Tensor):
            raise at("", module, f"torch.export: expected tensors as constants, got a {type(value).__name__}")
        found.tensors[node] = value.detach()
        if spec.kind is InputKind.PARAMETER:
            found.parameters[node] = names.get(id(module.get_parameter(spec.target)), spec.target)
        elif spec.kind is InputKind.BUFFER:
            found.buffers[node] = spec.target
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    shown = program.graph_signature.user_outputs
    found.output = next(node for node in outputs if getattr(node, "name", None) == shown[0])
    return found


def path_of(node: torch.fx.Node) -> str:
    """Return the path of the module in whose code a call is."""
    stack = [entry[0] for key, entry in (node.meta.get("nn_module_stack") or {}).items() if not key.startswith("_")]
    return str(stack[-1]) if stack else ""


def line_of(node: torch.fx.Node) -> str:
    """Return the line of the user's code in which a call is."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', node.meta.get("stack_trace") or "")
    inner = "<eval_with_key>", f"{dirname(__file__)}{sep}"  # code that torch has written, and the import's
    users = [each for each in frames if f"{sep}torch{sep}" not in each[0] and not each[0].startswith(inner)]
    if not users:
        return ""
    path, number, code = users[-1]
    return f" ({basename(path)}, line {number}: {code.strip()})"
