"""Modules of torch that are a layer or a container here: what is made of them, and what they are called with."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop import modules
from gbackprop.interop.arguments import check_names, constructed, is_supported, layer_of
from gbackprop.interop.layouts import Fixed, Place, TensorLayout
from gbackprop.interop.marks import whole
from gbackprop.layers import Elementwise
from gbackprop.network import GRU, LSTM, RNN, Graph, MultiheadAttention, TransformerEncoderLayer

# -------------------------------------------------------------------------------------------------------------- modules


def is_known(module: torch.nn.Module) -> bool:
    """Return whether a module is one of torch's that is a layer or a container here, and calls no other functions."""
    return (type(module) in CONTAINERS or is_supported(module)) and not any(map(is_patched, module.modules()))


def is_patched(module: torch.nn.Module) -> bool:
    """Return whether a module has a `forward` of its own in the place of its class's."""
    return "forward" in vars(module)


def converted(module: torch.nn.Module, is_causal: bool = False) -> Layer:
    """Return the layer or the container that is a torch module, without its weights."""
    if type(module) not in CONTAINERS:
        return layer_of(module)
    network = CONTAINERS[type(module)](module, is_causal or getattr(module, "is_causal", False))
    check_names(network, module)
    return network


def unlike_layer(module: torch.nn.Module) -> str:
    """Return why one of torch's modules is not the layer of its name, or an empty text."""
    try:
        if is_known(module):
            converted(module)
    except UnsupportedError as error:
        return str(error)
    return ""


def _recurrent(module: Any, is_causal: bool) -> Layer:
    kind = next(kind for theirs, kind in RECURRENT.items() if isinstance(module, theirs))
    names = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"]
    names += ["nonlinearity"] if kind is RNN else ["proj_size"] if kind is LSTM else []
    return constructed(kind, {name: (getattr(module, name), None) for name in names})


