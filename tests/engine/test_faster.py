"""Statements that NumPy runs faster: the same numbers to every bit, and what is left as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbackprop.engine.calls import faster
from gbackprop.engine.calls.faster import Faster, _index, may_take_threads
from gbackprop.engine.calls.statements import ERRORS, Statements
from gbackprop.engine.calls.written import Written

RNG = np.random.default_rng(0)


def recorded(function, *arrays):
    """The statements of a function, the names of its results, and the writer."""
    statements = Statements(Written)
    with np.errstate(**ERRORS, call=lambda *error: None):
        found = function(*[statements.array(array, f"a{i}") for i, array in enumerate(arrays)])
    return statements, [each.name for each in found]


def order(array):
    """The strides of the axes that have several numbers."""
    return [stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]


def names_after(function, *arrays):
    """The functions that compute a function's results, once faster; they give the same for other numbers."""
    writer, results = recorded(function, *arrays)
    faster = Faster(writer.lines, writer, results)
    given = [f"a{i}" for i in range(len(arrays))]
    exec(writer.function(given, f"[{', '.join(results)}]", results, faster.lines), writer.scope)
    others = [RNG.standard_normal(a.shape).astype(a.dtype) for a in arrays]
    got, want = writer.scope["run"](*[each.copy() for each in others]), function(*[each.copy() for each in others])
    for one, other in zip(got, want, strict=True):
        assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
        assert order(one) == order(other)
        assert one.tobytes() == other.tobytes()
    return [line.function.__name__ for line in faster.lines]


