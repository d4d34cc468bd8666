"""Columns that max pooling routes: the same results, and which layers' columns may not wait."""

from dataclasses import replace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import costs
from gbackprop.engine.forms import FORMS
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rewrites import with_visits
from gbackprop.engine.routes import Route
from gbackprop.plain.plan import make_plan
from gbackprop.testing import check_network
from gbackprop.testing.signals import arrivals

CE = losses.CrossEntropyLoss()


def network(dtype="float64", activation=layers.ReLU, classes=7, grouped=2):
    """Convolutions below elementwise layers, padding, dropout and pools; one pool has a linear layer below it."""
    return gb.Sequential(
        layers.Conv2d(2, 6, 3), layers.ReLU(), layers.ZeroPad2d((0, 1, 0, 1)), layers.MaxPool2d(3, 2),
        gb.Sequential(layers.Conv2d(6, 8, 3, padding=1, groups=grouped), activation(), layers.Dropout(0.3)),
        layers.MaxPool2d(2, 1, 1), layers.Identity(), layers.MaxPool2d(2),
        layers.Linear(3, 4), layers.MaxPool2d(2, 1),
        layers.Flatten(), layers.Linear(48, 12), layers.Sigmoid(), layers.Linear(12, classes),
        rng=0, dtype=dtype,
    )  # fmt: skip


def images(samples=5, dtype="float64", classes=7):
    rng = np.random.default_rng(1)
    return rng.standard_normal((samples, 2, 14, 14)).astype(dtype), rng.integers(0, classes, samples)


@pytest.fixture
def always(monkeypatch):
    """Routes wherever there are any, however small the network."""
    monkeypatch.setattr(costs, "SAMPLE_COST", -np.inf)


@pytest.mark.parametrize("options", [{}, {"sample_block": 2, "workers": 2}, {"column_block": 5}, {"training": True}])
@pytest.mark.parametrize("activation", [layers.ReLU, layers.Sigmoid])
def test_a_sweep_with_routed_columns_gives_the_same(options, activation, always, monkeypatch):
    net, (x, y) = network(activation=activation), images()
    asked = [q.DiagGGN(), q.DiagHessian(), q.DiagGGNMC(mc_samples=6), q.Variance(), q.BatchGrad(), q.BatchDiagGGN()]
    routed = gb.backward(net, CE, x, y, *asked, rng=0, **options)
    without_routes(monkeypatch)
    plain = gb.backward(net, CE, x, y, *asked, rng=0, **options)
    for got, want in [(routed.gradient, plain.gradient), *((routed[one], plain[one]) for one in asked)]:
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12 * np.abs(value).max(), err_msg=name)


def without_routes(monkeypatch):
    for kind, row in FORMS.items():
        if getattr(row, "routes", None):
            monkeypatch.setitem(FORMS, kind, replace(row, routes=None))


def test_the_cost_model_is_asked_with_the_sizes_of_the_layer_and_the_windows(monkeypatch):
    asked = []
    monkeypatch.setattr(costs, "routing_pays", lambda *sizes: asked.append(sizes) or True)
    net = gb.Sequential(
        layers.Conv2d(4, 6, (3, 2), groups=2), layers.MaxPool2d((3, 2)), layers.Flatten(), layers.Linear(72, 3), rng=0
    )
    x, y = np.random.default_rng(0).standard_normal((2, 4, 8, 13), dtype=np.float32), np.zeros(2, int)
    gb.backward(net, CE, x, y, q.DiagGGN())
    # three columns; 2 x 6 windows of 6 x 12 positions; weights of 3 * 2 * 4 / 2 inputs and 6 outputs
    assert set(asked) == {(3, 12, 72, 12, 6)}
    asked.clear()
    gb.backward(net, CE, x, y, q.DiagGGN(), column_block=2)
    assert set(asked) == {(2, 12, 72, 12, 6)}


def test_squares_are_moved_to_a_pool_in_a_graph_if_only_the_pool_takes_them(always):
    below = gb.Residual(layers.Conv2d(2, 2, 3, padding=1), layers.ReLU(), layers.MaxPool2d(3, 1, 1))
    parts = [below, layers.Conv2d(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4), layers.Flatten(), layers.Linear(27, 5)]
    net, (x, y) = gb.Sequential(*parts, rng=0, dtype="float64"), images(classes=5)
    plan = make_plan(net, CE, x, y, [q.DiagGGN()], 0)
    visits = with_visits(plan, x, None, NetworkForms(FORMS, plan.leaves), routed=True).swept
    assert [(visit.name, visit.passed[-1].name) for visit in visits if visit.passed] == [("0.2", "0.0"), ("3", "1")]
    asked = [q.DiagGGN(), q.DiagHessian(), q.BatchGrad()]
    fast, plain = gb.backward(net, CE, x, y, *asked), gb.reference(net, CE, x, y, *asked)
    for one in asked:
        for name, value in plain[one].items():
            np.testing.assert_allclose(fast[one][name], value, rtol=0, atol=1e-12 * np.abs(value).max())


