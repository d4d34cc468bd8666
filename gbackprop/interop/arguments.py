"""Layers from the arguments of torch's modules and functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.network.parameters import buffers_of


def constructed(kind: type[Layer], given: Mapping[str, tuple[Any, Any]]) -> Layer:
    """Construct a layer from torch's arguments."""
    known = inspect.signature(kind.__init__).parameters
    for name, (value, default) in given.items():
        if name not in known and name != "inplace" and value != default:
            raise UnsupportedError(f"{name}={value!r} is not supported, expected {default!r}")
    try:
        return kind(**{name: value for name, (value, _) in given.items() if name in known})
    except (TypeError, ValueError) as error:
        raise UnsupportedError(str(error)) from error


def is_supported(module: torch.nn.Module) -> bool:
    """Return whether a layer has the name of a module's class, which is torch's own."""
    name = type(module).__name__
    return name in layers.__all__ and getattr(torch.nn, name, None) is type(module)


def layer_of(module: torch.nn.Module) -> Layer:
    """Return the layer that is a torch module, without its weights."""
    if not is_supported(module):
        raise UnsupportedError(f"there is no layer for {type(module).__module__}.{type(module).__name__}")
    given = {}
    for name, parameter in list(inspect.signature(type(module).__init__).parameters.items())[1:]:
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            value = getattr(module, name, parameter.default)
            if name == "bias":  # what was a flag is the parameter, or None; none without an affine map, whatever it was
                value = value is not None or not getattr(module, "affine", True)
            given[name] = (value, parameter.default)
    layer = constructed(getattr(layers, type(module).__name__), given)
    check_names(layer, module)
    return layer


def check_names(layer: Layer, module: torch.nn.Module) -> None:
    """Check that a module has the parameters and buffers of its layer, and no others, each of one name."""
    own, theirs = {*layer.parameter_shapes(), *buffers_of(layer)}, set(module.state_dict())
    if own != theirs:
        raise UnsupportedError(f"its state dict has {sorted(theirs)}, expected {sorted(own)}")
    names, once = dict(module.named_parameters(remove_duplicate=False)), dict(module.named_parameters())
    if names.keys() != layer.parameter_shapes().keys():
        raise UnsupportedError(f"its parameters are {sorted(names)}, expected {sorted(layer.parameter_shapes())}")
    if names.keys() != once.keys():
        raise UnsupportedError(f"it has the parameters {sorted(names.keys() - once.keys())} under other names, too")


def at(path: str, module: Any, error: Exception | str) -> UnsupportedError:
    """Return the error that names a module by its path, and the reason."""
    return UnsupportedError(f"module {path or '(the whole)'}, {type(module).__name__}: {error}")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message that says something, or the name of its class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
