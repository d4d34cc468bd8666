"""The protocol that every layer follows.

A layer is a function with derivatives. It knows nothing of quantities, stores no state between calls, and writes no
attribute in `forward`: `saved` is all that the backward sweep needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.checks import Constructed
from gbackprop.layers.jacobian import ParameterJacobian, Shape, congruence

__all__ = ["Layer", "Leaf", "Shape"]

_DRAWING = RLock()


@dataclass(frozen=True)
class Leaf:
    """A layer of a network, with its torch-style path ("3", "1.0", …) and its input and output feature shapes."""

    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape

    def parameter(self, name: str) -> str:
        """Return the torch-style name in the network of one of the layer's parameters."""
        return f"{self.name}.{name}" if self.name else name

    def __str__(self) -> str:
        return f"layer {self.name or '(alone)'}, {self.layer!r}"


class Layer(Constructed):
    """Base class of layers. A subclass defines `forward`, `mjp`, and the other methods that apply to its function."""

    curvature: ClassVar[str] = "zero"
    """Second derivative of outputs with respect to inputs: "zero", "diagonal" (elementwise layers) or "dense"."""

    constant_jacobian: ClassVar[bool] = False
    """Whether the Jacobian with respect to the input is the same for every sample, so that one sample is enough."""

    formulas: ClassVar[Mapping[str, str]] = {"forward": "y = f(x)", "mjp": "Jᵀ g"}
    """The layer's formulas as text: "forward", "mjp" and, if it is curved, "residual"."""

    kronecker_factors: bool | str | None = None
    """Whether all parameters have Kronecker factors: True, or the reason why not. None: tested on a sample of zeros."""

    drawn: dict[str, Array] | None = None
    """Parameter values by name, None until drawn or loaded; read them through `parameters`."""

    dtype: str | None = None
    """The dtype of drawn parameters; None means that of the container, or float32."""

    placed: bool = False
    """Whether a container has it: a layer with parameters cannot be in one network twice."""

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
        made = self.forward(zeros(self, shape))
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(f"{self!r}, forward: expected a tuple (output, saved), got {type(made).__name__}")
        return tuple(made[0].shape[1:])

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

    def residual(self, saved: Any, grad: Array) -> Array:
        """r = Σⱼ (∇² yⱼ) gⱼ: ``[N, *in]`` where the curvature is diagonal, ``[N, D, D]`` where it is dense."""
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

        A layer must be affine in each parameter, as in a weight or a bias: the Hessian's diagonal assumes that the
        outputs' second derivatives with respect to the parameters are zero.
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
        if self.drawn is None:
            with _DRAWING:  # two threads that need them at once must find the same values
                if self.drawn is None:
                    self.initialize(np.random.default_rng())
        assert self.drawn is not None
        return self.drawn

    def initialize(self, rng: np.random.Generator) -> None:
        """Draw new values of all parameters."""
        dtype = np.dtype(self.dtype or "float32")
        values = self.draw(rng)
        if set(values) != set(self.parameter_shapes()):
            raise ValueError(f"{self!r}, draw: expected {list(self.parameter_shapes())}, got {list(values)}")
        self.drawn = {name: value.astype(dtype) for name, value in values.items()}

    # ----------------------------------------------------------------------------------------------------- structure

    def leaves(self, shape: Shape, name: str = "") -> list[Leaf]:
        """Return this layer, or the layers inside a container, from input to output.

        Raises
        ------
        ValueError
            If a layer cannot accept its input shape; the message names the layer.
        """
        try:
            return [Leaf(name, self, shape, self.output_shape(shape))]
        except ValueError as error:
            raise ValueError(f"layer {name or '(alone)'}, {self!r}: {error}") from None

    def named_layers(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield (path, layer) of this layer, or of the layers inside a container, from input to output."""
        yield name, self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """Return the constructor's arguments as they appear in messages."""
        return ""


def zeros(layer: Layer, shape: Shape) -> Array:
    """Return one sample of zeros of feature shape `shape`, of the layer's dtype and on its device."""
    parameter = next(iter(layer.parameters.values()), np.zeros(0, layer.dtype or "float32"))
    return array_module(parameter).zeros((1, *shape), dtype=parameter.dtype)
