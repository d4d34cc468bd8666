"""Attention and recurrent layers of torch: containers for modules, what they are called with, and what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop import modules
from gbackprop.interop.arguments import check_names, constructed, is_supported, layer_of
from gbackprop.interop.arithmetic import Found, Tensor
from gbackprop.interop.operations import found, item
from gbackprop.network import GRU, LSTM, RNN, Graph, MultiheadAttention, TransformerEncoderLayer

# -------------------------------------------------------------------------------------------------------------- modules


def is_known(module: torch.nn.Module) -> bool:
    """Return whether a module is one of torch's that is a layer or a container here."""
    return type(module) in CONTAINERS or is_supported(module)


def converted(module: torch.nn.Module, is_causal: bool = False) -> Layer:
    """Return the layer or the container that is a torch module, without its weights."""
    if type(module) not in CONTAINERS:
        return layer_of(module)
    network = CONTAINERS[type(module)](module, is_causal or getattr(module, "is_causal", False))
    check_names(network, module)
    return network


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
    if set(dropouts) != {attention.dropout}:
        raise UnsupportedError(f"expected one probability of dropout, got {[attention.dropout, *dropouts]}")
    if module.norm1.eps != module.norm2.eps:
        raise UnsupportedError(f"expected one eps of both norms, got {module.norm1.eps} and {module.norm2.eps}")
    given = {"d_model": attention.embed_dim, "nhead": attention.num_heads, "dropout": attention.dropout}
    given |= {"dim_feedforward": module.linear1.out_features, "bias": module.linear1.bias is not None}
    given |= {"layer_norm_eps": module.norm1.eps, "norm_first": module.norm_first, "is_causal": is_causal}
    activation = _activation(module.activation)
    if isinstance(activation, layers.GELU) and activation.approximate != "none" and module.activation_relu_or_gelu:
        raise UnsupportedError("activation: torch computes GELU('tanh') as GELU() in evaluation mode without gradients")
    given |= {"batch_first": attention.batch_first, "activation": activation}
    return _made(TransformerEncoderLayer, given)


def _activation(activation: Any) -> Layer:
    if isinstance(activation, torch.nn.Module):
        return layer_of(activation)
    made, _ = found(activation, getattr(activation, "__name__", repr(activation)), [Tensor("", ())], {}, ())
    return made[0]


def _encoder(module: Any, is_causal: bool) -> Layer:
    parts = {f"layers.{i}": part for i, part in enumerate(module.layers)}
    made = {name: converted(part, is_causal) for name, part in parts.items()}
    made |= {} if module.norm is None else {"norm": layer_of(module.norm)}
    return Graph({name: (layer, source) for (name, layer), source in zip(made.items(), ["input", *made])})


def _made(kind: type[Layer], given: Mapping[str, Any]) -> Layer:
    return constructed(kind, {name: (value, None) for name, value in given.items()})


RECURRENT = {torch.nn.RNN: RNN, torch.nn.LSTM: LSTM, torch.nn.GRU: GRU}

CONTAINERS: dict[type, Callable[[Any, bool], Layer]] = {
    **dict.fromkeys([*RECURRENT, modules.OutputOfRNN, modules.OutputOfLSTM, modules.OutputOfGRU], _recurrent),
    **dict.fromkeys([torch.nn.MultiheadAttention, modules.SelfAttention], _attention),
    **dict.fromkeys([torch.nn.TransformerEncoderLayer, modules.CausalTransformerEncoderLayer], _encoder_layer),
    torch.nn.TransformerEncoder: _encoder,
}
"""By the classes of torch's modules, and of those that networks become."""

# ---------------------------------------------------------------------------------------------------------------- calls


@dataclass(frozen=True)
class FixedValue:
    """A tensor that is the same for all data, such as a mask."""

    value: torch.Tensor  # for the example
    names: tuple[str, ...]  # the tensors of modules that it is made of
    is_saved: bool  # whether one of them is in the state dict
    is_fixed: bool  # whether it does not follow from the number of samples

    @property
    def is_made(self) -> bool:
        """True if the module's code makes it of numbers; the tracer has a name for it then."""
        return all(name.startswith("_tensor_constant") for name in self.names)

    @property
    def number(self) -> float | None:
        """The number that it is, None for a tensor with axes or one that belongs into the network's state dict."""
        return float(self.value) if self.value.ndim == 0 and not self.is_saved else None

    def __str__(self) -> str:
        return "a tensor of fixed numbers" if self.is_made else f"its tensor {self.names[0].rpartition('.')[2]}"


