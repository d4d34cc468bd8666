"""The driver: check, sweep over blocks of samples, merge, finish."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np

from gbackprop.array import Array, on_device_of
from gbackprop.blocks import Cut, advice, choose_blocks, one_blas_thread
from gbackprop.errors import TooLargeError, release
from gbackprop.layers.base import Layer
from gbackprop.losses.base import Loss
from gbackprop.plan import GRADIENT_SUM, Plan, make_plan
from gbackprop.quantities.base import Quantity
from gbackprop.result import Result
from gbackprop.rows import Rows
from gbackprop.scratch import borrowed, free, withheld
from gbackprop.sweep import OUTPUT, Block, Part, Pass, Plain, sweep


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
) -> Result:
    """The gradient and any quantities of L = R Σₙ ℓₙ, in one sweep.

    Parameters
    ----------
    network : Layer
        Usually a `Sequential`.
    loss : Loss
    x : ndarray, shape (N, *in)
        A batch, float32 or float64 as the network's parameters are, and on their device.
    y : ndarray, shape (N, ...)
        Targets as the loss takes them.
    *quantities : Quantity
        What to compute beside the gradient. What a quantity returns does not depend on which others are asked for.
    rng : None, int or numpy.random.Generator
        Source of the Monte-Carlo draws and, in training mode, of dropout's masks. None draws fresh entropy.
    training : bool
        Whether layers such as Dropout act.
    sample_block : int, optional
        Samples to take at a time; chosen by default. Results do not change beyond rounding.
    column_block : int, optional
        Columns to propagate at a time beside the gradient, likewise; all by default.
    workers : int, optional
        Threads that take blocks of samples, each with BLAS held to one thread; by default one for each processor,
        and one for small batches, on a GPU and for KFRA.
    memory : str or int, optional
        Bytes that the call may take beside parameters and batch, as an integer or as in ``"2GiB"``: blocks are chosen
        so that the estimate in `gbackprop.blocks` is within it, and nothing is kept for the next call. Without a
        budget up to 1 GiB of what a call took, and of large results that are gone, waits for the next one, or for
        `gbackprop.scratch.free()`.

    Returns
    -------
    Result
        On the device and in the dtype of `x`.

    Raises
    ------
    TypeError, ValueError
        If anything does not fit: raised before anything is computed, naming the layer or argument.
    UnsupportedError
        If a layer cannot give what a quantity needs.
    TooLargeError
        If KFRA's averaged curvature would not fit into memory, or memory runs out on the way: the message says in
        what, and which blocks would fit.

    Notes
    -----
    Source: the paper's generalized backward pass, here with all signals as columns of one stack.
    """
    with on_device_of(x):
        plan = make_plan(network, loss, x, y, quantities, rng, training, sample_block, column_block, workers)
        cut = choose_blocks(plan, x, sample_block, column_block, workers, memory)
        try:
            return _backward(plan, x, y, quantities, cut, memory is None)
        except MemoryError as error:
            release(error)
            free()
            raise TooLargeError(f"{error}; {advice(plan, x, cut)}") from error


def _backward(
    plan: Plan, x: Array, y: Array, quantities: tuple[Quantity, ...], cut: Cut, reuse: bool
) -> Result:
    kept = Rows(x.shape[0], reuse)
    found = None
    for part in _parts(plan, x, y, [Block(rows, kept) for rows in cut.samples], cut, reuse):
        if found is None:
            found = part
        else:
            found.add(part)
    assert found is not None
    return _finish(plan, quantities, found, kept)


def _parts(plan: Plan, x: Array, y: Array, blocks: list[Block], cut: Cut, reuse: bool) -> Iterator[Part]:
    """The parts, in the order of the blocks; few of them wait to be taken at any time."""
    lending = borrowed if reuse and len(blocks) > 1 else withheld  # a single block gives its arrays to the result
    passes = Pass if reuse else Plain  # what is held takes memory that the estimate does not know

    def swept(block: Block) -> Part:
        with lending():
            return sweep(plan, x, y, block, cut.columns, passes)

    if cut.threads == 1:
        yield from map(swept, blocks)
        return
    with one_blas_thread(), ThreadPoolExecutor(cut.threads) as pool:
        waiting: deque[Future[Part]] = deque()
        for block in blocks:
            if len(waiting) > cut.threads:
                yield waiting.popleft().result()
            # A copy of the context, for a thread starts with one of its own: np.errstate holds there too.
            waiting.append(pool.submit(copy_context().run, swept, block))
        while waiting:
            yield waiting.popleft().result()


def _finish(plan: Plan, quantities: tuple[Quantity, ...], part: Part, kept: Rows) -> Result:
    """Turn statistics into results."""
    merged = {key: kept.arrays[key] if key[0].per_sample else value for key, value in part.found.items()}

    def finished(quantity: Quantity) -> dict[str, Any]:
        statistics = quantity.statistics()
        return {
            name: quantity.finish(plan.scale, *(merged.get((statistic, name), 0) for statistic in statistics))
            for name in plan.parameters
        }

    gradient = {name: merged[GRADIENT_SUM, name] for name in plan.parameters}
    values = [finished(quantity) for quantity in quantities]
    return Result(part.loss * plan.scale.factor, kept.arrays[OUTPUT], gradient, quantities, values)
