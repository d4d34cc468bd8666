"""Checks that planted faults fail pass without them; a file of its own, so that it runs beside that of the faults."""

import numpy as np
import pytest
from common import one_in
from fault_table import FAULTS
from faults import on_rows
from scipy import special

from gbackprop import Graph, Sequential, data, layers, losses, network, quantities, trace
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.signals import GRADIENT
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.layers.embedding import _Rows
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.quantities import Quantity, Statistic
from gbackprop.testing import (
    check_layer,
    check_loss,
    check_network,
    check_quantity,
    check_symmetries,
    kronecker_oracles,
)
from gbackprop.testing.cases import ALL_LAYERS, NETWORKS
from gbackprop.testing.claims import Claims, Compared, _compared
from gbackprop.testing.probe import twin_of
from gbackprop.testing.purity import changes, snapshot
from gbackprop.testing.report import FAILED, NOT_GIVEN, OK
from gbackprop.testing.runs import every_quantity, floor_of
from gbackprop.testing.setting import CheckedNetwork

TABLE = {on_rows(row.kind) for row in ALL_LAYERS}  # of which tests/layers and tests/audit check each row


@pytest.mark.parametrize("check", one_in(4, dict.fromkeys(f.check for f in FAULTS if f.check not in TABLE)))
def test_no_alarm_without_the_fault(check, apart):
    check().assert_ok()


@pytest.mark.parametrize("layer", [layers.RMSNorm(1, eps=1e-5), layers.LayerNorm(1), layers.Softmax(1)], ids=repr)
@pytest.mark.parametrize("seed", range(5))
def test_no_alarm_where_a_derivative_is_what_cancellation_leaves(layer, seed):
    check_layer(layer, np.random.default_rng(seed).standard_normal((3, 1)), seed).assert_ok()


@pytest.mark.parametrize("factor", [1 + 1e-6, -1, 2])
def test_what_is_left_of_cancelling_terms_is_judged_all_the_same(factor):
    class Wrong(layers.RMSNorm):
        def mjp(self, saved, mat):
            return factor * super().mjp(saved, mat)

    report = check_layer(Wrong(1, eps=1e-5), np.random.default_rng(0).standard_normal((3, 1)))
    assert report.failures[0].method == "mjp"


def test_no_alarm_where_the_columns_of_a_batch_cancel():
    """A norm makes ±1 of two samples: the residual is a 5,000th of the squares that its columns add up to."""
    x = np.random.default_rng(1263).standard_normal((1, 4, 1, 1))
    check_layer(layers.BatchNorm2d(4, affine=False), x, 1263).assert_ok()


@pytest.mark.parametrize("seed", range(3))
def test_no_alarm_where_a_norm_makes_zeros_of_equal_numbers(seed):
    """What rounding leaves of x less its mean is multiplied by ε^(−3/2)."""
    check_layer(layers.BatchNorm3d(2, affine=False), np.full((2, 2, 1, 3, 3), 0.3), seed).assert_ok()


def test_an_equal_number_that_is_another_object_is_no_change():
    assert changes(snapshot({"rate": 0.5}), snapshot({"rate": float("0.5")})) == []


def test_no_alarm_where_a_parameter_hardly_moves_the_output():
    check_layer(layers.Linear(1, 3), np.full((2, 1), 1e-10)).assert_ok()


@pytest.mark.parametrize("layer", [layers.CELU(), layers.ELU(), layers.SELU(), layers.Hardswish()], ids=repr)
def test_no_alarm_at_a_kink_of_the_slope(layer):
    check_layer(layer, np.array([[0.0, 1.0, 0.0, -3.0], [0.5, 0.0, 3.0, -1.0]])).assert_ok()


@pytest.mark.parametrize("x", [1e-2, 6.8e-4])
def test_no_alarm_where_the_oracle_cancels(x):
    check_layer(layers.Tanhshrink(), np.full((2, 2), x)).assert_ok()


@pytest.mark.parametrize("x", [3.7e-9, 2.7e-5, 3e-3])
def test_no_alarm_where_few_digits_are_left(x):
    check_layer(layers.Tanhshrink(), np.array([[x], [-2.7e-5]])).assert_ok()


def test_two_roundings_of_the_largest_input_are_no_failure_in_float32():
    for largest in (0.0020054770003402962, 0.0026204837511179116, 0.003961670677552461):
        check_layer(layers.Tanhshrink(), np.array([[[0.0], [1e-5]], [[-largest], [0.0]]])).assert_ok()


@pytest.mark.parametrize("factor", [1 + 1e-6, 2])
def test_a_wrong_average_is_found_where_the_oracle_cancels(factor):
    class Wrong(layers.Tanhshrink):
        def average(self, saved, curvature, batch, shape):
            return factor * super().average(saved, curvature, batch, shape)

    report = check_layer(Wrong(), np.full((2, 2), 6.8e-4))
    assert {row.method for row in report.failures} == {"average"}


@pytest.mark.parametrize(("i", "without"), [(0, set()), (6, {"KFRA"}), (10, {"KFAC", "DiagGGNMC"})])
def test_what_a_network_does_not_support_is_left_out_alone(i, without):
    row, every = NETWORKS[i], every_quantity()
    setting = CheckedNetwork.of(row.network(), row.loss, *row.batch(), np.random.default_rng(0))
    assert setting.supported(every) == [each for each in every if type(each).__name__ not in without]


