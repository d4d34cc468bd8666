"""The posterior's structures beside dense matrices of the GGN, and its draws."""

from functools import partial

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.laplace.likelihoods import sampled
from gbackprop.curvature.laplace.structures import Full, of_blocks


def problem(dtype="float64"):
    rng = np.random.default_rng(0)
    network = gb.Sequential(
        layers.Conv2d(1, 2, 2), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3), rng=1, dtype=dtype
    )
    return network, rng.standard_normal((5, 1, 3, 3)).astype(dtype), rng.integers(0, 3, 5)


LOSS = losses.CrossEntropyLoss()
PRIOR = {"0.weight": 0.5, "0.bias": 2.0, "3.weight": 1.5, "3.bias": 0.8}


def jacobian(network, x, h=1e-5):
    """Rows ∂fₙ[c]/∂θ by differences, ``[N, C, D]``."""
    columns = []
    for value in network.parameters.values():
        for place in np.ndindex(value.shape):
            sides = []
            for step in (h, -h):
                value[place] += step
                sides.append(network(x))
                value[place] -= step
            columns.append((sides[0] - sides[1]) / (2 * h))
    return np.stack(columns, axis=-1)


def dense(structure, network, x, y):
    """H of the sum over the samples, by its definition or from the quantity's blocks."""
    if structure == "full":
        j, f = jacobian(network, x), network(x)
        p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
        hessians = np.stack([np.diag(row) - np.outer(row, row) for row in p])
        return np.einsum("ncd,nce,nef->df", j, hessians, j)
    if structure == "joint":
        return joint_dense(network, x, y)
    quantity = {"kron": q.KFAC(fisher="exact", sharing="expand"), "diag": q.DiagGGN()}[structure]
    values = gb.backward(network, losses.CrossEntropyLoss("sum"), x, y, quantity)[quantity]
    if structure == "diag":
        return np.diag(np.concatenate([value.ravel() for value in values.values()]))
    return gb.kronecker.BlockDiagonal(values).to_dense()


JOINT = q.KFAC(fisher="exact", sharing="reduce", joint_bias=True)


def joint_dense(network, x, y):
    """H of weights with their biases as one, in the order of the parameters."""
    found = gb.backward(network, losses.CrossEntropyLoss("sum"), x, y, JOINT)[JOINT]
    matrix, start = np.zeros((37, 37)), 0
    for name, (outputs, inputs) in {"0.weight": (2, 4), "3.weight": (3, 8)}.items():
        weights = np.arange(start, start + outputs * inputs).reshape(outputs, inputs)
        biases = weights[-1, -1] + 1 + np.arange(outputs)
        rows = np.concatenate([weights, biases[:, None]], axis=1).ravel()
        matrix[np.ix_(rows, rows)] = found[name].to_dense()
        start = biases[-1] + 1
    return matrix


def added(network, prior):
    return np.concatenate([np.full(value.size, prior[name]) for name, value in network.parameters.items()])


def approximation(structure, network, x, y, prior):
    """The approximation, and the precision of each parameter: with joint blocks the biases have the weights'."""
    if structure != "joint":
        return Laplace(network, LOSS, (x, y), structure, prior_precision=prior), prior
    weights = {name: value for name, value in prior.items() if name.endswith("weight")}
    laplace = Laplace(network, LOSS, (x, y), curvature=JOINT, prior_precision=0.1)
    assert laplace.prior_precision == 0.1
    return laplace.with_prior(weights), {name: weights[name.replace("bias", "weight")] for name in prior}


