"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.checks import check_flag, number
from gbackprop.network import Container
from gbackprop.optim.base import Optimizer
from gbackprop.optim.settings import CheckedSetting
from gbackprop.quantities.result import Result


class SGD(Optimizer):
    """v ← μ v + g, θ ← θ − α v, with g = ∇L + ηθ; Nesterov: θ ← θ − α (g + μ v).

    As torch's SGD without dampening.

    Parameters
    ----------
    network : Container
    lr : float
        α, above 0.
    momentum : float
        μ, in [0, 1). A step with 0 forgets v.
    nesterov : bool
        Needs momentum.
    l2 : float or mapping of str to float
        η, see `Optimizer`.

    Raises
    ------
    TypeError, ValueError
        See `Optimizer`; also for a momentum out of range, or `nesterov` without momentum.

    Notes
    -----
    Source: Sutskever et al. 2013 (both forms of momentum).
    """

    moments = ("momentum",)

    momentum = CheckedSetting(
        lambda sgd, name, value: _both(number(name, value, least=0, below=1), getattr(sgd, "nesterov", False))[0]
    )
    nesterov = CheckedSetting(lambda sgd, name, value: _both(sgd.momentum, _flag(name, value))[1])

    def __init__(
        self,
        network: Container,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        l2: float | Mapping[str, float] = 0.0,
    ) -> None:
        super().__init__(network, lr, l2)
        self.momentum = momentum
        self.nesterov = nesterov

    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        if not self.momentum:
            self._arrays.pop(f"momentum/{name}", None)
            return gradient
        v = self._advance(f"momentum/{name}", self.momentum, gradient)
        return gradient + self.momentum * v if self.nesterov else v

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return all that a later step depends on, see `Optimizer`; v is 0 before a first step with momentum."""
        state = super().state_dict()
        if not self.momentum:  # a step forgets v
            return {key: value for key, value in state.items() if not key.startswith("momentum/")}
        taken = {name: value for name, value in self.network.parameters.items() if self.steps_of(name)}
        return {f"momentum/{name}": np.zeros(value.shape, value.dtype) for name, value in taken.items()} | state

    def _shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return super()._shapes(given) if self.momentum else {}


def _flag(name: str, value: Any) -> Any:
    check_flag(name, value)
    return value


def _both(momentum: float, nesterov: bool) -> tuple[float, bool]:
    if nesterov and not momentum:
        raise ValueError("nesterov: expected a momentum above 0 with it, got momentum=0")
    return momentum, nesterov
