"""What a program cannot have is named with its place; a program is not run for what it was not written for."""

import math
import tracemalloc

import numpy as np
import pytest
from common import batch, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.recording.arrays import Recorded
from gbackprop.base.recording.refused import LeakedArrayError
from gbackprop.plain.programs import module

OUTSIDE, SOURCE = np.arange(6.0), np.random.default_rng(0)
X, Y = batch(4, 6)
PARAMETERS = {}


class Own(layers.Layer):
    """A layer that adds a thousandth of what a function of its input returns."""

    def __init__(self, function):
        self.function = function

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x + 1e-3 * self.function(x), None

    def mjp(self, saved, mat):
        return mat


class OwnLoss(losses.MSELoss):
    def values(self, output, target):
        return super().values(output, target) * (1.0 if target.max() > 5 else 2.0)


class OwnFactor(losses.MSELoss):
    def factor(self, batch, target):
        return 1 / float(target.size + target.sum())


class OwnQuantity(q.BatchGrad):
    name = "own"

    @staticmethod
    def finish(scale, each):
        return each / each.max().item()


class Drawn(q.BatchGrad):
    name = "drawn"

    @staticmethod
    def finish(scale, each):
        return SOURCE.normal(size=3)


def names_of(message):
    assert "test_program_bad_input.py:" in message, message
    return message


READS = [
    (lambda x: 1.0 if x.sum() > 0 else 2.0, "bool() of an array"),
    (lambda x: max(1.0, x.sum()), "bool()"),
    (lambda x: float(x.sum()), "float()"),
    (lambda x: math.sqrt(abs(x).sum()), "float()"),
    (lambda x: int(x.max()), "int()"),
    (lambda x: range(10)[x.astype(int).max() % 4], "index()"),
    (lambda x: x.mean().item(), "`.item` reads"),
    (lambda x: x.tolist()[0][0], "`.tolist` reads"),
    (lambda x: np.asarray(x), "a recorded array would become a plain one"),
    (lambda x: np.array([x.sum(), 1.0])[0], "a recorded array would become a plain one"),
    (lambda x: x[x > 0].sum(), "an index of booleans gives a shape that depends on numbers"),
    (lambda x: x[:, x[0] > 0].sum(), "an index of booleans"),
    (lambda x: len(np.nonzero(x > 0)[0]), "np.nonzero gives a shape"),
    (lambda x: len(np.where(x > 0)[0]), "np.where gives a shape"),
    (lambda x: np.unique(x.astype(int)).sum(), "np.unique gives a shape"),
    (lambda x: np.bincount(np.sign(x).astype(int)[0] + 1)[0], "np.bincount gives a shape"),
    (lambda x: np.bincount(np.sign(x).astype(int)[0] + 1, x[0])[0], "np.bincount gives a shape"),
    (lambda x: np.repeat(x, np.sign(x).astype(int)[0] + 1, axis=1).sum(), "np.repeat gives a shape"),
    (lambda x: np.apply_along_axis(np.sum, 0, x).sum(), "np.apply_along_axis takes a function"),
    (lambda x: SOURCE.normal(size=6), "another step is computed"),
    (lambda x: x * (SOURCE.random(x.shape) > 0.5), "another step is computed"),
    (lambda x: np.tanh(x) if SOURCE.bytes(1) and next(TURNS) else x, "another step is computed"),
    (lambda x: x @ PARAMETERS["0.weight"], "is taken from elsewhere"),
    (lambda x: np.tanh(x) * X, "is taken from elsewhere"),
]  # fmt: skip
TURNS = None


@pytest.mark.parametrize(("function", "words"), READS)
def test_a_layer_that_reads_numbers_is_named_with_its_line(function, words):
    global TURNS
    TURNS = iter([1, 0] * 50)
    net = chain(layers.Linear(6, 6), Own(function), layers.Linear(6, 3))
    PARAMETERS.update(net.parameters)
    with pytest.raises(gb.UnsupportedError) as caught:
        gb.program(net, losses.CrossEntropyLoss(), X, Y)
    message = names_of(str(caught.value))
    assert message.startswith("program: layer 1, "), message
    assert words in message


class Penalty(q.BatchGrad):
    """A quantity that has the network among its attributes, and computes with its parameters."""

    name = "penalty"

    def __init__(self, net):
        super().__init__()
        self.net = net

    @staticmethod
    def together(quantity, scale, found):
        return {name: each + quantity.net.parameters[name].sum() ** 2 for name, (each,) in found.items()}


def test_a_quantity_that_reads_parameters_by_a_way_of_its_own():
    net = chain(layers.Linear(6, 3))
    with pytest.raises(gb.UnsupportedError, match=r"program: quantity penalty, .*, finish: .*another step is computed"):
        gb.program(net, losses.MSELoss(), X, X[:, :3], Penalty(net))


