"""The four problems: every fact of the published table, the networks against plain arithmetic, initial values.

What needs the real images runs where the environment variable GBACKPROP_DATA names their folder.
"""

import os
import pickle

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.experiments.architectures import same
from gbackprop.experiments.problems import PROBLEMS, load_problem, problem, regularization

DATA = os.environ.get("GBACKPROP_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="GBACKPROP_DATA does not say where the images are")

# name: image set, batch, epochs, η, input, classes, number of parameters
TABLE = {
    "mnist_logreg": ("mnist", 128, 50, 0, (784,), 10, 7_850),
    "fmnist_2c2d": ("fashion-mnist", 128, 100, 0, (1, 28, 28), 10, 3_274_634),
    "cifar10_3c3d": ("cifar-10", 128, 100, 0.002, (3, 32, 32), 10, 895_210),
    "cifar100_allcnnc": ("cifar-100", 256, 350, 5e-4, (3, 32, 32), 100, 1_387_108),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=list(TABLE))
def entry(request):
    return problem(request.param)


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_facts(name, rng):
    got, (images, batch, epochs, l2, shape, classes, parameters) = problem(name), TABLE[name]
    assert (got.name, got.data, got.batch, got.epochs, got.l2, got.shape) == (name, images, batch, epochs, l2, shape)
    assert got.augmented == name.startswith("cifar")
    net = got.network(rng)
    assert net.output_shape(shape) == (classes,)
    assert sum(value.size for value in net.parameters.values()) == parameters


def test_no_other_problems_and_all_can_be_sent_to_another_process():
    assert list(PROBLEMS) == list(TABLE)
    for name, entry in PROBLEMS.items():
        there, here = (one.network(0).parameters for one in (pickle.loads(pickle.dumps(entry)), entry))
        assert all(np.array_equal(there[key], here[key]) for key in here), name


@pytest.mark.parametrize(
    ("name", "near"),
    [("mnist-logreg", "mnist_logreg"), ("2c2d", "fmnist_2c2d"), ("CIFAR10_3C3D", "cifar10_3c3d"), ("xyz", None)],
)
def test_unknown_problem_names_the_near_miss(name, near):
    hint = rf"; did you mean '{near}'\?" if near else ""
    with pytest.raises(ValueError, match=f"expected one of mnist_logreg, .*got '{name}'{hint}$"):
        problem(name)


# --- networks, against plain arithmetic -------------------------------------------------------------


def padded(x, kernel, stride):
    """The least rows and columns of zeros with which ⌈size / stride⌉ windows fit, the larger half right and below."""
    size, total = x.shape[2], 0
    while (size + total - kernel) // stride + 1 < -(-size // stride):
        total += 1
    ends = (total // 2, total - total // 2)
    return np.pad(x, ((0, 0), (0, 0), ends, ends))


def windows(x, kernel, stride):
    """[N, C, rows, columns, kernel, kernel]"""
    seen = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return seen[:, :, ::stride, ::stride]


def conv(weight, bias, x, padding="same", stride=1):
    kernel = weight.shape[2]
    x = padded(x, kernel, stride) if padding == "same" else x
    y = np.tensordot(windows(x, kernel, stride), weight, ((1, 4, 5), (1, 2, 3)))  # [N, rows, columns, O]
    return np.maximum(np.moveaxis(y + bias, 3, 1), 0)


def pool(x, kernel, stride):
    return windows(padded(x, kernel, stride), kernel, stride).max((4, 5))


def logreg(p, x):
    return x @ p[0].T + p[1]


def net_2c2d(p, x):
    x = pool(conv(p[0], p[1], x), 2, 2)
    x = pool(conv(p[2], p[3], x), 2, 2).reshape(len(x), -1)
    assert x.shape[1] == 3136
    return logreg(p[6:], np.maximum(logreg(p[4:], x), 0))


def net_3c3d(p, x):
    x = pool(conv(p[0], p[1], x, "valid"), 3, 2)
    x = pool(conv(p[2], p[3], x, "valid"), 3, 2)
    x = pool(conv(p[4], p[5], x), 3, 2).reshape(len(x), -1)
    assert x.shape[1] == 1152
    return logreg(p[10:], np.maximum(logreg(p[8:], np.maximum(logreg(p[6:], x), 0)), 0))


def net_allcnnc(p, x):
    for layer, (padding, stride) in enumerate([("same", s) for s in (1, 1, 2, 1, 1, 2)] + 3 * [("valid", 1)]):
        x = conv(p[2 * layer], p[2 * layer + 1], x, padding, stride)
    return x.mean((2, 3))


ORACLES = dict(zip(TABLE, (logreg, net_2c2d, net_3c3d, net_allcnnc), strict=True))


@pytest.mark.parametrize("name", TABLE)
def test_network_against_plain_arithmetic(name, rng):
    net = problem(name).network(rng, dtype="float64")
    for key in net.parameters:  # zeros would hide much
        net.parameters[key] = net.parameters[key] + 0.05 * rng.standard_normal(net.parameters[key].shape)
    x = rng.standard_normal((2, *TABLE[name][4]))
    np.testing.assert_allclose(net(x), ORACLES[name](list(net.parameters.values()), x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(28, 5, 1), (28, 3, 2), (12, 3, 2), (6, 3, 2), (5, 3, 2)])
def test_same_padding(size, kernel, stride, rng):
    x = rng.standard_normal((1, 1, size, size))
    got = gb.Sequential(same(size, kernel, stride), dtype="float64")(x)
    np.testing.assert_array_equal(got, padded(x, kernel, stride))


def test_allcnnc_drops_a_fifth_of_the_pixels_and_twice_half_of_the_features():
    from gbackprop.layers import Conv2d, Dropout

    found, convolutions = [], 0
    for layer in problem("cifar100_allcnnc").layers():
        convolutions += isinstance(layer, Conv2d)
        if isinstance(layer, Dropout):
            found.append((layer.p, convolutions))
    assert found == [(0.2, 0), (0.5, 3), (0.5, 6)]


# --- initial values ---------------------------------------------------------------------------------


def weights_and_biases(net):
    return [
        {name: value for name, value in net.parameters.items() if name.endswith(kind)} for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize(
    ("name", "bias"),
    [("mnist_logreg", 0), ("fmnist_2c2d", 0.05), ("cifar10_3c3d", 0), ("cifar100_allcnnc", 0.1)],
)
def test_initial_values(name, bias):
    weights, biases = weights_and_biases(problem(name).network(3))
    for value in biases.values():
        np.testing.assert_array_equal(value, np.float32(bias))
    for value in weights.values():
        assert value.dtype == np.float32
        outputs, inputs, *kernel = value.shape
        xavier = np.sqrt(2 / ((outputs + inputs) * np.prod(kernel)))
        deviation = {"mnist_logreg": 0, "fmnist_2c2d": 0.05 * 0.8796256}.get(name, xavier)
        error = 3 / np.sqrt(2 * value.size)  # of a sample's deviation, three times
        assert value.std() == pytest.approx(deviation, rel=error)
        largest = np.abs(value).max() / max(deviation, 1e-9)
        if name == "fmnist_2c2d":
            assert np.abs(value).max() <= np.float32(0.1)
        elif name.startswith("cifar"):  # only a uniform distribution ends at √3 deviations
            assert (largest <= 1.7321) == (value.ndim == 2)


@pytest.mark.parametrize("name", TABLE)
def test_initial_values_are_a_function_of_the_seed(name):
    first, again, other = (problem(name).network(seed).state_dict() for seed in (42, 42, 43))
    double = problem(name).network(np.random.default_rng(42), dtype="float64").state_dict()
    for key, value in first.items():
        np.testing.assert_array_equal(value, again[key])
        np.testing.assert_array_equal(value, double[key].astype("float32"))
    assert name == "mnist_logreg" or any(np.any(value != other[key]) for key, value in first.items())


# --- losses before training -------------------------------------------------------------------------


def initial(name, x, y, seed=42):
    """Loss without the penalty, right answers and images, over whole batches."""
    entry = problem(name)
    net, size = entry.network(seed), entry.batch
    values, right = [], 0
    for start in range(0, len(x) - size + 1, size):
        batch = slice(start, start + size)
        blocks = np.split(x[batch], size // 32)  # of a size that caches like
        output = np.concatenate([net(block) for block in blocks]).astype("float64")
        largest = output.max(1, keepdims=True)
        log_sum = largest[:, 0] + np.log(np.exp(output - largest).sum(1))
        values.append(float((log_sum - output[np.arange(size), y[batch]]).mean()))
        right += int((output.argmax(1) == y[batch]).sum())
    return np.mean(values), right, size * len(values)


def test_logistic_regression_begins_at_log_10_and_answers_0(rng):
    x, y = rng.random((300, 784), dtype="float32"), rng.integers(0, 10, 300)
    loss, right, images = initial("mnist_logreg", x, y)
    assert loss == pytest.approx(np.log(10), abs=1e-12)
    assert (right, images) == ((y[:256] == 0).sum(), 256)


@pytest.mark.parametrize(("name", "about"), [("cifar10_3c3d", 1.26), ("cifar100_allcnnc", 0.31)])
def test_penalty_before_training(name, about):
    values = [regularization(problem(name).network(seed), problem(name).l2) for seed in range(42, 45)]
    assert np.round(np.mean(values), 2) == about
    assert regularization(problem("fmnist_2c2d").network(0), 0) == 0


def test_penalty_is_of_weights_alone(rng):
    net = gb.Sequential(gb.layers.Linear(3, 2), gb.Sequential(gb.layers.Linear(2, 2)), rng=rng, dtype="float32")
    squares = sum(float(w) ** 2 for name in ("0.weight", "1.0.weight") for w in net.parameters[name].flat)
    assert regularization(net, 0.3) == pytest.approx(0.15 * squares, rel=1e-12)


@pytest.mark.parametrize(("name", "about"), [("cifar10_3c3d", 3.58), ("cifar100_allcnnc", 4.93)])
def test_loss_before_training_on_normalised_noise(name, about, rng):
    """Patches of one colour stand in for photographs: what counts is that pixels are alike and normalised."""
    entry = problem(name)
    x = rng.standard_normal((entry.batch, 3, 8, 8), dtype="float32").repeat(4, 2).repeat(4, 3)
    y = rng.integers(0, TABLE[name][5], entry.batch)
    loss = initial(name, x, y)[0] + regularization(entry.network(42), entry.l2)
    assert loss == pytest.approx(about, abs=0.06)


@needs_data
@pytest.mark.parametrize(("name", "about", "within"), [("fmnist_2c2d", 2.36, 0.12), ("cifar10_3c3d", 3.58, 0.03)])
def test_test_loss_before_training(name, about, within):
    split = load_problem(problem(name), DATA)
    loss = initial(name, split.test_x[:2560], split.test_y[:2560])[0]
    assert loss + regularization(problem(name).network(42), problem(name).l2) == pytest.approx(about, abs=within)


@needs_data
def test_mnist_before_training_exactly():
    split = load_problem(problem("mnist_logreg"), DATA)
    loss, right, images = initial("mnist_logreg", split.test_x, split.test_y)
    assert f"{loss:.6f}" == "2.302585"
    assert (right, images) == (979, 9984)
    assert (split.train_x.shape, split.valid_x.shape, split.note) == ((50_000, 784), (10_000, 784), "")


def test_a_training_step_of_each_problem_lowers_the_loss(entry, rng):
    net, loss = entry.network(0), losses.CrossEntropyLoss()
    x = rng.standard_normal((4, *entry.shape), dtype="float32")
    y = rng.integers(0, 10, 4)
    before = gb.backward(net, loss, x, y)
    for name, gradient in before.gradient.items():
        net.parameters[name] -= np.float32(1e-3) * gradient
    assert gb.backward(net, loss, x, y).loss < before.loss
