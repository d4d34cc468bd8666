"""The graph of a torch module that is no chain, from its calls."""

from __future__ import annotations

from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.arguments import at
from gbackprop.interop.arithmetic import Found, Tensor
from gbackprop.interop.operations import found
from gbackprop.interop.sequences import FixedValue, Outputs, converted, entry, source_of
from gbackprop.interop.sizes import Origins, check_numbers
from gbackprop.interop.tracing import Trace, name_of, path_of
from gbackprop.layers import Identity
from gbackprop.network import Graph
from gbackprop.network.container import inside
from gbackprop.network.graph import INPUT_NAME

Named = dict[Any, tuple[str, Layer]]
"""The last layer of each call, and the name of its place."""


class Assembly:
    """A graph that is being built from the calls of a module."""

    def __init__(self, module: torch.nn.Module, trace: Trace) -> None:
        self.modules = dict(module.named_modules())
        self.saved = set(module.state_dict())
        self.trace = trace
        self.places: dict[Any, Tensor | Outputs] = {trace.input: Tensor(INPUT_NAME, trace.shape(trace.input))}
        self.constants: dict[Any, FixedValue] = {}
        self.origins = Origins(trace, self.places, self.constants)
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.names: Named = {}
        self.layers: dict[str, Layer] = {}
        self.causal: dict[str, bool] = {}

    def graph(self) -> tuple[Graph, Named]:
        """Return the graph, and the layer of each call."""
        for node in self.trace.calls:
            try:
                self._take(node)
            except UnsupportedError as error:
                path = self._responsible(node)
                raise at(path, self.modules[path], error) from error
        output = self.places.get(self.trace.output)
        if isinstance(output, Outputs):
            raise at(output.path, output.module, "its last states h are the output, expected h[-1]")
        if output is None:
            raise at("", self.modules[""], "its output does not depend on its input")
        name = output.name
        if name == INPUT_NAME:
            name = "output"
            self.nodes[name] = (Identity(), INPUT_NAME)
        return self._named_as_torch(name)

    def _take(self, node: Any) -> None:
        """Add the layers of a call, or remember what else it gives."""
        if node.op != "call_module" and self.places.keys().isdisjoint(node.all_input_nodes):
            self.constants[node] = self._constant(node)
            return
        made = self._made(node)
        if isinstance(made, Outputs):
            self.places[node] = made
            return
        self.trace.check_samples(node)
        place = Tensor(self._added(made, node), self.trace.shape(node))
        is_tuple = isinstance(self.trace.values[node], tuple)
        self.places[node] = Outputs(place, node.target, self.modules[node.target]) if is_tuple else place

    def _added(self, made: Found, node: Any) -> str:
        """Add nodes for layers, and for those whose outputs they take; return the name of the last."""
        layers, inputs = made
        sources = [source.name if isinstance(source, Tensor) else self._added(source, node) for source in inputs]
        for layer in layers:
            name = self._new_name(node, path_of(node))
            self.nodes[name] = (layer, *sources)
            self.names[node] = name, layer
            sources = [name]
        return sources[0]

    def _made(self, node: Any) -> Found | Outputs:
        """Return the layers of a call."""
        args, keywords = self._value(node.args), self._value(node.kwargs)
        name = name_of(node)
        if node.op != "call_module":
            check_numbers(node, self.origins)
        if node.op != "call_module" and args and isinstance(args[0], Outputs):
            return entry(args[0], name, args[1:])
        if any(isinstance(self.places.get(other), Outputs) for other in node.all_input_nodes):
            raise UnsupportedError(f"expected that its output is used, or a last state as h[-1], got more in {name}")
        if node.op != "call_module":
            for constant in map(self.constants.get, node.all_input_nodes):
                if constant is not None and constant.number is None:
                    raise UnsupportedError(f"{constant} is used outside of a layer")
            return found(node.target, name, args, keywords, self.trace.shape(node))
        source, is_causal = source_of(self.modules[node.target], args, keywords)
        check_numbers(node, self.origins)
        if node.target not in self.layers:
            self.layers[node.target] = converted(self.modules[node.target], is_causal)
        if self.causal.setdefault(node.target, is_causal) != is_causal:
            raise UnsupportedError("expected that all of its calls have a causal mask, or none")
        return [self.layers[node.target]], [source]

    def _constant(self, node: Any) -> FixedValue:
        """Return a tensor of which no number depends on the data."""
        names = [str(node.target)] if node.op == "get_attr" else []
        for other in node.all_input_nodes:
            names += self.constants[other].names if other in self.constants else ()
        is_fixed = self.origins.are_of_a_sample(node.args, node.kwargs)
        return FixedValue(self.trace.values[node], tuple(names), not self.saved.isdisjoint(names), is_fixed)

    def _value(self, value: Any) -> Any:
        """Return arguments with a `Tensor` for each tensor, and with numbers that come from shapes."""
        if isinstance(value, torch.fx.Node):
            if value in self.places:
                return self.places[value]
            if value in self.constants:
                constant = self.constants[value]
                return constant if constant.number is None else constant.number
            if value.op == "call_module":
                converted(self.modules[value.target])  # says what is missing, of a module with several outputs
            self.origins.of(value)  # says what depends on data
            return self.trace.values[value]
        if isinstance(value, slice):
            return slice(*map(self._value, (value.start, value.stop, value.step)))
        if isinstance(value, tuple | list):
            return tuple(map(self._value, value))
        return {name: self._value(part) for name, part in value.items()} if isinstance(value, dict) else value

    def _responsible(self, node: Any) -> str:
        """Return the path of the module that an error about a call names."""
        for other in node.all_input_nodes:
            place = self.places.get(other)
            if isinstance(place, Outputs):
                return place.path
            constant = self.constants.get(other) if node.op != "call_module" and other.op == "get_attr" else None
            if constant is not None and not constant.is_made:
                return path_of(other)
        return path_of(node)

    def _new_name(self, node: Any, path: str) -> str:
        """Return the path of a module at its first call, and else a name of its own where the call is."""
        name = start = path if node.op == "call_module" else inside(path, name_of(node).strip("_"))
        count = 0
        while name in self.nodes or name in {*self.modules, INPUT_NAME} - {path}:
            count += 1
            name = f"{start}_{count}"
        return name

    def _named_as_torch(self, output: str) -> tuple[Graph, Named]:
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
        names = {node: (swaps.get(name, name), layer) for node, (name, layer) in self.names.items()}
        return Graph(nodes, swaps.get(output, output)), names
