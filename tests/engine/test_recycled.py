"""Memory of large results: it comes back when nobody looks at it, and not before."""

import gc

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses, recycled, scratch
from gbackprop import quantities as q
from gbackprop.rows import Rows

SIZE = recycled.LEAST_BYTES // 4  # float32


pytestmark = pytest.mark.usefixtures("nothing_waits")


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_back_when_the_last_view_is_gone():
    array = recycled.empty((SIZE,), "float32")
    first, view = address(array), array.reshape(2, -1)[1][3:]
    view[...] = 7
    del array
    other = recycled.empty((SIZE,), "float32")
    other[...] = 1
    assert address(other) != first
    assert (view == 7).all()
    del view, other
    gc.collect()
    assert recycled.waiting_bytes() == 2 * recycled.LEAST_BYTES
    both = [recycled.empty((SIZE,), "float32") for _ in range(2)]
    assert first in map(address, both)
    assert not np.may_share_memory(*both)
    assert recycled.waiting_bytes() == 0


def test_pieces_fit():
    large = recycled.empty((3 * SIZE,), "float32")
    assert large.nbytes == 3 * recycled.LEAST_BYTES
    del large
    small = recycled.empty((SIZE,), "float32")  # would hold on to three times what it needs
    assert recycled.waiting_bytes() == 3 * recycled.LEAST_BYTES
    larger = recycled.empty((4 * SIZE,), "float32")
    assert recycled.waiting_bytes() == 3 * recycled.LEAST_BYTES
    del larger
    again = recycled.empty((3 * SIZE,), "float32")
    del again  # waits after the larger one
    fitting = recycled.empty((SIZE, 2), "float32")  # the smaller of two that would do
    assert (fitting.shape, fitting.dtype) == ((SIZE, 2), np.float32)
    assert recycled.waiting_bytes() == 4 * recycled.LEAST_BYTES
    assert not np.may_share_memory(fitting, small)


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(recycled, "KEPT_BYTES", 2 * recycled.LEAST_BYTES)
    held = [recycled.empty((SIZE,), "float32") for _ in range(3)]
    last = address(held[2])
    while held:
        held.pop(0)
    assert recycled.waiting_bytes() == 2 * recycled.LEAST_BYTES
    large = recycled.empty((2 * SIZE,), "float32")
    del large  # what came last is kept, whatever the sizes
    assert [memory.nbytes for memory in recycled._waiting.values()] == [2 * recycled.LEAST_BYTES]
    assert last not in [address(memory) for memory in recycled._waiting.values()]
    scratch.free()
    assert recycled.waiting_bytes() == 0
    for size in (3 * SIZE, SIZE - 1):  # never kept: too large, and too small to matter
        recycled.empty((size,), "float32")
        assert recycled.waiting_bytes() == 0


def sweep(**options):
    net = gb.Sequential(layers.Linear(300, 200), layers.ReLU(), layers.Linear(200, 10), rng=0, dtype="float32")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 300), dtype=np.float32), rng.integers(0, 10, 40)
    return gb.backward(net, losses.CrossEntropyLoss(), x, y, q.BatchGrad(), **options)["batch_grad"]


@pytest.mark.parametrize("options", [{}, {"sample_block": 7, "workers": 2}])
def test_results_take_what_results_left_and_keep_what_they_have(options):
    first = sweep(**options)
    copy, place = {name: value.copy() for name, value in first.items()}, address(first["0.weight"])
    second = sweep(**options)
    assert address(second["0.weight"]) != place
    del second
    weight = first.pop("0.weight")
    np.testing.assert_array_equal(weight, copy["0.weight"])
    del weight
    waiting = recycled.waiting_bytes()
    assert waiting == 2 * copy["0.weight"].nbytes
    third, fourth = sweep(**options), sweep(**options)
    assert place in {address(third["0.weight"]), address(fourth["0.weight"])}
    assert recycled.waiting_bytes() == 0
    for name, value in copy.items():
        np.testing.assert_array_equal(third[name], value)
        np.testing.assert_array_equal(fourth[name], value)


def test_a_call_with_a_budget_leaves_nothing():
    sweep(memory="1GiB")
    assert recycled.waiting_bytes() == 0


@pytest.mark.parametrize("samples", [1, 3])
def test_rows_of_a_convolution_lie_side_by_side(samples):
    net = gb.Sequential(layers.Conv2d(256, 128, 3), layers.Flatten(), layers.Linear(128, 2), rng=0, dtype="float32")
    x, y = np.random.default_rng(0).standard_normal((4, 256, 3, 3), dtype=np.float32), np.array([0, 1, 1, 0])
    result = gb.backward(net, losses.CrossEntropyLoss(), x, y, q.BatchGrad(), sample_block=samples, workers=1)
    each = result["batch_grad"]["0.weight"]
    assert each.nbytes >= recycled.LEAST_BYTES
    assert all(row.strides == each[0].strides and gb.array.compact(row) for row in each)
    np.testing.assert_allclose(each.sum(0), result.gradient["0.weight"], rtol=1e-4, atol=1e-6)


def test_what_waits_is_given_back_before_memory_is_short(monkeypatch):
    held = recycled.empty((3 * SIZE,), "float32")
    del held
    new = np.empty

    def short(shape, dtype):
        if recycled.waiting_bytes():
            raise MemoryError
        return new(shape, dtype)

    monkeypatch.setattr(np, "empty", short)
    assert recycled.empty((SIZE,), "float32").nbytes == recycled.LEAST_BYTES
    assert recycled.waiting_bytes() == recycled.LEAST_BYTES  # that one


def test_each_row_lies_side_by_side_whatever_the_strides_of_the_first():
    like = np.lib.stride_tricks.as_strided(np.zeros(12, np.float32), (1, 3, 4), (0, 4, 12))
    room = Rows(SIZE, reuse=True).room("key", slice(0, 2), like)
    assert (room.shape, room.strides) == ((2, 3, 4), (48, 4, 12))
