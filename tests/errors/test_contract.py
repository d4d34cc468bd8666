"""A user's layer that breaks the contract is named before anything is computed; a sound one is checked once."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop import quantities as q
from gbackprop.calculus.residual import Factored, FactoredLayer
from gbackprop.calculus.signals import GRADIENT
from gbackprop.testing.oracles import Dense

X, Y = np.random.default_rng(0).standard_normal((6, 4)), np.zeros(6, int)


class Double(layers.Layer):
    """y = 2 x, and all right."""

    def forward(self, x):
        return 2 * x, None

    def mjp(self, saved, mat):
        return 2 * mat


class WithoutTuple(Double):
    def forward(self, x):
        return 2 * x


class OneSample(Double):
    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return 2 * x[:1], None


class NaN(Double):
    def forward(self, x):
        return x * np.nan, None


class Single(Double):
    def forward(self, x):
        return (2 * x).astype("float32"), None


class InPlace(Double):
    def forward(self, x):
        x *= 2
        return x, None


class NothingBack(Double):
    def mjp(self, saved, mat):
        return None


class OddCurvature(Double):
    curvature = "diag"


class WithoutDraw(Double):
    def parameter_shapes(self):
        return {"w": (4,)}

    def forward(self, x):
        return x * self.parameters["w"], x


class WithoutJacobian(WithoutDraw):
    def draw(self, rng):
        return {"w": rng.standard_normal(4)}


class Jacobian(layers.ParameterJacobian):
    def per_sample(self, mat):
        return mat[..., :3]


class WrongJacobian(WithoutJacobian):
    def parameter_jacobians(self, saved):
        return {"w": Jacobian()}


class WrongResidual(Double):
    curvature = "diagonal"

    def residual(self, saved, grad):
        return grad[:, :2]


class WithoutMjp(layers.Layer):
    def forward(self, x):
        return 2 * x, None


BROKEN = [
    (WithoutMjp, gb.UnsupportedError, r"layer 1, WithoutMjp\(\) cannot give a gradient: it has no mjp"),
    (WithoutTuple, TypeError, r"WithoutTuple\(\), forward: expected a tuple \(output, saved\), got ndarray"),
    (OneSample, ValueError, r"layer 1, OneSample\(\), forward: expected shape \(6, 4\), got \(1, 4\)"),
    (NaN, ValueError, r"layer 1, NaN\(\), forward: expected finite numbers for finite input, got NaN or infinity"),
    (Single, TypeError, r"layer 1, Single\(\), forward: expected float64 as the input is, got float32"),
    (InPlace, ValueError, r"layer 1, InPlace\(\), forward: expected an input that is left as it is"),
    (NothingBack, TypeError, r"layer 1, NothingBack\(\), mjp: expected an array, got NoneType"),
    (OddCurvature, ValueError, r"layer 1, OddCurvature\(\): curvature: expected 'zero', .*, got 'diag'"),
    (WithoutDraw, ValueError, r"WithoutDraw\(\), draw: expected \['w'\], got \[\]"),
    (WithoutJacobian, ValueError, r"layer 1, WithoutJacobian\(\), parameter_jacobians: expected \['w'\], got \[\]"),
    (WrongJacobian, ValueError, r"per_sample of its w: expected shape \(1, 6, 4\), got \(1, 6, 3\)"),
    (WrongResidual, ValueError, r"layer 1, WrongResidual\(\), residual: expected shape \(6, 4\), got \(6, 2\)"),
]


@pytest.mark.parametrize("call", [gb.backward, gb.reference, gb.explain])
@pytest.mark.parametrize(("kind", "error", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_layer_that_breaks_the_contract_is_named(kind, error, message, call):
    def run():
        net = gb.Sequential(layers.Linear(4, 4), kind(), layers.Linear(4, 2), rng=0, dtype="float64")
        call(net, losses.CrossEntropyLoss(), x, Y, q.BatchGrad())

    x = X.copy()
    with pytest.raises(error, match=message):
        run()
    np.testing.assert_array_equal(x, X)


def test_a_layer_that_writes_into_its_input_leaves_the_users_alone():
    x = X.copy()
    net = gb.Sequential(InPlace(), layers.Linear(4, 2), rng=0, dtype="float64")
    with pytest.raises(ValueError, match="left as it is"):
        gb.backward(net, losses.CrossEntropyLoss(), x, Y)
    np.testing.assert_array_equal(x, X)


CALLS = []  # not an attribute: with others a layer is checked again


def test_a_sound_layer_is_checked_once():
    class Counts(Double):
        def forward(self, x):
            CALLS.append(len(x))
            return super().forward(x)

        def output_shape(self, shape):
            return shape

    net = gb.Sequential(layers.Linear(4, 4), Counts(), layers.Linear(4, 2), rng=0, dtype="float64")
    for _ in range(3):
        gb.backward(net, losses.CrossEntropyLoss(), X, Y)
    assert len(CALLS) == 4


class LowestLinear(layers.Linear):
    """It is never asked for columns at its input where no parameters are below it."""

    mjp, jmp = layers.Layer.mjp, layers.Layer.jmp


class LowestSquare(layers.Layer):
    curvature = "diagonal"

    def forward(self, x):
        return x * x, None


ALL = (
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(), q.DiagHessian(),
    q.BatchDiagGGN(), q.BatchDiagHessian(), q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.GramGGN(), q.GramGradients(),
    q.KroneckerError(q.KFLR()), q.NearestKronecker(),
)  # fmt: skip


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_the_lowest_layer_needs_no_mjp(call):
    def network(*lowest):
        return gb.Sequential(*lowest, layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")

    net, plain = network(LowestSquare(), LowestLinear(4, 4)), network(layers.Linear(4, 4))
    found = [call(each, losses.CrossEntropyLoss(), x, Y, *ALL, rng=0) for each, x in ((net, X), (plain, X**2))]
    for one, two in zip(*[[each.gradient, *each.values] for each in found], strict=True):
        for values in zip(one.values(), two.values(), strict=True):
            a, b = (getattr(each, "to_dense", lambda each=each: getattr(each, "relative", each))() for each in values)
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    for kind in (ops.GGN, ops.Hessian):
        one, two = (kind(each, losses.CrossEntropyLoss(), (x, Y)).to_dense() for each, x in ((net, X), (plain, X**2)))
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)


class Times(layers.ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x


class WithJacobian(WithoutJacobian):
    def parameter_jacobians(self, saved):
        return {"w": Times(saved)}

    def mjp(self, saved, mat):
        return mat * self.parameters["w"]


class WithReason(WithJacobian):
    kronecker_factors = "a gain is no matrix"


@pytest.mark.parametrize(
    "quantity", [q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.NearestKronecker(), q.KFAC(sharing="reduce")]
)
@pytest.mark.parametrize(
    ("kind", "reason"), [(WithJacobian, "its w has no Kronecker factors"), (WithReason, "a gain is no matrix")]
)
def test_a_layer_without_kronecker_factors_can_be_left_out(quantity, kind, reason):
    net = gb.Sequential(layers.Linear(4, 4), kind(), layers.Linear(4, 2), rng=0, dtype="float64")
    words = rf"^layer 1, .* cannot give {type(quantity).__name__}: {reason} \(leave it out with network.freeze\('1.w'\)"
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(net, losses.CrossEntropyLoss(), X, Y, quantity)
    net.freeze("1.w")
    assert set(gb.backward(net, losses.CrossEntropyLoss(), X, Y, quantity)[quantity]) == set(net.trainable)


def test_a_reduction_without_a_formula_is_named():
    class Trace(q.Quantity):
        name = "trace"

        def statistics(self):
            return (q.Statistic(q.Reduction("my_trace", "tr", lambda p: 1), GRADIENT),)

    net = gb.Sequential(layers.Linear(4, 2), rng=0, dtype="float64")
    words = "cannot give Trace: the Jacobian of its weight has no method my_trace, and that reduction has no formula"
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(net, losses.CrossEntropyLoss(), X, Y, Trace())


def test_a_quantity_without_a_name_is_refused():
    class Nameless(q.Quantity):
        def statistics(self):
            return ()

        def finish(self, scale):
            return 0

    net = gb.Sequential(layers.Linear(4, 2), rng=0, dtype="float64")
    with pytest.raises(TypeError, match="quantity 0, Nameless: expected a name"):
        gb.backward(net, losses.CrossEntropyLoss(), X, Y, Nameless())


# ------------------------------------------------------------------------------------------------- factored residuals


class Square(FactoredLayer):
    """y = x², with one column for each number, and all right."""

    def residual_width(self, shape):
        return shape[0]

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x * x, x

    def mjp(self, saved, mat):
        return 2 * saved * mat

    def residual(self, saved, grad):
        return Factored(4, lambda span: self.columns(grad, span))

    def columns(self, grad, span):
        values = np.sqrt(2 * abs(grad)).T[:, :, None] * np.eye(4)[:, None]
        return (values[span],), np.sign(grad).T[span]


class Narrow(Square):
    def residual_width(self, shape):
        return 3


class TwoPieces(Square):
    def columns(self, grad, span):
        (values,), sign = super().columns(grad, span)
        return (values, values), sign


class Unsigned(Square):
    def columns(self, grad, span):
        pieces, sign = super().columns(grad, span)
        return pieces, sign[0]


class AsMatrix(Square):
    def residual(self, saved, grad):
        return np.zeros((len(grad), 4, 4))


class FactoredByALayer(Double):
    curvature = "dense"

    def residual(self, saved, grad):
        return Factored(0, lambda span: ((np.zeros((0, *grad.shape)),), np.zeros((0, len(grad)))))


class Join(layers.Multiply):
    """A join whose residual is an array."""

    def residual(self, saved, grad):
        return grad


FACTORED = {
    Narrow: "residual: expected 3 columns as residual_width says, got 4",
    TwoPieces: "residual: expected pieces for 1 inputs, got 2",
    Unsigned: r"residual, signs: expected shape \(4, 6\), got \(6,\)",
    AsMatrix: "residual: expected Factored of a FactoredLayer .* got ndarray of a FactoredLayer",
    FactoredByALayer: "residual: expected an array, got Factored",
}


@pytest.mark.parametrize("kind", FACTORED)
def test_a_factored_residual_that_is_wrong_is_named(kind):
    net = gb.Sequential(layers.Linear(4, 4), kind(), rng=0, dtype="float64")
    with pytest.raises((TypeError, ValueError), match=rf"layer 1, {kind.__name__}\(\), {FACTORED[kind]}"):
        gb.backward(net, losses.CrossEntropyLoss(), X, Y, q.DiagHessian())


def test_a_residual_over_several_inputs_must_be_factored():
    net = gb.Graph({"a": (layers.Tanh(), "input"), "b": (Join(), "a", "input"), "c": (layers.Linear(4, 2), "b")}, rng=0)
    with pytest.raises(TypeError, match=r"layer b, Join\(\), residual: expected Factored of a FactoredLayer"):
        gb.backward(net.astype("float64"), losses.CrossEntropyLoss(), X, Y)


@pytest.mark.parametrize("column_block", [None, 1, 3])
def test_a_factored_residual_that_is_right_is_used(column_block):
    net = gb.Sequential(layers.Linear(4, 4), Square(), rng=0, dtype="float64")
    found = gb.backward(net, losses.CrossEntropyLoss(), X, Y, q.DiagHessian(), column_block=column_block)
    want = Dense(net, losses.CrossEntropyLoss(), X, Y)["diag_hessian"]
    for name, value in want.items():
        np.testing.assert_allclose(found["diag_hessian"][name], value, atol=1e-12)
