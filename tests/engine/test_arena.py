"""Memory that arrays of an arena leave to the next: nobody's numbers are written over, nobody sees what was before."""

import gc
import itertools
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop.engine import memory
from gbackprop.engine.arena import LEAST_ARRAY, SLAB_BYTES, Arena, arena, fresh
from gbackprop.engine.memory import Allocator, idle_bytes

LARGE = LEAST_ARRAY // 8
"""Numbers of the smallest array that an arena makes."""

HOST = np.zeros(1)


pytestmark = pytest.mark.usefixtures("nothing_idle")


def check_pieces(one):
    """What is free and what is in use lie side by side, and are all there is but for the alignment."""
    one._take_back()
    pieces = sorted([*one._free, *(place for _, place in one._used.values())])
    for (slab, _, stop), (after, start, _) in itertools.pairwise(pieces):
        assert slab < after or stop == start
    total = sum(stop - start for _, start, stop in pieces)
    assert 0 <= one.nbytes - total <= 128 * len(one._slabs)


def taken(one, size):
    """An array of so many bytes."""
    return one.empty(HOST, (size,), np.uint8)


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-8, -1)), max_size=40))
def test_arrays_that_are_in_use_share_nothing(steps):
    """Positive steps take an array of so many times the least size, negative ones drop the one that many back."""
    one, in_use = Arena(), []
    for i, step in enumerate(steps):
        if step > 0:
            array = one.empty(HOST, (step, LARGE))
            assert (array.flags.c_contiguous, array.flags.writeable, array.ctypes.data % 64) == (True, True, 0)
            array[...] = i
            in_use.append((i, array))
        elif len(in_use) >= -step:
            del in_use[step]
        array = None
        for value, known in in_use:
            assert (known == value).all()
        check_pieces(one)


def test_memory_of_what_is_dropped_is_reused():
    one = Arena()
    for size in [3, 1, 2, 3, 2, 1] * 20:
        array = one.empty(HOST, (size, LARGE))
        array[...] = 1
        del array
    assert one.nbytes < SLAB_BYTES + 1000


def test_a_view_keeps_its_piece_in_use():
    one = Arena()
    view = one.empty(HOST, (4, LARGE), np.float32).T[::2].reshape(-1, 2)[5:]
    view[...] = 7
    others = [one.empty(HOST, (n, LARGE)) for n in (1, 2, 4, 8)]
    for other in others:
        other[...] = 0
    assert (view == 7).all()