def _attention(module: Any, is_causal: bool) -> Layer:
    e = module.embed_dim
    given = {name: getattr(module, name) for name in ("num_heads", "dropout", "add_zero_attn", "batch_first")}
    given |= {"embed_dim": e, "bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}
    given |= {name: None if getattr(module, name) == e else getattr(module, name) for name in ("kdim", "vdim")}
    return _made(MultiheadAttention, {**given, "is_causal": is_causal})


def _encoder_layer(module: Any, is_causal: bool) -> Layer:
    attention, dropouts = module.self_attn, [module.dropout.p, module.dropout1.p, module.dropout2.p]
    if set(dropouts) != {attention.dropout} or module.norm1.eps != module.norm2.eps:
        raise UnsupportedError("expected one probability of dropout, and one eps of both norms")
    given = {"d_model": attention.embed_dim, "nhead": attention.num_heads, "dropout": attention.dropout}
    given |= {"dim_feedforward": module.linear1.out_features, "bias": module.linear1.bias is not None}
    given |= {"layer_norm_eps": module.norm1.eps, "norm_first": module.norm_first, "is_causal": is_causal}
    activation = _activation(module.activation)
    given |= {"batch_first": attention.batch_first, "activation": activation}
    return _made(TransformerEncoderLayer, given)


def _activation(activation: Any) -> Layer:
    if isinstance(activation, torch.nn.Module):
        return layer_of(activation)
    for kind in (layers.ReLU, layers.GELU, layers.Tanh, layers.SiLU, layers.Sigmoid):
        name = kind.__name__.lower()
        if activation in (getattr(torch, name, None), getattr(torch.nn.functional, name, None)):
            return kind()
    raise UnsupportedError("activation: expected a module")


def _encoder(module: Any, is_causal: bool) -> Layer:
    parts = {f"layers.{i}": part for i, part in enumerate(module.layers)}
    made = {name: converted(part, is_causal) for name, part in parts.items()}
    made |= {} if module.norm is None else {"norm": layer_of(module.norm)}
    return Graph({name: (layer, source) for (name, layer), source in zip(made.items(), ["input", *made])})


def _made(kind: type[Layer], given: Mapping[str, Any]) -> Layer:
    return constructed(kind, {name: (value, None) for name, value in given.items()})


RECURRENT = {torch.nn.RNN: RNN, torch.nn.LSTM: LSTM, torch.nn.GRU: GRU}
OUTPUTS = (modules.OutputOfRNN, modules.OutputOfLSTM, modules.OutputOfGRU)
ENCODERS = (torch.nn.TransformerEncoderLayer, modules.CausalTransformerEncoderLayer, torch.nn.TransformerEncoder)

CONTAINERS: dict[type, Callable[[Any, bool], Layer]] = {
    **dict.fromkeys([*RECURRENT, *OUTPUTS], _recurrent),
    **dict.fromkeys([torch.nn.MultiheadAttention, modules.SelfAttention], _attention),
    **dict.fromkeys(ENCODERS[:2], _encoder_layer),
    torch.nn.TransformerEncoder: _encoder,
}
"""By the classes of torch's modules, and of those that networks become."""

# -------------------------------------------------------------------------------------------------------- whole modules

ANYWHERE = (Elementwise, layers.Linear, layers.LayerNorm, layers.RMSNorm, layers.Dropout, layers.Identity)
"""Layers that take the samples in any place, and any axes before those that they compute along."""


@dataclass
class WholeModule:
    """A module that is called as a whole, and its layer."""

    path: str
    module: torch.nn.Module
    layer: Layer
    calls: dict[int, tuple[bool, str]] = field(default_factory=dict)  # whether it is causal, and the node; by number
    numbers: Iterator[int] = field(default_factory=count)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute as the module does, if it is called as a layer is; a part of a graph that is captured."""
        (x, mask), number = self._input(*args, **kwargs), next(self.numbers)
        if x is None:
            return type(self.module).forward(self.module, *args, **kwargs)

        def one(entry: str = "", shape: Any = None) -> torch.Tensor:
            return whole(x, mask, self.path, entry, shape or self._shape(x), self._dtype(x), number)

        kind = type(self.module)
        if isinstance(self.module, tuple(RECURRENT)):
            if kind in OUTPUTS:
                return one()
            net: Any = self.module
            states = net.num_layers * (1 + net.bidirectional), x.shape[0], net.hidden_size
            h = one("h", states)
            return one(), ((h, one("c", states)) if isinstance(net, torch.nn.LSTM) else h)
        if kind is torch.nn.MultiheadAttention:
            asked = inspect.signature(kind.forward).bind(self.module, *args, **kwargs).arguments
            n, t, _ = x.shape
            return one(), one("weights", (n, t, t)) if asked.get("need_weights", True) else None
        return one()

    def _input(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the tensor that the module takes, and its mask; None if it takes more."""
        kind = type(self.module)
        given = inspect.signature(kind.forward).bind(self.module, *args, **kwargs).arguments
        x, *others = [value for name, value in given.items() if name != "self" and value is not None]
        mask = None
        if kind is torch.nn.MultiheadAttention or kind in ENCODERS:
            if any(given.get(key) is not None for key in ("key_padding_mask", "src_key_padding_mask")):
                return None, None
            if any(given.get(key, x) is not x for key in ("key", "value")):
                return None, None
            mask = next((given[k] for k in ("attn_mask", "src_mask", "mask") if given.get(k) is not None), None)
            others = [True] if given.get("is_causal") and mask is None else []
        if others or not isinstance(x, torch.Tensor) or self._shape(x) is None:
            return None, None
        return x, mask

    def _dtype(self, x: torch.Tensor) -> torch.dtype:
        weight = getattr(self.module, "weight", None)
        return weight.dtype if isinstance(self.layer, layers.Embedding) and weight is not None else x.dtype

    def _shape(self, x: torch.Tensor) -> Any:
        """Return the output's shape, None if the layer does not take the input's."""
        size = x.shape[0] if x.ndim else 0
        fixed = all(isinstance(each, int) for each in x.shape[1:])
        try:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and fixed:
                return size, *self.layer.output_shape(tuple(x.shape[1:]))
            if not isinstance(self.layer, ANYWHERE) or not x.ndim or not isinstance(x.shape[-1], int):
                return None
            return *x.shape[:-1], *self.layer.output_shape((x.shape[-1],))
        except ValueError:
            return None


def shared(module: torch.nn.Module) -> set[int]:
    """Return the ids of parameters that several modules have, or one under several names."""
    users = Counter(id(value) for part in module.modules() for value in part._parameters.values() if value is not None)
    return {key for key, count in users.items() if count > 1}


def wholes_of(module: torch.nn.Module, without: set[str]) -> dict[str, WholeModule]:
    """Return the modules that can be called as a whole, by their paths: those that share no parameter with others."""
    several = shared(module)
    found = {}
    for path, part in module.named_modules():
        if not path or path in without or not is_known(part):
            continue
        if any(id(value) in several for value in part.parameters()):
            continue
        try:
            found[path] = WholeModule(path, part, converted(part))
        except UnsupportedError:
            continue
    return found


def called(assembly: Any, call: Any, of: WholeModule, x: Place, entry: str) -> Any:
    """Return the node of a call of a module, None if there is no layer that is what it computes."""
    mask = call.given.get("mask")
    causal = None if mask is not None and not isinstance(mask, Fixed) else mask is not None and is_causal(mask, x)
    if causal is None or x.layout.axis is None:
        return None
    key = call.given["number"]
    if key not in of.calls:
        if of.calls and next(iter(of.calls.values()))[0] != causal:
            return None
        if not of.calls and causal:
            of.layer = converted(of.module, True)
        path = assembly.free_path(of.path, of.layer)
        assembly.layers[path] = of.layer
        of.calls[key] = causal, assembly.add(call.node, of.layer, x.name, path=path)
    name = of.calls[key][1]
    assembly.names[call.node] = name
    if entry == "":
        return assembly._placed(name, call.layout)
    return _states(assembly, call, of, name) if entry == "h" else None


def is_causal(mask: Fixed, x: Place) -> bool | None:
    """Return whether a mask is the causal one, or masks nothing; None for others."""
    length = x.layout.features[0]
    value = mask.value
    if tuple(value.shape) != (length, length):
        return None
    after = torch.ones(length, length).triu(1).bool()
    masked = value if value.dtype == torch.bool else value == -torch.inf
    if value.dtype != torch.bool and value[~masked].any():
        return None
    return True if torch.equal(masked, after) and length > 1 else False if not masked.any() else None


def _states(assembly: Any, call: Any, of: WholeModule, name: str) -> Any:
    """Return the last states of the last layer as entries of the axis of states, None if others are taken."""
    net: Any = of.module
    directions = 1 + net.bidirectional
    count = net.num_layers * directions
    for user in call.node.users:
        function, index = assembly.function(user), user.args[2] if len(user.args) > 2 else None
        squeezed = function == "squeeze" and count == 1 and tuple(user.args[1:]) in ((0,), ([0],))
        fixed = function == "select" and user.args[1] == 0 and isinstance(index, int)
        if not squeezed and not (fixed and index % count >= count - directions):
            return None
    return States(name, net.hidden_size, directions, count)


@dataclass(frozen=True)
class States:
    """The last states of a recurrent layer, of which those of the last layer are entries of its output."""

    name: str
    size: int
    directions: int
    count: int

    def entry(self, call: Any, index: int) -> Place:
        """Return the state of one direction."""
        backwards = index % self.count % self.directions == 1
        name = call.add(layers.Select(1, 0 if backwards else -1), self.name)
        if self.directions == 2:
            name = call.add(layers.Slice(1, backwards * self.size, (backwards + 1) * self.size), name)
        return Place(name, TensorLayout((1, self.size), 0))
