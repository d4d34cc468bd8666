"""Hypothesis strategies: layers with valid hyperparameters, whole networks, losses; small, and shrinking to smaller.

Arrays are drawn from a seed, so that an example is described by a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import prod

import numpy as np

from gbackprop import layers, losses
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.network import Sequential
from gbackprop.testing.cases.loss_rows import IGNORED, outputs, targets  # noqa: F401  (for who draws cases)
from gbackprop.testing.loss_strategies import SEEDS, LossCase, losses_for, probability_losses, rate_losses
from gbackprop.testing.shape_strategies import (  # noqa: F401  (for who draws layers of one kind)
    OVER_AXES,
    adaptive_pools,
    average_pools,
    batch_norms,
    convolutions,
    framed_convolutions,
    instance_norms,
    max_pools,
    pads,
    shuffles,
    transposed_convolutions,
    upsamplings,
)

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


@st.composite
def linears(draw: DrawFn, shape: Shape) -> Layer:
    """Linear layers."""
    return layers.Linear(shape[-1], draw(st.integers(1, 3)), bias=draw(st.booleans()))


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


def identities(shape: Shape) -> SearchStrategy[Layer]:
    """Identity."""
    return st.builds(layers.Identity)


@st.composite
def moves(draw: DrawFn, shape: Shape) -> Layer:
    """Numbers in another order, some of them, or times a factor."""
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


OF_ANY: tuple[Callable[[Shape], SearchStrategy[Layer]], ...] = (
    linears, activations, flattens, dropouts, identities, slopes, softmaxes, norms, moves,
)  # fmt: skip
"""Strategies for layers that take any features."""


@st.composite
def layers_for(draw: DrawFn, shape: Shape) -> Layer:
    """Shipped layers that take a feature shape."""
    kinds = [*OF_ANY, activations]  # there are many activations
    kinds += OVER_AXES if 2 <= len(shape) <= 4 else ()
    kinds += [shuffles] if len(shape) == 3 else []
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
