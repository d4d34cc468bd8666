"""Windows and numbers as the tests of kernels draw them, on the host and on a device."""

import numpy as np
from hypothesis import strategies as st

from gbackprop.calculus.window import Window

SEEDS = st.integers(0, 2**32 - 1)


def numbers(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape)


@st.composite
def windows(draw, ceil=None):
    """A window on one or two axes, the axes' sizes, and padding as poolings allow it (at most half of the window)."""
    axes = draw(st.integers(1, 2))
    per_axis = st.tuples(*[st.integers(1, 3)] * axes)
    kernel, stride, dilation = draw(per_axis), draw(per_axis), draw(per_axis)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = tuple((draw(st.integers(0, r // 2)), draw(st.integers(0, r // 2))) for r in reach)
    ceil_mode = draw(st.booleans()) if ceil is None else ceil
    spatial = tuple(draw(st.integers(max(1, r - sum(p)), r + 4)) for r, p in zip(reach, padding, strict=True))
    return Window(kernel, stride, dilation, padding, ceil_mode), spatial


@st.composite
def paddings(draw):
    """Sizes of axes and padding, also negative, that leaves something of what was there."""
    spatial = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    padding = []
    for size in spatial:
        before = draw(st.integers(1 - size, 3))
        padding.append((before, draw(st.integers(1 - size - min(before, 0), 3))))
    return tuple(spatial), tuple(padding)
