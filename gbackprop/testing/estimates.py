"""The t test of a Monte-Carlo quantity: the mean of many draws beside what it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from gbackprop.array import asarray, asnumpy
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.quantities import Quantity
from gbackprop.quantities.diagonal import Sampled
from gbackprop.testing.claims import Compared, NotGivenError
from gbackprop.testing.likelihood import LEAST_EXPECTED, LEVEL, RARE, extremes
from gbackprop.testing.oracles import definition_of
from gbackprop.testing.points import BEYOND, is_beyond
from gbackprop.testing.runs import Runs
from gbackprop.testing.setting import SEED, CheckedNetwork, at_targets, values

RUNS, DRAWS = 12, 251
"""The numbers of runs, and of draws in each, that test an expectation; of what has an M of its own, so many runs."""


def estimated(runs: Runs, quantity: Quantity) -> Compared:
    """The total of each parameter's estimates, in standard errors from what it should be.

    Standard errors are no less than a few draws make of a label or bit that may not have been drawn at all.
    """
    expected = quantity.stated("estimates")
    if expected is None:
        raise NotGivenError("what it estimates is not stated: give the quantity `estimates`")
    sampled = isinstance(quantity, Sampled)  # of any other its own M is part of the formula
    fresh, count = (type(quantity)(mc_samples=DRAWS), RUNS) if sampled else (quantity, DRAWS)
    setting = runs.setting
    signals = [s.signal for s in fresh.statistics() if isinstance(s.signal, MonteCarlo) and s.signal.targets is None]
    if not (draws := max((signal.mc_samples for signal in signals), default=0)):
        raise NotGivenError("it has no columns of draws, whose mean could be tested")
    output = setting.network.forward(setting.x)[0]
    if setting.targets is None and is_beyond(setting.loss, output):
        raise NotGivenError(BEYOND)
    targets = asnumpy(setting.loss.draw(output, count * draws, SEED))
    drawn = targets.reshape(*targets.shape[:2], -1)
    if (drawn != np.median(drawn, 0)).any(2).sum(0).min() < LEAST_EXPECTED:
        raise NotGivenError("the loss is so sure of a target here that it hardly ever draws another")
    found = [values(setting.run(fresh, rng=seed))[0] for seed in range(count)]
    wanted = {name: _total(value) for name, value in setting.values(expected())[0].items()}
    if not wanted:
        raise NotGivenError("the network has no parameter that is not frozen")
    largest = max(map(abs, wanted.values()))
    rare = [asarray(each, setting.device) for each in extremes(setting.loss, targets, output)]
    seldom = [values(setting.run(at_targets(fresh, each)))[0] for each in rare]

    totals = {name: np.array([_total(each[name]) for each in found]) for name in wanted}
    unseen = {name: max((abs(_total(each[name])) for each in seldom), default=0.0) for name in wanted}

    def errors(rounding: float) -> dict[str, float]:
        """Return the standard error of each total."""
        return {
            name: max(each.std(ddof=1) / count**0.5, 1e-9 * abs(wanted[name]), rounding,
                      RARE / (count * draws) * unseen[name]) or 1.0
            for name, each in totals.items()
        }  # fmt: skip

    def standardized(error: dict[str, float]) -> dict[str, np.ndarray]:
        return {name: np.array((each.mean() - wanted[name]) / error[name]) for name, each in totals.items()}

    error, allowed = errors(1e-12 * largest), -float(special.stdtrit(count - 1, LEVEL / (2 * len(wanted))))
    z = standardized(error)
    if not max(map(abs, z.values())) <= allowed and largest <= (terms := _of_terms(setting, expected())):
        z = standardized(error := errors(terms))  # all is 0 but for rounding
    shared = len(wanted) ** 0.5  # by all parameters: their errors are not independent
    means = [each.mean() for each in totals.values()], [*wanted.values()], [shared * each for each in error.values()]
    zeros, oracle = {name: np.zeros(()) for name in z}, f"{count} runs, in standard errors"
    return Compared(z, zeros, oracle, allowed, sizes={"": {"M": draws}}, draws=means)


def _of_terms(setting: CheckedNetwork, quantity: Quantity) -> float:
    """Return the largest error by rounding of a quantity's entries, of Kronecker factors that of B's."""
    definition = definition_of(quantity)
    found = {} if definition is None else setting.rounding(definition)
    return max((error["B"] if isinstance(error, dict) else error for error in found.values()), default=0.0)


def _total(value: Any) -> float:
    return float(value["B"].trace(axis1=-2, axis2=-1).sum() if isinstance(value, dict) else value.sum())
