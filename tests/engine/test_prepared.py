"""Prepared calls: the same to every bit as calls that are not, and never one that no longer fits."""

import contextlib
import copy
import cProfile
import gc
import pstats
import weakref

import common
import numpy as np
import pytest
from common import in_turn

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.engine import prepared
from gbackprop.engine.prepared import MOST, Calls
from gbackprop.quantities.result import Result
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED

driver = __import__("sys").modules["gbackprop.engine.backward"]

CE = losses.CrossEntropyLoss()
RNG = np.random.default_rng(0)
X, Y = common.batch(6, 1, 6, 6)


@pytest.fixture(autouse=True, params=["sweeps", "programs"])
def calls(request, monkeypatch):
    """Prepared calls of this test alone, which count how often one is found; the second may run a program."""
    monkeypatch.setattr(prepared, "AFTER", 1 if request.param == "programs" else 0)

    class Counted(Calls):
        found = 0

        def find(self, *given):
            one = super().find(*given)
            self.found += one is not None
            return one

    calls = Counted()
    monkeypatch.setattr(driver, "_CALLS", calls)
    return calls


def chain():
    parts = [layers.Conv2d(1, 2, 3), layers.Sigmoid(), layers.Dropout(0.5), layers.MaxPool2d(2), layers.Flatten()]
    return common.chain(*parts, layers.Linear(8, 3))


def nested():
    return gb.Sequential(gb.Sequential(*chain().layers[:5]), chain().layers[5])


def same(one, other):
    """Return whether two results are equal in every bit."""
    assert isinstance(one, Result)
    assert repr(one.quantities) == repr(other.quantities)
    try:
        common.assert_same(one, other, 0)
    except AssertionError:
        return False
    return True


def anew(network, loss, x, y, *quantities, **options):
    """The same call of a copy of the network, for which nothing is prepared."""
    return gb.backward(copy.deepcopy(network), copy.deepcopy(loss), x, y, *copy.deepcopy(quantities), **options)


