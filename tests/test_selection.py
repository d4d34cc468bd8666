"""Selections: what a layer takes of its input, and what parameters give from the numbers that are taken."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.layers import selection as selections
from gbackprop.sweep import Pass
from gbackprop.testing import check_network
from gbackprop.testing.signals import arrivals

CE = losses.CrossEntropyLoss()
KINDS = ["pool", "pool", "pad", "relu", "tanh", "dropout", "identity"]


def drawn_layer(draw, kind, size):
    """A layer of a kind that can take images of a size."""
    if kind == "pool":
        kernel, stride = draw(st.integers(1, min(3, *size))), draw(st.integers(1, 3))
        return layers.MaxPool2d(kernel, stride, draw(st.integers(0, kernel // 2)), ceil_mode=draw(st.booleans()))
    if kind == "pad":  # negative numbers crop
        return layers.ZeroPad2d([draw(st.integers(-((s - 1) // 2), 2)) for s in (size[1], size[1], size[0], size[0])])
    made = {"relu": layers.ReLU(), "tanh": layers.Tanh(), "identity": layers.Identity()}
    return made.get(kind) or layers.Dropout(0.4)


@st.composite
def chains(draw, channels=None):
    """Images, and layers above a convolution that end with a pool; each with what it saved."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    height, width = draw(st.integers(2, 7)), draw(st.integers(2, 7))
    x = y = rng.standard_normal((draw(st.integers(1, 3)), channels or draw(st.integers(1, 3)), height, width))
    passed = []
    for kind in [*draw(st.lists(st.sampled_from(KINDS), max_size=3)), "pool"]:
        layer = drawn_layer(draw, kind, y.shape[2:])
        try:
            layer.output_shape(y.shape[1:])
        except ValueError:  # a window that sees nothing
            assume(False)
        y, saved = layer.forward_training(y, layer.noise(y.shape, rng))
        passed.append((layer, saved))
    return x, passed, y


def selected(passed):
    selection = None
    for layer, saved in reversed(passed):
        selection = layer.selection(saved, selection)
    return selection


def carried(passed, mat):
    """Up by each layer's J."""
    for layer, saved in passed:
        mat = layer.jmp(saved, mat)
    return mat


def pulled(passed, mat):
    """Down by each layer's Jᵀ."""
    for layer, saved in reversed(passed):
        mat = layer.mjp(saved, mat)
    return mat


@given(chains(), st.integers(0, 9))
def test_a_selection_takes_what_the_layers_jmp_takes(drawn, seed):
    x, passed, y = drawn
    selection, mat = selected(passed), np.random.default_rng(seed).standard_normal(x.shape)
    assert selection.places.shape == selection.slope.shape == (len(x), y[0, 0].size, y.shape[1])
    rows = np.moveaxis(mat, 1, -1).reshape(len(x), -1, x.shape[1])
    taken = np.take_along_axis(rows, selection.places, axis=1) * selection.slope
    want = np.moveaxis(carried(passed, mat[None])[0], 1, -1)
    np.testing.assert_allclose(taken.reshape(want.shape), want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    drawn=chains(channels=4), columns=st.integers(1, 5), groups=st.sampled_from([1, 2]), signed=st.booleans(),
    small_cache=st.booleans(),
)  # fmt: skip
def test_parameters_give_the_same_from_a_selection(dtype, drawn, columns, groups, signed, small_cache):
    x, passed, y = drawn
    rng, tolerance = np.random.default_rng(0), {"float32": 1e-4, "float64": 1e-11}[dtype]
    conv = layers.Conv2d(2, 4, 3, padding=1, groups=groups, bias=signed)
    conv.dtype = dtype
    saved = conv.forward(rng.standard_normal((len(x), 2, *x.shape[2:])).astype(dtype))[1]
    mat = rng.standard_normal((columns, *y.shape)).astype(dtype)
    sign = rng.integers(-1, 2, (columns, len(x))).astype(dtype) if signed else None
    back, selection = pulled(passed, mat).astype(dtype), selected(passed)
    with pytest.MonkeyPatch.context() as patch:
        if small_cache:
            patch.setattr("gbackprop.array._CACHE_BYTES", 2**8)  # one output at a time
        jacobians = conv.parameter_jacobians(saved)
        quick = conv.selected_jacobians(jacobians, selection)
        assert set(quick) == set(jacobians)
        for name, jacobian in quick.items():
            for few_windows in (True, False):
                patch.setattr(selections, "_pairs_cost", lambda *sizes, few=few_windows: -few)
                patch.setattr(selections, "_products_cost", lambda *sizes: -0.5)
                got, want = (j.square(m, sign) for j, m in ((jacobian, mat), (jacobians[name], back)))
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
                scale = np.abs(jacobians[name].square(back)).max()
                np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(scale, 1e-3))
            each, direct = jacobian.per_sample(mat), jacobians[name].per_sample(back)
            np.testing.assert_allclose(each, direct, rtol=0, atol=tolerance * max(np.abs(direct).max(), 1e-3))


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
    """Selections wherever there are any, however small the network."""
    monkeypatch.setattr(selections, "SAMPLE_COST", -np.inf)


@pytest.mark.parametrize("options", [{}, {"sample_block": 2, "workers": 2}, {"column_block": 5}, {"training": True}])
@pytest.mark.parametrize("activation", [layers.ReLU, layers.Sigmoid])
def test_a_sweep_that_holds_layers_gives_the_same(options, activation, always, monkeypatch):
    net, (x, y) = network(activation=activation), images()
    asked = [q.DiagGGN(), q.DiagHessian(), q.DiagGGNMC(mc_samples=6), q.Variance(), q.BatchGrad(), q.BatchDiagGGN()]
    held = gb.backward(net, CE, x, y, *asked, rng=0, **options)
    monkeypatch.setattr(Pass, "holds", False)
    plain = gb.backward(net, CE, x, y, *asked, rng=0, **options)
    for got, want in [(held.gradient, plain.gradient), *((held[one], plain[one]) for one in asked)]:
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12 * np.abs(value).max(), err_msg=name)


