"""A user's layer that breaks the contract is named before anything is computed; a sound one is checked once."""

from dataclasses import dataclass

import numpy as np
import pytest
from own_layers import Times

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop import quantities as q
from gbackprop.calculus.residual import Factored, FactoredLayer
from gbackprop.calculus.signals import GRADIENT
from gbackprop.plain import support
from gbackprop.testing.oracles import Dense
from gbackprop.testing.runs import every_quantity

X, Y = np.random.default_rng(0).standard_normal((6, 3)), np.zeros(6, int)
LOSS = losses.CrossEntropyLoss()
CALLS = []  # not an attribute: with others a layer is checked again


def chain(*inner):
    return gb.Sequential(layers.Linear(3, 3), *inner, layers.Linear(3, 2), rng=0, dtype="float64")


class Double(layers.Layer):
    """y = 2 x, and all right."""

    def forward(self, x):
        return 2 * x, None

    def mjp(self, saved, mat):
        return 2 * mat


class NaN(Double):
    def forward(self, x):
        return x * np.nan, None


class InPlace(Double):
    def forward(self, x):
        x *= 2
        return x, None


class NothingBack(Double):
    def mjp(self, saved, mat):
        return None


class OddCurvature(Double):
    curvature = "diag"


class WithoutDraw(Times):
    def draw(self, rng):
        return {}


class WithoutJacobian(Times):
    parameter_jacobians = layers.Layer.parameter_jacobians


class Jacobian(layers.ParameterJacobian):
    def per_sample(self, mat):
        return mat[..., :2]


class WrongJacobian(Times):
    def parameter_jacobians(self, saved):
        return {"p": Jacobian()}


class WithoutResidual(Double):
    curvature = "diagonal"


class WrongResidual(WithoutResidual):
    def residual(self, saved, grad):
        return grad[:, :2]


class WithoutMjp(layers.Layer):
    def forward(self, x):
        return 2 * x, None


BROKEN = [
    (WithoutMjp, gb.UnsupportedError, r"layer 1, WithoutMjp\(\) cannot give a gradient: it has no mjp"),
    (NaN, ValueError, r"layer 1, NaN\(\), forward: expected finite numbers for finite input, got NaN or infinity"),
    (InPlace, ValueError, r"layer 1, InPlace\(\), forward: expected an input that is left as it is"),
    (NothingBack, TypeError, r"layer 1, NothingBack\(\), mjp: expected an array, got NoneType"),
    (OddCurvature, ValueError, r"layer 1, OddCurvature\(\): curvature: expected 'zero', .*, got 'diag'"),
    (WithoutDraw, ValueError, r"WithoutDraw\(\), draw: expected \['p'\], got \[\]"),
    (WithoutJacobian, ValueError, r"layer 1, WithoutJacobian\(\), parameter_jacobians: expected \['p'\], got \[\]"),
    (WrongJacobian, ValueError, r"per_sample of its p: expected shape \(1, 6, 3\), got \(1, 6, 2\)"),
    (WrongResidual, ValueError, r"layer 1, WrongResidual\(\), residual: expected shape \(6, 3\), got \(6, 2\)"),
]


