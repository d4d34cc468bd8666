"""Elementwise layers in pieces: constants, lines and, in Hardswish and ELU and its kin, a curve."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number
from gbackprop.layers.elementwise.activation import Elementwise

LEAST = 1e-38
"""Smallest α of CELU, whose inverse float32 still has."""


class LeakyReLU(Elementwise):
    """x where x > 0, else a x.

    Parameters
    ----------
    negative_slope : float
        a.

    Raises
    ------
    ValueError
        If it is not a finite number.
    """

    curvature = "zero"
    formulas = {"forward": "y = x if x > 0 else a x, a = negative_slope", "mjp": "([x > 0] + a [x ≤ 0]) g"}
    shown = ["negative_slope"]

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = number("negative_slope", negative_slope)

    def value(self, x: Array) -> Array:
        return array_module(x).where(x.real > 0, x, self.negative_slope * x)

    def first(self, x: Array, y: Array) -> Array:
        # two Python numbers are float64, whatever x is
        return array_module(x).where(x.real > 0, 1, self.negative_slope).astype(x.real.dtype)


class Threshold(Elementwise):
    """x where x is above a threshold, else a value.

    Parameters
    ----------
    threshold, value : float

    Raises
    ------
    ValueError
        If one of them is not a finite number.
    """

    fixed = frozenset({"replacement"})
    curvature = "zero"
    formulas = {"forward": "y = x if x > threshold else replacement", "mjp": "[x > threshold] g"}

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold, self.replacement = number("threshold", threshold), number("value", value)

    def describe(self) -> str:
        return f"threshold={self.threshold}, value={self.replacement}"

    def value(self, x: Array) -> Array:
        return array_module(x).where(x.real <= self.threshold, self.replacement, x)

    def first(self, x: Array, y: Array) -> Array:
        return x.real > self.threshold


class Hardtanh(Elementwise):
    """x between two limits, else the nearest of them; derivative 0 at the limits as in torch.

    Parameters
    ----------
    min_val, max_val : float

    Raises
    ------
    ValueError
        If one of them is not a finite number, or `max_val` is not above `min_val`.
    """

    curvature = "zero"
    formulas = {"forward": "y = min(max(x, min_val), max_val)", "mjp": "[min_val < x < max_val] g"}
    shown = ["min_val", "max_val"]

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = number("min_val", min_val), number("max_val", max_val)
        if not self.min_val < self.max_val:
            raise ValueError(f"max_val: expected a number above min_val = {min_val}, got {max_val}")

    def value(self, x: Array) -> Array:
        xp = array_module(x)
        return xp.where(x.real <= self.min_val, self.min_val, xp.where(x.real >= self.max_val, self.max_val, x))

    def first(self, x: Array, y: Array) -> Array:
        return (x.real > self.min_val) & (x.real < self.max_val)


class ReLU6(Hardtanh):
    """min(max(x, 0), 6)."""

    formulas = {"forward": "y = min(max(x, 0), 6)", "mjp": "[0 < x < 6] g"}
    shown = []

    def __init__(self) -> None:
        super().__init__(0.0, 6.0)


class Hardsigmoid(Elementwise):
    """min(max(x + 3, 0), 6) / 6."""

    curvature = "zero"
    formulas = {"forward": "y = min(max(x + 3, 0), 6) / 6", "mjp": "[−3 < x < 3] g / 6"}

    def value(self, x: Array) -> Array:
        return hard_sigmoid(x)

    def first(self, x: Array, y: Array) -> Array:
        return ((x.real > -3) & (x.real < 3)).astype(x.real.dtype) / 6


class Hardswish(Elementwise):
    """x min(max(x + 3, 0), 6) / 6."""

    formulas = {
        "forward": "y = x min(max(x + 3, 0), 6) / 6",
        "mjp": "0 if x ≤ −3 else (2x + 3) / 6 g if x < 3 else g",
        "residual": "[−3 < x < 3] g / 3",
    }

    def value(self, x: Array) -> Array:
        return x * hard_sigmoid(x)

    def first(self, x: Array, y: Array) -> Array:
        xp = array_module(x)
        return xp.where(x.real <= -3, 0, xp.where(x.real >= 3, 1, x / 3 + 0.5))

    def second(self, x: Array, y: Array) -> Array:
        return ((x.real > -3) & (x.real < 3)).astype(x.real.dtype) / 3


class Hardshrink(Elementwise):
    """x where |x| > λ, else 0.

    Parameters
    ----------
    lambd : float
        λ.

    Raises
    ------
    ValueError
        If it is not a finite number.
    """

    curvature = "zero"
    formulas = {"forward": "y = x if |x| > λ else 0", "mjp": "[|x| > λ] g"}
    shown = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = number("lambd", lambd)

    def value(self, x: Array) -> Array:
        return array_module(x).where(self._is_small(x), 0, x)

    def first(self, x: Array, y: Array) -> Array:
        return ~self._is_small(x)

    def _is_small(self, x: Array) -> Array:
        return (x.real >= -self.lambd) & (x.real <= self.lambd)


class Softshrink(Hardshrink):
    """x − λ where x > λ, x + λ where x < −λ, else 0.

    Parameters
    ----------
    lambd : float
        λ, not negative.

    Raises
    ------
    ValueError
        If it is not a finite number, or is negative.
    """

    formulas = {"forward": "y = x − sign(x) λ if |x| > λ else 0", "mjp": "[|x| > λ] g"}

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd)
        if self.lambd < 0:
            raise ValueError(f"lambd: expected a number of at least 0, got {lambd}")

    def value(self, x: Array) -> Array:
        xp = array_module(x)
        return xp.where(self._is_small(x), 0, x - xp.sign(x.real) * self.lambd)


class ELU(Elementwise):
    """x where x > 0, else α (eˣ − 1).

    Parameters
    ----------
    alpha : float
        α.

    Raises
    ------
    ValueError
        If it is not a finite number.
    """

    formulas = {
        "forward": "y = x if x > 0 else α (eˣ − 1)",
        "mjp": "([x > 0] + [x ≤ 0] α eˣ) g",
        "residual": "[x < 0] α eˣ g",
    }
    shown = ["alpha"]
    scale, rate = 1.0, 1.0
    """Factors of y and of the exponent, other than 1 in the classes below."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = number("alpha", alpha)

    def value(self, x: Array) -> Array:
        xp = array_module(x)
        return self.scale * xp.where(x.real > 0, x, self.alpha * xp.expm1(self._exponent(x)))

    def first(self, x: Array, y: Array) -> Array:
        xp = array_module(x)
        return self.scale * xp.where(x.real > 0, 1, self.alpha * self.rate * xp.exp(self._exponent(x)))

    def second(self, x: Array, y: Array) -> Array:
        xp = array_module(x)
        return self.scale * xp.where(x.real >= 0, 0, self.alpha * self.rate**2 * xp.exp(self._exponent(x)))

    def _exponent(self, x: Array) -> Array:
        """Return the exponent; 0 where x > 0, so that nothing overflows where the exponential is not used."""
        return array_module(x).where(x.real > 0, 0, x) * self.rate


