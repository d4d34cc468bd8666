"""Drawn networks that are no chains: every quantity against its definition by complex steps."""

import numpy as np
from hypothesis import assume, given

import gbackprop as gb
from gbackprop import quantities as q
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.oracles import Dense

SUMS = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN()]
HESSIANS = [q.DiagHessian(), q.BatchDiagHessian()]
TOLERANCE = 1e-9


def arrays(value):
    """A and B of Kronecker factors, or the array alone."""
    if isinstance(value, np.ndarray):
        return [value]
    return [part for part in (value if isinstance(value, tuple) else (value.A, value.B)) if part is not None]


def largest(values):
    return max((np.abs(part).max(initial=0) for value in values.values() for part in arrays(value)), default=0)


@given(graph_problems())
def test_every_quantity_is_its_definition(problem):
    net, loss, x, y = problem.network, problem.loss, problem.x, problem.y
    assume(np.abs(net(x)).max() < 20)  # a count drawn of a rate e^40 is a float without its last digits
    targets = None if loss.undrawn else loss.draw(net(x), 2, np.random.default_rng(problem.seed))
    drawn = [] if targets is None else [q.DiagGGNMC(targets=targets), q.KFAC(targets=targets)]
    asked = [*SUMS, *HESSIANS, q.KFLR(), *drawn]
    result, oracle = gb.reference(net, loss, x, y, *asked), Dense(net, loss, x, y, targets)
    found = {"gradient": result.gradient} | {quantity.name: result[quantity] for quantity in asked}
    size = {name: largest(oracle[name]) for name in found}
    size["diag_hessian"] += size["diag_ggn"]  # of which it is a difference
    size["batch_diag_hessian"] += size["batch_diag_ggn"]
    size["variance"] += size["second_moment"]
    rounding = 1e-15 * max(1, size["gradient"])  # of numbers near 1 that cancel: columns of both signs, equal logits
    for name, values in found.items():
        for key, value in oracle[name].items():
            for one, other in zip(arrays(values[key]), arrays(value), strict=True):
                assert np.abs(one - other).max(initial=0) <= TOLERANCE * size[name] + rounding, (name, key)