EVERY = [q.BatchGrad(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(2), q.KFAC(), q.KFLR(), q.DiagHessian()]


PLACES = [(chain, (1, 6, 6)), (nested, (1, 6, 6)), (BRANCHED.network, (2, 2)), (ATTENTIVE.network, (3, 2))]


@pytest.mark.parametrize(("make", "shape", "quantities"), in_turn(PLACES, [EVERY, [], *[[each] for each in EVERY]]))
def test_a_prepared_call_gives_the_same_to_every_bit(make, shape, quantities, calls):
    network = make()
    x, loss = RNG.standard_normal((6, *shape)), losses.CrossEntropyLoss()
    first = gb.backward(network, loss, x, Y, *quantities, rng=3)
    again = gb.backward(network, loss, x, Y, *quantities, rng=3)
    assert calls.found == 1
    assert same(first, again)
    assert same(again, anew(network, loss, x, Y, *quantities, rng=3))


def test_the_blocks_of_a_large_batch_are_prepared_too(calls):
    given = CE, np.tile(X, (50, 1, 1, 1)), np.tile(Y, 50), q.DiagGGN(), q.BatchGrad()
    network = chain()
    for options in ({"sample_block": 7}, {"workers": 2, "sample_block": 90}, {"column_block": 1}, {"memory": "1GiB"}):
        for _ in range(2):
            assert same(gb.backward(network, *given, **options), anew(network, *given, **options))
    assert calls.found == 4


def test_copies_do_not_end_it(calls):
    network, loss = chain(), CE
    for kind in {base for part in (*network.layers, network, loss) for base in type(part).__mro__}:
        if "__slotnames__" in vars(kind):  # Python adds it when an object of the class is copied or pickled
            del kind.__slotnames__
    gb.backward(network, loss, X, Y)
    copy.deepcopy((network, loss))
    for _ in range(2):
        gb.backward(network, loss, X, Y)
    assert calls.found == 2


PUT = {
    "others": lambda network: network.parameters.update({"0.weight": np.full((2, 1, 3, 3), 0.1)}),
    "in place": lambda network: network.layers[0].parameters["weight"].__imul__(2),
    "the same": lambda network: network.load_state_dict(chain().state_dict()),
}


def test_each_call_that_is_found_again_reports_its_steps(calls):
    network = common.chain(layers.Linear(4, 3))
    x, y = common.batch(6, 4)
    for times in range(1, 5):
        seen = []
        gb.backward(network, CE, x, y, progress=lambda *counts, seen=seen: seen.append(counts))
        assert (seen, calls.found) == ([(1, 2), (2, 2)], times - 1)
        gb.backward(copy.deepcopy(network), CE, x, y)


def test_weights_of_samples_count_after_calls_without_them(calls):
    network = common.chain(layers.Linear(4, 3))
    x, y = common.batch(6, 4)
    weights = np.arange(6.0)
    for _ in range(3):
        gb.backward(network, CE, x, y)
        found = gb.backward(network, CE, x, y, sample_weight=weights)
        assert same(found, anew(network, CE, x, y, sample_weight=weights))
    assert calls.found == 5


@pytest.mark.parametrize("name", PUT)
def test_parameters_may_change_between_prepared_calls(name, calls):
    network, given = chain(), (CE, X, Y, q.DiagGGN())
    before = gb.backward(network, *given)
    PUT[name](network)
    after = gb.backward(network, *given)
    assert calls.found == 1
    assert same(after, anew(network, *given))
    assert same(after, before) is (name == "the same")


@pytest.fixture
def inside():
    """A network with a container inside."""
    inner = gb.Residual(layers.Linear(3, 3), layers.Sigmoid())
    return common.chain(layers.Flatten(), layers.Linear(36, 3), inner)


def other_layer(network):
    network.layers = (*network.layers[:1], layers.Tanh(), *network.layers[2:])


CHANGES = {
    "frozen": lambda net, loss, patch: net.freeze("0.weight"),
    "frozen below": lambda net, loss, patch: net.freeze("0"),
    "probability": lambda net, loss, patch: setattr(net.layers[2], "p", 0.1),
    "method": lambda net, loss, patch: setattr(net.layers[1], "mjp", lambda saved, mat: 2 * mat),
    "layer": lambda net, loss, patch: other_layer(net),
    "drawn again": lambda net, loss, patch: net.initialize(np.random.default_rng(5)),
    "attribute": lambda net, loss, patch: setattr(net.layers[3], "note", np.zeros(3)),
    "reduction": lambda net, loss, patch: setattr(loss, "reduction", "sum"),
    "weights": lambda net, loss, patch: setattr(loss, "weight", np.array([1.0, 2, 3])),
    "ignored": lambda net, loss, patch: vars(loss).update({"ignore_index": 1, "weighted": True}),
    "class": lambda net, loss, patch: patch.setattr(layers.Linear, "mjp", tripled),
    "class of Jacobians": lambda net, loss, patch: patch.setattr(ParameterJacobian, "square", tripled_square),
    "registry": lambda net, loss, patch: patch.setattr(driver, "FORMS", type(driver.FORMS)()),
    "quantity": lambda net, loss, patch: patch.setattr(q.DiagGGN, "statistics", q.BatchGrad().statistics),
}
PLAIN_MJP, PLAIN_SQUARE = layers.Linear.mjp, ParameterJacobian.square


def tripled(self, saved, mat):
    return 3 * PLAIN_MJP(self, saved, mat)


def tripled_square(self, *arriving):
    return 3 * PLAIN_SQUARE(self, *arriving)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_ends_it(name, calls, monkeypatch):
    network, loss, options = chain(), losses.CrossEntropyLoss(), {"rng": 1, "training": True}
    before = gb.backward(network, loss, X, Y, q.DiagGGN(), **options)
    CHANGES[name](network, loss, monkeypatch)
    after = gb.backward(network, loss, X, Y, q.DiagGGN(), **options)
    assert calls.found == 0
    assert same(after, anew(network, loss, X, Y, q.DiagGGN(), **options))
    if name != "registry":  # other forms round in another way
        assert same(after, before) is (name == "attribute")


def test_a_change_within_an_inner_container_ends_it(calls, inside):
    gb.backward(inside, CE, X, Y)
    inner = inside.layers[2]
    inner.children["1"] = layers.Tanh()
    gb.backward(inside, CE, X, Y)
    assert calls.found == 0


@pytest.mark.parametrize("times", [1, 9])
@pytest.mark.parametrize("kind", [gb.Sequential, gb.Residual, gb.Concatenate])
def test_another_order_of_children_ends_it(calls, kind, times):
    """Layers are computed, and outputs joined, in the order of the children."""
    inner = kind(layers.Linear(36, 36), layers.Tanh())
    network = common.chain(layers.Flatten(), inner)
    before = [gb.backward(network, CE, X, Y) for _ in range(times)]
    inner.children["0"] = inner.children.pop("0")
    after = gb.backward(network, CE, X, Y)
    assert same(after, anew(network, CE, X, Y))
    assert not np.array_equal(after.output, before[-1].output)


@pytest.mark.parametrize("assigned", ["layers", "children"])
def test_a_change_within_a_container_that_was_assigned_ends_it(calls, assigned):
    network, inner = chain(), gb.Sequential(layers.Tanh())
    if assigned == "layers":
        network.layers = (*network.layers[:1], inner, *network.layers[2:])
    else:
        network.children["1"] = inner
    found = [gb.backward(network, CE, X, Y)]
    inner.layers = (layers.Sigmoid(),)
    found.append(gb.backward(network, CE, X, Y))
    assert calls.found == 0
    assert same(found[1], anew(network, CE, X, Y))
    assert not same(found[0], found[1])
    assert isinstance(network[1], gb.Sequential)


def test_what_is_assigned_to_a_chain_must_be_layers():
    network = chain()
    with pytest.raises(TypeError, match="layer 1: expected a Layer, got 3"):
        network.layers = (layers.Tanh(), 3)


def test_an_equal_loss_and_equal_quantities_are_the_same_call(calls):
    network, asked = chain(), q.KFAC(2)
    for _ in range(3):
        result = gb.backward(network, losses.CrossEntropyLoss(), X, Y, q.KFAC(2), rng=0)
    assert calls.found == 2
    assert gb.backward(network, losses.CrossEntropyLoss(), X, Y, asked, rng=0).quantities[0] is asked
    assert result.objective is not None


OTHERS = {
    "loss": ((losses.MSELoss(), X, X[:, 0, 0, :3], q.KFAC(1)), {}),
    "samples": ((CE, X, Y, q.KFAC(2)), {}),
    "quantity": ((CE, X, Y, q.KFLR()), {}),
    "shape": ((CE, X[:4], Y[:4], q.KFAC(1)), {}),
    "training": ((CE, X, Y, q.KFAC(1)), {"training": True}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_call_is_another_one(name, calls):
    network, given, (other, options) = chain(), (CE, X, Y, q.KFAC(1)), OTHERS[name]
    gb.backward(network, *given, rng=0)
    assert same(gb.backward(network, *other, rng=0, **options), anew(network, *other, rng=0, **options))
    assert calls.found == 0
    if name != "samples":  # other options of a quantity take its place
        gb.backward(network, *given, rng=0)
        assert calls.found == 1


def test_another_dtype_is_another_call():
    network = chain()
    gb.backward(network, CE, X, Y)
    network.astype("float32")
    assert gb.backward(network, CE, X.astype("float32"), Y).output.dtype == np.float32
    with pytest.raises(TypeError, match=r"x: expected float32 as 0\.weight is, got float64"):
        gb.backward(network, CE, X, Y)


def test_other_processors_end_it_where_blocks_depend_on_them(monkeypatch, calls):
    network, large = chain(), (np.tile(X, (50, 1, 1, 1)), np.tile(Y, 50))
    gb.backward(network, CE, *large, sample_block=50, workers=2)
    gb.backward(network, CE, X, Y)
    monkeypatch.setattr(prepared, "cpu_count", lambda: 77)
    gb.backward(network, CE, *large, sample_block=50, workers=2)
    assert calls.found == 0
    gb.backward(network, CE, X, Y)
    assert calls.found == 1


class Twice(layers.Layer):
    """A user's layer, of which nothing is known."""

    factor = 2.0

    def forward(self, x):
        return self.factor * x, None

    def mjp(self, saved, mat):
        return self.factor * mat


def test_layers_of_users_and_given_targets_are_prepared_anew(calls):
    network = common.chain(Twice(), layers.Flatten(), layers.Linear(36, 3))
    given = [q.DiagGGNMC(targets=np.stack([Y, Y[::-1]]))]
    for net, asked in ((network, []), (chain(), given)):
        for _ in range(2):
            gb.backward(net, losses.CrossEntropyLoss(), X, Y, *asked)
    assert calls.found == 0


def test_numbers_are_still_checked(calls):
    network, loss, x, y = chain(), CE, X.copy(), Y.copy()
    gb.backward(network, loss, x, y)
    x[1, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        gb.backward(network, loss, x, y)
    y[0] = 7
    with pytest.raises(ValueError, match="expected labels 0 to 2, got 7"):
        gb.backward(network, loss, X, y)
    with pytest.raises(ValueError, match="expected 6 samples"):
        gb.backward(network, loss, X, Y[:3])
    network.layers[5].parameters["bias"][0] = np.inf
    with pytest.raises(ValueError, match=r"parameter 5\.bias: expected finite numbers"):
        gb.backward(network, loss, X, Y)
    assert calls.found == 4


@pytest.mark.parametrize(
    ("option", "value"), [("training", 1), ("training", []), ("memory", 2.0**30), ("memory", []), ("memory", True)]
)
def test_options_are_still_checked(option, value):
    network, loss = chain(), CE
    for valid in ({}, {"memory": 2**30}, {"memory": 1}, {"training": True}):
        with contextlib.suppress(ValueError):  # a single byte is not enough
            gb.backward(network, loss, X, Y, rng=0, **valid)
    with pytest.raises((TypeError, ValueError), match=f"{option}: expected"):
        gb.backward(network, loss, X, Y, rng=0, **{option: value})


def test_a_call_that_cannot_be_draws_nothing():
    network = common.chain(layers.Flatten(), gb.Residual(layers.Linear(36, 36)))
    rng = np.random.default_rng(0)
    with pytest.raises(UnsupportedError, match="KFRA"):
        gb.backward(network, losses.MSELoss(), X, X.reshape(6, 36), q.KFRA(), q.KFAC(), rng=rng)
    assert rng.random() == np.random.default_rng(0).random()


def test_an_error_that_depends_on_no_number_is_raised_each_time():
    network = gb.Sequential(layers.Embedding(5, 2), layers.Flatten(), layers.Linear(6, 3), rng=0)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="Embedding"):
            gb.backward(network, losses.CrossEntropyLoss(), np.zeros((6, 3), int), Y, q.KFAC())


def test_few_calls_are_stored_and_networks_are_not_kept_alive(calls):
    network = gb.LSTM(2, 2, rng=0)
    whole = gb.Sequential(network, layers.Flatten(), layers.Linear(6, 3), rng=0)
    x, y = np.ones((2 * MOST, 3, 2), "float32"), np.zeros(2 * MOST, int)
    for n in range(1, 2 * MOST):
        gb.backward(whole, losses.CrossEntropyLoss(), x[:n], y[:n])
    assert len(calls.of[whole]) == MOST
    gb.backward(network, losses.MSELoss(), x, x)
    seen = weakref.ref(whole), weakref.ref(network)
    gc.disable()
    try:
        del whole, network
        assert [each() for each in seen] == [None, None]
    finally:
        gc.enable()


def test_prepare_gives_the_call_without_its_batch():
    network, loss, asked = chain(), losses.CrossEntropyLoss(), (q.KFAC(), q.BatchGrad())
    step = gb.prepare(network, loss, *asked, training=True, sample_block=4)
    want = gb.backward(network, loss, X, Y, *asked, rng=2, training=True, sample_block=4)
    assert same(step(X, Y, rng=2), want)
    assert not same(step(X, Y, rng=3), want)
    assert step(X, Y).quantities == asked


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(TypeError, match=r"prepare: expected options among training, .*, got 'trainig'"):
        gb.prepare(chain(), losses.CrossEntropyLoss(), trainig=True)


def test_another_definition_of_a_jacobian_loses_its_forms(monkeypatch):
    network, loss = gb.Sequential(layers.Flatten(), layers.Linear(36, 3), rng=0), losses.CrossEntropyLoss()
    x = X.astype("float32")
    before = gb.backward(network, loss, x, Y, q.DiagGGN())["diag_ggn"]["1.weight"]
    plain = Outer.per_sample
    monkeypatch.setattr(Outer, "per_sample", lambda self, mat: 2 * plain(self, mat))
    after = gb.backward(network, loss, x, Y, q.DiagGGN())["diag_ggn"]["1.weight"]
    np.testing.assert_allclose(after, 4 * before, rtol=1e-5)


def test_a_patch_of_a_class_of_jacobians_that_is_undone_leaves_nothing(monkeypatch):
    given = chain(), losses.CrossEntropyLoss(), X, Y, q.DiagGGN()
    with monkeypatch.context() as patch:
        patch.setattr(ParameterJacobian, "square", tripled_square)
        changed = gb.backward(*given)
    after = gb.backward(*given)
    assert same(after, anew(*given))
    np.testing.assert_allclose(changed["diag_ggn"]["5.weight"], 3 * after["diag_ggn"]["5.weight"], rtol=1e-9)


def test_a_prepared_gradient_takes_few_function_calls():
    parts = [layers.Linear(8, 6), layers.Sigmoid(), layers.Linear(6, 4), layers.Sigmoid(), layers.Linear(4, 3)]
    step = gb.prepare(gb.Sequential(*parts, rng=0, dtype="float64"), losses.CrossEntropyLoss())
    x, y = X[:1, 0, 0].repeat(2, 1)[:, :8].copy(), Y[:1]
    step(x, y)
    profile = cProfile.Profile()
    profile.runcall(step, x, y)
    assert pstats.Stats(profile).total_calls <= (180 if prepared.AFTER else 330)