ROW, BIAS, ONE, MATRIX, STACK = (
    RNG.standard_normal(shape).astype("f4") for shape in ((1, 6), (6,), (1, 1), (6, 4), (1, 1, 6))
)
CASES = {
    "a bias": (lambda x, b: [x + b], (ROW, BIAS), ["getitem", "add"]),
    "a number": (lambda x, one: [x - one], (ROW, ONE), ["getitem", "subtract"]),
    "both": (lambda b, one: [b * one], (BIAS, ONE), ["getitem", "getitem", "multiply"]),
    "a constant": (lambda one: [one == np.arange(3)], (ONE,), ["getitem", "equal"]),
    "two numbers": (lambda one, b: [one * b[:1]], (ONE, BIAS), ["getitem", "getitem", "multiply"]),
    "two sides": (lambda x, m: [x.T * m[:1]], (ROW, MATRIX), ["getitem", "getitem", "multiply"]),
    "truth values": (lambda x: [x * (x > 0)], (ROW,), ["greater", "astype", "multiply"]),
    "truth values of a choice": (lambda x: [np.maximum(x, x > 0)], (ROW,), ["greater", "maximum"]),
    "times 1": (lambda x: [(x + 1) * 1.0 + x], (ROW,), ["add", "getitem", "add"]),
    "times 1, with gaps": (lambda m: [m[:, ::2] * 1.0 + 1.0], (MATRIX,), ["getitem", "multiply", "add"]),
    "times 1, a result": (lambda x: [(x + 1) * 1.0], (ROW,), ["add", "multiply"]),
    "times 1, an int": (lambda x: [x.argmax(1)[:, None] * 1.0 + x], (ROW,), None),
    "a sum of one": (lambda one: [one.sum() * 1], (ONE,), ["getitem", "getitem"]),
    "a sum of one, kept": (lambda one: [one.sum(1, keepdims=True)], (ONE,), ["reduce"]),
    "a sum of truth": (lambda one: [(one > 0).sum()], (ONE,), ["greater", "reduce"]),
    "a sum of one row": (lambda x: [x.sum()], (ROW,), ["reduce"]),
    "views": (lambda x: [x.reshape(1, 1, 6)[0][:, :, None] - 1], (ROW,), ["getitem", "subtract"]),
    "views of others": (lambda x: [x.reshape(1, 3, 2)[0].reshape(2, 3) - 1], (ROW,), ["reshape", "subtract"]),
    "a turned view": (lambda m: [m.T.reshape(2, 12)[None] - 1], (MATRIX,), ["transpose", "reshape", "getitem",
                                                                            "subtract"]),
    "a part": (lambda x: [x[:, 1:][None] - 1], (ROW,), ["getitem", "getitem", "subtract"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_statements_are_others_for_the_same_numbers(name):
    function, arrays, want = CASES[name]
    found = names_after(function, *arrays)
    assert want is None or found == want


PRODUCTS = {
    "a matrix": (lambda x, m, s: [np.matmul(x, m)], ["dot"]),
    "a stack of one": (lambda x, m, s: [np.matmul(s, m)], ["getitem", "dot", "getitem"]),
    "a stack": (lambda x, m, s: [np.matmul(np.concatenate([s, s]), m)], ["concatenate", "matmul"]),
    "two stacks": (lambda x, m, s: [np.matmul(s, m[None])], ["getitem", "matmul"]),
    "a turned matrix": (lambda x, m, s: [np.matmul(m.T, m)], ["transpose", "dot"]),
    "every second row": (lambda x, m, s: [np.matmul(x[:, ::2], m[::2])], None),
    "in reverse": (lambda x, m, s: [np.matmul(x[:, ::-1], m)], ["getitem", "matmul"]),
    "a column": (lambda x, m, s: [np.matmul(m.T[:, :3], m[:3, 1:2])], None),
    "by a number": (lambda x, m, s: [np.matmul(x.T, x[:, :1])], None),
    "a number": (lambda x, m, s: [np.matmul(x[:, :1], x)], ["getitem", "matmul"]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices_without_gaps_are_dots(name, monkeypatch):
    function, want = PRODUCTS[name]
    monkeypatch.setattr(faster, "dot_reports", lambda: True)
    found = names_after(function, ROW, MATRIX, STACK)
    assert found == want if want else "dot" not in found


def test_products_are_no_dots_where_those_report_no_overflow(monkeypatch):
    monkeypatch.setattr(faster, "dot_reports", lambda: False)
    assert names_after(PRODUCTS["a matrix"][0], ROW, MATRIX, STACK) == ["matmul"]
    assert names_after(PRODUCTS["a stack of one"][0], ROW, MATRIX, STACK) == ["matmul"]


def test_dot_reports_overflow_from_numpy_2_3_on():
    assert faster.dot_reports() is (np.lib.NumpyVersion(np.__version__) >= "2.3.0")


def filled(make, function):
    def run(x):
        out = make(x)
        function(x, x, out=out)
        return [out]

    return run


FILLED = {
    "all": (filled(lambda x: np.empty_like(x), np.multiply), 1),
    "of a shape": (filled(lambda x: x.__array_namespace__().empty((1, 6), x.dtype) if isinstance(x, Written)
                          else np.empty((1, 6), x.dtype), np.add), 1),
    "of two samples": (filled(lambda x: x.__array_namespace__().empty((2, 6), x.dtype) if isinstance(x, Written)
                              else np.empty((2, 6), x.dtype), np.add), 2),
    "another dtype": (filled(lambda x: np.empty_like(x, dtype="f8"), np.multiply), 2),
    "of truth": (filled(lambda x: np.empty_like(x), np.greater), 2),
    "a constant of float64": (lambda x: [np.add(x, np.arange(6.0), out=np.empty_like(x))], 2),
    "in another order": (lambda x: [np.add(x.T @ x, 1.0, out=np.empty_like((x.T @ x).T))[:, 1:]], None),
    "zeros": (filled(lambda x: np.zeros_like(x), np.multiply), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_a_function_makes_its_result_where_it_fills_all_of_an_empty_array(name):
    function, count = FILLED[name]
    found = names_after(function, ROW)
    assert len(found) == count if count else "empty_like" in found


def test_a_part_of_an_empty_array_is_filled_as_before():
    def function(x):
        out = np.empty_like(x)
        out[:, :3] = 1
        np.multiply(x[:, 3:], 2, out=out[:, 3:])
        return [out]

    assert names_after(function, ROW).count("empty_like") == 1


AXES = st.lists(st.sampled_from((1, 1, 2, 3)), max_size=4)


@given(AXES, AXES)
def test_an_index_gives_a_shape_where_only_axes_of_one_differ(shape, target):
    longer, other = ([n for n in axes if n > 1] for axes in (shape, target))
    index = _index(tuple(shape), tuple(target))
    assert (index is None) == (longer != other)
    if index is not None:
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        assert np.shares_memory(x[index], x) if target or shape else x[index].shape == ()
        assert x[index].shape == tuple(target)
        assert x[index].ravel().tolist() == x.ravel().tolist()


THREADS = [
    (lambda x, w: [x @ w], (1, 95), (95, 97), False), (lambda x, w: [x @ w], (1, 96), (96, 96), True),
    (lambda x, w: [x[0].dot(w)], (1, 96), (96, 96), True), (lambda x, w: [x + 1, w * 2], (99, 99), (99, 99), False),
    (lambda x, w: [np.vdot(x, x)], (9, 1023), (1,), False), (lambda x, w: [np.vdot(x, x)], (9, 1024), (1,), True),
    (lambda x, w: [np.tensordot(x, w, 1)], (2, 3), (3, 2), True),
]  # fmt: skip


@pytest.mark.parametrize(("function", "one", "other", "want"), THREADS)
def test_products_of_few_terms_take_one_thread(function, one, other, want):
    writer, _ = recorded(function, np.zeros(one), np.zeros(other))
    assert may_take_threads(writer.lines) is want
