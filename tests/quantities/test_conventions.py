"""KFAC's conventions: each is exact in its own setting, against dense blocks, and wrong in the others'."""

import numpy as np
import pytest
from common import batch, chain
from dense_blocks import blocks, dense, distance
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.strategies import SEEDS

FEW = settings(max_examples=12, deadline=None)
REDUCTIONS = st.sampled_from(["mean", "sum"])
SHARINGS = ["bias", "expand", "reduce"]


def exact(**options):
    return q.KFAC(fisher="exact", **options)


def sharing_net(setting, t, widths, seed, bias=True):
    """Linear layers on sequences: a loss of each position ("expand"), or of the mean over them ("reduce")."""
    i, o, c = widths
    head = [layers.Linear(o, c)] if setting == "expand" else [layers.AvgPool1d(t), layers.Flatten()]
    first = layers.Linear(i, o, bias=bias)
    turned = [layers.Permute((0, 2, 1))] if setting == "reduce" else []
    return chain(first, *turned, *head, rng=seed)


def numbers(net, shape, seed, n=4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, *shape))
    return x, rng.standard_normal((n, *net.output_shape(shape)))


def assert_exact(net, loss, x, y, *asked):
    """The blocks of some quantities, the last of weights with their biases, are the dense ones; return the result."""
    result = gb.backward(net, loss, x, y, *asked)
    for quantity in asked:
        want = blocks(net, loss, x, y, joint=quantity is asked[-1])
        for name, value in result[quantity].items():
            np.testing.assert_allclose(value.to_dense(), want[name], rtol=1e-9, atol=1e-13)
    return result


@FEW
@given(st.tuples(*[st.integers(1, 3)] * 3), st.integers(2, 4), st.sampled_from(["expand", "reduce"]), SEEDS, REDUCTIONS)
def test_expand_and_reduce_are_exact_in_their_settings_alone(widths, t, setting, seed, reduction):
    net = sharing_net(setting, t, widths, seed)
    x, y = numbers(net, (t, widths[0]), seed)
    loss = losses.MSELoss(reduction)
    asked = {sharing: exact(sharing=sharing) for sharing in SHARINGS}
    joint = {sharing: exact(sharing=sharing, joint_bias=True) for sharing in SHARINGS}
    result = gb.backward(net, loss, x, y, *asked.values(), *joint.values())
    for options, both in ((asked, False), (joint, True)):
        want = blocks(net, loss, x, y, joint=both)
        for sharing, quantity in options.items():
            error = distance(want["0.weight"], result[quantity]["0.weight"].to_dense())
            assert (error < 1e-12) == (sharing == setting), (sharing, both, error)


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("joint", [False, True])
def test_the_factors_from_explicit_loops(engine, sharing, joint):
    """Of a convolution below a nonlinear network: u by hand, columns from the bias's effect at each position."""
    net = chain(layers.Conv1d(2, 2, 2), layers.Tanh(), layers.Flatten(), layers.Linear(6, 3), rng=1)
    x, y = batch(3, 2, 4, seed=2)
    W, b, V, c = net.parameters.values()
    u = np.stack([x[:, :, t : t + 2].reshape(3, -1) for t in range(3)], axis=1)  # [N, T, I]
    hidden = np.tanh(u @ W.reshape(2, -1).T + b)  # [N, T, O]
    f = hidden.swapaxes(1, 2).reshape(3, -1) @ V.T + c
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    u = np.concatenate([u, np.ones((3, 3, 1))], axis=2) if joint else u
    a, big = 0, 0
    for n in range(3):
        s = np.diag(p[n] ** 0.5) - np.outer(p[n], p[n] ** 0.5)
        g = [(V.T @ s[:, v] / 3**0.5).reshape(2, 3).T * (1 - hidden[n] ** 2) for v in range(3)]  # [T, O] each
        if sharing == "expand":
            a, big = a + u[n].T @ u[n] / 9, big + sum(each.T @ each for each in g)
        else:
            mean = u[n].mean(0)
            a = a + (np.outer(mean, mean) if sharing == "reduce" else u[n].T @ u[n]) / 3
            big = big + sum(np.outer(each.sum(0), each.sum(0)) for each in g)
    found = engine(net, losses.CrossEntropyLoss(), x, y, exact(sharing=sharing, joint_bias=joint))["kfac"]
    np.testing.assert_allclose(found["0.weight"].A, a, rtol=1e-12)
    np.testing.assert_allclose(found["0.weight"].B, big, rtol=1e-12)
    assert ("0.bias" in found) == (not joint)


