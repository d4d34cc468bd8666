"""The Jacobian of a network's outputs in its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from math import prod
from typing import Any

from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.layers.base import Layer
from gbackprop.losses import MSELoss
from gbackprop.operators.base import Operator
from gbackprop.operators.linearized import Linearized
from gbackprop.operators.pieces import Piece, chunks
from gbackprop.operators.vectors import Layout
from gbackprop.plan import Plan
from gbackprop.plan.plan import plan_of


class _Jacobian(Operator):
    parts = 1

    def __init__(self, network: Layer, data: Any, *, executor: Executor | None = None) -> None:
        self._prepare(network, MSELoss("sum"), data, None, executor)
        self.features = prod(self.plan.output_shape)
        self.shape = (self.count * self.features, self.layout.size)

    def _plan_for(self, first: Plan | None, rng: Any, x: Array, *rest: Array) -> Plan:
        plan = plan_of(self.network, self.loss, x, (), False)
        like = next((leaf.layer.parameters[key] for leaf in plan.leaves for key in leaf.parameters), x)
        targets = array_module(x).zeros((len(x), *plan.output_shape), dtype=like.dtype)  # which nothing depends on
        return super()._plan_for(first, rng, x, targets)

    def _matmat(self, V: Array) -> Array:
        with on_device_of(self.layout.like):
            vectors = self.layout.rows(V)
            results = list(self._results(pushed, ((piece, vectors) for piece in self._pieces()), len(vectors)))
            return self._warned(array_module(vectors).concatenate(results, axis=1).T)

    def _rmatmat(self, V: Array) -> Array:
        with on_device_of(self.layout.like):
            results = self._results(pulled, self._with_rows(self.layout.rows(V)), V.shape[1])
            return self._warned(sum(results, next(results)).T)

    def _rmatvec(self, x: Array) -> Array:
        return self._rmatmat(x.reshape(-1, 1))[:, 0]

    def _answer(self, product: Array) -> Array:
        return product

    def _with_rows(self, vectors: Array) -> Iterator[tuple[Piece, Array]]:
        """Yield each piece with the rows of its outputs."""
        start = 0
        for piece in self._pieces():
            stop = start + len(piece.x) * self.features
            yield piece, vectors[:, start:stop]
            start = stop


class Jacobian(_Jacobian, LinearOperator):
    """Jacobian of the network's outputs in all parameters, shape (N C, D) with C numbers in an output.

    Row n C + c is ∂fₙ[c]/∂θ. Scale: 1.

    Parameters
    ----------
    network : Layer
        In evaluation mode.
    data : ndarray, or iterable of these
        One batch x, or batches that can be gone through again, whose rows follow each other.
    executor : concurrent.futures.Executor, optional
        As for `GGN`, whose attributes, errors and notes apply, too.

    Notes
    -----
    ``J @ v`` takes vectors (D,), matrices (D, K) and dictionaries of directions, and gives (N C,) or (N C, K);
    ``J.T @ w`` takes vectors (N C,) and matrices (N C, K).
    """


def pushed(at: Linearized, piece: Piece, vectors: Array, layout: Layout) -> Array:
    """Compute J v of K vectors over the samples of a piece: ``[K, D] -> [K, n C]``."""
    parts = [at.push(layout.split(some)).reshape(len(some), -1) for some in chunks(at, vectors)]
    return array_module(vectors).concatenate(parts)


def pulled(at: Linearized, piece: Piece, vectors: Array, layout: Layout) -> Array:
    """Compute Jᵀ w of K vectors over the outputs of a piece: ``[K, n C] -> [K, D]``."""
    parts = []
    for some in chunks(at, vectors):
        parts.append(layout.join(at.pull(some.reshape(len(some), *at.output.shape), set(layout.shapes))))
    return array_module(vectors).concatenate(parts)
