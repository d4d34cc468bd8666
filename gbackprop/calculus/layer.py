"""The protocol that every layer follows.

A layer is a function with derivatives. It is independent of quantities, stores no state between calls, and writes no
attribute in `forward`: `saved` is all that the backward sweep needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import Constructed, unpacked
from gbackprop.calculus.jacobian import ParameterJacobian, Shape, congruence

__all__ = ["INPUT", "Layer", "Leaf", "Nodes", "Shape", "leaves_of"]

_DRAWING = RLock()


INPUT = -1
"""The source of a layer that takes the network's input."""


@dataclass(frozen=True)
class Leaf:
    """A layer at its place in a network: a node of the graph.

    Attributes
    ----------
    name : str
        Its path, as in torch: "3", "1.0", …
    layer : Layer
    input_shapes : tuple of tuple of int
        Feature shape of each input.
    output_shape : tuple of int
    position : int
        Its number in the order of computation.
    sources : tuple of int
        The positions of the layers whose outputs are its inputs; `INPUT` for the network's input.
    parameters : dict of str to str
        Name in the network of each of the layer's parameters that is not frozen. A layer at several places has the
        names of the first.
    swept : bool
        Whether the sweep visits it: it has such parameters, or depends on a layer that has.
    lowest : bool
        Whether it depends on no layer that the sweep visits, so that the sweep ends here.
    constant : bool
        Whether it depends on no data, and its output has one row for all samples.
    curved : bool
        Whether its second derivative can be other than zero in the inputs that the sweep visits.
    """

    name: str
    layer: Layer
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    position: int = 0
    sources: tuple[int, ...] = (INPUT,)
    parameters: Mapping[str, str] = field(default_factory=dict)
    swept: bool = False
    lowest: bool = True
    constant: bool = False
    curved: bool = False

    @property
    def input_shape(self) -> Shape:
        """Feature shape of the only input."""
        (shape,) = self.input_shapes
        return shape

    def __str__(self) -> str:
        return f"layer {self.name or '(alone)'}, {self.layer!r}"


@dataclass
class Nodes:
    """The layers of a network in the order of computation, while they are put together.

    Attributes
    ----------
    input_shape : tuple of int
        Feature shape of the network's input.
    training : bool
        Whether the layers are those of training mode.
    leaves : list of Leaf
    names : dict of int to str
        The path of each layer's first place, by the layer's identity.
    wrt : frozenset of str or None
        The names of the parameters to differentiate in; None for all that are not frozen.
    """

    input_shape: Shape
    wrt: frozenset[str] | None
    training: bool
    leaves: list[Leaf] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, name: str, layer: Layer, *sources: int) -> int:
        """Append a layer that takes the outputs of others; return its position."""
        taken = [self.leaves[source] for source in sources if source != INPUT]
        shapes = tuple([self.input_shape if i == INPUT else self.leaves[i].output_shape for i in sources])
        try:
            output_shape = layer.output_shape(*shapes)
        except ValueError as error:
            raise ValueError(f"layer {name or '(alone)'}, {layer!r}: {error}") from None
        path, i = self.names.setdefault(id(layer), name), len(self.leaves)
        layer = in_mode(layer, True) if self.training else layer
        keys = [key for key in layer.parameter_shapes() if key not in layer.frozen]
        found = {key: ".".join(filter(None, (path, layer.node_parameters.get(key, (key,))[0]))) for key in keys}
        parameters = {key: each for key, each in found.items() if self.wrt is None or each in self.wrt}
        lowest = not any(leaf.swept for leaf in taken)
        swept = bool(parameters) or not lowest
        constant = layer.broadcasts and len(taken) == len(sources) and all(leaf.constant for leaf in taken)
        said = type(layer) if hasattr(layer, "residual_width") else None  # of others such names have no meaning
        linear = (0, 1) if getattr(said, "bilinear", False) else getattr(said, "linear_in", ())
        moved = [k for k, source in enumerate(sources) if source != INPUT and self.leaves[source].swept]
        kind = swept, lowest, constant, layer.curvature != "zero" and moved not in [[k] for k in linear]
        self.leaves.append(Leaf(name, layer, shapes, output_shape, i, sources, parameters, *kind))
        return i


