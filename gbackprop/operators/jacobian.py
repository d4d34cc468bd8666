"""The Jacobian of a network's outputs in its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from math import prod
from typing import Any

from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, array_module, device_of, on_device_of
from gbackprop.base.errors import TooLargeError, UnsupportedError
from gbackprop.base.memory import available_memory, size
from gbackprop.calculus.layer import Layer
from gbackprop.engine.memory import result_like
from gbackprop.losses import MSELoss
from gbackprop.operators.base import Operator
from gbackprop.operators.linearized import Linearized
from gbackprop.operators.pieces import Piece, chunks
from gbackprop.operators.vectors import Layout
from gbackprop.plain.plan import Plan, plan_of


class _Jacobian(Operator):
    parts = 1

    def __init__(
        self, network: Layer, data: Any, *, executor: Executor | None = None, wrt: Any = None, training: bool = False
    ) -> None:
        self.wrt, self.training = wrt, training
        self._prepare(network, MSELoss("sum"), data, None, executor)
        self.features = prod(self.plan.output_shape)
        self._shaped(self.like.dtype, (self.count * self.features, self.layout.size))

    def _plan_for(self, first: Plan | None, rng: Any, x: Array, *rest: Array) -> Plan:
        plan = plan_of(self.network, self.loss, x, (), self.training, self.wrt)
        like = next((value for leaf in plan.leaves for value in leaf.layer.parameters.values()), x)
        targets = array_module(x).zeros((len(x), *plan.output_shape), dtype=like.dtype)  # which nothing depends on
        return super()._plan_for(first, rng, x, targets)

    def _part(self, V: Array, rows: Any, columns: Any) -> Array:
        with on_device_of(self.like):
            vectors = self.layout.rows(V)
            tasks = ((piece, vectors) for piece in self._pieces())
            results = list(self.cutter.results(partial(pushed, columns), tasks, len(vectors)))
            return self._warned(array_module(vectors).concatenate(results, axis=1).T)

    def _rpart(self, V: Array, rows: Any, columns: Any) -> Array:
        with on_device_of(self.like):
            tasks = self._with_rows(self.layout.rows(V))
            results = self.cutter.results(partial(pulled, columns), tasks, V.shape[1])
            return self._warned(sum(results, next(results)).T)

    def to_arrays(self) -> dict[str, Array]:
        """Compute the Jacobian of each sample as arrays, by one sweep from unit columns at the outputs.

        Returns
        -------
        dict of str to ndarray, shape (N, C, *p)
            ∂fₙ[c]/∂θ by parameter name; C numbers the entries of an output in row-major order. Row n C + c of the
            matrix has the entries (n, c) of all arrays, one after the other. Of the input "x" it is ∂fₙ[c]/∂xₙ, shape
            (N, C, *in); in the matrix zeros are in the places of other samples.

        Raises
        ------
        ValueError
            If data or parameters have changed since the operator was made.
        TooLargeError
            If the arrays do not fit into memory.
        UnsupportedError
            If samples meet, as in batch normalization in training mode.
        """
        if self.plan.meeting:  # an output depends on all samples, so it has no row of its own sample
            raise UnsupportedError(f"{self.plan.meeting}: samples meet there, so use `to_dense`, or products")
        needed, free = self.shape[0] * self.shape[1] * self.dtype.itemsize, available_memory(device_of(self.like))
        if needed > free:
            raise TooLargeError(f"Jacobian of shape {self.shape}: {size(needed)}, with {size(free)} free")
        with on_device_of(self.like):
            xp = array_module(self.like)
            units = xp.eye(self.features, dtype=self.dtype)
            tasks = ((piece, units) for piece in self._pieces())
            found = list(self.cutter.results(partial(individual, self.layout), tasks, len(units)))
            whole = {name: [each[name] for each in found] for name in self.layout.shapes}
            joined = {name: each[0] if len(each) == 1 else xp.concatenate(each) for name, each in whole.items()}
            return self.layout.named({name: self._warned(each) for name, each in joined.items()})

    def to_dense(self) -> Array:
        """Return the matrix, of the arrays that `to_arrays` gives."""
        if self.plan.meeting:
            return super().to_dense()
        found = self.to_arrays()
        for name in self.layout.own:
            own, (n, *shape) = found[name], self.layout.shapes[name]
            found[name] = array_module(own).zeros((n, own.shape[1], n, *shape), dtype=own.dtype)
            each = array_module(own).arange(n)
            found[name][each, :, each] = own
        arrays = {name: each.reshape(-1, *each.shape[2:]) for name, each in found.items()}
        with on_device_of(self.like):
            return self.layout.join(arrays)

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
    data : ndarray, or iterable of these
        One batch x, or batches that can be gone through again, whose rows follow each other.
    executor, wrt, training
        As for `GGN`, whose attributes, errors and notes apply, too.

    Notes
    -----
    ``J @ v`` takes vectors (D,), matrices (D, K) and dictionaries of directions, and gives (N C,) or (N C, K);
    ``J.T @ w`` takes vectors (N C,) and matrices (N C, K). `to_arrays` computes the matrix by parameter.
    """


def pushed(columns: Layout, at: Linearized, piece: Piece, vectors: Array) -> Array:
    """Compute J v of K vectors over the samples of a piece: ``[K, D] -> [K, n C]``."""
    columns = columns.within(piece.rows)
    parts = [at.push(columns.split(chunk)).reshape(len(chunk), -1) for chunk in chunks(at, vectors)]
    return array_module(vectors).concatenate(parts)


def pulled(columns: Layout, at: Linearized, piece: Piece, vectors: Array) -> Array:
    """Compute Jᵀ w of K vectors over the outputs of a piece: ``[K, n C] -> [K, D]``."""
    parts, columns = [], columns.within(piece.rows)
    for chunk in chunks(at, vectors):
        parts.append(columns.join(at.pull(chunk.reshape(len(chunk), *at.output.shape), set(columns.shapes))))
    return array_module(vectors).concatenate(parts)


def individual(layout: Layout, at: Linearized, piece: Piece, units: Array) -> dict[str, Array]:
    """Compute Jₙᵀ e_c of the samples of a piece and all unit columns: ``[C, C] -> {name: [n, C, *p]}``."""
    n, start = len(at.output), 0
    shapes = {name: shape[1:] if name in layout.own else shape for name, shape in layout.shapes.items()}
    found = {name: result_like(units, (n, len(units), *shape)) for name, shape in shapes.items()}
    for chunk in chunks(at, units):
        seen: set[str] = set()  # a parameter that is used several times has a part at each place
        for leaf, columns in at.sweep(at.each_sample(chunk)):
            for key, name in leaf.parameters.items():
                here = found[name][:, start : start + len(chunk)]
                each = at.jacobians[leaf.position][key].per_sample(columns).swapaxes(0, 1)
                if name in seen:
                    here += each
                else:
                    here[...] = each
                seen.add(name)
        start += len(chunk)
    return found
