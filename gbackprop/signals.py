"""What the backward sweep carries: a stack of columns with named spans, and KFRA's averaged curvature.

Each column is one vector per sample, ``[N, *features]``, multiplied by the transposed Jacobian of each layer on its
way down. The stack ``[V, N, *features]`` holds those of every signal, so that a layer multiplies once, whatever was
asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.layers.base import Leaf
from gbackprop.layers.selection import Selection


@dataclass(frozen=True)
class Signal:
    """A kind of column that the sweep can carry; equal signals are propagated once and shared."""

    name: str


@dataclass(frozen=True)
class MonteCarlo(Signal):
    """Gradients at pseudo-targets, √(R/M) ∇ℓ(fₙ, ŷₙₘ): drawn by the sweep, or `targets` ``[M, N, …]`` given."""

    mc_samples: int = 1
    targets: Any = field(default=None, compare=False)
    given: int | None = None  # the identity of `targets`: arrays do not compare


GRADIENT = Signal("gradient")
EXACT = Signal("exact")
RESIDUAL = Signal("residual")
AVERAGE = Signal("average")


def monte_carlo(mc_samples: int, targets: Any = None) -> MonteCarlo:
    """The Monte-Carlo signal of `mc_samples` draws, or of the given `targets`."""
    return MonteCarlo("mc", mc_samples, targets, None if targets is None else id(targets))


@dataclass(frozen=True)
class Columns:
    """A span of the stack.

    Attributes
    ----------
    values : ndarray, shape (V, N, *features)
    sign : ndarray, shape (V, N), or None
        ±1 (0 for a column that vanishes): columns v count as ``sign[v] * v vᵀ``. None means +1 throughout.
    """

    values: Array
    sign: Array | None = None

    @property
    def positive(self) -> Array:
        """The paper's P factors, shape (V, N, *features): the columns that count as +1, zero elsewhere."""
        return self.values if self.sign is None else self.values * self._where(self.sign > 0)

    @property
    def negative(self) -> Array:
        """The paper's N factors, shape (V, N, *features): the columns that count as −1, zero elsewhere."""
        if self.sign is None:
            return array_module(self.values).zeros_like(self.values)
        return self.values * self._where(self.sign < 0)

    def _where(self, mask: Array) -> Array:
        return mask.reshape(mask.shape + (1,) * (self.values.ndim - mask.ndim))


@dataclass(frozen=True)
class Stack:
    """Columns of several signals side by side.

    Attributes
    ----------
    values : ndarray, shape (V, N, *features)
    spans : tuple of (Signal, width, sign)
        In the order of the columns; `sign` as in `Columns`.
    """

    values: Array
    spans: tuple[tuple[Signal, int, Array | None], ...]

    @staticmethod
    def of(parts: list[tuple[Signal, Columns]]) -> Stack:
        """Put columns side by side; neighbours of one signal become one span."""
        xp = array_module(parts[0][1].values)
        spans: list[tuple[Signal, int, Array | None]] = []
        for signal, columns in parts:
            width, sign = columns.values.shape[0], columns.sign
            if spans and spans[-1][0] == signal and sign is not None:
                _, before, signs = spans.pop()
                width, sign = before + width, xp.concatenate([signs, sign])
            spans.append((signal, width, sign))
        values = [columns.values for _, columns in parts]
        return Stack(values[0] if len(values) == 1 else xp.concatenate(values), tuple(spans))

    def __iter__(self) -> Iterator[tuple[Signal, Columns]]:
        start = 0
        for signal, width, sign in self.spans:
            yield signal, Columns(self.values[start : start + width], sign)
            start += width

    def append(self, signal: Signal, columns: Columns) -> Stack:
        """The stack with more columns at its end."""
        return Stack.of([*self, (signal, columns)])

    def only(self, signals: Collection[Signal | None]) -> Stack:
        """The columns of some of the signals, in their order."""
        parts = [(signal, columns) for signal, columns in self if signal in signals]
        return self if len(parts) == len(self.spans) else Stack.of(parts)

    def moved(self, values: Array) -> Stack:
        """The same spans after a layer's transposed Jacobian."""
        return replace(self, values=values)


@dataclass(frozen=True)
class Held:
    """Layers that a stack has passed without being multiplied: it still lies at the output of the first of them.

    Attributes
    ----------
    layers : tuple of (Leaf, saved)
        From the output to the input.
    selection : Selection
        What the stack's numbers are of the output that is reached now.
    """

    layers: tuple[tuple[Leaf, Any], ...]
    selection: Selection


@dataclass(frozen=True)
class Signals:
    """All that arrives at a layer's output: the stack, and Ḡ ``[D, D]`` if KFRA asked for it.

    `held` is None where the stack lies at that output.
    """

    stack: Stack
    average: Array | None = None
    held: Held | None = None

    @property
    def gradient(self) -> Array:
        """The gradient R ∇ℓₙ, shape (N, *features): always the first column."""
        return self.stack.values[0]


def residual_columns(residual: Array, features: tuple[int, ...], window: slice) -> Columns:
    """Factor the residual r of a curved layer: Σᵥ signᵥ v vᵀ = diag(r), or = r where it is dense.

    Parameters
    ----------
    residual : ndarray, shape (N, *features), or (N, D, D) with D = ∏ features
        Dense ones are symmetric and split by an eigendecomposition per sample.
    features : tuple of int
        Shape of the layer's input.
    window : slice
        Which of the D columns to form.

    Returns
    -------
    Columns
        Of shape (V, N, *features), V the width of the window.
    """
    if residual.shape[1:] == features:
        return _diagonal_columns(residual, window)
    return _dense_columns(residual, features, window)


def _diagonal_columns(residual: Array, window: slice) -> Columns:
    # The columns are numbered in the order in which r lies in memory: channels last, if there are channels.
    xp = array_module(residual)
    last = channels_last(residual)
    flat = last.reshape(last.shape[0], prod(last.shape[1:]))
    some = flat[:, window]
    width, n = some.shape[1], some.shape[0]
    values = xp.zeros((width, n, flat.shape[1]), dtype=residual.dtype)
    each = xp.arange(width)
    values[each, :, each + window.start] = xp.sqrt(xp.abs(some)).T
    values = channels_first(values.reshape(width, *last.shape), 2)
    return Columns(values, xp.sign(some).T)


def _dense_columns(residual: Array, features: tuple[int, ...], window: slice) -> Columns:
    xp = array_module(residual)
    eigenvalues, vectors = xp.linalg.eigh(residual)  # [N, D], [N, D, D]
    factors = vectors * xp.sqrt(xp.abs(eigenvalues))[:, None, :]
    values = xp.moveaxis(factors, 2, 0)[window]
    return Columns(values.reshape(*values.shape[:2], *features), xp.sign(eigenvalues).T[window])
