"""Networks of any form: every quantity against brute force, and the fast engine against the plain one."""

from math import prod

import numpy as np
import pytest
from common import assert_equal, batch, both, chain, flat, one_in
from hypothesis import assume, given, settings

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import leaves_of
from gbackprop.testing import check_network
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.oracles import Dense
from gbackprop.testing.strategies import problems

L, T, S = layers.Linear, layers.Tanh, layers.Sigmoid
CE = losses.CrossEntropyLoss()


class Transposed(layers.Layer):
    constant_jacobian = True

    def output_shape(self, shape):
        return shape[::-1]

    def forward(self, x):
        return x.swapaxes(-1, -2), None

    def mjp(self, saved, mat):
        return mat.swapaxes(-1, -2)


def matrices():
    nodes = {"rows": (L(3, 4), "input"), "keys": (L(3, 4), "input"), "turned": (Transposed(), "keys")}
    nodes |= {"scores": (layers.MatMul(), "rows", "turned"), "weights": (T(), "scores")}
    return gb.Graph(nodes | {"mixed": (layers.MatMul(), "weights", "input")})


def trained(norm):
    """Batch normalization subtracts a running mean: affine in its input."""
    norm.buffers |= {"running_mean": np.array([0.5, -1.0, 2.0]), "running_var": np.array([0.5, 2.0, 1.5])}
    return norm


def tied(make, around):
    """Layers made afresh of which one stands at several places."""
    return lambda: around(make())


def up(dims, *given, **named):
    return [getattr(layers, f"ConvTranspose{dims}d")(*given, **named), T()]


def encoder(activation, **named):
    return gb.TransformerEncoderLayer(4, 2, 3, activation=activation, **named)


GRAPHS = {
    "residual": (lambda: [gb.Residual(L(3, 3), T()), L(3, 2), T()], (3,)),
    "residual with a shortcut": (lambda: [gb.Residual(L(3, 4), T(), shortcut=L(3, 4)), S(), L(4, 2)], (3,)),
    "gate": (lambda: [gb.Product(S(), gb.Sequential(L(3, 3), T())), L(3, 2), T()], (3,)),
    "product of three": (lambda: [L(3, 3), gb.Product(T(), S(), L(3, 3)), L(3, 2)], (3,)),
    "square": (lambda: [L(3, 3), gb.Product(T(), T()), L(3, 2), T()], (3,)),
    "concatenation": (lambda: [gb.Concatenate(L(3, 2), layers.Identity(), T()), S(), L(8, 2)], (3,)),
    "nested": (
        lambda: [gb.Sum(gb.Residual(L(3, 3), gb.Product(S(), T())), gb.Sequential(T(), L(3, 3))), T(), L(3, 2)], (3,)
    ),
    "tied in a row": (tied(lambda: L(3, 3), lambda t: [t, T(), t, S(), t, L(3, 2), T()]), (3,)),
    "tied side by side": (
        tied(lambda: L(3, 3), lambda t: [gb.Product(gb.Sequential(S(), t), gb.Sequential(t, T())), L(3, 2)]), (3,)
    ),
    "tied slopes": (
        tied(lambda: layers.PReLU(3), lambda t: [L(3, 3), t, L(3, 3), t, gb.Residual(t, T()), L(3, 2)]), (3,)
    ),
    "tied norm": (
        tied(lambda: layers.LayerNorm(3), lambda t: [t, L(3, 3), t, T(), gb.Residual(t, S()), L(3, 2)]), (3,)
    ),
    "tied norm of channels": (
        tied(lambda: layers.GroupNorm(2, 4), lambda t: [L(3, 4), t, L(4, 4), t, T(), L(4, 2)]), (3,)
    ),
    "tied norm of a batch": (
        tied(lambda: trained(layers.BatchNorm1d(3)), lambda t: [L(3, 3), t, T(), t, L(3, 2)]), (3,)
    ),
    "tied in a residual": (tied(lambda: L(3, 3), lambda t: [gb.Residual(t, T(), gb.Residual(t, S())), L(3, 2)]), (3,)),
    "matrix product": (lambda: [matrices()], (3, 3)),
    "tied groups": (tied(lambda: layers.Conv1d(4, 4, 3, padding=1, groups=2), lambda t: [t, T(), t]), (4, 3)),
}  # fmt: skip

