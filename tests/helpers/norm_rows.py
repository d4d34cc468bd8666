"""Rows of the layer table for normalization over the entries of one sample, with plain definitions."""

import numpy as np

from gbackprop import layers as L


def normalized(sets, eps, centered=True):
    """Each set of a sample's entries, in row-major order, by loops over samples and sets."""

    def normal(x):
        y = np.empty_like(x)
        for n, sample in enumerate(x):
            flat, out = sample.reshape(sets, -1), y[n].reshape(sets, -1)
            for k, z in enumerate(flat):
                z = z - z.sum() / z.size if centered else z
                out[k] = z / np.sqrt((z * z).sum() / z.size + eps)
        return y

    return normal


def over_last(shape, eps=1e-5, centered=True):
    """LayerNorm or RMSNorm of features of which `shape` are the last axes; γ and β are given as they are."""

    def function(x, weight=1.0, bias=0.0):
        sets = int(np.prod(x.shape[1:])) // int(np.prod(shape))
        return normalized(sets, eps, centered)(x) * weight + bias

    return function


def of_channels(groups, eps=1e-5):
    """GroupNorm: γ and β for each channel."""

    def function(x, weight=None, bias=None):
        y = normalized(groups, eps)(x)
        for c in range(x.shape[1]):
            y[:, c] = y[:, c] * (1 if weight is None else weight[c]) + (0 if bias is None else bias[c])
        return y

    return function


def drawn(layer):
    """The layer with γ and β other than 1 and 0."""
    layer.draw = lambda rng: {name: rng.standard_normal(shape) for name, shape in layer.parameter_shapes().items()}
    return layer


EPS = float(np.finfo(float).eps)

ROWS = [
    (lambda: drawn(L.LayerNorm(4)), (4,), over_last((4,))),
    (lambda: drawn(L.LayerNorm(4, eps=0.1, bias=False)), (2, 4), over_last((4,), 0.1)),
    (lambda: drawn(L.LayerNorm((2, 4))), (2, 2, 4), over_last((2, 4))),
    (lambda: drawn(L.LayerNorm([4], elementwise_affine=False)), (2, 4), over_last((4,))),
    (lambda: drawn(L.RMSNorm(4)), (4,), over_last((4,), EPS, False)),
    (lambda: drawn(L.RMSNorm((2, 2), eps=0.01)), (3, 2, 2), over_last((2, 2), 0.01, False)),
    (lambda: drawn(L.RMSNorm(3, elementwise_affine=False)), (2, 3), over_last((3,), EPS, False)),
    (lambda: drawn(L.GroupNorm(2, 4)), (4, 2), of_channels(2)),
    (lambda: drawn(L.GroupNorm(1, 4, eps=0.3)), (4,), of_channels(1, 0.3)),
    (lambda: drawn(L.GroupNorm(3, 3, affine=False)), (3, 2, 2), of_channels(3)),
    (lambda: drawn(L.GroupNorm(2, 2)), (2, 1, 2, 2), of_channels(2)),
    (lambda: drawn(L.InstanceNorm1d(2)), (2, 4), of_channels(2)),
    (lambda: drawn(L.InstanceNorm2d(3, affine=True)), (3, 2, 2), of_channels(3)),
    (lambda: drawn(L.InstanceNorm3d(1, eps=1e-3)), (1, 2, 2, 2), of_channels(1, 1e-3)),
]