@pytest.mark.parametrize("prior", [dict.fromkeys(PRIOR, 1.3), PRIOR], ids=["one", "each"])
@pytest.mark.parametrize("structure", ["full", "kron", "diag", "joint"])
def test_beside_dense_matrices(structure, prior):
    network, x, y = problem()
    laplace, prior = approximation(structure, network, x, y, prior)
    rounding = 1e-8 if structure == "full" else 1e-11  # of differences
    delta = added(network, prior)
    p = dense(structure, network, x, y) + np.diag(delta)
    theta = np.concatenate([value.ravel() for value in network.parameters.values()])
    f = network(x)
    fit = (f[np.arange(5), y] - np.log(np.exp(f).sum(1))).sum()
    want = fit - (delta * theta**2).sum() / 2 + np.log(delta).sum() / 2 - np.linalg.slogdet(p)[1] / 2
    assert laplace.log_marginal_likelihood() == pytest.approx(want, rel=rounding)

    new = np.random.default_rng(8).standard_normal((4, 1, 3, 3))
    j = jacobian(network, new)
    mean, covariance = laplace.functional(new)
    np.testing.assert_array_equal(mean, network(new))
    np.testing.assert_allclose(covariance, j @ np.linalg.inv(p) @ j.swapaxes(1, 2), rtol=1e-6, atol=1e-9)

    together = j.reshape(12, -1) @ np.linalg.inv(p) @ j.reshape(12, -1).T
    np.testing.assert_allclose(laplace.functional(new, joint=True)[1].reshape(12, 12), together, rtol=1e-6, atol=1e-9)

    inverse, start = np.linalg.inv(p).diagonal(), 0
    effective, want = laplace.effective_parameters(), dict.fromkeys(laplace.effective_parameters(), 0)
    for name, value in network.parameters.items():
        trace = inverse[start : start + value.size].sum()
        start += value.size
        want[name if name in want else name.replace("bias", "weight")] += value.size - prior[name] * trace
    assert effective == pytest.approx(want, rel=1e-6)
    if structure == "joint":
        weights = laplace.prior_precision
        h, (slopes, _) = 1e-5, laplace.evidence.derivative(laplace.hyperparameters)
        sides = [laplace.with_prior(weights | {"0.weight": weights["0.weight"] * np.exp(s)}) for s in (h, -h)]
        up, down = (each.log_marginal_likelihood() for each in sides)
        assert slopes["0.weight"] == pytest.approx((up - down) / (2 * h), rel=1e-6)
        assert laplace.optimize_prior().log_marginal_likelihood() > laplace.log_marginal_likelihood()

    gradient = gb.backward(network, losses.CrossEntropyLoss("sum"), x, y).gradient
    g = np.concatenate([value.ravel() for value in gradient.values()]) + delta * theta
    assert laplace.decrement() == pytest.approx(g @ np.linalg.solve(p, g) / 2, rel=1e-6)


def test_groups_and_transposed_weights_are_in_the_parameters_order():
    rng = np.random.default_rng(0)
    network = gb.Sequential(
        layers.Conv1d(2, 4, 2, groups=2), layers.Tanh(), layers.ConvTranspose1d(4, 2, 2), layers.Flatten(),
        layers.Linear(8, 3), rng=1, dtype="float64",
    )  # fmt: skip
    x, y = rng.standard_normal((4, 2, 4)), rng.integers(0, 3, 4)
    prior = {name: 0.5 + i for i, name in enumerate(network.parameters)}
    laplace = Laplace(network, LOSS, (x, y), "kron", prior_precision=prior)
    p = dense("kron", network, x, y) + np.diag(added(network, prior))
    j = jacobian(network, x)
    np.testing.assert_allclose(laplace.functional(x)[1], j @ np.linalg.inv(p) @ j.swapaxes(1, 2), rtol=1e-6)


@pytest.mark.parametrize("structure", ["full", "kron", "diag", "joint"])
def test_draws_have_the_posterior_as_their_distribution(structure):
    network, x, y = problem()
    laplace, prior = approximation(structure, network, x, y, PRIOR)
    k = 40000
    drawn = laplace.sample(k, rng=0)
    assert {name: value.shape for name, value in drawn.items()} == {
        name: (k, *value.shape) for name, value in network.parameters.items()
    }
    rows = np.concatenate([(drawn[name] - value).reshape(k, -1) for name, value in network.parameters.items()], axis=1)
    want = np.linalg.inv(dense(structure, network, x, y) + np.diag(added(network, prior)))
    spread = np.sqrt(want.diagonal())
    assert np.abs(rows.mean(0) / spread).max() < 5 / k**0.5
    error = (rows.T @ rows / k - want) / np.outer(spread, spread)
    assert np.abs(error).max() < 5 * 2**0.5 / k**0.5
    np.testing.assert_array_equal(laplace.sample(2, rng=0)["3.bias"], laplace.sample(2, rng=0)["3.bias"])


def test_monte_carlo_curvature_is_drawn_from_the_generator():
    network, x, y = problem()
    for structure, kind in (("kron", partial(q.KFAC, sharing="expand")), ("diag", q.DiagGGNMC)):
        one, same, other = (
            Laplace(network, LOSS, (x, y), structure, curvature=kind(mc_samples=3), rng=rng) for rng in (0, 0, 1)
        )
        assert one.log_marginal_likelihood() == same.log_marginal_likelihood() != other.log_marginal_likelihood()
        many = Laplace(network, LOSS, (x, y), structure, curvature=kind(mc_samples=20000), rng=0)
        exact = Laplace(network, LOSS, (x, y), structure)
        assert many.log_marginal_likelihood() == pytest.approx(exact.log_marginal_likelihood(), rel=2e-3)