class Counted:
    """How many columns a class of layers multiplies at a time."""

    def __init__(self, monkeypatch, kind):
        base = next(base for base in kind.__mro__ if base in FORMS)
        self.widths, form = [], FORMS[base].carry

        def counted(layer, saved, mat, context):
            self.widths.append(len(mat))
            return form(layer, saved, mat, context)

        monkeypatch.setitem(FORMS, base, replace(FORMS[base], carry=counted))


def test_below_the_lowest_pool_the_gradient_goes_alone(always, monkeypatch):
    counted, (x, y) = Counted(monkeypatch, layers.MaxPool2d), images()
    gb.backward(network(), CE, x, y, q.DiagGGN(), q.DiagHessian(), workers=1)
    assert counted.widths == [20, 20, 20, 1]  # 7 classes and 12 sigmoids; the upper ones as soon as all is needed
    counted.widths.clear()
    gb.backward(network(), CE, x, y, q.DiagGGN(), q.BatchDiagGGN(), workers=1)
    assert counted.widths == [8, 8, 8, 8]  # the other quantity needs them


def test_nothing_is_routed_where_that_does_not_pay(monkeypatch):
    def asked_for(*given):
        raise AssertionError("was asked for one")

    monkeypatch.setattr(Route, "of", asked_for)
    x, y = images()
    gb.backward(network(), CE, x, y, q.DiagGGN())  # a small network
    monkeypatch.setattr(costs, "SAMPLE_COST", -np.inf)
    for asked in ([q.KFLR()], [q.BatchDiagGGN()], []):  # no squares
        gb.backward(network(grouped=1), CE, x, y, *asked)
    gb.backward(network(), CE, x, y, q.DiagGGN(), memory="1GiB")  # the estimate is of columns that are not routed
    with pytest.raises(AssertionError, match="was asked"):
        gb.backward(network(), CE, x, y, q.DiagGGN())


def test_a_layer_with_a_transpose_of_its_own_is_asked_for_it(always):
    class Hundredfold(layers.MaxPool2d):
        def mjp(self, saved, mat):
            return 100 * super().mjp(saved, mat)

    def sweep(pool):
        net = gb.Sequential(
            *(layers.Conv2d(1, 3, 2), layers.ReLU(), pool, layers.Flatten(), layers.Linear(12, 4)),
            rng=0, dtype="float64",
        )  # fmt: skip
        x = np.random.default_rng(2).standard_normal((3, 1, 5, 5))
        return gb.backward(net, CE, x, np.arange(3), q.DiagGGN())["diag_ggn"]["0.weight"]

    plain, own, object_ = layers.MaxPool2d(2), Hundredfold(2), layers.MaxPool2d(2)
    object_.mjp = lambda saved, mat: 100 * layers.MaxPool2d.mjp(object_, saved, mat)
    for pool in (own, object_):
        np.testing.assert_allclose(sweep(pool), 1e4 * sweep(plain), rtol=1e-12)


def test_a_convolution_with_jacobians_of_its_own_is_asked_for_them(always):
    class Doubled(layers.Conv2d):
        def forward(self, x):
            y, saved = super().forward(x)
            return 2 * y, saved

        def mjp(self, saved, mat):
            return 2 * super().mjp(saved, mat)

        def parameter_jacobians(self, saved):
            weight = super().parameter_jacobians(saved)["weight"]
            bias = layers.Bias(lambda mat: 2 * self.rows(mat))
            return {"weight": layers.Outer(weight.inputs, bias, self._to_parameter, self._from_parameter), "bias": bias}

    net = gb.Sequential(
        *(Doubled(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4), layers.Flatten(), layers.Linear(27, 5)),
        rng=0, dtype="float64",
    )  # fmt: skip
    result = gb.backward(net, CE, *images(classes=5), q.DiagGGN(), q.BatchDiagGGN())
    for name, each in result["batch_diag_ggn"].items():
        np.testing.assert_allclose(result["diag_ggn"][name], each.sum(0), rtol=1e-11)


@pytest.mark.parametrize("slope", [2.0, np.array([[1.0]]), np.arange(1.0, 4)[:, None, None]])
def test_a_slope_may_be_one_for_several(slope, always, monkeypatch):
    class Linear(layers.Elementwise):
        curvature = "zero"

        def value(self, x):
            return slope * x

        def first(self, x, y):
            return slope

    def sweep():
        net = gb.Sequential(
            *(layers.Conv2d(2, 3, 3), Linear(), layers.MaxPool2d(4), layers.Flatten(), layers.Linear(27, 5)),
            rng=0, dtype="float64",
        )  # fmt: skip
        return gb.backward(net, CE, *images(classes=5), q.DiagGGN())["diag_ggn"]["0.weight"]

    routed = sweep()
    without_routes(monkeypatch)
    np.testing.assert_allclose(routed, sweep(), rtol=1e-12)


