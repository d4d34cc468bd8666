"""Planted faults in the layers beyond the paper's networks."""

import definitions as plain
import numpy as np
from faults import Fault, after, instead, on_layer, times
from further_rows import MEAN, MOVES, PADDINGS, VARIANCE, trained

from gbackprop import layers as L
from gbackprop.calculus.frame import Frame
from gbackprop.calculus.separable import Separable
from gbackprop.layers.moves import indexing as moves
from gbackprop.layers.norms.scale import Factor
from gbackprop.layers.windows import adaptive
from gbackprop.layers.windows.conv_transpose import _Weight

# -------------------------------------------------------------------------------------------------------------- checks

sequence = on_layer(lambda: L.Conv1d(2, 2, 3, padding=1), (2, 4), plain.conv((1,), ((1, 1),), (1,)))
volume = on_layer(lambda: L.Conv3d(1, 2, 2), (1, 3, 3, 3), plain.conv((1, 1, 1), ((0, 0),) * 3, (1, 1, 1)))
reflected, replicated, circular = (
    on_layer(
        lambda mode=mode: L.Conv2d(1, 2, 2, padding=1, padding_mode=mode),
        (1, 3, 4),
        plain.conv2d(padding=((1, 1), (1, 1)), mode=mode),
    )
    for mode in ("reflect", "replicate", "circular")
)
max_pool1d = on_layer(lambda: L.MaxPool1d(2), (2, 5), plain.max_pool((2,), (2,), (0,), (1,)))
max_pool3d = on_layer(lambda: L.MaxPool3d(2), (1, 3, 2, 2), plain.max_pool((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)))
avg_pool1d = on_layer(lambda: L.AvgPool1d(2), (2, 5), plain.avg_pool((2,), (2,), (0,)))
avg_pool3d = on_layer(lambda: L.AvgPool3d(2, 1), (1, 3, 2, 2), plain.avg_pool((2, 2, 2), (1, 1, 1), (0, 0, 0)))
bins, bins2d, bins3d = (
    {
        kind: on_layer(
            lambda kind=kind, out=out: getattr(L, f"Adaptive{kind}Pool{len(out)}d")(out),
            (2, *shape),
            plain.adaptive(out, {"Avg": np.mean, "Max": np.max}[kind]),
        )
        for kind in ("Avg", "Max")
    }
    for out, shape in (((3,), (7,)), ((2, 3), (3, 4)), ((2, 1, 2), (3, 2, 2)))
)

