"""Update rules against plain loops and dense matrices, and their state against runs that were never interrupted."""

import numpy as np
import pytest
from scipy.linalg import block_diag

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((7, 4)), RNG.integers(0, 3, 7)
LOSS = losses.CrossEntropyLoss()
CURVATURES = (q.DiagGGN, q.DiagGGNMC, q.DiagHessian, q.KFAC, q.KFLR, q.KFRA)
KRONECKER = (q.KFAC, q.KFLR, q.KFRA)
RULES = {
    "SGD": lambda net, **k: optim.SGD(net, 0.1, **k),
    "momentum": lambda net, **k: optim.SGD(net, 0.1, momentum=0.9, **k),
    "Nesterov": lambda net, **k: optim.SGD(net, 0.1, momentum=0.9, nesterov=True, **k),
    "Adam": lambda net, **k: optim.Adam(net, 0.1, **k),
    **{
        f"{kind.__name__}-{average}": lambda net, kind=kind, average=average, **k: optim.Preconditioned(
            net, kind(), 0.1, 0.3, average=average, **k
        )
        for kind in CURVATURES
        for average in (None, "mean", "ema")
    },
}


def network(dtype="float64"):
    return gb.Sequential(layers.Linear(4, 5), layers.Sigmoid(), layers.Linear(5, 3), rng=3, dtype=dtype)


def sweep(net, optimizer, step=0):
    """One backward call on a batch of its own, with random numbers of its own."""
    x = np.roll(X, step, 0)[:5].astype(net.parameters["0.weight"].dtype)
    return gb.backward(net, LOSS, x, np.roll(Y, step)[:5], *optimizer.quantities, rng=step)


def train(net, optimizer, steps, start=0):
    for step in range(start, start + steps):
        optimizer.step(sweep(net, optimizer, step))
    return net.state_dict()


def gradients(steps=4):
    """Gradients that we choose, so that a rule can be followed number by number."""
    return [RNG.standard_normal((3, 2)) for _ in range(steps)]


def follow(make, grads, value):
    """Return what a rule makes of a weight of value `value` that gets the gradients `grads`, one after the other."""
    net = gb.Sequential(layers.Linear(value.shape[1], value.shape[0], bias=False), rng=0, dtype="float64")
    net.parameters["0.weight"] = value
    optimizer = make(net)
    path = []
    for gradient in grads:
        optimizer.step(gb.Result(np.array(0.0), None, {"0.weight": gradient}, (), ()))
        path.append(net.parameters["0.weight"].copy())
    return path


# -------------------------------------------------------------------------------------------------- first-order rules


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.8, False), (0.8, True)])
def test_sgd_follows_its_recursion(momentum, nesterov):
    grads, value, l2, lr = gradients(), RNG.standard_normal((3, 2)), 0.3, 0.05
    path = follow(lambda net: optim.SGD(net, lr, momentum, nesterov, l2), grads, value)
    for i, j in np.ndindex(3, 2):
        theta, v = value[i, j], 0.0
        for gradient, seen in zip(grads, path, strict=True):
            g = gradient[i, j] + l2 * theta
            v = momentum * v + g
            theta -= lr * (g + momentum * v if nesterov else v)
            assert seen[i, j] == pytest.approx(theta, rel=1e-12)


def test_adam_follows_its_algorithm():
    grads, value, l2, lr, one, two, eps = gradients(6), RNG.standard_normal((3, 2)), 0.3, 0.05, 0.8, 0.95, 1e-3
    path = follow(lambda net: optim.Adam(net, lr, (one, two), eps, l2), grads, value)
    for i, j in np.ndindex(3, 2):
        theta, m, v = value[i, j], 0.0, 0.0
        for t, (gradient, seen) in enumerate(zip(grads, path, strict=True), 1):
            g = gradient[i, j] + l2 * theta
            m, v = one * m + (1 - one) * g, two * v + (1 - two) * g * g
            theta -= lr * (m / (1 - one**t)) / ((v / (1 - two**t)) ** 0.5 + eps)
            assert seen[i, j] == pytest.approx(theta, rel=1e-12)


def test_adams_first_step_has_the_length_of_the_step_size():
    value = np.zeros((2, 2))
    (after,) = follow(lambda net: optim.Adam(net, 0.01), [np.array([[1e-3, -5.0], [200.0, -1e-2]])], value)
    np.testing.assert_allclose(after, [[-0.01, 0.01], [-0.01, 0.01]], rtol=1e-4)


# ------------------------------------------------------------------------------------------------ preconditioned rules


