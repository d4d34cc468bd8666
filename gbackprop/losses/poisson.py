"""Negative log-likelihood of counts."""

from __future__ import annotations

from math import inf, pi
from typing import ClassVar, Literal

import numpy as np
from scipy import special

from gbackprop.array import Array, RecordedArray, array_module, asnumpy, bounds, like
from gbackprop.base.checks import check_flag, number
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Shape
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.losses.huber import UNDRAWN

LARGEST_LOGARITHM = {"float32": 28.0, "float64": 68.0}
"""The largest output of which counts can be drawn: there rounding is a tenth of the deviation, √e^f; beyond, it is all
of ŷ − e^f."""

LARGEST_RATE = 1e8
"""Beyond it counts are drawn from the normal distribution, which is a few counts off where the deviation is 10⁴."""


class PoissonNLLLoss(ElementwiseLoss):
    """ℓₙ = c Σ e^f − y f, or c Σ f − y log(f + ε) with ``log_input=False``, targets y ≥ 0, c = 1 or 1/C for "mean".

    ∇ℓ = c (e^f − y), ∇²ℓ = c diag(e^f), S its elementwise root; likelihood: Poisson(e^f) for each output, whose −log is
    ℓ and a term of y alone. With ``log_input=False``, where the outputs are rates f > −ε (others are an error), ∇ℓ =
    c (f − y + ε)/(f + ε) and ∇²ℓ = c diag(y/(f + ε)²), which depends on the target: there are no Monte-Carlo draws.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    log_input : bool
        Whether outputs are logarithms of rates.
    full : bool
        Whether ℓ has Stirling's approximation of log y!, y log y − y + ½ log 2πy for y > 1: no derivative has it.
    eps : float
        ε > 0, used with ``log_input=False`` alone.
    """

    fixed = frozenset({"log_input", "eps"})
    counts = True
    of_logarithms: ClassVar = {
        "values": "ℓ = c Σⱼ (e^fⱼ − yⱼ fⱼ + full sⱼ), sⱼ = yⱼ log(yⱼ) − yⱼ + log(2π yⱼ) / 2 if yⱼ > 1 else 0",
        "gradients": "c (e^fⱼ − yⱼ)",
        "hessian": "c [i = j] e^fⱼ",
    }
    of_rates: ClassVar = {
        "values": "ℓ = c Σⱼ (fⱼ − yⱼ log(fⱼ + ε) + full sⱼ), sⱼ = yⱼ log(yⱼ) − yⱼ + log(2π yⱼ) / 2 if yⱼ > 1 else 0",
        "gradients": "c (fⱼ − yⱼ + ε) / (fⱼ + ε)",
        "hessian": "c [i = j] yⱼ / (fⱼ + ε)²",
    }

    def __init__(
        self,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(reduction)
        self.log_input = check_flag("PoissonNLLLoss, log_input", log_input)
        self.full = check_flag("PoissonNLLLoss, full", full)
        self.eps = number("PoissonNLLLoss, eps", eps, above=0)
        self.formulas = self.of_logarithms if log_input else self.of_rates
        self.finite_range = (-1e4, LARGEST_LOGARITHM["float64"]) if log_input else (1e-3, 1e4)
        self.domain, self.ends = ((-inf, inf), True) if log_input else ((-self.eps, inf), False)
        self.undrawn = "" if log_input else UNDRAWN

    def describe(self) -> list[str]:
        some = ["log_input=False"] * (not self.log_input) + ["full=True"] * self.full
        return some + [f"eps={self.eps}"] * (self.eps != 1e-8)

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        super().check_values(name, target, batch_shape, output)
        low = bounds(target)[0]
        if low < 0:
            raise ValueError(f"{name}: expected counts, of at least 0, got {low}")

    def rate(self, output: Array) -> Array:
        """e^f, or f + ε, and NaN where that is no rate."""
        xp = array_module(output)
        if self.log_input:
            return xp.exp(output)
        rate = output + self.eps
        return xp.where(rate.real > 0, rate, float("nan"))

    def values(self, output: Array, target: Array) -> Array:
        xp, rate = array_module(output), self.rate(output)
        each = rate - target * output if self.log_input else output - target * xp.log(rate)
        if self.full:
            y = xp.where(target > 1, target, 1)
            each = each + xp.where(target > 1, y * xp.log(y) - y + 0.5 * xp.log(2 * pi * y), 0)
        return self.summed(each)

    def gradients(self, output: Array, target: Array) -> Array:
        rate = self.rate(output)
        # not 1 − y/(f + ε): the difference would lose digits where f is near y
        each = rate - target if self.log_input else (output - target + self.eps) / rate
        return each * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        rate = self.rate(output)
        return rate if self.log_input else target / rate**2

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return super().noise(batch_shape, mc_samples, rng) if self.undrawn else rng.random((mc_samples, *batch_shape))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        # Inversion of the distribution function, on the host, where SciPy has it, and in float64 for all dtypes.
        logarithms, below = asnumpy(output).astype(np.float64), asnumpy(noise)
        most = LARGEST_LOGARITHM[output.dtype.name]
        if not isinstance(output, RecordedArray) and logarithms.max() > most:
            words = f"expected logarithms of rates up to {most:.0f} in {output.dtype}, got {logarithms.max():.4g}"
            raise UnsupportedError(f"output of {self!r}, of which counts are drawn: {words}")
        rate = np.exp(logarithms)
        few = np.minimum(rate, LARGEST_RATE)
        more = np.ceil(special.pdtrik(below, few))
        less = np.maximum(more - 1, 0)
        drawn = np.where(special.pdtr(less, few) >= below, less, more)
        normal = np.maximum(np.round(rate + np.sqrt(rate) * special.ndtri(below)), 0)
        return like(np.where(rate > LARGEST_RATE, normal, drawn), output, output.dtype)
