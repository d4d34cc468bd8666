"""Memory that arrays leave to the next: nobody's numbers are written over, and nobody sees what was there before."""

import gc
import itertools
from contextvars import copy_context
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses, quantities, scratch
from gbackprop.scratch import LEAST_BYTES, SLAB_BYTES, Scratch

LARGE = LEAST_BYTES // 8
"""Numbers of the smallest array that a scratch lends."""


pytestmark = pytest.mark.usefixtures("nothing_waits")


def check_pieces(lender):
    """What is free and what is lent lie side by side, and are all there is but for the alignment."""
    lender._take_back()
    pieces = sorted([*lender._free, *(place for _, place in lender._lent.values())])
    for (slab, _, stop), (after, start, _) in itertools.pairwise(pieces):
        assert slab < after or stop == start
    total = sum(stop - start for _, start, stop in pieces)
    assert 0 <= lender.nbytes - total <= 128 * len(lender._slabs)


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-8, -1)), max_size=40))
def test_arrays_that_are_in_use_share_nothing(steps):
    """Positive steps take an array of so many times the least size, negative ones drop the one that many back."""
    lender, held = Scratch(), []
    for i, step in enumerate(steps):
        if step > 0:
            array = lender.empty((step, LARGE), np.float64)
            assert (array.flags.c_contiguous, array.flags.writeable, array.ctypes.data % 64) == (True, True, 0)
            array[...] = i
            held.append((i, array))
        elif len(held) >= -step:
            del held[step]
        array = None
        for value, kept in held:
            assert (kept == value).all()
        check_pieces(lender)


def test_what_is_dropped_is_lent_again():
    lender = Scratch()
    for size in [3, 1, 2, 3, 2, 1] * 20:
        array = lender.empty((size, LARGE), np.float64)
        array[...] = 1
        del array
    assert lender.nbytes < SLAB_BYTES + 1000


def test_a_view_holds_on_to_its_piece():
    lender = Scratch()
    view = lender.empty((4, LARGE), np.float32).T[::2].reshape(-1, 2)[5:]
    view[...] = 7
    others = [lender.empty((n, LARGE), np.float64) for n in (1, 2, 4, 8)]
    for other in others:
        other[...] = 0
    assert (view == 7).all()


def test_neighbours_become_one_piece_again():
    lender = Scratch()
    small = [lender.empty((LARGE,), np.float64) for _ in range(SLAB_BYTES // LEAST_BYTES)]
    assert lender.nbytes < SLAB_BYTES + 1000
    del small
    whole = lender.empty((SLAB_BYTES,), np.uint8)
    assert whole.nbytes == SLAB_BYTES
    assert lender.nbytes < SLAB_BYTES + 1000


def test_arrays_may_be_dropped_by_other_threads():
    lender = Scratch()

    def drop(arrays):
        while arrays:
            arrays.pop()

    for _ in range(20):
        threads = [Thread(target=drop, args=([lender.empty((LARGE,), np.float64) for _ in range(10)],))]
        for thread in threads:
            thread.start()
        lender.empty((LARGE,), np.float64)
        for thread in threads:
            thread.join()
    gc.collect()
    lender.empty((LARGE,), np.float64)
    assert len(lender._lent) == 1
    assert lender.nbytes < SLAB_BYTES + 1000


def test_small_arrays_and_other_dtypes():
    lender = Scratch()
    for shape in ((0, 5), (), (LARGE - 1,)):
        lender.empty(shape, np.float64)
    assert lender.nbytes == 0
    array = lender.empty((LARGE, 2), bool)
    assert (array.dtype, array.shape) == (bool, (LARGE, 2))


def test_helpers_without_a_scratch_and_with_one():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 150, 170)), rng.standard_normal((3, 170, 190))
    last = rng.standard_normal((4, 30, 40, 50)).transpose(0, 3, 1, 2)

    def all_helpers():
        like = scratch.empty_like(last, np.float32)
        assert (like.shape, like.dtype) == (last.shape, np.float32)
        assert like.transpose(0, 2, 3, 1).flags.c_contiguous  # as `last` lies
        turned = scratch.contiguous(last)
        assert turned.flags.c_contiguous
        assert scratch.contiguous(turned) is turned
        assert not scratch.zeros(a, (300, 300)).any()
        product = scratch.multiply(last, last[:1] > 0)
        return [scratch.matmul(a, b), scratch.matmul(a[0], b[0].astype(np.complex128)), turned, product]

    want = [a @ b, a[0] @ b[0].astype(np.complex128), last, last * (last[:1] > 0)]
    without = all_helpers()
    with scratch.borrowed() as lender:
        within = all_helpers()
        assert lender.nbytes > 0
    for got in (without, within):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype


