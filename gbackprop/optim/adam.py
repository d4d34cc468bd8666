"""Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number
from gbackprop.network import Container
from gbackprop.optim.base import Optimizer
from gbackprop.optim.settings import CheckedSetting, numeric
from gbackprop.quantities.result import Result


class Adam(Optimizer):
    """An update rule by running means of g and g², g = ∇L + ηθ, both corrected for their start at 0.

    m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², θ ← θ − α m̂ / (√v̂ + ε), m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ),
    t the parameter's own steps.

    Parameters
    ----------
    network : Container
    lr : float
        α, above 0.
    betas : (float, float)
        β₁ and β₂, in [0, 1).
    eps : float
        ε, above 0.
    l2 : float or mapping of str to float
        η, see `Optimizer`.

    Raises
    ------
    TypeError, ValueError
        See `Optimizer`; also for betas or eps out of range.

    Notes
    -----
    Source: Kingma & Ba 2015, algorithm 1.
    """

    moments = ("first_moment", "second_moment")

    betas = CheckedSetting(lambda _, name, value: _pair(name, value))
    eps = numeric(above=0)

    def __init__(
        self,
        network: Container,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        l2: float | Mapping[str, float] = 0.0,
    ) -> None:
        super().__init__(network, lr, l2)
        self.betas = betas
        self.eps = eps

    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        (one, two), t = self.betas, self.steps_of(name)
        m = self._advance(f"first_moment/{name}", one, (1 - one) * gradient)
        v = self._advance(f"second_moment/{name}", two, (1 - two) * gradient**2)
        root = array_module(v).sqrt(v / (1 - two**t))
        return m / (1 - one**t) / (root + self.eps)


def _pair(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name}: expected two numbers, got {value!r}")
    return number(f"{name}[0]", value[0], least=0, below=1), number(f"{name}[1]", value[1], least=0, below=1)