def test_no_alarm_in_float32_where_the_input_cancels():
    check_layer(layers.Tanhshrink(), np.full((1, 1, 1, 1), -0.0069)).assert_ok()


def below_is_no_chain():
    """KFRA is for what the sweep reaches: a chain, though the input is branched below."""
    branches = network.Concatenate(layers.Identity(), layers.RMSNorm(3, elementwise_affine=False))
    return [branches, layers.Linear(6, 3), layers.Linear(3, 1)], losses.MSELoss(), (3,), 1


def no_gradient_of_a_gate():
    """The residual of a gate of one sample that the layers above do not see."""
    nodes = {"fork": (layers.Softmax(dim=-1), "input"), "gate": (layers.Linear(3, 3), "fork"),
             "gated": (layers.Multiply(), "gate", "fork"), "sum": (layers.Add(), "gated", "fork", "input")}  # fmt: skip
    return [Graph(nodes), layers.Linear(3, 3), layers.Linear(3, 3), layers.Linear(3, 1)], losses.MSELoss(), (3,), 1


def a_scale_that_is_normalized_away():
    """Nothing follows the first weight: its Fisher matrix is what rounding leaves of 0."""
    chain = [layers.InstanceNorm2d(1, eps=0.1, affine=True), layers.ReplicationPad2d((1, 0, 1, 0)), layers.PReLU()]
    above = [*chain, layers.Flatten(), layers.Linear(10, 2)]
    return [layers.Linear(1, 1, bias=False), *above], losses.BCEWithLogitsLoss("sum"), (1, 4, 1), 884


def norms_that_cancel():
    """The bias of the first norm is subtracted by the second."""
    norms = [layers.InstanceNorm1d(2, eps=0.1, affine=True) for _ in range(2)]
    return [*norms, layers.Flatten(), layers.Linear(6, 3)], losses.L1Loss(), (2, 3), 328


@pytest.mark.parametrize(
    "make", one_in(2, [below_is_no_chain, no_gradient_of_a_gate, a_scale_that_is_normalized_away, norms_that_cancel])
)
def test_no_alarm_where_numbers_of_a_network_are_what_rounding_leaves(make, apart):
    chain, loss, shape, seed = make()
    made, rng = Sequential(*chain, rng=seed, dtype="float64"), np.random.default_rng(seed)
    for count in (1, 3):
        x = rng.standard_normal((count, *shape))
        check_network(made, loss, x, rng.random((count, *made.output_shape(shape))), seed).assert_ok()


@pytest.mark.parametrize(("outputs", "seed"), [(1, 12), (2, 1), (2, 18)])
def test_no_alarm_where_logits_of_all_classes_move_alike(outputs, seed, apart):
    """The classes are axis 1, so the last bias adds to all logits: its curvature is what rounding leaves of 0."""
    softmax, rng = layers.Softmax(dim=-2), np.random.default_rng(seed)
    made = Sequential(layers.Linear(2, 2), softmax, layers.Linear(2, outputs), rng=seed, dtype="float64")
    x = rng.standard_normal((1, 2, 2))
    check_network(made, losses.CrossEntropyLoss("sum"), x, np.ones((1, outputs), int), seed).assert_ok()


def a_bias_before_a_softmax():
    """Its Jacobian is what rounding leaves of 0."""
    chain = [layers.Linear(2, 2), layers.Softmax(dim=-2), layers.Linear(2, 2)]
    x = np.random.default_rng(0).standard_normal((1, 2, 2))
    return Sequential(*chain, rng=0, dtype="float64"), losses.CrossEntropyLoss("sum"), x, np.ones((1, 2), int)


def a_sure_classifier(scale=100.0):
    """Its derivatives are what 1 − p leaves."""
    made = Sequential(layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 3), rng=0, dtype="float64")
    made.parameters["2.weight"][...] *= scale
    x = np.random.default_rng(0).standard_normal((4, 4))
    return made, losses.CrossEntropyLoss(), x, made(x).argmax(1)


def below_a_sure_layer():
    """What reaches the layers below is rounded as what 1 − p leaves."""
    chain = [layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 3), layers.Softmax(1), layers.Linear(3, 2)]
    made = Sequential(*chain, rng=0, dtype="float64")
    made.parameters["2.weight"][...] *= 300
    rng = np.random.default_rng(0)
    return made, losses.MSELoss(), rng.standard_normal((4, 4)), rng.standard_normal((4, 2))


def counts_at_large_rates(scale):
    """Outputs are logarithms of rates, and e^f, or its square, is infinite."""
    made = Sequential(layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 3), rng=0, dtype="float64")
    made.parameters["2.weight"][...] *= scale
    x = np.random.default_rng(0).standard_normal((3, 4))
    return made, losses.PoissonNLLLoss(), x, np.ones((3, 3))


@pytest.mark.parametrize("logarithm", [30.8, 60.0])
def test_no_alarm_where_float32_does_not_tell_counts_apart(logarithm):
    output = np.array([[logarithm, 1, 0.3], [0.2, -3, 2]])
    check_loss(losses.PoissonNLLLoss(), output, np.array([[1.0, 2, 3], [0, 1, 2]])).assert_ok()


