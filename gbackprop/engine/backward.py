"""The driver: check, sweep over blocks of samples, merge, compute the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbackprop.array import Array, device_of, on_device_of
from gbackprop.base.checks import batch_of, check_shapes, positive
from gbackprop.base.errors import TooLargeError, naming, release
from gbackprop.base.threads import NO_CONTEXT, one_blas_thread
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.wrt import names_of
from gbackprop.engine.arena import arena, fresh
from gbackprop.engine.blocks import Limits, advice, check_whole, choose_blocks
from gbackprop.engine.finite import warn_not_finite
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator, free_memory
from gbackprop.engine.prepared import Calls
from gbackprop.engine.progress import Progress, check_progress, reported
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rewrites import with_visits, with_whole_sequences
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.sweep import OUTPUT, Execution, Part, SampleBlock, sweep_block
from gbackprop.losses.base import Loss
from gbackprop.losses.sample_weights import weighted
from gbackprop.plain.completion import complete
from gbackprop.plain.plan import Plan, make_plan
from gbackprop.plain.reference import finish
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

_CALLS = Calls()

_OPTIONS = ("training", "sample_block", "column_block", "workers", "memory", "progress", "wrt")


def backward(
    network: Layer,
    loss: Loss,
    x: Array,
    y: Array,
    *quantities: Quantity,
    rng: int | np.random.Generator | None = None,
    training: bool = False,
    sample_block: int | None = None,
    column_block: int | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    progress: Progress = False,
    sample_weight: Array | None = None,
    wrt: str | Sequence[str] | None = None,
) -> Result:
    """Compute the gradient and any quantities of L = R Σₙ ℓₙ in one sweep.

    Parameters
    ----------
    network : Layer
        Usually a `Sequential`.
    loss : Loss
    x : ndarray, shape (N, *in)
        A batch, with the dtype (float32 or float64) and the device of the network's parameters; of integers if the
        network begins with a layer that takes them, such as `Embedding`. For a network of several inputs, see `Graph`,
        a tuple or a dictionary of arrays.
    y : ndarray, shape (N, ...)
        Targets as the loss expects them.
    *quantities : Quantity
        What to compute in addition to the gradient. The result of a quantity does not depend on the others.
    rng : None, int or numpy.random.Generator
        Source of the Monte-Carlo draws and, in training mode, of dropout's masks. None draws fresh entropy.
    training : bool
        Whether layers such as Dropout are active, and batch normalization is by the batch's own statistics. Its running
        statistics are then updated at the end of the call, once, if it has a result. With batch normalization, `KFRA`,
        `GramGGN`, `NearestKronecker`, `KroneckerError` and quantities of single samples, such as `Variance` and
        `GramGradients`, are refused then, but for ``BatchGrad(coupled=True)``.
    sample_block : int, optional
        Number of samples in a block; chosen automatically by default. It changes results by rounding only.
    column_block : int, optional
        Number of columns to propagate at a time in addition to the gradient; all by default. The two columns of a pair
        below a product stay together. It changes results by rounding only.
    workers : int, optional
        Number of threads that process blocks of samples, each with BLAS limited to one thread; at most one for each
        processor that the process may use, however many are asked for. By default that many; a single one for small
        batches, on a GPU and for KFRA.
    memory : str or int, optional
        Bytes that the call may use in addition to parameters and batch, as an integer or as in ``"2GiB"``: blocks are
        chosen so that the estimate in `gbackprop.engine.estimate` is within it, and no memory is cached for the next
        call. Without a budget up to 1 GiB, from temporary arrays and from large results that no longer exist, is cached
        for the next call, or until `gbackprop.free_memory()`.
    progress : bool or callable
        True writes a line to stderr that says how much of the call is done. A function is called as ``progress(done,
        total)`` after each of `total` steps: a layer, or the loss, in one block of samples and columns. It may be
        called from other threads, but by one at a time, with `done` counting up, for each sweep where a quantity takes
        several; an error that it raises ends the call.
    sample_weight : ndarray, shape (N), optional
        wₙ ≥ 0, in the dtype of the parameters: L = R Σₙ wₙ ℓₙ with the same R, for example 1/N, and in each quantity's
        definition wₙ ℓₙ replaces ℓₙ, as do wₙ ∇ℓₙ and wₙ Hₙ. Where wₙ = 0, the loss and its derivatives at the outputs
        count as 0, also where they are infinite; A of Kronecker factors is of inputs alone and has no weights.
    wrt : str or sequence of str, optional
        The names of the parameters to differentiate in, by default of all that are not frozen. ``"x"`` is the input:
        the gradient of L and each quantity in its entries, of floats, are results of that name. The input counts as a
        parameter of shape (N, *in) of which each sample has a row, so that what a parameter has in shape (*p) it has
        in shape (N, *in): R ∂ℓₙ/∂xₙ in the gradient, diag(R ∂²ℓₙ/∂xₙ²) in `DiagHessian`. Where a result has a row for
        each sample, it is that sample's own; in the other rows of x it is zero.
        Of several inputs, ``"x.name"`` or ``"x.0"`` is one, and ``"x"`` all of floats: results of that name have the
        structure of x, with None for the others.

    Returns
    -------
    Result
        On the device and in the dtype of the parameters.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong: raised before anything is computed; the message names the layer or argument.
    UnsupportedError
        If a layer cannot give what a quantity needs.
    TooLargeError
        If KFRA's averaged curvature or Monte-Carlo draws would not fit into memory, or memory runs out during the
        call: the message says at which step, and which blocks would fit.

    Warns
    -----
    NotFiniteWarning
        If a result contains NaN or infinity: numbers were beyond the dtype's range. Not on a GPU, and not where
        `numpy.errstate` ignores them.

    Notes
    -----
    Source: the paper's generalized backward pass, here with all signals as columns of one stack. `gbackprop.reference`
    computes the same in the simplest way: read it first.
    """
    for name, value in (("sample_block", sample_block), ("column_block", column_block), ("workers", workers)):
        if value is not None:
            positive(name, value)
    if progress is not False:
        check_progress(progress)
    plain, blocks = loss, (sample_block, column_block, workers, memory)
    if sample_weight is not None:
        loss, y = weighted(loss, y, sample_weight)
    names, x = None if wrt is None else names_of(wrt), batch_of(network, x)
    options = (training, FORMS, names, *blocks)
    with on_device_of(x):
        prepared = _CALLS.find(network, plain, x, quantities, options)
        try:
            if prepared is None:
                check_whole(quantities, x, Limits(*blocks))
                plan = make_plan(network, loss, x, y, quantities, rng, training, names)
                check_shapes(plan.leaves)
            else:
                parts = network, loss, quantities
                found = prepared.again(parts, (x, y, rng), progress is False and plain is loss)
                if isinstance(found, Result):
                    return found
                plan = found
        except MemoryError:
            free_memory()  # the memory cached from earlier calls may be enough
            prepared = None
            with naming(lambda: f"random numbers and checks for {list(quantities)}"):
                plan = make_plan(network, loss, x, y, quantities, rng, training, names)
        if prepared is None:
            latest = _execution(plan, x, y, Limits(*blocks))
            plan = latest.plan
            stored = _CALLS.add(latest, options)
        else:
            latest, stored = Execution(plan, x, y, prepared.cut, prepared.known, memory is None, None, []), prepared

        updates = latest.updates

        def run(each: Plan) -> Result:
            nonlocal latest
            if each is not plan:  # a further sweep, of other statistics: it has blocks and forms of its own
                latest = _execution(each, x, y, Limits(*blocks))
            if progress is False:
                return _backward(latest)
            with reported(progress, latest.plan, latest.cut) as reporter:
                return _backward(replace(latest, observer=reporter))

        try:
            result = complete(plan, x, run(plan), run)
        except MemoryError as error:
            release(error)
            free_memory()
            raise TooLargeError(f"{error}; {advice(plan, x, latest.cut, FORMS)}") from error
        warn_not_finite(plan, result)
        if stored is not None:
            stored.count(latest, result)
        for update in updates:  # what fails has changed nothing
            update()
        return result


@dataclass(frozen=True)
class PreparedCall:
    """A call of `gbackprop.backward` that lacks its batch; see `prepare`."""

    network: Layer
    loss: Loss
    quantities: tuple[Quantity, ...]
    options: Mapping[str, Any]

    def __call__(
        self, x: Array, y: Array, rng: int | np.random.Generator | None = None, sample_weight: Array | None = None
    ) -> Result:
        """Compute what `gbackprop.backward` computes for a batch."""
        options = {"rng": rng, "sample_weight": sample_weight, **self.options}
        return backward(self.network, self.loss, x, y, *self.quantities, **options)


def prepare(network: Layer, loss: Loss, *quantities: Quantity, **options: Any) -> PreparedCall:
    """Return a function of (x, y, rng=None, sample_weight=None) that does what `gbackprop.backward` does, for loops.

    Both work out once what depends on no number in a batch, and do so again after a change of the network's structure,
    of what is frozen, or of the options of a layer, the loss or a quantity. Parameters may change at any time. With
    layers, losses or quantities of your own, or pseudo-targets that are given, it is worked out in each call.

    Parameters
    ----------
    network, loss, *quantities
        As for `gbackprop.backward`.
    **options
        Its keywords but for those: `training`, `sample_block`, `column_block`, `workers`, `memory`, `progress`,
        `wrt`.

    Returns
    -------
    PreparedCall

    Raises
    ------
    TypeError
        If there is no such option. All other errors are those of `gbackprop.backward`, when the function is called.
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"prepare: expected options among {', '.join(_OPTIONS)}, got {name!r}")
    return PreparedCall(network, loss, quantities, options)


