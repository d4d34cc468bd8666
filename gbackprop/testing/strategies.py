"""Hypothesis strategies: layers with valid hyperparameters, whole networks, losses; small, and shrinking to smaller.

Arrays are drawn from a seed, so that an example is described by a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from gbackprop import layers, losses
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.network import Sequential
from gbackprop.testing import shape_strategies
from gbackprop.testing.cases.loss_rows import IGNORED, outputs, targets  # noqa: F401  (for who draws cases)
from gbackprop.testing.loss_strategies import SEEDS, LossCase, losses_for, probability_losses, rate_losses

with needed("hypothesis", "gbackprop.testing.strategies", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

LARGEST = 24
"""Numbers that a layer within a drawn network may put out, so that dense oracles stay small."""


@dataclass(frozen=True)
class LayerCase:
    """A layer and features that it takes."""

    layer: Layer
    shape: Shape
    batch: int
    seed: int

    @property
    def x(self) -> np.ndarray:
        """A batch, shape (N, *in)."""
        return np.random.default_rng(self.seed).standard_normal((self.batch, *self.shape))


@dataclass(frozen=True)
class NetworkCase:
    """A network with a loss, a batch and targets."""

    network: Sequential
    loss: losses.Loss
    shape: Shape
    batch: int
    seed: int

    @property
    def x(self) -> np.ndarray:
        """A batch, shape (N, *in)."""
        return np.random.default_rng(self.seed).standard_normal((self.batch, *self.shape))

    @property
    def y(self) -> np.ndarray:
        """Targets, shape (N, ...)."""
        return targets(self.loss, (self.batch, *self.network.output_shape(self.shape)), self.seed)


# -------------------------------------------------------------------------------------------------------------- shapes


def vectors(largest: int = 4) -> SearchStrategy[Shape]:
    """Feature shapes (I,)."""
    return st.tuples(st.integers(1, largest))


def sequences(largest: int = 3) -> SearchStrategy[Shape]:
    """Feature shapes (T, I) and (S, T, I)."""
    return st.lists(st.integers(1, largest), min_size=2, max_size=3).map(tuple)


def images(largest: int = 5) -> SearchStrategy[Shape]:
    """Feature shapes (C, H, W)."""
    side = st.integers(1, largest)
    return st.tuples(st.integers(1, 4), side, side)


def volumes(largest: int = 3) -> SearchStrategy[Shape]:
    """Feature shapes (C, D, H, W)."""
    side = st.integers(1, largest)
    return st.tuples(st.integers(1, 2), side, side, side)


def shapes() -> SearchStrategy[Shape]:
    """Feature shapes of any kind."""
    return vectors() | sequences() | images() | volumes()


# -------------------------------------------------------------------------------------- layers for given feature shapes


def _over(name: str, shape: Shape) -> Callable[..., Layer]:
    """Return the layer of that name over as many axes as there are beside the channels."""
    return getattr(layers, f"{name}{len(shape) - 1}d")


@st.composite
def linears(draw: DrawFn, shape: Shape) -> Layer:
    """Linear layers."""
    return layers.Linear(shape[-1], draw(st.integers(1, 3)), bias=draw(st.booleans()))


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
def zero_pads(draw: DrawFn, shape: Shape) -> Layer:
    """Zeros around an image, or a part of it cropped."""
    sides = []
    for size in reversed(shape[1:]):  # left and right come first
        before = draw(st.integers(-min(1, size - 1), 2))
        after = draw(st.integers(-min(1, size - 1 + min(before, 0)), 2))
        sides += [before, after]
    return _over("ZeroPad", shape)(tuple(sides))


@st.composite
def flattens(draw: DrawFn, shape: Shape) -> Layer:
    """Some axes merged."""
    start = draw(st.integers(1, len(shape)))
    return layers.Flatten(start, draw(st.sampled_from([-1, *range(start, len(shape) + 1)])))


def dropouts(shape: Shape) -> SearchStrategy[Layer]:
    """Dropout, certain ones included."""
    return st.sampled_from([0.0, 0.25, 0.5, 1.0]).map(layers.Dropout)


def activations(shape: Shape) -> SearchStrategy[Layer]:
    """Elementwise layers."""
    exported = [getattr(layers, name) for name in layers.__all__]
    kinds = [kind for kind in exported if issubclass(kind, layers.Elementwise) and kind is not layers.Elementwise]
    return st.sampled_from(kinds[::-1]).map(lambda kind: kind(0.5, -1.0) if kind is layers.Threshold else kind())


def slopes(shape: Shape) -> SearchStrategy[Layer]:
    """PReLU with one slope, or one for each channel."""
    return st.sampled_from([1, shape[0]]).map(layers.PReLU)


@st.composite
def softmaxes(draw: DrawFn, shape: Shape) -> Layer:
    """Softmax and its logarithm along any axis, counted from either end."""
    dim = draw(st.integers(1, len(shape)))
    kind = draw(st.sampled_from([layers.Softmax, layers.LogSoftmax]))
    return kind(draw(st.sampled_from([dim, dim - len(shape) - 1])))


@st.composite
def norms(draw: DrawFn, shape: Shape) -> Layer:
    """Normalization over the last axes, or over groups of channels."""
    eps, affine = draw(st.sampled_from([1e-5, 0.1])), draw(st.booleans())
    last = shape[draw(st.integers(0, len(shape) - 1)) :]
    groups = draw(st.sampled_from([k for k in range(1, shape[0] + 1) if shape[0] % k == 0]))
    kinds: list[Layer] = [layers.LayerNorm(last, eps, affine), layers.RMSNorm(last, eps, affine)]
    kinds.append(layers.GroupNorm(groups, shape[0], eps, affine))
    return draw(st.sampled_from(kinds))


def instance_norms(shape: Shape) -> SearchStrategy[Layer]:
    """Normalization of each channel by itself."""
    eps = st.sampled_from([1e-5, 0.1])
    return st.builds(_over("InstanceNorm", shape), st.just(shape[0]), eps, affine=st.booleans())


def identities(shape: Shape) -> SearchStrategy[Layer]:
    """Identity."""
    return st.builds(layers.Identity)


OF_ANY: tuple[Callable[[Shape], SearchStrategy[Layer]], ...] = (
    linears, activations, flattens, dropouts, identities, slopes, softmaxes, norms,
)  # fmt: skip
OVER_AXES: tuple[Callable[[Shape], SearchStrategy[Layer]], ...] = (
    convolutions, framed_convolutions, max_pools, average_pools, adaptive_pools, zero_pads, instance_norms,
)  # fmt: skip
"""Strategies for layers, by the feature shapes that they take: any; channels and one to three axes."""


@st.composite
def layers_for(draw: DrawFn, shape: Shape) -> Layer:
    """Shipped layers that take a feature shape."""
    kinds = [*OF_ANY, activations, shape_strategies.of_any]  # there are many activations
    kinds += [*OVER_AXES, *shape_strategies.over_axes(shape)] if 2 <= len(shape) <= 4 else []
    return draw(draw(st.sampled_from(kinds))(shape).filter(lambda layer: _takes(layer, shape)))


def _takes(layer: Layer, shape: Shape) -> bool:
    """False where the windows drawn all stand in the padding, which max pooling refuses."""
    try:
        layer.output_shape(shape)
    except ValueError:
        return False
    return True


def _is_small(shape: Shape, layer: Layer) -> bool:
    return prod(layer.output_shape(shape)) <= LARGEST


@st.composite
def layer_cases(draw: DrawFn) -> LayerCase:
    """Shipped layers with features that they take; parameters drawn from the seed."""
    shape, seed = draw(shapes()), draw(SEEDS)
    layer = draw(layers_for(shape))
    layer.dtype = "float64"
    layer.initialize(np.random.default_rng(seed))
    return LayerCase(layer, shape, draw(st.integers(1, 3)), seed)


# --------------------------------------------------------------------------------------------------- losses, networks


@st.composite
def loss_cases(draw: DrawFn) -> LossCase:
    """Losses with outputs and targets."""
    shape = draw(vectors(5) | sequences())
    loss = draw(losses_for(shape) | rate_losses() | probability_losses(shape))
    soft = isinstance(loss, losses.CrossEntropyLoss) and loss.ignore_index != 0 and draw(st.booleans())
    return LossCase(loss, shape, draw(st.integers(1, 4)), draw(SEEDS), soft)


@st.composite
def problems(draw: DrawFn, depth: int = 4) -> NetworkCase:
    """Networks of up to `depth` layers and a linear one, some nested, with loss and batch."""
    shape = start = draw(shapes().filter(lambda shape: prod(shape) <= LARGEST))
    chain: list[Layer] = []
    for _ in range(draw(st.integers(0, depth))):
        layer = draw(layers_for(shape).filter(partial(_is_small, shape)))
        shape = layer.output_shape(shape)
        chain.append(layer)
    if len(shape) > 1 and draw(st.booleans()):
        chain.append(layers.Flatten())
        shape = (prod(shape),)
    chain.append(layers.Linear(shape[-1], draw(st.integers(1, 3))))
    if len(chain) > 2 and draw(st.booleans()):
        chain = [chain[0], Sequential(*chain[1:-1]), chain[-1]]
    seed = draw(SEEDS)
    network = Sequential(*chain, rng=seed, dtype="float64")
    loss = draw(losses_for(network.output_shape(start)).filter(partial(_has_gradient, network.output_shape(start))))
    return NetworkCase(network, loss, start, draw(st.integers(1, 4)), seed)


def _has_gradient(shape: Shape, loss: losses.Loss) -> bool:
    """False where softmax takes its classes along a shared axis: the gradient of a shared bias is rounding."""
    return len(shape) == 1 or not isinstance(loss, losses.CrossEntropyLoss)
