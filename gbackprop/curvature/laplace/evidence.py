"""The evidence log p(D) of a Laplace approximation, its derivative, and the prior at which it is largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np

from gbackprop.array import Array
from gbackprop.curvature.laplace.likelihoods import fit, multiple
from gbackprop.curvature.laplace.structures import Structure
from gbackprop.losses import Loss, MSELoss

BOUND = 1e12
"""Largest precision and noise variance, and 1/BOUND the smallest, that the search goes to."""

TOLERANCE = 1e-4
"""Largest relative error of the equations that hold at a maximum."""


@dataclass(frozen=True)
class Hyperparameters:
    """The numbers that the posterior depends on beside the data and the parameters.

    Attributes
    ----------
    precision : dict of str to float
        δ, the prior's precision of each parameter; of a weight with its bias in one block, by the weight's name.
    shared : bool
        Whether δ is one number for all parameters.
    noise_variance : float
        σ² of a regression's targets.
    temperature : float
        T: the likelihood counts as p(D | θ)^(1/T).
    """

    precision: Mapping[str, float]
    shared: bool
    noise_variance: float
    temperature: float

    def precision_of(self, parameter: str) -> float:
        """Return δ of a parameter: that of its block."""
        return self.precision[parameter if parameter in self.precision else f"{parameter.removesuffix('bias')}weight"]


@dataclass(frozen=True)
class Evidence:
    """log p(D) ≈ 1/T log p(D | θ) − ½ Σ δ θ² + ½ Σ log δ − ½ log det P, sums over all entries of all parameters.

    It is log ∫ p(D | θ)^(1/T) N(θ; 0, Δ⁻¹) dθ with the integrand's logarithm of second order around its maximum θ, and
    its second derivatives −P = −(b H + Δ), b = (multiple of the likelihood) / T.

    Source: MacKay 1992 (the evidence and its fixed points); Immer et al. 2021 (GGN, Kronecker blocks).
    """

    loss: Loss
    total: float  # Σₙ ℓ'ₙ
    outputs: int  # the number of all samples' outputs
    structure: Structure  # H
    squares: Mapping[str, float]  # Σ θ² over the entries that each δ belongs to
    sizes: Mapping[str, int]  # the number of these entries

    @classmethod
    def around(cls, mean: Mapping[str, Array], loss: Loss, total: float, outputs: int, curved: Structure) -> Evidence:
        """Return the evidence around the parameters θ; a bias without a block of its own is in its weight's."""
        squares, sizes = dict.fromkeys(curved.names, 0.0), dict.fromkeys(curved.names, 0)
        for name, value in mean.items():
            block = name if name in sizes else f"{name.removesuffix('bias')}weight"
            squares[block] += float((value.astype("float64") ** 2).sum())
            sizes[block] += value.size
        return cls(loss, total, outputs, curved, squares, sizes)

    def weight(self, at: Hyperparameters) -> float:
        """Compute b, by which H is multiplied."""
        return multiple(self.loss, at.noise_variance) / at.temperature

    def value(self, at: Hyperparameters) -> float:
        """Compute log p(D)."""
        prior = sum(self.sizes[k] * log(d) - d * self.squares[k] for k, d in at.precision.items())
        likelihood = fit(self.loss, self.total, self.outputs, at.noise_variance) / at.temperature
        return likelihood + prior / 2 - self.structure.logdet(self.weight(at), at.precision) / 2

    def effective(self, at: Hyperparameters) -> dict[str, float]:
        """Compute γ = d − δ tr P⁻¹, the number of the d entries of each parameter that the data determines."""
        traces = self.structure.traces(self.weight(at), at.precision)
        return {name: self.sizes[name] - delta * traces[name] for name, delta in at.precision.items()}

    def derivative(self, at: Hyperparameters) -> tuple[dict[str, float], float]:
        """Compute ∂ log p(D) / ∂ log δ = ½ (γ − δ Σ θ²) of each, and ∂ / ∂ log σ² = (S/σ² − K)/(2T) + ½ Σ γ."""
        gamma = self.effective(at)
        slopes = {name: (gamma[name] - delta * self.squares[name]) / 2 for name, delta in at.precision.items()}
        noise = 0.0
        if isinstance(self.loss, MSELoss):
            noise = (self.total / at.noise_variance - self.outputs) / (2 * at.temperature) + sum(gamma.values()) / 2
        return slopes, noise

    def maximized(self, start: Hyperparameters, noise: bool) -> Hyperparameters:
        """Return the hyperparameters of the largest evidence at these parameters θ, from `start` on by L-BFGS-B."""
        from scipy.optimize import minimize  # loading it takes an eighth of the time that the whole package takes

        names = list(start.precision)

        def at(logs: np.ndarray) -> Hyperparameters:
            values = [exp(value) for value in logs]
            variance = values.pop() if noise else start.noise_variance
            deltas = values * len(names) if start.shared else values
            return Hyperparameters(dict(zip(names, deltas, strict=True)), start.shared, variance, start.temperature)

        def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
            slopes, to_noise = self.derivative(at(logs))
            each = [sum(slopes.values())] if start.shared else list(slopes.values())
            return -self.value(at(logs)), -np.array(each + [to_noise] * noise)

        first = [*start.precision.values()][: 1 if start.shared else None] + [start.noise_variance] * noise
        limit = log(BOUND)
        options = {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 1000}
        found = minimize(objective, np.log(first), jac=True, bounds=[(-limit, limit)] * len(first), options=options)
        self._check_maximum(at(found.x), noise)
        return at(found.x)

    def _check_maximum(self, at: Hyperparameters, noise: bool) -> None:
        """Check that γ = δ Σ θ² and S/σ² + T Σ γ = K: an evidence that rises for ever becomes flat, these differ."""
        slopes, to_noise = self.derivative(at)
        gamma = self.effective(at)
        groups = {"all parameters": list(slopes)} if at.shared else {name: [name] for name in slopes}
        for name, group in groups.items():
            slope, most = sum(slopes[each] for each in group), sum(gamma[each] for each in group)
            if abs(slope) > TOLERANCE * abs(most):
                side = "up" if slope > 0 else "down"
                raise RuntimeError(
                    f"optimize_prior: found no maximum of the evidence; it rises from a prior precision of "
                    f"{at.precision[group[0]]:.3g} {side}wards, for {name} (zeros have no scale)"
                )
        if noise and abs(to_noise) > TOLERANCE * self.outputs:
            raise RuntimeError(
                f"optimize_prior: found no maximum of the evidence in the noise variance, at {at.noise_variance:.3g} "
                "(targets that are met exactly have no noise)"
            )
