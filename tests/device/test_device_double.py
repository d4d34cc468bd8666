"""The double refuses what a GPU would refuse or get wrong, and counts what it should."""

import sys
import threading

import cupy_names
import numpy as np
import pytest
from device_double import ndarray
from device_ledger import Device, OutOfMemoryError, ledger

import gbackprop as gb

HOST = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def x(double):
    return gb.asarray(HOST, "cuda")


REFUSED = {
    "implicit conversion": lambda cp, x: np.asarray(x),
    "a NumPy function": lambda cp, x: np.concatenate([x, x]),
    "a NumPy ufunc": lambda cp, x: np.exp(x),
    "host array on the right": lambda cp, x: x + HOST,
    "host array on the left": lambda cp, x: HOST * x,
    "host array in place": lambda cp, x: x.__iadd__(HOST),
    "host array in a function": lambda cp, x: cp.maximum(x, HOST),
    "host array in a list": lambda cp, x: cp.stack([x, HOST]),
    "host index": lambda cp, x: x[np.array([0, 1])],
    "host mask": lambda cp, x: x[HOST > 1],
    "list as index": lambda cp, x: x[[0, 1]],
    "host value": lambda cp, x: x.__setitem__(0, HOST[0]),
    "index out of range": lambda cp, x: x[cp.arange(3)],
    "two values for one place": lambda cp, x: x.__setitem__(cp.zeros(2, dtype=int), 1.0),
    "a function that CuPy lacks": lambda cp, x: cp.no_such_function(x),
    "a function of NumPy's that CuPy lacks": lambda cp, x: cp.busday_count(x),
    "a module that is not needed": lambda cp, x: cp.random.default_rng(0),
    "a keyword that CuPy lacks": lambda cp, x: cp.exp(x, where=x > 0),
    "a method that CuPy lacks": lambda cp, x: x.setfield(0, float),
    "a method's keyword that CuPy lacks": lambda cp, x: x.sum(initial=0),
    "a ufunc's method": lambda cp, x: cp.add.at(x, 0, 1),
    "host array in CuPy's SciPy": lambda cp, x: sys.modules["cupyx.scipy.special"].erfc(HOST),
    "complex numbers in CuPy's erfc": lambda cp, x: sys.modules["cupyx.scipy.special"].erfc(x + 1j),
    "objects": lambda cp, x: cp.asarray(np.array([None])),
    "text": lambda cp, x: cp.asarray(["a"]),
    "several numbers as one": lambda cp, x: float(x),
    "several numbers as a truth": lambda cp, x: bool(x),
    "axes in an array": lambda cp, x: x.transpose(cp.array([1, 0])),
    "a choice between tuples": lambda cp, x: cp.where(x > 2, (x, x), (x, x)),
    "a key of a dictionary": lambda cp, x: {x: 1},
    "NumPy's results by name": lambda cp, x: cp.linalg.eigh(x @ x.T).eigenvalues,
}


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(double, x, act):
    with pytest.raises((TypeError, AttributeError, IndexError, ValueError)):
        act(double, x)


def test_results_are_numpys(double, x):
    wanted = [HOST + 1, 2 - HOST, HOST @ HOST.T, HOST.sum(), HOST.max(1, keepdims=True), HOST[:, ::2], -HOST.T]
    found = [x + 1, 2 - x, x @ x.T, x.sum(), x.max(1, keepdims=True), x[:, ::2], -x.T]
    found += [x > 2, double.where(x > 2, x, 0), double.linalg.eigh(x @ x.T)[0], double.full((2,), 3.0)]
    wanted += [HOST > 2, np.where(HOST > 2, HOST, 0), np.linalg.eigh(HOST @ HOST.T)[0], np.full(2, 3.0)]
    for got, want in zip(found, wanted, strict=True):
        assert isinstance(got, ndarray)  # reductions to one number too
        np.testing.assert_array_equal(got.get(), want)
    x *= 2
    x[0] = 7
    np.testing.assert_array_equal(x.get(), [[7, 7, 7], [6, 8, 10]])


def test_transfers_are_counted(double, x):
    one = x.sum()
    acts = [lambda: float(one), lambda: int(one), lambda: bool(one), one.item, x.get, x.tolist, lambda: repr(x)]
    acts += [lambda: f"{one:.2f}", lambda: double.asnumpy(x), lambda: x[x > 2], lambda: double.nonzero(x)]
    for act in acts:
        ledger.clear()
        act()
        assert ledger.transfers == [("to host", "caller")]
    for act in (lambda: double.asarray(HOST), lambda: double.array(1.0), lambda: double.asarray([1.0])):
        ledger.clear()
        act()
        assert ledger.transfers == [("to device", "caller")]
    ledger.clear()
    assert double.asarray(x) is not HOST
    (x + 1).sum()
    assert ledger.transfers == []


def test_operations_are_counted_and_views_are_not(double, x):
    for act, count in (
        (lambda: x.T.reshape(3, 2)[1:, None].swapaxes(0, 1), 0),
        (lambda: double.broadcast_to(double.moveaxis(x, 0, 1), (4, 3, 2)), 0),
        (lambda: x.T.reshape(6), 1),
        (lambda: x.copy(), 1),
        (lambda: (x + 1) * 2, 2),
        (lambda: double.zeros(3), 1),
        (lambda: x.__setitem__(0, 1.0), 1),
        (lambda: x[double.arange(2)], 2),
    ):
        ledger.clear()
        act()
        assert ledger.operations == count


def test_what_nobody_has_written_shows(double):
    assert np.isnan(double.empty(3).get()).all()
    assert np.isnan(double.empty_like(double.ones(2, dtype=np.float32)).get()).all()


def test_each_thread_has_a_current_device(double, x):
    with Device(1):
        assert gb.array.device_of(double.ones(1)) == "cuda:1"
        with pytest.raises(ValueError, match="array device = 0 while current = 1"):
            x + 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(Device().id))
        thread.start()
        thread.join()
        with Device(0), Device(1):
            pass
        assert (seen, Device().id) == ([0], 1)
    assert Device().id == 0
    moved = gb.asarray(x, "cuda:1")
    assert gb.array.device_of(moved) == "cuda:1"
    np.testing.assert_array_equal(gb.asnumpy(moved), HOST)


def test_memory_is_counted_and_given_back(double):
    before = ledger.used
    x = double.ones(100)
    view = x[10:]
    assert ledger.used - before == 800
    del x
    assert ledger.used - before == 800  # the view holds it
    del view
    assert ledger.used == before
    ledger.limit = before + 799
    with pytest.raises(OutOfMemoryError):
        double.ones(100)


def test_the_methods_that_the_double_writes_itself_are_cupys():
    names = cupy_names.committed()
    own = {name for name in vars(ndarray) if not name.startswith("_")}
    assert own <= set(names["methods"]) | set(names["attributes"])
