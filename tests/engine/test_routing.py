"""Columns that max pooling routes: the same results, and which layers' columns may not wait."""

from dataclasses import replace

import numpy as np
import pytest
from common import assert_equal, assert_same, batch, chain, hundredfold, with_weight

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import costs
from gbackprop.engine.forms import FORMS
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rewrites import with_visits
from gbackprop.engine.routes import Route
from gbackprop.plain.plan import make_plan
from gbackprop.testing.signals import arrivals

CE = losses.CrossEntropyLoss()


def network(activation=layers.ReLU, grouped=3):
    """Convolutions below elementwise layers, padding, dropout and pools; one pool has a linear layer below it."""
    return chain(
        layers.Conv2d(2, 6, 3), layers.ReLU(), layers.ZeroPad2d((0, 1, 0, 1)), layers.MaxPool2d(3, 2),
        gb.Sequential(layers.Conv2d(6, 9, 3, padding=1, groups=grouped), activation(), layers.Dropout(0.3)),
        layers.MaxPool2d(2, 1, 1), layers.Identity(), layers.MaxPool2d(2),
        layers.Linear(3, 4), layers.MaxPool2d(2, 1),
        layers.Flatten(), layers.Linear(54, 12), layers.Sigmoid(), layers.Linear(12, 7),
    )  # fmt: skip


IMAGES = batch(5, 2, 14, 14, classes=7, seed=1)


def pooled(*below, classes=5):
    """Some layers below a linear one, and images."""
    size = int(np.prod(gb.Sequential(*below).output_shape((2, 14, 14))))
    return chain(*below, layers.Flatten(), layers.Linear(size, classes)), *batch(5, 2, 14, 14, classes=classes, seed=1)


def diagonal(*below):
    """The diagonal of the GGN in the weight of the first of some layers below a linear one."""
    net, x, y = pooled(*below)
    return gb.backward(net, CE, x, y, q.DiagGGN())["diag_ggn"]["0.weight"]


@pytest.fixture
def always(monkeypatch):
    """Routes wherever there are any, however small the network."""
    monkeypatch.setattr(costs, "SAMPLE_COST", -np.inf)


@pytest.mark.parametrize("options", [{}, {"sample_block": 2, "workers": 2}, {"column_block": 5}, {"training": True}])
@pytest.mark.parametrize("activation", [layers.ReLU, layers.Sigmoid])
def test_a_sweep_with_routed_columns_gives_the_same(options, activation, always, monkeypatch):
    net, asked = network(activation), [q.DiagGGN(), q.DiagHessian(), q.DiagGGNMC(mc_samples=6), q.Variance()]
    asked += [q.BatchGrad(), q.BatchDiagGGN()]
    routed = gb.backward(net, CE, *IMAGES, *asked, rng=0, **options)
    without_routes(monkeypatch)
    assert_same(routed, gb.backward(net, CE, *IMAGES, *asked, rng=0, **options))


def without_routes(monkeypatch):
    for kind, row in FORMS.items():
        if getattr(row, "routes", None):
            monkeypatch.setitem(FORMS, kind, replace(row, routes=None))


def test_the_cost_model_is_asked_with_the_sizes_of_the_layer_and_the_windows(monkeypatch):
    asked = []
    monkeypatch.setattr(costs, "routing_pays", lambda *sizes: asked.append(sizes) or True)
    net = chain(layers.Conv2d(4, 6, (3, 2), groups=2), layers.MaxPool2d((3, 2)), layers.Flatten(), layers.Linear(72, 3))
    gb.backward(net, CE, *batch(2, 4, 8, 13), q.DiagGGN())
    # three columns; 2 x 6 windows of 6 x 12 positions; weights of 3 * 2 * 4 / 2 inputs and 6 outputs
    assert set(asked) == {(3, 12, 72, 12, 6)}
    asked.clear()
    gb.backward(net, CE, *batch(2, 4, 8, 13), q.DiagGGN(), column_block=2)
    assert set(asked) == {(2, 12, 72, 12, 6)}


def test_squares_are_moved_to_a_pool_in_a_graph_if_only_the_pool_takes_them(always):
    below = gb.Residual(layers.Conv2d(2, 2, 3, padding=1), layers.ReLU(), layers.MaxPool2d(3, 1, 1))
    net, x, y = pooled(below, layers.Conv2d(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4))
    plan = make_plan(net, CE, x, y, [q.DiagGGN()], 0)
    visits = with_visits(plan, x, None, NetworkForms(FORMS, plan.leaves), routed=True).swept
    assert [(visit.name, visit.passed[-1].name) for visit in visits if visit.passed] == [("0.2", "0.0"), ("3", "1")]
    asked = [q.DiagGGN(), q.DiagHessian(), q.BatchGrad()]
    assert_same(gb.backward(net, CE, x, y, *asked), gb.reference(net, CE, x, y, *asked))


class Counted:
    """The number of columns that a class of layers multiplies at a time."""

    def __init__(self, monkeypatch, kind):
        base = next(base for base in kind.__mro__ if base in FORMS)
        self.widths, form = [], FORMS[base].carry

        def counted(layer, saved, mat, context):
            self.widths.append(len(mat))
            return form(layer, saved, mat, context)

        monkeypatch.setitem(FORMS, base, replace(FORMS[base], carry=counted))


