"""The signals of the backward sweep: a stack of columns with named spans, and KFRA's averaged curvature.

Each column is one vector per sample, ``[N, *features]``, and each layer multiplies it by its transposed Jacobian. The
stack ``[V, N, *features]`` contains the columns of all signals, so that a layer multiplies only once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gbackprop.array import Array, array_module


@dataclass(frozen=True)
class Signal:
    """A kind of columns, or KFRA's averaged curvature, that the sweep carries; equal signals are propagated once."""

    name: str


@dataclass(frozen=True)
class MonteCarlo(Signal):
    """Gradients at pseudo-targets, √(R/(c M)) ∇ℓ(fₙ, ŷₙₘ): drawn by the sweep, or `targets` ``[M, N, …]`` given.

    c is the weight of the loss's sum over outputs or positions, `Loss.summed_weight`: 1, but 1/C for C of them where
    "mean" is also a mean over them. Weights of true targets multiply a column by a root, `Loss.curvature_weights`.
    """

    mc_samples: int
    targets: Any = field(default=None, compare=False)
    given: int | None = None  # the identity of `targets`, compared in place of the arrays


ALL = slice(None)

GRADIENT = Signal("gradient")
EXACT = Signal("exact")
RESIDUAL = Signal("residual")
AVERAGE = Signal("average")
SAMPLES = Signal("samples")
"""The gradient's column cut into N, which start at one sample each: that of ∂ℓₙ/∂θ where samples meet."""


def monte_carlo(mc_samples: int, targets: Any = None) -> MonteCarlo:
    """Return the Monte-Carlo signal of `mc_samples` draws, or of the given `targets`."""
    return MonteCarlo("mc", mc_samples, targets, None if targets is None else id(targets))


@dataclass(frozen=True)
class Columns:
    """The columns of one signal: a span of the stack."""

    values: Array  # (V, N, *features)
    sign: Array | None = None
    """(V, N): a column v contributes ``sign * v vᵀ``, with ±1, or 0 for a column of zeros. None means +1 everywhere."""

    origins: tuple[tuple[Any, int], ...] = ()
    """In graphs, where the columns start, and how many there: their index. Empty for those that start at the loss."""

    @property
    def positive(self) -> Array:
        """The paper's P factors, shape (V, N, *features): the columns of sign +1, zero elsewhere."""
        return self.values if self.sign is None else self.values * self._where(self.sign > 0)

    @property
    def negative(self) -> Array:
        """The paper's N factors, shape (V, N, *features): the columns of sign −1, zero elsewhere."""
        if self.sign is None:
            return array_module(self.values).zeros_like(self.values)
        return self.values * self._where(self.sign < 0)

    def _where(self, mask: Array) -> Array:
        return mask.reshape(mask.shape + (1,) * (self.values.ndim - mask.ndim))


@dataclass(frozen=True)
class Stack:
    """Columns of several signals side by side, and the spans in their order, with sign and origins as in `Columns`."""

    values: Array  # (V, N, *features)
    spans: tuple[tuple[Signal, int, Array | None, tuple[Any, ...]], ...]

    @staticmethod
    def of(parts: list[tuple[Signal, Columns]]) -> Stack:
        """Concatenate columns; adjacent columns of one signal become one span."""
        xp = array_module(parts[0][1].values)
        spans: list[tuple[Signal, int, Array | None, tuple[Any, ...]]] = []
        for signal, columns in parts:
            width, sign, origins = columns.values.shape[0], columns.sign, columns.origins
            if spans and spans[-1][0] == signal and sign is not None:
                _, before, signs, first = spans.pop()
                width, sign, origins = before + width, xp.concatenate([signs, sign]), first + origins
            spans.append((signal, width, sign, origins))
        values = [columns.values for _, columns in parts]
        return Stack(values[0] if len(values) == 1 else xp.concatenate(values), tuple(spans))

    def __iter__(self) -> Iterator[tuple[Signal, Columns]]:
        start = 0
        for signal, width, sign, origins in self.spans:
            yield signal, Columns(self.values[start : start + width], sign, origins)
            start += width

    def append(self, signal: Signal, columns: Columns) -> Stack:
        """Return the stack with more columns at its end."""
        return Stack.of([*self, (signal, columns)])

    def only(self, signals: Collection[Signal | None]) -> Stack:
        """Return the columns of some of the signals, in their order."""
        parts = [(signal, columns) for signal, columns in self if signal in signals]
        if len(parts) == len(self.spans):
            return self
        return Stack.of(parts) if parts else Stack(self.values[:0], ())

    def with_values(self, values: Array) -> Stack:
        """Return a stack of the same spans with new values: the product with a layer's transposed Jacobian."""
        return Stack(values, self.spans)


@dataclass(frozen=True)
class Signals:
    """All signals at a layer's output: the stack and, if KFRA is asked for, Ḡ ``[D, D]``."""

    stack: Stack
    average: Array | None = None

    @property
    def gradient(self) -> Array:
        """The gradient R ∇ℓₙ, shape (N, *features): always the first column."""
        return self.stack.values[0]

    def append(self, signal: Signal, columns: Columns) -> Signals:
        """Return the signals with more columns at the end of the stack."""
        return replace(self, stack=self.stack.append(signal, columns))
