"""What the checks of the table do not reach: boundaries, tails, large numbers in float32, axes of softmax."""

import numpy as np
import pytest
from scipy import special

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.layers.elementwise.softmax import CausalSoftmax
from gbackprop.testing.cases import LAYERS
from gbackprop.testing.flat import dense

E = float(np.exp(1))
BOUNDARIES = [  # layer, x, φ, φ', φ'': as torch has them
    (L.LeakyReLU(0.2), [-1, 0, 1], [-0.2, 0, 1], [0.2, 0.2, 1], None),
    (L.Threshold(0.5, 7.0), [0.5, 0.75], [7, 0.75], [0, 1], None),
    (L.Hardtanh(), [-1, 0, 1], [-1, 0, 1], [0, 1, 0], None),
    (L.ReLU6(), [0, 1, 6], [0, 1, 6], [0, 1, 0], None),
    (L.Hardsigmoid(), [-3, 0, 3], [0, 0.5, 1], [0, 1 / 6, 0], None),
    (L.Hardswish(), [-3, 0, 3], [0, 0, 3], [0, 0.5, 1], [0, 1 / 3, 0]),
    (L.Hardshrink(), [-0.5, 0, 0.5, 1], [0, 0, 0, 1], [0, 0, 0, 1], None),
    (L.Hardshrink(-1.0), [-1, 0, 1], [-1, 0, 1], [1, 1, 1], None),
    (L.Softshrink(), [-1, -0.5, 0.5, 1], [-0.5, 0, 0, 0.5], [1, 0, 0, 1], None),
    (L.Softshrink(0.0), [-1, 0, 1], [-1, 0, 1], [1, 0, 1], None),
    (L.ELU(2.0), [-1, 0, 1], [2 / E - 2, 0, 1], [2 / E, 2, 1], [2 / E, 0, 0]),
    (L.CELU(2.0), [-2, 0, 1], [2 / E - 2, 0, 1], [1 / E, 1, 1], [0.5 / E, 0, 0]),
    (L.Softplus(2.0, 0.0), [0, 1], [np.log(2) / 2, 1], [0.5, 1], [0, 0]),
    (L.Softsign(), [-1, 0, 1], [-0.5, 0, 0.5], [0.25, 1, 0.25], [0.25, 0, -0.25]),
]


@pytest.mark.parametrize(("layer", "x", "value", "first", "second"), BOUNDARIES, ids=lambda part: repr(part)[:40])
def test_boundaries_are_torchs(layer, x, value, first, second):
    y, saved = layer.forward(np.array([x], dtype=float))
    np.testing.assert_allclose(y[0], value, rtol=1e-15)
    np.testing.assert_allclose(layer.mjp(saved, np.ones((1, *y.shape)))[0, 0], first, rtol=1e-15)
    if second is not None:
        np.testing.assert_allclose(layer.residual(saved, np.ones_like(y))[0], second, rtol=1e-15)


ACTIVATIONS = {repr(row.make()): row for row in LAYERS if row.make().output_shape(row.shape) == row.shape}


@pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_nothing_overflows_or_leaves_float32(row):
    layer = row.make()
    layer.initialize(np.random.default_rng(0))
    size = int(np.prod(row.shape))
    ends = np.resize(np.array([-1e12, -1e4, -300, -80, 0, 80, 300, 1e4, 1e12], dtype=np.float32), (9, size))
    x = ends.reshape(9, *row.shape)
    with np.errstate(all="raise", under="ignore"):
        y, saved = layer.forward(x)
        made = [y, layer.jmp(saved, x[None]), layer.mjp(saved, y[None])]
        if layer.curvature != "zero":
            made.append(dense(layer.residual(saved, y)))
    for array in made:
        assert array.dtype == np.float32
        assert np.isfinite(array).all()


@pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_definitions_are_those_of_the_table_where_samples_of_the_checks_hardly_come(row):
    layer = row.layer()
    x = np.linspace(-9, 9, 24 * int(np.prod(row.shape))).reshape(24, *row.shape)
    if row.definition is not None:
        np.testing.assert_allclose(layer.forward(x)[0], row.reference(layer)(x), rtol=1e-9, atol=1e-12)


TAILS = [  # layer, x, φ, φ', φ'', of which subtractions would leave no digit
    (L.LogSigmoid(), 40.0, -np.exp(-40), np.exp(-40), -np.exp(-40)),
    (L.Softplus(1.0, 100.0), 40.0, 40.0, 1.0, np.exp(-40)),
    (L.SiLU(), 40.0, 40.0, 1.0, -38 * np.exp(-40)),
    (L.Mish(), 30.0, 30.0, 1.0, 8 * np.exp(-60) * (1 - 30)),
    (L.Tanhshrink(), 30.0, 29.0, 1.0, 8 * np.exp(-60)),
    (L.GELU(), -20.0, -20 * special.ndtr(-20), None, 398 * -np.exp(-200) / (2 * np.pi) ** 0.5),
    (L.GELU("tanh"), -6.0, -6 * special.expit(-2 * (2 / np.pi) ** 0.5 * 15.65844), None, None),
]


