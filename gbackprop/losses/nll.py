"""Negative log-likelihood of class labels, from log-probabilities."""

from __future__ import annotations

from typing import Literal

from gbackprop.array import Array, array_module
from gbackprop.losses.class_weights import ClassWeights
from gbackprop.losses.flat import FlatLoss


class NLLLoss(FlatLoss, ClassWeights):
    """ℓₙ = −fₙ[yₙ] for outputs (N, C), of log-probabilities, and labels (N,) of an integer type.

    With options and T positions, a = w[y] e_y at each: ℓ = −c Σₜ Σᵥ a[v] f[v], ∇ℓ = −c a, c = 1/T for "mean" and 1 for
    "sum"; of labels "mean" divides by the sum of their weights, as `CrossEntropyLoss` does. Nothing here needs e^f to
    sum to 1, and nothing looks whether it does.

    ∇²ℓ = 0: after `LogSoftmax` the gradient and `DiagHessian` are those of `CrossEntropyLoss`, while the generalized
    Gauss-Newton matrix depends on where network and loss are separated. Here it and all that is made of it (DiagGGN,
    KFLR, KFRA) are zero; `CrossEntropyLoss` without the `LogSoftmax` has that of the softmax. There are no Monte-Carlo
    draws: the Fisher information is not the Hessian of this loss.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    weight : ndarray, shape (C), optional
        w ≥ 0 for each class, on the device of the outputs; 1 by default.
    ignore_index : int, optional
        Positions with this label count neither in the sum nor in what "mean" divides by. None, the default, ignores no
        label: where torch would leave out −100 unasked, there is an error.

    Notes
    -----
    Outputs are (N, C) or (N, C, *pos), targets labels (N, *pos).
    """

    formulas = {"values": "ℓ = −weight_y f_y", "gradients": "−weight_y [j = y]", "hessian": "0"}
    hint = " (of one-hot rows give the labels, target.argmax(1))"
    probabilities = False

    def __init__(
        self,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        weight: Array | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index)

    def values(self, output: Array, target: Array) -> Array:
        # the logarithm of another class's probability may be −∞, of which 0 times is no number
        some = array_module(output).where(self.shares(target, output) != 0, output, 0)
        return self.weighted_values(some, target)

    def gradients(self, output: Array, target: Array) -> Array:
        return (self.shares(target, output) * -self.summed_weight(output.shape[1:])).astype(output.dtype, copy=False)
