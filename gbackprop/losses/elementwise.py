"""Base of losses that are a sum over outputs: a diagonal Hessian, and "mean" as a mean over the outputs, too."""

from __future__ import annotations

from math import prod

from gbackprop.array import Array, all_finite, array_module
from gbackprop.base.checks import check_floats, check_same
from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import ALL, Loss


class ElementwiseLoss(Loss):
    """ℓₙ = c Σⱼ l(fₙⱼ, yₙⱼ) with c = 1 for "sum" and 1/C for "mean" (C outputs a sample), as in torch."""

    def target_shape(self, batch_shape: Shape) -> Shape:
        if not batch_shape:
            raise ValueError(f"expected outputs of shape (N, …), got {batch_shape}")
        return batch_shape

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        check_floats(name, target)
        check_same(name, target, "x", output)
        if not all_finite(target):
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")

    def summed_weight(self, shape: Shape) -> float:
        return 1 / prod(shape) if self.reduction == "mean" else 1.0

    def summed(self, each: Array) -> Array:
        """c Σⱼ: ``[N, *out] -> [N]``."""
        return each.reshape(each.shape[0], -1).sum(1) * self.summed_weight(each.shape[1:])

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        roots = array_module(output).sqrt(self.second(output, target) * self.summed_weight(output.shape[1:]))
        return one_hot_columns(roots, columns)

    def second(self, output: Array, target: Array) -> Array:
        """l''(f, y) for each output, shape (N, *out); not negative."""
        raise NotImplementedError


def one_hot_columns(roots: Array, columns: slice) -> Array:
    """Return the columns of diag(roots) per sample: ``[N, *out] -> [V, N, *out]``."""
    xp = array_module(roots)
    flat = roots.reshape(roots.shape[0], -1)
    which = xp.arange(flat.shape[1])[columns]
    values = xp.zeros((which.shape[0], *flat.shape), dtype=roots.dtype)
    values[xp.arange(which.shape[0]), :, which] = flat[:, columns].T
    return values.reshape(which.shape[0], *roots.shape)