@pytest.mark.parametrize("function", [
    lambda x: sum(row.sum() for row in x), lambda x: np.where(x > 0, x, 0), lambda x: x * x.shape[1] + OUTSIDE,
    lambda x: np.random.default_rng(0).normal(size=6), lambda x: np.bincount((x[0] > 0).astype(int), minlength=6),
    lambda x: np.max([1, 2]) + np.stack([x[:, 0], x[:, 1]], 1).sum(),
    lambda x: np.bincount((x[0] > 0).astype(int), None, 6),
])  # fmt: skip
def test_layers_that_read_none(function):
    net = chain(layers.Linear(6, 6), Own(function), layers.Linear(6, 3))
    program = gb.program(net, losses.CrossEntropyLoss(), X, Y, fold=False)
    want = gb.reference(net, losses.CrossEntropyLoss(), -X, Y)
    assert program(-X, Y).output.tobytes() == want.output.tobytes()


@pytest.mark.parametrize(("loss", "quantity", "part", "words"), [
    (OwnLoss(), q.BatchGrad(), "loss value", "bool()"), (OwnFactor(), q.BatchGrad(), "loss factor", "float()"),
    (losses.MSELoss(), OwnQuantity(), "quantity own, BatchGrad(), finish", "`.item`"),
    (losses.MSELoss(), Drawn(), "quantity drawn, BatchGrad(), finish", "another step"),
])  # fmt: skip
def test_losses_and_quantities_that_read_numbers(loss, quantity, part, words):
    with pytest.raises(gb.UnsupportedError, match=f"program: {part.replace('(', '.').replace(')', '.')}: ") as caught:
        gb.program(chain(layers.Linear(6, 3)), loss, X, X[:, :3], quantity)
    assert words in names_of(str(caught.value))


@pytest.mark.parametrize("quantity", [q.NearestKronecker(), q.KroneckerError(q.KFLR())], ids=repr)
def test_quantities_that_read_numbers_name_themselves(quantity):
    with pytest.raises(gb.UnsupportedError) as caught:
        gb.program(chain(layers.Linear(6, 3)), losses.MSELoss(), X, X[:, :3], quantity)
    assert f"program: quantity {quantity.name}, {quantity!r}, finish: " in str(caught.value)
    assert "gbackprop.reference" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------ arguments


@pytest.fixture(scope="module")
def case():
    net = chain(layers.Linear(6, 5), layers.LeakyReLU(), layers.Linear(5, 3))
    loss, quantity = losses.CrossEntropyLoss(weight=np.array([1.0, 2.0, 3.0])), q.DiagGGNMC(2)
    return net, loss, quantity, gb.program(net, loss, X, Y, quantity)


@pytest.mark.parametrize(("x", "y", "words"), [
    (X[:3], Y[:3], r"x: expected \(4, 6\) float64, for which .* got \(3, 6\) float64"),
    (X.astype("float32"), Y, r"x: expected \(4, 6\) float64, .* got \(4, 6\) float32"),
    (X.tolist(), Y, r"x: expected .* got \(4, 6\) list"),
    (X, Y[:3], r"y: expected \(4,\) int64, .* got \(3,\) int64"),
    (X, Y.astype("int32"), r"y: expected \(4,\) int64, .* got \(4,\) int32"),
    (X, None, r"y: expected .* got \(\) NoneType"),
    (X, Y + 3, "y of CrossEntropyLoss.*: expected labels 0 to 2, got 5"),
])  # fmt: skip
def test_other_batches(case, x, y, words):
    for call in (case[3], case[3].inputs):
        with pytest.raises(ValueError, match=words):
            call(x, y)


def other_class(net, loss, quantity):
    net.layers[1].__class__ = layers.ReLU


def own_method(net, loss, quantity):
    net.layers[1].forward = lambda x: (x, x)