def counts_that_float32_has_no_squares_of():
    """Gradients are finite in float32, and what is made of their squares is not."""
    made = Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    made.parameters["0.weight"][...] = 30
    return made, losses.PoissonNLLLoss(), np.array([[1.0, 1.0], [0.5, 0.5], [0.2, 0.1]]), np.ones((3, 3))


def test_no_alarm_where_a_label_of_a_position_is_never_drawn():
    """Its share is 2 · 10⁻⁵, and 4096 draws of the other label have a variance of 0."""
    output = np.array([[[11.319517290013573], [0.5464094948567471]], [[-1.2804984820328156], [11.644008535715862]]])
    loss = losses.CrossEntropyLoss(ignore_index=0, label_smoothing=0.2)
    check_loss(loss, output, np.array([[1], [1]])).assert_ok()


def test_no_alarm_where_counts_hide_their_likelihood():
    """At a rate of e^48 the terms e^f, y f and y log y are rounded by more than another count changes their sum."""
    output = np.array([[-4.0, -2.5], [-62, 48.05]])
    check_loss(losses.PoissonNLLLoss("sum", full=True), output, np.array([[1.0, 5], [3, 0]])).assert_ok()


def test_no_alarm_of_a_product_of_two_jacobians_that_rounding_leaves():
    """After three x − tanh x the slope is 10⁻¹¹, known to 2 %, and its square to 5 %."""
    chain = [layers.Tanhshrink() for _ in range(3)]
    made = Sequential(*chain, layers.Threshold(0.5, -1.0), layers.Linear(1, 1), rng=1, dtype="float64")
    check_network(made, losses.BCEWithLogitsLoss(), np.array([[0.34558419]]), np.zeros((1, 1))).assert_ok()


