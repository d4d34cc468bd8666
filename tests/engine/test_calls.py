"""Small calls that are written down: to every bit what the sweep gives, and the sweep where they do not apply."""

import functools
import gc
import pickle
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import common
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.errors import NotFiniteWarning
from gbackprop.base.threads import NO_CONTEXT
from gbackprop.calculus.jacobian import Outer
from gbackprop.engine import arena, prepared
from gbackprop.engine.calls import reused
from gbackprop.engine.calls.call import WrittenCall
from gbackprop.engine.calls.functions import Functions
from gbackprop.engine.calls.shorter import without_repeats
from gbackprop.engine.calls.statements import ERRORS, CannotWriteError, Statements, plain
from gbackprop.engine.calls.written import Written
from gbackprop.plain.plan import Plan, make_plan
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.runs import SHIPPED
from gbackprop.testing.strategies import problems

driver, LOSS = (__import__("sys").modules[f"gbackprop.{it}"] for it in ("engine.backward", "losses.cross_entropy"))
CE, RNG = losses.CrossEntropyLoss(), np.random.default_rng(0)
X, Y = common.batch(6, 1, 6, 6)


@pytest.fixture(autouse=True)
def ran(monkeypatch):
    """The results of calls that were written down, at the first call of each kind."""
    results, plain = [], WrittenCall.__call__

    def counted(*given, **named):
        found = plain(*given, **named)
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


def traced():
    p = {"w": RNG.standard_normal((36, 5)), "b": RNG.standard_normal(5), "v": RNG.standard_normal((5, 3))}
    return gb.trace(lambda p, x: np.tanh(x.reshape(len(x), -1) @ p["w"] + p["b"]) @ p["v"], p, X)


def lstm():
    return gb.Sequential(gb.LSTM(6, 4), layers.Flatten(), layers.Linear(24, 3), rng=0)


NETWORKS = {
    "mlp": (mlp, X),
    "traced": (traced, X),
    "windows": (window, X.astype("float32")),
    "lstm": (lstm, X[:, 0].astype("float32")),
    "branched": (BRANCHED.network, RNG.standard_normal((6, 2, 2))),
    "attentive": (ATTENTIVE.network, RNG.standard_normal((6, 3, 2))),
    "labels": (lambda: gb.Sequential(layers.Embedding(9, 2), layers.Flatten(), layers.Linear(8, 3), rng=0),
               RNG.integers(0, 9, (6, 4))),
}  # fmt: skip
ASKED = [(), (q.BatchGrad(),), (q.DiagGGN(), q.DiagGGNMC(2)), (q.KFAC(), q.KFLR())]


EACH = [(name, asked) for name in NETWORKS for asked in ASKED
        if asked != ASKED[-1] or name not in ("labels", "windows")]  # fmt: skip
"""The kinds of networks with what is asked of them: these two have no Kronecker factors."""


@pytest.mark.parametrize(("name", "asked"), EACH, ids=str)
def test_each_kind_of_network_is_written_down(name, asked, ran, monkeypatch):
    make, x = NETWORKS[name]
    network = make()
    gb.backward(network, CE, x, Y, *asked, rng=1)
    for parameter in network.parameters.values():
        parameter *= 1.5
    other, labels = x[::-1].copy(), (Y + 1) % 3
    found = gb.backward(network, CE, other, labels, *asked, rng=2)
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, other, labels, *asked, rng=2), 0)


