"""The graph of a torch module, from its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.arguments import at
from gbackprop.interop.building import Building
from gbackprop.interop.calls import FunctionCall
from gbackprop.interop.capture import line_of, path_of
from gbackprop.interop.convolutions import CONVOLUTIONS
from gbackprop.interop.flow import flow_of
from gbackprop.interop.functions import FUNCTIONS
from gbackprop.interop.integers import NARROW, is_integer
from gbackprop.interop.layouts import MIXED, Fixed, Place, TensorLayout, layout_of, reshaped, rows_alike
from gbackprop.interop.lookups import LOOKUPS
from gbackprop.interop.marks import DROPOUT
from gbackprop.interop.moves import MOVES
from gbackprop.interop.norms import NORMS
from gbackprop.interop.products import PRODUCTS
from gbackprop.interop.wholes import States, called, unlike_layer
from gbackprop.layers import Dropout, Parameter
from gbackprop.network import Graph
from gbackprop.network.graph import INPUT_NAME

TABLE: dict[str, Callable[[FunctionCall], Any]] = {
    **FUNCTIONS, **NORMS, **PRODUCTS, **CONVOLUTIONS, **LOOKUPS, **MOVES,
}  # fmt: skip

OF_SHAPES = {"sym_size", "sym_numel", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones",
             "new_full", "new_empty", "_assert_tensor_metadata",
             "_assert_scalar"}  # fmt: skip
"""Functions that take nothing of a tensor but its shape."""

KNOWN = {*TABLE, *OF_SHAPES, "gbackprop::whole", "gbackprop::columns"}
"""Functions that torch has not to decompose."""

SIZED = {"view", "reshape", "_unsafe_view", "expand", "repeat", "unflatten", "whole", "columns"}
"""Functions that take sizes, of which those of the samples follow from the output's shape."""

SHAPES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"}
"""Functions that give a tensor another shape."""

OF_FLOATS = {*PRODUCTS, *CONVOLUTIONS, *(name for name in NORMS if "avg" in name), "addcmul", "index_add", "fill",
             "hardtanh", "threshold"}  # fmt: skip
"""Functions of which torch has another, or a larger, result for integers."""

SIZES = (2, 3, 11)
"""Numbers of samples for which what is the same for all data is computed."""


class Size:
    """A number that follows from the number of samples."""


class Failed(Exception):
    """A call that takes what another call that is refused gives."""


