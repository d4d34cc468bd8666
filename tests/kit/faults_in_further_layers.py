"""Planted faults in the layers beyond the paper's networks."""

import numpy as np
from faults import Fault, after, instead, of, times

from gbackprop import layers as L
from gbackprop.calculus.frame import Frame
from gbackprop.calculus.separable import Separable
from gbackprop.layers.moves import indexing as moves
from gbackprop.layers.norms.scale import Factor
from gbackprop.layers.windows import adaptive
from gbackprop.layers.windows.conv_transpose import _Weight
from gbackprop.testing.cases.windows import adaptive_mean

# -------------------------------------------------------------------------------------------------------------- checks

square = of(L.AdaptiveAvgPool2d, (1, 4, 4), adaptive_mean, output_size=(2, 3))

# ----------------------------------------------------------------------------------------------- longer wrong functions


def places_last(self, weight):
    return weight.reshape(*weight.shape[:-1], -1, *self.window.kernel)


def border_too(self, size, before, after):
    return slice(0, before), slice(size - after, size)


def frame_cut_off(self, g):
    return g[..., *[slice(before, size - after) for (before, after), size in zip(self.padding, g.shape[-2:])]]


def rounded_down(size, out, like):
    i = np.arange(out)[:, None]
    return i * size // out, (i + 1) * size // out


def without_eps(self, x, axes):
    mean, variance = (self.buffers[name] for name in ("running_mean", "running_var"))
    return mean.reshape(-1, *(1,) * axes), variance.reshape(-1, *(1,) * axes) ** 0.5


def as_forward(self, saved, mat):
    return np.stack([self.forward(column)[0] for column in mat])


def backwards(y):
    return y[..., ::-1]


def groups_reversed(factors):
    return factors[::-1]


