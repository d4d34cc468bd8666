"""The last step of each quantity, as it is told, gives the quantity from the statistics of the plain sweep."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.plan import make_plan
from gbackprop.plain.reference import Sweep
from gbackprop.testing.runs import every_quantity

N = 5
FORMULAS = {
    "as extracted": lambda N, R, value: value,
    "(Q/N + m²) / R²": lambda N, R, moments: (moments.centered / N + moments.mean**2) / R**2,
    "Q / (N R²)": lambda N, R, moments: moments.centered / (N * R**2),
    "square of exact + square of residual": lambda N, R, exact, residual: exact + residual,
    "batch_square of exact + batch_square of residual": lambda N, R, exact, residual: exact + residual,
    "A = input_square / N, B as extracted": lambda N, R, inputs, b: (None if inputs is None else inputs / N, b),
}


def case(reduction="mean"):
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(1)
    return net, losses.CrossEntropyLoss(reduction), rng.standard_normal((N, 3)), rng.integers(0, 2, N)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("quantity", every_quantity(), ids=lambda quantity: quantity.name)
def test_the_formula_that_is_told_gives_the_result(quantity, reduction):
    net, loss, x, y = case(reduction)
    told = gb.explain(net, loss, x, y, quantity, rng=0).finished[1]
    assert (told.name, told.scale) == (quantity.name, quantity.scale)
    plan = make_plan(net, loss, x, y, [quantity], 0)
    sweep = Sweep(plan)
    output, saved = sweep.forward(x)
    sweep.backward(output, y, saved)
    result = gb.reference(net, loss, x, y, quantity, rng=0)[quantity]
    for name, value in result.items():
        statistics = [sweep.found.get((statistic, name), 0) for statistic in quantity.statistics()]
        computed = FORMULAS[told.formula](N, 1 / N if reduction == "mean" else 1, *statistics)
        got, want = ((value.A, value.B), computed) if isinstance(value, q.Kronecker) else ([value], [computed])
        for one, other in zip(got, want, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_the_text_ends_the_sweep_with_them():
    text = str(gb.explain(*case(), q.Variance(), q.KFLR()))
    assert "finishes  variance           Q / (N R²)  " in text
    assert "it is 1/N Σₙ (∇ℓₙ)² − (1/N Σₙ ∇ℓₙ)²" in text
    assert text.index("ends      nothing below") < text.index("finishes  gradient") < text.index("finishes  kflr")


def test_a_users_formula_is_told_or_said_to_be_missing():
    class Doubled(q.DiagGGN):
        name = "doubled"

        def finish(self, scale, square):
            return 2 * square

    class Told(Doubled):
        finishes = "2 square"

    missing, told = gb.explain(*case(), Doubled(), Told()).finished[1:]
    assert missing.formula == "by its method finish, whose formula it does not say"
    assert told.formula == "2 square"