square = {"Avg": on_layer(lambda: L.AdaptiveAvgPool2d((2, 3)), (1, 4, 4), plain.adaptive((2, 3), np.mean))}
ties = on_layer(lambda: L.AdaptiveMaxPool1d(5), (1, 3), plain.adaptive((5,), np.max))  # bins share their places
transposed = {
    1: on_layer(lambda: L.ConvTranspose1d(2, 2, 3, 2, 1), (2, 3), plain.transposed((2,), (1,), (0,), (1,))),
    2: on_layer(
        lambda: L.ConvTranspose2d(2, 2, 2, 2, 0, 1), (2, 2, 2), plain.transposed((2, 2), (0, 0), (1, 1), (1, 1))
    ),
    3: on_layer(
        lambda: L.ConvTranspose3d(1, 2, 2), (1, 2, 1, 2), plain.transposed((1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))
    ),
}
halves = on_layer(
    lambda: L.ConvTranspose1d(4, 4, 2, groups=2), (4, 2), plain.transposed((1,), (0,), (0,), (1,), groups=2)
)
normalized = plain.normalized(MEAN, VARIANCE)
normed = {
    dims: on_layer(
        lambda dims=dims: trained(getattr(L, f"BatchNorm{dims}d")(3)), (3, 2, 2, 1)[: dims + 1], normalized
    )
    for dims in (1, 2, 3)
}
scale = on_layer(lambda: L.Scale(3, init=0.5), (3, 2), plain.scaled)
made_of = {type(make()): on_layer(make, shape, reference) for make, shape, reference in PADDINGS + MOVES}

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
    Fault(L.Conv1d, "_to_parameter", "places last", instead(places_last), sequence, "weight.per_sample"),
    Fault(L.Conv3d, "jmp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), volume, "jmp"),
    Fault(Frame, "_sources", "the border reflected too", instead(border_too), reflected, "forward"),
    Fault(Frame, "around", "sides swapped", after(lambda x: np.flip(x, -1)), circular, "forward"),
    Fault(Frame, "inside", "the frame's share dropped", instead(frame_cut_off), replicated, "mjp"),
    # pooling
    Fault(L.MaxPool1d, "_places", "one place late", after(lambda places: (places + 1) % 2), max_pool1d, "jmp"),
    Fault(L.MaxPool3d, "mjp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), max_pool3d, "mjp"),
    Fault(L.AvgPool1d, "_counts", "one too many", after(lambda counts: counts + 1), avg_pool1d, "forward"),
    Fault(L.AvgPool3d, "mjp", "sum instead of mean", times(8), avg_pool3d, "mjp"),
    Fault(adaptive, "_bins", "ends rounded down", instead(rounded_down), bins["Avg"], "forward"),
    Fault(adaptive, "_bins", "ends rounded down, for maxima", instead(rounded_down), bins["Max"], "forward"),
    Fault(Separable, "mjp", "sum instead of mean", times(3), bins2d["Avg"], "mjp"),
    Fault(L.AdaptiveAvgPool1d, "jmp", "off by one", after(lambda y: np.roll(y, 1, -1)), bins["Avg"], "jmp"),
    Fault(L.AdaptiveAvgPool2d, "matrices", "axes swapped", after(lambda m: m[::-1]), square["Avg"], "forward"),
    Fault(L.AdaptiveAvgPool3d, "output_shape", "the input's",
          instead(lambda self, shape: shape), bins3d["Avg"], "output_shape"),
    Fault(L.AdaptiveMaxPool1d, "_turns", "one turn",
          instead(lambda self, spatial: [(slice(None),) * len(spatial)]), ties, "mjp"),
    Fault(L.AdaptiveMaxPool2d, "mjp", "wrong sign", times(-1), bins2d["Max"], "mjp"),
    Fault(L.AdaptiveMaxPool3d, "jmp", "factor 2", times(2), bins3d["Max"], "jmp"),
    # transposed convolution
    Fault(L.ConvTranspose1d, "_sides", "one place late",
          after(lambda sides: tuple((before + 1, after - 1) for before, after in sides)), transposed[1], "forward"),
    Fault(L.ConvTranspose2d, "_sides", "output padding in front",
          after(lambda sides: tuple(side[::-1] for side in sides)), transposed[2], "forward"),
    Fault(L.ConvTranspose1d, "mjp", "wrong sign", times(-1), transposed[1], "mjp"),
    Fault(L.ConvTranspose2d, "jmp", "bias added", instead(as_forward), transposed[2], "jmp"),
    Fault(L.ConvTranspose3d, "mjp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), transposed[3], "mjp"),
    Fault(_Weight, "per_sample", "factor 2", times(2), transposed[1], "weight.per_sample"),
    Fault(L.ConvTranspose1d, "seen", "kernel mirrored", after(backwards), transposed[1], "weight.input_square"),
    Fault(L.ConvTranspose2d, "seen", "mean of the places",
          after(lambda u: np.broadcast_to(u.mean(-1, keepdims=True), u.shape)), transposed[2], "weight.input_square"),
    Fault(_Weight, "input_square", "places before channels",
          after(lambda square: square.transpose(1, 0, 3, 2)), transposed[1], "weight.input_square"),
    Fault(_Weight, "input_square", "groups reversed", after(groups_reversed), halves, "weight.input_square"),
    Fault(_Weight, "kronecker", "groups reversed", after(groups_reversed), halves, "weight.kronecker"),
    Fault(_Weight, "average_kronecker", "doubled", times(2), transposed[3], "weight.average_kronecker"),
    # factors
    Fault(L.BatchNorm1d, "_statistics", "without ε", instead(without_eps), normed[1], "forward"),
    Fault(L.BatchNorm2d, "mjp", "not divided by the deviation",
          instead(lambda self, saved, mat: mat * self._channels("weight", mat.ndim - 3)), normed[2], "mjp"),
    Fault(L.BatchNorm3d, "jmp", "wrong sign", times(-1), normed[3], "jmp"),
    Fault(Factor, "per_sample", "without the input",
          instead(lambda self, mat: mat.sum(tuple(range(3, mat.ndim)))), normed[2], "weight.per_sample"),
    Fault(Factor, "kronecker", "its diagonal alone",
          after(lambda block: np.diag(np.diag(block))), scale, "weight.kronecker"),
    Fault(L.Scale, "_factors", "squared", after(lambda w: w * w), scale, "forward"),
    Fault(L.Scale, "mjp", "wrong sign", times(-1), scale, "mjp"),
    # paddings and moves
    Fault(L.ZeroPad1d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -1)), made_of[L.ZeroPad1d], "mjp"),
    Fault(L.ZeroPad3d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -1)), made_of[L.ZeroPad3d], "mjp"),
    Fault(L.ConstantPad1d, "jmp", "number added", after(lambda y: y + 0.5), made_of[L.ConstantPad1d], "jmp"),
    Fault(L.ConstantPad2d, "jmp", "number added", after(lambda y: y + 0.5), made_of[L.ConstantPad2d], "jmp"),
    Fault(L.ConstantPad3d, "jmp", "number added", after(lambda y: y + 0.5), made_of[L.ConstantPad3d], "jmp"),
    Fault(L.ReflectionPad1d, "mjp", "other side first", after(backwards), made_of[L.ReflectionPad1d], "mjp"),
    Fault(L.ReflectionPad2d, "mjp", "other side first", after(backwards), made_of[L.ReflectionPad2d], "mjp"),
    Fault(L.ReflectionPad3d, "mjp", "other side first", after(backwards), made_of[L.ReflectionPad3d], "mjp"),
    Fault(L.ReplicationPad1d, "mjp", "wrong sign", times(-1), made_of[L.ReplicationPad1d], "mjp"),
    Fault(L.ReplicationPad2d, "mjp", "wrong sign", times(-1), made_of[L.ReplicationPad2d], "mjp"),
    Fault(L.ReplicationPad3d, "mjp", "wrong sign", times(-1), made_of[L.ReplicationPad3d], "mjp"),
    Fault(L.CircularPad1d, "jmp", "factor 2", times(2), made_of[L.CircularPad1d], "jmp"),
    Fault(L.CircularPad2d, "jmp", "factor 2", times(2), made_of[L.CircularPad2d], "jmp"),
    Fault(L.CircularPad3d, "jmp", "factor 2", times(2), made_of[L.CircularPad3d], "jmp"),
    Fault(moves, "_shuffled", "rows and columns swapped", instead(columns_first), made_of[L.PixelShuffle], "forward"),
    Fault(L.PixelUnshuffle, "back", "not moved back",
          instead(lambda self, g, shape: g.reshape(len(g), *shape)), made_of[L.PixelUnshuffle], "mjp"),
    Fault(L.Unflatten, "mjp", "wrong sign", times(-1), made_of[L.Unflatten], "mjp"),
    Fault(L.Permute, "back", "moved once more",
          instead(lambda self, g, shape: g.transpose(self.dims).reshape(len(g), *shape)), made_of[L.Permute], "mjp"),
    Fault(L.Slice, "back", "at the start", after(lambda x: np.roll(x, -1, -1)), made_of[L.Slice], "mjp"),
    Fault(L.Select, "mjp", "to all indices", instead(to_all), made_of[L.Select], "mjp"),
    Fault(L.Upsample, "mjp", "mean of the copies", times(0.5), made_of[L.Upsample], "mjp"),
]  # fmt: skip
