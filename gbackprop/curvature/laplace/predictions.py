"""The distribution of a network's outputs and targets under a Gaussian posterior of its parameters."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, array_module, like, on_device_of
from gbackprop.base.checks import batch_of, check_flag, generator, positive
from gbackprop.curvature.laplace import likelihoods
from gbackprop.curvature.laplace.arguments import check_joint
from gbackprop.curvature.laplace.evidence import Evidence, Hyperparameters
from gbackprop.curvature.laplace.jacobians import covariance, joint_covariance
from gbackprop.curvature.laplace.likelihoods import Normal
from gbackprop.curvature.laplace.structures import Root
from gbackprop.losses import Loss, MSELoss
from gbackprop.network import Container
from gbackprop.operators import Jacobian


class Predictions:
    """Base class of posteriors: draws and predictions of the network, linearized at θ."""

    loss: Loss
    mean: dict[str, Array]
    evidence: Evidence
    hyperparameters: Hyperparameters
    _network: Container
    _out: tuple[int, ...]

    @property
    def noise_variance(self) -> float | None:
        """σ², or None for classes."""
        return self.hyperparameters.noise_variance if isinstance(self.loss, MSELoss) else None

    def _root(self, transposed: bool = False) -> Root:
        """Return the product of rows with R, or Rᵀ, where R Rᵀ = P⁻¹."""
        at = self.hyperparameters
        return self.evidence.structure.root(self.evidence.weight(at), at.precision, transposed)

    def sample(self, k: int, rng: int | np.random.Generator | None = None) -> dict[str, Array]:
        """Draw parameters from the posterior, θ + R z with R Rᵀ = P⁻¹, z of independent standard normal numbers.

        Parameters
        ----------
        k : int
            K, the number of draws.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        dict of str to ndarray, shape (K, *p)
            In the dtype of the parameters.
        """
        positive("k", k)
        steps = self._steps(k, rng)
        return {name: (value + steps[name]).astype(value.dtype) for name, value in self.mean.items()}

    def _steps(self, k: int, rng: int | np.random.Generator | None) -> dict[str, Array]:
        """Draw θₖ − θ, ``[K, *p]`` of each parameter in float64."""
        source = generator(rng)
        noise = {name: like(source.standard_normal((k, *value.shape)), value) for name, value in self.mean.items()}
        return {name: each.reshape(noise[name].shape) for name, each in self._root(transposed=True)(noise).items()}

    def sample_functions(self, x: Array, k: int, rng: int | np.random.Generator | None = None) -> Array:
        """Draw outputs of the network, linearized at θ: f(x) + J (θₖ − θ) with the draws θₖ of `sample`.

        The same seed gives the same functions at any x, in one call or several.

        Parameters
        ----------
        x : ndarray, shape (N, *in)
        k : int
            K, the number of functions.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        ndarray, shape (K, N, *out)
            In the dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If `k` is no positive integer, or x does not fit the network.

        Notes
        -----
        Memory: K vectors of all parameters beside the result.
        """
        positive("k", k)
        x = batch_of(self._network, x)
        output, steps = self._network(x), self._steps(k, rng)
        operator = Jacobian(self._network, x)
        with on_device_of(output):
            xp, dtype = array_module(output), output.dtype
            rows = [steps[name].reshape(k, -1).astype(dtype) for name in operator.layout.shapes]
            changes = (operator @ xp.concatenate(rows, axis=1).T).T
            return output + changes.reshape(k, *output.shape)

    def functional(self, x: Array, joint: bool = False) -> Normal:
        """Compute the posterior of the outputs of the network, linearized at θ: N(f, J P⁻¹ Jᵀ).

        Parameters
        ----------
        x : ndarray, shape (N, *in)
        joint : bool
            Whether the Gaussian is that of all samples together, rather than one for each.

        Returns
        -------
        Normal
            ``mean`` (N, *out), the network's output, and ``covariance`` (N, C, C), or (N, C, N, C) of all samples
            together, in the dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If `joint` is no bool, or x does not fit the network.
        TooLargeError
            If the covariance of all samples does not fit into memory.

        Notes
        -----
        Jacobians exist for a few samples at a time. With `joint` and more samples than that, they are computed again
        for each pair of slices.
        """
        check_flag("joint", joint)
        x = batch_of(self._network, x)
        output = self._network(x)
        if joint:
            check_joint(output)
        with on_device_of(output):
            compute = joint_covariance if joint else covariance
            found = compute(self._network, x, output, sum(self.evidence.sizes.values()), self._root())
            return Normal(output, found.astype(output.dtype))

    def predict(
        self,
        x: Array,
        method: Literal["probit", "mc"] = "probit",
        samples: int = 1000,
        rng: int | np.random.Generator | None = None,
    ) -> Any:
        """Compute the predictive distribution of the targets, with the network linearized at θ.

        Parameters
        ----------
        x : ndarray, shape (N, *in)
        method : {"probit", "mc"}
            For classes: MacKay's approximation, or the mean over draws of the outputs.
        samples : int
            The number of draws.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        ndarray, shape (N, C), or Normal
            Probabilities of the classes, or of y = 1 for each output with `BCEWithLogitsLoss`; for `MSELoss` the
            Gaussian of y, N(f, J P⁻¹ Jᵀ + σ² I), which is exact for the linearized network.

        Raises
        ------
        ValueError
            If `method` is another, or outputs have other axes than (N, C).
        """
        if method not in ("probit", "mc"):
            raise ValueError(f"method: expected 'probit' or 'mc', got {method!r}")
        positive("samples", samples)
        if len(self._out) != 1 and not isinstance(self.loss, MSELoss):
            raise ValueError(f"network: expected outputs of shape (N, C) to predict classes, got {('N', *self._out)}")
        source, (mean, spread) = generator(rng), self.functional(x)
        if isinstance(self.loss, MSELoss):
            with on_device_of(mean):
                noise = array_module(mean).eye(spread.shape[-1], dtype=mean.dtype) * self.noise_variance
                return Normal(mean, spread + noise)
        if method == "probit":
            return likelihoods.probit(self.loss, mean, spread)
        wide = mean.astype("float64"), spread.astype("float64")
        return likelihoods.sampled(self.loss, *wide, samples, source).astype(mean.dtype)