def test_neighbours_become_one_piece_again():
    one = Arena()
    small = [one.empty(HOST, (LARGE,)) for _ in range(SLAB_BYTES // LEAST_ARRAY)]
    assert one.nbytes < SLAB_BYTES + 1000
    del small
    whole = taken(one, SLAB_BYTES)
    assert whole.nbytes == SLAB_BYTES
    assert one.nbytes < SLAB_BYTES + 1000


def test_pieces_of_two_slabs_are_no_neighbours(monkeypatch):
    empty = np.empty

    def aligned(shape, dtype):  # both slabs start at the same place of theirs
        found = empty(shape + 64, np.uint8)
        return found[-found.ctypes.data % 64 :][:shape]

    monkeypatch.setattr(np, "empty", aligned)
    one, quarter = Arena(), SLAB_BYTES // 4
    in_use = [taken(one, quarter) for _ in range(8)]
    assert len(one._slabs) == 2
    in_use[1] = in_use[4] = None  # the second of one slab, the first of the other: one stops where the other starts
    both = taken(one, 2 * quarter)
    assert not any(np.may_share_memory(both, other) for other in in_use if other is not None)


def test_arrays_may_be_dropped_by_other_threads():
    one = Arena()

    def drop(arrays):
        while arrays:
            arrays.pop()

    for _ in range(20):
        threads = [Thread(target=drop, args=([one.empty(HOST, (LARGE,)) for _ in range(10)],))]
        for thread in threads:
            thread.start()
        one.empty(HOST, (LARGE,))
        for thread in threads:
            thread.join()
    gc.collect()
    one.empty(HOST, (LARGE,))
    assert len(one._used) == 1
    assert one.nbytes < SLAB_BYTES + 1000


def test_an_array_that_was_dropped_before_it_was_written_down():
    one = Arena()
    one._dropped.append(object())  # as after an interrupt between the two
    assert one.empty(HOST, (LARGE,)).nbytes == LEAST_ARRAY


def test_small_arrays_and_other_dtypes():
    one = Arena()
    for shape in ((0, 5), (), (LARGE - 1,)):
        one.empty(HOST, shape)
    assert one.nbytes == 0
    array = one.empty(HOST, (LARGE, 2), bool)
    assert (array.dtype, array.shape) == (bool, (LARGE, 2))


def test_a_large_slab_that_does_not_fit_is_asked_for_smaller(monkeypatch):
    one, empty = Arena(), np.empty
    one._needed = 100 * SLAB_BYTES

    def limited(shape, dtype):
        if np.prod(shape) > 2 * SLAB_BYTES:
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr(np, "empty", limited)
    assert taken(one, SLAB_BYTES).nbytes == SLAB_BYTES
    assert one.nbytes < SLAB_BYTES + 1000


@pytest.mark.parametrize("kind", [Allocator, Arena])
def test_all_methods(kind):
    rng, one = np.random.default_rng(0), kind()
    a, b = rng.standard_normal((3, 150, 170)), rng.standard_normal((3, 170, 190))
    wide = b[0].astype(np.complex128)
    last = rng.standard_normal((4, 30, 40, 50)).transpose(0, 3, 1, 2)
    like = one.empty_like(last, np.float32)
    assert (like.shape, like.dtype) == (last.shape, np.float32)
    assert like.transpose(0, 2, 3, 1).flags.c_contiguous  # as `last` lies
    turned = one.contiguous(last)
    assert turned.flags.c_contiguous
    assert one.contiguous(turned) is turned
    product = one.multiply(last, last[:1] > 0)
    assert product.transpose(0, 2, 3, 1).flags.c_contiguous
    found = [one.matmul(a, b), one.matmul(a[0], wide), turned, product]
    for got, want in zip(found, [a @ b, a[0] @ wide, last, last * (last[:1] > 0)], strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    assert kind is Allocator or one.nbytes > 0


def test_arrays_on_a_device_are_left_to_cupy(double):
    one, x = Arena(), double.ones((300, 300))
    found = [one.empty(x, (300, 300)), one.empty_like(x), one.matmul(x, x), one.multiply(x, x), one.contiguous(x.T)]
    assert all(isinstance(array, double.ndarray) for array in found)
    assert one.nbytes == 0
    np.testing.assert_array_equal(gb.asnumpy(found[2]), np.full((300, 300), 300.0))


# --------------------------------------------------------------------------------------------------------- idle arenas


def test_two_at_a_time_get_two():
    with arena() as one, arena() as other:
        assert one is not other
    with arena() as again, arena() as more:
        assert {id(again), id(more)} == {id(one), id(other)}


def test_what_is_too_large_does_not_stay(monkeypatch):
    monkeypatch.setattr(memory, "IDLE_BYTES", SLAB_BYTES + 1000)
    with arena(), arena() as inner:
        taken(inner, LEAST_ARRAY)
    assert idle_bytes() > 0
    gb.free_memory()
    assert idle_bytes() == 0
    with arena() as one:
        taken(one, 2 * SLAB_BYTES)
    assert idle_bytes() == 0


def test_what_stays_is_bounded_in_total(monkeypatch):
    monkeypatch.setattr(memory, "IDLE_BYTES", SLAB_BYTES + 1000)
    with arena() as one, arena() as other:
        for each in (one, other):
            taken(each, LEAST_ARRAY)
    assert idle_bytes() == other.nbytes
    with arena() as again:
        assert again is other


def test_what_would_be_too_large_does_not_stay(monkeypatch):
    monkeypatch.setattr(memory, "IDLE_BYTES", 3 * SLAB_BYTES)
    with arena() as one:
        in_use = [taken(one, SLAB_BYTES) for _ in range(4)]
        del in_use
    assert (one.nbytes, idle_bytes()) == (0, 0)
    with arena() as another:  # the first would have had one slab of 5 in place of several
        assert another is not one


def test_an_idle_arena_has_one_slab_of_what_was_needed():
    sizes = [SLAB_BYTES // 2, SLAB_BYTES, 2 * SLAB_BYTES, 3 * SLAB_BYTES]
    slabs = []
    for _ in range(4):
        with arena() as one:
            in_use = [taken(one, size) for size in sizes]
            slabs.append(len(one._slabs))
            del in_use
    assert slabs[0] > 1
    assert slabs[-1] == 1
    assert one.nbytes < 1.3 * sum(sizes)


def test_what_is_still_in_use_when_a_call_ends_is_not_written_over():
    with arena() as one:
        in_use = [taken(one, size) for size in (SLAB_BYTES, SLAB_BYTES, 4 * SLAB_BYTES)]
        for i, array in enumerate(in_use):
            array[...] = i
    with arena() as again:
        assert again is one
        taken(again, 8 * SLAB_BYTES)[...] = 9
        assert [array.min() for array in in_use] == [array.max() for array in in_use] == [0, 1, 2]
        array = None
        del in_use
        others = [taken(again, SLAB_BYTES) for _ in range(8)]
        for i, other in enumerate(others):
            other[...] = i
        assert [other.min() for other in others] == [other.max() for other in others] == list(range(8))
        check_pieces(again)


def test_an_arena_is_idle_again_after_an_error():
    with pytest.raises(ZeroDivisionError), arena() as one:
        raise ZeroDivisionError
    with arena() as again:
        assert again is one


def test_a_fresh_allocator_takes_nothing_of_an_arena():
    with arena() as one, fresh() as other:
        taken(other, SLAB_BYTES)
        assert one.nbytes == 0