WIDTHS = st.tuples(*[st.integers(1, 3)] * 3)
LOSSES = st.sampled_from([losses.MSELoss, losses.CrossEntropyLoss, losses.BCEWithLogitsLoss])


@FEW
@given(WIDTHS, SEEDS, REDUCTIONS, LOSSES)
def test_of_one_sample_all_blocks_are_exact(widths, seed, reduction, kind):
    i, o, c = widths
    net = chain(layers.Linear(i, o), layers.Tanh(), layers.Linear(o, c), rng=seed)
    x, y = numbers(net, (i,), seed, n=1)
    y = np.array([seed % c]) if kind is losses.CrossEntropyLoss else y if kind is losses.MSELoss else (y > 0) + 0.0
    assert_exact(net, kind(reduction), x, y, q.KFLR(), q.KFRA(), exact(joint_bias=True))


@FEW
@given(WIDTHS, SEEDS, REDUCTIONS)
def test_of_a_linear_network_with_squared_error_the_ggn_is_exact_and_the_empirical_fisher_is_another(
    widths, seed, reduction
):
    i, o, c = widths
    net, loss = chain(layers.Linear(i, o), layers.Linear(o, c), rng=seed), losses.MSELoss(reduction)
    empirical = q.KFAC(fisher="empirical")
    x, y = numbers(net, (i,), seed)
    assert_exact(net, loss, x, y, q.KFLR(), q.KFRA(), exact(joint_bias=True))
    want, found = blocks(net, loss, x, y), gb.backward(net, loss, x, y, empirical)[empirical]
    assert all(distance(want[name], value.to_dense()) > 1e-3 for name, value in found.items())


@pytest.mark.parametrize("loss", [losses.MSELoss("mean"), losses.MSELoss("sum"), losses.CrossEntropyLoss("mean")])
def test_empirical_b_is_the_bias_block_of_the_gradients(loss):
    net = chain(layers.Linear(3, 4), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3))
    x, y = batch(4, 2, 3) if isinstance(loss, losses.CrossEntropyLoss) else numbers(net, (2, 3), 1)
    found = gb.backward(net, loss, x, y, q.KFAC(fisher="empirical"))["kfac"]
    want = blocks(net, loss, x, y, empirical=True)
    for name in ("0.bias", "3.bias"):
        np.testing.assert_allclose(found[name].to_dense(), want[name], rtol=1e-10, atol=1e-14)


