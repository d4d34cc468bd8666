"""How a batch is cut into blocks of samples and columns, and how many threads take them.

A block's stack should stay near the processor between a layer and the next, but a block must be large enough for its
products to be. Small batches are not cut at all: starting threads would cost more than they save.

The memory of a call, beside the parameters and the batch, is estimated as

    2 · sums + rows + 2 · threads · (sums + 2 · parameters + n · (saved + unfolded + 3 · stack))

with n the samples of a block, `saved` what the forward pass keeps for one sample, `unfolded` the largest unfolded input
of a layer, which a statistic may want where the forward pass does without, `stack` the largest stack of columns
for one sample (there are at most three at a time: what arrives at a layer, what leaves it, and a temporary one), `sums`
the statistics that add up over samples, and `rows` the results that have a row for each. The 2 before `threads` is for
scratch arrays, and for parts that wait to be added up. On a GPU those are larger, see `scratch_bytes`.
"""

from __future__ import annotations

import functools
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from numbers import Integral
from threading import Lock, get_ident
from typing import Any

from gbackprop.array import Array, array_module, device_of, free_memory, is_array, scratch_bytes
from gbackprop.plan import KFRA_COPIES, Plan
from gbackprop.quantities.base import Statistic
from gbackprop.signals import AVERAGE

BLOCK_BYTES = 2**26
"""Size of a block's largest stack, or a fourth of its rows of results, that `choose_blocks` aims at: rows are written
once, and read no more."""

SMALL_BYTES = 2**22
"""The same for a whole batch, below which it is not cut."""

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class Cut:
    """A batch in blocks.

    Attributes
    ----------
    samples : list of slice
        The blocks of samples, in order.
    columns : int or None
        Columns to a pass beside the gradient's; None for all.
    threads : int
    """

    samples: list[slice]
    columns: int | None
    threads: int