class Layer(Constructed):
    """Base class of layers. A subclass defines `forward`, `mjp`, and the other methods that apply to its function."""

    remade = True

    curvature: ClassVar[str] = "zero"
    """Second derivative of outputs with respect to inputs: "zero", "diagonal" (elementwise layers) or "dense"."""

    constant_jacobian: ClassVar[bool] = False
    """True if the Jacobian with respect to the input is the same for every sample, so that one sample is enough."""

    formulas: Mapping[str, str] = {"forward": "y = f(x)", "mjp": "Jᵀ g"}
    """The layer's formulas as text: "forward", "mjp" and, if it is curved, "residual"; see `testing.certify`."""

    shown: ClassVar[Sequence[str]] = ()
    """The arguments that appear in messages, by the attributes that have their names."""

    takes: ClassVar[str] = "floats"
    """The input's kind: "floats"; "any" if numbers are just moved; "integers", at first, with `check_indices`."""

    broadcasts: ClassVar[bool] = False
    """True if values with one row, which is that of all samples, are taken beside, or in place of, those with N."""

    mixes: ClassVar[bool] = False
    """True if a sample's output depends on other samples of the batch, too. `jmp`, `mjp` and `residual` are then of the
    whole batch: a residual is `Factored`, its signs (V, 1), its `residual_width` that of inputs of shape (N, *in)."""

    in_training: Any = None
    """Optional: a method that returns the layer that takes its place in training mode; see `in_mode`."""

    observe: Any = None
    """Optional: for a layer that `mixes`, a method of (saved) that returns the function to call, or None, at the end of
    a call of `gbackprop.backward` in training mode."""

    kronecker_factors: bool | str | None = None
    """True if all parameters have Kronecker factors, or the reason why not. None, or True of a user's layer: tested on
    a sample of zeros."""

    weight_order: ClassVar[str] = "OI"
    """The order of outputs and inputs in a "weight" that multiplies, "OI" or "IO"; `gbackprop.testing` asks."""

    without_derivative: Mapping[str, Any] = {}
    """The rows of parameters whose derivative is 0 by convention, as of padding; `gbackprop.testing` asks."""

    drawn: dict[str, Array] | None = None
    """Parameter values by name, None until drawn or loaded; read them through `parameters`."""

    dtype: str | None = None
    """The dtype of drawn parameters; None means that of the container, or float32."""

    frozen: frozenset[str] = frozenset()
    """Names of the parameters of which no gradient and no quantity is computed."""

    node_parameters: Mapping[str, tuple[str, Layer]] = {}
    """For parameters that were nodes of a graph: the node's name, which they have, and a layer that draws them."""

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Compute the output and what the backward sweep needs: ``[N, *in] -> ([N, *out], saved)``."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        """Compute `forward` in training mode with what `noise` drew; for most layers there is no difference."""
        return self.forward(x)

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> Any:
        """Draw the random numbers of a training pass over ``[N, *in]``: None, or host arrays with N rows."""
        return None

    def output_shape(self, shape: Shape) -> Shape:
        """Return the feature shape of the output, without the batch axis.

        Raises
        ------
        ValueError
            If the layer cannot accept inputs of feature shape `shape`.
        """
        # The default, for a user's layer, is found from one sample of zeros.
        return tuple(unpacked(f"{self!r}, forward", self.forward(zeros(self, shape)))[0].shape[1:])

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        """J mat: ``[V, N, *in] -> [V, N, *out]``."""
        raise NotImplementedError(f"{type(self).__name__} has no jmp")

    def mjp(self, saved: Any, mat: Array) -> Array:
        """Jᵀ mat: ``[V, N, *out] -> [V, N, *in]``."""
        raise NotImplementedError(f"{type(self).__name__} has no mjp")

    def vjp(self, saved: Any, vec: Array) -> Array:
        """Jᵀ vec: ``[N, *out] -> [N, *in]``."""
        return self.mjp(saved, vec[None])[0]

    def residual(self, saved: Any, grad: Array) -> Any:
        """r = Σⱼ (∇² yⱼ) gⱼ: ``[N, *in]`` or `DiagonalFactors` if the curvature is diagonal, ``[N, D, D]`` if dense."""
        raise NotImplementedError(f"{type(self).__name__} has no residual")

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        """Compute KFRA's step, Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ: ``[D, D] -> [D', D']``, for outputs of feature shape `shape`.

        Source: Botev, Ritter, Barber 2017; paper, appendix A.2.
        """
        n = 1 if self.constant_jacobian else batch
        blocks = congruence(lambda mat: self.mjp(saved, mat), curvature, n, shape)
        return blocks[:, 0] if n == 1 else blocks.sum(1) / n

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        """Return the Jacobian with respect to each parameter, bound to this forward pass.

        The Hessian and its diagonal take a layer to be affine in each parameter, as in a weight or a bias: the outputs'
        second derivatives with respect to the parameters are zero. A layer that is not is refused there.
        """
        return {}

    # ---------------------------------------------------------------------------------------------------- parameters

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shape of each parameter by name; both as in torch."""
        return {}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw initial parameter values in float64, as torch does by default."""
        return {}

    @property
    def parameters(self) -> dict[str, Array]:
        """Parameter values by name; drawn with fresh entropy on first use if they were not set or drawn before."""
        if self.drawn is None and self.parameter_shapes():  # a layer without parameters stays as it is
            with _DRAWING:  # two threads that need them at once must find the same values
                if self.drawn is None:
                    self.initialize(np.random.default_rng())
        return {} if self.drawn is None else self.drawn

    def initialize(self, rng: np.random.Generator) -> None:
        """Draw new values of all parameters."""
        values = {key: node.draw(rng)[""] for key, (_, node) in self.node_parameters.items()} or self.draw(rng)
        if set(values) != set(self.parameter_shapes()):
            raise ValueError(f"{self!r}, draw: expected {list(self.parameter_shapes())}, got {list(values)}")
        self.drawn = {name: value.astype(self.dtype or "float32") for name, value in values.items()}

    # ----------------------------------------------------------------------------------------------------- structure

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        """Append this layer, or the layers inside a container, to `Nodes`; return the position of the output."""
        return nodes.add(name, self, *sources)

    def named_layers(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield (path, layer) of this layer, or of the layers inside a container, from input to output."""
        yield name, self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """Return the constructor's arguments as they appear in messages: by default those of `shown`."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)


def in_mode(layer: Layer, training: bool) -> Layer:
    """Return the layer that takes the place of one in training mode, or the layer itself."""
    return layer.in_training() if training and layer.in_training is not None else layer


def leaves_of(
    network: Layer, shape: Shape, nodes: Nodes | None = None, source: int = INPUT, training: bool = False
) -> list[Leaf]:
    """Return a layer, or the layers inside a container, in the order of computation, after those in `nodes`."""
    nodes = nodes or Nodes(shape, None, training)
    network.place(nodes, "", source)
    return nodes.leaves


def zeros(layer: Layer, shape: Shape) -> Array:
    """Return one sample of zeros of feature shape `shape`, of the layer's dtype and on its device."""
    parameter = next(iter(layer.parameters.values()), np.zeros(0, layer.dtype or "float32"))
    dtype = "int64" if layer.takes == "integers" else parameter.dtype
    return array_module(parameter).zeros((1, *shape), dtype=dtype)
