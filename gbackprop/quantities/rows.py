"""Statistics in the entries of the input, of which each sample has a row of its own.

A sum over samples has in each row the term of one sample: a reduction with a row for each sample gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.moments import Moments
from gbackprop.quantities.base import Scale, Statistic

ROWS = {"sum": "batch", "square": "batch_square", "moments": "batch"}
"""The reductions whose rows are those of a sum over samples."""

Found = dict[tuple[Statistic, str], Any]


def in_rows(statistic: Statistic) -> Statistic | None:
    """Return the statistic whose rows are this one in the entries of the input, or None if there is none."""
    known, name = statistic.reduction, ROWS.get(statistic.reduction.name)
    if name is not None and REDUCTIONS.get(known.name) == known:
        return Statistic(name, statistic.signal, only=statistic.only)
    return statistic if known.per_sample and known.formula else None


def extracted(statistics: Sequence[Statistic], names: Sequence[str], own: frozenset[str]) -> dict[str, Any]:
    """Return the statistics to extract of each parameter; of those in `own`, the ones with rows."""
    rows = [in_rows(each) for each in statistics if own and (each.only is None or each.only in own)]
    stand_ins = tuple(dict.fromkeys([each for each in rows if each is not None]))
    return {name: stand_ins if name in own else statistics for name in names}


def with_rows(found: Found, statistics: Sequence[Statistic], scale: Scale) -> Found:
    """Return values of statistics, with those of the input, from what was extracted.

    Means are divided by N in place: a second array of A's size takes longer than a sweep.
    """
    for (statistic, _), value in found.items() if scale.batch > 1 else ():
        if statistic.mean and value is not None:
            value /= scale.batch
    if not scale.rows:
        return found
    own = [(each, name) for name in scale.rows for each in statistics if each.only in (None, name)]
    rows = {(each, name): found.get((in_rows(each), name)) for each, name in own}  # type: ignore[arg-type]
    return found | {key: of_rows(key[0], value, scale.batch) for key, value in rows.items() if value is not None}


def of_rows(statistic: Statistic, rows: Any, batch: int) -> Any:
    """Return a statistic in the entries of the input from the rows: those of other samples are zero."""
    if statistic.reduction.name == "moments":
        each = rows.astype("float64")
        return Moments(batch, each / batch, each**2 * (1 - 1 / batch))
    return rows / batch if statistic.mean else rows