SEQUENCES = {
    "attention": (lambda: [gb.MultiheadAttention(4, 2)], (3, 4)),
    "causal attention": (lambda: [gb.MultiheadAttention(4, 2, bias=False, is_causal=True)], (3, 4)),
    "encoder": (lambda: [encoder("gelu")], (2, 4)),
    "encoder, norms first": (lambda: [encoder(T(), norm_first=True, is_causal=True)], (2, 4)),
    "RNN": (lambda: [gb.RNN(2, 3)], (3, 2)),
    "LSTM": (lambda: [gb.LSTM(1, 2)], (3, 1)),
    "LSTM of two layers": (lambda: [gb.LSTM(1, 1, 2, bidirectional=True)], (3, 1)),
    "GRU": (lambda: [gb.GRU(1, 2)], (3, 1)),
    "GRU, one step": (lambda: [gb.GRU(2, 2)], (1, 2)),
    "GRU twice": (tied(lambda: gb.GRU(2, 2, bias=False), lambda t: [gb.Sequential(t, t)]), (2, 2)),
}

GROUPED = {
    "one axis": (lambda: [layers.Conv1d(4, 6, 2, groups=2), S()], (4, 4)),
    "two axes": (lambda: [layers.Conv2d(4, 2, (2, 1), 2, 1, groups=2), T()], (4, 3, 2)),
    "three axes": (lambda: [layers.Conv3d(2, 4, (1, 2, 1), groups=2)], (2, 1, 3, 2)),
    "depthwise": (lambda: [layers.Conv2d(4, 4, 2, groups=4, bias=False), T(), layers.Conv2d(4, 2, 1)], (4, 3, 3)),
    "frame": (lambda: [layers.Conv1d(2, 4, 3, padding=1, groups=2, padding_mode="circular")], (2, 3)),
    "transposed": (lambda: up(1, 4, 6, 2, 2, 1, 1, groups=2), (4, 2)),
    "transposed depthwise": (lambda: up(2, 3, 3, (2, 1), 2, groups=3), (3, 2, 2)),
}

TRANSPOSED = {
    "transposed, one axis": (lambda: up(1, 2, 3, 2), (2, 3)),
    "transposed, stride and sides": (lambda: up(1, 3, 2, 3, 2, 1, 1, bias=False), (3, 3)),
    "transposed, one channel": (lambda: up(1, 1, 2, 3), (1, 3)),
    "transposed, two axes": (lambda: up(2, 2, 2, (2, 3), (1, 2), (1, 0), (1, 0), dilation=(2, 1)), (2, 3, 2)),
    "transposed, three axes": (lambda: up(3, 2, 3, (1, 2, 2), (2, 1, 1)), (2, 2, 2, 1)),
}

CHAINS = GROUPED | TRANSPOSED
NETWORKS = GRAPHS | SEQUENCES | CHAINS


def made(name, n=4, dtype="float64"):
    """A network of two outputs with random parameters, norms' and biases' too, and a batch."""
    make, shape = NETWORKS[name]
    parts = make()
    out = leaves_of(gb.Sequential(*parts), shape)[-1].output_shape
    parts += [] if out == (2,) else [layers.Flatten(), L(prod(out), 2)]
    network, rng = chain(*parts), np.random.default_rng(1)
    for value in network.parameters.values():
        value += 0.5 * rng.standard_normal(value.shape)
    return network.astype(dtype), *batch(n, *shape, classes=2, dtype=dtype)


SAMPLES = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN()]
ASKED = [*SAMPLES, q.DiagHessian(), q.BatchDiagHessian(), q.KFLR()]


LOSSES = CE, losses.MSELoss("sum")


@pytest.mark.parametrize(("name", "loss"), one_in(3, [(name, loss) for name in NETWORKS for loss in LOSSES]))
def test_every_quantity_is_its_definition(name, loss):
    net, x, y = made(name)
    y = y if loss is CE else np.random.default_rng(2).standard_normal((len(x), 2))
    targets = loss.draw(net(x), 2, np.random.default_rng(3))
    asked = [*ASKED, q.DiagGGNMC(targets=targets), q.KFAC(targets=targets)] + [q.KFRA()] * (name in CHAINS)
    result, oracle = gb.reference(net, loss, x, y, *asked), Dense(net, loss, x, y, targets)
    assert set(result.gradient) == set(net.parameters)
    assert_equal(result.gradient, oracle["gradient"], 1e-11, "gradient", least=1e-3)
    for quantity in asked:
        assert_equal(result[quantity], oracle[quantity.name], 1e-11, quantity.name, least=1e-3)
        if name in GROUPED and isinstance(quantity, q.KFAC | q.KFLR | q.KFRA):
            block = result[quantity]["0.weight"]
            assert isinstance(block, q.GroupedKronecker)
            assert block.shape == (net.parameters["0.weight"].size,) * 2


BOTH = {"sample_block": 1, "column_block": 7, "workers": 2}
OPTIONS = [(name, options) for name in NETWORKS for options in ({}, BOTH)]
CUT = {"sample_block": 2, "workers": 2}
OPTIONS += [(name, options) for name in GRAPHS | CHAINS for options in (CUT, {"column_block": 1})]