def differences_of_equal_numbers(residual):
    """x − tanh x has one digit in float32, and no neighbour of x is rounded otherwise."""
    made = Sequential(layers.Tanhshrink(), layers.Tanhshrink(), layers.Linear(2, 1), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((1, 2))
    return made, losses.HuberLoss("sum", delta=0.3), x, made(x) + residual


def a_kink(norm, activation):
    """The norm gives zeros for any input, and there the activation, or its slope, has a kink."""
    made = Sequential(norm, activation, layers.Linear(2, 2), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((3, 2))
    return made, losses.HuberLoss("sum"), x, np.ones((3, 2))


def a_product_that_no_residual_reaches():
    """The sweep carries no columns to the inner product, where the oracle has 2e-14."""
    inner = network.Product(layers.LeakyReLU(), layers.PReLU(2))
    product = network.Product(inner, network.Sum(layers.Threshold(0.5, -1.0)))
    made = Sequential(network.Residual(product), layers.Linear(2, 3), rng=0, dtype="float64")
    made.parameters["1.weight"][...] = [[0.19369308, -0.32557075], [-0.64916147, -0.68373317], [0.44303102, 0.58372454]]
    made.parameters["1.bias"][...] = [0.15080576, 0.32455715, 0.06169505]
    y = np.array([[[1, 0.55713805, 1], [1, 0.05861516, 0.2364007]]])
    return made, losses.BCEWithLogitsLoss(), np.random.default_rng(0).standard_normal((1, 2, 2)), y


def a_label_that_is_not_drawn():
    """Nothing but the rarest label distinguishes the features, and is drawn once in 10,000 times."""
    made = Sequential(layers.Linear(2, 2), layers.Linear(2, 3), rng=0, dtype="float64")
    made.parameters["1.weight"][...] = [[1, 2], [1, 2], [3, 1]]
    made.parameters["1.bias"][...] = [0, 0.1, -9]
    return made, losses.CrossEntropyLoss(), np.array([[0.3, -0.2], [0.1, 0.4]]), np.array([0, 1])


@pytest.mark.parametrize("case", [
    a_bias_before_a_softmax(), differences_of_equal_numbers(1.0), a_label_that_is_not_drawn(),
    a_sure_classifier(), a_sure_classifier(1000.0),
    a_kink(layers.GroupNorm(2, 2), layers.Softsign()), a_kink(layers.GroupNorm(2, 2), layers.ReLU()),
    below_a_sure_layer(), counts_at_large_rates(1000.0), counts_at_large_rates(1e4),
    counts_that_float32_has_no_squares_of(), a_product_that_no_residual_reaches(),
], ids=[
    "softmax", "tanhshrink", "label", "sure", "very sure", "slope", "kink", "below", "rates", "large rates", "squares",
    "product",
])  # fmt: skip
def test_no_alarm_where_a_network_is_hard_to_judge(case, apart):
    check_network(*case, 0).assert_ok()


@pytest.mark.parametrize("rare", [1, 0])
def test_no_alarm_where_a_bit_is_never_drawn(rare):
    """It is 1, or 0, once in 60,000 draws, and the first layer depends on it alone; the other is as often 0 as 1."""
    made = Sequential(layers.Linear(1, 1), layers.Linear(1, 2), rng=0, dtype="float64")
    made.parameters["1.weight"][...] = [[0], [1]]
    made.parameters["1.bias"][...] = 0, -11 if rare else 11
    case = made, losses.BCEWithLogitsLoss(), np.array([[0.1], [-0.1]]), np.ones((2, 2))
    report = check_quantity(quantities.DiagGGNMC(), *case)
    report.assert_ok()
    assert any("standard errors" in row.oracle for row in report.rows)


@pytest.mark.parametrize("case", [a_sure_classifier(50.0), differences_of_equal_numbers(0.1)])
def test_a_factor_is_found_where_a_network_is_hard_to_judge(case, monkeypatch, apart):
    monkeypatch.setattr(quantities.DiagGGN, "finish", lambda self, scale, diagonal: 1.001 * diagonal)
    report = check_quantity(quantities.DiagGGN(), *case)
    assert "is diag(R Σₙ Jₙᵀ Hₙ Jₙ)" in {row.claim for row in report.failures}, report


def test_a_definition_that_rounding_hides_is_not_judged(monkeypatch, apart):
    monkeypatch.setattr(quantities.DiagGGN, "finish", lambda self, scale, diagonal: 2 * diagonal)
    report = check_quantity(quantities.DiagGGN(), *a_sure_classifier(1000.0))
    (row,) = [row for row in report.rows if row.claim == "is diag(R Σₙ Jₙᵀ Hₙ Jₙ)"]
    assert (row.verdict, "rounding alone moves" in row.problem) == (NOT_GIVEN, True)


@pytest.mark.parametrize("scale", [5, 40, 1000])
@pytest.mark.parametrize(("factor", "ok"), [(1, True), (1 + 1e-5, False), (-1, False)])
def test_a_loss_that_is_sure_of_its_targets_is_judged(scale, factor, ok):
    class Wrong(losses.CrossEntropyLoss):
        def gradients(self, output, target):
            return factor * super().gradients(output, target)

    output = scale * np.eye(3)[[0, 2, 1]] + 0.1 * np.random.default_rng(0).standard_normal((3, 3))
    report = check_loss(Wrong(), output, np.array([0, 2, 1]))
    assert [row.method for row in report.failures][:1] == ([] if ok else ["gradients"])


@pytest.mark.parametrize("f", [-9.0, -12.0, -20.0])
def test_no_alarm_where_counts_are_0_in_all_draws(f):
    check_loss(losses.PoissonNLLLoss(), np.full((2, 1), f), np.ones((2, 1)), 0).assert_ok()


@pytest.mark.parametrize(("layer", "scale", "seed"), [
    (layers.Softmax(1), 20, 2), (layers.Softmax(1), 60, 0), (layers.LogSoftmax(1), 25, 1), (layers.Tanh(), 40, 1),
    (layers.Tanh(), 25, 1), (layers.Sigmoid(), 60, 3),
])  # fmt: skip
def test_no_alarm_where_a_layer_is_sure(layer, scale, seed):
    """Its derivatives are what 1 − p leaves, or 1 − y²; in the last two cases in float32 alone."""
    check_layer(layer, scale * np.random.default_rng(seed).standard_normal((2, 3))).assert_ok()


@pytest.mark.parametrize("scale", [1, 5, 15])
@pytest.mark.parametrize(("factor", "ok"), [(1, True), (1 + 1e-5, False), (-1, False)])
def test_a_layer_that_is_sure_is_judged(scale, factor, ok):
    class Wrong(layers.Softmax):
        def residual(self, saved, g):
            return super().residual(saved, factor * g)

    report = check_layer(Wrong(1), scale * np.array([[0.0, 1.0, 0.3], [-1.0, 0.5, 0.0]]))
    assert [row.method for row in report.failures][:1] == ([] if ok else ["residual"])


@pytest.mark.parametrize("factor", [1, 2])
def test_estimates_of_large_counts_are_judged(factor):
    class Times(quantities.DiagGGNMC):
        name, estimates = "times", quantities.DiagGGN

        def finish(self, scale, diagonal):
            return factor * super().finish(scale, diagonal)

    made = Sequential(layers.Linear(2, 2), rng=0, dtype="float64")
    made.parameters["0.bias"][...] = 7
    x = np.random.default_rng(0).standard_normal((3, 2))
    report = check_quantity(Times(), made, losses.PoissonNLLLoss(), x, np.ones((3, 2)))
    assert any("estimates" in row.claim for row in report.failures) == (factor == 2), report


@pytest.mark.parametrize(("off", "rounding", "verdict"), [
    (1e-9, 2e-9, OK), (0.05, 0.1, NOT_GIVEN), (0.5, 0.1, FAILED), (0.5, 1e-9, FAILED)])  # fmt: skip
def test_a_difference_beyond_what_rounding_moves_is_a_failure(off, rounding, verdict):
    claims = Claims("this")
    claims.rounding = lambda method: rounding
    claims.equal("method", "claim", lambda: Compared(np.ones(1) + off, np.ones(1), "that"))
    assert [row.verdict for row in claims.report.rows] == [verdict]


@pytest.mark.parametrize(("off", "verdict"), [(3e-17, OK), (3e-15, FAILED)])
def test_no_alarm_below_a_rounding_of_the_largest_entry(off, verdict):
    want = {"cancels": np.zeros(2), "largest": np.ones(1)}
    pair = Compared(want | {"cancels": np.array([0.0, off])}, want, "this", floor=floor_of(want))
    assert _compared(pair, None)["verdict"] == verdict


@pytest.mark.parametrize("seed", range(2))
def test_no_alarm_where_columns_of_both_signs_cancel(seed):
    """One number of the first input is small, so that its columns are scaled by a thousand."""
    inputs = np.array([[-13.7, -7.8e-6, -11.9, -0.14]]), np.array([[4.98, 18.7, 6.8, 3.6]])
    check_layer(layers.Multiply(), inputs, seed).assert_ok()


@pytest.mark.parametrize(("x", "seed"), [([[1.0241, 0.9996]], 1), ([[1.0241, 1.01]], 0)])
def test_no_alarm_where_a_norm_subtracts_nearly_equal_numbers(x, seed):
    check_layer(layers.GroupNorm(1, 1), np.array([x, [[1.0, 1.0003]]][: 2 - seed]), seed).assert_ok()


@pytest.mark.parametrize("names", [["0.bias"], ["0.weight", "2.bias"]])
def test_no_alarm_with_frozen_parameters(names, apart):
    made = Sequential(layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 2), rng=0, dtype="float64")
    made.freeze(*names)
    report = check_network(made, losses.MSELoss(), np.ones((2, 3)), np.zeros((2, 2)))
    report.assert_ok()
    assert any(row.oracle == "dense Jacobians" and row.verdict == "ok" for row in report.rows)


def test_no_alarm_where_a_target_is_too_rare_to_be_drawn():
    output = np.array([[0.0, 12.0], [1.0, 0.5]])[None].swapaxes(1, 2)
    check_loss(losses.CrossEntropyLoss(weight=np.array([3.0, 1e-3])), output, np.array([[1, 0]])).assert_ok()


class Binomial(ElementwiseLoss):
    """−log of the binomial's n = 3, whose targets are looked up in a table."""

    WAYS, off = np.log([1.0, 3.0, 3.0, 1.0]), 0

    def check_values(self, name, target, batch_shape, output):
        super().check_values(name, target, batch_shape, output)
        if not np.isin(target, (0, 1, 2, 3)).all():
            raise ValueError(f"{name}: expected counts from 0 to 3")

    def values(self, output, target):
        ways = self.WAYS.astype(output.real.dtype)[target.astype(int)]
        above = output.real > 0
        softplus = np.where(above, output, 0) + np.log1p(np.exp(np.where(above, -output, output)))
        return self.summed(3 * softplus - target * output - ways)

    def gradients(self, output, target):
        return (3 * sigmoid(output) - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 3 * sigmoid(output) * sigmoid(-output)

    def noise(self, batch_shape, mc_samples, rng):
        return rng.random((mc_samples, *batch_shape, 3))

    def pseudo_targets(self, output, noise):
        return (noise < sigmoid(output - self.off)[..., None]).sum(-1).astype(output.dtype)


@pytest.mark.parametrize("seed", range(3))
def test_no_alarm_where_targets_are_a_few_whole_numbers(seed):
    rng = np.random.default_rng(seed)
    given = rng.standard_normal((4, 2)), rng.integers(0, 4, (4, 2)).astype(float)
    check_loss(Binomial(), *given).assert_ok()

    wrong = type("Wrong", (Binomial,), {"off": 1})()
    assert [row.method for row in check_loss(wrong, *given).failures][:1] == ["draw"]


class Position(layers.Layer):
    """The product of each position with a matrix, which is called `weight`, and no bias."""

    kronecker_factors = True

    def parameter_shapes(self):
        return {"weight": (3, 3)}

    def draw(self, rng):
        return {"weight": rng.standard_normal((3, 3))}

    def forward(self, x):
        return x @ self.parameters["weight"].T, x

    def jmp(self, saved, mat):
        return mat @ self.parameters["weight"].T

    def mjp(self, saved, mat):
        return mat @ self.parameters["weight"]

    def parameter_jacobians(self, saved):
        return {"weight": Outer(lambda: saved[None], Bias(lambda mat: mat), lambda w: w, lambda w: w)}


def test_no_alarm_where_a_users_weight_has_no_bias():
    network = Sequential(Position(), layers.Flatten(), layers.Linear(6, 2), rng=1, dtype="float64")
    rng = np.random.default_rng(0)
    check_network(network, losses.MSELoss(), rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 2))).assert_ok()


