"""Small calls that are written down: to every bit what the sweep gives, and the sweep where they do not apply."""

import functools
import warnings
from concurrent.futures import ThreadPoolExecutor

import common
import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.errors import NotFiniteWarning
from gbackprop.engine import prepared
from gbackprop.engine.calls.call import WrittenCall
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED

driver = __import__("sys").modules["gbackprop.engine.backward"]
CE, RNG = losses.CrossEntropyLoss(), np.random.default_rng(0)
X, Y = common.batch(6, 1, 6, 6)


@pytest.fixture(autouse=True)
def ran(monkeypatch):
    """The results of calls that were written down, at the first call of each kind."""
    results, plain = [], WrittenCall.__call__

    def counted(*given):
        found = plain(*given)
        results.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(prepared, "AFTER", 1)
    monkeypatch.setattr(WrittenCall, "__call__", counted)
    return results


def mlp(activation=layers.Sigmoid, dtype="float64"):
    return gb.Sequential(layers.Flatten(), layers.Linear(36, 5), activation(), layers.Linear(5, 3), rng=0, dtype=dtype)


def swept(monkeypatch, *given, **options):
    """The same call by the sweep."""
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_CALLS", driver.Calls())
        patch.setattr(prepared, "AFTER", 0)
        return gb.backward(*given, **options)


def window():
    parts = [layers.Conv2d(1, 2, 3), layers.ReLU(), layers.BatchNorm2d(2), layers.MaxPool2d(2), layers.Flatten()]
    return gb.Sequential(*parts, layers.Linear(8, 3), rng=0)


def lstm():
    return gb.Sequential(gb.LSTM(6, 4), layers.Flatten(), layers.Linear(24, 3), rng=0)


NETWORKS = {
    "mlp": (mlp, X),
    "windows": (window, X.astype("float32")),
    "lstm": (lstm, X[:, 0].astype("float32")),
    "branched": (BRANCHED.network, RNG.standard_normal((6, 2, 2))),
    "attentive": (ATTENTIVE.network, RNG.standard_normal((6, 3, 2))),
    "labels": (lambda: gb.Sequential(layers.Embedding(9, 2), layers.Flatten(), layers.Linear(8, 3), rng=0),
               RNG.integers(0, 9, (6, 4))),
}  # fmt: skip
ASKED = [(), (q.BatchGrad(),), (q.DiagGGN(), q.DiagGGNMC(2)), (q.KFAC(), q.KFLR())]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_each_kind_of_network_is_written_down(name, asked, ran, monkeypatch):
    make, x = NETWORKS[name]
    if name in ("labels", "windows") and asked == ASKED[-1]:
        pytest.skip("no Kronecker factors")
    network = make()
    gb.backward(network, CE, x, Y, *asked, rng=1)
    for parameter in network.parameters.values():
        parameter *= 1.5
    other, labels = x[::-1].copy(), (Y + 1) % 3
    found = gb.backward(network, CE, other, labels, *asked, rng=2)
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, other, labels, *asked, rng=2), 0)


def test_masks_are_drawn_anew(ran, monkeypatch):
    network = mlp(layers.Dropout)
    gb.backward(network, CE, X, Y, rng=1, training=True)
    for seed in (2, 3):
        found = gb.backward(network, CE, X, Y, rng=seed, training=True)
        common.assert_same(found, swept(monkeypatch, network, CE, X, Y, rng=seed, training=True), 0)
    assert len(ran) == 2


def test_a_generator_advances_as_in_a_sweep(ran):
    network, states = mlp(), []
    for _ in range(2):
        rng = np.random.default_rng(5)
        gb.backward(network, CE, X, Y, rng=rng)
        states.append(rng.random())
    assert ran
    assert states[0] == states[1]


def test_what_reads_numbers_is_swept(ran):
    """`Variance` chooses a formula by its numbers, and R of weighted labels depends on them."""
    for loss, asked in ((CE, [q.Variance()]), (losses.CrossEntropyLoss(weight=np.array([1.0, 2, 3])), [])):
        network = mlp()
        for _ in range(3):
            gb.backward(network, loss, X, Y, *asked)
    assert not ran


