"""The call of an ONNX operator, as the table of operators takes it, and the nodes that it adds to a network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.onnx_values import BATCH, Axes, Known, OnnxTensor, aligned, features
from gbackprop.layers import Constant, Operation

Value = OnnxTensor | Known


@dataclass
class Draft:
    """The nodes of a network that is being made: by number, of which 0 is the input, a layer and what it takes."""

    sizes: tuple[int, ...]
    version: int
    dtype: str
    nodes: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    parameters: dict[int, np.ndarray] = field(default_factory=dict)
    alone: set[int] = field(default_factory=set)
    constants: dict[Any, OnnxTensor] = field(default_factory=dict)
    buffers: dict[str, np.ndarray] = field(default_factory=dict)
    chosen: Collection[str] = ()
    rounded: bool = False
    fixed_statistics: bool = False

    def add(self, name: str, layer: Layer, *sources: int) -> int:
        """Add a node, and return its number."""
        number = len(self.nodes) + 1
        self.nodes[number], self.names[number] = (layer, *sources), name
        return number


class OnnxCall:
    """One node of an ONNX graph: its attributes, its inputs, and the means to add nodes of the network."""

    def __init__(self, draft: Draft, node: Any, inputs: Sequence[Value | None]) -> None:
        self.draft, self.node, self.inputs, self.version = draft, node, inputs, draft.version
        self.attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}

    def get(self, i: int) -> Any:
        """Return an input, None if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute; of a number, which a file has in float32, the shortest decimal that rounds to it."""
        value = self.attributes.get(name, default)
        if isinstance(value, float):
            short = float(str(np.float32(value)))
            self.draft.rounded |= short != float(np.float32(value))
            return short
        return value.decode() if isinstance(value, bytes) else value

    def known(self, i: int, default: Any = None, merged: bool = False) -> Any:
        """Return an input that has to be known, as an array; of parameters those alone that may be `merged` with it."""
        value, draft = self.get(i), self.draft
        if isinstance(value, OnnxTensor) and value.node in draft.parameters:
            if (name := draft.names[value.node]) in draft.chosen and not merged:
                raise UnsupportedError(f"input {i}: expected a constant, got {name!r}, which `parameters` names")
            return draft.parameters[value.node]
        if isinstance(value, OnnxTensor):
            raise UnsupportedError(f"input {i}: expected an array that does not follow from the network's input")
        return default if value is None else value.value

    def given(self, name: str, i: int, default: Any = None) -> Any:
        """Return what newer versions have as an input and older ones as an attribute, as a list of numbers."""
        value = self.attribute(name) if name in self.attributes else self.known(i)
        return default if value is None else np.ravel(value).tolist()

    def targets(self, i: int) -> Sequence[list[int]]:
        """Return the sizes that an input is, for each number of samples."""
        value = self.get(i)
        if not isinstance(value, Known):
            raise UnsupportedError(f"input {i}: expected sizes that follow from shapes alone")
        return [array.tolist() for array in value.arrays]

    def tensor(self, value: Any, shape: Any = None) -> OnnxTensor:
        """Return a value as the output of a node, with features of another shape if one is given."""
        if isinstance(value, Known):
            array = value.value if shape is None else value.value.reshape(shape)
            key = (value.name, array.shape)
            if key not in self.draft.constants:
                self.draft.constants[key] = OnnxTensor(self.draft.add(value.name, Constant(array)), array.shape)
            return self.draft.constants[key]
        return value if shape is None else self.reshaped(value, tuple(shape))

    @property
    def x(self) -> OnnxTensor:
        """Input 0 as the output of a node."""
        return self.tensor(self.get(0))

    def image(self) -> OnnxTensor:
        """Return input 0, which has the samples along axis 0."""
        if self.x.axes[0] != BATCH:
            raise UnsupportedError(f"expected the samples along axis 0, got axes {self.x.axes}")
        return self.x

    def number(self, i: int) -> float | None:
        """Return the number that one of two inputs is, if it is known and has no more axes than the other."""
        value, other = self.inputs[i], self.inputs[1 - i]
        single = isinstance(value, Known) and isinstance(other, OnnxTensor) and value.value.size == 1
        return float(value.value.item()) if single and len(value.axes) <= len(other.axes) else None  # type: ignore

    def put(self, layer: Layer, *sources: OnnxTensor, axes: Axes | None = None, name: str = "") -> OnnxTensor:
        """Add a node; its axes are by default the samples, then the features that the layer gives."""
        shape = tuple(layer.output_shape(*[source.shape for source in sources]))
        axes = (BATCH, *shape) if axes is None else axes
        if features(axes) != shape:
            raise UnsupportedError(f"expected features {features(axes)}, got {shape} from {layer!r}")
        return OnnxTensor(self.draft.add(name or self.node.output[0], layer, *[each.node for each in sources]), axes)

    def same(self, layer: Layer, x: OnnxTensor) -> OnnxTensor:
        """Add a node that leaves the shape as it is."""
        return self.put(layer, x, axes=x.axes)

    def row(self, name: str, *values: Any, **options: Any) -> OnnxTensor:
        """Add a row of the table of operations, of inputs that are broadcast."""
        axes, shapes = aligned([value.axes for value in values])
        tensors = [self.tensor(value, shape) for value, shape in zip(values, shapes, strict=True)]
        return self.put(Operation(name, **options), *tensors, axes=axes)

    def reshaped(self, x: OnnxTensor, axes: Axes) -> OnnxTensor:
        """Return a value with the same numbers along other axes."""
        shape = features(axes)
        return (
            OnnxTensor(x.node, axes) if shape == x.shape else self.put(Operation("reshape", shape=shape), x, axes=axes)
        )

    def transposed(self, x: OnnxTensor, order: Any) -> OnnxTensor:
        """Return a value with its axes in another order."""
        axes = tuple(x.axes[i] for i in order)
        starts = [1 + len(features(x.axes[:i])) for i in range(len(x.axes))]
        moved = tuple(starts[i] + k for i in order for k in range(len(features((x.axes[i],)))))
        if moved == tuple(range(1, 1 + len(moved))):
            return OnnxTensor(x.node, axes)
        return self.put(Operation("transpose", axes=moved), x, axes=axes)

    def path(self, value: Any, key: str) -> str | None:
        """Return what is before the key in the name of a parameter that no other node takes, if no third one has it."""
        if not isinstance(value, OnnxTensor) or value.node not in self.draft.alone:
            return None
        path, dot, last = self.draft.names[value.node].rpartition(".")
        parts = {f"{path}.{each}" for each in ("weight", "bias", "running_mean", "running_var")}
        near = {self.draft.names[i] for i in self.draft.parameters if self.draft.names[i].startswith(f"{path}.")}
        return path if dot and last == key and near <= parts else None

    def weighted(self, make: Callable[[bool], Layer], x: OnnxTensor, axes: Axes | None = None) -> tuple[Any, Any]:
        """Return the output of a layer of weight and bias, inputs 1 and 2, by their names, and the bias left.

        The output is None if the weight has another name, or other nodes take it.
        """
        path, bias = self.path(self.get(1), "weight"), self.get(2)
        own = bias is not None and path is not None and self.path(bias, "bias") == path
        own = own and make(True).parameter_shapes()["bias"] == bias.axes
        if path is None or (not own and f"{path}.bias" in self.draft.names.values()):
            return None, bias
        return self.put(make(own), x, axes=axes, name=path), None if own else bias