def choose_blocks(
    plan: Plan,
    x: Array,
    sample_block: int | None = None,
    column_block: int | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
) -> Cut:
    """Cut a batch; what is None is chosen.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    sample_block, column_block, workers, memory
        As for `gbackprop.backward`.

    Raises
    ------
    ValueError
        If `memory` is not understood, or not enough for one sample and one column.
    """
    n, each = x.shape[0], max(stack_bytes(plan, x, column_block), row_bytes(plan, x) // 4)
    whole = AVERAGE in plan.signals or device_of(x) != "cpu" or (sample_block is None and n * each <= SMALL_BYTES)
    threads = workers or (1 if whole or _controller() is None else cpu_count())
    samples = sample_block or (-(-n // threads) if whole else _even(n, max(1, BLOCK_BYTES // each), threads))
    if memory is not None:
        fitting = _fit(plan, x, samples, column_block, threads, parse_bytes(memory), sample_block is not None)
        samples, column_block, threads = fitting
    blocks = [slice(start, min(start + samples, n)) for start in range(0, n, samples)]
    return Cut(blocks, column_block, min(threads, len(blocks)))


def _even(n: int, most: int, threads: int) -> int:
    """Samples to a block, at most `most`, in as many blocks for each thread as far as that goes."""
    rounds = -(-n // (threads * most))
    return -(-n // (threads * rounds))


def _fit(
    plan: Plan, x: Array, samples: int, columns: int | None, threads: int, budget: int, fixed: bool
) -> tuple[int, int | None, int]:
    """Fewer threads, then fewer samples, then fewer columns, until the estimate is within the budget."""
    saved = saved_bytes(plan, x)
    columns = columns or max(1, column_count(plan))
    whole = fixed or AVERAGE in plan.signals
    while (needed := estimate(plan, x, samples, columns, threads, saved)) > budget:
        if threads > 1:
            threads -= 1
        elif samples > 1 and not whole:
            samples = -(-samples // 2)
        elif columns > 1:
            columns = -(-columns // 2)
        else:
            raise ValueError(f"memory: at least {needed / 2**20:.0f} MiB are needed, got {budget / 2**20:.0f} MiB")
    return samples, columns, threads


def estimate(plan: Plan, x: Array, samples: int, columns: int | None, threads: int, saved: int) -> int:
    """Bytes that a call takes at its peak, beside parameters and batch; see the module's formula."""
    shapes = [shape for leaf in plan.leaves for shape in leaf.layer.parameter_shapes().values()]
    parameters = sum(map(prod, shapes)) * x.dtype.itemsize
    sums = sum(_sum_bytes(plan, statistic) for statistic in plan.statistics if not statistic.per_sample)
    results = 2 * sums * x.dtype.itemsize + x.shape[0] * row_bytes(plan, x)
    if AVERAGE in plan.signals:
        widest = max(prod(leaf.output_shape) for leaf in plan.leaves[plan.lowest :])
        results += KFRA_COPIES * widest**2 * x.dtype.itemsize
    block = samples * (saved + _unfolded_bytes(plan, x) + 3 * stack_bytes(plan, x, columns))
    each = sums * x.dtype.itemsize + 2 * parameters + block
    if device_of(x) != "cpu":
        each += scratch_bytes(x, samples * (1 + (columns or column_count(plan))) * _widest_bytes(plan, x))
    return results + 2 * threads * each


def advice(plan: Plan, x: Array, cut: Cut) -> str:
    """After a call that ran out of memory: which blocks would fit into what is free, by the estimate.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    cut : Cut
        What did not fit: half of it is the most that is proposed.
    """
    free, samples = free_memory(device_of(x)), max(block.stop - block.start for block in cut.samples)
    room, total = f"the {free / 2**20:.0f} MiB that are free", max(1, column_count(plan))
    columns, whole = min(cut.columns or total, total), AVERAGE in plan.signals
    if samples > 1 and not whole:
        samples = -(-samples // 2)
    elif columns > 1:
        columns = -(-columns // 2)
    elif cut.threads == 1:
        return f"there is no smaller block, for {room}"
    try:
        samples, fitting, _ = _fit(plan, x, samples, columns, 1, free, whole)
    except (ValueError, MemoryError):
        return f"no block would fit into {room}"
    words = [] if whole else [f"sample_block={samples}"]
    words += [f"column_block={fitting}"] if (fitting or total) < total else []
    words += ["workers=1"] if cut.threads > 1 else []
    return f"{', '.join(words)} would fit into {room}, by an estimate"


def _unfolded_bytes(plan: Plan, x: Array) -> int:
    """Bytes that one sample takes in the largest unfolded input, if anything beside the gradient is wanted."""
    wanted = len(plan.statistics) > 1
    return wanted * max((unfolded for unfolded, _ in _weights(plan)), default=0) * x.dtype.itemsize


def _widest_bytes(plan: Plan, x: Array) -> int:
    """Bytes that one column of one sample takes where it is unfolded, or multiplied out for one weight."""
    return max(map(max, _weights(plan)), default=0) * x.dtype.itemsize


def _weights(plan: Plan) -> list[tuple[int, int]]:
    """For each weight, how many numbers its unfolded input has for one sample, and how many the weight has."""
    weights = [(leaf, s) for leaf in plan.leaves for s in leaf.layer.parameter_shapes().values() if len(s) > 1]
    return [(prod(leaf.output_shape) // s[0] * prod(s[1:]), prod(s)) for leaf, s in weights]


def _sum_bytes(plan: Plan, statistic: Statistic) -> int:
    """Numbers in a statistic without rows, over all parameters; moments are two, in float64."""
    shapes = [shape for leaf in plan.leaves for shape in leaf.layer.parameter_shapes().values() if shape]
    if statistic.reduction == "kronecker":
        return sum(shape[0] ** 2 for shape in shapes)
    if statistic.reduction == "input_square":
        return sum(prod(shape[1:]) ** 2 for shape in shapes if len(shape) > 1)
    return (4 if statistic.reduction == "moments" else 1) * sum(map(prod, shapes))


def column_count(plan: Plan) -> int:
    """All columns but the gradient's."""
    return plan.windows(None)[-1].stop


def stack_bytes(plan: Plan, x: Array, column_block: int | None = None) -> int:
    """Bytes that one sample takes in the largest stack of the sweep."""
    columns = sum(map(plan.loss_columns, plan.signals))
    largest = 1
    for leaf in reversed(plan.leaves[plan.lowest :]):
        carried = 1 + min(columns, column_block or columns)  # the gradient's always
        largest = max(largest, carried * prod(leaf.output_shape))
        columns += plan.residual_columns(leaf)
    return largest * x.dtype.itemsize


def row_bytes(plan: Plan, x: Array) -> int:
    """Bytes that one sample takes in the results that have a row for each."""
    shapes = [shape for leaf in plan.leaves for shape in leaf.layer.parameter_shapes().values()]
    whole = sum(s.per_sample and s.reduction != "square_norm" for s in plan.statistics)
    return whole * sum(map(prod, shapes)) * x.dtype.itemsize


def saved_bytes(plan: Plan, x: Array) -> int:
    """Bytes that the forward pass keeps for one sample: measured on one sample of zeros."""
    zeros = array_module(x).zeros((1, *x.shape[1:]), dtype=x.dtype)
    return sum({id(array): array.nbytes for array in _arrays(plan.network.forward(zeros))}.values())


def _arrays(tree: Any) -> list[Array]:
    """All arrays in nested tuples and lists; views by what they are views of."""
    if isinstance(tree, tuple | list):
        return [array for part in tree for array in _arrays(part)]
    while getattr(tree, "base", None) is not None and is_array(tree.base):
        tree = tree.base
    return [tree] if is_array(tree) else []


def parse_bytes(memory: str | int) -> int:
    """A number of bytes from "2GiB", "500 MB" or an int.

    Raises
    ------
    ValueError
        If it is neither, or not positive.
    """
    match = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*", memory) if isinstance(memory, str) else None
    number = int(float(match[1]) * UNITS[match[2]]) if match else memory
    if isinstance(number, bool) or not isinstance(number, Integral) or number <= 0:
        raise ValueError(f"memory: expected bytes as an integer, or a number with {', '.join(UNITS)}, got {memory!r}")
    return int(number)


def cpu_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """The number of BLAS's threads is the process's: whoever sets it restores it, and of calls at one time the first.

    By the same thread, for threadpoolctl lets no other restore it. A call that goes on after the first one's end has
    BLAS's own threads beside its own: slower, and right.
    """

    def __init__(self) -> None:
        self.lock, self.depth = Lock(), 0
        self.owner: int | None = None
        self.limit: Any = None

    def __enter__(self) -> None:
        controller = _controller()
        with self.lock:
            if self.owner is None:
                self.owner = get_ident()
                self.limit = controller.limit(limits=1, user_api="blas").__enter__() if controller else None
            self.depth += self.owner == get_ident()

    def __exit__(self, *error: object) -> None:
        with self.lock:
            if self.owner != get_ident():
                return
            self.depth -= 1
            if self.depth == 0:
                self.owner = None
                if self.limit is not None:
                    self.limit.__exit__(*error)


_SHARED = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager:
    """A context in which BLAS uses one thread, for the blocks' threads are enough."""
    return _SHARED


@functools.cache  # finding the libraries takes longer than a small sweep
def _controller() -> Any:
    """What can limit BLAS's threads; None where threadpoolctl is missing, and blocks are taken by one thread then."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
