"""Results that are not finite: a warning that names the quantity, the parameter and the layer."""

import warnings

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

CE = losses.CrossEntropyLoss()
X = np.full((4, 3), 3e38, "float32")
X[0] = 1
Y = np.zeros(4, int)


def network():
    return gb.Sequential(layers.Linear(3, 4), layers.Sigmoid(), layers.Linear(4, 2), rng=0)


def said(call):
    """The result of a call, and its warnings of gbackprop's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [warning for warning in caught if warning.category is gb.NotFiniteWarning]


@pytest.mark.parametrize("options", [{}, {"sample_block": 1, "workers": 2}], ids=str)
def test_the_quantity_the_parameter_and_the_layer_are_named(options):
    asked = q.DiagGGN(), q.KFAC(), q.BatchGrad()
    result, (warning,) = said(lambda: gb.backward(network(), CE, X, Y, *asked, rng=0, **options))
    message = str(warning.message)
    assert message.startswith(
        "NaN or infinity in DiagGGN() of 0.weight (layer 0, Linear(3, 4)); KFAC(mc_samples=1) of 0.weight (layer 0, "
        "Linear(3, 4)): numbers beyond the range of float32 came up"
    )
    assert warning.filename == __file__
    assert not np.isfinite(result["diag_ggn"]["0.weight"]).all()
    assert np.isfinite(result["diag_ggn"]["2.weight"]).all()


def test_everything_is_named_where_the_forward_pass_overflows():
    net = network()
    net.parameters["2.weight"][...] = 3e38
    _, (warning,) = said(lambda: gb.backward(net, CE, X, Y, q.BatchGrad()))
    message = str(warning.message)
    assert "in the loss; the output; gradient of 0.weight (layer 0, Linear(3, 4)) and 3 more; BatchGrad() of" in message


def test_numbers_that_are_finite_but_large_are_not_warned_of():
    x, y = np.full((1, 2), 2e38, "float32"), np.zeros((1, 1), "float32")
    net = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0)
    net.parameters["0.weight"] = np.zeros((1, 2))
    net.parameters["0.weight"][0, 0] = 1 / 4e38
    result, found = said(lambda: gb.backward(net, losses.MSELoss(), x, y))
    assert (result.gradient["0.weight"] > 1.9e38).all()
    assert found == []


def test_whoever_ignores_numpys_warnings_ignores_this_one():
    with np.errstate(over="ignore", invalid="ignore"):
        result, found = said(lambda: gb.backward(network(), CE, X, Y, q.DiagGGN()))
    assert found == []
    assert not np.isfinite(result["diag_ggn"]["0.weight"]).all()


def test_results_of_other_kinds_are_passed_over():
    class Described(q.DiagGGN):
        """A quantity that gives texts."""

        def finish(self, scale, square):
            return f"up to {square.max()}"

    result, found = said(lambda: gb.backward(network(), CE, X[:1], Y[:1], Described()))
    assert found == []
    assert result["diag_ggn"]["2.bias"].startswith("up to ")
