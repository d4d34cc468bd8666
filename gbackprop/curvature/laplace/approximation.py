"""The Laplace approximation of the posterior over a network's parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import on_device_of
from gbackprop.base.checks import Constructed, check_flag
from gbackprop.curvature.data.accumulation import accumulate
from gbackprop.curvature.laplace.arguments import (
    batches_of,
    check_full,
    check_joint_prior,
    checked_hyperparameters,
    pairs,
    quantities_of,
    restricted,
)
from gbackprop.curvature.laplace.evidence import Evidence, Hyperparameters
from gbackprop.curvature.laplace.likelihoods import check_loss
from gbackprop.curvature.laplace.predictions import Predictions
from gbackprop.curvature.laplace.structures import Diagonal, Full, Structure, of_blocks
from gbackprop.losses import Loss
from gbackprop.network import Container
from gbackprop.operators import GGN
from gbackprop.quantities import Quantity

Prior = float | Mapping[str, float]
"""The prior's precision, of all parameters or by parameter name."""


class Laplace(Predictions, Constructed):
    """A Gaussian posterior N(θ, P⁻¹) over parameters around their trained values θ, and the evidence.

    P = b H + Δ: H is the GGN of Σₙ ℓ'ₙ, the SUM over the data set of the loss without R and c, b = 1/T for the
    cross-entropies and 1/(2σ²T) for the squared error, Δ the prior's precision: N(0, Δ⁻¹) over the parameters. θ is
    meant to be the maximum of the posterior, where training with the objective L + R c/(2b) Σ δ θ² ends; `decrement`
    says how far it is from there. c is the constant in ℓ = c ℓ' of the loss: 1/C for `MSELoss("mean")` with C outputs.

    Parameters
    ----------
    network : Container
        It is copied, so that what happens to it later changes nothing here. Layers such as Dropout are not active.
        Frozen parameters have no uncertainty.
    loss : CrossEntropyLoss, BCEWithLogitsLoss or MSELoss
        Without weights. "mean" and "sum" give the same posterior. Probabilities as targets count as parts of labels.
    data : tuple of ndarray, or iterable of these
        One batch (x, y), or batches: the whole training set. For "full" they are gone through twice.
    structure : {"full", "kron", "diag"}
        "full": the whole GGN, D × D numbers. "kron": a block in Kronecker form for each parameter. "diag": the GGN's
        diagonal.
    curvature : Quantity, optional
        For "kron" ``KFAC(fisher="exact", sharing="expand")`` (the default), `KFAC` with other arguments, or `KFLR()`;
        for "diag" `DiagGGN()` (the default) or `DiagGGNMC`. With `joint_bias`, a weight and its bias have one block and
        one precision.
    parameters : "last" or sequence of str, optional
        The parameters that have uncertainty: those of the last layer in `network.parameters`, or of layers and
        parameters by name. All by default.
    prior_precision : float or dict of str to float
        δ > 0, one number or one for each parameter; with `joint_bias` one number, and `with_prior` takes one for each
        block.
    noise_variance : float, optional
        σ² of yₙ ~ N(fₙ, σ² I), for `MSELoss` alone. ½ by default: the likelihood whose −log is ‖f − y‖² + const.
    temperature : float
        T > 0: the likelihood counts as p(D | θ)^(1/T).
    rng : None, int or numpy.random.Generator
        Source of the draws of `KFAC` and `DiagGGNMC`.

    Attributes
    ----------
    mean : dict of str to ndarray, shape (*p)
        θ.
    hyperparameters : Hyperparameters
        The prior's precision of each parameter, the noise variance and the temperature.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, the loss has no known likelihood, or a batch does not fit.
    TooLargeError
        If the matrices of "full" do not fit into memory.
    UnsupportedError
        If a layer cannot give the curvature.

    Notes
    -----
    An object does not change: `with_prior` and `optimize_prior` return others, which share the curvature. The default
    of "kron" is the convention whose posterior is nearest to that of "full" on most of the networks of
    ``docs/derivations/laplace.md``; all values of `sharing` are the same for a weight that is used at one position.

    Source: MacKay 1992; Ritter, Botev, Barber 2018 (Kronecker blocks); Daxberger et al. 2021 (the structures).
    """

    def __init__(
        self,
        network: Container,
        loss: Loss,
        data: Any,
        structure: Literal["full", "kron", "diag"] = "kron",
        *,
        curvature: Quantity | None = None,
        parameters: Literal["last"] | Sequence[str] | None = None,
        prior_precision: Prior = 1.0,
        noise_variance: float | None = None,
        temperature: float = 1.0,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        if not isinstance(network, Container):
            raise TypeError(f"network: expected a network of layers, such as gb.Sequential, got {network!r}")
        check_loss(loss)
        asked = quantities_of(structure, curvature)
        self.loss, self._network = loss, restricted(network, parameters)
        self.mean = {name: value.copy() for name, value in self._network.trainable.items()}
        check_joint_prior(asked, prior_precision)
        given = loss, prior_precision, noise_variance, temperature
        checked_hyperparameters(list(self.mean), *given)
        if not asked:
            check_full(self.mean)
        batches = batches_of(data)
        operator = None if asked else GGN(self._network, loss, batches)
        found = accumulate(self._network, loss, pairs(batches), *asked, rng=rng, outputs=False)
        assert found.scale is not None
        self._out = found.output.shape[1:]
        scale = 1 / (found.scale.factor * loss.summed_weight(self._out))  # 1/(R c)
        # in C's order, as they come from a file: sums in another one have other bits
        self._slope = {name: value.astype("float64", order="C") * scale for name, value in found.gradient.items()}
        if operator is None:
            curved: Structure = of_blocks(found[asked[0]], scale)
        else:
            with on_device_of(found.output):
                curved = Full(operator.layout.shapes, operator.to_dense().astype("float64", order="C") * scale)
        total, outputs = float(found.loss) * scale, found.scale.batch * prod(self._out)
        self.evidence = Evidence.around(self.mean, loss, total, outputs, curved)
        self.hyperparameters = checked_hyperparameters(list(self.evidence.sizes), *given)

    def __repr__(self) -> str:
        """Return loss, structure and hyperparameters as the constructor takes them, and the number of parameters."""
        kinds = {Full: "full", Diagonal: "diag"}
        words = [repr(self.loss), repr(kinds.get(type(self.evidence.structure), "kron"))]
        words += [f"prior_precision={self.prior_precision!r}"]
        words += [f"noise_variance={self.noise_variance!r}"] if self.noise_variance is not None else []
        words += [f"temperature={self.hyperparameters.temperature!r}"]
        numbers = sum(value.size for value in self.mean.values())
        return f"Laplace({', '.join(words)}) for {len(self.mean)} parameters of {numbers:,} numbers"

    # -------------------------------------------------------------------------------------------------------- evidence

    @property
    def prior_precision(self) -> Prior:
        """δ, in the form in which it was given."""
        precision = self.hyperparameters.precision
        return next(iter(precision.values())) if self.hyperparameters.shared else dict(precision)

    def log_marginal_likelihood(self) -> float:
        """Compute the evidence, log p(D) = 1/T log p(D | θ) − ½ Σ δ θ² + ½ Σ log δ − ½ log det P.

        All constants are in it. It is exact where the outputs are affine in the parameters, the loss is `MSELoss`, the
        structure has no less than the GGN has, and θ is the maximum of the posterior.
        """
        return self.evidence.value(self.hyperparameters)

    def effective_parameters(self) -> dict[str, float]:
        """Compute γ = d − δ tr P⁻¹, the number of the d entries of each parameter that the data determines.

        With `joint_bias` those of a weight and its bias together, by the weight's name.
        """
        return self.evidence.effective(self.hyperparameters)

    def decrement(self) -> float:
        """Compute ½ gᵀ P⁻¹ g with g the gradient of the posterior's −log at θ: 0 at its maximum.

        The logarithm of the posterior, at second order, is higher by this number at its maximum than at θ, and the
        evidence is too small by it.
        """
        b, delta = self.evidence.weight(self.hyperparameters), self.hyperparameters.precision_of
        prior = {name: delta(name) * value.astype("float64") for name, value in self.mean.items()}
        rows = {name: (b * self._slope[name] + prior[name])[None] for name in prior}
        return sum(float((each**2).sum()) for each in self._root()(rows).values()) / 2

    def with_prior(
        self,
        prior_precision: Prior | None = None,
        noise_variance: float | None = None,
        temperature: float | None = None,
    ) -> Laplace:
        """Return the approximation with other hyperparameters, at the same θ; None leaves one as it is."""
        prior = self.prior_precision if prior_precision is None else prior_precision
        variance = self.noise_variance if noise_variance is None else noise_variance
        cooled = self.hyperparameters.temperature if temperature is None else temperature
        return self._with(checked_hyperparameters(list(self.evidence.sizes), self.loss, prior, variance, cooled))

    def optimize_prior(self, noise_variance: bool = False) -> Laplace:
        """Return the approximation with the prior precision, one or one for each, of the largest evidence at this θ.

        Parameters
        ----------
        noise_variance : bool
            Whether σ² is varied, too, for `MSELoss`.

        Raises
        ------
        ValueError
            If there is no noise to vary.
        RuntimeError
            If the evidence has no maximum.

        Notes
        -----
        θ is not trained again: a cycle of `optimize_prior` and training is MacKay's. Eigenvalues are computed once; for
        "full" with one precision for each parameter, once in each evaluation.
        """
        if check_flag("noise_variance", noise_variance) and self.noise_variance is None:
            raise ValueError(f"noise_variance: expected MSELoss, whose targets have noise, got {self.loss!r}")
        return self._with(self.evidence.maximized(self.hyperparameters, bool(noise_variance)))

    def _with(self, hyperparameters: Hyperparameters) -> Laplace:
        """Return the approximation with these hyperparameters, at the same θ and with the same curvature."""
        other = copy.copy(self)
        other.hyperparameters = hyperparameters
        return other
