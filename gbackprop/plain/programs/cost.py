"""The cost of a program: operations, bytes and memory of each step; by section, by layer, by quantity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import setitem
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from gbackprop.base.extras import require
from gbackprop.base.memory import size
from gbackprop.base.recording.tape import Ref, TapeStep, mapped, refs
from gbackprop.plain.programs.counts import operations
from gbackprop.plain.programs.sections import NamedFactor


class Amounts(NamedTuple):
    """Arithmetic operations, bytes read and written; and seconds, 0 if they were not measured."""

    operations: int = 0
    read: int = 0
    written: int = 0
    seconds: float = 0.0


class StepCost(NamedTuple):
    """The cost of a step; `layer` is the section in parentheses outside of layers, `live` all bytes in use."""

    name: str
    section: str
    layer: str
    needed_by: tuple[str, ...]
    live: int
    amounts: Amounts


@dataclass(frozen=True)
class Cost:
    """The cost of a program: names of its results, a row for each step, and if times were measured the machine's rates.

    These are operations per second of a product of matrices, and bytes per second of a copy.
    """

    title: str
    results: tuple[str, ...]
    rows: tuple[StepCost, ...]
    rates: tuple[float, float] | None

    operations = property(lambda self: _sum(self.rows).operations)
    read = property(lambda self: _sum(self.rows).read)
    written = property(lambda self: _sum(self.rows).written)
    largest = property(lambda self: max((row.live for row in self.rows), default=0))

    def by_section(self) -> dict[str, Amounts]:
        """Return the amounts of each kind of section: forward, loss, columns, extract, carry, append, finish."""
        return self._by([row.section for row in self.rows])

    def by_layer(self) -> dict[str, Amounts]:
        """Return the amounts of each layer by its name, and of the sections outside of layers by theirs."""
        return self._by([row.layer for row in self.rows])

    def by_quantity(self) -> dict[str, Amounts]:
        """Return the amounts of the steps that one result alone needs, for each; also "shared", and "unused" if any."""
        needed_by = [row.needed_by or ("unused",) for row in self.rows]
        found = self._by([names[0] if len(names) == 1 else "shared" for names in needed_by])
        return {**dict.fromkeys((*self.results, "shared"), Amounts()), **found}

    def figure(self) -> Any:
        """Return a Matplotlib figure of operations, bytes, and seconds if they were measured, by layer and section."""
        return _draw(self)

    def __repr__(self) -> str:
        return _table(self)

    def _by(self, names: list[str]) -> dict[str, Amounts]:
        groups = defaultdict(list)
        for name, row in zip(names, self.rows, strict=True):
            groups[name].append(row)
        return {name: _sum(rows) for name, rows in groups.items()}


def _table(cost: Cost) -> str:
    """Write the cost by section, by layer, and by the result that alone needs it."""
    counted = f"{cost.operations:,} operations, {size(cost.read)} read, {size(cost.written)} written"
    lines = [cost.title, f"{counted}, at most {size(cost.largest)} live"]
    if cost.rates:
        lines.append("The machine: {:.2e} operations and {:.2e} bytes per second".format(*cost.rates))
    for head in ("section", "layer", "quantity"):
        times = f"{'time':>11} {'arithmetic':>11} {'bandwidth':>10}" if cost.rates else ""
        lines += ["", f"by {head:<21} {'operations':>15} {'share':>6} {'read':>11} {'written':>11}{times}"]
        for name, (count, read, written, seconds) in getattr(cost, f"by_{head}")().items():
            share = count / max(cost.operations, 1)
            line = f"{name:<24} {count:>15,} {share:>6.1%} {size(read):>11} {size(written):>11}"
            if cost.rates:
                done = zip((count, read + written), cost.rates, strict=True)
                parts = [amount / (rate * (seconds or 1)) for amount, rate in done]
                line += f"{1e6 * seconds:>8,.0f} µs {parts[0]:>11.1%} {parts[1]:>10.1%}"
            lines.append(line)
    return "\n".join(lines)


def _draw(cost: Cost) -> Any:
    """Draw a bar for each layer, with its sections as parts: operations, bytes, and seconds if they were measured."""
    figure = require("matplotlib.figure", "figures").Figure(layout="constrained")
    titles = ("operations", "bytes read and written", "seconds")[: 3 if cost.rates else 2]
    layers, sections = list(cost.by_layer()), list(cost.by_section())
    figure.set_size_inches(8, 1.6 + 0.25 * len(layers))
    for at, axes in enumerate(figure.subplots(1, len(titles), sharey=True)):
        widths = {section: dict.fromkeys(layers, 0.0) for section in sections}
        for row in cost.rows:
            count, read, written, seconds = row.amounts
            widths[row.section][row.layer] += (count, read + written, seconds)[at]
        left = [0.0] * len(layers)
        for section, each in widths.items():
            axes.barh(layers, list(each.values()), left=left, label=section)
            left = [a + b for a, b in zip(left, each.values(), strict=True)]
        axes.set_title(titles[at], fontsize=9)
    figure.axes[0].invert_yaxis()
    figure.suptitle(cost.title, fontsize=9, wrap=True)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    return figure


def _sum(rows: Iterable[StepCost]) -> Amounts:
    return Amounts(*map(sum, zip(Amounts(), *[row.amounts for row in rows], strict=True)))


def cost_of(program: Any, runs: int) -> Cost:
    """Return the cost of a program, each step of which is run `runs` times for its time."""
    run, needed_by, rows = _Run(program), program.needed_by(), []
    steps = [step for step in program.steps if step.function is not None]
    amounts = [run.step(step, runs) for step in steps]
    for step, live, each in zip(steps, run.live(steps), amounts, strict=True):
        section, layer = step.section or ("constants", "")
        place = f"({section})" if section in ("constants", "loss", "finish") else layer or "(alone)"
        rows.append(StepCost(step.name, section, place, tuple(needed_by[step.results[0]]), live, each))
    dtype = program.recording.tape.values[program.recording.result.loss.number].dtype
    title = program.source.partition("\n\n")[0].strip('"').replace("\n", " ")
    return Cost(title, tuple(program.results), tuple(rows), _rates(dtype) if runs else None)


class _Run:
    """A run of a program's steps one by one: the value of each number, and the first number that had its memory."""

    def __init__(self, program: Any) -> None:
        self.program, self.values, self.homes = program, dict[int, np.ndarray](), dict[int, int]()
        self.memory, self.bytes = dict[int, int](), dict[int, int]()  # homes by the owner's identity; bytes of homes
        for step in program.steps:
            if step.function is None:  # an input, or a constant, which is an array of its own
                value = program.recording.tape.values[step.results[0]]
                self._add(step.results[0], value if step.name == "leaf" else value.copy("K"), whole=False)
        self.given = frozenset(self.bytes)

    def step(self, step: TapeStep, runs: int) -> Amounts:
        """Run a step; return its amounts."""
        args, kwargs, function = self._lowered(step.args), self._lowered(step.kwargs), step.function
        found = function(*args, **kwargs)
        out = [np.asarray(each) for each in (found if isinstance(found, tuple | list) else [found])]
        taken = {number: _occupied(self.values[number]) for number in refs((step.args, step.kwargs))}
        read, written, first = sum(taken.values()), sum(each.nbytes for each in out), next(iter(taken), -1)
        count = operations(step.name, out, args, kwargs)
        if step.name == "setitem":  # in place, or on a copy of the array, or on a constant that the line makes
            out = [np.array(args[0], out[0].dtype)]  # its axes in the same order in memory
            out[0][args[1]] = args[2]
            copied, made = step.results[0] in self.program.copied, self.homes[first] in self.given
            read, written = read - taken[first] * (not copied), args[0][args[1]].nbytes + written * (copied or made)
            if not copied and not made:
                self.memory[id(out[0])] = self.homes[first]
                function, args = partial(setitem, args[0].copy()), args[1:]
        elif all(id(_owner(each)) in self.memory for each in out):  # views
            read = written = 0
        elif step.name in ("getitem", "take", "take_along_axis"):
            read += written - taken[first]
        for number, value in zip(step.results, out, strict=True):
            self._add(number, value)
        return Amounts(count, read, written, median([_timed(function, *args, **kwargs) for _ in range(runs)] or [0.0]))

    def live(self, steps: list[TapeStep]) -> list[int]:
        """Return the bytes in use during each step: inputs always, other arrays from their step to their last use."""
        used = [{self.homes[n] for n in (*refs((step.args, step.kwargs)), *step.results)} for step in steps]
        last = {home: at for at, homes in enumerate(used) for home in homes}
        results = [self.homes[self.program.same.get(number, number)] for number in self.program.paths]
        last |= dict.fromkeys((*results, *self.given), len(steps))
        born, now, found = set(self.given), sum(self.bytes[home] for home in self.given), []
        for at, homes in enumerate(used):
            now += sum(self.bytes[home] for home in homes - born)
            born |= homes
            found.append(now)
            now -= sum(self.bytes[home] for home in homes if last[home] == at)
        return found

    def _add(self, number: int, value: np.ndarray, whole: bool = True) -> None:
        self.values[number], owner = value, _owner(value)
        home = self.homes[number] = self.memory.setdefault(id(owner), number)
        self.bytes.setdefault(home, (owner if whole else value).nbytes)

    def _lowered(self, value: Any) -> Any:
        if isinstance(value, NamedFactor):
            return float(value)
        return self.values[value.number] if isinstance(value, Ref) else mapped(self._lowered, value)


def _owner(a: np.ndarray) -> np.ndarray:
    """Return the array that has the memory of a view."""
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


def _occupied(a: np.ndarray) -> int:
    """Return the bytes of the memory that an array reaches, if it repeats numbers of it."""
    low, high = np.lib.array_utils.byte_bounds(a)
    return min(a.nbytes, abs(high - low))


def _timed(function: Any, *args: Any, **kwargs: Any) -> float:
    start = perf_counter()
    function(*args, **kwargs)
    return perf_counter() - start


def _rates(dtype: Any) -> tuple[float, float]:
    """Measure operations and bytes per second: the best of five products of matrices, and of five copies."""
    a, x = np.ones((512, 512), dtype), np.ones(2**22, dtype)
    b, y = np.empty_like(a), np.empty_like(x)
    product, copy = (min(_timed(*call) for _ in range(5)) for call in ((np.matmul, a, a, b), (np.copyto, y, x)))
    return 2 * 512**3 / product, 2 * x.nbytes / copy