class Assembly(Building):
    """A graph that is being built from the calls of a module."""

    # ---------------------------------------------------------------------------------------------------- the calls

    def graph(self) -> Graph:
        """Return the graph."""
        shape = layout_of(self.capture.input.meta["val"].shape, self.capture.symbol)
        self.shapes[INPUT_NAME] = shape.features
        for key, part in self.inputs.parts.items() if self.inputs else ():
            self.shapes[f"{INPUT_NAME}.{key}"] = part.shape
        self.values[self.capture.input] = Place(INPUT_NAME, shape)
        self._find_fixed()
        self.flow = flow_of(self.capture, list(self.used()), self.trained)
        for node in self.used():
            if node not in self.values:
                self._take(node)
        self._find_shared()
        if self.broken:
            raise Failed
        if self.refusals:
            raise UnsupportedError("\n".join(dict.fromkeys(self.refusals)))
        output = self.values.get(self.capture.output)
        if not isinstance(output, Place) or output.layout.axis is None:
            raise at("", self.modules[""], "its output does not depend on its input")
        if not output.layout.is_plain:
            raise at("", self.modules[""], f"expected the samples alone as axis 0 of its output, got {output.layout}")
        return self._named_as_torch(output.name)

    def _find_shared(self) -> None:
        """Find layers whose parameters other calls take, too, so that these have to be nodes."""
        for name, (layer, *_) in self.nodes.items():
            path = name.rpartition(".")[0]
            if type(layer) is Parameter and path in self.layers:
                self.broken.add(path if path in self.wholes else name)

    def used(self) -> list[torch.fx.Node]:
        """Return the calls on which the output depends, in the order of computation."""
        found, waiting = set(), [self.capture.output]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += node.all_input_nodes
        return [node for node in self.capture.graph.nodes if node in found]

    def _find_fixed(self) -> None:
        """Compute what depends neither on data nor on parameters, for several numbers of samples."""
        live = {self.capture.input, *self.capture.parameters}
        self.varying = {self.capture.input}
        fixed = []
        for node in self.used():
            if node in live:
                continue
            sources = () if self.function(node) in OF_SHAPES else node.all_input_nodes
            if not live.isdisjoint(sources):
                live.add(node)
                if not self.varying.isdisjoint(sources):
                    self.varying.add(node)
            else:
                fixed.append(node)
        tensor = self.capture.input.meta["val"]
        batches = [torch.zeros(n, *tensor.shape[1:], dtype=tensor.dtype) for n in SIZES]
        needed = {*fixed, *(source for node in fixed for source in node.all_input_nodes)} - live
        shown = {node: node.meta["val"] for each in fixed for node in each.all_input_nodes if node in live}
        runs = []
        for x in batches:
            empty = {node: x.new_empty([self._size(size, len(x)) for size in val.shape], dtype=val.dtype)
                     for node, val in shown.items()}  # fmt: skip
            runs.append(self.capture.run(x, self._unrun, needed, empty))
        for node in fixed:
            if _draws(node, runs[0]):  # though by chance all runs may have drawn the same
                self.values[node] = self._refused(node, UnsupportedError("random numbers cannot be taken over"))
            else:
                self.values[node] = self._fixed(node, [run[node] for run in runs])

    def _unrun(self, *args: Any) -> torch.Tensor:
        return args[0] if args[2].startswith(DROPOUT) else args[0].new_empty(args[4], dtype=args[5])

    def _fixed(self, node: torch.fx.Node, values: list[Any]) -> Any:
        if self.function(node) == "whole" and not str(node.args[2]).startswith(DROPOUT):
            self.broken.add(str(node.args[2]))
            return Failed()
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            return Size()
        if isinstance(values[0], tuple | list):
            return [self._fixed_tensor(node, list(each), val.shape)
                    for each, val in zip(zip(*values), node.meta["val"], strict=True)]  # fmt: skip
        if not isinstance(values[0], torch.Tensor):
            return values[0]
        return self._fixed_tensor(node, values, node.meta["val"].shape if "val" in node.meta else values[0].shape)

    def _fixed_tensor(self, node: torch.fx.Node, values: list[torch.Tensor], shape: Any) -> Any:
        try:
            layout = layout_of(shape, self.capture.symbol)
        except UnsupportedError:
            return Size()
        value = rows_alike(values, layout)
        if value is None:
            return Size()
        name = self.capture.buffers.get(node, f"{path_of(node)}.{node.name}".strip("."))
        return Fixed(value.reshape(layout.shape), TensorLayout(layout.shape), name)

    def _take(self, node: torch.fx.Node) -> None:
        """Add the layers of a call, or note why it is refused."""
        if node in self.capture.parameters:
            name = self.capture.parameters[node]
            shape = tuple(map(int, node.meta["val"].shape))
            self.values[node] = Place(name, TensorLayout(shape))
            self.shapes[name] = shape
            return
        try:
            self.values[node] = self._taken(node)
        except Failed:
            self.values[node] = Failed()
        except UnsupportedError as error:
            self.values[node] = self._refused(node, error)

    def _refused(self, node: torch.fx.Node, error: UnsupportedError) -> Failed:
        """Note why a call is refused."""
        path = path_of(node)
        module = self.modules.get(path, self.modules[""])
        words = f"{self.function(node)}: {error}{line_of(node)}"
        self.refusals.append(str(at(path, module, "; ".join(filter(None, (unlike_layer(module), words))))))
        return Failed()

    def _taken(self, node: torch.fx.Node) -> Any:
        function = self.function(node)
        if function == "getitem":
            of, number = self._value(node.args[0], True), node.args[1]
            if isinstance(of, list) and number >= len(of):
                words = f"there is no row of the table for output {number} of {self.function(node.args[0])}"
                raise UnsupportedError(words)
            return of[number] if isinstance(of, list) else Failed()
        given = self._given(node, function)
        if isinstance(given.get("self"), States):
            call = FunctionCall(self, node, given, TensorLayout(()))
            return given["self"].entry(call, given.get("index", 0))
        layouts = self._layouts(node, function, given)
        call = FunctionCall(self, node, given, layouts[0])
        if function == "whole":
            return self._whole(call)
        if function == "columns":
            return self._placed(f"{INPUT_NAME}.{given['key']}", layouts[0])
        if function not in TABLE:
            raise UnsupportedError("there is no layer and no row of the table for it")
        kinds = {value.dtype for value in [node.meta["val"]] if isinstance(value, torch.Tensor)}
        if kinds & NARROW and function in FUNCTIONS:
            raise UnsupportedError(f"expected integers of 32 bits or more, got {kinds.pop()}, which may overflow")
        if function in OF_FLOATS and any(map(is_integer, kinds)):
            raise UnsupportedError("expected floats, got integers (convert them before it)")
        self.casts = self.casts or (torch.float32 in kinds and self.dtype == torch.float64)
        try:
            found = TABLE[function](call)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error
        several = isinstance(node.meta["val"], tuple | list)
        outputs = zip(found if isinstance(found, list) else [found], layouts, strict=False)
        places = [self._placed(_unbatched(call, name, layout), layout) for name, layout in outputs]
        self.names[node] = places[0].name
        return places if several else places[0]

    def _placed(self, name: str, layout: TensorLayout) -> Place:
        if self.shapes[name] != layout.features:
            raise UnsupportedError(f"expected features {layout.features}, got {self.shapes[name]}")
        return Place(name, layout)

    def _given(self, node: torch.fx.Node, function: str) -> dict[str, Any]:
        """Return a call's arguments by the schema's names, without those at their defaults."""
        names = [argument.name for argument in node.target._schema.arguments]
        raw = {**dict(zip(names, node.args)), **node.kwargs}
        defaults = {argument.name: argument.default_value for argument in node.target._schema.arguments
                    if argument.has_default_value()}  # fmt: skip
        given = {**defaults, **{name: self._value(value, function in SIZED) for name, value in raw.items()}}
        for one, other in (("self", "input"), ("input", "self")):
            if one in given:
                given.setdefault(other, given[one])
        return given

    def check_dtype(self, dtype: Any) -> None:
        """Check the dtype to which floats are cast; the network computes in its own."""
        if dtype not in (None, self.dtype, torch.float32, torch.float64):
            raise UnsupportedError(f"dtype: expected {self.dtype}, got {dtype}")
        self.casts = self.casts or dtype == torch.float32

    def _value(self, value: Any, sized: bool = False) -> Any:
        if isinstance(value, torch.fx.Node):
            found = self.values[value]
            if isinstance(found, Failed):
                raise Failed
            if isinstance(found, Size) and not sized:
                words = "numbers that do not follow from the number of samples (a size of view, reshape or expand may)"
                raise UnsupportedError(f"expected {words}, got one that does")
            return found
        if isinstance(value, tuple | list):
            return [self._value(each, sized) for each in value]
        return value

    def _layouts(self, node: torch.fx.Node, function: str, given: dict[str, Any]) -> list[TensorLayout]:
        """Return the layouts of a call's outputs."""
        values = node.meta["val"]
        shapes = [each.shape for each in (values if isinstance(values, tuple | list) else [values])
                  if isinstance(each, torch.Tensor)]  # fmt: skip
        if not shapes:
            raise UnsupportedError("expected tensors, got a number of one (leave out item, tolist or float)")
        symbol = self.capture.symbol
        if node not in self.varying:
            return [TensorLayout(layout_of(shape, symbol).shape) for shape in shapes]
        places = [place for place in _places(given) if place.layout.axis is not None]
        if function in SHAPES:
            found = [reshaped(places[0].layout, shape, symbol) for shape in shapes]
        else:
            outers = {place.layout.outer for place in places}
            if len(outers) > 1:
                raise UnsupportedError(f"{MIXED}, got tensors that have the samples in different places")
            found = [layout_of(shape, symbol, *outers) for shape in shapes]
        if found[0].axis is None:
            raise UnsupportedError(f"{MIXED}, got a result without the axis of the samples, or for one number of them")
        return found

    def _whole(self, call: FunctionCall) -> Any:
        """Return the layer of a module, or of a dropout."""
        path, entry = call.given["path"], call.given["entry"]
        x = call.given["x"]
        if path.startswith(DROPOUT):
            return Place(self.add(call.node, Dropout(float(path.removeprefix(DROPOUT))), x.name), x.layout)
        made = called(self, call, self.wholes[path], x, entry) if isinstance(x, Place) else None
        if made is None:
            self.broken.add(path)
            raise Failed
        return made


def _unbatched(call: FunctionCall, name: str, layout: TensorLayout) -> str:
    """Return a tensor without samples as torch has it, where a layer took its first axis, of length 1, for these."""
    lacks = layout.axis is None and layout.shape == (1, *call.shape(name))
    return call.reshape(name, layout.shape) if lacks else name


def _draws(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> bool:
    """Return whether a call takes random numbers; dropout without any, as in evaluation mode, does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    before = torch.get_rng_state()
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    node.target(*args, **kwargs)
    return not torch.equal(before, torch.get_rng_state())


def _places(value: Any) -> Iterator[Place]:
    """Yield the tensors among arguments."""
    if isinstance(value, Place):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _places(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _places(each)
