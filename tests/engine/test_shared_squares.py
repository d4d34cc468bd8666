"""The squares of a bias are computed once, for the weight and all that asks for them; each result is its own array."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.signals import EXACT
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context

CE = losses.CrossEntropyLoss()
CUTS = pytest.mark.parametrize("cut", [{}, {"column_block": 1}, {"column_block": 2}, {"sample_block": 4}], ids=str)


class OfLastBias(q.Quantity):
    """The diagonal of the GGN of each sample, in one parameter."""

    name = "of_last_bias"
    scale = "R"

    def statistics(self):
        return (q.Statistic("batch_square", EXACT, only="2.bias"),)

    def finish(self, scale, square):
        return square


@pytest.mark.parametrize("run", [gb.backward, gb.reference, gb.explain])
def test_the_name_of_a_parameter_that_is_not_there(run, monkeypatch):
    monkeypatch.setattr(OfLastBias, "statistics", lambda self: (q.Statistic("batch_square", EXACT, only="2.bais"),))
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0)
    message = r"OfLastBias: expected only= one of \['0.weight', '0.bias', '2.weight', '2.bias'\], got '2.bais'"
    with pytest.raises(ValueError, match=message):
        run(net, CE, np.zeros((2, 3), "float32"), np.zeros(2, int), OfLastBias())


class TwoBiases(layers.Linear):
    """y = W x + b + c; b and c have one Jacobian, the same object."""

    def parameter_shapes(self):
        return super().parameter_shapes() | {"extra": (self.out_features,)}

    def draw(self, rng):
        return super().draw(rng) | {"extra": rng.standard_normal(self.out_features).astype(self.dtype)}

    def forward(self, x):
        y, saved = super().forward(x)
        return y + self.parameters["extra"], saved

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return found | {"extra": found["bias"]}


def problem(kind):
    rng = np.random.default_rng(0)
    net = gb.Sequential(kind(5, 4), layers.Tanh(), kind(4, 3), rng=0, dtype="float64")
    return net, CE, rng.standard_normal((6, 5)), rng.integers(0, 3, 6)


def check(given, quantities, cut):
    found, want = gb.backward(*given, *quantities, **cut), gb.reference(*given, *quantities)
    arrays = []
    for quantity in quantities:
        for name, value in found[quantity].items():
            np.testing.assert_allclose(value, want[quantity][name], rtol=0, atol=1e-13, err_msg=name)
            assert not any(np.may_share_memory(value, other) for other in arrays), name
            arrays.append(value)


@CUTS
def test_two_quantities_of_one_parameter(cut):
    check(problem(layers.Linear), [q.BatchDiagGGN(), OfLastBias(), q.DiagGGN()], cut)


@CUTS
def test_two_parameters_of_one_jacobian(cut):
    check(problem(TwoBiases), [q.BatchDiagGGN(), q.BatchDiagHessian(), q.DiagHessian()], cut)


def test_signs_are_part_of_what_is_known():
    rng, context = np.random.default_rng(0), Context(FORMS, Allocator())
    layer = layers.Linear(3, 2)
    layer.dtype = "float64"
    mat, sign = rng.standard_normal((4, 5, 2)), rng.choice([-1.0, 1.0], (4, 5))
    _, saved = layer.forward(rng.standard_normal((5, 3)))
    for jacobian in layer.parameter_jacobians(saved).values():
        for signs in (None, sign):
            for name in ("square", "batch_square", "square_norm"):
                arriving = (mat[:1], None) if name == "square_norm" else (mat, signs)
                want = REDUCTIONS[name].define(jacobian, *arriving)
                np.testing.assert_allclose(context.reduce(jacobian, REDUCTIONS[name], *arriving), want, rtol=1e-12)
