"""Smooth elementwise layers: Softplus, LogSigmoid, Softsign, Tanhshrink, and x p(x) with a gate p: SiLU, Mish, GELU."""

from __future__ import annotations

from math import pi
from typing import ClassVar

from gbackprop.array import Array, array_module, scipy_module
from gbackprop.base.checks import number
from gbackprop.layers.elementwise.activation import Elementwise, sigmoid

FAR = 40.0
"""The point from which GELU's gate is 1, and its derivatives 0, in any precision; at −FAR the gate is 0."""


class Softplus(Elementwise):
    """log(1 + e^(βx)) / β, and x where βx is above a threshold, as in torch.

    Parameters
    ----------
    beta : float
        β, not 0.
    threshold : float

    Raises
    ------
    ValueError
        If one of them is not a finite number, or β is 0.
    """

    formulas = {
        "forward": "y = x if βx > threshold else log(1 + e^(βx)) / β",
        "mjp": "g if βx > threshold else σ(βx) g",
        "residual": "0 if βx ≥ threshold else β σ(βx) σ(−βx) g",
    }
    shown = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = number("beta", beta), number("threshold", threshold)
        if self.beta == 0:
            raise ValueError(f"beta: expected a number other than 0, got {beta}")

    def value(self, x: Array) -> Array:
        z = self.beta * x
        return array_module(x).where(z.real > self.threshold, x, softplus(z) / self.beta)

    def first(self, x: Array, y: Array) -> Array:
        z = self.beta * x
        return array_module(x).where(z.real > self.threshold, 1, sigmoid(z))

    def second(self, x: Array, y: Array) -> Array:
        z = self.beta * x
        return array_module(x).where(z.real >= self.threshold, 0, self.beta * bell(z))


class LogSigmoid(Elementwise):
    """log σ(x)."""

    formulas = {"forward": "y = log(σ(x))", "mjp": "σ(−x) g", "residual": "−σ(x) σ(−x) g"}

    def value(self, x: Array) -> Array:
        return -softplus(-x)

    def first(self, x: Array, y: Array) -> Array:
        return sigmoid(-x)

    def second(self, x: Array, y: Array) -> Array:
        return -bell(x)


class Softsign(Elementwise):
    """x / (1 + |x|)."""

    formulas = {"forward": "y = x / (1 + |x|)", "mjp": "g / (1 + |x|)²", "residual": "−2 sign(x) / (1 + |x|)³ g"}

    def value(self, x: Array) -> Array:
        return x * self._share(x)

    def first(self, x: Array, y: Array) -> Array:
        return self._share(x) ** 2

    def second(self, x: Array, y: Array) -> Array:
        return -2 * array_module(x).sign(x.real) * self._share(x) ** 3

    def _share(self, x: Array) -> Array:
        """Return 1 / (1 + |x|), analytic where x is not 0."""
        return 1 / (1 + array_module(x).where(x.real < 0, -x, x))


class Tanhshrink(Elementwise):
    """x − tanh(x)."""

    formulas = {"forward": "y = x − t, t = tanh(x)", "mjp": "t² g", "residual": "2t (1 − t²) g"}

    def value(self, x: Array) -> Array:
        return x - array_module(x).tanh(x)

    def first(self, x: Array, y: Array) -> Array:
        t = array_module(x).tanh(x)
        return t * t

    def second(self, x: Array, y: Array) -> Array:
        return 8 * array_module(x).tanh(x) * bell(2 * x)  # 1 − t² = 4 σ(2x) σ(−2x), which does not cancel


class Gated(Elementwise):
    """Base class of the functions x p(x): a subclass defines them, and the gate p with its derivatives."""

    def gate(self, x: Array) -> tuple[Array, Array, Array]:
        """p(x), p'(x) and p''(x), each with the shape of x."""
        raise NotImplementedError

    def first(self, x: Array, y: Array) -> Array:
        p, slope, _ = self.gate(x)
        return p + x * slope

    def second(self, x: Array, y: Array) -> Array:
        _, slope, bend = self.gate(x)
        return 2 * slope + x * bend


