"""The protocol that every layer follows.

A layer is a function with derivatives. It knows nothing of quantities, keeps no state between calls, and writes no
attribute in `forward`: `saved` is all that the backward needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.layers.jacobian import KRONECKER, ParameterJacobian, congruence
from gbackprop.layers.selection import Selection

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """A layer at its place in a network: torch-style path ("3", "1.0", …) and the feature shapes that it sees there."""

    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape

    def parameter(self, name: str) -> str:
        """torch-style name in the network of one of the layer's parameters."""
        return f"{self.name}.{name}" if self.name else name

    def __str__(self) -> str:
        return f"layer {self.name or '(alone)'}, {self.layer!r}"


class Layer:
    """Base class. A subclass gives `forward` and `mjp`, and whatever of the rest its function has."""

    curvature: ClassVar[str] = "zero"
    """Second derivative of the outputs in the inputs: "zero", "diagonal" (elementwise layers) or "dense"."""

    constant_jacobian: ClassVar[bool] = False
    """Whether the Jacobian in the input is the same for every sample, so that one sample stands for all."""

    formulas: ClassVar[Mapping[str, str]] = {"forward": "y = f(x)", "mjp": "Jᵀ g"}
    """What the layer computes, in letters: "forward", "mjp" and, if it is curved, "residual"."""

    drawn: dict[str, Array] | None = None
    """Parameter values by name, None until drawn or loaded; read them through `parameters`."""

    dtype: str | None = None
    """The dtype in which parameters are to be drawn; None leaves it to the container, or means float32."""

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Output and what the backward needs: ``[N, *in] -> ([N, *out], saved)``."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        """`forward` in training mode, with what `noise` drew; the same for all layers but a few."""
        return self.forward(x)

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> Any:
        """Draw the randomness of a training pass over ``[N, *in]``: None, or host arrays with N rows."""
        return None

    def output_shape(self, shape: Shape) -> Shape:
        """Feature shape of the output, without the batch axis.

        Raises
        ------
        ValueError
            If the layer cannot take inputs of feature shape `shape`.
        """
        # A user's layer need not say: one sample of zeros tells.
        return tuple(self.forward(self._zeros(shape))[0].shape[1:])

    def _zeros(self, shape: Shape) -> Array:
        """One sample of zeros, of the parameters' dtype and on their device."""
        parameter = next(iter(self.parameters.values()), np.zeros(0, self.dtype or "float32"))
        return array_module(parameter).zeros((1, *shape), dtype=parameter.dtype)

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        """J mat: ``[V, N, *in] -> [V, N, *out]``."""
        raise NotImplementedError(f"{type(self).__name__} has no jmp")

    def mjp(self, saved: Any, mat: Array) -> Array:
        """Jᵀ mat: ``[V, N, *out] -> [V, N, *in]``."""
        raise NotImplementedError(f"{type(self).__name__} has no mjp")

    def mjp_in_place(self, saved: Any, mat: Array) -> Array:
        """As `mjp`, for a `mat` that nobody needs afterwards: the result may be written over it."""
        return self.mjp(saved, mat)

    def vjp(self, saved: Any, vec: Array) -> Array:
        """Jᵀ vec: ``[N, *out] -> [N, *in]``."""
        return self.mjp(saved, vec[None])[0]

    def residual(self, saved: Any, grad: Array) -> Array:
        """r = Σⱼ (∇² yⱼ) gⱼ: ``[N, *in]`` where the curvature is diagonal, ``[N, D, D]`` where it is dense."""
        raise NotImplementedError(f"{type(self).__name__} has no residual")

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        """KFRA's step, Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ: ``[D, D] -> [D', D']``, for outputs of feature shape `shape`.

        Source: Botev, Ritter, Barber 2017; paper, appendix A.2.
        """
        n = 1 if self.constant_jacobian else batch
        blocks = congruence(lambda mat: self.mjp(saved, mat), curvature, n, shape)
        return blocks[:, 0] if n == 1 else blocks.sum(1) / n

    def selection(self, saved: Any, above: Selection | None) -> Selection | None:
        """Which numbers of the input some numbers of the output are, each times what: see `layers.selection`.

        Called only where the class that defines it also defines `forward` and `mjp`.

        Parameters
        ----------
        saved : object
            From `forward`.
        above : Selection or None
            Which of the outputs, with arrays (N, W, C); None for all, where only a layer that leaves some of its inputs
            out, as max pooling does, has something to say.

        Returns
        -------
        Selection or None
            With arrays (N, W, C); None where an output is not one number of its channel times another.
        """
        return None

    def selection_pays(self, columns: int, windows: int, shape: Shape) -> bool:
        """Whether squares are quicker with `selected_jacobians`, for inputs of feature shape `shape`.

        That is, for so many columns of `windows` numbers for each channel of the output.
        """
        return False

    def selected_jacobians(
        self, jacobians: Mapping[str, ParameterJacobian], selection: Selection
    ) -> dict[str, ParameterJacobian]:
        """Of the `parameter_jacobians`, those that have a form for columns ``[V, N, C, *W]`` at a selection's outputs.

        Called only where the class that defines it also defines `selection_pays` and `parameter_jacobians`.
        """
        return {}

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        """The Jacobian in each parameter, bound to this forward pass.

        A layer must be affine in each parameter, as a weight or a bias makes it: the Hessian's diagonal takes the
        outputs' second derivatives in the parameters to be zero.
        """
        return {}

    def unsupported(self, shape: Shape) -> Mapping[str, str]:
        """Reductions of `ParameterJacobian` that this layer's parameters do not have, each with the reason.

        A user's layer need not say: its Jacobians for one sample of zeros, of feature shape `shape`, tell.
        """
        if not self.parameter_shapes():
            return {}
        jacobians = self.parameter_jacobians(self.forward(self._zeros(shape))[1])
        return {
            name: f"the Jacobian of its {key} has no {name.replace('_', ' ')}"
            for key, jacobian in jacobians.items()
            for name in KRONECKER
            if getattr(type(jacobian), name) is getattr(ParameterJacobian, name)
        }

    # ---------------------------------------------------------------------------------------------------- parameters

    def parameter_shapes(self) -> dict[str, Shape]:
        """Shape of each parameter, by name; both as in torch."""
        return {}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial parameter values in float64, drawn as torch draws them by default."""
        return {}

    @property
    def parameters(self) -> dict[str, Array]:
        """Parameter values by name; drawn with fresh entropy at first need if nobody gave or drew them before."""
        if self.drawn is None:
            self.initialize(np.random.default_rng())
        assert self.drawn is not None
        return self.drawn

    def initialize(self, rng: np.random.Generator) -> None:
        """Draw all parameters anew."""
        dtype = np.dtype(self.dtype or "float32")
        self.drawn = {name: value.astype(dtype) for name, value in self.draw(rng).items()}

    # ----------------------------------------------------------------------------------------------------- structure

    def leaves(self, shape: Shape, name: str = "") -> list[Leaf]:
        """This layer, or the layers inside a container, from input to output.

        Raises
        ------
        ValueError
            If a layer cannot take what comes to it; the message names the layer.
        """
        try:
            return [Leaf(name, self, shape, self.output_shape(shape))]
        except ValueError as error:
            raise ValueError(f"layer {name or '(alone)'}, {self!r}: {error}") from None

    def named_layers(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """(path, layer) of this layer, or of the layers inside a container, from input to output."""
        yield name, self

    def sweep(self, saved: Any, signals: Any, visit: Visit, name: str = "") -> Any:
        """Take what arrives at the output back to the input: one visit here, a route through children in containers."""
        return visit(name, self, saved, signals)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """The constructor's arguments, as they appear in messages."""
        return ""


Visit = Callable[[str, Layer, Any, Any], Any]
"""What a sweep does at a layer: ``(path, layer, saved, signals) -> signals`` at its input."""

