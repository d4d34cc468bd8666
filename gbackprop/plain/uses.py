"""Columns that meet: at an output that several layers take, and at a parameter that is used several times.

A column has the same index (signal, origin, number there) everywhere. Columns of equal index are added, and one that
is missing is zero. For a parameter, J = Σₖ Jₖ: its columns are added over its uses before anything is squared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gbackprop.array import array_module
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.signals import RESIDUAL, Columns, Signals, Stack
from gbackprop.calculus.tied import Direct, tied
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Statistic

Use = tuple[ParameterJacobian, Stack]
"""One use of a parameter: its Jacobian there, and the columns at the output of the layer."""

Index = tuple[Any, Any]
"""The signal and the origin of columns."""


class Uses:
    """The uses of parameters that the sweep has met, until it has met all uses of one.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.met: dict[str, list[Use]] = {}
        self.direct: dict[str, list[Stack]] = {}

    def add(
        self, name: str, jacobian: ParameterJacobian, stack: Stack
    ) -> list[tuple[ParameterJacobian, Stack, Sequence[Statistic]]]:
        """Add a use of a parameter; at the last, return all uses as one, with the statistics to compute from it.

        Columns with a piece on the parameter itself, which is as large as the parameter, are apart: a statistic is the
        sum over all columns, if its reduction has a formula.
        """
        statistics = self.plan.extracted[name]
        if self.plan.flow.uses[name] == 1:
            return [(jacobian, stack, statistics)]
        met = self.met.setdefault(name, [])
        met.append((jacobian, stack))
        if len(met) < self.plan.flow.uses[name]:
            return []
        if name not in self.direct:
            return [(*joined(met), statistics)]
        direct = Stack.of([part for stack in self.direct[name] for part in stack])
        start = {origin for _, _, _, origins in direct.spans for origin, _ in origins}
        whole = [each for each in statistics if each.signal == RESIDUAL and each.reduction.formula is None]
        rest = [each for each in statistics if each not in whole]
        parts = [
            (_of(met, lambda origin: origin not in start), rest),
            ([*_of(met, start.__contains__), (Direct(), direct)], [each for each in rest if each.signal == RESIDUAL]),
        ]
        if whole:  # a Kronecker factor is of one Jacobian
            parts.append(([*[(each, stack.only({RESIDUAL})) for each, stack in met], (Direct(), direct)], whole))
        return [(*joined(uses), some) for uses, some in parts if uses]

    def add_direct(self, name: str, columns: Columns) -> None:
        """Add residual columns with a piece on the parameter itself: (V, N, *parameter)."""
        self.direct.setdefault(name, []).append(Stack.of([(RESIDUAL, columns)]))


def _of(uses: Sequence[Use], start: Callable[[Any], bool]) -> list[Use]:
    """Return the uses with the columns of some origins alone; those without any are left out."""
    found = []
    for jacobian, stack in uses:
        some = [(signal, columns) for (signal, origin), columns in _by_index(stack) if start(origin)]
        if some:
            found.append((jacobian, Stack.of(some)))
    return found


def joined(uses: Sequence[Use]) -> Use:
    """Return all uses of a parameter as one."""
    stacks = aligned([stack for _, stack in uses])
    jacobian, mat = tied([jacobian for jacobian, _ in uses], [stack.values for stack in stacks])
    return jacobian, stacks[0].with_values(mat)


def added(before: Signals, more: Signals) -> Signals:
    """Add the signals that two layers carry to the same place. Ḡ exists in chains alone."""
    one, other = aligned([before.stack, more.stack])
    return Signals(one.with_values(one.values + other.values))


def aligned(stacks: Sequence[Stack]) -> list[Stack]:
    """Return the stacks with the same columns in the same order: one that a stack lacks is zero there."""
    first = stacks[0]
    if all(_indices(stack) == _indices(first) for stack in stacks[1:]):
        return list(stacks)
    known = [dict(_by_index(stack)) for stack in stacks]
    merged = {index: columns for mine in known for index, columns in mine.items()}
    signals = list(dict.fromkeys(signal for signal, _ in merged))
    order = sorted(merged, key=lambda index: signals.index(index[0]))
    wanted = {index: merged[index] for index in order}
    return [_filled(stack, mine, wanted) for stack, mine in zip(stacks, known, strict=True)]


def _indices(stack: Stack) -> list[Any]:
    return [(signal, origins) for signal, _, _, origins in stack.spans]


def _by_index(stack: Stack) -> Iterator[tuple[Index, Columns]]:
    """Yield the columns of each signal and origin."""
    for signal, columns in stack:
        start = 0
        for origin, width in columns.origins or (("loss", len(columns.values)),):
            some = slice(start, start + width)
            sign = None if columns.sign is None else columns.sign[some]
            yield (signal, origin), Columns(columns.values[some], sign, columns.origins and ((origin, width),))
            start += width


def _filled(stack: Stack, known: dict[Index, Columns], wanted: dict[Index, Columns]) -> Stack:
    """Return a stack of all wanted columns, with zeros for those that it lacks."""
    xp, features = array_module(stack.values), stack.values.shape[1:]
    parts = []
    for (signal, origin), columns in wanted.items():
        if (signal, origin) in known:
            values = known[signal, origin].values
        else:
            values = xp.zeros((len(columns.values), *features), dtype=stack.values.dtype)
        parts.append((signal, replace(columns, values=values)))
    return Stack.of(parts)
