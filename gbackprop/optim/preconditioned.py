"""One preconditioned update for every curvature: diagonal or Kronecker-factored."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, all_finite, array_module, device_of
from gbackprop.kronecker import EigenKronecker, GroupedKronecker, Kronecker, with_factors
from gbackprop.network import Container
from gbackprop.optim.base import Optimizer
from gbackprop.optim.settings import CheckedSetting, numeric
from gbackprop.quantities import EKFAC, KFAC, KFLR, KFRA, DiagGGN, DiagGGNMC, DiagHessian, Quantity
from gbackprop.quantities.result import Result

INVERSE_CAP = 1e8
"""The largest eigenvalue that an inverse may have: so that λ = η = 0 does not divide by zero."""

KRONECKER = (KFAC, KFLR, KFRA, EKFAC)
DIAGONAL = (DiagGGN, DiagGGNMC, DiagHessian)
AVERAGES = (None, "mean", "ema")


class Preconditioned(Optimizer):
    """θ ← θ − α (G + (λ + η) I)⁻¹ (∇L + ηθ), G a diagonal or Kronecker-factored curvature of the empirical risk.

    G and ∇L are those of the loss alone; the term ½ η ‖θ‖² comes in here.

    - Diagonal c: divide by c + λ + η. A negative entry, as DiagHessian may have, counts as 0.
    - Kronecker, weight: (A + π √(λ+η) I)⁻¹ on the inputs' side, (B + 1/π √(λ+η) I)⁻¹ on the outputs',
      π² = (tr A / dim A) / (tr B / dim B); bias: (B + (λ+η) I)⁻¹. See `Kronecker.solve`. A weight
      with groups: likewise for each group.
    - EKFAC: (QB ⊗ QA) diag(E + λ + η)⁻¹ (QB ⊗ QA)ᵀ, without an average, as each step has eigenvectors of its own.
    - Eigenvalues of each inverse are at most 1e8.

    Parameters
    ----------
    network : Container
    quantity : Quantity
        `DiagGGN`, `DiagGGNMC`, `DiagHessian`, `KFAC`, `KFLR`, `KFRA` or `EKFAC`.
    lr : float
        α, above 0.
    damping : float
        λ ≥ 0.
    l2 : float or mapping of str to float
        η, see `Optimizer`.
    average : {None, "mean", "ema"}
        What G is over the steps so far: the last one's, the arithmetic mean of all (as in the paper's runs), or an
        exponential moving average that starts as a mean, G ← ρ G + (1 − ρ) Gₜ with ρ = min(1 − 1/t, decay), t the
        parameter's own steps. For Kronecker factors A and B are averaged each for itself.
    decay : float
        In [0, 1), for ``average="ema"``.

    Raises
    ------
    TypeError
        If `quantity` is none of these; else see `Optimizer`.
    ValueError
        See `Optimizer`; also for a damping, an average or a decay that does not exist, an average of EKFAC, or a
        quantity with `joint_bias`.

    Notes
    -----
    Source: paper, section 4 and its appendix on the experiments (update rule); Martens & Grosse 2015 (π, and the moving
    average with ρ = min(1 − 1/t, 0.95)).
    """

    quantity = CheckedSetting(lambda _, name, value: _curvature(name, value), fixed=True)
    average = CheckedSetting(lambda _, name, value: _average(name, value), fixed=True)
    damping = numeric()
    decay = numeric(below=1)

    def __init__(
        self,
        network: Container,
        quantity: Quantity,
        lr: float,
        damping: float,
        l2: float | Mapping[str, float] = 0.0,
        average: Literal["mean", "ema"] | None = None,
        decay: float = 0.95,
    ) -> None:
        if isinstance(quantity, EKFAC) and average is not None:
            raise ValueError(f"average: expected None for {quantity!r}, whose eigenvectors change, got {average!r}")
        super().__init__(network, lr, l2)
        self.quantity = quantity
        self.quantities = (quantity,)
        self.damping = damping
        self.average = average
        self.decay = decay

    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        curvature, shift = self._averaged(name, result[self.quantity][name]), self.damping + self._l2[name]
        if isinstance(curvature, EigenKronecker | Kronecker | GroupedKronecker):
            if device_of(gradient) == "cpu" and not all_finite(gradient):  # `step` raises
                return gradient
            return curvature.solve(gradient, shift, INVERSE_CAP)
        xp = array_module(curvature)
        return gradient / xp.maximum(xp.maximum(curvature, 0) + shift, 1 / INVERSE_CAP)

    # --------------------------------------------------------------------------------------------------------- average

    def _averaged(self, name: str, new: Any) -> Any:
        """G of one parameter after this step."""
        if self.average is None:
            return new
        if not isinstance(new, Kronecker | GroupedKronecker):
            return self._mixed(f"curvature/{name}", new)
        a = None if new.A is None else self._mixed(f"A/{name}", new.A)
        return with_factors(new, a, self._mixed(f"B/{name}", new.B))

    def _mixed(self, key: str, new: Array) -> Array:
        """Compute ρ G + (1 − ρ) Gₜ in a new array."""
        if key not in self._arrays:
            return self._advance(key, 0.0, new)
        if (known := self._arrays[key].shape) != new.shape:  # weights of one shape may differ in their groups
            raise ValueError(f"step: {key}: expected shape {known} as in the state, got {new.shape}")
        rho = 1 - 1 / self.steps_of(key.partition("/")[2])
        rho = rho if self.average == "mean" else min(rho, self.decay)
        return self._advance(key, rho, (1 - rho) * new)

    def _shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        if self.average is None:
            return {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, value in self.network.parameters.items():
            if isinstance(self.quantity, DIAGONAL):
                shapes[f"curvature/{name}"] = value.shape
                continue
            groups: tuple[int, ...] = ()
            columns = 1
            if f"A/{name}" in given:  # only the layer knows which parameters have one, and in how many groups
                a = np.shape(given[f"A/{name}"])
                groups, columns = (max(1, a[0]),) if len(a) == 3 else (), max((1, *a[-2:-1]))
                shapes[f"A/{name}"] = (*groups, columns, columns)
            outputs = value.size // (prod(groups) * columns)
            shapes[f"B/{name}"] = (*groups, outputs, outputs)
        return shapes


def _curvature(name: str, value: Any) -> Quantity:
    if not isinstance(value, KRONECKER + DIAGONAL):
        names = ", ".join(kind.__name__ for kind in DIAGONAL + KRONECKER)
        raise TypeError(f"{name}: expected one of {names}, got {value!r}")
    if isinstance(value, KFAC | EKFAC) and value.convention and value.convention.joint_bias:
        raise ValueError(f"{name}: expected a curvature with a block for each parameter, got {value!r}")
    return value


def _average(name: str, value: Any) -> str | None:
    if value not in AVERAGES:
        raise ValueError(f"{name}: expected None, 'mean' or 'ema', got {value!r}")
    return value
