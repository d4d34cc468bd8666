"""Prepared calls: the same to every bit as calls that are not, and never one that no longer fits."""

import contextlib
import copy
import cProfile
import gc
import pstats
import weakref

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import Outer
from gbackprop.engine import prepared
from gbackprop.engine.prepared import MOST, Calls
from gbackprop.quantities.result import Result
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED

driver = __import__("sys").modules["gbackprop.engine.backward"]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 1, 6, 6)), np.array([0, 2, 1, 1, 0, 2])


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Prepared calls of this test alone, which count how often one is found."""

    class Counted(Calls):
        found = 0

        def find(self, *given):
            one = super().find(*given)
            self.found += one is not None
            return one

    calls = Counted()
    monkeypatch.setattr(driver, "_CALLS", calls)
    return calls


def chain(**options):
    parts = [layers.Conv2d(1, 2, 3), layers.Sigmoid(), layers.Dropout(0.5), layers.MaxPool2d(2), layers.Flatten()]
    return gb.Sequential(*parts, layers.Linear(8, 3), rng=0, **{"dtype": "float64"} | options)


def nested():
    return gb.Sequential(gb.Sequential(*chain().layers[:5]), chain().layers[5])


def same(one, other):
    """Whether two results are equal in every bit."""
    assert isinstance(one, Result)
    assert repr(one.quantities) == repr(other.quantities)
    if one.gradient.keys() != other.gradient.keys():
        return False
    pairs = [(one.loss, other.loss), (one.output, other.output)]
    pairs += [(one.gradient[name], other.gradient[name]) for name in one.gradient]
    for mine, theirs in zip(one.values, other.values, strict=True):
        for name, value in mine.items():
            parts = zip(vars(value).values(), vars(theirs[name]).values()) if hasattr(value, "B") else []
            pairs += [(value, theirs[name])] if isinstance(value, np.ndarray) else list(parts)
    return all(np.array_equal(a, b) for a, b in pairs if isinstance(a, np.ndarray | np.generic))


def anew(network, loss, x, y, *quantities, **options):
    """The same call of a copy of the network, for which nothing is prepared."""
    return gb.backward(copy.deepcopy(network), copy.deepcopy(loss), x, y, *copy.deepcopy(quantities), **options)


EVERY = [q.BatchGrad(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(2), q.KFAC(), q.KFLR(), q.DiagHessian()]


@pytest.mark.parametrize(
    "quantities", [[], *[[each] for each in EVERY], EVERY], ids=lambda some: str(some[:2]).replace(" ", "")
)
@pytest.mark.parametrize(
    ("make", "shape"),
    [(chain, (1, 6, 6)), (nested, (1, 6, 6)), (BRANCHED.network, (2, 2)), (ATTENTIVE.network, (3, 2))],
)
def test_a_prepared_call_gives_the_same_to_every_bit(make, shape, quantities, calls):
    network = make()
    x, loss = RNG.standard_normal((6, *shape)), losses.CrossEntropyLoss()
    first = gb.backward(network, loss, x, Y, *quantities, rng=3)
    again = gb.backward(network, loss, x, Y, *quantities, rng=3)
    assert calls.found == 1
    assert same(first, again)
    assert same(again, anew(network, loss, x, Y, *quantities, rng=3))


def test_the_blocks_of_a_large_batch_are_prepared_too(calls):
    network, x, y = chain(), np.tile(X, (50, 1, 1, 1)), np.tile(Y, 50)
    for options in ({"sample_block": 7}, {"workers": 2, "sample_block": 90}, {"column_block": 1}, {"memory": "1GiB"}):
        for _ in range(2):
            got = gb.backward(network, losses.CrossEntropyLoss(), x, y, q.DiagGGN(), q.BatchGrad(), **options)
            want = anew(network, losses.CrossEntropyLoss(), x, y, q.DiagGGN(), q.BatchGrad(), **options)
            assert same(got, want)
    assert calls.found == 4


def test_copies_do_not_end_it(calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    for kind in {base for part in (*network.layers, network, loss) for base in type(part).__mro__}:
        if "__slotnames__" in vars(kind):  # Python adds it when an object of the class is copied or pickled
            del kind.__slotnames__
    gb.backward(network, loss, X, Y)
    copy.deepcopy((network, loss))
    for _ in range(2):
        gb.backward(network, loss, X, Y)
    assert calls.found == 2


def change_parameters(network):
    network.parameters["0.weight"] = np.full((2, 1, 3, 3), 0.1)


def change_in_place(network):
    network.layers[0].parameters["weight"] *= 2


def load(network):
    network.load_state_dict(chain().initialize(np.random.default_rng(9)) or network.state_dict())


@pytest.mark.parametrize("change", [change_parameters, change_in_place, load])
def test_parameters_may_change_between_prepared_calls(change, calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    before = gb.backward(network, loss, X, Y, q.DiagGGN())
    change(network)
    after = gb.backward(network, loss, X, Y, q.DiagGGN())
    assert calls.found == 1
    assert same(after, anew(network, loss, X, Y, q.DiagGGN()))
    assert same(after, before) is (change is load)


def freeze(network):
    network.freeze("0.weight")


def freeze_all_below(network):
    network.freeze("0")


def other_probability(network):
    network.layers[2].p = 0.1


def other_method(network):
    network.layers[1].mjp = lambda saved, mat: 2 * mat


def other_layer(network):
    network.layers = (*network.layers[:1], layers.Tanh(), *network.layers[2:])


def drawn_again(network):
    network.initialize(np.random.default_rng(5))


def further_attribute(network):
    network.layers[3].note = np.zeros(3)


@pytest.mark.parametrize(
    "change",
    [freeze, freeze_all_below, other_probability, other_method, other_layer, drawn_again, further_attribute],
)
def test_a_change_of_the_network_ends_it(change, calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    given = (loss, X, Y, q.DiagGGN())
    before = gb.backward(network, *given, rng=1, training=True)
    change(network)
    after = gb.backward(network, *given, rng=1, training=True)
    assert calls.found == 0
    fresh = anew(network, *given, rng=1, training=True)
    assert same(after, fresh)
    assert same(after, before) is (change is further_attribute)


def test_a_change_within_an_inner_container_ends_it(calls):
    inner = gb.Residual(layers.Linear(3, 3), layers.Sigmoid())
    network = gb.Sequential(layers.Flatten(), layers.Linear(36, 3), inner, rng=0, dtype="float64")
    gb.backward(network, losses.CrossEntropyLoss(), X, Y)
    inner.chain.layers = (inner.chain.layers[0], layers.Tanh())
    inner.children = {"0": inner.chain.layers[0], "1": inner.chain.layers[1]}
    gb.backward(network, losses.CrossEntropyLoss(), X, Y)
    assert calls.found == 0


def test_a_change_of_the_loss_ends_it(calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y)
    for change in ({"reduction": "sum"}, {"ignore_index": 1, "weighted": True}, {"weight": np.array([1.0, 2, 3])}):
        vars(loss).update(change)
        assert same(gb.backward(network, loss, X, Y), anew(network, loss, X, Y))
    assert calls.found == 0
    other = (losses.MSELoss(), X, X[:, 0, 0, :3])
    assert same(gb.backward(network, *other), anew(network, *other))
    gb.backward(network, loss, X, Y)
    assert calls.found == 1


def test_an_equal_loss_and_equal_quantities_are_the_same_call(calls):
    network = chain()
    for _ in range(3):
        result = gb.backward(network, losses.CrossEntropyLoss(), X, Y, q.KFAC(2), rng=0)
    assert calls.found == 2
    asked = q.KFAC(2)
    assert gb.backward(network, losses.CrossEntropyLoss(), X, Y, asked, rng=0).quantities[0] is asked
    assert result.objective is not None


def test_other_options_of_a_quantity_are_another_call(calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y, q.KFAC(1), rng=0)
    assert same(gb.backward(network, loss, X, Y, q.KFAC(2), rng=0), anew(network, loss, X, Y, q.KFAC(2), rng=0))
    assert same(gb.backward(network, loss, X, Y, q.KFLR(), rng=0), anew(network, loss, X, Y, q.KFLR(), rng=0))
    assert calls.found == 0


def test_training_another_shape_and_another_dtype_are_other_calls(calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y, rng=0)
    for x, y, options in ((X, Y, {"training": True}), (X[:4], Y[:4], {})):
        assert same(gb.backward(network, loss, x, y, rng=0, **options), anew(network, loss, x, y, rng=0, **options))
    network.astype("float32")
    assert gb.backward(network, loss, X.astype("float32"), Y).output.dtype == np.float32
    with pytest.raises(TypeError, match=r"x: expected float32 as 0\.weight is, got float64"):
        gb.backward(network, loss, X, Y)


def test_another_method_of_a_class_ends_it(monkeypatch, calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y)
    plain = layers.Linear.mjp
    monkeypatch.setattr(layers.Linear, "mjp", lambda self, saved, mat: 3 * plain(self, saved, mat))
    after = gb.backward(network, loss, X, Y)
    assert calls.found == 0
    assert same(after, anew(network, loss, X, Y))


def test_another_registry_ends_it(monkeypatch, calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y)
    monkeypatch.setattr(driver, "FORMS", type(driver.FORMS)())
    gb.backward(network, loss, X, Y)
    assert calls.found == 0


def test_other_processors_end_it_where_blocks_depend_on_them(monkeypatch, calls):
    network, loss, x, y = chain(), losses.CrossEntropyLoss(), np.tile(X, (50, 1, 1, 1)), np.tile(Y, 50)
    gb.backward(network, loss, x, y, sample_block=50, workers=2)
    gb.backward(network, loss, X, Y)
    monkeypatch.setattr(prepared, "cpu_count", lambda: 77)
    gb.backward(network, loss, x, y, sample_block=50, workers=2)
    assert calls.found == 0
    gb.backward(network, loss, X, Y)
    assert calls.found == 1


class Twice(layers.Layer):
    """A user's layer, of which nothing is known."""

    factor = 2.0

    def forward(self, x):
        return self.factor * x, None

    def mjp(self, saved, mat):
        return self.factor * mat


