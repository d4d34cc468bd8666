"""Corners of NumPy: NaN and infinity in comparisons, arrays of integers, the order of a copy, empty slices."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.base.recording.refused import NoDerivativeError

B = np.array([1.0, 2.0, 3.0])
X = np.random.default_rng(0).normal(size=(4, 3))
ONE = np.where(np.eye(4, 3) > 0, 1.0, -1.0)  # at most one number above 0 in a row
CODES = np.array([[-1.0, 800, 0], [1, 2, -1], [800, 2, 0.5], [-2, 0, 1]])  # NaN, inf, -inf and others of log x + e^x

COMPARISONS = [np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("number", [True, False], ids=["number", "array"])
def test_a_comparison_with_what_is_no_number_is_numpys(compare, number):
    def function(p, x):
        a, b = (np.log(each) + np.exp(each) for each in (x[:, :3], x[:, 3:]))
        return np.where(compare(a, 0.0 if number else b), p["b"], -p["b"])

    network = gb.trace(function, {"b": B}, abs(np.concatenate([X, X[:, ::-1]], 1)))
    with np.errstate(all="ignore"):
        for other in (CODES[:, ::-1], CODES[::-1], CODES):
            x = np.concatenate([CODES, other], 1)
            np.testing.assert_array_equal(network(x), function({"b": B}, x))


SIGNS = np.resize([1.0, -1], 98)
EQUAL = {  # where equal numbers are compared, or whole ones come out, at rounding of NumPy's own
    "x / number": lambda p, x: x / 49 >= 1, "x / p": lambda p, x: x / p["w"] >= 1,
    "number / x": lambda p, x: 49 / x >= 1, "log2": lambda p, x: np.log2(x) == 3,
    "x / max": lambda p, x: x / np.max(x, axis=1, keepdims=True) >= 1,
    "log10": lambda p, x: np.log10(x) >= 3, "2 ** x": lambda p, x: np.exp2(np.minimum(x, 8)) == 2.0**8,
    "variance": lambda p, x: np.var(x * SIGNS / x, axis=1, keepdims=True) >= 1,
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_numbers_are_equal_after_functions_that_numpy_rounds_exactly(name):
    def function(p, x):
        return np.where(EQUAL[name](p, x), x, 0 * x) * p["b"] + p["w"]

    whole = np.concatenate([np.arange(1.0, 196), [8, 1000, 49]]).reshape(2, 99)[:, :98]
    params = {"w": whole[0, ::-1] + 0.5, "b": np.arange(1.0, 99)}
    network = gb.trace(function, params, abs(np.random.default_rng(1).normal(size=(4, 98))) + 0.1)
    for w in whole:  # other numbers than the traced ones
        network.parameters.load(params | {"w": w})
        np.testing.assert_array_equal(network(whole), function(params | {"w": w}, whole))


def test_a_branch_at_the_logarithm_of_a_negative_number_has_numpys_gradient():
    def function(p, x):
        return np.where(np.log(x) > 0, x, 0 * x) * p["b"]

    network = gb.trace(function, {"b": B}, abs(X) + 0.1)
    with np.errstate(all="ignore"):
        result = gb.backward(network, losses.MSELoss("sum"), X, X)
        want = (2 * (function({"b": B}, X) - X) * np.where(X > 1, X, 0)).sum(0)
    np.testing.assert_allclose(result.gradient["b"], want)


@pytest.mark.parametrize(
    ("function", "bound", "passed"), [(np.maximum, 1, 1), (np.minimum, 1, 1), (np.minimum, 0, 1), (np.maximum, 0, 0)]
)
def test_what_is_equal_to_a_bound_passes_the_derivative_on_but_for_the_relu(function, bound, passed):
    x = np.full((1, 2), float(bound))
    network = gb.trace(lambda p, x: function(x + p["b"], bound), {"b": np.zeros(2)}, x)
    gradient = gb.backward(network, losses.MSELoss("sum"), x, x - 1).gradient["b"]
    np.testing.assert_array_equal(gradient, np.full(2, 2.0 * passed))


@pytest.mark.parametrize("function", [np.maximum, np.minimum])
def test_the_larger_of_two_numbers_is_nan_where_one_of_them_is(function):
    for first in (True, False):

        def traced(p, x, first=first):
            return function(*(x * p["b"], np.log(x))[:: 1 if first else -1])

        network = gb.trace(traced, {"b": B}, abs(X) + 0.1)
        with np.errstate(all="ignore"):
            want = traced({"b": B}, X)
            np.testing.assert_array_equal(network(X), want)
        assert 0 < np.isnan(want).sum() < want.size


def _into(dtype, value):
    def function(p, x):
        h = np.zeros_like(x, dtype=dtype)
        h[:, :2] = value(p, x)[:, :2]
        return h * p["b"]

    return function


BITS = np.array([[1.0, 0, 1], [0, 1, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_into(int, lambda p, x: x), "floats to an array of integers"),
        (_into(int, lambda p, x: p["s"] * (x > 0)), "floats to an array of integers"),
        (_into(bool, lambda p, x: x), "floats to an array of booleans"),
        (_into(bool, lambda p, x: (x > 0) * 2), "integers to an array of booleans"),
    ],
)
def test_what_an_array_of_integers_would_cut_off_is_refused(function, words):
    with pytest.raises(NoDerivativeError, match=words):
        gb.trace(function, {"b": B, "s": np.ones(3)}, BITS)


def test_what_an_array_of_integers_takes_as_it_is():
    def function(p, x):
        h, m = np.zeros_like(x, dtype=int), np.zeros_like(x, dtype=bool)
        h[:, 0], m[:, 1] = 2.0, 1
        h[:, 1:] = x[:, 1:] > 0
        return (h + m) * p["b"] * x

    network = gb.trace(function, {"b": B}, X)
    np.testing.assert_allclose(network(-X), function({"b": B}, -X))


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_the_dtype_of_a_reduction_is_not_left_out(dtype):
    with pytest.raises(gb.TraceError, match="dtype"):
        gb.trace(lambda p, x: np.add.reduce(x > 0, axis=1, dtype=dtype, keepdims=True) * p["b"], {"b": B}, ONE)


def test_the_absolute_value_of_narrow_integers_is_refused():
    with pytest.raises(NoDerivativeError, match="wraps around"):
        gb.trace_loss(lambda o, t: (o.sum(1) - abs(t)) ** 2, X[:2], np.array([0, 1], np.int8))


def test_a_copy_is_in_the_order_of_rows_as_numpys_is():
    def function(p, x):
        copy = np.swapaxes(x @ p["w"], 1, 2).copy()
        view = copy.reshape(len(copy), -1)
        view[:, 1:] -= 1.0
        return copy

    x, w = np.random.default_rng(0).normal(size=(2, 4, 2, 3)), np.eye(3)
    np.testing.assert_array_equal(gb.trace(function, {"w": w}, x[0])(x[1]), function({"w": w}, x[1]))


def test_an_assignment_to_no_place_changes_nothing():
    def function(p, x):
        h = (x @ p["w"]).copy()
        h[:, 1:] -= h[:, :-1].copy()
        return h * 2

    network = gb.trace(function, {"w": np.ones((3, 1))}, X)
    np.testing.assert_array_equal(network(-X), function({"w": np.ones((3, 1))}, -X))


@pytest.mark.parametrize("function", [np.fmax, np.fmin])
def test_larger_numbers_beside_nan_are_refused(function):
    """They are not those of `maximum`, which is NaN where one of the numbers is."""
    with pytest.raises(gb.TraceError, match=f"np.{function.__name__} is not in the table"):
        gb.trace(lambda p, x: function(x * p["b"], 0.0), {"b": np.ones(3)}, np.ones((4, 3)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_wide_integers_in_a_narrow_array_are_refused(dtype):
    """The example has none of the numbers that become others: 300 is 44 in int8."""

    def large(p, x):
        h = np.zeros_like(x, dtype=dtype)
        h[:, :1] = ((x > 0) * 3_000_000_000)[:, :1]
        return h * p["b"] * x

    def small(p, x):
        h = np.zeros_like(x, dtype=dtype)
        h[:, :1] = 3
        return h * p["b"] * x

    p, x = {"b": np.ones(3)}, -np.ones((4, 3))
    with pytest.raises(NoDerivativeError, match=f"an assignment of int64 to an array of {dtype} makes other numbers"):
        gb.trace(large, p, x)
    np.testing.assert_array_equal(gb.trace(small, p, x)(-2 * x), small(p, -2 * x))


@pytest.mark.parametrize("arguments", [{"axis": 1}, {"axis": 1, "dtype": None}, {"axis": 1, "out": None}])
def test_a_ufuncs_sum_of_narrow_integers_is_widened_first(arguments):
    """NumPy sums uint8 in uint64: 100 times 200 is no number that wraps around."""

    def function(p, x):
        wide = np.add.reduce((x > 0).astype(np.uint8), keepdims=True, **arguments)
        return x * p["b"] * wide * np.add.reduce(x, 1, None, None, True)

    x = np.tile(abs(X), (1, 100))
    network = gb.trace(function, {"b": np.ones(300)}, x)
    np.testing.assert_allclose(network(-2 * x + 1), function({"b": np.ones(300)}, -2 * x + 1), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_ufuncs_sum_in_another_dtype_is_refused(dtype):
    with pytest.raises(gb.TraceError, match=r"np\.add\.reduce with these arguments .* neither dtype nor out"):
        gb.trace(lambda p, x: x * p["b"] * np.add.reduce(x, 1, dtype=dtype)[:, None], {"b": np.ones(3)}, X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gap", [-60.0, -21.0, 21.0, 60.0])
def test_logaddexp_has_no_threshold(gap, dtype):
    """Torch's softplus is x from 20 on, so that log(eᵃ + eᵇ) = b + softplus(a − b) has no derivative in b there."""
    start = {"a": np.zeros(1, dtype), "b": np.zeros(1, dtype)}
    net = gb.trace(lambda p, x: np.logaddexp(x + p["a"], p["b"]), start, np.ones((2, 1), dtype))
    x, y = np.full((1, 1), gap, dtype), np.full((1, 1), -99.0, dtype)
    result = gb.backward(net, losses.L1Loss("sum"), x, y, q.DiagHessian())
    share, other = 1 / (1 + np.exp(-gap)), 1 / (1 + np.exp(gap))
    np.testing.assert_allclose([result.gradient["a"][0], result.gradient["b"][0]], [share, other], rtol=1e-5)
    for name in "ab":
        np.testing.assert_allclose(result["diag_hessian"][name], [share * other], rtol=1e-5)
    net = gb.trace(lambda p, x: np.logaddexp(0, x + p["a"]), {"a": start["a"]}, np.ones((2, 1), dtype))
    found = gb.backward(net, losses.L1Loss("sum"), x, y, q.DiagHessian())["diag_hessian"]["a"]
    np.testing.assert_allclose(found, [share * other], rtol=1e-5)


