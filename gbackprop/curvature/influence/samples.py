"""Effects of removing a training sample, from the curvature at the minimum, without training again.

The objective is J(θ) = R Σₙ ℓₙ + ½ λ ‖θ‖² at its minimum θ; R stays that of all samples when one is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, device_of, is_array
from gbackprop.base.checks import batch_of, check_flag, number, positive
from gbackprop.calculus.layer import Layer
from gbackprop.engine.backward import backward
from gbackprop.losses import Loss
from gbackprop.operators import GGN, Hessian, Jacobian
from gbackprop.operators.inverses import conjugate_gradients

CURVATURES: dict[str, type] = {"hessian": Hessian, "ggn": GGN}


def on_loss(
    network: Layer,
    loss: Loss,
    data: tuple[Array, Array],
    test: tuple[Array, Array],
    *,
    damping: float = 0.0,
    curvature: Literal["hessian", "ggn"] = "hessian",
    rtol: float = 1e-8,
    maxiter: int | None = None,
) -> Array:
    """Compute the change of the objective of test samples when each training sample is removed, to first order.

    Scale: R ∇L_testᵀ (C + λ I)⁻¹ ∇ℓₙ with C the Hessian or the GGN of L = R Σₙ ℓₙ. A positive number says that the
    sample helps: without it the test loss is larger.

    Parameters
    ----------
    network : Layer
        At the minimum of R Σₙ ℓₙ + ½ λ ‖θ‖², in evaluation mode.
    loss : Loss
        Without weights. L_test is its value on all test samples.
    data, test : tuple of ndarray
        Training samples (x, y), N of them, and test samples.
    damping : float
        λ, not negative: the strength of the L2 regularization, or more, to make the matrix positive definite.
    curvature : {"hessian", "ggn"}
        C.
    rtol : float
        The residual at which SciPy's `cg` stops, relative to the right-hand side; a solution's is at most twice it.
    maxiter : int, optional
        Most steps of `cg`.

    Returns
    -------
    ndarray, shape (N,)

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        If an argument is wrong; as `gbackprop.operators.Hessian`.
    RuntimeError
        If the residual of a system is above 2 `rtol` and 32 roundings after `cg`, its solution s of (C + λ I) s = b has
        not bᵀs > 0 (the matrix is not positive definite then; not each such matrix is found), or a step is not finite.

    Notes
    -----
    One system is solved, and the N numbers are one product with the Jacobian: ∇ℓₙᵀ s = rₙᵀ (Jₙ s), r = ∇_f ℓ.

    Source: Koh & Liang 2017.
    """
    curved = _Curved(network, loss, data, damping, curvature, rtol, maxiter)
    if not (isinstance(test, tuple) and len(test) == 2):
        raise TypeError(f"test: expected one batch (x, y), got {type(test).__name__}")
    try:
        gradient = backward(network, loss, *test).gradient
    except (TypeError, ValueError) as error:
        raise type(error)(f"test: {error}") from None
    step = curved.solve(curved.operator.pack(gradient), "the gradient of the test loss")
    outputs = (curved.jacobian @ step).reshape(len(curved.gradients), -1)
    return curved.factor * (curved.gradients * outputs).sum(1)


def removal(
    network: Layer,
    loss: Loss,
    data: tuple[Array, Array],
    samples: Sequence[int],
    *,
    corrected: bool = True,
    damping: float = 0.0,
    curvature: Literal["hessian", "ggn"] = "ggn",
    rtol: float = 1e-8,
    maxiter: int | None = None,
) -> dict[str, Array]:
    """Compute the change of the parameters when one training sample is removed, for each of some samples.

    Scale: (C + λ I)⁻¹ R ∇ℓₙ, or corrected (C + λ I − R Jₙᵀ ∇²ℓₙ Jₙ)⁻¹ R ∇ℓₙ: a step of Newton's method on the
    objective without the sample, whose own GGN is not in the matrix any more. For outputs that are affine in the
    parameters and the squared error (ridge regression) that is the exact change.

    Parameters
    ----------
    network, loss, data, damping, curvature, rtol, maxiter
        As for `on_loss`.
    samples : sequence of int
        K numbers of training samples.
    corrected : bool
        Whether the sample's own curvature is taken out.

    Returns
    -------
    dict of str to ndarray, shape (K, *p)
        θ without sample n, minus θ, by parameter name.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, RuntimeError
        As for `on_loss`.

    Notes
    -----
    Each sample takes one system, or corrected C of them, for C outputs: with Gₙ = Jₙ (C + λ I)⁻¹ Jₙᵀ and
    Λₙ = R ∇²ℓₙ it is (C + λ I)⁻¹ Jₙᵀ (I − Λₙ Gₙ)⁻¹ R rₙ (Woodbury; for one output Sherman & Morrison's 1/(1 − hₙ)).

    Source: Cook & Weisberg 1982 (leave-one-out in regressions); Koh & Liang 2017.
    """
    curved = _Curved(network, loss, data, damping, curvature, rtol, maxiter)
    check_flag("corrected", corrected)
    n = len(curved.gradients)
    if not isinstance(samples, Iterable):
        raise TypeError(f"samples: expected a sequence of numbers of training samples, got {samples!r}")
    chosen = [positive(f"samples[{i}]", value, 0) for i, value in enumerate(samples)]
    if not chosen:
        raise ValueError(f"samples: expected at least one number from 0 to {n - 1}, got {chosen}")
    for i, value in enumerate(chosen):
        if value >= n:
            raise ValueError(f"samples[{i}]: expected a number from 0 to {n - 1}, got {value}")
    steps = [curved.without(i) if corrected else curved.toward(i) for i in chosen]
    return curved.operator.unpack(np.stack(steps, axis=1))


class _Curved:
    """The matrix C + λ I, its solutions, and the changes of its minimum without a sample."""

    def __init__(
        self, network: Any, loss: Any, data: Any, damping: Any, curvature: Any, rtol: Any, maxiter: Any
    ) -> None:
        if curvature not in ("hessian", "ggn"):
            raise ValueError(f"curvature: expected 'hessian' or 'ggn', got {curvature!r}")
        damping, self.rtol = number("damping", damping, least=0), number("rtol", rtol, above=0, below=1)
        self.maxiter = None if maxiter is None else positive("maxiter", maxiter)
        data = (batch_of(network, data[0]), data[1]) if isinstance(data, tuple) and len(data) == 2 else data
        if not (isinstance(data, tuple) and len(data) == 2 and all(map(is_array, data))):
            raise TypeError(f"data: expected one batch (x, y), got {type(data).__name__}")
        if device_of(data[0]) != "cpu":
            raise TypeError(f"data: expected arrays on the cpu, where SciPy's cg computes, got {device_of(data[0])}")
        if isinstance(loss, Loss) and loss.weighted:
            raise ValueError(f"loss: expected one without weights, as removing a sample would change R, got {loss!r}")
        self.loss, (self.x, self.y) = loss, data
        self.output = backward(network, loss, self.x, self.y).output
        self.operator = CURVATURES[curvature](network, loss, data)
        self.matrix = self.operator.damped(damping)
        self.jacobian, self.factor = Jacobian(network, self.x), self.operator.factor
        self.gradients = loss.gradients(self.output, self.y).reshape(len(self.x), -1)

    def solve(self, b: np.ndarray, what: str) -> np.ndarray:
        """Solve (C + λ I) s = b for a vector, or for each column of a matrix."""
        columns = b.reshape(len(b), -1)
        try:
            found = conjugate_gradients(self.matrix, columns, self.rtol, self.maxiter)
        except np.linalg.LinAlgError as error:
            text = str(error).replace("the matrix", f"the damped {type(self.operator).__name__}")
            raise RuntimeError(text) from None
        if not found.converged(self.rtol):
            raise RuntimeError(
                f"cg: for {what} the residual is {found.residual:.1e} after {found.steps} "
                f"steps, expected {self.rtol:.1e} ({found.why})"
            )
        return found.x.reshape(b.shape)

    def toward(self, n: int) -> np.ndarray:
        """Compute (C + λ I)⁻¹ R ∇ℓₙ."""
        return self.solve(self._pulled(n, self.gradients[n]) * self.factor, f"sample {n}")

    def without(self, n: int) -> np.ndarray:
        """Compute (C + λ I)⁻¹ Jₙᵀ (I − Λₙ Gₙ)⁻¹ R rₙ."""
        rows = slice(n, n + 1)
        root = self.loss.hessian_sqrt(self.output[rows], self.y[rows]).reshape(-1, self.gradients.shape[1])
        root = root * self.factor**0.5  # Λ = rootᵀ root
        eye = np.eye(self.gradients.shape[1], dtype=self.output.dtype)
        columns = self.solve(np.stack([self._pulled(n, unit) for unit in eye], axis=1), f"sample {n}")
        outputs = prod(self.output.shape[1:])
        g = (self.jacobian @ columns)[n * outputs : (n + 1) * outputs]
        leverage = float(np.linalg.eigvalsh(root @ g @ root.T).max())
        if leverage > 1 - 10 * self.rtol:
            raise RuntimeError(f"sample {n}: without it the damped matrix is not positive definite: more damping")
        return columns @ np.linalg.solve(eye - root.T @ root @ g, self.factor * self.gradients[n])

    def _pulled(self, n: int, vector: np.ndarray) -> np.ndarray:
        """Compute Jₙᵀ v."""
        whole = np.zeros_like(self.gradients)
        whole[n] = vector
        return self.jacobian.T @ whole.ravel()