def dense_inverse(curvature, shift):
    """(G + …)⁻¹ as a dense matrix, from the formula of the class alone, by way of eigenvalues."""
    if not isinstance(curvature, q.Kronecker):
        return np.diag(1 / (np.maximum(curvature, 0).ravel() + shift))
    if curvature.A is None:
        return np.linalg.inv(curvature.B + shift * np.eye(len(curvature.B)))
    a, b = curvature.A, curvature.B
    pi = np.sqrt((np.trace(a) / len(a)) / (np.trace(b) / len(b)))
    damped = (b + np.sqrt(shift) / pi * np.eye(len(b)), a + np.sqrt(shift) * pi * np.eye(len(a)))
    return np.kron(*map(np.linalg.inv, damped))


@pytest.mark.parametrize("kind", CURVATURES)
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_a_preconditioned_step_solves_the_dense_system(kind, l2):
    net, lr, damping = network(), 0.1, 0.3
    optimizer = optim.Preconditioned(net, kind(), lr, damping, l2)
    before, result = net.state_dict(), sweep(net, optimizer)
    optimizer.step(result)
    for name, theta in before.items():
        inverse = dense_inverse(result[optimizer.quantity][name], damping + l2)
        expected = theta.ravel() - lr * inverse @ (result.gradient[name] + l2 * theta).ravel()
        np.testing.assert_allclose(net.parameters[name].ravel(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [q.KFAC, q.KFLR])
def test_a_preconditioned_step_of_a_norm_of_two_axes_solves_the_dense_system(kind):
    net = gb.Sequential(layers.LayerNorm((2, 3)), layers.Flatten(), layers.Linear(6, 2), rng=0, dtype="float64")
    optimizer, x = optim.Preconditioned(net, kind(), 0.1, 0.3), np.random.default_rng(0).standard_normal((5, 2, 3))
    before = net.state_dict()
    result = gb.backward(net, losses.MSELoss(), x, np.zeros((5, 2)), *optimizer.quantities, rng=0)
    optimizer.step(result)
    for name in ("0.weight", "0.bias"):
        step = dense_inverse(result[optimizer.quantity][name], 0.3) @ result.gradient[name].ravel()
        expected = before[name] - 0.1 * step.reshape(2, 3)
        np.testing.assert_allclose(net.parameters[name], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", CURVATURES)
@pytest.mark.parametrize(
    ("average", "weights"),
    [
        (None, [0, 0, 0, 1]),
        ("mean", [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        ("ema", [0.5**3, 0.5**3, 0.5**2, 0.5]),  # ρ = 0, 1/2, 1/2, 1/2
    ],
)
def test_the_curvature_is_averaged_over_the_steps(kind, average, weights):
    net = network()
    optimizer = optim.Preconditioned(net, kind(), 0.1, 0.3, average=average, decay=0.5)
    seen = []
    for step in range(4):
        before, result = net.state_dict(), sweep(net, optimizer, step)
        seen.append(result[optimizer.quantity])
        optimizer.step(result)

    def mix(get):
        return sum(weight * get(one) for weight, one in zip(weights, seen, strict=True))

    for name, theta in before.items():
        if kind in KRONECKER:
            a = None if seen[0][name].A is None else mix(lambda one, name=name: one[name].A)
            curvature = q.Kronecker(a, mix(lambda one, name=name: one[name].B))
        else:
            curvature = mix(lambda one, name=name: one[name])
        expected = theta.ravel() - 0.1 * dense_inverse(curvature, 0.3) @ result.gradient[name].ravel()
        np.testing.assert_allclose(net.parameters[name].ravel(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", CURVATURES)
def test_averaging_leaves_the_results_alone(kind):
    net = network()
    optimizer = optim.Preconditioned(net, kind(), 0.1, 0.3, average="mean")
    results = []
    for step in range(2):
        results.append(sweep(net, optimizer, step))
        kept = [dense(value) for value in results[0][optimizer.quantity].values()]
        optimizer.step(results[-1])
    for value, old in zip(results[0][optimizer.quantity].values(), kept, strict=True):
        np.testing.assert_array_equal(dense(value), old)


def dense(value):
    return value.to_dense() if isinstance(value, q.Kronecker) else value.copy()


def test_negative_curvature_counts_as_none():
    value, gradient = np.zeros((1, 2)), np.array([[1.0, 1.0]])
    net = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float64")
    net.parameters["0.weight"] = value
    hessian = q.DiagHessian()
    optimizer = optim.Preconditioned(net, hessian, 1.0, 0.5)
    curvature = {"0.weight": np.array([[-2.0, 1.5]])}
    optimizer.step(gb.Result(np.array(0.0), None, {"0.weight": gradient}, (hessian,), (curvature,)))
    np.testing.assert_allclose(net.parameters["0.weight"], [[-2.0, -0.5]])


@pytest.mark.parametrize("kind", CURVATURES)
def test_without_damping_an_input_that_is_always_zero_moves_nothing(kind):
    net = gb.Sequential(layers.Linear(4, 3), rng=3, dtype="float64")
    optimizer = optim.Preconditioned(net, kind(), 0.1, 0.0)
    x = X.copy()
    x[:, 2] = 0
    before = net.state_dict()["0.weight"]
    optimizer.step(gb.backward(net, LOSS, x, Y, *optimizer.quantities, rng=0))
    assert np.isfinite(net.parameters["0.weight"]).all()
    np.testing.assert_allclose(net.parameters["0.weight"][:, 2], before[:, 2], atol=1e-7)


def test_a_cap_bounds_the_eigenvalues_of_the_inverse():
    eigenvalues, cap = np.array([1e-12, 1e-3, 2.0]), 50.0
    vectors = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    factor = (vectors * eigenvalues) @ vectors.T
    v = RNG.standard_normal(3)
    expected = (vectors / np.maximum(eigenvalues, 1 / cap)) @ vectors.T @ v
    np.testing.assert_allclose(q.Kronecker(None, factor).solve(v, 0.0, cap), expected, rtol=1e-9)
    np.testing.assert_allclose(
        q.Kronecker(None, factor).solve(v, 0.1, cap), np.linalg.solve(factor + 0.1 * np.eye(3), v), rtol=1e-9
    )


def test_a_factor_that_rounding_made_indefinite_is_still_solved():
    factor = np.diag([1.0, -1e-3])  # as a float32 product of large numbers may turn out
    v = np.array([1.0, 1.0])
    solved = q.Kronecker(None, factor).solve(v, 1e-4, cap=1e5)
    np.testing.assert_allclose(solved, [1 / 1.0001, 1e5], rtol=1e-9)


# -------------------------------------------------------------------------------------------------------------- groups


def grouped_network(dtype="float64", groups=2):
    conv = layers.Conv1d(2 * groups, 4, 2, groups=groups)
    return gb.Sequential(conv, layers.Sigmoid(), layers.Flatten(), layers.Linear(8, 3), rng=3, dtype=dtype)


def grouped_sweep(net, optimizer, step=0):
    x = np.random.default_rng(step).standard_normal((5, net[0].in_channels, 3)).astype(net[0].dtype)
    return gb.backward(net, LOSS, x, np.roll(Y, step)[:5], *optimizer.quantities, rng=step)


@pytest.mark.parametrize("average", [None, "mean", "ema"])
@pytest.mark.parametrize("kind", KRONECKER)
def test_a_step_solves_the_damped_system_of_each_group(kind, average):
    net = grouped_network()
    optimizer, seen = optim.Preconditioned(net, kind(), 0.1, 0.3, 0.2, average), []
    for step in range(2):
        before, result = net.state_dict(), grouped_sweep(net, optimizer, step)
        seen.append(result[optimizer.quantity]["0.weight"])
        optimizer.step(result)
    weights = [0, 1] if average is None else [1 / 2, 1 / 2]
    a, b = (sum(w * getattr(one, part) for w, one in zip(weights, seen, strict=True)) for part in "AB")
    inverse = block_diag(*[dense_inverse(q.Kronecker(*pair), 0.5) for pair in zip(a, b, strict=True)])
    theta = before["0.weight"]
    expected = theta.ravel() - 0.1 * inverse @ (result.gradient["0.weight"] + 0.2 * theta).ravel()
    np.testing.assert_allclose(net.parameters["0.weight"].ravel(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("average", ["mean", "ema"])
@pytest.mark.parametrize("kind", KRONECKER)
def test_the_state_of_groups_goes_on_bit_for_bit(kind, average):
    first, second = grouped_network("float32"), grouped_network("float32")
    optimizer, other = (optim.Preconditioned(net, kind(), 0.1, 0.3, average=average) for net in (first, second))
    for step in range(2):
        optimizer.step(grouped_sweep(first, optimizer, step))
    state = optimizer.state_dict()
    assert (state["A/0.weight"].shape, state["B/0.weight"].shape) == ((2, 4, 4), (2, 2, 2))
    second.load_state_dict(first.state_dict())
    other.load_state_dict(state)
    for net, rule in ((first, optimizer), (second, other)):
        rule.step(grouped_sweep(net, rule, 2))
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(second.parameters[name], value)
    for key in ("A/0.weight", "B/0.weight"):
        for shape in ((3, 4, 4), (0, 4, 4), (2, 0, 0), (2, 2, 4), (2, 4), (1, 2, 4, 4), ()):
            with pytest.raises(ValueError, match=r"state dict: [AB]/0.weight: expected shape"):
                optimizer.load_state_dict(state | {key: np.ones(shape, "float32")})


def test_the_state_of_another_number_of_groups_is_refused():
    """The weights' shapes are equal, so only the result shows it."""
    two, one = grouped_network(groups=2), grouped_network(groups=1)
    optimizer, other = (optim.Preconditioned(net, q.KFLR(), 0.1, 0.3, average="mean") for net in (two, one))
    optimizer.step(grouped_sweep(two, optimizer))
    other.load_state_dict(optimizer.state_dict())
    before = one.state_dict()
    with pytest.raises(ValueError, match=r"step: A/0.weight: expected shape \(2, 4, 4\) as in the state, got \(4, 4\)"):
        other.step(grouped_sweep(one, other))
    for name, value in before.items():
        np.testing.assert_array_equal(one.parameters[name], value)


# --------------------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_restored_run_goes_on_bit_for_bit(rule, dtype, tmp_path):
    left_alone = network(dtype)
    whole = train(left_alone, RULES[rule](left_alone), 5)

    first = network(dtype)
    fresh = RULES[rule](first).state_dict()
    assert list(fresh) == ["steps"]
    optimizer = RULES[rule](first).load_state_dict(fresh)
    assert optimizer.steps == 0
    parameters, state = train(first, optimizer, 3), optimizer.state_dict()
    np.savez(tmp_path / "state.npz", **state)
    train(first, optimizer, 1, start=3)  # what was saved must not follow

    second = network(dtype).load_state_dict(parameters)
    with np.load(tmp_path / "state.npz") as saved:
        optimizer = RULES[rule](second).load_state_dict(saved)
    assert optimizer.steps == 3
    again = train(second, optimizer, 2, start=3)
    for name, value in whole.items():
        np.testing.assert_array_equal(again[name], value)
        assert value.dtype == dtype


@pytest.mark.parametrize("rule", RULES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(rule):
    net = network()
    optimizer = RULES[rule](net)
    train(net, optimizer, 2)
    state = optimizer.state_dict()
    for name in set(state) - {"steps"}:
        for other, error in (({}, "missing keys"), ({name: state[name][..., :0]}, "expected shape|missing keys")):
            broken = {key: value for key, value in state.items() if key != name} | other
            # A weight without its A is held to be a bias, whose B would have another shape.
            with pytest.raises(ValueError, match=error + "|expected shape"):
                optimizer.load_state_dict(broken)
        with pytest.raises(TypeError, match=rf"state dict: {name}: expected float64, got float32"):
            optimizer.load_state_dict(state | {name: state[name].astype("float32")})
    with pytest.raises(ValueError, match=r"unknown keys \['speed/0.weight'\]"):
        optimizer.load_state_dict(state | {"speed/0.weight": np.zeros(1)})
    with pytest.raises(ValueError, match="expected 'steps' to be a count, got None"):
        optimizer.load_state_dict({})
    with pytest.raises(TypeError, match="expected a mapping"):
        optimizer.load_state_dict(3)
    after = optimizer.state_dict()
    assert after.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(after[name], value)


# ---------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("rule", RULES)
def test_a_parameter_that_was_frozen_begins_when_it_is_unfrozen(rule):
    """Until then the others moved: its steps are those of a new optimizer, with its running means and their starts."""
    net = network()
    net.freeze("0")
    late = RULES[rule](net)
    train(net, late, 3)
    net.unfreeze("0")
    twin = network().load_state_dict(net.state_dict())
    fresh = RULES[rule](twin)
    for step in range(3, 6):
        result = sweep(net, late, step)
        twin.load_state_dict({name: net.parameters[name] for name in twin.parameters})
        fresh.step(sweep(twin, fresh, step))
        late.step(result)
        for name in ("0.weight", "0.bias"):
            np.testing.assert_array_equal(net.parameters[name], twin.parameters[name])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("frozen_first", [False, True])
def test_the_state_of_parameters_that_were_frozen_goes_on_bit_for_bit(rule, frozen_first):
    net = network()
    optimizer = RULES[rule](net)
    for step in range(4):
        net.unfreeze()
        if (step < 2) == frozen_first:
            net.freeze("0")
        train(net, optimizer, 1, step)
    twin = network().load_state_dict(net.state_dict())
    if not frozen_first:
        twin.freeze("0")
    restored = RULES[rule](twin).load_state_dict(optimizer.state_dict())
    for each in (net, twin):
        each.unfreeze()
    expected, got = train(net, optimizer, 2, 4), train(twin, restored, 2, 4)
    assert all(np.array_equal(got[name], value) for name, value in expected.items())


class Root(optim.Optimizer):
    """A rule without arrays, by the steps of each parameter."""

    def __init__(self, network):
        super().__init__(network, 0.1)

    def _update(self, name, gradient, result):
        return gradient / self.steps_of(name) ** 0.5


@pytest.mark.parametrize("rule", [Root, RULES["Adam"], RULES["KFAC-ema"]])
def test_the_state_of_a_parameter_whose_name_has_a_slash_and_that_is_frozen_last(rule):
    net = gb.Graph({"0": (layers.Linear(4, 3), "input"), "a/b": (layers.Linear(3, 3), "0")}, rng=0, dtype="float64")
    optimizer = rule(net)
    train(net, optimizer, 2)
    net.freeze("a/b")
    restored = rule(net).load_state_dict(optimizer.state_dict())
    assert [restored.steps_of(name) for name in net.parameters] == [2] * 4


def test_more_steps_of_a_parameter_than_of_all_are_refused():
    optimizer = RULES["Adam"](network())
    train(optimizer.network, optimizer, 2)
    state = optimizer.state_dict() | {"steps/0.weight": np.array(3)}
    with pytest.raises(ValueError, match=r"'steps/0\.weight' to be a count of at most 2, got"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_lowers_the_loss(rule):
    net = network()
    optimizer = RULES[rule](net)
    first = float(sweep(net, optimizer).loss)
    for _ in range(20):
        optimizer.step(sweep(net, optimizer))
    assert float(sweep(net, optimizer).loss) < 0.9 * first


@pytest.mark.parametrize("rule", RULES)
def test_l2_by_name_reaches_those_named_alone(rule):
    everywhere, named, nowhere = network(), network(), network()
    names = list(everywhere.parameters)
    for net, l2 in ((everywhere, 0.5), (named, {names[0]: 0.5}), (nowhere, 0.0)):
        optimizer = RULES[rule](net, l2=l2)
        optimizer.step(sweep(net, optimizer))
    np.testing.assert_array_equal(named.parameters[names[0]], everywhere.parameters[names[0]])
    assert not np.allclose(named.parameters[names[0]], nowhere.parameters[names[0]])
    for name in names[1:]:
        np.testing.assert_array_equal(named.parameters[name], nowhere.parameters[name])


def test_exact_curvature_solves_least_squares_in_one_step():
    """With G the exact Hessian and no damping, a step of length 1 is Newton's: one linear layer, one sample, MSE."""
    net = gb.Sequential(layers.Linear(3, 2, bias=False), rng=0, dtype="float64")
    x, y = RNG.standard_normal((1, 3)), RNG.standard_normal((1, 2))
    optimizer = optim.Preconditioned(net, q.KFLR(), 1.0, 1e-12)
    optimizer.step(gb.backward(net, losses.MSELoss(), x, y, *optimizer.quantities))
    np.testing.assert_allclose(net(x), y, rtol=1e-4)


def test_arrays_are_changed_in_place():
    net = network()
    arrays = dict(net.parameters)
    optimizer = optim.Adam(net)
    optimizer.step(sweep(net, optimizer))
    assert all(net.parameters[name] is value for name, value in arrays.items())


# -------------------------------------------------------------------------------------------------------------- errors


BAD = [
    (lambda net: optim.SGD(net.layers, 0.1), TypeError, r"network: expected a network of layers, got tuple"),
    (lambda net: optim.SGD(net, 0.1, 0.9, nesterov="no"), TypeError, "nesterov: expected True or False, got 'no'"),
    (lambda net: optim.SGD(net, 0.1, nesterov=True), ValueError, r"nesterov: expected a momentum above 0"),
    (lambda net: optim.Preconditioned(net, q.Variance(), 1, 1), TypeError, r"expected one of DiagGGN, .* got"),
    (lambda net: optim.Preconditioned(net, q.KFAC, 1, 1), TypeError, r"quantity: expected one of"),
    (lambda net: optim.Preconditioned(net, q.KFAC(), 1, 1, average="median"), ValueError, r"average: expected None"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(network())