@FEW
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), SEEDS)
def test_forward_only_constants(i, c, n, seed):
    """Of one linear layer with squared error the GGN is 2N B ⊗ A for "sum", 2/C B ⊗ A for "mean"."""
    net = chain(layers.Linear(i, c), rng=seed)
    x, y = numbers(net, (i,), seed, n)
    for reduction, constant in (("sum", 2 * n), ("mean", 2 / c)):
        loss = losses.MSELoss(reduction)
        for joint in (False, True):
            found = gb.backward(net, loss, x, y, q.KFAC(fisher="forward-only", joint_bias=joint))["kfac"]
            want = blocks(net, loss, x, y, joint=joint)
            for name, value in found.items():
                np.testing.assert_array_equal(value.B, np.eye(c))
                np.testing.assert_allclose(constant * value.to_dense(), want[name], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("activation", [layers.Tanh(), layers.ReLU()])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_the_bias_block_is_exact_with_one_position(activation, sharing):
    net = chain(layers.Linear(3, 4), activation, layers.Linear(4, 3))
    (x, y), loss = batch(5, 3), losses.CrossEntropyLoss()
    found, want = gb.backward(net, loss, x, y, exact(sharing=sharing))["kfac"], blocks(net, loss, x, y)
    for name in ("0.bias", "2.bias"):
        np.testing.assert_allclose(found[name].to_dense(), want[name], rtol=1e-10, atol=1e-14)


def test_the_default_is_todays():
    assert q.KFAC().statistics() == q.KFAC(sharing="bias", fisher="mc").statistics()
    net = chain(layers.Linear(3, 4), layers.Linear(4, 2))
    x, y = numbers(net, (2, 3), 0)
    one, other = gb.backward(net, losses.MSELoss(), x, y, exact(), q.KFLR()).values
    for name in one:
        np.testing.assert_array_equal(dense(one[name]), dense(other[name]))


@pytest.mark.parametrize(("sharing", "in_a", "in_b"), [("bias", 2, 4), ("expand", 1, 2), ("reduce", 1, 4)])
def test_a_weight_at_two_places_has_the_positions_of_both(sharing, in_a, in_b):
    """f = 2 (W x + b), so each use has the same inputs and the same columns, and T is 2."""
    linear = layers.Linear(2, 2)
    net = chain(gb.Sum(linear, linear))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    found = gb.backward(net, losses.MSELoss(), x, y, exact(sharing=sharing))["kfac"]
    (weight,) = [value for name, value in found.items() if name.endswith("weight")]
    np.testing.assert_allclose(weight.A, in_a * x.T @ x / 4, rtol=1e-12)
    np.testing.assert_allclose(weight.B, in_b * np.eye(2), rtol=1e-12, atol=1e-15)  # 2/C I of one use, C = 2


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R/M Σₙₘ b bᵀ"),
        ({"sharing": "expand"}, "B ⊗ A, A = 1/(N T) Σₙₜ u uᵀ, B = R/M Σₙₘₜ g gᵀ"),
        ({"fisher": "exact", "sharing": "reduce"}, "B ⊗ A, A = 1/N Σₙ ū ūᵀ, B = R Σₙᵥ b bᵀ"),
        ({"fisher": "empirical"}, "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R Σₙ b bᵀ"),
        ({"fisher": "forward-only", "joint_bias": True}, "B ⊗ A, A = 1/N Σₙₜ u uᵀ, u ← [u, 1], B = I"),
    ],
)
def test_the_stated_scale_is_that_of_the_convention(options, scale):
    net = sharing_net("expand", 2, (2, 2, 2), 0)
    x, y = numbers(net, (2, 2), 0)
    quantity = q.KFAC(**options)
    assert quantity.scale == scale
    assert scale in str(gb.explain(net, losses.MSELoss(), x, y, quantity))


