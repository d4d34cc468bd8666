"""Where the time of a call goes, per layer and step: ``python benchmarks/where_time_goes.py NETWORK N QUANTITY ...``.

The call runs in one thread, in the blocks of samples that it would have by default. Each layer, and each reduction
taken at it, is a frame of its own name in pyinstrument's tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from pyinstrument import Profiler
from specs import SPECS

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.base.threads import one_blas_thread
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import Signals
from gbackprop.engine import sweep as fast
from gbackprop.engine.arena import arena
from gbackprop.engine.blocks import choose_blocks
from gbackprop.engine.forms import FORMS
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rewrites import with_visits
from gbackprop.engine.rows import Rows
from gbackprop.engine.sweep import Block, Execution, FastSweep, sweep_block
from gbackprop.plain.plan import Plan, make_plan
from gbackprop.quantities import Statistic


def named(name: str, call: Callable[[], Any]) -> Any:
    """Call something in a frame that a profiler shows by `name`."""

    def frame() -> Any:
        return call()

    code = frame.__code__.replace(co_name=name, co_qualname=name)
    return FunctionType(code, frame.__globals__, closure=frame.__closure__)()


class Named(FastSweep):
    """A sweep whose layers and reductions are frames of their own."""

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        visit = super().visit
        return named(f"{leaf.name}: {type(leaf.layer).__name__}", lambda: visit(leaf, saved, signals))

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        carry = super().carry
        return named(f"{leaf.name}: {type(leaf.layer).__name__}: columns", lambda: carry(leaf, saved, signals))

    def reduce(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        reduce = super().reduce
        signal = f" of {statistic.signal.name}" if statistic.signal else ""
        label = f"{name}: {statistic.reduction.name}{signal}"
        return named(label, lambda: reduce(statistic, name, jacobian, arriving))


def prepare(network: str, samples: int, names: list[str]) -> tuple[Plan, np.ndarray, np.ndarray]:
    """The plan of a call, and its batch."""
    spec, shape, classes = SPECS[network]
    net = gb.Sequential(*(getattr(layers, kind)(**keywords) for kind, keywords in spec), rng=0, dtype="float32")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((samples, *shape), dtype=np.float32), rng.integers(0, classes, samples)
    asked = [getattr(gb.quantities, name)() for name in names]
    return make_plan(net, losses.CrossEntropyLoss(), x, y, asked, 0), x, y


def main(network: str = "3c3d", samples: str = "64", *names: str) -> None:
    """Profile a call after one that is not counted."""
    plan, x, y = prepare(network, int(samples), list(names) or ["DiagGGN"])
    fast.FastSweep = Named
    profiler = Profiler(interval=0.0005)
    for counted in (False, True):
        results = Rows(len(x), reuse=True)
        if counted:
            profiler.start()
        with one_blas_thread(), arena() as memory:
            cut, known = choose_blocks(plan, x), NetworkForms(FORMS, plan.leaves)
            run = Execution(with_visits(plan, x, None, known, routed=True), x, y, cut, known)
            for rows in cut.samples:
                sweep_block(run, Block(rows, results), memory)
    profiler.stop()
    print(profiler.output_text(unicode=True, color=False, show_all=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