def source_of(module: torch.nn.Module, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Tensor, bool]:
    """Return what a module takes, and whether each position of it takes those up to its own alone."""
    if not is_known(module):
        layer_of(module)  # says what is missing
    bound = inspect.signature(type(module).forward).bind(module, *args, **keywords).arguments
    x, *others = [value for name, value in bound.items() if value is not None and name != "self"]
    if not isinstance(x, Tensor) or (type(module) not in CONTAINERS and others):
        raise UnsupportedError("expected that it is called with one tensor, which the network computes")
    for name in ("key", "value"):
        if bound.get(name, x) != x:
            raise UnsupportedError(f"{name}: expected the query: there is self-attention alone")
    for name in ("hx", "key_padding_mask", "src_key_padding_mask"):
        if bound.get(name) is not None:
            why = "its states are 0 before the first step" if name == "hx" else "all positions are taken"
            raise UnsupportedError(f"{name}: expected that it is not given: {why}")
    masks = [bound[name] for name in ("attn_mask", "src_mask", "mask") if bound.get(name) is not None]
    hint = bool(bound.get("is_causal", False))
    if hint and not masks:
        raise UnsupportedError("is_causal: expected the causal mask with it: torch takes is_causal as a hint alone")
    return x, bool(masks) and _is_causal(masks[0], hint, x)


def _is_causal(mask: Any, hint: bool, x: Tensor) -> bool:
    """Return whether a mask is the causal one, rather than one that masks nothing."""
    if not isinstance(mask, FixedValue):
        raise UnsupportedError("mask: expected one that does not depend on the data")
    if mask.is_saved:
        words = f"{mask} is in the state dict, expected it with register_buffer(…, persistent=False)"
        raise UnsupportedError(f"mask: {words}")
    length = x.shape[1]
    if length == 1:
        raise UnsupportedError("mask: expected an example of two positions or more, as for one every mask is the same")
    after = torch.ones(length, length).triu(1).bool()
    masked = mask.value if mask.value.dtype == torch.bool else mask.value == -torch.inf
    is_sharp = mask.value.dtype == torch.bool or not mask.value[~masked].any()
    if is_sharp and torch.equal(masked, after):
        return True
    if is_sharp and not masked.any() and not hint:
        return False
    words = "a causal mask (T, T), which is True or −inf above the diagonal and False or 0 elsewhere"
    raise UnsupportedError(f"mask: expected {words}, got one of shape {tuple(mask.value.shape)} that differs")


# -------------------------------------------------------------------------------------------------------------- outputs


@dataclass(frozen=True)
class Outputs:
    """A tuple that a module returns, or an entry of it that is no tensor of the network."""

    place: Tensor  # of the tuple's first entry
    path: str
    module: Any
    indices: tuple[Any, ...] = ()  # of the entry; none for the tuple


STATES = {torch.nn.RNN: (1,), torch.nn.GRU: (1,), torch.nn.LSTM: (1, 0)}
"""The indices of the last states h in the tuples that recurrent modules return."""


def entry(of: Outputs, name: str, args: Sequence[Any]) -> Found | Outputs:
    """Return an entry of what a module returns."""
    states = STATES.get(type(of.module), ())
    if of.indices and of.indices == states:
        return _last_state(of, name, args)
    indices = (*of.indices, *args)
    if name == "getitem" and indices == (0,):
        return [], [of.place]
    if name == "getitem" and indices == states[: len(indices)]:
        return Outputs(of.place, of.path, of.module, indices)
    known = "its output and its last states h are used" if states else "its output is used"
    got = "its last cell states c" if states else "its weights"
    raise UnsupportedError(f"expected that {known} alone, got {got if name == 'getitem' else name}")


def _last_state(of: Outputs, name: str, args: Sequence[Any]) -> Found:
    """Return the layers that take an entry of h, of shape (layers · directions, N, H), from the output (N, T, D H)."""
    module, directions = of.module, 1 + of.module.bidirectional
    (index, *rest) = args[0] if args and isinstance(args[0], tuple) else args or (None,)
    count = module.num_layers * directions
    is_entry = name == "getitem" or (name == "squeeze" and (index, count) == (0, 1))
    if not is_entry or not isinstance(index, int):
        raise UnsupportedError(f"expected that its last states h are used as h[-1], got h in {name}")
    layer, direction = divmod(index % count, directions)
    if layer != module.num_layers - 1:
        raise UnsupportedError(f"h[{index}] is a state of layer {layer}, expected one of the last layer: its output")
    made: list[Layer] = [layers.Select(1, 0 if direction else -1)]
    if directions == 2:
        made.append(layers.Slice(1, direction * module.hidden_size, (direction + 1) * module.hidden_size))
    return [*made, *(item(of.place, tuple(rest)) if rest else [])], [of.place]