def test_two_borrowers_get_two():
    with scratch.borrowed() as one, scratch.borrowed() as other:
        assert one is not other
    assert len(scratch._waiting) == 2
    with scratch.borrowed() as again:
        assert again in (one, other)


def test_what_is_too_large_does_not_wait(monkeypatch):
    monkeypatch.setattr(scratch, "KEPT_BYTES", SLAB_BYTES + 1000)
    with scratch.borrowed(), scratch.borrowed():
        scratch.empty(np.zeros(1), (LARGE,))  # of the inner one
    assert len(scratch._waiting) == 2
    scratch.free()
    assert scratch._waiting == []
    with scratch.borrowed():
        scratch.empty(np.zeros(1), (2 * SLAB_BYTES,))
    assert scratch._waiting == []


def test_what_waits_has_one_slab_of_what_was_needed():
    sizes = [SLAB_BYTES // 2, SLAB_BYTES, 2 * SLAB_BYTES, 3 * SLAB_BYTES]
    slabs = []
    for _ in range(4):
        with scratch.borrowed() as lender:
            held = [lender.empty((size,), np.uint8) for size in sizes]
            slabs.append(len(lender._slabs))
            del held
    assert slabs[0] > 1
    assert slabs[-1] == 1
    assert lender.nbytes < 1.3 * sum(sizes)


def test_what_is_still_lent_when_a_call_ends_is_not_written_over():
    with scratch.borrowed() as lender:
        held = [lender.empty((size,), np.uint8) for size in (SLAB_BYTES, SLAB_BYTES, 4 * SLAB_BYTES)]
        for i, array in enumerate(held):
            array[...] = i
    with scratch.borrowed() as again:
        assert again is lender
        again.empty((8 * SLAB_BYTES,), np.uint8)[...] = 9
        assert [array.min() for array in held] == [array.max() for array in held] == [0, 1, 2]
        array = None
        del held
        taken = [again.empty((SLAB_BYTES,), np.uint8) for _ in range(8)]
        for i, one in enumerate(taken):
            one[...] = i
        assert [one.min() for one in taken] == [one.max() for one in taken] == list(range(8))
        check_pieces(again)


def test_a_borrower_that_fails_gives_back():
    with pytest.raises(ZeroDivisionError), scratch.borrowed():
        raise ZeroDivisionError
    assert len(scratch._waiting) == 1
    assert scratch._in_use.get() is None


# ------------------------------------------------------------------------------------------------------------- sweeps


def network():
    return gb.Sequential(
        layers.Conv2d(3, 32, 3), layers.ReLU(), layers.ZeroPad2d((0, 1, 0, 1)), layers.MaxPool2d(3, 2),
        layers.Conv2d(32, 32, 3, padding=1), layers.Sigmoid(), layers.AvgPool2d(2), layers.Conv2d(32, 8, 1),
        layers.Tanh(), layers.Flatten(), layers.Linear(8 * 16, 10), rng=0, dtype="float32",
    )  # fmt: skip


ASKED = [
    getattr(quantities, name)()
    for name in ("BatchGrad", "BatchL2Grad", "SecondMoment", "Variance", "DiagGGN", "DiagHessian", "KFLR")
]


def arrays(result):
    found = {"output": result.output, "loss": result.loss, **{f"gradient {k}": v for k, v in result.gradient.items()}}
    for quantity in ASKED:
        for name, value in result[quantity].items():
            parts = {"A": value.A, "B": value.B} if isinstance(value, gb.quantities.Kronecker) else {"": value}
            found |= {f"{quantity} {name} {key}": part for key, part in parts.items() if part is not None}
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_results_hold_nothing_that_was_there_before_and_nothing_that_is_lent(workers):
    rng = np.random.default_rng(0)
    net, x, y = network(), rng.standard_normal((6, 3, 20, 20), dtype=np.float32), rng.integers(0, 10, 6)

    def call():
        return arrays(
            gb.backward(net, losses.CrossEntropyLoss(), x, y, *ASKED, sample_block=2, column_block=40, workers=workers)
        )

    for _ in range(4):  # until they have settled
        first = call()
    assert any(lender._slabs for lender in scratch._waiting)
    for lender in scratch._waiting:
        for slab in lender._slabs:
            np.frombuffer(slab, np.uint8)[...] = 0xFF  # NaN, in either precision
            assert not any(np.may_share_memory(np.frombuffer(slab, np.uint8), value) for value in first.values())
    for name, value in call().items():
        np.testing.assert_array_equal(value, first[name], err_msg=name)


def test_a_copied_context_lends_nothing_to_other_threads():
    with scratch.borrowed() as lender:
        context, found = copy_context(), []
        thread = Thread(target=lambda: found.append(context.run(scratch.empty, np.zeros(1), (LARGE,))))
        thread.start()
        thread.join()
        assert lender.nbytes == 0
        scratch.empty(np.zeros(1), (LARGE,))
        assert lender.nbytes > 0
        with scratch.withheld():
            assert scratch._lender(np.zeros(1)) is None
        assert scratch._lender(np.zeros(1)) is lender


def test_a_large_slab_that_does_not_fit_is_asked_for_smaller(monkeypatch):
    lender, empty = Scratch(), np.empty
    lender._needed = 100 * SLAB_BYTES

    def limited(shape, dtype):
        if np.prod(shape) > 2 * SLAB_BYTES:
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr(np, "empty", limited)
    assert lender.empty((SLAB_BYTES,), np.uint8).nbytes == SLAB_BYTES
    assert lender.nbytes < SLAB_BYTES + 1000


def test_a_call_with_a_budget_borrows_nothing():
    rng = np.random.default_rng(0)
    net, x, y = network(), rng.standard_normal((6, 3, 20, 20), dtype=np.float32), rng.integers(0, 10, 6)
    gb.backward(net, losses.CrossEntropyLoss(), x, y, sample_block=2, memory="1GiB")
    assert scratch._waiting == []


def test_batches_that_are_not_cut_borrow_nothing():
    rng = np.random.default_rng(0)
    net, x, y = network(), rng.standard_normal((2, 3, 20, 20), dtype=np.float32), rng.integers(0, 10, 2)
    gb.backward(net, losses.CrossEntropyLoss(), x, y)
    assert scratch._waiting == []


def test_pieces_of_two_slabs_are_no_neighbours(monkeypatch):
    empty = np.empty

    def aligned(shape, dtype):  # both slabs start at the same place of theirs
        memory = empty(shape + 64, np.uint8)
        return memory[-memory.ctypes.data % 64 :][:shape]

    monkeypatch.setattr(np, "empty", aligned)
    lender, quarter = Scratch(), SLAB_BYTES // 4
    held = [lender.empty((quarter,), np.uint8) for _ in range(8)]
    assert len(lender._slabs) == 2
    held[1] = held[4] = None  # the second of one slab and the first of the other: one stops where the other starts
    taken = lender.empty((2 * quarter,), np.uint8)
    assert not any(np.may_share_memory(taken, one) for one in held if one is not None)


def test_what_waits_is_bounded_in_total(monkeypatch):
    monkeypatch.setattr(scratch, "KEPT_BYTES", SLAB_BYTES + 1000)
    with scratch.borrowed() as one, scratch.borrowed() as other:
        for lender in (one, other):
            lender.empty((LARGE,), np.float64)
    assert scratch._waiting == [other]


def test_what_would_be_too_large_does_not_wait(monkeypatch):
    monkeypatch.setattr(scratch, "KEPT_BYTES", 3 * SLAB_BYTES)
    with scratch.borrowed() as lender:
        held = [lender.empty((SLAB_BYTES,), np.uint8) for _ in range(4)]
        del held
    assert (lender.nbytes, scratch._waiting) == (0, [])  # one slab of 5 in place of several


def test_an_array_that_was_dropped_before_it_was_written_down():
    lender = Scratch()
    lender._dropped.append(object())  # as after an interrupt between the two
    assert lender.empty((LARGE,), np.float64).nbytes == LEAST_BYTES