CHANGES = [
    (lambda net, loss, asked: setattr(net.layers[1], "negative_slope", 0.3), "layer 1 has changed"),
    (lambda net, loss, asked: net.children.update({"1": layers.ReLU()}), "layer 1"),
    (other_class, "layer 1"), (own_method, "layer 1"),
    (lambda net, loss, asked: setattr(net.layers[0], "note", "a user's"), "layer 0 has changed"),
    (lambda net, loss, asked: setattr(net.layers[0], "frozen", frozenset({"bias"})), "layer 0 has changed"),
    (lambda net, loss, asked: setattr(loss, "label_smoothing", 0.1), "loss has changed"),
    (lambda net, loss, asked: loss.weight.__setitem__(0, 7.0), "loss has changed"),
    (lambda net, loss, asked: setattr(asked, "note", "a user's"), "quantity 0 has changed"),
    (lambda net, loss, asked: setattr(Own, "mjp", lambda self, saved, mat: 2 * mat), "layer 3 has changed"),
    (lambda net, loss, asked: net.layers[0].drawn.update(bias=np.zeros(5, "float32")), "0.bias"),
    (lambda net, loss, asked: net.layers[0].drawn.update(weight=np.zeros((5, 7))), "0.weight"),
    (lambda net, loss, asked: net.layers[0].drawn["bias"].__setitem__(0, np.nan), "0.bias"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_network_that_changed_since(change, words):
    net = chain(layers.Linear(6, 5), layers.LeakyReLU(), layers.Linear(5, 3), Own(np.tanh))
    loss, quantity = losses.CrossEntropyLoss(weight=np.array([1.0, 2.0, 3.0])), q.DiagGGNMC(2)
    program = gb.program(net, loss, X, Y, quantity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Own, "mjp", Own.mjp)  # as it was, afterwards
        change(net, loss, quantity)
        with pytest.raises((ValueError, TypeError)) as caught:
            program(X, Y)
    assert words in str(caught.value)


def test_more_statements_than_a_program_may_have(monkeypatch):
    monkeypatch.setattr(module, "MOST", 10)
    with pytest.raises(gb.UnsupportedError, match=r"program: \d\d statements, expected at most 10"):
        gb.program(chain(layers.Linear(6, 3)), losses.CrossEntropyLoss(), X, Y, q.KFLR())


def test_arrays_on_a_device(gpu):
    net = chain(layers.Linear(6, 3))
    with pytest.raises(TypeError, match=r"x: expected an array on cpu as 0\.weight is, got one on cuda:0"):
        gb.program(net, losses.CrossEntropyLoss(), gb.asarray(X, gpu), gb.asarray(Y, gpu))
    program = gb.program(net, losses.CrossEntropyLoss(), X, Y)
    with pytest.raises((ValueError, TypeError), match=r"^y: "):
        program(X, gb.asarray(Y, gpu))
    net.to(gpu)
    with pytest.raises((ValueError, TypeError), match="weight"):
        program(X, Y)


@pytest.mark.parametrize("path", ["program.txt", "program"])
def test_other_endings(case, tmp_path, path):
    with pytest.raises(ValueError, match="path: expected one that ends in"):
        case[3].save(tmp_path / path)


def test_names_that_python_does_not_take():
    names = ["lambda", "None", "1 2", "1_2", "é", "ö", "np", "parameters", "x", "z", "t1", "slice"]
    nodes = {name: (layers.Linear(6, 6), before) for name, before in zip(names, ["input", *names])}
    net = gb.Graph(nodes, rng=0, dtype="float64")
    loss = losses.CrossEntropyLoss()
    for fold in (False, True):
        result = gb.program(net, loss, X, Y, q.BatchGrad(), fold=fold)(-X, Y)
        want = gb.reference(net, loss, -X, Y, q.BatchGrad())
        for name, value in want["batch_grad"].items():
            np.testing.assert_allclose(result["batch_grad"][name], value, rtol=0, atol=1e-14 * np.abs(value).max())


def test_a_number_that_is_checked_is_checked_in_each_call():
    net, loss = chain(layers.Linear(6, 3), layers.Sigmoid(), layers.Scale(init=1.0)), losses.BCELoss()
    y = (X[:, :3] > 0).astype(float)
    program = gb.program(net, loss, X, y)
    net.parameters["2.weight"][...] = 3.0
    with pytest.raises(ValueError, match=r"BCELoss.*\[0, 1\]"):
        program(X, y)


def test_an_array_that_a_layer_keeps_of_a_program_is_of_an_earlier_call():
    class Keeping(layers.Tanh):
        def value(self, x):
            y = super().value(x)
            kept.append(y)
            return y

    kept = []
    gb.program(chain(layers.Linear(6, 3), Keeping()), losses.MSELoss(), X, X[:, :3])
    recorded = [each for each in kept if isinstance(each, Recorded)]
    assert recorded
    for each in recorded:
        with pytest.raises(LeakedArrayError, match="an array of an earlier call is used"):
            each + 1


def test_results_are_the_users():
    """Constants as well: B of squares is one."""
    net, loss = chain(layers.Linear(6, 4)), losses.MSELoss()
    program = gb.program(net, loss, X, X[:, :4], q.KFLR())
    before = program(X, X[:, :4])["kflr"]["0.weight"].B
    want = before.copy()
    before[...] = np.nan
    assert program.constants
    np.testing.assert_array_equal(program(X, X[:, :4])["kflr"]["0.weight"].B, want)


def test_a_program_has_the_numbers_of_its_inputs_alone():
    net = gb.Sequential(layers.Linear(50, 40), layers.Sigmoid(), layers.Linear(40, 10), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((20, 50))
    tracemalloc.start()
    program = gb.program(net, losses.CrossEntropyLoss(), x, np.arange(20) % 10, q.DiagGGN())
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert program(x, np.arange(20) % 10).loss > 0
    assert size < 3e6  # a product of each of 10 columns and 20 samples has 3.2 MB
    assert peak < 3.5 * 10 * 20 * 40 * 50 * 8