class Expit(layers.Elementwise):
    """σ by a function that refuses complex numbers."""

    def value(self, x):
        return special.expit(x)

    def first(self, x, y):
        return y * (1 - y)

    def second(self, x, y):
        return y * (1 - y) * (1 - 2 * y)


class Softplus(layers.Elementwise):
    """log(1 + eˣ), which takes complex numbers, and its derivatives do not."""

    def value(self, x):
        return np.log1p(np.exp(x))

    def first(self, x, y):
        return special.expit(x)

    def second(self, x, y):
        return special.expit(x) * special.expit(-x)


class LogCosh(ElementwiseLoss):
    def values(self, output, target):
        return self.summed(np.logaddexp(output - target, target - output))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 / np.cosh(output - target) ** 2


class Cubic(ElementwiseLoss):
    """|f − y|³ / 3: NumPy's absolute value takes complex numbers, of which it gives a real one."""

    def values(self, output, target):
        return self.summed(np.abs(output - target) ** 3 / 3)

    def gradients(self, output, target):
        return (output - target) * np.abs(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 2 * np.abs(output - target)


@pytest.mark.parametrize(("layer", "loss", "judged"), [
    (Expit(), losses.MSELoss(), {"DiagGGN": NOT_GIVEN, "DiagHessian": NOT_GIVEN, "KFLR": NOT_GIVEN}),
    (Softplus(), losses.MSELoss(), {"DiagGGN": OK, "DiagHessian": NOT_GIVEN, "KFLR": OK}),
    (layers.Tanh(), LogCosh(), {"DiagGGN": NOT_GIVEN, "DiagHessian": NOT_GIVEN, "KFLR": NOT_GIVEN}),
    (layers.Tanh(), Cubic(), {"DiagGGN": NOT_GIVEN, "DiagHessian": NOT_GIVEN, "KFLR": NOT_GIVEN}),
], ids=["layer", "derivative", "loss", "absolute"])  # fmt: skip
def test_no_alarm_where_a_part_refuses_complex_numbers(layer, loss, judged):
    network = Sequential(layers.Linear(3, 2), layer, layers.Linear(2, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    report = check_network(network, loss, rng.standard_normal((3, 3)), rng.standard_normal((3, 2)))
    report.assert_ok()
    rows = {row.method: row.verdict for row in reversed(report.rows) if row.method in judged}  # the definitions
    assert rows == judged


class Fourth(quantities.Quantity):
    """A quantity of rows for each sample that adds them up itself."""

    name, scale = "fourth", "1/N Σₙ (∇ℓₙ)⁴"
    merging, powers = data.Averaged(), (0, 4)

    def statistics(self):
        return (quantities.Statistic("batch", GRADIENT),)

    @staticmethod
    def finish(scale, each):
        return ((each / scale.factor) ** 4).mean(0)

    @staticmethod
    def definition(parts):
        return (parts.gradients**4).mean(0)


class Unstated(Fourth):
    """The same, which does not say how results of batches are merged."""

    merging = None


@pytest.mark.parametrize("quantity", [Fourth(), Unstated()], ids=["merged", "unstated"])
def test_no_alarm_where_a_quantity_adds_up_its_rows_itself(quantity):
    made = Sequential(layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 2), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((2, 5, 4))
    given = made, losses.MSELoss(), x, y[:, :2]
    check_quantity(quantity, *given).assert_ok()
    check_symmetries(*given, quantities=[quantity]).assert_ok()
    alone = Sequential(layers.Linear(4, 3), rng=0, dtype="float64"), losses.MSELoss(), x[:3], y[:3, :3]
    check_quantity(quantity, *alone).assert_ok()  # as many samples as outputs
    check_symmetries(*alone, quantities=[quantity]).assert_ok()


class Rank(Quantity):
    """The effective rank of the individual gradients: of pairs of samples, and one number."""

    name, scale, powers = "rank", "tr(G)² / tr(G²)", (0, 0)
    needs = (Statistic(GRAM, GRADIENT),)

    def finish(self, scale, gram):
        return np.array([np.trace(gram) ** 2 / np.trace(gram @ gram)])

    def definition(self, parts):
        g = parts.gradients.reshape(len(parts.gradients), -1)
        return self.finish(None, g @ g.T)


class Squares(Rank):
    """The squared norms of the individual gradients, from the same matrix."""

    name, scale, powers = "squares", "‖R ∇ℓₙ‖²", (2, 2)

    def finish(self, scale, gram):
        return np.diag(gram).copy()

    def definition(self, parts):
        g = parts.factor * parts.gradients.reshape(len(parts.gradients), -1)
        return (g * g).sum(1)


@pytest.mark.parametrize("quantity", [Rank(), Squares()], ids=lambda each: each.name)
def test_what_is_made_of_pairs_of_samples_may_have_any_shape(quantity):
    net = Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 3), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 1, 2, 0])
    report = check_quantity(quantity, net, losses.CrossEntropyLoss(), x, y)
    report.assert_ok()
    (row,) = [row for row in report.rows if row.claim.startswith("permuting")]
    assert row.verdict == ("ok" if quantity.name == "rank" else "not given")
    check_symmetries(net, losses.CrossEntropyLoss(), x, y, quantities=[quantity]).assert_ok()