def test_layers_of_users_and_given_targets_are_prepared_anew(calls):
    network = gb.Sequential(Twice(), layers.Flatten(), layers.Linear(36, 3), rng=0, dtype="float64")
    given = [q.DiagGGNMC(targets=np.stack([Y, Y[::-1]]))]
    for net, asked in ((network, []), (chain(), given)):
        for _ in range(2):
            gb.backward(net, losses.CrossEntropyLoss(), X, Y, *asked)
    assert calls.found == 0


def test_numbers_are_still_checked(calls):
    network, loss, x, y = chain(), losses.CrossEntropyLoss(), X.copy(), Y.copy()
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
    network, loss = chain(), losses.CrossEntropyLoss()
    for valid in ({}, {"memory": 2**30}, {"memory": 1}, {"training": True}):
        with contextlib.suppress(ValueError):  # a single byte is not enough
            gb.backward(network, loss, X, Y, rng=0, **valid)
    with pytest.raises((TypeError, ValueError), match=f"{option}: expected"):
        gb.backward(network, loss, X, Y, rng=0, **{option: value})


def test_a_call_that_cannot_be_draws_nothing():
    network = gb.Sequential(layers.Flatten(), gb.Residual(layers.Linear(36, 36)), rng=0, dtype="float64")
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


def test_another_definition_of_a_quantity_ends_it(monkeypatch, calls):
    network, loss = chain(), losses.CrossEntropyLoss()
    gb.backward(network, loss, X, Y, q.KFLR())
    monkeypatch.setattr(q.KFLR, "statistics", q.KFAC().statistics)
    after = gb.backward(network, loss, X, Y, q.KFLR(), rng=0)
    assert calls.found == 0
    drawn = gb.backward(network, loss, X, Y, q.KFAC(), rng=0)
    assert np.array_equal(after["kflr"]["5.bias"].B, drawn["kfac"]["5.bias"].B)


