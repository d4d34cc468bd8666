"""Derivatives by differences alone: complex steps where a function is analytic, else extrapolated central differences.

A complex step f'(x) = Im f(x + ih) / h forms no difference, so its error is rounding; but a function that takes an
absolute value or a real part on the way gives another number without complaint. So it is believed only where it agrees
with central differences, which are formed at h, h/2 and h/4 anyway: they also show kinks. Across a kink the second
difference f(x + h) − 2 f(x) + f(x − h) does not shrink with the square of h, as it does where f is smooth.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gbackprop.testing.complex_steps import STEP

Curve = Callable[[complex], np.ndarray]
"""t ↦ f(x + t d), for many functions f and directions d at once: an array of any shape."""

REAL_STEP = 1e-3
"""h, for points of size 1: (h/4)⁶ and rounding over h/4 are alike small."""

SHORTER = 8.0 ** np.arange(1, 21)
"""Divisors of a step that is too long."""

EPS = float(np.finfo(np.float64).eps)

COMPLEX_TOLERANCE, DIFFERENCE_TOLERANCE = 1e-11, 1e-8
"""Errors to allow beside the two, relative to the largest entry."""


@dataclass(frozen=True)
class Derivative:
    """d/dt of a curve at 0."""

    values: np.ndarray  # [*f] in float64
    error: float  # an estimate of the largest; 0 for complex steps
    kinks: np.ndarray  # [*f], where the function has a kink within the step: `values` mean nothing there
    analytic: bool  # whether `values` are complex steps

    @property
    def oracle(self) -> str:
        """The oracle's name in a report."""
        return "complex step" if self.analytic else "central differences"

    @property
    def tolerance(self) -> float:
        """Error to allow beside these values, relative to the largest of them."""
        if self.analytic:
            return COMPLEX_TOLERANCE
        largest = float(np.max(np.abs(self.values), initial=0)) or 1.0
        return max(DIFFERENCE_TOLERANCE, 20 * self.error / largest)


def derivative(curve: Curve, step: float = REAL_STEP, eps: float = EPS) -> Derivative:
    """d/dt of a curve at 0; `eps` is the rounding of its values, beside 1.

    The step is shorter for values that are not finite over it: log is defined above 0 alone.
    """
    middle = curve(0.0)
    values, errors, kinks = _differences(curve, middle, step, eps)
    short = np.isfinite(middle) & ~np.isfinite(values)
    left = short.copy()
    for shorter in step / SHORTER if left.any() else ():
        found = zip(_differences(curve, middle, shorter, eps), (values, errors, kinks), strict=True)
        values, errors, kinks = (np.where(left, new, old) for new, old in found)
        left &= kinks | ~np.isfinite(values)  # a kink, or a slope that changes much over the step
    exact = _complex_step(curve)
    if exact is not None and _agree(exact, values, errors, ~kinks):
        return Derivative(exact, 0.0, kinks, True)
    usual = Derivative(values, float(np.max(errors, where=~kinks & ~short, initial=0)), kinks, False)
    largest = float(np.max(np.abs(values), where=~kinks & np.isfinite(values), initial=0)) or 1.0
    kinks = kinks | (short & (20 * errors > usual.tolerance * largest))  # they would widen what is allowed elsewhere
    return Derivative(values, float(np.max(errors, where=~kinks, initial=0)), kinks, False)


def _differences(
    curve: Curve, middle: np.ndarray, step: float, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Central differences of a step, extrapolated, an estimate of their error, and where there are kinks."""
    ends = [(curve(h), curve(-h)) for h in (step, step / 2, step / 4)]
    return *_extrapolated(ends, step, eps), _kinks(middle, ends, step, eps)


def _extrapolated(ends: list[tuple[np.ndarray, np.ndarray]], step: float, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Richardson's extrapolation of central differences at h, h/2, h/4, and an estimate of its error."""
    coarse, middle, fine = ((high - low) / (2 * h) for (high, low), h in zip(ends, (step, step / 2, step / 4)))
    first, second = middle + (middle - coarse) / 3, fine + (fine - middle) / 3
    best = second + (second - first) / 15
    size = np.max([np.abs(end) for end in ends[2]], axis=0)
    return best, np.abs(best - second) + eps * size / step * 8


def _kinks(middle: np.ndarray, ends: list[tuple[np.ndarray, np.ndarray]], step: float, eps: float) -> np.ndarray:
    second = [high - 2 * middle + low for high, low in ends]
    # Where f is smooth, second(h) − 4 second(h/2) is of order h⁴; across a kink it is of order h, but for a kink at
    # h/3, which the next pair shows.
    bend = np.maximum(np.abs(second[0] - 4 * second[1]), np.abs(second[1] - 4 * second[2])) / step
    rise = np.abs(ends[0][0] - ends[0][1])
    slope = float(np.max(rise, where=np.isfinite(rise), initial=0)) / (2 * step)
    rounding = 64 * eps * float(np.max(np.abs(middle), initial=0)) / step
    return bend > 1e-5 * slope + rounding


def _complex_step(curve: Curve) -> np.ndarray | None:
    """Return the complex step, or None if the curve does not take complex numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            ahead = curve(1j * STEP)
    except Exception:  # whatever it is: this oracle cannot be used
        return None
    return ahead.imag / STEP if np.iscomplexobj(ahead) else None


def _agree(exact: np.ndarray, values: np.ndarray, errors: np.ndarray, where: np.ndarray) -> bool:
    """Return whether a complex step agrees with central differences, within their error."""
    if exact.shape != values.shape or not np.isfinite(exact).all():
        return False
    slack = 100 * errors + 1e-7 * float(np.max(np.abs(values), initial=0))
    return bool((np.abs(exact - values) <= slack)[where].all())