def test_a_copy_of_the_network_is_what_predicts():
    network, x, y = problem()
    laplace = Laplace(network, LOSS, (x, y))
    before = laplace.predict(x)
    network.parameters["3.bias"] += 1.0
    laplace.mean["3.bias"][:] = 7.0
    np.testing.assert_array_equal(laplace.predict(x), before)


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_float32_keeps_its_dtype_and_the_numbers_of_float64(structure):
    network, x, y = problem("float32")
    found = Laplace(network, LOSS, (x, y), structure, prior_precision=1e-3)
    wide, _, _ = problem()
    wide.parameters.load({name: value.astype("float64") for name, value in network.parameters.items()})
    want = Laplace(wide, LOSS, (x.astype("float64"), y), structure, prior_precision=1e-3)
    assert found.log_marginal_likelihood() == pytest.approx(want.log_marginal_likelihood(), rel=2e-3)
    for result in (
        found.predict(x),
        found.predict(x, "mc", 3, rng=0),
        found.functional(x)[1],
        *found.sample(2).values(),
    ):
        assert result.dtype == np.float32
    np.testing.assert_allclose(found.functional(x)[1], want.functional(x.astype("float64"))[1], rtol=2e-2)


def test_jacobians_of_few_samples_at_a_time_are_those_of_all(monkeypatch):
    network, x, y = problem()
    for options in ({"structure": "full"}, {}, {"structure": "diag"}, {"parameters": "last"}):
        laplace = Laplace(network, LOSS, (x, y), **options)
        each, together = laplace.functional(x)[1], laplace.functional(x, joint=True)[1]
        size = sum(value.size for value in laplace.mean.values())
        for samples in (1, 2):
            monkeypatch.setattr("gbackprop.curvature.laplace.jacobians.BYTES", samples * 8 * 3 * size)
            np.testing.assert_allclose(laplace.functional(x)[1], each, rtol=1e-12)
            np.testing.assert_allclose(laplace.functional(x, joint=True)[1], together, rtol=1e-12, atol=1e-15)
        monkeypatch.undo()
        np.testing.assert_allclose(np.moveaxis(together.diagonal(0, 0, 2), 2, 0), each, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_functions_are_those_of_the_draws_of_parameters(structure):
    network, x, y = problem()
    network.freeze("0.bias")
    prior = {name: value for name, value in PRIOR.items() if name != "0.bias"}
    laplace = Laplace(network, LOSS, (x, y), structure, prior_precision=prior)
    drawn, found = laplace.sample(4, rng=3), laplace.sample_functions(x, 4, rng=3)
    steps = np.concatenate([(drawn[name] - value).reshape(4, -1) for name, value in laplace.mean.items()], axis=1)
    j = gb.operators.Jacobian(network, x).to_dense().reshape(5, 3, -1)
    np.testing.assert_allclose(found, network(x) + np.einsum("ncd,kd->knc", j, steps), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(laplace.sample_functions(x[2:4], 4, rng=3), found[:, 2:4], rtol=1e-12, atol=1e-14)


def test_outputs_with_several_axes():
    network = gb.Sequential(layers.Conv2d(1, 2, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 1, 3, 3)), rng.standard_normal((3, 2, 2, 2))
    laplace = Laplace(network, losses.MSELoss(), (x, y), "full")
    j = gb.operators.Jacobian(network, x).to_dense()
    p = gb.operators.GGN(network, losses.MSELoss("sum"), (x, y)).to_dense() + np.eye(10)
    found = laplace.functional(x, joint=True)
    assert (found.mean.shape, found.covariance.shape) == ((3, 2, 2, 2), (3, 8, 3, 8))
    np.testing.assert_allclose(found.covariance.reshape(24, 24), j @ np.linalg.inv(p) @ j.T, rtol=1e-10, atol=1e-13)
    for k, each in enumerate(laplace.sample_functions(x, 2, rng=0)):  # affine in the parameters
        network.parameters.load({name: value[k] for name, value in laplace.sample(2, rng=0).items()})
        np.testing.assert_allclose(each, network(x), rtol=1e-12, atol=1e-13)


def test_its_line_says_what_it_is():
    network, x, y = problem()
    line = "Laplace({!r}, {!r}, prior_precision=2.0, temperature=1.0) for 4 parameters of 37 numbers"
    for structure in ("full", "kron", "diag"):
        assert repr(Laplace(network, LOSS, (x, y), structure, prior_precision=2.0)) == line.format(LOSS, structure)
    one = Laplace(network, losses.MSELoss(), (x, network(x)), parameters=["3.bias"], noise_variance=0.1)
    assert "prior_precision=1.0, noise_variance=0.1, temperature=1.0) for 1 parameters of 3 numbers" in repr(one)


def test_the_default_blocks_are_nearer_to_the_whole_matrix_than_those_of_kflr():
    rng = np.random.default_rng(0)
    network = gb.Sequential(
        layers.Conv2d(1, 4, 3), layers.ReLU(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(16, 3), rng=1,
        dtype="float64",
    )  # fmt: skip
    x, y = rng.standard_normal((30, 1, 6, 6)), rng.integers(0, 3, 30)
    full, default, other = (
        Laplace(network, LOSS, (x, y), structure, curvature=curvature)
        for structure, curvature in (("full", None), ("kron", None), ("kron", q.KFLR()))
    )
    for change in (lambda laplace: laplace, Laplace.optimize_prior):
        want, near, far = (change(each).log_marginal_likelihood() for each in (full, default, other))
        assert abs(near - want) < 0.7 * abs(far - want)
    variances = [each.functional(x)[1].diagonal(0, 1, 2) for each in (full, default, other)]
    errors = [np.abs(np.log(each / variances[0])).mean() for each in variances[1:]]
    assert errors[0] < errors[1]


def test_of_vectors_all_conventions_are_the_same():
    rng = np.random.default_rng(0)
    network = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    x, y = rng.standard_normal((6, 3)), rng.integers(0, 2, 6)
    kinds = [None, q.KFLR(), *(q.KFAC(fisher="exact", sharing=each) for each in ("bias", "reduce"))]
    found = [Laplace(network, LOSS, (x, y), curvature=kind).log_marginal_likelihood() for kind in kinds]
    np.testing.assert_allclose(found, found[0], rtol=1e-13)


def test_tied_and_frozen_parameters():
    shared = layers.Linear(3, 3, bias=False)
    network = gb.Sequential(shared, layers.Tanh(), shared, layers.Linear(3, 2), rng=0, dtype="float64").freeze("3.bias")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 3)), rng.integers(0, 2, 4)
    laplace = Laplace(network, LOSS, (x, y), "full", prior_precision={"0.weight": 1.0, "3.weight": 3.0})
    assert list(laplace.mean) == ["0.weight", "3.weight"]
    p = gb.operators.GGN(network, losses.CrossEntropyLoss("sum"), (x, y)).to_dense() + np.diag([1.0] * 9 + [3.0] * 6)
    j = gb.operators.Jacobian(network, x).to_dense().reshape(4, 2, 15)
    np.testing.assert_allclose(laplace.functional(x)[1], j @ np.linalg.inv(p) @ j.swapaxes(1, 2), rtol=1e-10)


@pytest.mark.parametrize(
    "structure",
    [
        Full({"w": (2,)}, np.diag([1.0, -1e-3])),
        of_blocks({"w": gb.kronecker.Kronecker(None, np.diag([1.0, -1e-3]))}, 1.0),
        of_blocks({"w": np.array([1.0, -1e-3])}, 1.0),
    ],
    ids=["full", "kron", "diag"],
)
def test_eigenvalues_that_rounding_makes_negative_count_as_zero(structure):
    delta = {"w": 1e-4}
    assert structure.logdet(2.0, delta) == pytest.approx(np.log(2 + 1e-4) + np.log(1e-4), rel=1e-12)
    assert structure.traces(2.0, delta)["w"] == pytest.approx(1 / (2 + 1e-4) + 1e4, rel=1e-12)
    found = structure.root(2.0, delta)({"w": np.eye(2)})["w"]
    np.testing.assert_allclose(found, np.diag([(2 + 1e-4) ** -0.5, 100]), rtol=1e-12)


def test_draws_of_classes_do_not_depend_on_the_signs_of_eigenvectors(monkeypatch):
    """Which sign an eigenvector has is LAPACK's choice, and another one's on a GPU."""
    eigh, (mean, root) = np.linalg.eigh, np.random.default_rng(0).standard_normal((2, 4, 3))
    given = losses.CrossEntropyLoss(), mean, root[:, :, None] * root[:, None] + np.eye(3), 3
    want = sampled(*given, np.random.default_rng(0))
    monkeypatch.setattr(np.linalg, "eigh", lambda a: (eigh(a)[0], eigh(a)[1] * np.array([1, -1, -1])))
    np.testing.assert_allclose(sampled(*given, np.random.default_rng(0)), want, rtol=1e-12)