@pytest.mark.parametrize(("name", "options"), one_in(3, OPTIONS, lambda name, options: bool(options)))
def test_backward_gives_what_reference_gives(name, options):
    asked = [*ASKED, q.KFAC(mc_samples=3), q.DiagGGNMC(mc_samples=2)]
    asked += [q.KFRA()] * (name in CHAINS and "sample_block" not in options)
    both(made(name)[0], CE, *made(name)[1:], *asked, least=1e-3, **options)


@pytest.mark.parametrize("options", [{"sample_block": 2}, {"column_block": 1}], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_float32_gives_what_float64_gives(name, options):
    found = gb.backward(made(name, dtype="float32")[0], CE, *made(name, dtype="float32")[1:], q.KFLR(), **options)
    assert {value.dtype.name for value in flat(found["kflr"]).values()} == {"float32"}
    assert_equal(found["kflr"], gb.reference(made(name)[0], CE, *made(name)[1:], q.KFLR())["kflr"], 1e-4)


def largest(values):
    return max((np.abs(part).max(initial=0) for part in flat(values).values()), default=0)


@given(graph_problems())
def test_every_quantity_of_drawn_graphs_is_its_definition(problem):
    net, loss, x, y = problem.network, problem.loss, problem.x, problem.y
    assume(np.abs(net(x)).max() < 20)  # a count drawn of a rate e^40 is a float without its last digits
    targets = None if loss.undrawn else loss.draw(net(x), 2, np.random.default_rng(problem.seed))
    drawn = [] if targets is None else [q.DiagGGNMC(targets=targets), q.KFAC(targets=targets)]
    result, oracle = gb.reference(net, loss, x, y, *ASKED, *drawn), Dense(net, loss, x, y, targets)
    found = {"gradient": result.gradient} | {quantity.name: result[quantity] for quantity in (*ASKED, *drawn)}
    size = {name: largest(oracle[name]) for name in found}
    size["diag_hessian"] += size["diag_ggn"]  # of which it is a difference
    size["batch_diag_hessian"] += size["batch_diag_ggn"]
    size["variance"] += size["second_moment"]
    rounding = 1e-15 * max(1, size["gradient"])  # of numbers near 1 that cancel: columns of both signs, equal logits
    for name, values in found.items():
        got = flat(values)
        for key, value in flat(oracle[name]).items():
            assert np.abs(got[key] - value).max(initial=0) <= 1e-9 * size[name] + rounding, (name, key)


@settings(max_examples=settings().max_examples // 4)
@given(problems())
def test_the_kit_finds_no_fault_in_drawn_networks(device, problem):
    check_network(problem.network, problem.loss, problem.x, problem.y, problem.seed, device).assert_ok()


# ------------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize(
    "layer",
    [gb.MultiheadAttention(4, 2, dropout=0.4), encoder("relu", dropout=0.4), gb.LSTM(4, 3, 2, dropout=0.4)],
    ids=repr,
)
def test_dropout_acts_in_training_mode_and_is_the_same_in_both_engines(layer):
    x, y = np.random.default_rng(0).standard_normal((3, 2, 4)), np.array([0, 1, 1])
    network = chain(layer, layers.Flatten(), L(prod(leaves_of(layer, (2, 4))[-1].output_shape), 2))
    options = {"rng": 1, "training": True}
    result = both(network, CE, x, y, q.DiagHessian(), **options)
    assert result.loss != gb.reference(network, CE, x, y).loss
    name = next(iter(network.parameters))
    value, losses_there = network.parameters[name], []
    for step in (1e-5, -1e-5):
        value[0, 0] += step
        losses_there.append(gb.backward(network, CE, x, y, **options).loss)
        value[0, 0] -= step
    assert abs((losses_there[0] - losses_there[1]) / 2e-5 - result.gradient[name][0, 0]) < 1e-8


def test_attention_with_a_mask_does_not_look_ahead():
    network, x, y = made("causal attention")
    layer, changed = network[0], x.copy()
    changed[:, 2] += 1
    before, after = layer(x), layer(changed)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2] != after[:, 2]).all()
    result = gb.backward(network, CE, 1e4 * x, y, q.DiagHessian(), q.DiagGGN())  # exponentials of scores overflow
    assert all(np.isfinite(value).all() for quantity in result for value in result[quantity].values())


def test_a_preconditioned_step_lowers_the_loss():
    network, x, y = made("LSTM")
    optimizer = gb.optim.Preconditioned(network, q.KFLR(), 0.1, 1.0)
    before = gb.backward(network, CE, x, y, *optimizer.quantities)
    optimizer.step(before)
    assert gb.backward(network, CE, x, y).loss < before.loss
