"""A torch module from a network."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from gbackprop import layers
from gbackprop.array import asnumpy
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import INPUT, Layer
from gbackprop.calculus.walk import Unexpanded
from gbackprop.interop import modules
from gbackprop.layers.norms.affine import Plus, Times
from gbackprop.network import GRU, LSTM, RNN, Container, MultiheadAttention, Sequential, TransformerEncoderLayer
from gbackprop.network.container import check_network, inside
from gbackprop.network.expanded import Expanded

LACKS = "torch has no module for it"
"""Why a layer is refused."""


def exported(network: Any) -> torch.nn.Module:
    """Return the torch module that is a network; see `gbackprop.interop.to_torch`."""
    check_network(network)
    state = {name: torch.from_numpy(asnumpy(value)) for name, value in network.state_dict().items()}
    paths = [id(layer) for _, layer in network.every_layer()]
    is_shared = len(set(paths)) < len(paths)  # torch's own Sequential would name a shared layer twice
    module = _wired(network, "") if is_shared else _module(network, "")
    for value in state.values():
        if value.is_floating_point():
            module.to(value.dtype)
    module.load_state_dict(state)
    trainable = network.trainable
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in trainable)
    return module.eval()


class Function(torch.nn.Module):
    """A module that computes a function of its inputs; messages show it by `words`."""

    def __init__(self, function: Callable[..., torch.Tensor], words: str) -> None:
        super().__init__()
        self.function, self.words = function, words

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)

    def extra_repr(self) -> str:
        return self.words


class LearnedFactor(torch.nn.Module):
    """A module that multiplies by a learned factor, or each channel by one of its own."""

    def __init__(self, layer: layers.Scale) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(layer.num_parameters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.weight if len(self.weight) == 1 else self.weight.reshape(-1, *(1,) * (x.ndim - 2)))


class Wired(torch.nn.Module):
    """Modules that take the outputs of others: a step is the path of a part, and the steps whose outputs it takes."""

    def __init__(
        self, parts: dict[str, torch.nn.Module], steps: Sequence[tuple[str, tuple[int, ...]]], last: int
    ) -> None:
        super().__init__()
        self._steps, self._last = tuple(steps), last
        for path, part in parts.items():
            *folders, name = path.split(".")
            at: torch.nn.Module = self
            for folder in folders:
                if folder not in at._modules:
                    at.add_module(folder, torch.nn.Module())
                at = at.get_submodule(folder)
            at.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = {INPUT: x}
        for i, (path, sources) in enumerate(self._steps):
            at[i] = self.get_submodule(path)(*[at[source] for source in sources])
        return at[self._last]


class _Steps(Unexpanded):
    """The layers and the sources of their inputs, without shapes."""

    def __init__(self) -> None:
        super().__init__((), None, False)
        self.steps: list[tuple[str, Layer, tuple[int, ...]]] = []

    def add(self, name: str, layer: Layer, *sources: int) -> int:
        self.steps.append((name, layer, sources))
        return len(self.steps) - 1


def _module(layer: Layer, path: str) -> torch.nn.Module:
    if type(layer) is Sequential:
        return torch.nn.Sequential(*[_module(part, inside(path, str(i))) for i, part in enumerate(layer)])
    if isinstance(layer, Container) and not isinstance(layer, Expanded):
        own = [layer.children[name] for name in layer.own]
        return _module(own[0], path) if len(own) == len(layer.children) == 1 else _wired(layer, path)
    try:
        return _torchs(layer)
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"layer {path or '(alone)'}, {layer!r}: {error}") from error


def _wired(network: Container, path: str) -> Wired:
    nodes = _Steps()
    last = network.place(nodes, "", INPUT)
    paths: dict[int, str] = {}
    parts = {}
    for name, layer, _ in nodes.steps:
        if paths.setdefault(id(layer), name) == name:
            parts[name] = _module(layer, inside(path, name))
    try:
        return Wired(parts, [(paths[id(layer)], sources) for _, layer, sources in nodes.steps], last)
    except KeyError as error:  # add_module has its own words for names such as "forward"
        raise UnsupportedError(f"layer {path or '(the network)'}: torch: {error.args[0]}") from error


def _torchs(layer: Layer) -> torch.nn.Module:
    """Return the torch module that is a layer, without its weights."""
    kind, name = type(layer), type(layer).__name__
    key = layer.name if isinstance(layer, layers.Operation) else kind
    if key in FUNCTIONS:
        return Function(FUNCTIONS[key](layer), repr(layer))
    if isinstance(layer, TransformerEncoderLayer) and kind is TransformerEncoderLayer:
        return modules.encoder_layer(layer, _torchs(layer.children["activation"]))
    if kind in SEQUENCES:
        return SEQUENCES[kind](*_arguments(layer)[0], **_arguments(layer)[1], batch_first=True)
    if layer.node_parameters:
        names = ", ".join(name for name, _ in layer.node_parameters.values())
        raise UnsupportedError(f"torch's module would have other names for {names}")
    if name not in layers.__all__ or getattr(layers, name) is not kind:
        raise UnsupportedError(LACKS)
    if isinstance(layer, layers.Scale):
        return LearnedFactor(layer)
    theirs = getattr(torch.nn, name, None)
    if not (isinstance(theirs, type) and issubclass(theirs, torch.nn.Module)):  # torch.nn.Parameter is a tensor
        raise UnsupportedError(LACKS)
    return theirs(*_arguments(layer)[0], **_arguments(layer)[1])


def _arguments(layer: Layer) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that `describe` writes out."""
    call = ast.parse(f"layer({layer.describe()})", mode="eval").body
    assert isinstance(call, ast.Call)
    keywords = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    if isinstance(layer, layers.Upsample):  # one number for any number of axes is no tuple in torch
        keywords = {name: value[0] if len(value) == 1 else value for name, value in keywords.items()}
    return [ast.literal_eval(value) for value in call.args], keywords


def _sum(*inputs: torch.Tensor) -> torch.Tensor:
    return sum(inputs[1:], inputs[0])


def _concatenated(*inputs: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.cat(inputs, axis)


def _sliced(x: torch.Tensor, axis: int, part: slice) -> torch.Tensor:
    return x[(slice(None),) * (axis % x.ndim) + (part,)]


FUNCTIONS: dict[type[Layer] | str, Callable[[Any], Callable[..., torch.Tensor]]] = {
    layers.Add: lambda layer: _sum,
    layers.Multiply: lambda layer: torch.mul,
    Times: lambda layer: partial(torch.mul, other=layer.factor),
    "divided_by": lambda layer: partial(torch.div, other=layer.options["number"]),
    Plus: lambda layer: partial(torch.add, other=layer.number),
    layers.MatMul: lambda layer: torch.matmul,
    layers.Concat: lambda layer: partial(_concatenated, axis=layer.axis),
    layers.Permute: lambda layer: partial(torch.permute, dims=layer.dims),
    layers.Select: lambda layer: partial(torch.select, dim=layer.dim, index=layer.index),
    layers.Slice: lambda layer: partial(_sliced, axis=layer.dim, part=layer.part),
}
"""Layers, and operations by their names, that torch has as functions, not as modules."""

SEQUENCES: dict[type[Layer], Callable[..., torch.nn.Module]] = {
    RNN: modules.OutputOfRNN,
    LSTM: modules.OutputOfLSTM,
    GRU: modules.OutputOfGRU,
    MultiheadAttention: modules.SelfAttention,
}
"""Attention and recurrent layers."""
