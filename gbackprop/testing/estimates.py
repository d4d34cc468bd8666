"""The t test of a Monte-Carlo quantity: the mean of many draws beside what it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from gbackprop.array import Array, asarray, asnumpy
from gbackprop.quantities import Quantity
from gbackprop.quantities.diagonal import Sampled
from gbackprop.testing.claims import Compared, NotGivenError
from gbackprop.testing.likelihood import LEAST_EXPECTED, LEVEL, RARE
from gbackprop.testing.oracles import definition_of
from gbackprop.testing.runs import Runs
from gbackprop.testing.setting import SEED, CheckedNetwork, at_targets, values

RUNS, DRAWS = 12, 256
"""The numbers of runs, and of draws in each, that test the expectation of a Monte-Carlo quantity."""


def estimated(runs: Runs, quantity: Sampled) -> Compared:
    """The total of each parameter's estimates, in standard errors from what it should be.

    Standard errors are no less than a few draws make of a label or bit that may not have been drawn at all.
    """
    expected = quantity.stated("estimates")
    if expected is None:
        raise NotGivenError("what it estimates is not stated: give the quantity `estimates`")
    setting, fresh = runs.setting, type(quantity)(mc_samples=DRAWS)
    output = setting.network.forward(setting.x)[0]
    targets = asnumpy(setting.loss.draw(output, RUNS * DRAWS, SEED))
    drawn = targets.reshape(*targets.shape[:2], -1)
    if (drawn != np.median(drawn, 0)).any(2).sum(0).min() < LEAST_EXPECTED:
        raise NotGivenError("the loss is so sure of a target here that it hardly ever draws another")
    found = [values(setting.run(fresh, rng=seed))[0] for seed in range(RUNS)]
    z, wanted = {}, {name: _total(value) for name, value in setting.values(expected())[0].items()}
    largest, of_terms = max(map(abs, wanted.values()), default=0.0), _of_terms(setting, expected())
    rounding = of_terms if largest <= of_terms else 1e-12 * largest  # where all is 0, and of terms that cancel
    rare = [values(setting.run(at_targets(fresh, each)))[0] for each in _extremes(setting, targets, output)]
    for name, total in wanted.items():
        totals = np.array([_total(each[name]) for each in found])
        unseen = RARE / (RUNS * DRAWS) * max((abs(_total(each[name])) for each in rare), default=0)
        error = max(totals.std(ddof=1) / RUNS**0.5, 1e-9 * abs(total), rounding, unseen)
        z[name] = np.array((totals.mean() - total) / (error or 1.0))
    allowed = -float(special.stdtrit(RUNS - 1, LEVEL / (2 * len(z))))
    return Compared(z, {name: np.zeros(()) for name in z}, f"{RUNS} runs, in standard errors", allowed)


def _extremes(setting: CheckedNetwork, drawn: np.ndarray, output: np.ndarray) -> list[Array]:
    """Return targets that are one label everywhere, or one bit or count, 0 or 1; none of other targets."""
    bits = setting.loss.counts or np.isin(drawn, (0, 1)).all()
    alike = (np.full_like(drawn[:1], each) for each in range(output.shape[1] if drawn.dtype.kind in "iu" else 2 * bits))
    return [asarray(each, setting.device) for each in alike]


def _of_terms(setting: CheckedNetwork, quantity: Quantity) -> float:
    """Return the largest error by rounding of a quantity's entries, of Kronecker factors that of B's."""
    definition = definition_of(quantity)
    found = {} if definition is None else setting.rounding(definition)
    return max((error["B"] if isinstance(error, dict) else error for error in found.values()), default=0.0)


def _total(value: Any) -> float:
    return float(value["B"].trace(axis1=-2, axis2=-1).sum() if isinstance(value, dict) else value.sum())