class Counted:
    """How many columns a class of layers multiplies at a time."""

    def __init__(self, monkeypatch, kind):
        self.widths, mjp = [], kind.mjp

        def counted(layer, saved, mat):
            self.widths.append(len(mat))
            return mjp(layer, saved, mat)

        monkeypatch.setattr(kind, "mjp", counted)


def test_below_the_lowest_pool_the_gradient_goes_alone(always, monkeypatch):
    counted, (x, y) = Counted(monkeypatch, layers.MaxPool2d), images()
    gb.backward(network(), CE, x, y, q.DiagGGN(), q.DiagHessian(), workers=1)
    assert counted.widths == [20, 20, 20, 1]  # 7 classes and 12 sigmoids; the upper ones as soon as all is needed
    counted.widths.clear()
    gb.backward(network(), CE, x, y, q.DiagGGN(), q.BatchDiagGGN(), workers=1)
    assert counted.widths == [8, 8, 8, 8]  # the other quantity needs them


def test_nothing_is_held_where_that_does_not_pay(monkeypatch):
    def selection(layer, saved, above):
        raise AssertionError("was asked for one")

    for kind in (layers.MaxPool2d, layers.Elementwise):
        monkeypatch.setattr(kind, "selection", selection)
    x, y = images()
    gb.backward(network(), CE, x, y, q.DiagGGN())  # a small network
    monkeypatch.setattr(selections, "SAMPLE_COST", -np.inf)
    for asked in ([q.KFLR()], [q.BatchDiagGGN()], []):  # no squares
        gb.backward(network(grouped=1), CE, x, y, *asked)
    gb.backward(network(), CE, x, y, q.DiagGGN(), memory="1GiB")  # the estimate is of columns that are not held


def test_a_selection_pays_for_many_columns_and_outputs():
    assert not selections.pays(1, 36, 144, 576, 96)
    assert selections.pays(10, 36, 144, 576, 96)
    assert not selections.pays(10, 36, 144, 576, 4)
    assert not selections.pays(10, 144, 144, 576, 96)


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
            bias = layers.Bias(lambda mat: 2 * self._rows(mat))
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

    held = sweep()
    monkeypatch.setattr(Pass, "holds", False)
    np.testing.assert_allclose(held, sweep(), rtol=1e-12)


def test_a_layer_that_saves_something_of_its_own_is_not_held(always):
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
def test_a_sweep_that_holds_layers_against_dense_oracles(reduction, always):
    net = gb.Sequential(
        *(layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.ZeroPad2d(1), layers.MaxPool2d(2, 2)),
        *(layers.Conv2d(2, 2, 2), layers.ReLU(), layers.MaxPool2d(2, 1), layers.Flatten(), layers.Linear(2, 3)),
        rng=0, dtype="float64",
    )  # fmt: skip
    rng, loss = np.random.default_rng(3), losses.CrossEntropyLoss(reduction)
    x, y = rng.standard_normal((3, 1, 5, 5)), rng.integers(0, 3, 3)
    assert check_network(net, loss, x, y).ok


def test_squares_from_a_selection_keep_digits_where_windows_cancel(always):
    rng, share = np.random.default_rng(0), np.array([1, 2, 3, 4], np.float32)
    conv = layers.Conv2d(20, 3, 1, bias=False)
    x = rng.standard_normal((2, 20, 1, 1), dtype=np.float32) * np.array([[1, 1], [1, -1.5]], np.float32)
    mat = rng.standard_normal((50, 2, 3, 1, 1), dtype=np.float32) * share.reshape(2, 2)  # 1 + 2 + 3 − 6 = 0
    selection = layers.MaxPool2d(1).selection(layers.MaxPool2d(1).forward(mat[0])[1], None)
    (quick,) = conv.selected_jacobians(conv.parameter_jacobians(conv.forward(x)[1]), selection).values()
    each = np.einsum("vnoab,niab->vnoi", mat.astype(float), x.astype(float))
    got, want = quick.square(mat)[..., 0, 0], (each**2).sum((0, 1))
    assert got.min() >= 0
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)


def test_a_window_of_which_the_first_nan_wins_may_lie_in_the_padding():
    pool = layers.MaxPool2d(2, 2, 1)
    saved = pool.forward(np.full((1, 1, 2, 2), np.nan))[1]
    selection = pool.selection(saved, None)
    want = pool.jmp(saved, np.ones((1, 1, 1, 2, 2)))
    np.testing.assert_array_equal(selection.slope[0, :, 0], want.ravel())
    assert selection.places.min() >= 0


def test_what_is_explained_and_watched_is_what_each_layer_does(always, monkeypatch):
    net, (x, y) = network(), images()
    asked = [q.DiagGGN()]
    told = gb.explain(net, CE, x, y, *asked).steps
    seen = arrivals(net, CE, x, y, asked)["exact"]
    lowest = {step.name: [carried.shape for carried in step.arriving] for step in told if step.name in ("1", "0")}
    assert lowest == {"1": [(1, 5, 6, 12, 12), (7, 5, 6, 12, 12)], "0": [(1, 5, 6, 12, 12), (7, 5, 6, 12, 12)]}
    assert seen["1"].shape == seen["0"].shape == (5, 6 * 144, 6 * 144)


def test_a_layer_with_parameters_is_not_held(always):
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


def test_kfra_holds_nothing(always):
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
