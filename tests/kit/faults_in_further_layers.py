"""Planted faults in the layers beyond the paper's networks."""

import definitions as plain
import numpy as np
from faults import Fault, after, instead, on_layer, times

from gbackprop import layers as L
from gbackprop.layers import adaptive
from gbackprop.layers.frame import Frame
from gbackprop.layers.separable import Separable

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


def the_input(self, shape):
    return shape


def one_turn(self, spatial):
    return [(slice(None),) * len(spatial)]


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
    Fault(L.AdaptiveAvgPool3d, "output_shape", "the input's", instead(the_input), bins3d["Avg"], "output_shape"),
    Fault(L.AdaptiveMaxPool1d, "_turns", "one turn", instead(one_turn), ties, "mjp"),
    Fault(L.AdaptiveMaxPool2d, "mjp", "wrong sign", times(-1), bins2d["Max"], "mjp"),
    Fault(L.AdaptiveMaxPool3d, "jmp", "factor 2", times(2), bins3d["Max"], "jmp"),
]