def test_functions_of_users_are_called_each_time(ran, monkeypatch):
    network, seen, plain = mlp(), [], layers.Linear.mjp

    @functools.wraps(plain)
    def kept(self, saved, mat):
        seen.append(mat)
        return plain(self, saved, mat)

    for target, function in ((network.layers[3], functools.partial(kept, network.layers[3])), (layers.Linear, kept)):
        with monkeypatch.context() as patch:
            patch.setattr(target, "mjp", function, raising=False)
            seen.clear()
            for _ in range(3):
                gb.backward(network, CE, X, Y)
            assert [type(each) for each in seen] == [np.ndarray] * 3
    assert not ran


def test_arrays_of_another_order_dtype_or_kind_are_swept(ran):
    network = mlp()
    want = gb.backward(network, CE, X, Y)
    for x, y in ((np.asfortranarray(X), Y), (X, Y.astype("int32")), (X, Y.repeat(2)[::2])):
        common.assert_same(gb.backward(network, CE, x, y), want, 1e-12)
    with pytest.raises(TypeError, match="y of CrossEntropyLoss"):
        gb.backward(network, CE, X, Y.tolist())
    assert not ran


@pytest.mark.parametrize("factor", [1e200, np.inf])
def test_warnings_and_errors_are_those_of_the_sweep(factor, ran, monkeypatch):
    messages = []
    for call in (gb.backward, functools.partial(swept, monkeypatch)):
        network = mlp(layers.ReLU)
        for scale in (1.0, factor):
            network.parameters["1.weight"][0, 0] *= scale
            with warnings.catch_warnings(record=True) as caught, np.errstate(over="ignore"):
                warnings.simplefilter("always")
                try:
                    call(network, losses.MSELoss(), X, np.zeros((6, 3)))
                except ValueError as error:
                    messages.append((scale, str(error)))
            messages += [(scale, str(each.message)) for each in caught if each.category is NotFiniteWarning]
    assert len(messages) == 2
    assert messages[0] == messages[1]


def test_a_target_may_be_the_input(ran, monkeypatch):
    network, x = gb.Sequential(layers.Linear(3, 3), layers.Tanh(), rng=0), RNG.standard_normal((4, 3)).astype("f4")
    gb.backward(network, losses.MSELoss(), x, x)
    found = gb.backward(network, losses.MSELoss(), x, -x)
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, losses.MSELoss(), x, -x), 0)


def test_results_are_nobody_elses(ran):
    network, asked = mlp(), [q.DiagGGN(), q.KFAC()]
    gb.backward(network, CE, X, Y, *asked, rng=0)
    first = gb.backward(network, CE, X, Y, *asked, rng=0)
    before = first["diag_ggn"]["1.weight"].copy()
    for array in (first.output, *first.gradient.values(), *first["diag_ggn"].values()):
        array.fill(7)
    again = gb.backward(network, CE, X, Y, *asked, rng=0)
    np.testing.assert_array_equal(again["diag_ggn"]["1.weight"], before)
    assert ran == [first, again]


def test_threads_may_run_one_call(ran):
    network = mlp()
    xs = [RNG.standard_normal(X.shape) for _ in range(32)]
    want = [gb.backward(network, CE, x, Y, sample_block=5) for x in xs]
    gb.backward(network, CE, X, Y)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: gb.backward(network, CE, x, Y), xs))
    for one, other in zip(found, want, strict=True):
        common.assert_same(one, other, 1e-12)
    assert len(ran) == 32


def test_a_product_beyond_the_range_is_noticed_by_its_factors(ran):
    network, x = gb.Sequential(layers.Linear(4, 3), rng=0), np.full((1, 4), 1e25, "float32")
    for _ in range(2):
        with np.errstate(over="ignore"), pytest.warns(NotFiniteWarning, match=r"gradient of 0\.weight"):
            gb.backward(network, losses.MSELoss(), x, np.zeros((1, 3), "float32"))
    assert len(ran) == 1


def test_parameters_are_found_by_their_names(ran, monkeypatch):
    network = gb.Sequential(layers.Flatten(), layers.LayerNorm(36), layers.Linear(36, 3), rng=0, dtype="float64")
    gb.backward(network, CE, X, Y)
    values = network.layers[1].parameters
    values["weight"] = values.pop("weight") * 3  # now it comes after "bias", which has the same shape
    found = gb.backward(network, CE, X, Y)
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, X, Y), 0)


def test_derivatives_in_the_input_are_written_down(ran, monkeypatch):
    network, options = mlp(), {"wrt": ("x", "1.bias")}
    for x in (X, X + 1):
        found = gb.backward(network, CE, x, Y, q.DiagGGN(), **options)
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, X + 1, Y, q.DiagGGN(), **options), 0)
