"""Memory from one call to the next: of large results when the last view of them is gone, and none of it in results."""

import gc

import numpy as np
import pytest
from common import batch, chain, flat

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import blocks, costs, memory
from gbackprop.engine.memory import LEAST_RESULT, LEAST_REUSED, Reused, compact, idle_bytes, result_array
from gbackprop.engine.rows import Rows

SIZE = LEAST_RESULT // 4  # float32


pytestmark = pytest.mark.usefixtures("nothing_idle")


def address(array):
    return array.__array_interface__["data"][0]


def result(*shape):
    return result_array(shape, "float32")


def test_memory_is_reused_when_the_last_view_is_gone():
    array = result(SIZE)
    first, view = address(array), array.reshape(2, -1)[1][3:]
    view[...] = 7
    del array
    other = result(SIZE)
    other[...] = 1
    assert address(other) != first
    assert (view == 7).all()
    del view, other
    gc.collect()
    assert idle_bytes() == 2 * LEAST_RESULT
    both = [result(SIZE) for _ in range(2)]
    assert first in map(address, both)
    assert not np.may_share_memory(*both)
    assert idle_bytes() == 0


def test_pieces_fit():
    large = result(3 * SIZE)
    assert large.nbytes == 3 * LEAST_RESULT
    del large
    small = result(SIZE)  # would keep three times what it needs
    assert idle_bytes() == 3 * LEAST_RESULT
    larger = result(4 * SIZE)
    assert idle_bytes() == 3 * LEAST_RESULT
    del larger
    again = result(3 * SIZE)
    del again  # idle after the larger one
    fitting = result(SIZE, 2)  # the smaller of two that would do
    assert (fitting.shape, fitting.dtype) == ((SIZE, 2), np.float32)
    assert idle_bytes() == 4 * LEAST_RESULT
    assert not np.may_share_memory(fitting, small)


def test_what_is_idle_is_bounded(monkeypatch):
    monkeypatch.setattr(memory, "IDLE_BYTES", 2 * LEAST_RESULT)
    in_use = [result(SIZE) for _ in range(3)]
    last = address(in_use[2])
    while in_use:
        in_use.pop(0)
    assert idle_bytes() == 2 * LEAST_RESULT
    large = result(2 * SIZE)
    del large  # what came last stays, whatever the sizes
    assert [piece.nbytes for piece in memory._idle_results.values()] == [2 * LEAST_RESULT]
    assert last not in [address(piece) for piece in memory._idle_results.values()]
    gb.free_memory()
    assert idle_bytes() == 0
    for size in (3 * SIZE, SIZE - 1):  # never stay: too large, and too small to matter
        result(size)
        assert idle_bytes() == 0


def test_pieces_are_few(monkeypatch):
    """Else a search among many small ones would take longer than new memory."""
    monkeypatch.setattr(memory, "IDLE_PIECES", 3)
    in_use = [result_array((LEAST_REUSED,), np.uint8, 1) for _ in range(5)]
    last = address(in_use[4])
    while in_use:
        del in_use[0]
    assert len(memory._idle_results) == 3
    assert last in [address(piece) for piece in memory._idle_results.values()]


