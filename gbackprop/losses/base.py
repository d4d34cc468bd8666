"""The protocol of losses: L = R Σₙ ℓₙ with R = 1/N ("mean", unless targets have weights) or 1 ("sum").

All methods but `value` are per sample and free of R: the sweep multiplies by R, once, so that blocks of a batch add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Any, ClassVar, Literal

import numpy as np

from gbackprop.array import Array, all_finite, array_module, device_of, is_array, like, on_device_of
from gbackprop.base.checks import Constructed, check_floats, check_same, check_within, generator, kind_of, positive
from gbackprop.calculus.layer import Shape
from gbackprop.losses.checks import no_draws

ALL = slice(None)


class Loss(Constructed):
    """Base class of losses.

    Parameters
    ----------
    reduction : {"mean", "sum"}
        Whether L is the mean or the sum of the samples' losses ℓₙ.
    """

    formulas: Mapping[str, str] = {}
    """ℓₙ of outputs fⱼ as text, "values", its "gradients" in fⱼ, "hessian" in fᵢ and fⱼ; see `testing.certify`."""

    hint: ClassVar[str] = ""
    """A hint that a message adds where targets have the outputs' shape, and should not."""

    probabilities: ClassVar[bool] = False
    """True if targets may also be floats of the outputs' shape, beside those of `target_shape`."""

    counts: ClassVar[bool] = False
    """True if targets are counts y, and `values` lack log y!: `check_loss` takes exp(−ℓ/c)/y! for their likelihood."""

    domain: tuple[float, float] = (-inf, inf)
    """The outputs at which ℓₙ is defined, from the least to the largest; others are an error: see `check_output`."""

    ends: bool = True
    """True if the ends of `domain` belong to it."""

    finite_range: tuple[float, float] = (-1e4, 1e4)
    """The least and the largest output of `domain` at which everything must be finite; `check_loss` asks."""

    undrawn: str = ""
    """Why no pseudo-targets, drawn or given, have the loss's Hessian as the covariance of their gradients.

    A loss that has neither `noise` nor `pseudo_targets` has no draws either, and need not say so.
    """

    remade = True

    weighted: bool = False
    """True if ℓₙ has weights that its likelihood does not have: see `unweighted`."""

    plain: Loss | None = None
    """The loss that the user gave, where this is that loss with the weights of a call's samples."""

    def __init__(self, reduction: Literal["mean", "sum"] = "mean") -> None:
        if not isinstance(reduction, str) or reduction not in ("mean", "sum"):
            raise ValueError(f"{type(self).__name__}, reduction: expected 'mean' or 'sum', got {reduction!r}")
        self.reduction = reduction

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self.reduction), *self.describe()])})"

    def describe(self) -> list[str]:
        """Return the options that are not the default, as text."""
        return []

    def factor(self, batch: int, target: Array) -> float:
        """Return R for a batch of N samples with targets (N, ...), already checked.

        It is 1 for "sum" and 1/N for "mean". A loss that is `weighted` may divide by the sum of its targets' weights,
        which `check_loss` takes to be the sum of what each sample gives alone. Batches are merged by it: an R that
        does not add up so is a ValueError at the first call.
        """
        return 1 / batch if self.reduction == "mean" else 1.0

    def value(self, output: Array, target: Array) -> Array:
        """L = R Σₙ ℓₙ, a scalar. A loss cannot have another: a sweep adds up R ℓₙ.

        Parameters
        ----------
        output : ndarray, shape (N, *out)
        target : ndarray, shape (N, ...)

        Raises
        ------
        TypeError, ValueError
            If output and target do not fit together, or outputs are outside of `domain`.
        """
        check_floats("output", output)
        self.check_target("target", target, output)
        self.check_output(output)
        with on_device_of(output):
            return self.factor(output.shape[0], target) * self.values(output, target).sum()

    __call__ = value

    # ------------------------------------------------------------------------------------------------- to be written

    def values(self, output: Array, target: Array) -> Array:
        """ℓₙ, shape (N)."""
        raise NotImplementedError(f"{type(self).__name__} has no values")

    def gradients(self, output: Array, target: Array) -> Array:
        """∇_f ℓₙ, shape (N, *out)."""
        raise NotImplementedError(f"{type(self).__name__} has no gradients")

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        """Columns of Sₙ with Sₙ Sₙᵀ = ∇²_f ℓₙ, shape (V, N, *out)."""
        raise NotImplementedError(f"{type(self).__name__} has no hessian_sqrt")

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the random numbers of `pseudo_targets` for outputs (N, *out): a host array, shape (M, N, ...)."""
        if not self.undrawn and type(self).pseudo_targets is not Loss.pseudo_targets:
            raise NotImplementedError(f"{type(self).__name__} has no noise")
        raise no_draws(self)

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        """Compute targets ŷₙₘ from the likelihood with negative logarithm ℓ'ₙ, shape (M, N, ...)."""
        raise NotImplementedError(f"{type(self).__name__} has no pseudo_targets")

    def target_shape(self, batch_shape: Shape) -> Shape:
        """Return the shape of targets for outputs (N, *out); raise a ValueError if the loss cannot accept these."""
        raise NotImplementedError(f"{type(self).__name__} has no target_shape")

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        """Check the dtype and the numbers of `target`, whose shape is already checked; raise an error otherwise."""
        raise NotImplementedError(f"{type(self).__name__} has no check_values")

    # ------------------------------------------------------------------------------------------------------- derived

    def columns(self, shape: Shape) -> int:
        """Return the number of columns of `hessian_sqrt` for outputs of feature shape `shape`."""
        return prod(shape)

    def summed_weight(self, shape: Shape) -> float:
        """Return c, where ℓₙ = c ℓ'ₙ and ℓ'ₙ is the negative log-likelihood, for outputs of feature shape `shape`."""
        return 1.0

    def unweighted(self) -> Loss:
        """Return the loss c ℓ'ₙ, without weights: pseudo-targets follow its likelihood."""
        return self

    def curvature_weights(self, output: Array, target: Array) -> Any:
        """v with ∇²_f ℓₙ = v c ∇²_f ℓ'ₙ, where targets have weights; it broadcasts to (N, *out)."""
        return 1.0

    def hessian_sqrt_mc(self, output: Array, targets: Array, target: Array) -> Array:
        """sₙₘ/√M with E[s sᵀ] = ∇²_f ℓₙ, from the gradients at pseudo-targets, shape (M, N, *out).

        With ℓ = c ℓ', s = √c ∇ℓ' = ∇ℓ/√c: the covariance of the gradients of a negative log-likelihood is its
        expected Hessian. Weights v of the true targets multiply that Hessian, and √v multiplies s.

        Parameters
        ----------
        output : ndarray, shape (N, *out)
        targets : ndarray, shape (M, N, ...)
            Pseudo-targets.
        target : ndarray, shape (N, ...)
            True targets.

        Source: paper, appendix A.2 (Monte-Carlo estimate of the loss's Hessian).
        """
        scale = (self.summed_weight(output.shape[1:]) * targets.shape[0]) ** -0.5
        xp, plain = array_module(output), self.unweighted() if self.weighted else self
        if self.weighted or target.shape != targets.shape[1:]:  # probabilities, drawn as labels, have weights
            scale = scale * xp.sqrt(self.curvature_weights(output, target))
        return xp.stack([plain.gradients(output, drawn) for drawn in targets]) * scale

    def hessian_sum(self, output: Array, target: Array) -> Array:
        """Σₙ ∇²_f ℓₙ, shape (D, D) with D = ∏ out."""
        s = self.hessian_sqrt(output, target).reshape(-1, prod(output.shape[1:]))
        return s.T @ s

    def draw(self, output: Array, mc_samples: int = 1, rng: int | np.random.Generator | None = None) -> Array:
        """Draw pseudo-targets from the model's own likelihood.

        Parameters
        ----------
        output : ndarray, shape (N, *out)
        mc_samples : int
            M.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        ndarray, shape (M, N, ...)
            Targets as `value` takes them, on the device of `output`.

        Raises
        ------
        TypeError, ValueError
            If the loss cannot take such outputs, they are not finite, or `mc_samples` is not a positive integer.
        UnsupportedError
            If no draws have the loss's Hessian as their covariance.
        """
        positive("mc_samples", mc_samples)
        check_floats("output", output)
        self.checked_target_shape(output.shape)
        if not all_finite(output):
            raise ValueError("output: expected finite numbers, got NaN or infinity")
        self.check_output(output)
        noise = self.noise(output.shape, mc_samples, generator(rng))
        with on_device_of(output):
            return self.pseudo_targets(output, like(noise, output))

    def check_output(self, output: Array) -> None:
        """Check that no output is outside of `domain`; NaN passes, as other numbers that overflowed do.

        Raises
        ------
        ValueError
            The message names the loss, its domain, and the least or the largest output.
        """
        if self.domain != (-inf, inf):
            check_within(f"output given to {self!r}", output, self.domain, self.ends)

    def checked_target_shape(self, batch_shape: Shape) -> Shape:
        """Return `target_shape`, with the loss named in its error; samples without outputs are an error, too."""
        try:
            if 0 in batch_shape[1:]:
                raise ValueError(f"expected outputs with at least one number a sample, got {batch_shape}")
            return self.target_shape(batch_shape)
        except ValueError as error:
            raise ValueError(f"{self!r}: {error}") from None

    def check_target(self, name: str, target: Any, output: Array, batch_shape: Shape | None = None) -> None:
        """Check `target` against outputs of shape `batch_shape`, and of the dtype and device of `output`.

        Raises
        ------
        TypeError, ValueError
            The message names the argument, what was expected and what was given.
        """
        where = f"{name} of {type(self).__name__}({self.reduction!r})"
        shape = output.shape if batch_shape is None else batch_shape
        expected = self.checked_target_shape(shape)
        if not is_array(target):
            raise TypeError(f"{where}: expected a NumPy or CuPy array, got {kind_of(target)}")
        expected = shape if self.probabilities and (target.dtype.kind, target.ndim) == ("f", len(shape)) else expected
        if target.shape[:1] != expected[:1]:
            raise ValueError(f"{where}: expected {expected[0]} samples as in the batch, got shape {target.shape}")
        if target.shape != expected:
            hint = self.hint if target.shape == shape else ""
            raise ValueError(f"{where}: expected shape {expected} for outputs {shape}, got {target.shape}{hint}")
        if device_of(target) != device_of(output):
            check_same(where, target, "x", output, dtype=False)
        self.check_values(where, target, shape, output)
