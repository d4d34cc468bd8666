"""The GGN, the Hessian, and the Fisher matrices: symmetric operators over all parameters, summed over samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.base.checks import check_flag, generator, positive
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.engine.blocks import choose_blocks
from gbackprop.engine.forms import FORMS
from gbackprop.engine.forward import output_of
from gbackprop.losses.base import Loss
from gbackprop.operators.base import Operator
from gbackprop.operators.linearized import Directions, Linearized, through
from gbackprop.operators.pieces import Piece, chunks
from gbackprop.operators.second import SecondOrder, lacks_second
from gbackprop.operators.vectors import Layout
from gbackprop.plain.plan import Plan
from gbackprop.plain.support import check_affine
from gbackprop.quantities import DiagGGNMC


class Curvature(Operator):
    """A symmetric matrix R Σₙ Cₙ over all parameters: a subclass defines Σₙ Cₙ V for some samples."""

    symmetric = True

    def __init__(
        self,
        network: Layer,
        loss: Loss,
        data: Any,
        *,
        blocks: bool = False,
        executor: Executor | None = None,
        wrt: str | Sequence[str] | None = None,
        training: bool = False,
    ) -> None:
        self.wrt, self.training = wrt, training
        self._make(network, loss, data, blocks, executor)

    def _make(self, network: Layer, loss: Loss, data: Any, blocks: bool, executor: Any, rng: Any = None) -> None:
        self.blocks = check_flag("blocks", blocks)
        self._prepare(network, loss, data, rng, executor)
        self.rows = self.layout
        self._shaped(self.like.dtype, (self.layout.size, self.layout.size))

    @staticmethod
    def directional(at: Linearized, extra: Array | None, directions: Directions, names: set[str]) -> dict[str, Array]:
        """Compute Σₙ Cₙ V for directions V, in the parameters that are named, without R."""
        raise NotImplementedError

    def _part(self, V: Array, rows: Any, columns: Any) -> Array:
        with on_device_of(self.like):
            vectors = self.layout.rows(V, self.factor)
            product = partial(piece_product, type(self).directional, self.blocks, rows, columns)
            results = self.cutter.results(product, ((piece, vectors) for piece in self._pieces()), len(vectors))
            total = next(results)
            for result in results:  # in the order of the data, whichever is ready first
                total = total + result
            return self._warned(total.T)

    def _rpart(self, V: Array, rows: Any, columns: Any) -> Array:
        return self._part(V, columns, rows)


def piece_product(
    directional: Callable[..., dict[str, Array]],
    blocks: bool,
    rows: Layout,
    columns: Layout,
    at: Linearized,
    piece: Piece,
    vectors: Array,
) -> Array:
    """Compute Σₙ Cₙ v of K vectors over the samples of a piece, from the columns of some parameters to rows of some."""
    rows, columns, parts = rows.within(piece.rows), columns.within(piece.rows), []
    for chunk in chunks(at, vectors):
        directions = columns.split(chunk)
        if blocks:  # a direction in one parameter alone, and what comes back to it
            found = {
                name: directional(at, piece.extra, {name: directions[name]}, {name})[name]
                if name in directions
                else array_module(chunk).zeros((len(chunk), *rows.shape_of(name)), dtype=chunk.dtype)
                for name in rows.shapes
            }
        else:
            found = directional(at, piece.extra, directions, set(rows.shapes))
        parts.append(rows.join(found))
    return parts[0] if len(parts) == 1 else array_module(vectors).concatenate(parts)


class _GGN(Curvature):
    @staticmethod
    def directional(at: Linearized, extra: Array | None, directions: Directions, names: set[str]) -> dict[str, Array]:
        """Σₙ Jᵀ ∇²ℓₙ J V."""
        return at.pull(at.curve(at.push(directions)), names)


class GGN(_GGN, LinearOperator):
    """Generalized Gauss-Newton matrix over all parameters, shape (D, D).

    Scale: R Σₙ Jₙᵀ ∇²ℓₙ Jₙ, R = 1/N over all data or 1, or what the loss says.

    Parameters
    ----------
    network : Layer
    loss : Loss
    data : tuple of ndarray, or iterable of these
        One batch (x, y), or batches that can be gone through again: a list, or an object whose ``__iter__`` begins
        anew. They must be the same at each product, which a checksum verifies.
    blocks : bool
        Whether to take the diagonal blocks alone, one for each parameter; the others are zero.
    executor : concurrent.futures.Executor, optional
        Computes the shares of pieces of the data, in threads or processes. They are added in the order of the data, so
        that the sum is reproducible.
    wrt : str or sequence of str, optional
        The names of the parameters that it is over, by default all that are not frozen; ``"x"`` is the input, with
        shape (N, *in) for all N samples of the data, as in `gbackprop.backward`.
    training : bool
        Whether batch normalization is by the statistics of each batch, as in `gbackprop.backward`; its running
        statistics stay as they are. Layers that draw random numbers, such as Dropout, are refused then.

    Attributes
    ----------
    shape : (int, int)
        (D, D): D counts the parameters that are not frozen, in the order of computation, each in row-major order.
    dtype : dtype
        That of the parameters.

    Raises
    ------
    TypeError, ValueError
        If an argument or a batch is wrong: raised before anything is computed; the message names the batch.
    UnsupportedError
        If a layer cannot give what a product needs; the message names it.

    Notes
    -----
    ``A @ v`` takes vectors (D,), matrices (D, K) and dictionaries {parameter: (*p) or (K, *p)}, and gives the same
    structure; `pack` and `unpack` turn dictionaries into vectors and back. Floats of the other width are converted to
    the operator's dtype. In vectors and matrices, integers and booleans are converted, too, and the two parts of
    complex numbers go through together; dictionaries are of real floats. `damped`, `submatrix` and `inverse` return
    operators with all of this. K columns go through the network together, but no more at a time than have 256 MiB at
    the outputs of all layers. Large batches are cut into pieces of samples, which threads take as in
    `gbackprop.backward`, or the executor. What the forward pass of a single batch saves is stored for the next product,
    if it is at most 256 MiB. The matrix is the one at the parameters' values when it is made: after a change of these,
    a product is an error.
    """


class _Hessian(Curvature):
    @staticmethod
    def directional(at: Linearized, extra: Array | None, directions: Directions, names: set[str]) -> dict[str, Array]:
        """Σₙ ∇²ℓₙ V, forward over reverse."""
        tangents = at.tangents(directions)
        return at.pull(at.curve(at.last(tangents, directions)), names, SecondOrder(at, directions, tangents))

    def _check_layers(self, plan: Plan, x: Array) -> None:
        super()._check_layers(plan, x)
        for leaf in plan.swept:
            reason = lacks_second(leaf)
            if reason is not None:
                raise UnsupportedError(f"{leaf} cannot give Hessian: {reason}")
        check_affine(plan.leaves, x, "Hessian", lambda leaf: () if leaf.lowest else leaf.parameters, together=True)


class Hessian(_Hessian, LinearOperator):
    """Hessian of the objective over all parameters, shape (D, D).

    Scale: ∇²L = R Σₙ ∇²ℓₙ, R = 1/N over all data or 1, or what the loss says.

    Parameters, attributes, errors and notes are those of `GGN`.
    Source: Pearlmutter 1994 (a derivative along the vector through the gradient's computation).
    """


class _Fisher(Curvature):
    def __init__(
        self,
        network: Layer,
        loss: Loss,
        data: Any,
        *,
        mc_samples: int = 1,
        rng: int | np.random.Generator | None = None,
        blocks: bool = False,
        executor: Executor | None = None,
        wrt: str | Sequence[str] | None = None,
        training: bool = False,
    ) -> None:
        self.wrt, self.training = wrt, training
        self.mc_samples = positive("mc_samples", mc_samples)
        self.quantities = (DiagGGNMC(mc_samples),)
        self._make(network, loss, data, blocks, executor, generator(rng))

    def _extra(self, plan: Plan, x: Array, *rest: Array) -> Array:
        (signal,) = [signal for signal in plan.signals if isinstance(signal, MonteCarlo)]
        with on_device_of(x):
            blocks = choose_blocks(plan, x, forms=FORMS).samples
            output = array_module(x).concatenate([output_of(plan.leaves, x[rows], FORMS) for rows in blocks])
            return plan.targets_of(signal, output, slice(None))

    @staticmethod
    def directional(at: Linearized, extra: Array | None, directions: Directions, names: set[str]) -> dict[str, Array]:
        """Σₙ Jᵀ (Σₘ s sᵀ) J V, with s from the gradients at pseudo-targets."""
        return at.pull(
            through(at.plan.loss.hessian_sqrt_mc(at.output, cast(Array, extra), at.y), at.push(directions)), names
        )


class Fisher(_Fisher, LinearOperator):
    """Fisher information matrix from pseudo-targets that the model's likelihood gives, shape (D, D).

    Scale: R Σₙ 1/(c M) Σₘ ∇ℓ(fₙ, ŷₙₘ) ∇ℓ(fₙ, ŷₙₘ)ᵀ with ℓ = c ℓ', ℓ' the negative log-likelihood. Its expectation over
    the draws is the GGN. The draws are made once, when the operator is: it is one matrix.

    Parameters
    ----------
    network, loss, data, blocks, executor, wrt, training
        As for `GGN`, whose attributes, errors and notes apply, too.
    mc_samples : int
        M, the number of pseudo-targets for each sample.
    rng : None, int or numpy.random.Generator
        Source of the draws, which are those of `quantities.DiagGGNMC`.
    """


class _EmpiricalFisher(Curvature):
    def _check_layers(self, plan: Plan, x: Array) -> None:
        super()._check_layers(plan, x)
        if plan.meeting:
            raise UnsupportedError(
                f"{plan.meeting} cannot give EmpiricalFisher: samples meet there, so a sample has no gradient that the "
                "others do not enter"
            )

    @staticmethod
    def directional(at: Linearized, extra: Array | None, directions: Directions, names: set[str]) -> dict[str, Array]:
        """Σₙ ∇ℓₙ ∇ℓₙᵀ V."""
        gradients = at.plan.loss.gradients(at.output, at.y)
        return at.pull(through(gradients[None], at.push(directions)), names)


class EmpiricalFisher(_EmpiricalFisher, LinearOperator):
    """Empirical Fisher matrix, of the gradients at the true targets, shape (D, D).

    Scale: R Σₙ ∇ℓₙ ∇ℓₙᵀ, with one factor R. The sum of the products of the gradients of the objective's samples,
    Σₙ (R ∇ℓₙ) (R ∇ℓₙ)ᵀ, is R times this; `quantities.SecondMoment` is its diagonal where R = 1/N.

    Parameters, attributes, errors and notes are those of `GGN`.
    """