class Log(layers.Elementwise):
    """log x, with factors of its derivatives that are 1 if they are right."""

    off = 1.0, 1.0

    def value(self, x):
        return np.log(x)

    def first(self, x, y):
        return self.off[0] / x

    def second(self, x, y):
        return -self.off[1] / x**2


@pytest.mark.parametrize("x", [1e-9, 1e-4, 1.5e-3, 1e-2])
@pytest.mark.parametrize(("off", "method"), [((1, 1), ""), ((1 + 1e-6, 1), "jmp"), ((1, 1 + 1e-6), "residual"),
                                             ((np.nan, 1), "jmp"), ((1, np.nan), "residual")])  # fmt: skip
def test_a_layer_that_is_not_defined_everywhere_is_judged(x, off, method):
    report = check_layer(type("Log", (Log,), {"off": off})(), np.array([[x, 1.0, 2.0], [0.5, 3 * x, 1.0]]))
    assert [row.method for row in report.failures][:1] == ([method] if method else []), report


@pytest.mark.parametrize("seed", range(2))
def test_no_alarm_on_the_logarithm_of_a_small_probability(seed):
    def model(p, x):
        z = x @ p["w"]
        e = np.exp(z - z.max(1, keepdims=True))
        return np.log(e / e.sum(1, keepdims=True))

    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((4, 3)), 3 * rng.standard_normal((3, 4))
    check_network(trace(model, {"w": w}, x), losses.NLLLoss(), x, np.array([0, 1, 2, 3])).assert_ok()


