"""How a batch is cut into blocks of samples, and how many threads take them.

A block's stack should stay in cache between a layer and the next, but a block must be large enough for its products to
be. Small batches are not cut at all: starting threads would cost more than they save.
"""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager
from math import prod

from threadpoolctl import ThreadpoolController

from gbackprop.array import Array, device_of
from gbackprop.plan import Plan
from gbackprop.signals import AVERAGE

BLOCK_BYTES = 2**24
"""Size of a block's largest stack that `choose_blocks` aims at."""

SMALL_BYTES = 2**22
"""Size of a whole batch's largest stack below which it is not cut."""


def choose_blocks(
    plan: Plan, x: Array, sample_block: int | None, column_block: int | None, workers: int | None
) -> tuple[list[slice], int]:
    """The blocks of samples, in order, and the number of threads; what is None is chosen.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    sample_block, column_block, workers : int, optional
        As for `gbackprop.backward`.

    Returns
    -------
    list of slice
    int
    """
    n, each = x.shape[0], stack_bytes(plan, x, column_block)
    whole = AVERAGE in plan.signals or device_of(x) != "cpu" or (sample_block is None and n * each <= SMALL_BYTES)
    threads = workers or (1 if whole else cpu_count())
    if sample_block is None:
        fitting = n if whole else max(1, BLOCK_BYTES // each)
        sample_block = min(fitting, -(-n // threads))
    blocks = [slice(start, min(start + sample_block, n)) for start in range(0, n, sample_block)]
    return blocks, min(threads, len(blocks))


def stack_bytes(plan: Plan, x: Array, column_block: int | None = None) -> int:
    """Bytes that one sample takes in the largest stack of the sweep."""
    columns = sum(map(plan.loss_columns, plan.signals))
    largest = 0
    for leaf in reversed(plan.leaves[plan.lowest :]):
        carried = 1 + min(columns, column_block or columns)  # the gradient's always
        largest = max(largest, carried * prod(leaf.output_shape))
        columns += plan.residual_columns(leaf)
    return max(1, largest * x.dtype.itemsize)


def cpu_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager:
    """A context in which BLAS uses one thread: the blocks' threads are enough."""
    return _controller().limit(limits=1, user_api="blas")


@functools.cache  # finding the libraries takes longer than a small sweep
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