@pytest.mark.parametrize(("layer", "x", "value", "first", "second"), TAILS, ids=lambda part: repr(part)[:40])
def test_digits_in_the_tails(layer, x, value, first, second):
    y, saved = layer.forward(np.full((1, 1), x))
    assert y.item() == pytest.approx(value, rel=1e-12, abs=0)
    if first is not None:
        assert layer.mjp(saved, np.ones((1, 1, 1))).item() == pytest.approx(first, rel=1e-12, abs=0)
    if second is not None:
        assert layer.residual(saved, np.ones((1, 1))).item() == pytest.approx(second, rel=1e-12, abs=0)


def test_selu_keeps_mean_0_and_variance_1():
    """Its two constants are for this."""
    x, weight = np.polynomial.hermite_e.hermegauss(200)
    y, weight = L.SELU().forward(x[:, None])[0][:, 0], weight / weight.sum()
    np.testing.assert_allclose([weight @ y, weight @ y**2], [0, 1], atol=1e-3)


# ------------------------------------------------------------------------------------------------------------- softmax


MISSING = [(L.Softmax, 2, (3,)), (L.LogSoftmax, -2, (3,)), (L.Softmax, -1, ())]


@pytest.mark.parametrize(("kind", "dim", "shape"), MISSING)
def test_an_axis_that_is_not_there_or_is_the_batchs_is_refused(kind, dim, shape):
    with pytest.raises(ValueError, match=f"axis {dim}, counted with the batch as axis 0, got "):
        kind(dim).output_shape(shape)


@pytest.mark.parametrize("kind", [L.Softmax, L.LogSoftmax])
def test_the_residual_is_zero_between_sets(kind):
    x, grad = np.random.default_rng(0).standard_normal((2, 1, 3, 2))
    layer = kind(1)
    residual = dense(layer.residual(layer.forward(x)[1], grad)).reshape(3, 2, 3, 2)  # sets are the columns of [3, 2]
    assert not residual[:, 0, :, 1].any()
    assert (residual[:, 0, :, 0] != 0).all()


def test_log_softmax_and_a_linear_loss_are_cross_entropy():
    """Whose Hessian is known: here it comes from the residual alone."""
    x, label = np.random.default_rng(0).standard_normal((1, 4)), 2
    layer, loss = L.LogSoftmax(1), losses.CrossEntropyLoss()
    gradient = -np.eye(4)[label][None]
    residual = dense(layer.residual(layer.forward(x)[1], gradient))[0]
    root = loss.hessian_sqrt(x, np.array([label]))[:, 0]
    np.testing.assert_allclose(residual, root.T @ root, atol=1e-15)


# --------------------------------------------------------------------------------------------------------------- PReLU


def test_slopes_are_torchs_at_first_and_channels_are_the_first_axis():
    assert L.PReLU(2).parameters["weight"].tolist() == [0.25, 0.25]
    with pytest.raises(ValueError, match=r"features of shape \(3, …\), got \(2, 3\)"):
        L.PReLU(3).output_shape((2, 3))


def test_a_slope_below_a_bend_is_in_the_hessian():
    """∂²L/∂a² comes from what lies above alone: the output is linear in a."""
    network = gb.Sequential(L.PReLU(), L.Tanh(), rng=0, dtype="float64")
    x, y = np.array([[-0.7]]), np.zeros((1, 1))
    found = gb.backward(network, losses.MSELoss("sum"), x, y, q.DiagHessian())["diag_hessian"]["0.weight"]
    t = np.tanh(0.25 * -0.7)
    np.testing.assert_allclose(found, [2 * (1 - t**2) * (1 - 3 * t**2) * 0.49], rtol=1e-14)


def test_causal_softmax_takes_a_single_matrix():
    assert CausalSoftmax().output_shape((3, 3)) == (3, 3)
    with pytest.raises(ValueError, match="expected square matrices"):
        CausalSoftmax().output_shape((3,))


def test_a_formula_of_gelu_is_that_of_its_kind():
    exact, near = L.GELU(), L.GELU("tanh")
    assert ("tanh" in exact.formulas["forward"], "tanh" in near.formulas["forward"]) == (False, True)
    assert exact.formulas.keys() == near.formulas.keys()