class LogCosh(ElementwiseLoss):
    """A loss that says nothing of draws."""

    def values(self, output, target):
        d = np.where((output - target).real < 0, target - output, output - target)
        return self.summed(d + np.log1p(np.exp(-2 * d)) - np.log(2))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 - np.tanh(output - target) ** 2


class Steep(LogCosh):
    """The same with a wrong gradient."""

    def gradients(self, output, target):
        return 1.001 * super().gradients(output, target)


@pytest.mark.parametrize("loss", [LogCosh(), Steep()], ids=["right", "wrong"])
def test_a_loss_without_draws_is_judged(loss, apart):
    rng = np.random.default_rng(0)
    given = Sequential(layers.Linear(3, 2), rng=0, dtype="float64"), loss, *rng.standard_normal((2, 4, 3))
    given = *given[:3], given[3][:, :2]
    for report in (check_network(*given), check_symmetries(*given), check_quantity(quantities.DiagGGN(), *given)):
        assert report.ok == (type(loss) is LogCosh), report


@pytest.mark.parametrize("fault", ["", "a gradient of the padding", "no gradient of another row"])
def test_the_row_of_the_padding_is_judged(fault, monkeypatch, apart):
    def chosen(self, like):
        rows = np.arange(self.layer.num_embeddings)
        found = self.x.reshape(len(self.x), 1, -1) == rows[:, None]
        return (found & (rows != (9 if "padding" in fault else 2) + ("other" in fault))[:, None]).astype(like.dtype)

    if fault:
        monkeypatch.setattr(_Rows, "_chosen", chosen)
    made = Sequential(layers.Embedding(7, 2, padding_idx=2), layers.Flatten(), layers.Linear(6, 2), rng=0)
    x, y = np.array([[0, 2, 1], [2, 2, 3], [4, 5, 6], [1, 2, 0]]), np.array([0, 1, 1, 0])
    given = made, losses.CrossEntropyLoss(), x, y
    assert check_network(*given).ok == check_symmetries(*given).ok == (not fault)


class TokenLinear(layers.Layer):
    """y[s, f] = Σₜ W[s, t] x[t, f] + b[s]: ``[N, T, F] -> [N, S, F]``, linear along the first axis of a sample."""

    constant_jacobian = True
    kronecker_factors = True

    def __init__(self, tokens, outputs):
        self.tokens, self.outputs = tokens, outputs

    def parameter_shapes(self):
        return {"weight": (self.outputs, self.tokens), "bias": (self.outputs,)}

    def draw(self, rng):
        return {name: rng.standard_normal(shape) for name, shape in self.parameter_shapes().items()}

    def output_shape(self, shape):
        if len(shape) != 2 or shape[0] != self.tokens:
            raise ValueError(f"expected features of shape ({self.tokens}, F), got {shape}")
        return self.outputs, shape[1]

    def forward(self, x):
        return self.parameters["weight"] @ x + self.parameters["bias"][:, None], x

    def jmp(self, saved, mat):
        return self.parameters["weight"] @ mat

    def mjp(self, saved, mat):
        return self.parameters["weight"].T @ mat

    def parameter_jacobians(self, saved):
        bias = Bias(lambda mat: mat.swapaxes(-1, -2))
        weight = Outer(lambda: saved.swapaxes(1, 2)[None], bias, lambda weight: weight, lambda weight: weight)
        return {"weight": weight, "bias": bias}


class Heads(layers.Linear):
    """A linear layer whose outputs stand in two axes."""

    def __init__(self, size, heads, width):
        super().__init__(size, heads * width)
        self.heads = heads

    def output_shape(self, shape):
        if shape != (self.in_features,):
            raise ValueError(f"expected features of shape ({self.in_features},), got {shape}")
        return self.heads, self.out_features // self.heads

    def forward(self, x):
        y, saved = super().forward(x)
        return y.reshape(len(y), self.heads, -1), saved

    def jmp(self, saved, mat):
        return super().jmp(saved, mat).reshape(*mat.shape[:2], self.heads, -1)

    def mjp(self, saved, mat):
        return super().mjp(saved, mat.reshape(*mat.shape[:2], -1))

    def parameter_jacobians(self, x):
        bias = Bias(lambda mat: mat.reshape(*mat.shape[:2], 1, -1))
        weight = Outer(lambda: x[:, None][None], bias, lambda weight: weight, lambda weight: weight)
        return {"weight": weight, "bias": bias}


def test_no_alarm_where_the_outputs_of_a_weight_stand_in_two_axes():
    rng, x = np.random.default_rng(0), np.random.default_rng(1).standard_normal((3, 3))
    net = Sequential(Heads(3, 2, 2), layers.Flatten(), layers.Linear(4, 2), rng=0, dtype="float64")
    report = check_network(net, losses.MSELoss(), x, rng.standard_normal((3, 2)))
    report.assert_ok()
    assert [row.verdict for row in report.rows if row.method == "KFLR" and "B ⊗ A" in row.claim] == [OK]


class ByName(layers.Linear):
    """A layer whose Jacobians are those of the parameters that it has."""

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return {name: found[name] for name in self.parameters}


@pytest.mark.parametrize("bias", [True, False])
def test_no_alarm_where_jacobians_are_those_of_the_parameters_that_are_there(bias):
    check_layer(ByName(3, 2, bias=bias), np.random.default_rng(0).standard_normal((4, 3))).assert_ok()


