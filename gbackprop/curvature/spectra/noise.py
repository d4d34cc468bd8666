"""The spread of the individual gradients of a batch: tests of its size, and the gradient noise scale.

With gₙ = ∇ℓₙ and their mean ḡ over N samples, the estimates of variances below divide by N − 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.quantities.result import Result


@dataclass(frozen=True)
class GradientNoise:
    """Tests of the noise in a batch's mean gradient ḡ, all free of R.

    Attributes
    ----------
    norm : float
        1/(N (N−1)) Σₙ ‖gₙ − ḡ‖² / ‖ḡ‖², the norm test: the squared standard error of ḡ relative to its squared length.
        A batch passes where it is at most θ².
    inner_product : float
        1/(N (N−1)) Σₙ (gₙᵀḡ − ‖ḡ‖²)² / ‖ḡ‖⁴, the inner product test: the part of it along ḡ.
    orthogonality : float
        1/(N (N−1)) Σₙ ‖gₙ − (gₙᵀḡ / ‖ḡ‖²) ḡ‖² / ‖ḡ‖², the orthogonality test: the part of it across ḡ.
    noise_scale : float
        tr Σ / ‖g‖² with the gradients' covariance Σ and the expected gradient g: the number of samples at which the
        variance of ḡ is ‖g‖². ‖ḡ‖² − tr Σ / N estimates ‖g‖² without bias; infinite where that is not positive.
    """

    norm: float
    inner_product: float
    orthogonality: float
    noise_scale: float


def gradient_noise(result: Result) -> GradientNoise:
    """Compute the tests of a batch's gradient noise from the Gram matrix of its individual gradients.

    Parameters
    ----------
    result : Result
        Of `gbackprop.backward` with `GramGradients`, of at least two samples; `Variance` makes small noise exact.

    Returns
    -------
    GradientNoise
        Over all parameters together. Infinite where the mean gradient is 0.

    Raises
    ------
    TypeError, ValueError
        If it is no result, has no `GramGradients`, or is of one sample.

    Notes
    -----
    The row means of the matrix of products R² gₙᵀgₘ are R² gₙᵀḡ, and ‖ḡ‖² is that of the gradient; R cancels.

    Σₙ ‖gₙ − ḡ‖² is Σₙ ‖gₙ‖² − N ‖ḡ‖². Where the gradients are almost equal, that is a small difference of large
    numbers: in float32 `norm` has an error of about 1e-7. A result that has `Variance`, too, gives it to all digits.

    Source: Byrd, Chin, Nocedal, Wu 2012 (norm test); Bollapragada, Byrd, Nocedal 2018 (the other two); McCandlish,
    Kaplan, Amodei 2018 (noise scale); Schneider, Dangel, Hennig 2021 (Cockpit).
    """
    gram = _summed(result)
    n = gram.shape[0]
    with on_device_of(gram):
        along = gram.mean(1)  # gₙᵀ ḡ
        square = _total(value.astype("float64") ** 2 for value in result.gradient.values()) / n**2  # ‖ḡ‖²
        beside = float(((along - square) ** 2).sum())
        if "variance" in result:
            factor: Any = result.scale.factor  # type: ignore[union-attr]
            deviations = n * factor**2 * _total(value.astype("float64") for value in result["variance"].values())
        else:
            deviations = max(float(gram.diagonal().sum()) - n * square, 0.0)
    if square <= 0:
        return GradientNoise(*[float("inf") if deviations > 0 else float("nan")] * 4)
    norm = deviations / (n * (n - 1) * square)
    inner_product = beside / (n * (n - 1) * square**2)
    variance = deviations / (n - 1)  # tr Σ
    length = square - variance / n
    scale = variance / length if length > 0 else float("inf")
    return GradientNoise(norm, inner_product, max(norm - inner_product, 0.0), scale)


def signal_to_noise(result: Result) -> dict[str, Array]:
    """Compute the signal-to-noise ratio ḡ² / Σₙ (gₙ − ḡ)² · N of each entry of each parameter.

    Parameters
    ----------
    result : Result
        Of `gbackprop.backward` with `Variance`, or merged.

    Returns
    -------
    dict of str to ndarray, shape (*p)
        The squared mean gradient over the variance of the individual gradients, free of R; infinite where that is 0,
        and NaN where the mean is 0, too.

    Raises
    ------
    TypeError, ValueError
        If it is no result, or has no `Variance`.
    """
    _check(result, "variance", "Variance")
    found = {}
    for name, variance in result["variance"].items():
        xp = array_module(variance)
        with on_device_of(variance):
            square = (result.gradient[name] / (result.scale.factor * result.scale.batch)) ** 2  # type: ignore[union-attr]
            zero = variance == 0
            ratio = square / xp.where(zero, 1, variance)
            found[name] = xp.where(zero, xp.where(square > 0, xp.inf, xp.nan), ratio).astype(variance.dtype, copy=False)
    return found


def _summed(result: Any) -> Array:
    """Return the Gram matrix over all parameters, in float64."""
    _check(result, "gram_gradients", "GramGradients")
    matrices = list(result["gram_gradients"].values())
    if not matrices or len(matrices[0]) < 2:
        got = f"{len(matrices[0])} sample" if matrices else "no parameter"
        raise ValueError(f"result: expected gradients of at least two samples, got {got}")
    with on_device_of(matrices[0]):
        return sum(matrix.astype("float64") for matrix in matrices)


def _total(values: Iterable[Array]) -> float:
    return sum(float(value.sum()) for value in values)


def _check(result: Any, name: str, kind: str) -> None:
    if not isinstance(result, Result):
        raise TypeError(f"result: expected a Result, got {type(result).__name__}")
    if name not in result:
        raise ValueError(f"result: expected one with {kind}, got {list(result.quantities)}")
