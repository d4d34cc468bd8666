"""A network from a torch module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gbackprop.errors import UnsupportedError
from gbackprop.interop.arguments import at, is_supported, layer_of
from gbackprop.interop.operations import Place, found
from gbackprop.interop.tracing import Trace, check_static, evaluating, name_of, path_of, traced
from gbackprop.layers import Identity
from gbackprop.layers.base import INPUT, Layer, leaves_of
from gbackprop.network import Container, Graph, Sequential
from gbackprop.network.container import inside
from gbackprop.network.graph import INPUT_NAME

TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
"""Largest difference of outputs, relative to the largest output."""


def imported(module: Any, example: Any) -> Graph | Sequential:
    """Return the network that is a torch module; see `gbackprop.interop.from_torch`."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    x, dtype = _batch(example, _dtype(module))
    with evaluating(module):
        trace = traced(module, x)
    network, names = _chain(module, trace) if _is_chain(module) else _Assembly(module, trace).graph()
    try:
        leaves_of(network, tuple(x.shape[1:]))
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    _load(network, module, dtype)
    _compare(network, names, trace)
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
    return plain and all(is_supported(part) or _is_chain(part) for part in module._modules.values())


def _chain(module: torch.nn.Module, trace: Trace) -> tuple[Sequential, dict[Any, str]]:
    """Return the Sequential that is one of torch, and the name of each call's place."""
    known: dict[int, Layer] = {}
    network = _sequential(module, "", known)
    return network, dict(zip(trace.calls, [path for path, _ in network.chain()], strict=True))


def _sequential(module: Any, path: str, known: dict[int, Layer]) -> Sequential:
    parts: list[Layer] = []
    for name, part in module._modules.items():
        if id(part) not in known:
            at_part = inside(path, name)
            known[id(part)] = _layer(part, at_part) if is_supported(part) else _sequential(part, at_part, known)
        parts.append(known[id(part)])
    return Sequential(*parts)


def _layer(module: torch.nn.Module, path: str) -> Layer:
    try:
        return layer_of(module)
    except UnsupportedError as error:
        raise at(path, module, error) from error


class _Assembly:
    """A graph that is being built from the calls of a module.

    Parameters
    ----------
    module : torch.nn.Module
    trace : Trace
    """

    def __init__(self, module: torch.nn.Module, trace: Trace) -> None:
        self.modules = dict(module.named_modules())
        self.trace = trace
        self.places = {trace.input: Place(INPUT_NAME, tuple(trace.values[trace.input].shape))}
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.names: dict[Any, str] = {}
        self.layers: dict[str, Layer] = {}

    def graph(self) -> tuple[Graph, dict[Any, str]]:
        """Return the graph, and the name of each call's node."""
        for node in self.trace.calls:
            path = path_of(node)
            try:
                made, inputs = self._made(node)
            except UnsupportedError as error:
                raise at(path, self.modules[path], error) from error
            place = inputs[0]
            for i, layer in enumerate(made):
                sources = [source.name for source in inputs] if i == 0 else [place.name]
                place = Place(self._new_name(node, path), tuple(self.trace.values[node].shape))
                self.nodes[place.name] = (layer, *sources)
            self.places[node] = place
            if made:
                self.names[node] = place.name
        output = self.places[self.trace.output].name
        if output == INPUT_NAME:
            output = "output"
            self.nodes[output] = (Identity(), INPUT_NAME)
        return self._named_as_torch(output)

    def _made(self, node: Any) -> tuple[list[Layer], list[Place]]:
        """Return the layers of a call, and what the first takes."""
        args, keywords = self._value(node.args), self._value(node.kwargs)
        if node.op == "get_attr":
            raise UnsupportedError(f"its tensor {str(node.target).rpartition('.')[2]} is used outside of a layer")
        if node.op != "call_module":
            return found(node.target, name_of(node), args, keywords, tuple(self.trace.values[node].shape))
        if len(args) != 1 or keywords or not isinstance(args[0], Place):
            raise UnsupportedError("expected that it is called with one tensor, which the network computes")
        if node.target not in self.layers:
            self.layers[node.target] = layer_of(self.modules[node.target])
        return [self.layers[node.target]], [args[0]]

    def _value(self, value: Any) -> Any:
        """Return arguments with a `Place` for each tensor, and with numbers that come from shapes."""
        if isinstance(value, torch.fx.Node):
            if value in self.places:
                return self.places[value]
            if value.op == "call_module":
                layer_of(self.modules[value.target])  # says what is missing, of a module with several outputs
            check_static(value, self.places)
            return self.trace.values[value]
        if isinstance(value, slice):
            return slice(*map(self._value, (value.start, value.stop, value.step)))
        if isinstance(value, tuple | list):
            return tuple(map(self._value, value))
        return {name: self._value(part) for name, part in value.items()} if isinstance(value, dict) else value

    def _new_name(self, node: Any, path: str) -> str:
        """Return the path of a module at its first call, and else a name of its own where the call is."""
        name = start = path if node.op == "call_module" else inside(path, name_of(node).strip("_"))
        count = 0
        while name in self.nodes or name in {*self.modules, INPUT_NAME} - {path}:
            count += 1
            name = f"{start}_{count}"
        return name

    def _named_as_torch(self, output: str) -> tuple[Graph, dict[Any, str]]:
        """Give the path of a module with several calls to the call that is computed first: it names parameters."""
        swaps: dict[str, str] = {}
        order = Graph(self.nodes, output).order
        for path, layer in self.layers.items():
            first = next(name for name in order if self.nodes[name][0] is layer)
            if first != path:
                swaps |= {first: path, path: first}
        nodes = {
            swaps.get(name, name): (layer, *[swaps.get(source, source) for source in sources])
            for name, (layer, *sources) in self.nodes.items()
        }
        names = {node: swaps.get(name, name) for node, name in self.names.items()}
        return Graph(nodes, swaps.get(output, output)), names


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


def _compare(network: Container, names: dict[Any, str], trace: Trace) -> None:
    """Check that the output on the example is torch's."""
    x = trace.values[trace.input].numpy()  # as it was: the module may have changed its input in place
    if _differ(network(x), trace.values[trace.output]) == "":
        return
    outputs = {INPUT: x}
    leaves = leaves_of(network, x.shape[1:])
    for leaf in leaves:
        outputs[leaf.position] = leaf.layer.forward(*[outputs[source] for source in leaf.sources])[0]
    leaf_at = {leaf.name: leaf for leaf in leaves}
    for node, name in names.items():
        difference = _differ(outputs[leaf_at[name].position], trace.values[node])
        if difference:
            raise ValueError(f"{leaf_at[name]}: {difference}")
    raise ValueError(f"output: {_differ(network(x), trace.values[trace.output])}")


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