@pytest.mark.parametrize("call", [gb.backward, gb.reference, gb.explain])
@pytest.mark.parametrize(("kind", "error", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_layer_that_breaks_the_contract_is_named(kind, error, message, call):
    with pytest.raises(error, match=message):
        call(chain(kind()), LOSS, X, Y, q.BatchGrad())


def test_a_layer_that_writes_into_its_input_leaves_the_users_alone():
    x = X.copy()
    net = gb.Sequential(InPlace(), layers.Linear(3, 2), rng=0, dtype="float64")
    with pytest.raises(ValueError, match="left as it is"):
        gb.backward(net, LOSS, x, Y)
    np.testing.assert_array_equal(x, X)


def test_a_sound_layer_is_checked_once():
    class Counts(Double):
        def forward(self, x):
            CALLS.append(len(x))
            return super().forward(x)

        def output_shape(self, shape):
            return shape

    net = chain(Counts())
    for _ in range(3):
        gb.backward(net, LOSS, X, Y)
    assert len(CALLS) == 4


@dataclass
class Multiplied(Double):
    """A layer with ==, and so without a hash."""

    factor: float = 2.0


def test_a_dataclass_is_a_layer_and_nothing_is_known_of_it_when_it_is_gone():
    net = chain(Multiplied(), Multiplied())
    got, want = (gb.backward(each, LOSS, X, Y, q.DiagHessian()) for each in (net, chain(Double(), Double())))
    np.testing.assert_array_equal(got["diag_hessian"]["0.weight"], want["diag_hessian"]["0.weight"])
    identities = {id(each) for each in net.layers[1:3]}
    assert identities <= set(support._CHECKED)
    del net
    assert not identities & set(support._CHECKED)


class LowestLinear(layers.Linear):
    """It is never asked for columns at its input where no parameters are below it."""

    mjp, jmp = layers.Layer.mjp, layers.Layer.jmp


class LowestSquare(layers.Layer):
    curvature = "diagonal"

    def forward(self, x):
        return x * x, None


ALL = *every_quantity(), q.KroneckerError(q.KFLR()), q.NearestKronecker(), q.EKFAC()


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_the_lowest_layer_needs_no_mjp(call):
    def network(*lowest):
        return gb.Sequential(*lowest, layers.Tanh(), layers.Linear(3, 2), rng=0, dtype="float64")

    net, plain = network(LowestSquare(), LowestLinear(3, 3)), network(layers.Linear(3, 3))
    found = [call(each, LOSS, x, Y, *ALL, rng=0) for each, x in ((net, X), (plain, X**2))]
    for one, two in zip(*[[each.gradient, *each.values] for each in found], strict=True):
        for values in zip(one.values(), two.values(), strict=True):
            a, b = (getattr(each, "to_dense", lambda each=each: getattr(each, "relative", each))() for each in values)
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    for kind in (ops.GGN, ops.Hessian):
        one, two = (kind(each, LOSS, (x, Y)).to_dense() for each, x in ((net, X), (plain, X**2)))
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)


def test_a_layer_without_a_residual_cannot_give_the_hessians_diagonal():
    with pytest.raises(gb.UnsupportedError, match=r"layer 1, WithoutResidual\(\) cannot give DiagHessian"):
        gb.backward(chain(WithoutResidual()), LOSS, X, Y, q.DiagHessian())


def test_a_reduction_without_a_formula_is_named():
    class Trace(q.Quantity):
        name = "trace"

        def statistics(self):
            return (q.Statistic(q.Reduction("my_trace", "tr", lambda p: 1), GRADIENT),)

    words = "cannot give Trace: the Jacobian of its weight has no method my_trace, and that reduction has no formula"
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(chain(), LOSS, X, Y, Trace())


def test_a_quantity_without_a_name_is_refused():
    class Nameless(q.Quantity):
        def statistics(self):
            return ()

        def finish(self, scale):
            return 0

    with pytest.raises(TypeError, match="quantity 0, Nameless: expected a name"):
        gb.backward(chain(), LOSS, X, Y, Nameless())


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
        return Factored(3, lambda span: self.columns(grad, span))

    def columns(self, grad, span):
        values = np.sqrt(2 * abs(grad)).T[:, :, None] * np.eye(3)[:, None]
        return (values[span],), np.sign(grad).T[span]


class Narrow(Square):
    def residual_width(self, shape):
        return 2


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
        return np.zeros((len(grad), 3, 3))


class FactoredByALayer(Double):
    curvature = "dense"

    def residual(self, saved, grad):
        return Factored(0, lambda span: ((np.zeros((0, *grad.shape)),), np.zeros((0, len(grad)))))


class Join(layers.Multiply):
    """A join whose residual is an array."""

    def residual(self, saved, grad):
        return grad


FACTORED = {
    Narrow: "residual: expected 2 columns as residual_width says, got 3",
    TwoPieces: "residual: expected pieces for 1 inputs, got 2",
    Unsigned: r"residual, signs: expected shape \(3, 6\), got \(6,\)",
    AsMatrix: "residual: expected Factored of a FactoredLayer .* got ndarray of a FactoredLayer",
    FactoredByALayer: "residual: expected an array, got Factored",
}


@pytest.mark.parametrize("kind", FACTORED)
def test_a_factored_residual_that_is_wrong_is_named(kind):
    net = gb.Sequential(layers.Linear(3, 3), kind(), rng=0, dtype="float64")
    with pytest.raises((TypeError, ValueError), match=rf"layer 1, {kind.__name__}\(\), {FACTORED[kind]}"):
        gb.backward(net, LOSS, X, Y, q.DiagHessian())


def test_a_residual_over_several_inputs_must_be_factored():
    net = gb.Graph({"a": (layers.Tanh(), "input"), "b": (Join(), "a", "input"), "c": (layers.Linear(3, 2), "b")}, rng=0)
    with pytest.raises(TypeError, match=r"layer b, Join\(\), residual: expected Factored of a FactoredLayer"):
        gb.backward(net.astype("float64"), LOSS, X, Y)


@pytest.mark.parametrize("column_block", [None, 1, 3])
def test_a_factored_residual_that_is_right_is_used(column_block):
    net = gb.Sequential(layers.Linear(3, 3), Square(), rng=0, dtype="float64")
    found = gb.backward(net, LOSS, X, Y, q.DiagHessian(), column_block=column_block)
    for name, value in Dense(net, LOSS, X, Y)["diag_hessian"].items():
        np.testing.assert_allclose(found["diag_hessian"][name], value, atol=1e-12)
