"""Planted faults in normalization of each sample and in softmax's structured residuals."""

import numpy as np
from faults import Fault, after, before, instead, times

from gbackprop import layers as L
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.layers.elementwise.softmax import LogSoftmax, Softmax
from gbackprop.layers.norms.normalization import Entrywise, Norm

# ----------------------------------------------------------------------------------------------- longer wrong functions


def biased_up(sound):
    """σ² with 1/(K − 1)."""

    def forward(self, x):
        size = self.sets(x.shape[1:])[1]
        y, (normal, sigma) = sound(self, x * ((size - 1) / size) ** 0.5)
        return y, (normal, sigma)

    return forward


def without_the_mean_of_products(self, saved, h):
    (_, sigma), shape = saved, h.shape
    return (self._projected(h.reshape(*shape[:2], sigma.shape[1], -1)) / sigma).reshape(shape)


def of_another_group(self, shape):
    return 1, int(np.prod(shape))


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(Norm, "forward", "1/(K − 1)", biased_up, L.LayerNorm, "forward"),
    Fault(Norm, "_projected", "mean left in", instead(lambda self, x: x), L.LayerNorm, "forward"),
    Fault(Norm, "_normal_mjp", "no mean of products", instead(without_the_mean_of_products), L.LayerNorm, "jmp"),
    Fault(Norm, "_weighted", "γ left out", instead(lambda self, mat: mat), L.LayerNorm, "jmp"),
    Fault(Norm, "pieces", "half of a product",
          after(lambda pieces: (pieces[0], pieces[1] / 2, pieces[2])), L.LayerNorm, "residual"),
    Fault(Norm, "pieces", "wrong sign of P", after(lambda pieces: (-pieces[0], *pieces[1:])), L.RMSNorm, "residual"),
    Fault(Entrywise, "per_sample", "without x̂",
          before(lambda self, mat: (Entrywise(self.rows, self.shape), mat)), L.LayerNorm, "weight.per_sample"),
    Fault(OwnBlock, "kronecker", "doubled", times(2), L.GroupNorm, "weight.kronecker"),
    Fault(L.RMSNorm, "centered", "mean subtracted", instead(True), L.RMSNorm, "forward"),
    Fault(L.GroupNorm, "sets", "one group", instead(of_another_group), L.GroupNorm, "forward"),
    Fault(L.InstanceNorm2d, "sets", "channels together", instead(of_another_group), L.InstanceNorm2d, "forward"),
    Fault(Softmax, "strength", "wrong sign", times(-1), Softmax, "residual"),
    Fault(LogSoftmax, "strength", "doubled", times(2), LogSoftmax, "residual"),
    Fault(Softmax, "columns", "signs lost", after(lambda columns: (columns[0], abs(columns[1]))), Softmax, "residual"),
]  # fmt: skip
