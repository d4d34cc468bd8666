"""A network from a torch module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import INPUT, Layer, leaves_of
from gbackprop.calculus.walk import upwards
from gbackprop.interop.arguments import at
from gbackprop.interop.assembly import Assembly, Named
from gbackprop.interop.sequences import converted, is_known
from gbackprop.interop.tracing import Trace, evaluating, first_of, path_of, traced
from gbackprop.network import Container, Graph, Sequential
from gbackprop.network.container import inside

TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
"""Largest difference of outputs, relative to the largest output."""


def imported(module: Any, example: Any) -> Graph | Sequential:
    """Return the network that is a torch module; see `gbackprop.interop.from_torch`."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    x, dtype = _batch(example, _dtype(module))
    with evaluating(module):
        trace = traced(module, x)
    network, names = _chain(module, trace) if _is_chain(module) else Assembly(module, trace).graph()
    try:
        leaves_of(network, tuple(x.shape[1:]))
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    _load(network, module, dtype)
    _compare(network, names, trace)
    _compare_alone(network, module, x)
    return network


def _dtype(module: torch.nn.Module) -> str | None:
    """Return the dtype of all parameters and buffers of floats, None if there are none."""
    values = list(module.state_dict().values())
    kinds = {str(value.dtype).removeprefix("torch.") for value in values if value.is_floating_point()}
    devices = {value.device.type for value in values}
    if len(kinds) > 1 or not kinds <= set(TOLERANCES) or devices - {"cpu"}:
        got = f"{' and '.join(sorted(kinds))} on {' and '.join(sorted(devices))}"
        raise at("", module, f"expected parameters of float32 or float64 on cpu, got {got}")
    return kinds.pop() if kinds else None


def _batch(example: Any, dtype: str | None) -> tuple[torch.Tensor, str]:
    """Return the example as a tensor, and the network's dtype; floats are in it, and None stands for theirs."""
    if not isinstance(example, torch.Tensor | np.ndarray) or example.ndim < 1 or len(example) < 1:
        got = getattr(example, "shape", type(example).__name__)
        raise TypeError(f"example: expected an array or a tensor of at least one sample, got {got}")
    x = torch.as_tensor(example).detach().cpu()
    if dtype is None:
        dtype = "float64" if x.dtype == torch.float64 else "float32"
    return (x.to(getattr(torch, dtype)) if x.is_floating_point() else x).clone(), dtype


# ------------------------------------------------------------------------------------------------------------ structure


def _is_chain(module: torch.nn.Module) -> bool:
    """Return whether a module is a Sequential of layers and Sequentials, with torch's own names."""
    numbers = [str(i) for i in range(len(module._modules))]
    plain = type(module) is torch.nn.Sequential and list(module._modules) == numbers
    return plain and all(is_known(part) or _is_chain(part) for part in module._modules.values())


def _chain(module: torch.nn.Module, trace: Trace) -> tuple[Sequential, Named]:
    """Return the Sequential that is one of torch, and the layer of each call."""
    known: dict[int, Layer] = {}
    network = _sequential(module, "", known)
    for node in trace.calls:
        try:
            trace.check_samples(node)
        except UnsupportedError as error:
            raise at(path_of(node), module.get_submodule(path_of(node)), error) from error
    return network, dict(zip(trace.calls, network.chain(), strict=True))


def _sequential(module: Any, path: str, known: dict[int, Layer]) -> Sequential:
    parts: list[Layer] = []
    for name, part in module._modules.items():
        if id(part) not in known:
            at_part = inside(path, name)
            known[id(part)] = _layer(part, at_part) if is_known(part) else _sequential(part, at_part, known)
        parts.append(known[id(part)])
    return Sequential(*parts)


def _layer(module: torch.nn.Module, path: str) -> Layer:
    try:
        return converted(module)
    except UnsupportedError as error:
        raise at(path, module, error) from error


# -------------------------------------------------------------------------------------------------------------- numbers


def _load(network: Container, module: torch.nn.Module, dtype: str) -> None:
    """Load the weights of a module, under the first name of each."""
    first = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    values = {name: value.detach() for name, value in module.state_dict().items() if name in first}
    network.astype(dtype)
    names = {*network.parameter_shapes(), *network.buffers}
    if names - set(values):
        shared = sorted(names - set(values))
        raise at("", module, f"several modules share a parameter, expected it in one module alone: {shared}")
    if set(values) - names:
        raise at("", module, f"its output does not depend on {sorted(set(values) - names)}")
    network.load_state_dict(values)
    frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
    if frozen:
        network.freeze(*frozen)


def _compare(network: Container, names: Named, trace: Trace) -> None:
    """Check that the output on each batch is torch's."""
    for run in trace.runs:
        if run.failure:
            raise UnsupportedError(f"the module cannot compute {run.size} samples: {run.failure}")
        try:
            _compare_run(network, names, run.values[trace.input].numpy(), run.values, trace.output)
        except ValueError as error:
            if run is trace.runs[0]:
                raise
            raise UnsupportedError(f"{error} for {run.size} samples, but none for {trace.runs[0].size}") from error


def _compare_run(network: Container, names: Named, x: np.ndarray, values: dict[Any, Any], output: Any) -> None:
    """Check that the output on a batch is torch's; `x` is as it was before the module may have changed it."""
    if _differ(network(x), values[output]) == "":
        return
    outputs = {INPUT: x}
    leaves = leaves_of(network, x.shape[1:])
    for leaf, inputs in upwards(leaves, outputs):
        outputs[leaf.position] = leaf.layer.forward(*inputs)[0]
    for node, (name, layer) in names.items():
        last = [leaf for leaf in leaves if leaf.name == name or leaf.name.startswith(f"{name}.")][-1]
        difference = _differ(outputs[last.position], first_of(values[node]))
        if difference:
            raise ValueError(f"layer {name}, {layer!r}: {difference}")
    raise ValueError(f"output: {_differ(network(x), values[output])}")


def _compare_alone(network: Container, module: torch.nn.Module, x: torch.Tensor) -> None:
    """Check that torch's outputs of the samples, each alone, are those of the batch."""
    with evaluating(module):
        alone = torch.cat([module(sample.clone()) for sample in x.split(1)])
    difference = _differ(network(x.numpy()), alone)
    if difference:
        raise at("", module, f"each sample alone: {difference}, but none for the batch")


def _differ(ours: np.ndarray, theirs: torch.Tensor) -> str:
    """Return how an output differs from torch's, or an empty text."""
    expected = theirs.numpy()
    if ours.shape != expected.shape:
        return f"expected torch's output of shape {expected.shape}, got {ours.shape}"
    difference = np.abs(ours - expected).max(initial=0)
    largest = np.abs(expected).max(initial=0)
    if difference <= TOLERANCES.get(expected.dtype.name, 0) * largest:
        return ""
    return f"expected torch's output, of at most {largest:.3g}, got one that differs by {difference:.3g}"
