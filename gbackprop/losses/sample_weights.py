"""Weights of samples: the loss wₙ ℓₙ in place of ℓₙ, for one call.

They enter here and nowhere else, as R enters at the start of the sweep: what follows is linear in ℓₙ's gradient and
squares the columns of its Hessian's root, which gets √wₙ. A sample's weight goes with its target, so that blocks of
samples have theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, array_module, is_array
from gbackprop.base.checks import check_same, kind_of
from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import ALL, Loss
from gbackprop.losses.weights import check_weight


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets (N, ...) with the weights of their samples (N,)."""

    y: Any
    weight: Any

    def __getitem__(self, rows: slice) -> Targets:
        return Targets(self.y[rows], self.weight[rows])


class Weighted(Loss):
    """A loss multiplied by the weight of each sample; its targets are `Targets`, and pseudo-targets plain arrays.

    R is that of the loss. All that has no target as an argument is the loss's own.
    """

    def __init__(self, of: Loss) -> None:
        self.of = of
        own = vars(Weighted)
        self.__dict__.update({name: getattr(of, name) for name in vars(Loss) if name[:2] != "__" and name not in own})
        self.reduction, self.plain = of.reduction, of

    def __repr__(self) -> str:
        return repr(self.of)

    def factor(self, batch: int, target: Any) -> float:
        return self.of.factor(batch, target.y)

    def values(self, output: Array, target: Any) -> Array:
        return times(self.of.values(output, target.y), target.weight)

    def gradients(self, output: Array, target: Any) -> Array:
        return times(self.of.gradients(output, target.y), target.weight)

    def hessian_sqrt(self, output: Array, target: Any, columns: slice = ALL) -> Array:
        return times(self.of.hessian_sqrt(output, target.y, columns), _root(target), 1)

    def hessian_sqrt_mc(self, output: Array, targets: Array, target: Any) -> Array:
        return times(self.of.hessian_sqrt_mc(output, targets, target.y), _root(target), 1)

    value, __call__, hessian_sum = Loss.value, Loss.value, Loss.hessian_sum

    def curvature_weights(self, output: Array, target: Any) -> Array:
        weight = target.weight.reshape(-1, *[1] * (output.ndim - 1))
        return self.of.curvature_weights(output, target.y) * weight

    def check_target(self, name: str, target: Any, output: Array, batch_shape: Shape | None = None) -> None:
        if not isinstance(target, Targets):  # pseudo-targets, which have no weights
            self.of.check_target(name, target, output, batch_shape)
            return
        self.of.check_target(name, target.y, output, batch_shape)
        weight, batch = target.weight, (output.shape if batch_shape is None else batch_shape)[0]
        if not is_array(weight):
            raise TypeError(f"sample_weight: expected a NumPy or CuPy array, got {kind_of(weight)}")
        check_same("sample_weight", weight, "x", output)
        if weight.shape != (batch,):
            raise ValueError(f"sample_weight: expected shape ({batch},), a number for each sample, got {weight.shape}")
        check_weight("sample_weight", weight)


def weighted(loss: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return the loss with weights, and targets with theirs; a loss that is none is left to later checks."""
    return (Weighted(loss), Targets(y, sample_weight)) if isinstance(loss, Loss) else (loss, y)


def times(values: Array, weight: Array, axis: int = 0) -> Array:
    """Multiply by weights along the axis of samples; weight 0 gives 0, also of infinity and NaN."""
    weight = weight.reshape(-1, *[1] * (values.ndim - 1 - axis))
    found = array_module(values).where(weight > 0, values, 0)
    found *= weight
    return found


def _root(target: Targets) -> Array:
    return array_module(target.weight).sqrt(target.weight)