TWICE = {
    "lstm": ([gb.LSTM(4, 4), gb.LSTM(4, 4), layers.Flatten(), layers.Linear(12, 3)], (3, 4)),
    "pools": ([gb.Sum(gb.Sequential(layers.ReLU(), layers.MaxPool2d(3, 1, 1)), layers.MaxPool2d(3, 1, 1)),
               layers.Flatten(), layers.Linear(32, 3)], (2, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_layers_of_one_kind_and_shape_are_written_down_with_arrays_of_their_own(name, ran, monkeypatch):
    parts, shape = TWICE[name]
    network, x = gb.Sequential(*parts, rng=0), RNG.standard_normal((6, *shape)).astype("float32")
    for each in (x, 2 * x):
        found = gb.backward(network, CE, each, Y, q.BatchGrad())
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, 2 * x, Y, q.BatchGrad()), 0)


def test_a_table_of_fewer_rows_than_the_network_has_outputs_is_written_down(ran, monkeypatch):
    network = gb.Sequential(layers.Embedding(2, 2), layers.Flatten(), layers.Linear(16, 12), rng=0)
    x, y = RNG.integers(0, 2, (6, 8)), 2 * Y
    for rows in (x, 1 - x):
        found = gb.backward(network, CE, rows, y, q.BatchGrad())
    assert ran == [found]
    common.assert_same(found, swept(monkeypatch, network, CE, 1 - x, y, q.BatchGrad()), 0)


@pytest.mark.parametrize(("name", "asked"), EACH, ids=str)
def test_arrays_in_an_arena_change_nothing_and_results_are_not_in_it(name, asked, ran, monkeypatch):
    monkeypatch.setattr(reused, "LEAST", 1)
    monkeypatch.setattr(arena, "LEAST_ARRAY", 1)
    taken, plain_empty = [], arena.Arena.empty
    monkeypatch.setattr(arena.Arena, "empty", lambda *given: taken.append(given[2]) or plain_empty(*given))
    make, x = NETWORKS[name]
    network, other = make(), x[::-1].copy()
    gb.backward(network, CE, x, Y, *asked, rng=1)
    swept_first = len(taken)
    found = gb.backward(network, CE, other, Y, *asked, rng=2)
    assert len(taken) > swept_first
    want = swept(monkeypatch, network, CE, other, Y, *asked, rng=2)
    gb.backward(network, CE, x, Y, *asked, rng=3)  # takes the same places
    assert len(ran) == 2
    common.assert_same(found, want, 0)


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
    """`Variance` chooses a formula by its numbers, R of weighted labels depends on them, draws of counts check them."""
    weighted, poisson = losses.CrossEntropyLoss(weight=np.array([1.0, 2, 3])), losses.PoissonNLLLoss()
    for loss, y, asked in ((CE, Y, q.Variance()), (weighted, Y, q.BatchGrad()), (poisson, np.ones((6, 3)), q.KFAC())):
        network = mlp()
        for _ in range(3):
            gb.backward(network, loss, X, y, asked, rng=0)
    assert not ran


def test_functions_of_users_are_called_each_time(ran, monkeypatch):
    seen, plain, networks = [], layers.Linear.mjp, (mlp(), mlp())

    @functools.wraps(plain)
    def kept(self, saved, mat):
        seen.append(mat)
        return plain(self, saved, mat)

    own = networks[0].layers[3]
    cases = (own, functools.partial(kept, own)), (layers.Linear, kept)
    for network, (target, function) in zip(networks, cases, strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(target, "mjp", function, raising=False)
            seen.clear()
            for _ in range(3):
                gb.backward(network, CE, X, Y)
            assert len(seen) >= 3  # the layer's checks call it, too
            assert {type(each) for each in seen} == {np.ndarray}
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


def test_a_product_beyond_the_range_is_noticed(ran):
    network, x = gb.Sequential(layers.Linear(4, 3), rng=0), np.full((1, 4), 1e25, "float32")
    for _ in range(2):
        with np.errstate(over="ignore"), pytest.warns(NotFiniteWarning, match=r"gradient of 0\.weight"):
            gb.backward(network, losses.MSELoss(), x, np.zeros((1, 3), "float32"))
    assert not ran
    gb.backward(network, losses.MSELoss(), np.ones_like(x), np.zeros((1, 3), "float32"))
    assert len(ran) == 1


def test_draws_of_a_seed_need_no_batch_in_the_plan(ran, monkeypatch):
    """A Generator that is drawn from twice would be another one afterwards: its calls are planned."""
    network, planned, plain = mlp(), [], Plan.with_batch
    monkeypatch.setattr(Plan, "with_batch", lambda *given, **named: planned.append(given) or plain(*given, **named))
    for rng, count in ((1, 1), (2, 1), (None, 1), (np.random.default_rng(3), 2)):
        gb.backward(network, CE, X, Y, q.KFAC(), rng=rng)
        assert len(planned) == count
    assert len(ran) == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("part", "shape"), [(layers.Select(-1, 0), (45, 2)), (layers.Slice(1, 0, None, 2), (90,))])
def test_what_is_written_of_exact_sums_gives_the_bits_of_others(part, shape, dtype, ran, monkeypatch):
    """Sums of integers are the same in any order, so that the first call does not tell how they were computed."""
    network, x = gb.Sequential(part, layers.Linear(45, 1), rng=0, dtype=dtype), np.empty((2, *shape), dtype)
    given = losses.MSELoss(), x, np.zeros((2, 1), dtype)
    for value in (x, *network.parameters.values()):
        value[...] = RNG.integers(-2, 3, value.shape)
    gb.backward(network, *given)
    for _ in range(5):
        for value in (x, *network.parameters.values()):
            value[...] = RNG.standard_normal(value.shape)
        assert outcome(gb.backward, network, *given) == outcome(partial(swept, monkeypatch), network, *given)
    assert len(ran) == 5


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


def bits(value):
    """All arrays in a result with their order in memory, as bytes; NaN is NaN."""
    if isinstance(value, np.ndarray | np.generic):
        strides = [stride for stride, n in zip(value.strides, value.shape, strict=True) if n > 1]
        return value.dtype, value.shape, strides, np.where(value != value, np.nan, value).tobytes()
    parts = value if isinstance(value, dict | list) else getattr(value, "__dict__", None)
    if isinstance(value, q.Quantity | losses.Loss) or parts is None:
        return value
    return type(value), [bits(part) for part in (parts.values() if isinstance(parts, dict) else parts)]


def outcome(call, *given, **options):
    """The bits of a result, or its error; and the kinds of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = bits(call(*given, **options))
        except ValueError as error:
            found = str(error)
    return found, {str(each.message) for each in caught}


def extremes(x):
    """Batches with ties, zeros, dead units, and numbers at the ends of the range."""
    ends = np.finfo(x.dtype)
    yield from (-x, 0 * x, np.ones_like(x), np.repeat(x[:1], len(x), 0), np.round(2 * x), x * ends.tiny / 4)
    yield from (1e4 * x, x * ends.max ** x.dtype.type(0.6), np.where(x > 0.5, np.nan, x), np.where(x > 0.5, np.inf, x))


KINDS = [*{kind for name, kind in SHIPPED.items() if name != "kronecker_error"}, lambda: q.KFAC(joint_bias=True)]


@settings(max_examples=settings().max_examples // 2)
@given(problems() | graph_problems(), st.lists(st.sampled_from(KINDS), max_size=3, unique=True), st.booleans())
def test_drawn_calls_give_the_same_to_every_bit(case, kinds, single):
    dtype = "float32" if single else "float64"
    network = case.network.astype(dtype)
    x, y = (each.astype(dtype) if each.dtype.kind == "f" else each for each in (case.x, case.y))
    asked = []
    for kind in kinds:
        with suppress(gb.UnsupportedError, ValueError):
            make_plan(network, case.loss, x, y, [kind()], 0)
            asked.append(kind())
    given = [network, case.loss, x, y, *asked]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "AFTER", 1)
        outcome(gb.backward, *given, rng=0)
        for parameter in network.parameters.values():
            parameter *= 1.25
        for other in extremes(x):
            given[2] = other.astype(x.dtype)
            assert outcome(gb.backward, *given, rng=1) == outcome(partial(swept, patch), *given, rng=1)


def test_a_class_of_jacobians_that_changes_ends_a_call(ran, monkeypatch):
    network = mlp()
    for _ in range(2):
        gb.backward(network, CE, X, Y, q.BatchL2Grad())
    assert len(ran) == 1
    monkeypatch.setattr(Outer, "own", lambda self: None, raising=False)
    gb.backward(network, CE, X, Y, q.BatchL2Grad())
    assert len(ran) == 1


def test_parameters_in_another_order_are_swept(ran, monkeypatch):
    network = mlp()
    gb.backward(network, CE, X, Y)
    values = network.layers[1].parameters
    values["weight"] = np.asfortranarray(values["weight"])
    assert outcome(gb.backward, network, CE, X, Y) == outcome(partial(swept, monkeypatch), network, CE, X, Y)
    assert not ran


@pytest.mark.parametrize("turned", [X[::-1], X[:, :, :, ::-1], np.repeat(X, 2, 3)[..., ::2]], ids=["rows", "x", "gaps"])
def test_batches_with_gaps_or_turned_are_swept(turned, ran):
    network = mlp()
    for _ in range(3):
        gb.backward(network, CE, turned, Y)
    assert not ran


WRONG = [
    (CE, np.array([0, 1, 2, 0, 1, -1])), (CE, np.array([0, 1, 2, 0, 1, 9])),
    (losses.MSELoss(), np.full((6, 3), np.nan)), (losses.PoissonNLLLoss(), np.full((6, 3), -1.0)),
    (losses.BCEWithLogitsLoss(), np.full((6, 3), 1.5)),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "wrong"), WRONG, ids=str)
def test_targets_of_a_written_call_are_checked(loss, wrong, ran):
    network, right = mlp(), np.clip(np.nan_to_num(wrong, nan=0.5), 0, 1)
    for _ in range(3):
        gb.backward(network, loss, X, right)
    assert ran
    messages = []
    for function in (gb.backward, gb.reference):
        with pytest.raises(ValueError, match=r"^y of ") as caught:
            function(network, loss, X, wrong)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_memory_that_runs_out_ends_in_a_sweep(monkeypatch):
    network = mlp()
    want = gb.backward(network, CE, X, Y)

    def full(*given, **named):
        raise MemoryError

    monkeypatch.setattr(WrittenCall, "__call__", full)
    common.assert_same(gb.backward(network, CE, X, Y), want, 0)


def test_a_written_call_keeps_neither_network_nor_batch(ran):
    network, x = mlp(), X.copy()
    for _ in range(2):
        gb.backward(network, CE, x, Y, q.KFAC(), rng=0)
    assert ran
    ran.clear()
    seen = [weakref.ref(each) for each in (network, x, network.layers[1].parameters["weight"])]
    del network, x
    gc.collect()
    assert [each() for each in seen] == [None] * 3


def test_results_stay_when_batch_and_parameters_change(ran):
    network, x = mlp(layers.ReLU), X.copy()
    for _ in range(2):
        found = gb.backward(network, CE, x, Y, q.BatchGrad(), q.KFLR())
    before = bits(found)
    x *= 3
    for parameter in network.parameters.values():
        parameter *= 3
    gb.backward(network, CE, x, Y, q.BatchGrad(), q.KFLR())
    assert bits(found) == before
    assert len(ran) == 2


@pytest.mark.parametrize("layer", [layers.Flatten(), layers.Identity(), layers.Permute((0, 1)), layers.Dropout(0.0)])
def test_outputs_share_no_memory_with_the_input(layer, ran):
    network, x = gb.Sequential(layer, dtype="float64"), X.reshape(6, 36)
    for _ in range(2):
        found = gb.backward(network, losses.MSELoss(), x, 2 * x, wrt="x")
        assert not np.may_share_memory(found.output, x)
        np.testing.assert_array_equal(found.output, x)
    assert len(ran) == 1


@pytest.mark.parametrize("change", ["frozen", "p", "container", "copy"])
def test_changes_of_the_network_are_seen(change, ran, monkeypatch):
    dropout = layers.Dropout(0.5)
    network = gb.Sequential(layers.Flatten(), layers.Linear(36, 5), dropout, layers.Linear(5, 3), rng=0)
    x = X.astype("float32")
    for seed in (0, 1):
        gb.backward(network, CE, x, Y, rng=seed, training=True)
    assert len(ran) == 1
    if change == "frozen":
        network.freeze("1.weight")
    elif change == "p":
        dropout.p = 0.25
    elif change == "container":
        network.children["2"] = layers.Identity()
        network.layers = tuple(network.children.values())
    else:
        network = pickle.loads(pickle.dumps(network))
    given, options = (network, CE, x, Y), {"rng": 2, "training": True}
    assert outcome(gb.backward, *given, **options) == outcome(partial(swept, monkeypatch), *given, **options)
    assert len(ran) == 1


def test_errors_of_arithmetic_are_treated_as_the_call_asks(ran):
    network = mlp(layers.ReLU)
    for _ in range(2):
        gb.backward(network, losses.MSELoss(), X, np.zeros((6, 3)))
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        gb.backward(network, losses.MSELoss(), X * 1e200, np.zeros((6, 3)))
    assert len(ran) == 1


@pytest.mark.parametrize("mode", ["call", "log", "warn"])
def test_underflow_is_reported_as_the_caller_asks(mode, ran):
    """NumPy's "log" writes to an object; what computes a call notes other errors in the meantime."""
    network, said = mlp(), []
    network.parameters["1.weight"][:] *= 1e4  # σ of some numbers underflows

    class Log:
        def __call__(self, kind, flag):
            said.append(kind)

        def write(self, text):
            said.append(text)

    for _ in range(3):
        said.clear()
        with warnings.catch_warnings(record=True) as caught, np.errstate(under=mode, call=Log()):
            warnings.simplefilter("always")
            gb.backward(network, CE, X, Y)
        assert (len(said) if mode != "warn" else len(caught)) > 0
        assert not ran
    with np.errstate(under="ignore"):
        gb.backward(network, CE, X, Y)
    assert ran


def test_a_factor_that_is_a_product_is_bounded_by_its_own_squares(ran):
    """x and W₁ are well within the range, and so is each entry of h = x W₁; Σ g h of 150 samples is not."""
    parts = [layers.Linear(1, 400, bias=False), layers.Linear(400, 400, bias=False)]
    network, loss = gb.Sequential(*parts, rng=0), losses.MSELoss("sum")
    x, y = np.ones((150, 1), "f4"), np.zeros((150, 400), "f4")
    gb.backward(network, loss, x, y)
    one, other = network.parameters.values()
    one[:], other[:] = 0, 0
    one[399], other[0, 399] = 4e18, 1e-27
    with pytest.warns(NotFiniteWarning, match=r"gradient of 1\.weight"), np.errstate(over="ignore"):
        gb.backward(network, loss, x * np.float32(3e17), y)


def test_constants_beyond_the_range_are_reported_in_each_call(ran):
    network = gb.Sequential(layers.Linear(6, 6), layers.Threshold(1e300, 0.5), rng=0)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gb.backward(network, losses.MSELoss(), np.ones((4, 6), "f4"), np.zeros((4, 6), "f4"))
        assert "overflow encountered in cast" in {str(each.message) for each in caught}


def test_x_is_refused_before_the_target(ran):
    network = mlp()
    gb.backward(network, CE, X, Y)
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        gb.backward(network, CE, np.full_like(X, np.nan), Y + 9)


def test_calls_with_weights_are_swept(ran, monkeypatch):
    network, weights = mlp(), np.arange(6.0)
    gb.backward(network, CE, X, Y)
    found = gb.backward(network, CE, X, Y, sample_weight=weights)
    common.assert_same(found, swept(monkeypatch, network, CE, X, Y, sample_weight=weights), 0)
    assert not ran


@pytest.mark.parametrize("early", [False, True])
def test_a_function_of_a_module_that_is_replaced_counts(early, ran, monkeypatch):
    network, softmax = mlp(), LOSS.exponentials

    def flatter(f):
        return softmax(f / 2)

    for replaced in (early, True, False):
        with monkeypatch.context() as patch:
            if replaced:
                patch.setattr(LOSS, "exponentials", flatter)
            for _ in range(3):
                found, want = (call(network, CE, X, Y, q.DiagGGN()) for call in (gb.backward, gb.reference))
                common.assert_same(found, want, 1e-12)
    assert bool(ran) is not early  # what somebody else wrote is called each time


def test_a_function_of_a_module_that_is_gone_counts(monkeypatch):
    functions = Functions([losses.CrossEntropyLoss])
    assert not functions.changed()
    monkeypatch.delattr(LOSS, "exponentials")
    assert functions.changed()


CONVENTIONS = [q.KFAC(sharing="reduce"), q.EKFAC(), q.NearestKronecker()]


@pytest.mark.parametrize("asked", CONVENTIONS, ids=str)
def test_a_convention_is_that_with_which_a_quantity_was_made(asked):
    with pytest.raises(AttributeError, match="joint_bias: expected no change after it was made"):
        asked.convention.joint_bias = True
    copied = pickle.loads(pickle.dumps(asked))
    assert copied.convention == asked.convention


PLACES = {
    "take": ({"indices": [0, 1, 4], "axis": 1}, ("h",)),
    "gather": ({"places": [[0, 1, 4]]}, ("h",)),
    "scatter_add": ({"places": [0, 1, 2, 2, 1], "shape": (3,)}, ("h",)),
    "index_add": ({"indices": [0, 1, 3], "axis": 1}, ("h", "more")),
    "index_add of arrays": ({"indices": np.array([0, 1, 3]), "axis": 1}, ("h", "more")),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_in_a_list_of_an_option_may_change(name, monkeypatch):
    options, sources = pickle.loads(pickle.dumps(PLACES[name]))
    nodes = {node: (layers.Linear(36, {"h": 5, "more": 3}[node]), "input") for node in sources}
    nodes |= {"all": (layers.Operation(name.partition(" ")[0], **options), *sources), "y": (layers.Flatten(), "all")}
    network, flat = gb.Graph(nodes, rng=0, dtype="float64"), X.reshape(6, 36)
    key = next(iter(options))
    for place in (None, 2, 0):
        if place is not None:
            row = options[key][0] if name == "gather" else options[key]
            row[1] = place
        for _ in range(3):
            found, want = (call(network, CE, flat, Y, q.DiagGGN()) for call in (gb.backward, gb.reference))
            common.assert_same(found, want, 1e-12)


def cubes(output, target):
    return (np.abs(output - target) ** 3).sum(1)


ON_ARRAYS = [
    lambda a: a.T, lambda a: a.mT, lambda a: a.real, lambda a: a.transpose(1, 2, 0), lambda a: a.swapaxes(0, 2),
    lambda a: a.reshape(6, 4), lambda a: a[:, :1].squeeze(1), lambda a: a.T.ravel(), lambda a: a.diagonal(0, 1, 2),
    lambda a: a.astype("f4"), lambda a: a.copy(), lambda a: a.flatten(), lambda a: a.repeat(2, axis=1),
    lambda a: a.take([1, 0], axis=1), lambda a: a.argmax(1), lambda a: a.argmin(2), lambda a: a.cumsum(0),
    lambda a: np.stack(a.nonzero()), lambda a: a.dot(a[0].T), lambda a: a.sum(1, keepdims=True), lambda a: a.prod(0),
    lambda a: a.max((0, 2)), lambda a: a.min(), lambda a: a.mean(-1), lambda a: (a > 0).any(0), lambda a: (a > 0).all(),
    lambda a: a.clip(-0.5, 0.5), lambda a: np.add.reduce(a, 1), lambda a: np.concatenate([*a], 1), lambda a: -a / 3 + a,
    lambda a: np.multiply(a, 2, out=np.add(a, 1)), lambda a: np.where(a > 0, a, 1), lambda a: np.einsum("ijk->kj", a),
]  # fmt: skip


@pytest.mark.parametrize("function", ON_ARRAYS)
def test_what_is_written_down_is_what_numpy_computes(function):
    x, statements = RNG.standard_normal((2, 2, 3, 4)), Statements(Written)
    found = function(statements.array(x[0], "a"))
    np.testing.assert_array_equal(plain(found), function(x[0]), strict=True)
    exec(statements.function(["a"], found.name, [found.name], statements.lines), statements.scope)
    np.testing.assert_array_equal(statements.scope["run"](x[1]), function(x[1]), strict=True)


def in_place(a):
    b, c = np.add(a, 1), np.add(a, 1)
    np.multiply(b, 2, out=b)
    return [b - 1, c - 1]


def written_between(a):
    b = np.add(a, 1)
    c = np.exp(b)
    np.multiply(b, 2, out=b)
    return [c - 1, np.exp(b) - 1]


def views_of_equal_ones(a):
    b, c = np.add(a, 1), np.add(a, 1)
    return [b[0] * 2, c[0] * 2, c[1] - 1, np.copy(c.reshape(-1))]


def written_views(a):
    b = np.add(a, 1)
    np.negative(b[0], out=b[0])
    return [b[0] * 2, np.add(a, 1) * 2]


def in_the_caller(a):
    with np.errstate(over="ignore"):
        b = np.exp(a)
    return [b - 1, np.exp(a) - 1]


def returned(a):
    return [np.exp(a), np.exp(a)]


def large(a):
    b = np.matmul(a, a.swapaxes(1, 2)) * 2
    c = np.empty_like(b[:, 0])
    np.add(b[:, :, 0], b[:, 0], out=c)
    d = np.exp(c)
    return [d + 1, np.add(a, a, dtype="f4"), b.sum(0), (a > 0)[0]]


def test_statements_take_what_is_large_and_no_result(monkeypatch):
    """Of eight arrays that are made, four are results, or a view of one."""
    x, statements = RNG.standard_normal((2, 2, 3, 5)), Statements(Written)
    found = [each.named for each in large(statements.array(x[0], "a"))]
    names, memory = [each.name for each in found], {each.memory for each in found}
    for least, count in ((1, 4), (2 * 3 * 3 * 8, 2), (2 * 3 * 3 * 8 + 1, 0)):
        monkeypatch.setattr(reused, "LEAST", least)
        lines = [*reused.in_arena(statements.lines, memory)]
        statements.names[reused.taken] = reused.TAKE
        exec(statements.function(["a", "take"], f"[{', '.join(names)}]", names, lines), statements.scope)
        taken = [np.full((2, 3, 3), 7.0), np.full((2, 3, 3), 7.0), np.full((2, 3), 7.0), np.full((2, 3), 7.0)]
        left = iter(taken)
        got = statements.scope["run"](x[1], lambda shape, dtype, left=left: next(left))
        for each, want in zip(got, large(x[1]), strict=True):
            np.testing.assert_array_equal(each, want, strict=True)
            assert not any(np.may_share_memory(each, array) for array in taken)
        assert len([*left]) == len(taken) - count


LEFT_OUT = {in_place: 0, written_between: 0, views_of_equal_ones: 2, written_views: 0, in_the_caller: 0, returned: 0}


@pytest.mark.parametrize(("function", "count"), LEFT_OUT.items())
def test_statements_are_left_out_only_where_equal_ones_give_the_same(function, count):
    x, statements = RNG.standard_normal((2, 2, 3)), Statements(Written)
    with np.errstate(**ERRORS, call=lambda *error: None):
        found = [each.named for each in function(statements.array(x[0], "a"))]
    lines = without_repeats(statements.lines, statements, {each.memory for each in found})
    names = [each.name for each in found]
    exec(statements.function(["a"], f"[{', '.join(names)}]", names, lines), statements.scope)
    for each, want in zip(statements.scope["run"](x[1]), function(x[1]), strict=True):
        np.testing.assert_array_equal(each, want, strict=True)
    assert len(statements.lines) - len(lines) == count


@pytest.mark.parametrize(("name", "asked"), EACH, ids=str)
def test_numbers_beyond_the_range_are_found_in_each_array(name, asked, ran, monkeypatch):
    make, x = NETWORKS[name]
    network = make()
    gb.backward(network, CE, x, Y, *asked, rng=1)
    for parameter in network.parameters.values():
        largest = float(np.finfo(parameter.dtype).max)
        for value in (np.nan, np.inf, -np.inf, largest**0.6, -0.9 * largest):
            place = RNG.integers(parameter.size)
            before, parameter.flat[place] = parameter.flat[place], value
            given = network, CE, x, Y, *asked
            assert outcome(gb.backward, *given, rng=2) == outcome(partial(swept, monkeypatch), *given, rng=2)
            parameter.flat[place] = before
    gb.backward(network, CE, x, Y, *asked, rng=1)
    assert ran


def test_weights_are_looked_at_by_their_products():
    """Of a call with one sample x, outputs and gradients are read for NaN: no 30 · 40 numbers, no positive part."""
    network, looked = gb.Sequential(layers.Linear(40, 30), layers.ReLU(), rng=0, dtype="float64"), []
    loss, x, y = losses.MSELoss(), np.ones((1, 40)), np.zeros((1, 30))
    for _ in range(2):
        gb.backward(network, loss, x, y)
    (found,) = driver._CALLS.of[network].values()
    names = [name for name, value in found.written.run.__globals__.items() if value is np.vdot]
    found.written.run.__globals__[names[0]] = lambda a, b: looked.append(a.size) or np.vdot(a, b)
    gb.backward(network, loss, x, y)
    assert 0 < sum(looked) <= 40 + 2 * 30
    assert len(names) == 1


@pytest.mark.parametrize("leaves_out", [False, True])
def test_a_product_that_leaves_out_zeros_is_no_look_at_a_factor(leaves_out):
    """A BLAS may multiply no weight by 0: NaN in it has no effect on the outputs."""

    def run(x, y, w):
        terms = np.multiply(x, w, where=x != 0, out=np.zeros_like(w)) if leaves_out else x * w
        return 0.0, terms, {}, [], np.vdot(x, x), np.vdot(terms, terms)

    call = object.__new__(WrittenCall)
    call.run, call.context = run, NO_CONTEXT
    assert call._notices([np.ones(3), np.arange(3), np.ones(3)]) is not leaves_out


def test_where_a_product_leaves_out_zeros_each_number_is_looked_at(ran, monkeypatch):
    """Stands for a BLAS that multiplies no weight by a 0 of x: a weight that is NaN has no effect there."""
    network, found = mlp(), WrittenCall._found
    monkeypatch.setattr(WrittenCall, "_notices", lambda self, arrays: False)
    monkeypatch.setattr(WrittenCall, "_found", lambda self, arrays: found(self, [*map(np.nan_to_num, arrays)]))
    for _ in range(3):
        gb.backward(network, CE, X, Y)
    assert ran
    network.parameters["1.weight"][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"parameter 1.weight: expected finite numbers"):
        gb.backward(network, CE, X, Y)


def test_a_warning_is_of_the_line_that_calls(ran):
    network, x = gb.Sequential(layers.Linear(4, 3), rng=0), np.full((1, 4), 1e25, "float32")
    for _ in range(3):
        with np.errstate(over="ignore"), pytest.warns(NotFiniteWarning) as caught:
            gb.backward(network, losses.MSELoss(), x, np.zeros((1, 3), "float32"))
        assert {each.filename for each in caught} == {__file__}
        gb.backward(network, losses.MSELoss(), np.ones_like(x), np.zeros((1, 3), "float32"))
    assert len(ran) == 3


def test_layers_inside_a_loss_may_change(ran):
    y = RNG.standard_normal((6, 3))
    network, loss = mlp(), gb.trace_loss(cubes, y, y)
    power = next(layer for layer in loss.graph.children.values() if layer.describe().startswith("'power'"))
    for exponent in (3, 4):
        power.options["exponent"] = exponent
        for _ in range(3):
            found, want = (call(network, loss, X, y) for call in (gb.backward, gb.reference))
            common.assert_same(found, want, 1e-12)
    assert len(ran) == 4


def test_an_array_of_another_text_is_not_written():
    one, other = Statements(Written), Statements(Written)
    x = one.array(np.ones(3), "x")
    assert one.text(one.refs(x)) == "x"
    with pytest.raises(CannotWriteError, match="made outside"):
        other.refs(x)
