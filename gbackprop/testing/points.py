"""Points at which a layer is smooth, and its Jacobian there by differences."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from gbackprop.losses.base import Loss
from gbackprop.testing.claims import FoundError
from gbackprop.testing.differences import EPS, REAL_STEP, Curve, Derivative, derivative
from gbackprop.testing.probe import Probe

COORDINATES = 160
"""The number of coordinates of an input, output or parameter that are checked; of larger ones, some at random."""

LEAST_COORDINATES = 8
NUMBERS = 2**22
"""The most numbers in a stack of columns or moved points: of large layers, fewer coordinates are checked."""

CANCELLED = 0.02
"""Errors of derivatives are never relative to less than this share of |y|/|x|: what is left of terms that cancel, as in
a norm over a single entry, is rounded as the terms are.
"""

DRAWS = 30
"""The number of times that a point is moved away from kinks before it is given up."""

PATIENCE = 5
"""The number of these after which the step is a quarter: a function that bends over it everywhere may have no kink."""


@dataclass(frozen=True)
class Point:
    """A batch at which a layer is smooth, and its Jacobian there."""

    x: np.ndarray  # [N, *in]
    inputs: np.ndarray  # the K coordinates of the input, counted flat, that were moved
    outputs: np.ndarray  # the L coordinates of the output that are looked at
    jacobian: Derivative  # of all outputs in the coordinates `inputs`, [K, N, *out]

    @property
    def size(self) -> float:
        """Unit of length at `x`."""
        return size_of(self.x)

    @property
    def complete(self) -> bool:
        """True if every coordinate of input and output is checked."""
        return len(self.inputs) == prod(self.x.shape[1:]) and len(self.outputs) == prod(self.output_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Feature shape of the output."""
        return self.jacobian.values.shape[2:]

    def matrix(self) -> np.ndarray:
        """J at the coordinates looked at, shape (N, L, K)."""
        values = self.jacobian.values
        return values.reshape(*values.shape[:2], -1)[:, :, self.outputs].transpose(1, 2, 0)

    def readable(self, matrix: np.ndarray) -> np.ndarray:
        """``[N, L, K]`` as ``[N, *out, *in]`` where nothing was left out, so that an index says which entry."""
        shape = (len(self.x), *self.output_shape, *self.x.shape[1:])
        return matrix.reshape(shape) if self.complete else matrix


def size_of(x: np.ndarray) -> float:
    """Root mean square, 1 for zeros: the unit for steps and moves."""
    return float(np.sqrt(np.mean(x**2))) or 1.0


def largest(x: np.ndarray) -> float:
    """Return the largest entry without its sign, 0 of none."""
    return float(np.max(np.abs(x), initial=0))


def sizes_of_terms(probe: Probe) -> dict[str, float]:
    """Return the size of entries that still count in what each method gives that multiplies with derivatives in x."""
    spreads = [min(size_of(x), float(np.ptp(x) if x.size else 0) or np.inf) for x in probe.x]  # norms subtract
    sizes = [(float(np.max(np.abs(y), initial=0)), spread) for y, spread in zip(probe.output, spreads, strict=True)]
    slope, bend = (CANCELLED * max(y / x**order for y, x in sizes) for order in (1, 2))
    curvature = 0.0 if probe.curvature is None else float(np.max(np.abs(probe.curvature), initial=0))
    return {"jmp": slope, "mjp": slope, "vjp": slope, "residual": bend, "average": slope**2 * curvature}


def shrunk(probe: Probe) -> Probe:
    """Return a probe at inputs of size 1 at most, where terms do not cancel that do at large ones: p (1 − p)."""
    return replace(probe, x=probe.x / max(1.0, size_of(probe.x)))


def finite_range(loss: Loss) -> tuple[float, float]:
    """Return the least and the largest output of a loss's domain at which everything must be finite."""
    (least, most), (low, high) = loss.finite_range, loss.domain
    return max(least, low), min(most, high)


BEYOND = "the output is outside the range in which the loss must be finite"


def is_beyond(loss: Loss, output: np.ndarray) -> bool:
    """Return whether a loss need not be finite at an output, whatever its domain."""
    low, high = loss.finite_range
    return bool(output.min() < low or output.max() > high)


def inside(loss: Loss, values: np.ndarray) -> np.ndarray:
    """Numbers, of size 1, moved to where a loss must be finite; those of a loss of any outputs stay as they are."""
    (low, high), margin, wide = finite_range(loss), 0.1, 10.0
    if low <= -wide and high >= wide:
        return values
    if high - low < wide:
        return low + (high - low) * (0.02 + 0.96 / (1 + np.exp(-values)))
    return low + margin + np.abs(values) if low > -wide else high - margin - np.abs(values)


