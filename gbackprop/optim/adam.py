"""Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.network import Sequential
from gbackprop.optim.base import Optimizer, number
from gbackprop.optim.moments import Moments
from gbackprop.result import Result


class Adam(Optimizer):
    """Running means of g and g², g = ∇L + ηθ, both corrected for their start at 0.

    m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², θ ← θ − α m̂ / (√v̂ + ε), m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ).

    Parameters
    ----------
    network : Sequential
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

    def __init__(
        self,
        network: Sequential,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        l2: float | Mapping[str, float] = 0.0,
    ) -> None:
        super().__init__(network, lr, l2)
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ValueError(f"betas: expected two numbers, got {betas!r}")
        self.betas = number("betas[0]", betas[0], below=1), number("betas[1]", betas[1], below=1)
        self.eps = number("eps", eps, above=0)
        self._first = Moments(network, "first_moment")
        self._second = Moments(network, "second_moment")

    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        one, two = self.betas
        m = self._first.advance(name, one, (1 - one) * gradient)
        v = self._second.advance(name, two, (1 - two) * gradient**2)
        root = array_module(v).sqrt(v / (1 - two**self.steps))
        return m / (1 - one**self.steps) / (root + self.eps)

    def _state(self) -> dict[str, Array]:
        return self._first.state() | self._second.state()

    def _restore(self, state: Mapping[str, Array]) -> None:
        self._first.restore(state)
        self._second.restore(state)

    def _shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return self._first.shapes() | self._second.shapes()
