"""The cut of a batch into blocks of samples and columns, and the number of threads that process them.

The stack of a block should stay in a cache from one layer to the next, but a block must be large enough for fast matrix
products. Small batches are not cut: starting threads would cost more than they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gbackprop.array import Array, device_of, is_array
from gbackprop.base.errors import TooLargeError
from gbackprop.base.memory import available_memory, size
from gbackprop.base.threads import blas_controller, cpu_count
from gbackprop.calculus.gram import Pairs
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.signals import AVERAGE, GRADIENT, SAMPLES
from gbackprop.engine.costs import BLOCK_BYTES, COUPLED_BYTES, REUSED_BYTES, SMALL_BYTES
from gbackprop.engine.estimate import (
    Largest,
    fit,
    least_samples,
    output_bytes,
    pair_bytes,
    pairs,
    parse_bytes,
    row_bytes,
    small_samples,
    stack_bytes,
    whole_batch,
    whole_columns,
)
from gbackprop.engine.registry import PLAIN, Forms
from gbackprop.engine.spans import column_count, spans
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Quantity


@dataclass(frozen=True)
class Cut:
    """A division of a batch into blocks."""

    samples: list[slice]
    columns: int | None  # of a pass, in addition to the gradient's; None for all
    spans: list[slice]  # the columns of each pass
    threads: int
    small: bool = False  # whether the products are so small that one thread of BLAS is best
    reuses: bool = False  # whether a call without blocks takes its arrays from an arena
    written: bool = False  # whether such a call, on the host, is so small that it may become a program


class Limits(NamedTuple):
    """The arguments of `gbackprop.backward` on which blocks depend; what is None is chosen automatically."""

    sample_block: int | None = None
    column_block: int | None = None
    workers: int | None = None
    memory: str | int | None = None


FREE = Limits()


def choose_blocks(plan: Plan, x: Array, limits: Limits = FREE, forms: Forms = PLAIN) -> Cut:
    """Cut a batch into blocks."""
    sample_block, columns, workers, memory = limits
    if plan.meeting and columns is None and not whole_columns(plan):
        columns = max(1, COUPLED_BYTES // max(1, x.shape[0] * stack_bytes(plan, 1)))
    n, each = x.shape[0], max(stack_bytes(plan, columns), row_bytes(plan) // 4)
    check_pairs(plan, x)
    least, loops = least_samples(plan, forms)
    is_small = n * each <= SMALL_BYTES and not (loops and n >= 2 * least)
    whole = whole_batch(plan) or device_of(x) != "cpu" or (sample_block is None and is_small)
    most = cpu_count()  # more threads would have smaller blocks, and wait for each other
    several = not whole and blas_controller() is not None
    threads = min(workers, most) if workers else (max(1, min(most, n // least)) if several else 1)
    largest = max(least, BLOCK_BYTES // max(each, output_bytes(plan)))
    samples = sample_block or (-(-n // threads) if whole else _even(n, largest, threads))
    if memory is not None:
        fitting = fit(plan, x, Largest(samples, columns, threads, sample_block is not None), parse_bytes(memory), forms)
        samples, columns, threads, _ = fitting
    blocks = [slice(start, min(start + samples, n)) for start in range(0, n, samples)]
    small = device_of(x) == "cpu" and (n <= max(small_samples(plan), least - 1) or loops)
    shipped = all(REDUCTIONS.get(each.reduction.name) is each.reduction for each in plan.statistics)
    reuses = memory is None and device_of(x) == "cpu" and shipped and n * max(each, output_bytes(plan)) >= REUSED_BYTES
    written = memory is None and device_of(x) == "cpu" and n * each <= SMALL_BYTES and len(blocks) == 1
    return Cut(blocks, columns, spans(plan, columns), min(threads, len(blocks)), small, reuses, written)


def check_pairs(plan: Plan, x: Array) -> None:
    """Check that Gram matrices fit into memory; raise a TooLargeError otherwise."""
    statistics = pairs(plan)
    if not statistics or (needed := pair_bytes(plan, len(x))) <= (free := available_memory(device_of(x))):
        return
    asked = [repr(quantity) for quantity, used in plan.needs if set(used) & set(statistics)]
    raise TooLargeError(
        f"{' and '.join(asked)}: the matrices of {len(x)} samples for {len(plan.parameters)} parameters need "
        f"{size(needed)}, with {size(free)} free; give fewer samples"
    )


def _even(n: int, most: int, threads: int) -> int:
    """Return the number of samples in a block, at most `most`, so that threads get equally many blocks if possible."""
    rounds = -(-n // (threads * most))
    return -(-n // (threads * rounds))


def advice(plan: Plan, x: Array, cut: Cut, forms: Forms = PLAIN) -> str:
    """Say which blocks would fit into the free memory, by the estimate, after a call ran out of memory."""
    free, samples = available_memory(device_of(x)), max(block.stop - block.start for block in cut.samples)
    there, total, whole = f"the {size(free)} that are free", max(1, column_count(plan)), whole_batch(plan)
    alone = Largest(samples, cut.columns, 1)
    smaller = alone.smaller(plan) or (alone if cut.threads > 1 else None)
    if smaller is None:
        return f"there is no smaller block, for {there}"
    try:
        fitting = fit(plan, x, smaller, free, forms)
    except (ValueError, MemoryError):
        return f"no block would fit into {there}"
    words = [] if whole else [f"sample_block={fitting.samples}"]
    words += [f"column_block={fitting.columns}"] if (fitting.columns or total) < total else []
    words += ["workers=1"] if cut.threads > 1 else []
    return f"{', '.join(words)} would fit into {there}, by an estimate"


def check_whole(quantities: Sequence[Any], x: Any, limits: Limits) -> None:
    """Check that blocks are whole where KFRA and Gram matrices need that: the batch, and for the latter all columns."""
    sample_block, column_block, workers, _ = limits
    if sample_block is None and column_block is None and workers is None:
        return
    asked = [quantity for quantity in quantities if isinstance(quantity, Quantity)]
    statistics = [(type(quantity).__name__, statistic) for quantity in asked for statistic in quantity.statistics()]
    if column_block is not None and any(statistic.signal == SAMPLES for _, statistic in statistics):
        raise ValueError("BatchGrad(coupled=True) has a row for each of its columns: column_block must be None")
    averages = [name for name, statistic in statistics if statistic.signal == AVERAGE]
    pairs = [(name, statistic) for name, statistic in statistics if isinstance(statistic.reduction, Pairs)]
    if not (averages or pairs) or not is_array(x) or x.ndim == 0:
        return
    cut = (sample_block or len(x)) < len(x) or (workers or 1) > 1
    if cut and averages:
        raise ValueError("KFRA averages over the whole batch at each layer: sample_block and workers must be None")
    for name, statistic in pairs:
        if cut:
            raise ValueError(f"{name} pairs all samples: sample_block and workers must be None")
        if column_block is not None and statistic.signal != GRADIENT:
            raise ValueError(f"{name} pairs all columns: column_block must be None")