def test_a_layer_that_saves_something_of_its_own_has_no_route(always):
    class Mine(layers.ZeroPad2d):
        def forward(self, x):
            return super().forward(x)[0], None

    nets = [
        gb.Sequential(
            *(layers.Conv2d(2, 3, 3), kind(1), layers.MaxPool2d(7), layers.Flatten(), layers.Linear(12, 5)),
            rng=0, dtype="float64",
        )
        for kind in (Mine, layers.ZeroPad2d)
    ]  # fmt: skip
    mine, plain = (gb.backward(net, CE, *images(classes=5), q.DiagGGN())["diag_ggn"]["0.weight"] for net in nets)
    np.testing.assert_allclose(mine, plain, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_routed_columns_against_dense_oracles(reduction, always):
    net = gb.Sequential(
        *(layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.ZeroPad2d(1), layers.MaxPool2d(2, 2)),
        *(layers.Conv2d(2, 2, 2), layers.ReLU(), layers.MaxPool2d(2, 1), layers.Flatten(), layers.Linear(2, 3)),
        rng=0, dtype="float64",
    )  # fmt: skip
    rng, loss = np.random.default_rng(3), losses.CrossEntropyLoss(reduction)
    x, y = rng.standard_normal((3, 1, 5, 5)), rng.integers(0, 3, 3)
    assert check_network(net, loss, x, y).ok


def test_what_is_explained_and_watched_is_what_each_layer_does(always, monkeypatch):
    net, (x, y) = network(), images()
    asked = [q.DiagGGN()]
    told = gb.explain(net, CE, x, y, *asked).steps
    seen = arrivals(net, CE, x, y, asked)["exact"]
    lowest = {step.name: [carried.shape for carried in step.arriving] for step in told if step.name in ("1", "0")}
    assert lowest == {"1": [(1, 5, 6, 12, 12), (7, 5, 6, 12, 12)], "0": [(1, 5, 6, 12, 12), (7, 5, 6, 12, 12)]}
    assert seen["1"].shape == seen["0"].shape == (5, 6 * 144, 6 * 144)


def test_columns_do_not_wait_at_a_layer_with_parameters(always):
    class Scaled(layers.Elementwise):
        """y = a x with one a for each channel."""

        curvature = "zero"

        def parameter_shapes(self):
            return {"a": (3, 1, 1)}

        def draw(self, rng):
            return {"a": rng.standard_normal((3, 1, 1))}

        def value(self, x):
            return self.parameters["a"] * x

        def first(self, x, y):
            return self.parameters["a"] + 0 * x

        def parameter_jacobians(self, saved):
            class Jacobian(layers.ParameterJacobian):
                def per_sample(self, mat):
                    return (mat * saved[0]).sum((3, 4))[..., None, None]

            return {"a": Jacobian()}

    net = gb.Sequential(
        *(layers.Conv2d(2, 3, 2), Scaled(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(108, 5)),
        rng=0, dtype="float64",
    )  # fmt: skip
    x, y = images(classes=5)
    found = gb.backward(net, CE, x, y, q.DiagGGN())["diag_ggn"]
    per_sample = gb.backward(net, CE, x, y, q.BatchDiagGGN())["batch_diag_ggn"]
    assert set(found) == set(per_sample)
    for name, value in per_sample.items():
        np.testing.assert_allclose(found[name], value.sum(0), rtol=1e-12)


def test_nothing_is_routed_for_kfra(always):
    net = gb.Sequential(
        *(layers.Conv2d(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4), layers.Flatten(), layers.Linear(27, 5)),
        rng=0, dtype="float64",
    )  # fmt: skip
    x, y = images(classes=5)
    alone, both = (gb.backward(net, CE, x, y, *asked)["kfra"] for asked in ([q.KFRA()], [q.KFRA(), q.DiagGGN()]))
    for name, block in alone.items():
        np.testing.assert_array_equal(both[name].B, block.B)


def test_a_weight_with_a_square_of_its_own_is_asked_for_it(always):
    class Hundredfold(layers.Outer):
        def square(self, mat, sign=None):
            return 100 * super().square(mat, sign)

    class Own(layers.Conv2d):
        def parameter_jacobians(self, saved):
            jacobians = super().parameter_jacobians(saved)
            jacobians["weight"].__class__ = Hundredfold
            return jacobians

    def sweep(kind):
        net = gb.Sequential(
            *(kind(2, 3, 3), layers.MaxPool2d(4), layers.Flatten(), layers.Linear(27, 5)), rng=0, dtype="float64"
        )
        return gb.backward(net, CE, *images(classes=5), q.DiagGGN())["diag_ggn"]["0.weight"]

    np.testing.assert_allclose(sweep(Own), 100 * sweep(layers.Conv2d), rtol=1e-12)