def test_another_definition_of_a_jacobian_loses_its_forms(monkeypatch):
    network, loss = gb.Sequential(layers.Flatten(), layers.Linear(36, 3), rng=0), losses.CrossEntropyLoss()
    x = X.astype("float32")
    before = gb.backward(network, loss, x, Y, q.DiagGGN())["diag_ggn"]["1.weight"]
    plain = Outer.per_sample
    monkeypatch.setattr(Outer, "per_sample", lambda self, mat: 2 * plain(self, mat))
    after = gb.backward(network, loss, x, Y, q.DiagGGN())["diag_ggn"]["1.weight"]
    np.testing.assert_allclose(after, 4 * before, rtol=1e-5)


def test_a_prepared_gradient_takes_few_function_calls():
    parts = [layers.Linear(8, 6), layers.Sigmoid(), layers.Linear(6, 4), layers.Sigmoid(), layers.Linear(4, 3)]
    step = gb.prepare(gb.Sequential(*parts, rng=0, dtype="float64"), losses.CrossEntropyLoss())
    x, y = X[:1, 0, 0].repeat(2, 1)[:, :8], Y[:1]
    step(x, y)
    profile = cProfile.Profile()
    profile.runcall(step, x, y)
    assert pstats.Stats(profile).total_calls <= 300
