"""Batches that are computed by an executor, a few at a time, with their results in the order of the batches."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.checks import kind_of
from gbackprop.base.threads import one_blas_thread
from gbackprop.curvature.data.executors import Pool, interrupts_blocked
from gbackprop.engine.backward import PreparedCall
from gbackprop.quantities.result import Result

DEATHS = 3
"""Processes that may die one after the other while they compute the same batch."""

Batch = tuple[int, Array, Array] | tuple[int, Array, Array, Array]
"""A batch's number, its samples and its targets, and maybe the weights of its samples."""


@dataclass(frozen=True)
class Call:
    """The call of `gbackprop.backward` for a batch, wherever it is computed: always by one thread."""

    prepared: PreparedCall
    entropy: tuple[int, ...]  # with a batch's number the seed of its draws
    outputs: bool = True  # whether the result contains the network's outputs

    def __call__(self, number: int, x: Array, y: Array, sample_weight: Array | None = None) -> Result:
        """Compute the result of a batch."""
        rng = np.random.default_rng([*self.entropy, number])
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # `accumulate` warns, with the number
            result = self.prepared(x, y, rng, sample_weight)
        return result if self.outputs else replace(result, output=result.output[:0].copy())

    @cached_property
    def packed(self) -> bytes:
        """The call as bytes, for other processes: made once for all batches."""
        try:
            return pickle.dumps((self.prepared, self.entropy, self.outputs))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"executor: network, loss and quantities cannot be sent to a process: {error}") from error

    def __reduce__(self) -> Any:
        return _unpacked, (self.packed,)


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> Call:
    return Call(*pickle.loads(packed))


@dataclass
class _Flight:
    """A batch under way; there is no future where a process died and the batch is to be computed again."""

    batch: Batch
    future: Future[Result] | None = None


class Flights:
    """Computes batches, at most `most` at a time, those that wait included, and yields their results in order.

    Where a process dies, its batches are computed again: the first of them alone, so that a batch whose process dies
    again and again can be named.
    """

    def __init__(self, pool: Pool, call: Callable[..., Result], most: int) -> None:
        self.pool, self.call, self.most = pool, call, most
        self.flying: deque[_Flight] = deque()
        self.deaths = 0

    def results(self, batches: Iterator[Batch]) -> Generator[tuple[int, Result], None, None]:
        """Yield each batch's number and result."""
        try:
            while self._fill(batches):
                number = self.flying[0].batch[0]
                try:
                    result = self._first().result()
                    if not isinstance(result, Result):
                        kind = type(self.pool.executor).__name__
                        raise TypeError(f"executor: expected the Result of a call from {kind}, got {kind_of(result)}")
                except BrokenExecutor as error:
                    self._died(error)
                    continue
                except Exception as error:
                    raise named(number, error) from error
                self.flying.popleft()
                self.deaths = 0
                yield number, result
        finally:
            for flight in self.flying:
                if flight.future is not None and hasattr(flight.future, "cancel"):
                    flight.future.cancel()

    def _fill(self, batches: Iterator[Batch]) -> bool:
        """Start as many batches as may be under way; return whether any is."""
        most = 1 if self.deaths else self.most
        while len(self.flying) < most and (batch := next(batches, None)) is not None:
            self.flying.append(_Flight(batch))
        for flight in islice(self.flying, most):
            if flight.future is None:
                try:
                    with interrupts_blocked():  # a pool may start its processes now
                        future = self.pool.executor.submit(self.call, *flight.batch)
                except BrokenExecutor:
                    break  # those under way will say so, or `_first`
                if not callable(getattr(future, "result", None)):
                    kind = type(self.pool.executor).__name__
                    raise TypeError(f"executor: expected submit of {kind} to return a Future, got {kind_of(future)}")
                flight.future = future
        return bool(self.flying)

    def _first(self) -> Future[Result]:
        """Return the future of the first batch; without one, the executor is broken."""
        future = self.flying[0].future
        if future is None:
            raise BrokenExecutor("it takes no more batches")
        return future

    def _died(self, error: BrokenExecutor) -> None:
        """Replace a pool of which a process died, and mark the batches that must be repeated."""
        self.deaths += 1
        number = self.flying[0].batch[0]
        if self.deaths == DEATHS:
            raise RuntimeError(f"batch {number}: the process that computed it died, {DEATHS} times") from error
        if not self.pool.replace():
            raise RuntimeError(
                f"batch {number}: the executor is broken ({error}); executor='processes' starts new processes"
            ) from error
        for flight in self.flying:
            if flight.future is not None and not _succeeded(flight.future):
                flight.future = None


def _succeeded(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def named(number: int, error: Exception) -> Exception:
    """Return an error whose message begins with a batch's number, of the same type if that has a single message."""
    message = f"batch {number}: {error}"
    if len(error.args) == 1 and isinstance(error.args[0], str):
        try:
            return type(error)(message)
        except Exception:  # a type of its own kind, which takes other arguments
            pass
    return RuntimeError(f"batch {number}: {type(error).__name__}: {error}")
