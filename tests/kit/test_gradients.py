"""`check_gradient`: no alarm on right gradients of any kind of function, and faults named with entry and cause."""

import copy

import numpy as np
import pytest
from common import in_turn
from hypothesis import given, settings
from hypothesis import strategies as st

from gbackprop.testing import check_gradient
from gbackprop.testing.functions import Subject
from gbackprop.testing.gradients import _imprecise
from gbackprop.testing.strategies import SEEDS

N = 6


def problem(dtype=np.float64, width=4, relu=False, seed=0):
    """Cross-entropy of a network with one hidden layer, in plain NumPy, its gradient, and parameters."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((N, 5)), rng.integers(0, 3, N)

    def forward(p):
        a = x.astype(p["in"]["weight"].dtype) @ p["in"]["weight"].T + p["in"]["bias"]
        h = np.where(a.real > 0, a, 0) if relu else np.tanh(a)
        z = h @ p["out"][0].T + p["out"][1]
        e = np.exp(z - z.real.max(1, keepdims=True))
        return a, h, z - z.real.max(1, keepdims=True) - np.log(e.sum(1, keepdims=True))

    def f(p):
        return -forward(p)[2][np.arange(N), y].mean()

    def grad(p):
        a, h, logs = forward(p)
        d = np.exp(logs)
        d[np.arange(N), y] -= 1
        d /= N
        g = d @ p["out"][0] * ((a > 0) if relu else 1 - h**2)
        return {"in": {"weight": g.T @ x.astype(a.dtype), "bias": g.sum(0)}, "out": [d.T @ h, d.sum(0)]}

    weight, last = rng.standard_normal((width, 5)), rng.standard_normal((3, width)) / 2
    params = {"in": {"weight": weight, "bias": np.zeros(width)}, "out": [last, np.zeros(3)]}
    params["in"] = {name: value.astype(dtype) for name, value in params["in"].items()}
    return f, grad, params | {"out": [value.astype(dtype) for value in params["out"]]}


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.sampled_from([np.float64, np.float32]), st.sampled_from([1, 4, 60]), st.booleans(), SEEDS)
def test_right_gradients_give_no_alarm(dtype, width, relu, seed):
    f, grad, params = problem(dtype, width, relu, seed)
    check_gradient(f, grad, params, batch=N, rng=seed).assert_ok()


A = np.random.default_rng(0).standard_normal((3, 4))
FUNCTIONS = {
    "a single array": (lambda p: (p**2).sum(), lambda p: 2 * p, np.arange(1.0, 4)),
    "a number": (lambda p: float(p**2), lambda p: 2 * p, np.array(3.0)),
    "at a kink": (lambda p: np.maximum(p, 0).sum() + (p**2).sum(), lambda p: (p > 0) + 2 * p, np.zeros(5)),
    "of absolute values": (lambda p: (np.abs(p) ** 2).sum(), lambda p: 2 * p, A),
    "linear": (lambda p: p.sum(), np.ones_like, A),
    "constant": (lambda p: 1.0 + 0 * p.sum(), np.zeros_like, A),
    "defined for positive numbers": (lambda p: -np.log(p).sum() + p.sum(), lambda p: 1 - 1 / p, np.abs(A)),
    "one that does not matter": (lambda p: (p[0] ** 2).sum(), lambda p: [2 * p[0], 0 * p[1]], [A, A]),
    "in a tuple": (lambda p: (p[0] * p[1]).sum(), lambda p: (p[1], p[0]), (A, A + 1)),
    "at rest": (lambda p: (p**2).sum(), lambda p: 2 * p, np.zeros((3, 30))),
    "of large numbers": (lambda p: (p**2).sum(), lambda p: 2 * p, 1e6 * A),
    "of small numbers": (lambda p: (p**3).sum(), lambda p: 3 * p**2, 1e-4 * A),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_right_gradients_give_no_alarm(name):
    check_gradient(*FUNCTIONS[name]).assert_ok()


def test_a_gradient_at_one_point():
    f, grad, params = problem()
    report = check_gradient(f, grad(params), params)
    report.assert_ok()
    assert not any("descent" in row.claim for row in report.rows)
    wrong = grad(params)
    wrong["out"][1][2] += 0.1
    assert check_gradient(f, wrong, params).failures[0].worst == ("out.1", 2)


def test_float32_is_said_and_allowed_for():
    for dtype, cast in ((np.float32, lambda p: p), (np.float64, np.float32)):
        f, grad, params = problem(dtype)
        single = lambda p: {"in": {n: cast(v) for n, v in p["in"].items()}, "out": [cast(v) for v in p["out"]]}  # noqa: B023, E731
        report = check_gradient(lambda p: f(single(p)), lambda p: grad(single(p)), params)  # noqa: B023
        report.assert_ok()
        assert "as in float32" in next(row.problem for row in report.rows if row.claim == "is precise")


WRONG = {
    "the sign": (lambda g: -g, "its sign is wrong"),
    "a half": (lambda g: g / 2, "a factor 2 is missing"),
    "twice": (lambda g: 2 * g, "a factor 2 is too much"),
    "a sum": (lambda g: N * g, f"it is a sum where f is divided by N = {N}"),
    "1/N twice": (lambda g: g / N, f"it is divided by N = {N} once too often"),
    "another factor": (lambda g: g / 1.7, "it should be multiplied by 1.7"),
    "nothing": (lambda g: 0 * g, "it is zero, as if nothing were computed"),
    "transposed": (lambda g: g.T.reshape(g.shape), "it is transposed"),
}


@pytest.mark.parametrize(("name", "width"), in_turn([(name,) for name in WRONG], [5, 60]))
def test_causes(name, width):
    change, words = WRONG[name]
    f, grad, params = problem(width=width)

    def wrong(p):
        found = grad(p)
        found["in"]["weight"] = change(found["in"]["weight"])
        return found

    (row,) = check_gradient(f, wrong, params, batch=N).failures
    assert (row.method, row.problem) == ("in.weight", f"likely cause: {words}")
    assert row.worst[0] == "in.weight"
    assert len(row.worst) == 3  # an entry, and no direction


def test_of_one_sample_nothing_is_said_of_divisions_by_their_number():
    weight = np.random.default_rng(0).standard_normal((4, 4))
    (row,) = check_gradient(lambda p: (p**3).sum(), lambda p: 3 * p.T**2, weight, batch=1).failures
    assert row.problem == "likely cause: it is transposed"


@pytest.mark.parametrize(("strength", "words"), [(0.01, "too much, or there twice"), (-0.01, "is missing")])
def test_weight_decay(strength, words):
    f, grad, params = problem()

    def decayed(p):
        found = grad(p)
        found["in"]["weight"] += strength * p["in"]["weight"]
        return found

    (row,) = check_gradient(f, decayed, params).failures
    assert "0.01 × the parameter, as of weight decay" in row.problem
    assert words in row.problem


@pytest.mark.parametrize(("p", "told"), [([1.5], False), ([1.5, 2.0], True)])
def test_one_number_alone_is_not_told_to_have_weight_decay(p, told):
    (row,) = check_gradient(lambda p: (p**4).sum(), lambda p: 4 * p**3 + 0.1 * p, np.array(p)).failures
    assert ("0.1 × the parameter, as of weight decay" in row.problem) == told


@pytest.mark.parametrize("scale", [1.0, 2.0**-40, 2.0**40])
def test_what_rounding_hides_is_said_whatever_the_scale(scale):
    grad = lambda p: 2e-13 * scale * p  # noqa: E731
    report = check_gradient(lambda p: scale * (1 + 1e-13 * (np.abs(p) ** 2).sum()), grad, np.arange(1.0, 5))
    reasons = [row.problem for row in report.rows if row.method == "params"]
    assert ["rounding of f hides it" in words for words in reasons] == [True, True]


@pytest.mark.parametrize("size", [1, 1e9, 1e-9])
def test_the_rounding_of_a_function_is_measured_whatever_the_size_of_its_parameters(size):
    noise = lambda p: np.random.default_rng(p.view(np.uint32).ravel()).standard_normal()  # noqa: E731
    subject = Subject(lambda p: 3 + 3e-12 * noise(p), None, size * A, np.random.default_rng(0), None)
    assert _imprecise(subject, {"params": size * A}, {"params": size * A}) == ""
    assert 1e-13 < subject.eps < 1e-11


def test_the_rounding_of_a_function_is_measured():
    """Numbers that are off by 1e-12, over many draws: each is of few differences."""
    rng, found = np.random.default_rng(0), []
    for _ in range(100):
        subject = Subject(lambda p: 3 + 3e-12 * rng.standard_normal(), None, A, rng, None)
        assert _imprecise(subject, {"params": A}, {"params": A}) == ""
        found.append(subject.eps)
    assert np.mean(np.square(found)) ** 0.5 / 1e-12 == pytest.approx(1, rel=0.1)


def test_one_entry_of_many_is_found_and_no_cause_is_made_up():
    f, grad, params = problem(width=300)

    def wrong(p):
        found = grad(p)
        found["in"]["weight"][123, 2] += 0.01
        return found

    (row,) = check_gradient(f, wrong, params).failures
    assert (row.worst, row.problem) == (("in.weight", 123, 2), "")


def test_a_gradient_in_the_place_of_another():
    f = lambda p: np.sum(p["a"] * p["b"] ** 2)  # noqa: E731
    report = check_gradient(f, lambda p: {"a": 2 * p["a"] * p["b"], "b": p["b"] ** 2}, {"a": A, "b": A + 1})
    assert [row.problem for row in report.failures] == ["likely cause: it stands at b", "likely cause: it stands at a"]


def test_a_term_that_appears_after_training():
    report = check_gradient(lambda p: np.sum(p[0] + p[0] ** 2 * p[1]), lambda p: [1 + 2 * p[0] * p[1], 0 * p[1]],
                            [np.zeros(3), np.ones(3)])  # fmt: skip
    assert [row.method for row in report.failures] == ["1"]
    assert "descent" in report.failures[0].claim


def test_a_stale_gradient():
    f, grad, params = problem()
    kept = []

    def before(p):
        kept.append(grad(p))
        return kept[-2] if len(kept) > 1 else kept[-1]

    assert "stale" in check_gradient(f, before, params).failures[0].problem
    first = grad(params)
    rows = check_gradient(f, lambda p: copy.deepcopy(first), params).failures
    assert all("descent" in row.claim and "not computed anew" in row.problem for row in rows)
    assert len(rows) == 4


def test_what_draws_or_writes():
    f, grad, params = problem()
    rng = np.random.default_rng(0)
    report = check_gradient(lambda p: f(p) * (1 + 0.1 * rng.random()), grad, params)
    assert [row.method for row in report.rows] == ["f", "grad"]
    assert "seed what it draws" in report.failures[0].problem

    def writes(p):
        found = grad(p)
        p["out"][0] *= 0.9
        return found

    row = check_gradient(f, writes, params).failures[0]
    assert (row.method, row.problem) == ("grad", "writes to its parameters, at ['out'][0]")


def test_what_is_given_is_left_as_it_is():
    f, grad, params = problem()
    before = copy.deepcopy(params)
    check_gradient(f, grad, params)
    np.testing.assert_array_equal(params["in"]["weight"], before["in"]["weight"])


def test_shapes_and_names_that_a_function_gives_are_a_row():
    f, _, params = problem()
    row = check_gradient(f, lambda p: {"in": p["in"]}, params).failures[0]
    assert row.method == "grad"
    assert "expected arrays of shapes" in row.problem
    assert "expected one number" in check_gradient(lambda p: p, lambda p: p, A).failures[0].problem
    assert "NaN" in check_gradient(lambda p: np.nan * p.sum(), lambda p: p, A).failures[0].problem


F, GRAD, PARAMS = problem()
BAD = {
    "no function": (lambda: check_gradient(3, GRAD, PARAMS), TypeError, "f: expected a function"),
    "no arrays": (lambda: check_gradient(F, GRAD, {}), ValueError, "params: expected arrays, got an empty dict"),
    "integers": (lambda: check_gradient(F, GRAD, {"a": [np.arange(3)]}), TypeError, "params, a.0: expected an array"),
    "words": (lambda: check_gradient(F, GRAD, {"a": "b"}), TypeError, "params, a: expected an array of floats"),
    "other names": (lambda: check_gradient(F, {"a": A}, PARAMS), ValueError, "grad: expected arrays of shapes"),
    "another shape": (lambda: check_gradient(F, A.T, A), ValueError, r"got {'params': \(4, 3\)}"),
    "no samples": (lambda: check_gradient(F, GRAD, PARAMS, batch=0), ValueError, "batch: expected an integer"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        call()