def test_temporary_arrays_of_operators_take_the_memory_of_deleted_ones():
    reused, like = Reused(), np.zeros((2, LEAST_REUSED // 8), np.float32)
    first = reused.multiply(like, like)
    there = address(first)
    np.testing.assert_array_equal(first, like)
    del first
    assert address(reused.empty(like, like.shape[::-1])) == there
    assert idle_bytes() == LEAST_REUSED
    small = reused.empty(like, (LEAST_REUSED // 4 - 1,))
    del small
    assert idle_bytes() == LEAST_REUSED


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_sums_and_products_in_the_memory_of_deleted_arrays(order):
    rng, reused = np.random.default_rng(0), Reused()
    a, b = (rng.standard_normal((64, 32, 40)).transpose(order) for _ in range(2))
    for _ in range(2):
        for name, want in (("add", a + b), ("multiply", a * b)):
            found = getattr(reused, name)(a, b)
            np.testing.assert_array_equal(found, want)
            assert (found.strides, found.base is None) == (a.strides, False)


def test_what_is_idle_is_given_back_before_memory_is_short(monkeypatch):
    array = result(3 * SIZE)
    del array
    new = np.empty

    def short(shape, dtype):
        if idle_bytes():
            raise MemoryError
        return new(shape, dtype)

    monkeypatch.setattr(np, "empty", short)
    assert result(SIZE).nbytes == LEAST_RESULT
    assert idle_bytes() == LEAST_RESULT  # that one


def test_compact_arrays_have_each_number_once_side_by_side():
    x = np.zeros((2, 3, 4))
    spread = np.lib.stride_tricks.as_strided(np.zeros(6), (2, 3), (40, 0))  # first to last, as many bytes as in all
    for yes in (x, x.transpose(2, 0, 1), x[:1], x[1:, :, None], np.zeros(())):
        assert compact(yes)
    for no in (x[..., :3], x[:, ::2], np.broadcast_to(x[0], x.shape), spread):
        assert not compact(no)


# --------------------------------------------------------------------------------------------------------------- calls


def sweep(**options):
    net = chain(layers.Linear(300, 200), layers.ReLU(), layers.Linear(200, 10), dtype="float32")
    x, y = batch(40, 300, classes=10, dtype="float32")
    return gb.backward(net, losses.CrossEntropyLoss(), x, y, q.BatchGrad(), **options)["batch_grad"]


@pytest.mark.parametrize("options", [{}, {"sample_block": 7, "workers": 2}])
def test_results_reuse_memory_of_results_that_are_gone_alone(options):
    first = sweep(**options)
    copy, place = {name: value.copy() for name, value in first.items()}, address(first["0.weight"])
    second = sweep(**options)
    assert address(second["0.weight"]) != place
    del second
    weight = first.pop("0.weight")
    np.testing.assert_array_equal(weight, copy["0.weight"])
    del weight
    assert idle_bytes() == 2 * copy["0.weight"].nbytes
    third, fourth = sweep(**options), sweep(**options)
    assert place in {address(third["0.weight"]), address(fourth["0.weight"])}
    assert idle_bytes() == 0
    for name, value in copy.items():
        np.testing.assert_array_equal(third[name], value)
        np.testing.assert_array_equal(fourth[name], value)


def test_a_call_with_a_budget_leaves_nothing():
    sweep(memory="1GiB")
    assert idle_bytes() == 0


@pytest.mark.parametrize("samples", [1, 3])
def test_rows_of_a_convolution_lie_side_by_side(samples):
    net = chain(layers.Conv2d(256, 128, 3), layers.Flatten(), layers.Linear(128, 2), dtype="float32")
    x, y = batch(4, 256, 3, 3, classes=2, dtype="float32")
    found = gb.backward(net, losses.CrossEntropyLoss(), x, y, q.BatchGrad(), sample_block=samples, workers=1)
    each = found["batch_grad"]["0.weight"]
    assert each.nbytes >= LEAST_RESULT
    assert all(row.strides == each[0].strides and compact(row) for row in each)
    np.testing.assert_allclose(each.sum(0), found.gradient["0.weight"], rtol=1e-4, atol=1e-6)


def test_each_row_lies_side_by_side_whatever_the_strides_of_the_first():
    like = np.lib.stride_tricks.as_strided(np.zeros(12, np.float32), (1, 3, 4), (0, 4, 12))
    place = Rows(SIZE, reuse=True).place("key", slice(0, 2), like)
    assert (place.shape, place.strides) == ((2, 3, 4), (48, 4, 12))


# -------------------------------------------------------------------------------------------------- calls and arenas


def call(samples, width=32, size=20, **options):
    """By 20 pixels, 4 x 4 are left; by 12, 2 x 2."""
    net = chain(
        layers.Conv2d(3, width, 3), layers.ReLU(), layers.ZeroPad2d((0, 1, 0, 1)), layers.MaxPool2d(3, 2),
        layers.Conv2d(width, width, 3, padding=1), layers.Sigmoid(), layers.AvgPool2d(2), layers.Conv2d(width, 8, 1),
        layers.Tanh(), layers.Flatten(), layers.Linear(8 * (size // 4 - 1) ** 2, 10), dtype="float32",
    )  # fmt: skip
    x, y = batch(samples, 3, size, size, classes=10, dtype="float32")
    return gb.backward(net, losses.CrossEntropyLoss(), x, y, *options.pop("asked", []), **options)


ASKED = [
    getattr(q, name)()
    for name in ("BatchGrad", "BatchL2Grad", "SecondMoment", "Variance", "DiagGGN", "DiagHessian", "KFLR")
]


def arrays(result):
    found = {"output": result.output, "loss": result.loss, **{f"gradient {k}": v for k, v in result.gradient.items()}}
    return found | {f"{each} {key}": part for each in ASKED for key, part in flat(result[each]).items()}


@pytest.mark.parametrize(("block", "workers"), [(2, 1), (2, 3), (6, 1)])
def test_results_have_nothing_that_was_there_before_and_nothing_of_an_arena(block, workers, monkeypatch):
    options = {"asked": ASKED, "sample_block": block, "column_block": 40, "workers": workers, "width": 6, "size": 12}
    monkeypatch.setattr(costs, "TILED_CHANNELS", 1)
    monkeypatch.setattr(costs, "TILED_POSITIONS", 1)
    monkeypatch.setattr(blocks, "REUSED_BYTES", 1)
    monkeypatch.setattr("gbackprop.engine.arena.LEAST_ARRAY", 1)  # the outputs, too
    for _ in range(4):  # until they have settled
        first = arrays(call(6, **options))
    assert any(one.nbytes for one in memory.idle_arenas)
    for one in memory.idle_arenas:
        for slab in one._slabs:
            np.frombuffer(slab, np.uint8)[...] = 0xFF  # NaN, in either precision
            assert not any(np.may_share_memory(np.frombuffer(slab, np.uint8), value) for value in first.values())
    for name, value in arrays(call(6, **options)).items():
        np.testing.assert_array_equal(value, first[name], err_msg=name)


@pytest.mark.parametrize(
    ("samples", "options", "used"),
    [
        (6, {"sample_block": 2}, True),
        (6, {"sample_block": 2, "memory": "1GiB"}, False),
        (2, {}, False),
        (2, {"asked": ASKED[4:5]}, True),  # the stack of ten columns is large
        (6, {}, True),
        (6, {"memory": "1GiB"}, False),
    ],
)
def test_calls_with_large_arrays_use_arenas_unless_they_have_a_budget(samples, options, used):
    call(samples, **options)
    assert (idle_bytes() > 0) == used
