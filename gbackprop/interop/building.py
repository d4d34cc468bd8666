"""The nodes of a graph that is made from a torch module: their names, and the parameters that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.several import Inputs
from gbackprop.interop.arguments import at
from gbackprop.interop.calls import FunctionCall
from gbackprop.interop.capture import Capture, path_of
from gbackprop.interop.layouts import Fixed
from gbackprop.interop.wholes import WholeModule
from gbackprop.layers import Constant, Identity, Parameter
from gbackprop.layers.embedding import Floats
from gbackprop.network import Graph
from gbackprop.network.graph import INPUT_NAME, sources_of
from gbackprop.network.patterns import replaced

LARGE = 1e30
"""In the place of infinity in masks."""

LEAST = -LARGE / 100
"""It and numbers below it stand for −inf: sums and multiples of masks, too."""


class Building:
    """A graph of nodes to which layers are added."""

    def __init__(
        self, module: torch.nn.Module, capture: Capture, wholes: dict[str, WholeModule], dtype: torch.dtype,
        apart: set[str], inputs: Inputs | None = None,
    ) -> None:  # fmt: skip
        self.capture, self.wholes, self.dtype, self.inputs = capture, wholes, dtype, inputs
        self.sources = sources_of(inputs)
        self.modules = dict(module.named_modules())
        self.known = {*self.modules, *dict(module.named_parameters()), *dict(module.named_buffers()), *self.sources}
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.shapes: dict[str, Shape] = {}
        self.values: dict[torch.fx.Node, Any] = {}
        self.layers: dict[str, Layer] = {}
        self.names: dict[torch.fx.Node, str] = {}
        self.constants: dict[tuple[str, bool], str] = {}
        self.infinite: set[str] = set()  # names of constants that have −inf in torch
        self.least: set[str] = set()  # names of constants that have finite numbers that are LEAST or below
        self.refusals: list[str] = []
        self.broken: set[str] = set()  # paths of modules that are not taken as a whole, and names of shared parameters
        self.apart = apart  # names of parameters that no layer takes
        self.varying: set[torch.fx.Node] = set()
        self.trained = {name for name, value in module.named_parameters() if value.requires_grad}
        self.flow: set[torch.fx.Node] = set()  # the calls that gradients flow through
        self.integers = _integers(capture, inputs)  # names of nodes
        self.floats: dict[str, str] = {}  # the nodes that have these as floats
        self.casts = False  # whether torch computes a part in float32
        self.fixed_statistics = False  # whether a batch norm has statistics that no layer updates in training mode

    def add(self, node: torch.fx.Node, layer: Layer, *sources: str, path: str | None = None) -> str:
        """Add a node; return its name, which is a path if it is given and free."""
        shapes = tuple(self.shapes[self._leaf(source)] for source in sources)
        shape = layer.output_shape(*shapes)
        name = self._new_name(path_of(node) if path is None else path, node, path)
        self.nodes[name], self.shapes[name] = (layer, *sources), shape
        if layer.takes == "any":
            self.integers |= {name for source in sources if source in self.integers}
        elif layer.takes == "integers" and sources[0] not in self.integers:
            layer.takes = "floats"  # type: ignore[misc]  # of indices that are computed
        if layer.takes == "floats":
            for each, (own, *taken) in list(self.nodes.items()):
                if own is layer and not self.integers.isdisjoint(taken):
                    self.nodes[each] = own, *[self._as_floats(node, source) for source in taken]
        return name

    def _as_floats(self, node: torch.fx.Node, name: str) -> str:
        """Return the node that has integers as floats, or the one itself."""
        if name in self.integers and name not in self.floats:
            self.floats[name] = self.add(node, Floats(), name)
        return self.floats.get(name, name)

    def _leaf(self, name: str) -> str:
        """Add a parameter as a node when it is first taken."""
        if name not in self.nodes and name not in self.sources:
            self.nodes[name] = (Parameter(self.shapes[name]),)
        return name

    def constant(self, node: torch.fx.Node, fixed: Fixed, floats: bool) -> str:
        """Return the node of a fixed tensor; as floats, but for conditions and indices."""
        key = fixed.name, floats
        if fixed.name != "number" and key in self.constants:
            return self.constants[key]
        value = fixed.value.to(self.dtype) if floats or fixed.value.is_floating_point() else fixed.value
        if not fixed.value.is_floating_point() and not torch.equal(value.to(fixed.value.dtype), fixed.value):
            raise UnsupportedError(f"expected integers in {fixed.name} that {self.dtype} has, got others")
        if value.is_floating_point():  # what is added before an exponential: e to the power of either is 0
            value = torch.where(value == -torch.inf, -LARGE, value)
            if not value.isfinite().all():
                raise UnsupportedError(f"expected finite numbers or −inf in {fixed.name}, got NaN or +inf")
        name = self._free(f"{fixed.name}" if fixed.name not in self.known else f"{fixed.name}_constant")
        self.infinite |= {name} if has_infinity(fixed) else set()
        self.least |= {name} if bool((fixed.value.isfinite() & (fixed.value <= LEAST)).any()) else set()
        self.nodes[name] = (Constant(value.numpy(), persistent=False),)
        self.shapes[name] = tuple(fixed.value.shape)
        self.constants[key] = name
        return name

    def _new_name(self, path: str, node: torch.fx.Node, at_path: str | None) -> str:
        """Return the path of a module at its first call, and else a name where the call is."""
        if at_path is not None:
            return at_path if at_path not in self.nodes else self._free(at_path)
        function = self.function(node).strip("_")
        part = self.modules.get(path)
        joint = "_" if path and part is not None and (path in self.wholes or _has_own(part)) else "."
        return self._free(f"{path}{joint}{function}" if path else function)

    def _free(self, start: str) -> str:
        name, count = start, 0
        while name in self.nodes or name in self.known or any(n.startswith(f"{name}.") for n in self.known):
            count += 1
            name = f"{start}_{count}"
        return name

    def owner(self, call: FunctionCall, keys: list[str], make: Callable[[], Layer]) -> str | None:
        """Return the path of a module whose parameters, and no others, a call takes, if only such calls take them."""
        raw, own = self._by_name(call.node), self.capture
        paths = set()
        for key in keys:
            node = raw.get(key)
            name = own.parameters.get(node, own.buffers.get(node, ""))
            path, _, last = name.rpartition(".")
            nodes = [n for n in (*own.parameters, *own.buffers) if own.parameters.get(n, own.buffers.get(n)) == name]
            users = {(user.target, *[k for k, value in self._by_name(user).items() if value is n])
                     for n in nodes for user in n.users}  # fmt: skip
            if last != key or name in self.apart or users != {(call.node.target, key)} or len(nodes) > 1:
                return None
            paths.add(path)
        path = paths.pop()
        part = self.modules.get(path)
        if paths or not path or part is None or path in self.wholes:
            return None
        theirs = dict(part.named_parameters())
        if {*theirs, *dict(part.named_buffers())} - {"num_batches_tracked"} != set(keys):
            return None
        layer = make()
        if theirs.keys() != layer.parameter_shapes().keys():  # a weight that is a buffer
            return None
        if repr(self.layers.setdefault(path, layer)) != repr(layer):
            raise UnsupportedError("expected that all calls with its weight have the same options")
        return path

    def free_path(self, path: str, layer: Layer) -> str:
        """Return a module's path; one without parameters has another name inside a module that may be a layer."""
        parts = path.split(".")
        for i in range(1, len(parts)):
            start = ".".join(parts[:i])
            if _has_own(self.modules[start]) and not layer.parameter_shapes():
                return f"{start}_{'_'.join(parts[i:])}"
        return path

    @staticmethod
    def _by_name(node: torch.fx.Node) -> dict[str, Any]:
        """Return the arguments of a call by name; none of the graph's output."""
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema is not None else []
        return {**dict(zip(names, node.args)), **node.kwargs}

    def owned(self, node: torch.fx.Node, path: str, x: str) -> str:
        """Add a node of the layer at a module's path."""
        return self.add(node, self.layers[path], x, path=path)

    @staticmethod
    def function(node: torch.fx.Node) -> str:
        """Return the name of the function that a node calls."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return str(getattr(node.target, "__name__", node.target))
        name = str(schema.name).partition("::")[2]
        pair = node.target._overloadname == "other" and {"max": "maximum", "min": "minimum"}.get(name)
        return pair or name

    def _size(self, value: Any, n: int) -> int:
        """Return a size for some number of samples."""
        return int(value.node.expr.subs(self.capture.symbol, n)) if isinstance(value, torch.SymInt) else int(value)

    def again(self, node: torch.fx.Node, x: torch.Tensor, n: int = 1, changed: Any = None) -> torch.Tensor:
        """Compute a call for another first argument, of a batch of n samples."""
        names = [argument.name for argument in node.target._schema.arguments]
        raw = {**dict(zip(names, node.args)), **node.kwargs}

        def known(other: torch.fx.Node) -> Any:
            val, value = other.meta["val"], self.values[other]
            if isinstance(val, torch.SymInt):
                return self._size(val, n)
            if not isinstance(value, Fixed):
                return None
            axes = [i for i, size in enumerate(val.shape) if isinstance(size, torch.SymInt)]
            return torch.cat([value.value] * n, axes[0]) if axes else value.value

        given = {**torch.fx.node.map_arg(raw, known), names[0]: x, **(changed or {})}
        return node.target(**given)

    def _named_as_torch(self, output: str) -> Graph:
        """Give the path of a module with several calls to the call that is computed first: it names parameters."""
        nodes = self._needed(output)
        if output in self.sources:
            output, nodes = "output", {"output": (Identity(), output)}
        if unused := set(self.sources) - {source for node in nodes.values() for source in node[1:]}:
            raise at("", self.modules[""], f"expected an output that depends on all inputs, got {sorted(unused)}, too")
        inputs = self.inputs and self.inputs.shapes
        swaps: dict[str, str] = {}
        order = Graph(nodes, output, inputs=inputs).order
        paths: dict[int, str] = {}
        for path, layer in self.layers.items():
            paths[id(layer)] = path
        seen: set[int] = set()
        for name in order:
            layer = nodes[name][0]
            path = paths.get(id(layer), name)
            if id(layer) in paths and id(layer) not in seen and name != path:
                swaps |= {name: path, path: name}
            seen.add(id(layer))
        renamed = {
            swaps.get(name, name): (layer, *[swaps.get(source, source) for source in sources])
            for name, (layer, *sources) in nodes.items()
        }
        self.names = {node: swaps.get(name, name) for node, name in self.names.items()}
        last = swaps.get(output, output)
        return Graph(replaced(renamed, last), last, inputs=inputs)

    def may_be_least(self, name: str) -> bool:
        """Return whether a node depends on a constant with finite numbers that cannot be told from −inf here."""
        return not self.least.isdisjoint(self._needed(name))

    def may_be_infinite(self, name: str) -> bool:
        """Return whether a node depends on a constant that has −inf in torch."""
        return not self.infinite.isdisjoint(self._needed(name))

    def _needed(self, output: str) -> dict[str, tuple[Any, ...]]:
        """Return the nodes on which the output depends."""
        found, waiting = set(), [output]
        while waiting:
            name = waiting.pop()
            if name not in found and name not in self.sources:
                found.add(name)
                waiting += self.nodes[name][1:]
        return {name: node for name, node in self.nodes.items() if name in found}


def has_infinity(fixed: Fixed) -> bool:
    """Return whether a fixed tensor has −inf."""
    return bool((fixed.value == -torch.inf).any())


def _integers(capture: Capture, inputs: Inputs | None) -> set[str]:
    """Return the names of the inputs of integers."""
    if inputs is not None:
        return {f"{INPUT_NAME}.{key}" for key, part in inputs.parts.items() if part.kind == "integers"}
    return set() if capture.input.meta["val"].is_floating_point() else {INPUT_NAME}


def _has_own(part: torch.nn.Module) -> bool:
    return bool(part._parameters) or bool(part._buffers)
