"""Hypothesis strategies for the layers beyond those of the paper's networks, by the feature shapes that they take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations

from gbackprop import layers
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer, Shape

with needed("hypothesis", "gbackprop.testing.shape_strategies", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy


@st.composite
def of_any(draw: DrawFn, shape: Shape) -> Layer:
    """Layers that take any features."""
    kinds = ["Scale", "Slice", "Unflatten", "Permute"] + ["Select"] * (len(shape) > 1)
    kind = draw(st.sampled_from(kinds))
    axis = draw(st.integers(1, len(shape)))
    size = shape[axis - 1]
    if kind == "Scale":
        return layers.Scale(draw(st.sampled_from([1, shape[0]])), draw(st.sampled_from([1.0, -0.5])))
    if kind == "Permute":
        return layers.Permute((0, *draw(st.sampled_from([*permutations(range(1, len(shape) + 1))]))))
    if kind == "Unflatten":
        part = draw(st.sampled_from([part for part in range(1, size + 1) if size % part == 0]))
        return layers.Unflatten(axis, draw(st.sampled_from([(size // part, part), (-1, part)])))
    index = draw(st.integers(0, size - 1))
    if kind == "Select":
        return layers.Select(axis - len(shape) - 1, index)
    return layers.Slice(axis, index, draw(st.sampled_from([None, size])), draw(st.integers(1, 2)))


def over_axes(shape: Shape) -> tuple[Callable[[Shape], SearchStrategy[Layer]], ...]:
    """Return a strategy for each kind of layer over one, two or three axes beside the channels."""
    kinds = ["BatchNorm", "ConvTranspose", "Upsample", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"]
    kinds += ["PixelShuffle", "PixelUnshuffle"] * (len(shape) == 3)
    return tuple(partial(_over_axes, kind) for kind in kinds)


@st.composite
def _over_axes(draw: DrawFn, kind: str, shape: Shape) -> Layer:
    channels, *spatial = shape
    dims = len(spatial)
    if kind.startswith("Pixel"):
        fits = [1, 2] if channels % 4 == 0 and kind == "PixelShuffle" else [1]
        fits += [2] if kind == "PixelUnshuffle" and spatial[0] % 2 == spatial[1] % 2 == 0 else []
        return getattr(layers, kind)(draw(st.sampled_from(fits)))
    if kind == "Upsample":
        return layers.Upsample(size=tuple(draw(st.integers(1, size + 1)) for size in spatial))
    if kind == "BatchNorm":
        return getattr(layers, f"BatchNorm{dims}d")(channels, affine=draw(st.booleans()))
    if kind == "ConvTranspose":
        return _transposed(draw, channels, dims)
    most = [min(size - (kind == "ReflectionPad"), 2) for size in reversed(spatial) for _ in "ab"]
    sides = tuple(draw(st.integers(0, largest)) for largest in most)
    return getattr(layers, f"{kind}{dims}d")(sides, *([0.5] if kind == "ConstantPad" else []))


def _transposed(draw: DrawFn, channels: int, dims: int) -> Layer:
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    kernel, stride, dilation, padding, more = [], [], [], [], []
    for _ in range(dims):
        kernel.append(draw(st.integers(1, 2)))
        stride.append(draw(st.integers(1, 2)))
        dilation.append(draw(st.integers(1, 2)))
        more.append(draw(st.integers(0, max(stride[-1], dilation[-1]) - 1)))
        padding.append(draw(st.integers(0, (dilation[-1] * (kernel[-1] - 1) + more[-1]) // 2)))
    kind, given = getattr(layers, f"ConvTranspose{dims}d"), map(tuple, (kernel, stride, padding, more))
    return kind(channels, groups, *given, groups, draw(st.booleans()), tuple(dilation))