class SiLU(Gated):
    """x σ(x)."""

    formulas = {
        "forward": "y = x σ(x)",
        "mjp": "(σ + x σ') g, σ' = σ(x) σ(−x)",
        "residual": "(2σ' + x σ'') g, σ'' = σ' (σ(−x) − σ(x))",
    }

    def value(self, x: Array) -> Array:
        return x * sigmoid(x)

    def gate(self, x: Array) -> tuple[Array, Array, Array]:
        p, rest = sigmoid(x), sigmoid(-x)
        return p, p * rest, p * rest * (rest - p)


class Mish(Gated):
    """x tanh(log(1 + eˣ))."""

    formulas = {
        "forward": "y = x t, t = tanh(log(1 + eˣ))",
        "mjp": "(t + x t') g, t' = (1 − t²) σ(x)",
        "residual": "(2t' + x t'') g, t'' = t' (σ(−x) − 2t σ(x))",
    }

    def value(self, x: Array) -> Array:
        return x * array_module(x).tanh(softplus(x))

    def gate(self, x: Array) -> tuple[Array, Array, Array]:
        s, rest = sigmoid(x), sigmoid(-x)
        d = 1 + rest * rest
        t = s * (1 + rest) / d  # 1 + eˣ = 1/σ(−x)
        slope = 4 * s * rest * rest / (d * d)
        return t, slope, slope * (rest - 2 * t * s)


class GELU(Gated):
    """x Φ(x), with Φ the distribution function of N(0, 1); or its approximation by tanh.

    Parameters
    ----------
    approximate : {"none", "tanh"}
        With "tanh", x (1 + tanh z) / 2 with z = √(2/π) (x + 0.044715 x³).

    Raises
    ------
    ValueError
        If it is neither of these.
    """

    formulas = {
        "forward": "y = x p, p = Φ(x)",
        "mjp": "(p + x p') g, p' = e^(−x²/2) / √(2π)",
        "residual": "(2p' + x p'') g, p'' = −x p'",
    }
    approximation: ClassVar = {
        "forward": "y = x p, p = (1 + tanh(z)) / 2, z = √(2/π) (x + 0.044715 x³)",
        "mjp": "(p + x p') g, p' = 2 σ(2z) σ(−2z) z', z' = √(2/π) (1 + 0.134145 x²)",
        "residual": "(2p' + x p'') g, p'' = 2 σ(2z) σ(−2z) (z'' − 2 tanh(z) z'²), z'' = 0.26829 √(2/π) x",
    }

    def __init__(self, approximate: str = "none") -> None:
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            raise ValueError(f"approximate: expected 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate
        if approximate == "tanh":
            self.formulas = self.approximation

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"

    def value(self, x: Array) -> Array:
        return x * self.gate(x)[0]

    def gate(self, x: Array) -> tuple[Array, Array, Array]:
        xp = array_module(x)
        x = xp.where(x.real > FAR, FAR, xp.where(x.real < -FAR, -FAR, x))  # p is 1 or 0 there, and x² would overflow
        if self.approximate == "tanh":
            c, a = 2 * (2 / pi) ** 0.5, 0.044715
            w, slope, bend = c * (x + a * x * x * x), c * (1 + 3 * a * x * x), 6 * c * a * x  # w = 2z, w', w''
            p, rest = sigmoid(w), sigmoid(-w)  # (1 + tanh z) / 2 = σ(2z)
            return p, p * rest * slope, p * rest * (bend + (rest - p) * slope * slope)
        density = xp.exp(-x * x / 2) / (2 * pi) ** 0.5
        # erfc(x) = 1 − erf(x), with its leading digits where it is small
        return scipy_module(x, "special").erfc(x * -(0.5**0.5)) / 2, density, -x * density


def softplus(x: Array) -> Array:
    """log(1 + eˣ) without overflow, analytic."""
    xp = array_module(x)
    positive = x.real > 0
    return xp.where(positive, x, 0) + xp.log1p(xp.exp(xp.where(positive, -x, x)))


def bell(x: Array) -> Array:
    """σ'(x) = σ(x) σ(−x), which loses no digits where σ is near 1, as σ (1 − σ) does."""
    return sigmoid(x) * sigmoid(-x)
