"""Data in pieces of some samples each, and their products: one after the other, in threads, or by an executor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from math import prod
from typing import Any

from gbackprop.array import Array, device_of, on_device_of
from gbackprop.base.errors import naming
from gbackprop.base.threads import one_blas_thread
from gbackprop.engine.blocks import choose_blocks
from gbackprop.engine.estimate import saved_bytes, small_samples, unfolded_bytes
from gbackprop.engine.forms import FORMS
from gbackprop.operators.linearized import Linearized
from gbackprop.plain.plan import Plan

SAVED_BYTES = 2**28
"""Bytes that a forward pass may save: a batch that needs more is cut into pieces of fewer samples, and what it saves is
not stored for the next product."""

TANGENT_BYTES = 2**28
"""Bytes of the columns at the outputs of all layers: of more columns, only as many as fit go through at a time."""

IN_FLIGHT = 16
"""Pieces that are given to an executor, or to threads, at a time."""

Product = Callable[[Linearized, "Piece", Array], Any]
"""A product with K vectors over the samples of a piece."""


@dataclass(frozen=True)
class Piece:
    """Some samples of a batch, and what a product with them needs; it can be sent to another process.

    Attributes
    ----------
    plan : Plan
    x : ndarray, shape (n, *in)
    y : ndarray, shape (n, ...), optional
    extra : ndarray, shape (M, n, ...), optional
        What an operator computed from these samples when it was made.
    start : int
        The number of its first sample in the batch.
    rows : slice
        The numbers of its samples in all data.
    """

    plan: Plan
    x: Array
    y: Array | None
    extra: Array | None
    start: int
    rows: slice


class Cutter:
    """The cut of batches into pieces, the threads that take them, and the pieces' forward passes that are stored.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
        The first batch.
    single : bool
        Whether it is the only one: its forward pass is then stored, if it saves at most `SAVED_BYTES`.
    executor : concurrent.futures.Executor, optional
    """

    def __init__(self, plan: Plan, x: Array, single: bool, executor: Executor | None) -> None:
        self.plan, self.executor = plan, executor
        self.sample_bytes = max(1, saved_bytes(plan, x, FORMS) + unfolded_bytes(plan))
        self.threads = choose_blocks(plan, x, forms=FORMS).threads
        self.small = small_samples(plan) // max(1, len(x)) if device_of(x) == "cpu" else 0
        self.stores = single and len(x) * self.sample_bytes <= SAVED_BYTES
        self.stored: dict[int, Linearized] = {}

    def pieces(self, x: Array, y: Array | None, extra: Array | None, before: int) -> Iterator[Piece]:
        """Yield a batch in pieces; `before` counts the samples of earlier batches."""
        block = choose_blocks(self.plan, x, forms=FORMS).samples[0]
        step = len(x) if self.plan.meeting else max(1, min(block.stop, SAVED_BYTES // self.sample_bytes))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            some = None if extra is None else extra[:, rows]
            numbers = slice(before + start, before + min(start + step, len(x)))
            yield Piece(self.plan, x[rows], None if y is None else y[rows], some, start, numbers)

    def results(self, product: Product, tasks: Iterable[tuple[Piece, Array]], count: int) -> Iterator[Any]:
        """Yield the product of each piece with its K = `count` vectors, in their order."""
        if self.executor is not None:
            calls = ((linearized_product, (product, piece, vectors)) for piece, vectors in tasks)
            yield from _in_order(self.executor, calls)
        elif self.threads == 1:
            with one_blas_thread() if count <= self.small else nullcontext():
                for piece, vectors in tasks:
                    yield self.product(product, piece, vectors)
        else:
            with one_blas_thread(), ThreadPoolExecutor(self.threads) as pool:
                # Each task runs in a copy of this thread's context, so that np.errstate applies there too.
                run = ((copy_context().run, (self.product, product, piece, v)) for piece, v in tasks)
                yield from _in_order(pool, run)

    def product(self, product: Product, piece: Piece, vectors: Array) -> Any:
        """Compute the product of a piece, whose forward pass is stored if it may be."""
        with naming(lambda: f"product with {len(vectors)} vectors over {len(piece.x)} samples"):
            at = self.stored.get(piece.start)
            if at is None:
                at = Linearized(piece.plan, piece.x, piece.y)
                if self.stores:
                    self.stored[piece.start] = at
            return product(at, piece, vectors)


def linearized_product(product: Product, piece: Piece, vectors: Array) -> Any:
    """Compute a product of a piece from its forward pass on: what an executor is given."""
    with on_device_of(piece.x):
        return product(Linearized(piece.plan, piece.x, piece.y), piece, vectors)


def _in_order(pool: Executor, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Iterator[Any]:
    """Yield the results of calls in their order; `IN_FLIGHT` of them are under way at any time."""
    waiting: deque[Future[Any]] = deque()
    for function, given in calls:
        if len(waiting) >= IN_FLIGHT:
            yield waiting.popleft().result()
        waiting.append(pool.submit(function, *given))
    while waiting:
        yield waiting.popleft().result()


def chunks(at: Linearized, vectors: Array) -> Iterator[Array]:
    """Yield K vectors in parts of as many as have columns of at most `TANGENT_BYTES` at all layers, if one has."""
    widths = sum(prod(leaf.output_shape) for leaf in at.plan.leaves)
    step = max(1, TANGENT_BYTES // max(1, len(at.output) * widths * vectors.dtype.itemsize))
    return (vectors[start : start + step] for start in range(0, len(vectors), step))