BAD = [
    (lambda: q.KFAC(fisher="all"), "KFAC, fisher: expected 'mc', 'exact', 'empirical' or 'forward-only', got 'all'"),
    (
        lambda: q.EKFAC(fisher="forward-only"),
        "EKFAC, fisher: expected 'mc', 'exact' or 'empirical', got 'forward-only'",
    ),
    (lambda: q.KFAC(sharing=None), "KFAC, sharing: expected 'bias', 'expand' or 'reduce', got None"),
    (
        lambda: q.KFAC(fisher=np.ones(2)),
        "KFAC, fisher: expected 'mc', 'exact', 'empirical' or 'forward-only', got array([1., 1.])",
    ),
    (lambda: q.KFAC(sharing=np.ones(2)), "KFAC, sharing: expected 'bias', 'expand' or 'reduce', got array([1., 1.])"),
    (lambda: q.KFAC(joint_bias=1), "KFAC, joint_bias: expected True or False, got 1"),
    (lambda: q.KFAC(joint_bias=0), "KFAC, joint_bias: expected True or False, got 0"),
    (lambda: q.KFAC(2, fisher="exact"), "KFAC: mc_samples and targets are for fisher='mc', got fisher='exact'"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_wrong_arguments(make, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value) == message


def test_a_flag_may_be_of_numpy():
    assert q.KFAC(joint_bias=np.True_).convention == q.KFAC(joint_bias=True).convention


UNFIT = [
    (lambda: layers.Linear(4, 2, bias=False), (4,), "its weight has no bias in this layer, or that is frozen"),
    (lambda: layers.Conv1d(4, 2, 1, groups=2), (4, 1), "its weight has 2 groups"),
    (lambda: layers.ConvTranspose1d(4, 2, 1), (4, 1), "the outputs of its weight lie between the inputs"),
    (lambda: gb.RNN(4, 2), (2, 4), "its weight_ih_l0 has no bias in this layer, or that is frozen"),
]


@pytest.mark.parametrize("kind", [q.KFAC, q.EKFAC, q.NearestKronecker])
@pytest.mark.parametrize(("make", "shape", "message"), UNFIT, ids=["no bias", "groups", "transposed", "recurrent"])
def test_a_bias_that_does_not_fit(kind, make, shape, message):
    net = chain(make())
    x, y = numbers(net, shape, 0)
    with pytest.raises(gb.UnsupportedError, match=f"layer 0.*, .* cannot give {kind.__name__}: {message}"):
        gb.backward(net, losses.MSELoss(), x, y, kind(joint_bias=True))


def test_weight_and_bias_of_a_traced_function_are_joined_by_their_names():
    rng = np.random.default_rng(0)
    x, y, loss = rng.standard_normal((5, 3)), np.zeros((5, 2)), losses.MSELoss()
    value = {"weight": rng.standard_normal((2, 3)), "bias": rng.standard_normal(2)}
    named = gb.trace(lambda p, x: x @ p["weight"].T + p["bias"], value, x)
    found, net = exact(joint_bias=True), gb.Sequential(layers.Linear(3, 2), dtype="float64")
    net.load_state_dict({f"0.{name}": each for name, each in value.items()})
    (block,), (want,) = (gb.backward(each, loss, x, y, found)["kfac"].values() for each in (named, net))
    np.testing.assert_allclose(block.to_dense(), want.to_dense(), rtol=1e-12)
    other = gb.trace(lambda p, x: x @ p["w"].T + p["b"], {"w": value["weight"], "b": value["bias"]}, x)
    with pytest.raises(gb.UnsupportedError, match=r"joint_bias needs names as .*, not w and b"):
        gb.backward(other, loss, x, y, found)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_results_of_batches_merge(reduction):
    net = chain(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2))
    x, y = numbers(net, (3, 3), 0, n=5)
    asked = [exact(sharing="expand"), exact(sharing="reduce", joint_bias=True)]
    asked += [q.KFAC(fisher="empirical"), q.KFAC(fisher="forward-only")]
    loss = losses.MSELoss(reduction)
    whole = gb.backward(net, loss, x, y, *asked)
    merged = gb.data.merge(gb.backward(net, loss, x[some], y[some], *asked) for some in (slice(0, 2), slice(2, 5)))
    for quantity in asked:
        assert merged[quantity].keys() == whole[quantity].keys()
        for name, value in whole[quantity].items():
            np.testing.assert_allclose(merged[quantity][name].to_dense(), value.to_dense(), rtol=1e-11, atol=1e-14)


def test_the_optimizer_needs_a_block_for_each_parameter():
    net = gb.Sequential(layers.Linear(3, 2), rng=0)
    for kind in (q.KFAC, q.EKFAC):
        words = f"quantity: expected a curvature with a block for each parameter, got {kind.__name__}"
        with pytest.raises(ValueError, match=words):
            gb.optim.Preconditioned(net, kind(joint_bias=True), lr=0.1, damping=0.1)
