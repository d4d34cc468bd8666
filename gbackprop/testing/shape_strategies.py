"""Hypothesis strategies for layers over one, two or three axes beside the channels."""

from __future__ import annotations

from collections.abc import Callable

from gbackprop import layers
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer, Shape

with needed("hypothesis", "gbackprop.testing.shape_strategies", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy


def _over(name: str, shape: Shape) -> Callable[..., Layer]:
    """Return the layer of that name over as many axes as there are beside the channels."""
    return getattr(layers, f"{name}{len(shape) - 1}d")


@st.composite
def convolutions(draw: DrawFn, shape: Shape) -> Layer:
    """Convolutions: any stride, dilation, groups, and padding in numbers or words."""
    channels, *spatial = shape
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    out = groups * draw(st.integers(1, 2))
    named = draw(st.sampled_from([None, "valid", "same"]))
    pads = tuple(0 if named else draw(st.integers(0, 2)) for _ in spatial)
    room = [size + 2 * p if named != "same" else 9 for size, p in zip(spatial, pads)]
    kernel = tuple(draw(st.integers(1, min(3, r))) for r in room)
    dilation = tuple(draw(st.integers(1, min(2, (r - 1) // (k - 1)) if k > 1 else 2)) for r, k in zip(room, kernel))
    stride = tuple(1 if named == "same" else draw(st.integers(1, 3)) for _ in spatial)
    bias = draw(st.booleans())
    return _over("Conv", shape)(channels, out, kernel, stride, named or pads, dilation, groups, bias)


def _pooled(draw: DrawFn, spatial: Shape, widest: int) -> tuple[Shape, Shape, Shape, Shape]:
    """Kernel, stride, padding and dilation of windows that fit."""
    kernel, padding, dilation = [], [], []
    for size in spatial:
        k, d = draw(st.integers(1, 3)), draw(st.integers(1, widest))
        reach = d * (k - 1) + 1
        if k // 2 * 2 + size < reach:
            d, reach = 1, k
        kernel.append(k)
        dilation.append(d)
        padding.append(draw(st.integers(max(0, -((size - reach) // 2)), k // 2)))
    stride = tuple(draw(st.integers(1, 3)) for _ in spatial)
    return tuple(kernel), stride, tuple(padding), tuple(dilation)


@st.composite
def max_pools(draw: DrawFn, shape: Shape) -> Layer:
    """Max pooling, with overlap, dilation and windows that reach beyond."""
    kernel, stride, padding, dilation = _pooled(draw, shape[1:], 2)
    return _over("MaxPool", shape)(kernel, stride, padding, dilation, ceil_mode=draw(st.booleans()))


@st.composite
def average_pools(draw: DrawFn, shape: Shape) -> Layer:
    """Average pooling in each of its ways to count."""
    kernel, stride, padding, _ = _pooled(draw, shape[1:], 1)
    ceil_mode, count_include_pad = draw(st.booleans()), draw(st.booleans())
    divisor = () if len(shape) == 2 else (draw(st.none() | st.integers(1, 5)),)
    return _over("AvgPool", shape)(kernel, stride, padding, ceil_mode, count_include_pad, *divisor)


@st.composite
def adaptive_pools(draw: DrawFn, shape: Shape) -> Layer:
    """Pooling to a size, some of them that of the input."""
    kind = draw(st.sampled_from(["AdaptiveAvgPool", "AdaptiveMaxPool"]))
    return _over(kind, shape)(tuple(draw(st.none() | st.integers(1, 3)) for _ in shape[1:]))


@st.composite
def framed_convolutions(draw: DrawFn, shape: Shape) -> Layer:
    """Convolutions with paddings that repeat the image."""
    mode = draw(st.sampled_from(["reflect", "replicate", "circular"]))
    around = tuple(draw(st.integers(0, min(size - (mode == "reflect"), 2))) for size in shape[1:])
    return _over("Conv", shape)(shape[0], 1, 1, padding=around, padding_mode=mode)


@st.composite
def transposed_convolutions(draw: DrawFn, shape: Shape) -> Layer:
    """Transposed convolutions."""
    channels, dims = shape[0], len(shape) - 1
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    kernel, stride, dilation, padding, more = [], [], [], [], []
    for _ in range(dims):
        kernel.append(draw(st.integers(1, 2)))
        stride.append(draw(st.integers(1, 2)))
        dilation.append(draw(st.integers(1, 2)))
        more.append(draw(st.integers(0, max(stride[-1], dilation[-1]) - 1)))
        padding.append(draw(st.integers(0, (dilation[-1] * (kernel[-1] - 1) + more[-1]) // 2)))
    given = map(tuple, (kernel, stride, padding, more))
    return _over("ConvTranspose", shape)(channels, groups, *given, groups, draw(st.booleans()), tuple(dilation))


@st.composite
def pads(draw: DrawFn, shape: Shape) -> Layer:
    """Numbers around an image, or a part of it cropped."""
    kind = draw(st.sampled_from(["ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"]))
    sides: list[int] = []
    for size in reversed(shape[1:]):  # left and right come first
        most, crops = min(size - (kind == "ReflectionPad"), 2), kind == "ZeroPad"
        before = draw(st.integers(-min(1, size - 1) * crops, most))
        after = draw(st.integers(-min(1, size - 1 + min(before, 0)) * crops, most))
        sides += [before, after]
    return _over(kind, shape)(tuple(sides), *([0.5] if kind == "ConstantPad" else []))


def instance_norms(shape: Shape) -> SearchStrategy[Layer]:
    """Normalization of each channel by itself."""
    eps = st.sampled_from([1e-5, 0.1])
    return st.builds(_over("InstanceNorm", shape), st.just(shape[0]), eps, affine=st.booleans())


def batch_norms(shape: Shape) -> SearchStrategy[Layer]:
    """Batch normalization in evaluation mode."""
    return st.builds(_over("BatchNorm", shape), st.just(shape[0]), affine=st.booleans())


def upsamplings(shape: Shape) -> SearchStrategy[Layer]:
    """Nearest places, some axes made shorter."""
    return st.builds(layers.Upsample, size=st.tuples(*[st.integers(1, size + 1) for size in shape[1:]]))


@st.composite
def shuffles(draw: DrawFn, shape: Shape) -> Layer:
    """Channels as pixels of images, or the reverse."""
    channels, height, width = shape
    down, up = channels % 4 == 0, height % 2 == width % 2 == 0
    if draw(st.booleans()):
        return layers.PixelShuffle(draw(st.sampled_from([1, 2] if down else [1])))
    return layers.PixelUnshuffle(draw(st.sampled_from([1, 2] if up else [1])))


OVER_AXES: tuple[Callable[[Shape], SearchStrategy[Layer]], ...] = (
    convolutions, framed_convolutions, transposed_convolutions, max_pools, average_pools, adaptive_pools, pads,
    instance_norms, batch_norms, upsamplings,
)  # fmt: skip
"""Strategies for layers that take channels and one to three axes."""
