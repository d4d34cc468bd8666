"""Results over data sets: batches, computed one after the other or by several workers, merged into one result."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.array import Array, device_of, is_array, on_device_of
from gbackprop.base.checks import batch_of, check_flag, generator, kind_of, number, positive, shown
from gbackprop.base.errors import NotFiniteWarning, UnsupportedError
from gbackprop.base.threads import cpu_count, one_blas_thread
from gbackprop.calculus.layer import Layer, in_mode
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.curvature.data.checkpoint import Checkpoint
from gbackprop.curvature.data.executors import Pool, open_pool
from gbackprop.curvature.data.flights import Batch, Call, Flights
from gbackprop.curvature.data.merging import Merged, joined, rule_of
from gbackprop.engine.backward import prepare
from gbackprop.engine.finite import is_finite
from gbackprop.engine.progress import check_progress
from gbackprop.losses.base import Loss
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

OPTIONS = ("training", "sample_block", "column_block", "memory")
"""Options of `gbackprop.backward` that `accumulate` hands on. Each batch is computed by one thread."""

Progress = bool | Callable[[int, int | None], object]
"""True to write a line to stderr; or a function of the batches done and of all batches, None if unknown."""


def accumulate(
    network: Layer,
    loss: Loss,
    batches: Iterable[tuple[Array, ...]],
    *quantities: Quantity,
    rng: int | np.random.Generator | None = None,
    executor: Any = None,
    workers: int | None = None,
    in_flight: int | None = None,
    outputs: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 60.0,
    progress: Progress = False,
    **options: Any,
) -> Result:
    """Compute the gradient and any quantities of L = R Σₙ ℓₙ over all batches of a data set.

    Parameters
    ----------
    network, loss, *quantities
        As for `gbackprop.backward`. Quantities need a rule by which results merge: all have one but `EKFAC`,
        `GramGGN`, `GramGradients`, `KFRA`, `KroneckerError` and `NearestKronecker`.
    batches : iterable of (ndarray, ndarray)
        Batches x (n, *in) and y (n, ...), of any sizes, or with `sample_weight` (n) as a third array. They are taken
        one by one, as they are needed, and must not be changed afterwards: a generator yields new arrays.
    rng : None, int or numpy.random.Generator
        Source of the Monte-Carlo draws and, in training mode, of dropout's masks. Each batch's seed is made from it
        and the batch's number, so that the draws depend on neither the executor nor the number of workers.
    executor : None, str or concurrent.futures.Executor
        What computes the batches: threads (None or "threads"), "processes", "serial", "mpi", "dask://" or
        "dask://HOST:PORT", see `gbackprop.data.executors.open_pool`, or an Executor. Network, loss and quantities are
        sent to other processes by pickle.
    workers : int, optional
        Number of batches that are computed at a time: one for each processor by default, a single one on a GPU. It is
        that of the pool for names of executors; for an Executor it says how many it has.
    in_flight : int, optional
        Most batches that exist at a time: being computed, about to be, or with a result that waits for an earlier
        one's. Twice the number of workers by default.
    outputs : bool
        Whether `Result.output` contains the outputs of all samples; if not, it has no rows.
    checkpoint : str or Path, optional
        A file of any name for the state so far, an archive as `numpy.savez` writes it. If it is there, the call goes on
        from it: the batches that it contains are read again, to compare them, but not computed, except for the first
        one, whose result is compared. The file remains at the end.
    checkpoint_every : float
        Seconds from one state to the next; the last one is always written, after an error or Ctrl-C, too.
    progress : bool or callable
        True writes a line to stderr. A function is called as ``progress(done, total)`` after each batch, with `total`
        None where ``len(batches)`` is unknown.
    **options
        `training`, `sample_block`, `column_block` and `memory` of `gbackprop.backward`, for each batch.

    Returns
    -------
    Result
        That of one call with all samples, up to rounding. Its bits depend on the batches, but on no executor, number
        of workers or interruption.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, a batch is neither (x, y) nor (x, y, sample_weight) or differs from the first one in
        its features, dtype or device, there are no batches, or the checkpoint is of another call: the message says what
        differs.
    UnsupportedError
        If a quantity cannot be merged.
    RuntimeError
        If processes die again and again. Batches of a process that died are computed again, and counted once.

    Warns
    -----
    NotFiniteWarning
        If a batch's result contains NaN or infinity. Not on a GPU.

    Notes
    -----
    Memory: the batches in flight with their results, two copies of the sums, and rows: outputs and quantities with a
    row for each sample are concatenated, so their memory grows with the data set, in checkpoints too.

    An error in a batch, of its labels for instance, names the batch by its number, from 0. A batch in which all targets
    have weight 0 is an error, because R is not defined for it.

    Source: Chan, Golub, LeVeque 1979 (merging variances).
    """
    for name, value in (("workers", workers), ("in_flight", in_flight)):
        if value is not None:
            positive(name, value)
    check_flag("outputs", outputs)
    if not isinstance(checkpoint, str | Path | None):
        raise TypeError(f"checkpoint: expected a path, got {checkpoint!r}")
    check_progress(progress)
    number("checkpoint_every", checkpoint_every, 0)
    for option in options:
        if option not in OPTIONS:
            raise TypeError(f"accumulate: expected options among {', '.join(OPTIONS)}, got {option!r}")
    _check_call(network, loss, quantities)
    _ = [*network.parameters.values()]  # drawn now, if they were not: other processes must not draw their own
    entropy = tuple(generator(rng).integers(2**32, size=4).tolist())
    saved: Checkpoint | None = None
    if checkpoint is not None:
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        stated = given | {"outputs": outputs}
        saved = Checkpoint(checkpoint, checkpoint_every, network, loss, quantities, stated, entropy, rng is None)
        entropy = saved.entropy
    training = options.get("training") is True
    for path, layer in network.named_layers():
        if in_mode(layer, training).mixes:
            raise UnsupportedError(
                f"layer {path}, {layer!r}: samples of a batch meet there, so results of batches do not determine that "
                "of all samples (use training=False)"
            )
    call = Call(prepare(network, loss, *quantities, workers=1, **options), entropy, outputs)
    line = _Line() if progress is True else None
    report = line or (progress if callable(progress) else None)
    with _opened(executor, workers, network) as pool, line or nullcontext(), one_blas_thread():
        if not isinstance(pool.executor, ThreadPoolExecutor):
            _ = call.packed  # raises now if something cannot be sent
        flights = Flights(pool, call, in_flight or 2 * pool.slots)
        batches_left = _checked(network, batches, saved)
        total = len(batches) if isinstance(batches, Sized) else None
        with closing(flights.results(batches_left)) as results:
            return _merged(results, saved, report, total)


def _check_call(network: Any, loss: Any, quantities: tuple[Any, ...]) -> None:
    """Check what can be checked without a batch."""
    for name, value, kind in (("network", network, Layer), ("loss", loss, Loss)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {shown(value)}")
    for i, quantity in enumerate(quantities):
        if not isinstance(quantity, Quantity):
            raise TypeError(f"quantity {i}: expected a Quantity, got {shown(quantity)}")
        rule_of(quantity)
        signals = [statistic.signal for statistic in quantity.statistics()]
        if any(isinstance(signal, MonteCarlo) and signal.targets is not None for signal in signals):
            raise ValueError(f"targets of {type(quantity).__name__}: expected none, which would be those of each batch")


@contextmanager
def _opened(executor: Any, workers: int | None, network: Layer) -> Iterator[Pool]:
    """Open an executor; one that is given stays open."""
    if executor in (None, "threads"):
        value = next(iter(network.parameters.values()), None)
        most = workers or (cpu_count() if value is None or device_of(value) == "cpu" else 1)
        with ThreadPoolExecutor(most) as threads:
            yield Pool(threads, most)
    elif isinstance(executor, str):
        with open_pool(executor, workers, more=("threads",)) as pool:
            yield pool
    elif callable(getattr(executor, "submit", None)):
        yield Pool(executor, workers or cpu_count())
    else:
        raise TypeError(f"executor: expected a name or a concurrent.futures.Executor, got {kind_of(executor)}")


def _checked(network: Layer, batches: Any, saved: Checkpoint | None) -> Iterator[Batch]:
    """Yield the batches that are to be computed: all, or after a checkpoint the first one and those it lacks."""
    try:
        every = iter(batches)
    except TypeError as error:
        raise TypeError(f"batches: expected an iterable of pairs (x, y), got {kind_of(batches)}") from error
    first, number = None, -1
    for number, batch in enumerate(every):
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            got = f"{len(batch)} parts" if isinstance(batch, tuple | list) else kind_of(batch)
            raise TypeError(
                f"batch {number}: expected a pair (x, y), or with sample_weight, got {got} (gb.data.batches cuts them)"
            )
        if getattr(network, "several", None) is not None:
            batch = (_packed(number, network, batch[0]), *batch[1:])
        x = batch[0]
        for name, part in zip(("x", "y", "sample_weight"), batch, strict=False):
            if not is_array(part) or part.ndim == 0:
                raise TypeError(f"batch {number}, {name}: expected an array of samples, got {kind_of(part)}")
        mine = (x.shape[1:], x.dtype.name, device_of(x))
        first = first or mine
        for what, one, other in zip(("features of shape", "dtype", "the device"), first, mine, strict=True):
            if one != other:
                kind = ValueError if what.startswith("features") else TypeError
                raise kind(f"batch {number}, x: expected {what} {one} as in batch 0, got {other}")
        if saved is None or saved.lacks(number, *batch) or number == 0:
            yield number, *batch
    if number < 0:
        raise ValueError("batches: expected at least one, got none")
    if saved is not None and number + 1 < saved.done:
        raise ValueError(f"{saved.path}: the checkpoint contains {saved.done} batches, there are {number + 1} now")


def _packed(number: int, network: Layer, x: Any) -> Array:
    try:
        return batch_of(network, x)
    except (TypeError, ValueError) as error:
        raise type(error)(f"batch {number}, {error}") from None


def _merged(
    results: Iterator[tuple[int, Result]],
    saved: Checkpoint | None,
    report: Callable[[int, int | None], object] | None,
    total: int | None,
) -> Result:
    """Merge results in their order, and write the state so far every now and then."""
    merged: Merged | None = None
    try:
        for i, result in results:
            _warn(i, result)
            merged = joined(merged, i, result)
            if saved is not None and i == 0:
                with on_device_of(result.output):
                    saved.begin(merged)
            if saved is not None and time.monotonic() > saved.due:
                saved.write(merged)
            if report is not None:
                report(merged.state.results, total)
    finally:
        if saved is not None and merged is not None:
            saved.write(merged)
    assert merged is not None  # `_checked` yields a batch or raises
    with on_device_of(merged.first.output):
        return merged.finish()


def _warn(i: int, result: Result) -> None:
    state = np.geterr()
    if device_of(result.output) != "cpu" or state["over"] == state["invalid"] == "ignore" or is_finite(result):
        return
    warnings.warn(f"batch {i}: NaN or infinity in its result (gb.backward says where)", NotFiniteWarning, stacklevel=4)


class _Line:
    """A line on stderr that is written over, at most five times a second."""

    def __init__(self) -> None:
        self.next, self.text = 0.0, ""

    def __call__(self, done: int, total: int | None) -> None:
        self.text = f"\rgbackprop: {done} batches" if total is None else f"\rgbackprop: {done} of {total} batches"
        if time.monotonic() >= self.next or done == total:
            self.next = time.monotonic() + 0.2
            print(self.text, end="", file=sys.stderr, flush=True)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        """End the line, with the last number, so that what follows, an error too, starts on one of its own."""
        if self.text:
            print(self.text, file=sys.stderr, flush=True)