class SELU(ELU):
    """λ x where x > 0, else λ α (eˣ − 1), with λ = 1.0507… and α = 1.6732….

    Source: Klambauer, Unterthiner, Mayr, Hochreiter 2017 (self-normalizing networks).
    """

    scale = 1.0507009873554804934193349852946
    formulas = {
        "forward": "y = λ x if x > 0 else λ α (eˣ − 1), λ = 1.0507009873554805, α = 1.6732632423543772",
        "mjp": "λ ([x > 0] + [x ≤ 0] α eˣ) g",
        "residual": "λ [x < 0] α eˣ g",
    }
    shown = []

    def __init__(self) -> None:
        super().__init__(1.6732632423543772848170429916717)


class CELU(ELU):
    """x where x > 0, else α (e^(x/α) − 1).

    Parameters
    ----------
    alpha : float
        α, at least 1e-38 in size.

    Raises
    ------
    ValueError
        If it is not a finite number, or is smaller in size: then 1/α may be infinite in float32.
    """

    formulas = {
        "forward": "y = x if x > 0 else α (e^(x/α) − 1)",
        "mjp": "([x > 0] + [x ≤ 0] e^(x/α)) g",
        "residual": "[x < 0] e^(x/α) / α g",
    }

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        if abs(self.alpha) < LEAST:
            raise ValueError(f"alpha: expected a number of at least {LEAST:g} in size, as float32 has, got {alpha}")

    @property
    def rate(self) -> float:  # type: ignore[override]
        """The factor of the exponent, 1/α."""
        return 1 / self.alpha


def hard_sigmoid(x: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6."""
    xp = array_module(x)
    return xp.where(x.real <= -3, 0, xp.where(x.real >= 3, 6, x + 3)) / 6