def some_of(count: int, rng: np.random.Generator, size: int = 1) -> np.ndarray:
    """Return all of `count` coordinates or, if there are too many, some; `size` is how many numbers go with each."""
    most = min(COORDINATES, max(LEAST_COORDINATES, NUMBERS // size))
    return np.sort(rng.choice(count, min(count, most), replace=False))


def units(shape: tuple[int, ...], batch: int, where: np.ndarray) -> np.ndarray:
    """Unit columns at some coordinates, the same for each sample, shape (K, N, *shape)."""
    columns = np.zeros((len(where), batch, prod(shape)))
    columns[np.arange(len(where)), :, where] = 1
    return columns.reshape(len(where), batch, *shape)


def input_curve(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, where: np.ndarray) -> Curve:
    """t ↦ f(x + t e) for each coordinate e in `where`, as one batch: gives ``[K, N, *f]``."""

    def curve(t: complex) -> np.ndarray:
        moved = np.repeat(x.reshape(1, len(x), -1), len(where), axis=0).astype(np.result_type(x, type(t)))
        moved[np.arange(len(where)), :, where] += t
        values = function(moved.reshape(-1, *x.shape[1:]))
        return values.reshape(len(where), len(x), *values.shape[1:])

    return curve


def rounding_of_values(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> float:
    """Return the rounding of a function's values, beside the largest: what is left of x − tanh x has few digits.

    It is what second differences are over steps so short that a function's own are less, but no more than numbers of
    the size of `x` are rounded by: a jump is no rounding.
    """
    rng, values, size = np.random.default_rng(0), function(x), size_of(x)
    steps = SHORT * size * rng.standard_normal((4, *x.shape))
    second = max(largest(function(x + step) - 2 * values + function(x - step)) for step in steps)
    return max(EPS, min(second, EPS * size) / (largest(values) or size))


SHORT = 1e-7
"""A step, beside the size of numbers, over which functions bend less than they are rounded."""


def pulled(probe: Probe, vec: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Jᵀ g at a multiple of the batch, in the order [repeat, sample]."""
    return probe.layer.vjp(probe.run(x)[1], np.concatenate([vec] * (len(x) // len(vec))))


def smooth_point(probe: Probe, rng: np.random.Generator) -> Point:
    """Move the probe's batch, where it must be, to a point without kinks; its Jacobian there."""
    size = probe.x.size + probe.output.size
    inputs = some_of(prod(probe.x.shape[1:]), rng, size)
    outputs = some_of(prod(probe.output.shape[1:]), rng, size)
    x, jacobian = smooth(lambda moved: probe.run(moved)[0], probe.x, inputs, rng)
    if probe.layer.curvature != "zero" and not x.all():  # zeros of padding may lie where the slope has a kink
        g = rng.standard_normal(probe.output.shape)
        with suppress(Exception):  # claims on vjp say what is wrong with it
            x, _ = smooth(partial(pulled, probe, g), x, inputs, rng)
            x, jacobian = smooth(lambda moved: probe.run(moved)[0], x, inputs, rng)
    return Point(x, inputs, outputs, jacobian)


def smooth(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, where: np.ndarray, rng: np.random.Generator,
    place: Callable[[np.ndarray], np.ndarray] = np.copy,
) -> tuple[np.ndarray, Derivative]:  # fmt: skip
    """Move coordinates of `x` that have a kink, until there is none; `place` says where a moved number comes to lie.

    They are moved to where the function is defined: log has such a slope at 0.01 that it looks like a kink.
    """
    given, x, unit = x.reshape(len(x), -1)[:, where], x.copy(), size_of(x)
    drawn = np.zeros(given.shape, dtype=bool)
    for k in range(DRAWS):
        size = size_of(x)  # of these numbers, by which later steps go: they may be larger than before they were moved
        step = REAL_STEP * size / 4 ** (k // PATIENCE)
        found = derivative(input_curve(function, x, where), step, rounding_of_values(function, x))
        places = (found.kinks, ~np.isfinite(found.values))
        kinks, undefined = (each.reshape(len(where), len(x), -1).any(2).T for each in places)  # [N, K]
        left = kinks | (drawn & undefined)
        if not left.any():
            return x, found
        drawn |= kinks
        flat, moved = x.reshape(len(x), -1), unit * rng.standard_normal(left.shape)
        start = np.where(left & undefined, given, flat[:, where])
        flat[:, where] = np.where(left, place(start + moved), start)
    raise FoundError(f"one-sided differences disagree at each of {DRAWS} points drawn")