def columns_first(x, r):
    n, c, h, w = x.shape
    return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 3, 5, 2).reshape(n, c // r**2, h * r, w * r)


def to_all(self, saved, mat):
    return np.broadcast_to(np.expand_dims(mat, self.dim + 1), (*mat.shape[:2], *saved)).copy()


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(L.Conv1d, "_to_parameter", "places last", instead(places_last), L.Conv1d, "weight.per_sample"),
    Fault(L.Conv3d, "jmp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), L.Conv3d, "jmp"),
    Fault(Frame, "_sources", "the border reflected too", instead(border_too), L.Conv2d, "forward"),
    Fault(Frame, "around", "sides swapped", after(lambda x: np.flip(x, -1)), L.Conv2d, "forward"),
    Fault(Frame, "inside", "the frame's share dropped", instead(frame_cut_off), L.Conv2d, "mjp"),
    # pooling
    Fault(L.MaxPool1d, "_places", "one place late", after(lambda places: (places + 1) % 2), L.MaxPool1d, "jmp"),
    Fault(L.MaxPool3d, "mjp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), L.MaxPool3d, "mjp"),
    Fault(L.AvgPool1d, "_counts", "one too many", after(lambda counts: counts + 1), L.AvgPool1d, "forward"),
    Fault(L.AvgPool3d, "mjp", "sum instead of mean", times(8), L.AvgPool3d, "mjp"),
    Fault(adaptive, "_bins", "ends rounded down", instead(rounded_down), L.AdaptiveAvgPool1d, "forward"),
    Fault(adaptive, "_bins", "ends rounded down, for maxima", instead(rounded_down), L.AdaptiveMaxPool1d, "forward"),
    Fault(Separable, "mjp", "sum instead of mean", times(3), L.AdaptiveAvgPool2d, "mjp"),
    Fault(L.AdaptiveAvgPool1d, "jmp", "off by one", after(lambda y: np.roll(y, 1, -1)), L.AdaptiveAvgPool1d, "jmp"),
    Fault(L.AdaptiveAvgPool2d, "matrices", "axes swapped", after(lambda m: m[::-1]), square, "forward"),
    Fault(L.AdaptiveAvgPool3d, "output_shape", "the input's",
          instead(lambda self, shape: shape), L.AdaptiveAvgPool3d, "output_shape"),
    Fault(L.AdaptiveMaxPool1d, "_turns", "one turn",
          instead(lambda self, spatial: [(slice(None),) * len(spatial)]), L.AdaptiveMaxPool1d, "mjp"),
    Fault(L.AdaptiveMaxPool2d, "mjp", "wrong sign", times(-1), L.AdaptiveMaxPool2d, "mjp"),
    Fault(L.AdaptiveMaxPool3d, "jmp", "factor 2", times(2), L.AdaptiveMaxPool3d, "jmp"),
    # transposed convolution
    Fault(L.ConvTranspose1d, "_sides", "one place late",
          after(lambda sides: tuple((before + 1, after - 1) for before, after in sides)), L.ConvTranspose1d, "forward"),
    Fault(L.ConvTranspose2d, "_sides", "output padding in front",
          after(lambda sides: tuple(side[::-1] for side in sides)), L.ConvTranspose2d, "forward"),
    Fault(L.ConvTranspose1d, "mjp", "wrong sign", times(-1), L.ConvTranspose1d, "mjp"),
    Fault(L.ConvTranspose2d, "jmp", "bias added", instead(as_forward), L.ConvTranspose2d, "jmp"),
    Fault(L.ConvTranspose3d, "mjp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), L.ConvTranspose3d, "mjp"),
    Fault(_Weight, "per_sample", "factor 2", times(2), L.ConvTranspose1d, "weight.per_sample"),
    Fault(L.ConvTranspose1d, "seen", "kernel mirrored", after(backwards), L.ConvTranspose1d, "weight.input_square"),
    Fault(L.ConvTranspose2d, "seen", "mean of the places",
          after(lambda u: np.broadcast_to(u.mean(-1, keepdims=True), u.shape)),
          L.ConvTranspose2d, "weight.input_square"),
    Fault(_Weight, "input_square", "places before channels",
          after(lambda square: square.transpose(1, 0, 3, 2)), L.ConvTranspose1d, "weight.input_square"),
    Fault(_Weight, "input_square", "groups reversed", after(groups_reversed), L.ConvTranspose2d, "weight.input_square"),
    Fault(_Weight, "kronecker", "groups reversed", after(groups_reversed), L.ConvTranspose2d, "weight.kronecker"),
    Fault(_Weight, "average_kronecker", "doubled", times(2), L.ConvTranspose3d, "weight.average_kronecker"),
    # factors
    Fault(L.BatchNorm1d, "_statistics", "without ε", instead(without_eps), L.BatchNorm1d, "forward"),
    Fault(L.BatchNorm2d, "mjp", "not divided by the deviation",
          instead(lambda self, saved, mat: mat * self._channels("weight", mat.ndim - 3)), L.BatchNorm2d, "mjp"),
    Fault(L.BatchNorm3d, "jmp", "wrong sign", times(-1), L.BatchNorm3d, "jmp"),
    Fault(Factor, "per_sample", "without the input",
          instead(lambda self, mat: mat.sum(tuple(range(3, mat.ndim)))), L.BatchNorm2d, "weight.per_sample"),
    Fault(Factor, "kronecker", "its diagonal alone",
          after(lambda block: np.diag(np.diag(block))), L.Scale, "weight.kronecker"),
    Fault(L.Scale, "_factors", "squared", after(lambda w: w * w), L.Scale, "forward"),
    Fault(L.Scale, "mjp", "wrong sign", times(-1), L.Scale, "mjp"),
    # paddings and moves
    Fault(L.ZeroPad1d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -1)), L.ZeroPad1d, "mjp"),
    Fault(L.ZeroPad3d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -1)), L.ZeroPad3d, "mjp"),
    Fault(L.ConstantPad1d, "jmp", "number added", after(lambda y: y + 0.5), L.ConstantPad1d, "jmp"),
    Fault(L.ConstantPad2d, "jmp", "number added", after(lambda y: y + 0.5), L.ConstantPad2d, "jmp"),
    Fault(L.ConstantPad3d, "jmp", "number added", after(lambda y: y + 0.5), L.ConstantPad3d, "jmp"),
    Fault(L.ReflectionPad1d, "mjp", "other side first", after(backwards), L.ReflectionPad1d, "mjp"),
    Fault(L.ReflectionPad2d, "mjp", "other side first", after(backwards), L.ReflectionPad2d, "mjp"),
    Fault(L.ReflectionPad3d, "mjp", "other side first", after(backwards), L.ReflectionPad3d, "mjp"),
    Fault(L.ReplicationPad1d, "mjp", "wrong sign", times(-1), L.ReplicationPad1d, "mjp"),
    Fault(L.ReplicationPad2d, "mjp", "wrong sign", times(-1), L.ReplicationPad2d, "mjp"),
    Fault(L.ReplicationPad3d, "mjp", "wrong sign", times(-1), L.ReplicationPad3d, "mjp"),
    Fault(L.CircularPad1d, "jmp", "factor 2", times(2), L.CircularPad1d, "jmp"),
    Fault(L.CircularPad2d, "jmp", "factor 2", times(2), L.CircularPad2d, "jmp"),
    Fault(L.CircularPad3d, "jmp", "factor 2", times(2), L.CircularPad3d, "jmp"),
    Fault(moves, "_shuffled", "rows and columns swapped", instead(columns_first), L.PixelShuffle, "forward"),
    Fault(L.PixelUnshuffle, "back", "not moved back",
          instead(lambda self, g, shape: g.reshape(len(g), *shape)), L.PixelUnshuffle, "mjp"),
    Fault(L.Unflatten, "mjp", "wrong sign", times(-1), L.Unflatten, "mjp"),
    Fault(L.Permute, "back", "moved once more",
          instead(lambda self, g, shape: g.transpose(self.dims).reshape(len(g), *shape)), L.Permute, "mjp"),
    Fault(L.Slice, "back", "at the start", after(lambda x: np.roll(x, -1, -1)), L.Slice, "mjp"),
    Fault(L.Select, "mjp", "to all indices", instead(to_all), L.Select, "mjp"),
    Fault(L.Upsample, "mjp", "mean of the copies", times(0.5), L.Upsample, "mjp"),
]  # fmt: skip