def _execution(plan: Plan, x: Array, y: Array, limits: Limits) -> Execution:
    """Return the sweeps of a call for which nothing is prepared."""
    if plan.meeting and ((limits.sample_block or len(x)) < len(x) or (limits.workers or 1) > 1):
        raise ValueError(f"{plan.meeting}: samples meet there, so sample_block and workers must be None")
    plan = with_whole_sequences(plan, x)
    known, free = NetworkForms(FORMS, plan.leaves), limits.memory is None  # a budget's estimate is of no routed columns
    plan = with_visits(plan, x, limits.column_block, known, routed=free)
    return Execution(plan, x, y, choose_blocks(plan, x, limits, FORMS), known, free, None, [])


def _backward(run: Execution) -> Result:
    cut, (first, *others) = run.cut, run.cut.samples
    results = SampleRows(run.x.shape[0], run.reuse, not others and cut.reuses)
    if not others:
        block = SampleBlock(first, results)
        with one_blas_thread() if cut.small else NO_CONTEXT, arena() if cut.reuses else NO_CONTEXT as memory:
            total = sweep_block(run, block, memory or Allocator())
    else:
        parts = _parts(run, [SampleBlock(rows, results) for rows in cut.samples])
        total = next(parts)
        for part in parts:
            total.add(part)
    output = results.arrays.pop(OUTPUT)
    total.found.update(results.arrays)  # type: ignore[arg-type]  # by statistic and parameter, but for the output
    return finish(run.plan, total.loss, output, total.found)


def _parts(run: Execution, blocks: list[SampleBlock]) -> Iterator[Part]:
    """Yield the parts in the order of the blocks; only a few of them exist at any time."""
    threads, memory = run.cut.threads, arena if run.reuse and device_of(run.x) == "cpu" else fresh

    def swept(block: SampleBlock) -> Part:
        # a new thread starts on device 0
        with on_device_of(run.x), memory() as allocator:
            return sweep_block(run, block, allocator)

    if threads == 1:
        yield from map(swept, blocks)
        return
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Part]] = deque()
        for block in blocks:
            if len(waiting) > threads:
                yield waiting.popleft().result()
            # Each task runs in a copy of this thread's context, so that np.errstate applies there too.
            waiting.append(pool.submit(copy_context().run, swept, block))
        while waiting:
            yield waiting.popleft().result()