def test_below_the_lowest_pool_the_gradient_goes_alone(always, monkeypatch):
    counted = Counted(monkeypatch, layers.MaxPool2d)
    gb.backward(network(), CE, *IMAGES, q.DiagGGN(), q.DiagHessian(), workers=1)
    assert counted.widths == [20, 20, 20, 1]  # 7 classes and 12 sigmoids; the upper ones as soon as all is needed
    counted.widths.clear()
    gb.backward(network(), CE, *IMAGES, q.DiagGGN(), q.BatchDiagGGN(), workers=1)
    assert counted.widths == [8, 8, 8, 8]  # the other quantity needs them


def test_nothing_is_routed_where_that_does_not_pay(monkeypatch):
    def asked_for(*given):
        raise AssertionError("was asked for one")

    monkeypatch.setattr(Route, "of", asked_for)
    gb.backward(network(), CE, *IMAGES, q.DiagGGN())  # a small network
    monkeypatch.setattr(costs, "SAMPLE_COST", -np.inf)
    for asked in ([q.KFLR()], [q.BatchDiagGGN()], []):  # no squares
        gb.backward(network(grouped=1), CE, *IMAGES, *asked)
    gb.backward(network(), CE, *IMAGES, q.DiagGGN(), memory="1GiB")  # the estimate is of columns that are not routed
    with pytest.raises(AssertionError, match="was asked"):
        gb.backward(network(), CE, *IMAGES, q.DiagGGN())


def test_a_layer_with_a_transpose_of_its_own_is_asked_for_it(always):
    class Hundredfold(layers.MaxPool2d):
        def mjp(self, saved, mat):
            return 100 * super().mjp(saved, mat)

    plain, own, object_ = layers.MaxPool2d(2), Hundredfold(2), layers.MaxPool2d(2)
    object_.mjp = lambda saved, mat: 100 * layers.MaxPool2d.mjp(object_, saved, mat)
    want = 1e4 * diagonal(layers.Conv2d(2, 3, 2), layers.ReLU(), plain)
    for pool in (own, object_):
        np.testing.assert_allclose(diagonal(layers.Conv2d(2, 3, 2), layers.ReLU(), pool), want, rtol=1e-12)


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

    net, x, y = pooled(Doubled(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4))
    assert_sums(gb.backward(net, CE, x, y, q.DiagGGN(), q.BatchDiagGGN()), 1e-11)


def assert_sums(result, tolerance):
    """Columns that wait, and those of each sample, which do not, give the same."""
    assert_equal(result["diag_ggn"], {name: v.sum(0) for name, v in result["batch_diag_ggn"].items()}, tolerance)


@pytest.mark.parametrize("slope", [2.0, np.array([[1.0]]), np.arange(1.0, 4)[:, None, None]])
def test_a_slope_may_be_one_for_several(slope, always, monkeypatch):
    class Linear(layers.Elementwise):
        curvature = "zero"

        def value(self, x):
            return slope * x

        def first(self, x, y):
            return slope

    routed = diagonal(layers.Conv2d(2, 3, 3), Linear(), layers.MaxPool2d(4))
    without_routes(monkeypatch)
    np.testing.assert_allclose(routed, diagonal(layers.Conv2d(2, 3, 3), Linear(), layers.MaxPool2d(4)), rtol=1e-12)


def test_a_layer_that_saves_something_of_its_own_has_no_route(always):
    class Mine(layers.ZeroPad2d):
        def forward(self, x):
            return super().forward(x)[0], None

    kinds = Mine, layers.ZeroPad2d
    mine, plain = (diagonal(layers.Conv2d(2, 3, 3), kind(1), layers.MaxPool2d(7)) for kind in kinds)
    np.testing.assert_allclose(mine, plain, rtol=1e-12)


def test_what_is_explained_and_watched_is_what_each_layer_does(always):
    given = network(), CE, *IMAGES
    told, seen = gb.explain(*given, q.DiagGGN()).steps, arrivals(*given, [q.DiagGGN()])["exact"]
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

    net, x, y = pooled(layers.Conv2d(2, 3, 2), Scaled(), layers.MaxPool2d(2))
    alone, each = (gb.backward(net, CE, x, y, asked) for asked in (q.DiagGGN(), q.BatchDiagGGN()))
    assert_sums({"diag_ggn": alone["diag_ggn"], "batch_diag_ggn": each["batch_diag_ggn"]}, 1e-12)


def test_nothing_is_routed_for_kfra(always):
    net, x, y = pooled(layers.Conv2d(2, 3, 3), layers.ReLU(), layers.MaxPool2d(4))
    alone, both = (gb.backward(net, CE, x, y, *asked)["kfra"] for asked in ([q.KFRA()], [q.KFRA(), q.DiagGGN()]))
    assert_equal(both, alone, 0)


def test_a_weight_with_a_square_of_its_own_is_asked_for_it(always):
    kinds = with_weight(layers.Conv2d, **hundredfold("square")), layers.Conv2d
    own, plain = (diagonal(kind(2, 3, 3), layers.MaxPool2d(4)) for kind in kinds)
    np.testing.assert_allclose(own, 100 * plain, rtol=1e-12)
