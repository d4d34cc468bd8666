"""Planted faults in normalization of each sample and in softmax's structured residuals."""

import definitions
import norm_rows as plain
import numpy as np
from faults import Fault, after, before, instead, on_layer, times

from gbackprop import layers as L
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.layers.elementwise.softmax import LogSoftmax, Softmax
from gbackprop.layers.norms.normalization import Entrywise, Norm

# -------------------------------------------------------------------------------------------------------------- checks

layer_norm = on_layer(lambda: plain.drawn(L.LayerNorm(4)), (2, 4), plain.over_last((4,)))
rms_norm = on_layer(lambda: plain.drawn(L.RMSNorm(4, eps=1e-3)), (4,), plain.over_last((4,), 1e-3, False))
group_norm = on_layer(lambda: plain.drawn(L.GroupNorm(2, 4)), (4, 2), plain.of_channels(2))
instance_norm = on_layer(lambda: plain.drawn(L.InstanceNorm2d(2, affine=True)), (2, 2, 2), plain.of_channels(2))
softmax = on_layer(lambda: L.Softmax(1), (4,), definitions.softmax(1))
log_softmax = on_layer(lambda: L.LogSoftmax(1), (4,), definitions.log_softmax(1))

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
    Fault(Norm, "forward", "1/(K − 1)", biased_up, layer_norm, "forward"),
    Fault(Norm, "_projected", "mean left in", instead(lambda self, x: x), layer_norm, "forward"),
    Fault(Norm, "_normal_mjp", "no mean of products", instead(without_the_mean_of_products), layer_norm, "jmp"),
    Fault(Norm, "_weighted", "γ left out", instead(lambda self, mat: mat), layer_norm, "jmp"),
    Fault(Norm, "pieces", "half of a product",
          after(lambda pieces: (pieces[0], pieces[1] / 2, pieces[2])), layer_norm, "residual"),
    Fault(Norm, "pieces", "wrong sign of P", after(lambda pieces: (-pieces[0], *pieces[1:])), rms_norm, "residual"),
    Fault(Entrywise, "per_sample", "without x̂",
          before(lambda self, mat: (Entrywise(self.rows, self.shape), mat)), layer_norm, "weight.per_sample"),
    Fault(OwnBlock, "kronecker", "doubled", times(2), group_norm, "weight.kronecker"),
    Fault(L.RMSNorm, "centered", "mean subtracted", instead(True), rms_norm, "forward"),
    Fault(L.GroupNorm, "sets", "one group", instead(of_another_group), group_norm, "forward"),
    Fault(L.InstanceNorm2d, "sets", "channels together", instead(of_another_group), instance_norm, "forward"),
    Fault(Softmax, "strength", "wrong sign", times(-1), softmax, "residual"),
    Fault(LogSoftmax, "strength", "doubled", times(2), log_softmax, "residual"),
    Fault(Softmax, "columns", "signs lost", after(lambda columns: (columns[0], abs(columns[1]))), softmax, "residual"),
]  # fmt: skip