NO_BOUNDS = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy needs a bound")


@pytest.mark.parametrize(("bounds", "slope"), [
    ((1.0, -1.0), 0), pytest.param((None, None), 1, marks=NO_BOUNDS), ((-9.0, 9.0), 1),
])  # fmt: skip
def test_bounds_that_are_not_in_order_or_none_are_numpys(bounds, slope):
    """All numbers are the upper bound where that is below the lower one; no bounds change nothing."""
    x, p = abs(X) + 0.1, {"b": np.ones(3)}
    network = gb.trace(lambda p, x: np.clip(x * p["b"], *bounds), p, x)
    for given in (x, -x, np.full((4, 3), bounds[1] or 0.0)):
        want = np.clip(given, *bounds)
        np.testing.assert_array_equal(network(given), want)
        gradient = gb.backward(network, losses.MSELoss("sum"), given, want - 1).gradient["b"]
        np.testing.assert_allclose(gradient, slope * 2 * given.sum(0), rtol=1e-14)


@pytest.mark.parametrize("function", [
    lambda x: x.sum(axis=1, out=None), lambda x: x.mean(axis=1, dtype=None), lambda x: np.sum(x, 1, where=True),
    lambda x: np.cumsum(x, axis=1, dtype=None, out=None)[:, -1], lambda x: np.max(x, axis=1, out=None),
    lambda x: np.add(x, 1.0, where=True, dtype=None)[:, 0], lambda x: np.matmul(x, B, dtype=None),
])  # fmt: skip
def test_arguments_that_are_numpys_defaults_may_be_written(function):
    network = gb.trace(lambda p, x: function(x * p["b"])[:, None], {"b": B}, X)
    np.testing.assert_allclose(network(-X), function(-X * B)[:, None], rtol=1e-14)


def test_a_sum_of_some_numbers_is_still_refused():
    with pytest.raises(gb.TraceError, match="where"):
        gb.trace(lambda p, x: np.sum(x * p["b"], 1, where=np.array([True, False, True])), {"b": B}, X)
