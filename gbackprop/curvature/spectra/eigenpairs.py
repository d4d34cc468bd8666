"""Eigenvalues and eigenvectors of the GGN from the Gram matrix of its columns: no matrix of the parameters' size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.base.checks import batch_of, positive
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import EXACT, GRADIENT, Signals, Stack
from gbackprop.engine.blocks import check_pairs
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.losses.base import Loss
from gbackprop.plain.branching import Arriving
from gbackprop.plain.plan import Plan, make_plan
from gbackprop.plain.reference import GraphSweep
from gbackprop.quantities.base import Statistic
from gbackprop.quantities.gram import GramGGN


@dataclass(frozen=True)
class Eigenpairs:
    """The largest eigenvalues of the GGN of L = R Σₙ ℓₙ, and what the samples give along their eigenvectors.

    Attributes
    ----------
    values : ndarray, shape (K,)
        λₖ, from the largest on.
    vectors : dict of str to ndarray, shape (K, *p)
        eₖ by parameter name; over all parameters together its length is 1.
    gradients : ndarray, shape (N, K)
        γₙₖ = ∇ℓₙᵀ eₖ, free of R: R Σₙ γₙₖ is the derivative of L along eₖ.
    curvatures : ndarray, shape (N, K)
        λₙₖ = eₖᵀ Jₙᵀ Hₙ Jₙ eₖ, free of R: R Σₙ λₙₖ = λₖ.
    factor : float
        R.
    """

    values: Array
    vectors: dict[str, Array]
    gradients: Array
    curvatures: Array
    factor: float


def ggn_eigenpairs(network: Layer, loss: Loss, x: Array, y: Array, k: int | None = None) -> Eigenpairs:
    """Compute eigenvalues and eigenvectors of the GGN R Σₙ Jₙᵀ Hₙ Jₙ of all parameters.

    Parameters
    ----------
    network, loss, x, y
        As for `gbackprop.backward`. The whole batch is computed at once.
    k : int, optional
        Most eigenpairs; by default all whose eigenvalue is not 0 up to rounding, of which there are at most N V, with V
        the number of columns of the loss's Hessian.

    Returns
    -------
    Eigenpairs
        On the device and in the dtype of the parameters.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `gbackprop.backward` does; also if all parameters are frozen.
    TooLargeError
        If the Gram matrix does not fit into memory.

    Notes
    -----
    With W the columns √R Jₙᵀ sₙᵥ, the GGN is W Wᵀ. Of an eigenvector u of the Gram matrix Wᵀ W, of length 1 and with
    eigenvalue λ, W u / √λ is one of the GGN. It is Σₙ Jₙᵀ cₙ with cₙ = √R Σᵥ uₙᵥ sₙᵥ / √λ: K further columns that are
    carried back from the loss. Also Wᵀ e = √λ u, which gives the curvatures without any further product.

    Source: Dangel, Tatzel, Hennig 2022 (ViViT: curvature access through the generalized Gauss-Newton's low-rank
    structure).
    """
    if k is not None:
        positive("k", k)
    x = batch_of(network, x)
    with on_device_of(x):
        plan = make_plan(network, loss, x, y, [GramGGN()], None)
        if not plan.parameters:
            raise ValueError("network: expected a parameter that is not frozen, got none")
        check_pairs(plan, x)
        return _eigenpairs(plan, x, y, k)


def _eigenpairs(plan: Plan, x: Array, y: Array, k: int | None) -> Eigenpairs:
    xp, n, factor = array_module(x), len(x), plan.scale.factor
    gram = _Gram(plan)
    output, saved = gram.forward(x)
    gram.backward(output, y, saved)
    products = gram.total.reshape(n, -1, n, gram.total.shape[0] // n)  # [n, v, m, w]; column 0 is the gradient's
    v = products.shape[1] - 1
    pairs = products[:, 1:, :, 1:].reshape(n * v, n * v)
    values, u = xp.linalg.eigh(pairs)
    values, u = values[::-1], u[:, ::-1]
    rank = int((values > values[0] * (len(values) * float(np.finfo(values.dtype).eps))).sum())
    rank = rank if k is None else min(k, rank)
    values, u = values[:rank], u[:, :rank]
    weights = (u / xp.sqrt(values)).reshape(n, v, rank)
    start = gram.loss_columns(EXACT, output, y) * factor**0.5
    combined = xp.einsum("vn...,nvk->kn...", start, weights)
    vectors = _Sums(plan, combined if rank else start[:1])  # as layers need not take no columns at all
    vectors.backward(output, y, saved)
    gradients = products[:, 0, :, 1:].reshape(n, n * v) @ weights.reshape(n * v, rank) / factor
    curvatures = values * (u * u).reshape(n, v, rank).sum(1) / factor
    found = {name: vectors.sums[name][:rank] for name in plan.parameters}
    return Eigenpairs(values, found, gradients, curvatures, factor)


class _Parameterwise(GraphSweep):
    """The plain sweep that hands each parameter's Jacobian and columns to `use`."""

    use: Callable[[str, ParameterJacobian, Arriving], None]

    def reduce_all(self, name: str, jacobian: ParameterJacobian, todo: Sequence[Statistic], arriving: Arriving) -> None:
        self.use(name, jacobian, arriving)


class _Gram(_Parameterwise):
    """The Gram matrix of the gradient and the GGN's columns, added over parameters."""

    total: Any = 0

    def use(self, name: str, jacobian: ParameterJacobian, arriving: Arriving) -> None:
        mat = array_module(arriving[EXACT][0]).concatenate([arriving[GRADIENT][0], arriving[EXACT][0]])
        self.total = self.total + Context(FORMS, Allocator()).reduce(jacobian, GRAM, mat, None)


class _Sums(_Parameterwise):
    """Σₙ Jₙᵀ cₙ of given columns c at the network's output, (K, N, *out), each for itself: (K, *p)."""

    def __init__(self, plan: Plan, columns: Array) -> None:
        super().__init__(plan)
        self.columns = columns
        self.sums: dict[str, Array] = {}

    def start(self, output: Array, target: Array) -> Signals:
        return Signals(Stack(self.columns, ((EXACT, len(self.columns), None, ()),)))

    def use(self, name: str, jacobian: ParameterJacobian, arriving: Arriving) -> None:
        mat, context = arriving[EXACT][0], Context(FORMS, Allocator())
        sums = [context.reduce(jacobian, REDUCTIONS["sum"], mat[i : i + 1], None) for i in range(len(mat))]
        self.sums[name] = array_module(mat).stack(sums)
