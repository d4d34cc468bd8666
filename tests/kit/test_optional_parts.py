"""Optional parts of the contract that the engine takes on trust: a wrong one is named by the claim on it."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop import quantities as q
from gbackprop.calculus.residual import FactoredLayer, products
from gbackprop.calculus.signals import EXACT, GRADIENT, monte_carlo
from gbackprop.quantities import Quantity, Statistic
from gbackprop.quantities.merging_rules import Averaged, Rows, Summed
from gbackprop.testing import check_layer, check_quantity, check_symmetries

RNG = np.random.default_rng(0)


def named(report):
    return {(row.method, row.claim) for row in report.failures}


class Gain(layers.ParameterJacobian):
    """y = p x: J P is P x."""

    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x

    def push(self, directions, batch, shape):
        return directions[:, None] * self.x


class Squared(Gain):
    def push(self, directions, batch, shape):
        return directions[:, None] * self.x**2


class OfSamples(Gain):
    def push(self, directions, batch, shape):
        return directions[:, None] * self.x[:1]


class Scaled(layers.Scale):
    def __init__(self, size, jacobian):
        super().__init__(size)
        self.jacobian = jacobian

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return {name: self.jacobian(saved) for name in found}


@pytest.mark.parametrize(("jacobian", "right"), [(Gain, True), (Squared, False), (OfSamples, False)])
def test_an_own_product_with_directions_is_the_jacobians(jacobian, right):
    report = check_layer(Scaled(3, jacobian), RNG.standard_normal((3, 3)))
    assert named(report) == (set() if right else {("weight.push", "is J")}), report


class Matrix(layers.Layer):
    """x W + b, whose option `bias` adds the parameter b."""

    constant_jacobian = True

    def __init__(self, bias):
        self.bias = bias

    def parameter_shapes(self):
        return {"W": (3, 2), "b": (2,)} if self.bias else {"W": (3, 2)}

    def draw(self, rng):
        return {name: rng.standard_normal(shape) for name, shape in self.parameter_shapes().items()}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected features of shape (3,), got {shape}")
        return (2,)

    def forward(self, x):
        y = x @ self.parameters["W"]
        return (y + self.parameters["b"] if self.bias else y), x

    def jmp(self, x, mat):
        return mat @ self.parameters["W"]

    def mjp(self, x, mat):
        return mat @ self.parameters["W"].T

    def parameter_jacobians(self, x):
        found = {"W": layers.ParameterJacobian(), "b": layers.ParameterJacobian()}
        found["W"].per_sample = lambda mat: x[:, :, None] * mat[:, :, None]
        found["b"].per_sample = lambda mat: mat
        return {name: found[name] for name in self.parameter_shapes()}


@pytest.mark.parametrize("bias", [True, False])
def test_an_option_of_the_name_bias_may_be_of_another_parameter(bias):
    network = gb.Sequential(Matrix(bias), layers.Tanh(), rng=0, dtype="float64")
    given = network, losses.MSELoss(), RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2))
    report = check_quantity(q.BatchGrad(), *given)
    assert report.ok, report
    assert {row.verdict for row in report.rows if row.method == "BatchGrad"} == {"ok"}, report


@pytest.mark.parametrize("value", [None, 3, "some"], ids=str)
def test_options_may_have_names_that_other_layers_give_a_meaning(value):
    """`several` are the inputs of a container, `groups` those of convolutions."""
    layer = Matrix(bias=True)
    vars(layer).update(several=value, groups=value)
    network = gb.Sequential(layer, layers.Tanh(), rng=0, dtype="float64")
    x, y = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2))
    check_layer(layer, x).assert_ok()
    assert check_symmetries(network, losses.MSELoss(), x, y, only=["samples permuted"]).ok
    assert np.isfinite(operators.GGN(network, losses.MSELoss(), (x, y)) @ np.ones((8, 2))).all()


DIAGONAL = q.DiagHessian()


def test_a_layer_of_one_input_may_have_names_that_are_said_of_several():
    own = type("Own", (layers.Sigmoid,), {"bilinear": True, "linear_in": 3})
    x, y = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2))
    found, want = (
        gb.backward(gb.Sequential(layers.Linear(3, 2), layer, rng=0, dtype="float64"), losses.MSELoss(), x, y, DIAGONAL)
        for layer in (own(), layers.Sigmoid())
    )
    np.testing.assert_allclose(found["diag_hessian"]["0.weight"], want["diag_hessian"]["0.weight"], rtol=1e-12)


@pytest.mark.parametrize("value", [None, 0.5])
def test_an_option_in_place_of_a_method_is_named(value):
    layer = Matrix(bias=True)
    layer.noise = value
    (row,) = check_layer(layer, RNG.standard_normal((3, 3))).failures
    assert row.problem == f"Matrix() has noise = {value!r} in place of the method of that name"


class Forgotten(layers.Scale):
    def parameter_jacobians(self, saved):
        return {}


def test_a_jacobian_that_is_missing_is_asked_for_no_product_with_directions():
    report = check_layer(Forgotten(3), RNG.standard_normal((3, 3)))
    assert not report.ok
    assert not [row for row in report.rows if row.method.endswith(".push")]


class Factored(Scaled):
    """One that says that it has Kronecker factors, and whose Jacobian has none."""

    kronecker_factors = True

    def mjp(self, saved, mat):
        return super().mjp(saved, mat).astype("float64")


def test_kronecker_factors_are_there_if_a_layer_says_so():
    report = check_layer(Factored(3, Gain), RNG.standard_normal((3, 3)))
    assert {("kronecker_factors", "says what its Jacobians have"), ("mjp", "float32 stays float32")} <= named(report)
    (row,) = [row for row in report.rows if row.method == "kronecker_factors"]
    assert row.problem.startswith("the Jacobian of its weight has no kronecker; ")
    report = check_layer(layers.Linear(3, 2), RNG.standard_normal((3, 3)))
    assert [row.verdict for row in report.rows if row.method == "kronecker_factors"] == ["ok"]


class Squared(layers.Bias):
    """The Jacobian of a bias that says to have a factor A."""

    def input_square(self):
        return np.ones((1, 1))


class OfSquares(layers.Linear):
    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return found | {"bias": Squared(found["bias"].rows)}


def test_a_bias_has_no_factor_a():
    report = check_layer(OfSquares(3, 2), RNG.standard_normal((3, 3)))
    assert named(report) == {("bias.input_square", "is Σₙₜ u uᵀ, of what W is multiplied with")}


class Gate(FactoredLayer):
    """y = a b², or a b: the residual of the latter has two columns for each feature."""

    def __init__(self, power, bilinear=False, width=2, linear_in=()):
        self.power, self.width = power, width
        self.bilinear, self.linear_in = bilinear, linear_in  # type: ignore[misc]

    def output_shape(self, first, second):
        return first

    def forward(self, a, b):
        return a * b**self.power, (a, b)

    def jmp(self, saved, first, second):
        a, b = saved
        return first * b**self.power + second * a * self.power * b ** (self.power - 1)

    def mjp(self, saved, mat):
        a, b = saved
        return mat * b**self.power, mat * a * self.power * b ** (self.power - 1)

    def residual_width(self, first, second):
        return self.width * first[0]

    def residual(self, saved, grad):
        size, eye = grad.shape[1], np.eye(grad.shape[1], dtype=grad.dtype)
        return products(size, lambda k: (eye[k][:, None] * np.ones_like(grad), eye[k][:, None] * grad), grad)


@pytest.mark.parametrize(("layer", "wrong"), [
    (Gate(1), set()), (Gate(1, bilinear=True), set()),
    (Gate(1, width=1), {("residual", "has as many columns as residual_width says")}),
    (Gate(1, linear_in=(0,)), set()), (Gate(1, linear_in=(1,)), set()),
    (Gate(2, linear_in=(0,)), {("residual", "is Σⱼ (∇² yⱼ) gⱼ")}),
    *[(Gate(2, linear_in=named), {("linear_in", "is linear in these inputs"), ("residual", "is Σⱼ (∇² yⱼ) gⱼ")})
      for named in ((1,), (0, 1), (2,), 1)],
    (Gate(2, bilinear=True), {("bilinear", "is linear in each of two inputs"), ("residual", "is Σⱼ (∇² yⱼ) gⱼ")}),
])  # fmt: skip
def test_what_a_join_says_of_its_residual_is_so(layer, wrong):
    inputs = RNG.standard_normal((3, 2)), RNG.standard_normal((3, 2))
    assert named(check_layer(layer, inputs)) == wrong


class Doubled(Quantity):
    """The gradient times 2, of which batches add up."""

    name, scale, powers = "doubled", "2 R Σₙ ∇ℓₙ", (1, 1)
    merging = Summed()

    def statistics(self):
        return (Statistic("sum", GRADIENT),)

    def finish(self, scale, found):
        return 2 * found

    def definition(self, parts):
        return 2 * parts.factor * parts.gradients.sum(0)


class OfTheMean(Doubled):
    merging = Averaged()


class OfRows(q.BatchGrad):
    merging, powers = Rows(power=2), (1, 1)


class Halving(Summed):
    """A rule that gives half of what it should."""

    def give(self, total, scale):
        return super().give(total, scale) / 2


class Halved(Doubled):
    merging = Halving()


class Unstated(Doubled):
    merging = None


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.CrossEntropyLoss("sum")], ids=repr)
def test_an_own_rule_of_merging_gives_what_one_batch_gives(loss):
    network = gb.Sequential(layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 2), rng=0, dtype="float64")
    given = network, loss, RNG.standard_normal((5, 3)), np.array([0, 1, 1, 0, 1])
    claim = "merged results of two batches are that of one, of the {}"
    for quantity, wrong in ((Doubled(), []), (OfTheMean(), ["sum"]), (OfRows(), ["mean"])):
        expected = {(type(quantity).__name__, claim.format(reduction)) for reduction in wrong}
        assert named(check_quantity(quantity, *given)) == expected
    for unjudged, why in ((Unstated(), "how results of batches are merged is not stated"), (q.KFRA(), q.KFRA.merging)):
        rows = [row for row in check_quantity(unjudged, *given).rows if row.claim.startswith(claim[:10])]
        assert [(row.verdict, why in row.problem) for row in rows] == [("not given", True)] * 2


class Estimate(Quantity):
    """A factor times DiagGGN, by two draws for each sample or by none."""

    name, powers, estimates = "estimate", (1, 1), q.DiagGGN

    def __init__(self, factor, signal):
        self.factor, self.signal, self.scale = factor, signal, f"{factor} diag(R Σₙ Jₙᵀ Hₙ Jₙ)"

    def statistics(self):
        return (Statistic("square", self.signal),)

    def finish(self, scale, square):
        return self.factor * square


class Named(q.DiagGGNMC):
    """An estimate whose options are named."""

    def __init__(self, *, factor=1, mc_samples=1):
        super().__init__(mc_samples)
        self.factor = factor

    estimates = q.DiagGGN


@pytest.mark.parametrize(("quantity", "verdict"), [
    (Named(), "ok"), (Estimate(1, monte_carlo(2)), "ok"), (Estimate(1.5, monte_carlo(2)), "FAILED"),
    (Estimate(1, EXACT), "not given"), (Estimate(1, monte_carlo(2, np.zeros((2, 3, 2)))), "not given"),
], ids=["named", "right", "wrong", "exact", "fixed"])  # fmt: skip
def test_what_any_quantity_says_that_it_estimates_is_tested(quantity, verdict):
    network = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    given = network, losses.MSELoss(), rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    rows = [row for row in check_quantity(quantity, *given).rows if row.claim.startswith("estimates what it should")]
    assert [row.verdict for row in rows] == [verdict]


@pytest.mark.parametrize(("quantity", "words"), [
    (OfTheMean(), "merging were Summed(power=1)"), (OfRows(), "merging were Rows(power=1)"),
    (Halved(), "merging were Summed(power=1)"),
], ids=str)  # fmt: skip
def test_another_rule_of_merging_is_the_diagnosis(quantity, words):
    network = gb.Sequential(layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 2), rng=0, dtype="float64")
    given = network, losses.CrossEntropyLoss(), RNG.standard_normal((5, 3)), np.array([0, 1, 1, 0, 1])
    known = check_quantity(quantity, *given).diagnose().failures[0].known
    assert known[0].words == f"right if {words}"
    assert all(each.words.startswith("right if merging were ") for each in known)
