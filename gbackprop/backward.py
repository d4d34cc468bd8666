"""The driver: check, sweep over blocks of samples, merge, finish."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.blocks import choose_blocks, one_blas_thread
from gbackprop.layers.base import Layer
from gbackprop.layers.window import positive
from gbackprop.losses.base import Loss
from gbackprop.plan import GRADIENT_SUM, Plan, make_plan
from gbackprop.quantities.base import Quantity
from gbackprop.result import Result
from gbackprop.sweep import Found, Part, sweep


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
        Samples to take at a time, to bound memory; results do not change beyond rounding.
    column_block : int, optional
        Columns to propagate at a time beside the gradient, likewise.
    workers : int, optional
        Threads that take blocks of samples, each with BLAS held to one thread. With `sample_block` None, one block
        for each.

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
        If KFRA's averaged curvature would not fit into memory.

    Notes
    -----
    Source: the paper's generalized backward pass, here with all signals as columns of one stack.
    """
    for name, value in (("sample_block", sample_block), ("column_block", column_block), ("workers", workers)):
        if value is not None:
            positive(name, value)
    whole_batch = sample_block is None and workers is None
    plan = make_plan(network, loss, x, y, quantities, rng, training, whole_batch)
    blocks, threads = choose_blocks(plan, x, sample_block, column_block, workers)
    return _finish(plan, quantities, _run(plan, x, y, blocks, column_block, threads))


def _run(
    plan: Plan, x: Array, y: Array, blocks: list[slice], column_block: int | None, threads: int
) -> list[Part]:
    """The parts, in the order of the blocks."""
    if threads == 1:
        return [sweep(plan, x, y, rows, column_block) for rows in blocks]
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda rows: sweep(plan, x, y, rows, column_block), blocks))


def _finish(plan: Plan, quantities: tuple[Quantity, ...], parts: list[Part]) -> Result:
    """Merge the parts and turn statistics into results."""
    outputs = [part.output for part in parts]
    output = outputs[0] if len(outputs) == 1 else array_module(outputs[0]).concatenate(outputs)
    total: Any = sum((part.loss for part in parts[1:]), start=parts[0].loss)
    merged: Found = {key: key[0].merge([part.found[key] for part in parts]) for key in parts[0].found}

    def finished(quantity: Quantity) -> dict[str, Any]:
        statistics = quantity.statistics()
        return {
            name: quantity.finish(plan.scale, *(merged.get((statistic, name), 0) for statistic in statistics))
            for name in plan.parameters
        }

    gradient = {name: merged[GRADIENT_SUM, name] for name in plan.parameters}
    return Result(total * plan.scale.factor, output, gradient, quantities, [finished(q) for q in quantities])
