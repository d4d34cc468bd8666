"""Planted faults in the layers beyond the paper's networks."""

import definitions as plain
import numpy as np
from faults import Fault, after, instead, on_layer

from gbackprop import layers as L
from gbackprop.layers.frame import Frame

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

# ----------------------------------------------------------------------------------------------- longer wrong functions


def places_last(self, weight):
    return weight.reshape(*weight.shape[:-1], -1, *self.window.kernel)


def border_too(self, size, before, after):
    return slice(0, before), slice(size - after, size)


def frame_cut_off(self, g):
    return g[..., *[slice(before, size - after) for (before, after), size in zip(self.padding, g.shape[-2:])]]


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(L.Conv1d, "_to_parameter", "places last", instead(places_last), sequence, "weight.per_sample"),
    Fault(L.Conv3d, "jmp", "depth reversed", after(lambda y: y[:, :, :, ::-1]), volume, "jmp"),
    Fault(Frame, "_sources", "the border reflected too", instead(border_too), reflected, "forward"),
    Fault(Frame, "around", "sides swapped", after(lambda x: np.flip(x, -1)), circular, "forward"),
    Fault(Frame, "inside", "the frame's share dropped", instead(frame_cut_off), replicated, "mjp"),
]