@pytest.mark.parametrize("outputs", [2, 3])
def test_no_alarm_where_the_outputs_of_a_weight_are_not_the_last_axis(outputs):
    """With 3 outputs both axes have their number."""
    rng, last = np.random.default_rng(0), layers.Linear(3 * outputs, 2)
    net = Sequential(TokenLinear(4, outputs), layers.SiLU(), layers.Flatten(), last, rng=0, dtype="float64")
    x, y = rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 2))
    check_network(net, losses.MSELoss(), x, y).assert_ok()
    layer, want = twin_of(net.layers[0], "complex128"), np.einsum("ntf,nsf->ts", x, x)
    np.testing.assert_allclose(kronecker_oracles.input_square(layer, x), want, rtol=1e-12)



def test_inputs_of_a_weight_are_those_of_all_outputs_also_where_they_are_0():
    """Of a group whose inputs are 0, or at places where they are, no output depends on the weight."""
    layer = Sequential(layers.Conv1d(4, 2, 1, groups=2), rng=0, dtype="float64").layers[0]
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    x[:, :2, 1:] = x[:, 2:] = 0
    u = kronecker_oracles.weight_inputs(twin_of(layer, "complex128"), x)
    assert u.shape == (2, 3, 5, 2)
    np.testing.assert_allclose(u[0, :, 0], x[:, :2, 0])
    assert not u[0, :, 1:].any()
    assert not u[1].any()


def test_no_alarm_where_a_parameter_has_as_many_numbers_as_there_are_samples():
    """Squared norms then have the parameter's shape, and are rows all the same."""
    rng = np.random.default_rng(0)
    net = Sequential(layers.PReLU(4), layers.Tanh(), rng=0, dtype="float64")
    check_network(net, losses.MSELoss(), rng.standard_normal((4, 4)), rng.standard_normal((4, 4))).assert_ok()


class Temperature(layers.Layer):
    """y = a x with one number a, of shape ()."""

    constant_jacobian = True
    kronecker_factors = "one number is no matrix"
    factor = 1.0

    def parameter_shapes(self):
        return {"a": ()}

    def draw(self, rng):
        return {"a": rng.uniform(1, 2, ())}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["a"] * x, x

    def jmp(self, x, mat):
        return self.parameters["a"] * mat

    def mjp(self, x, mat):
        return self.parameters["a"] * mat

    def parameter_jacobians(self, x):
        return {"a": OfNumber(self.factor * x)}


class OfNumber(ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return (mat * self.x).reshape(*mat.shape[:2], -1).sum(2)


def test_a_parameter_of_one_number_is_looked_at():
    rng = np.random.default_rng(0)
    net = Sequential(Temperature(), layers.Linear(3, 2), rng=0, dtype="float64")
    check_layer(net.layers[0], rng.standard_normal((4, 3))).assert_ok()
    check_network(net, losses.MSELoss(), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))).assert_ok()
    net.layers[0].factor = 1.01
    assert [row.method for row in check_layer(net.layers[0], rng.standard_normal((4, 3))).failures] == ["a.per_sample"]


def test_no_alarm_by_symmetries_with_a_parameter_of_one_number():
    rng = np.random.default_rng(0)
    net = Sequential(layers.Linear(3, 3), Temperature(), layers.Linear(3, 2), rng=0, dtype="float64")
    report = check_symmetries(net, losses.MSELoss(), rng.standard_normal((4, 3)), rng.standard_normal((4, 2)))
    report.assert_ok()
    (row,) = [row for row in report.rows if row.claim == "the loss follows the gradient where 1.a is moved"]
    assert row.verdict == OK


@pytest.mark.parametrize(("layer", "x"), [
    (layers.LayerNorm(2), [[-0.3, -1.35], [-0.7, -0.69]]), (layers.RMSNorm(1, eps=1e-5), [[3e-4], [2.0]]),
])  # fmt: skip
def test_no_alarm_where_a_mixed_residual_is_what_cancellation_leaves(layer, x):
    """With two numbers x̂² is 1 − ε/σ²; a wrong factor is found all the same."""
    for seed in range(20):
        check_layer(layer, np.array(x) * (1 + 0.1 * seed), seed).assert_ok()

    class Wrong(layers.LayerNorm):
        def mixed_residual(self, *given):
            found = super().mixed_residual(*given)

            def columns(span):
                pieces, sign = found.columns(span)
                return pieces, 1.001 * sign

            return type(found)(found.width, columns)

    failures = check_layer(Wrong(2), np.array([[-0.3, -1.35], [-0.7, -0.69]])).failures
    assert {row.method for row in failures} == {"weight.mixed_residual"}


@pytest.mark.parametrize("f", [40.0, 59.5, 151.2, 193.1])
def test_no_alarm_where_one_count_is_beyond_numbers(f, apart):
    """Of e^59.5 counts the likelihood's logarithm is 10²⁷; e^151 counts cannot be drawn."""
    network = Sequential(layers.Scale(1), rng=0, dtype="float64")
    x = np.array([[[0.5, f], [1.0, -37.0]], [[5.7, 0.1], [0.3, 2.0]]])
    check_network(network, losses.PoissonNLLLoss(), x, np.array([[[1.0, 2], [0, 3]], [[2, 1], [1, 0]]])).assert_ok()
