"""Edits of the source of a method: what they find, and that they change nothing else."""

import ast
import copy
import linecache
import re
import resource
import threading
import types
from functools import partial
from itertools import islice
from pathlib import Path
from time import sleep

import edits_table
import numpy as np
import pytest
from faults_of_further_users import FURTHER
from faults_of_users import USERS
from scipy.sparse.linalg import LinearOperator

import gbackprop as gb
from gbackprop import layers as L
from gbackprop.calculus.jacobian import ParameterJacobian, Reduction
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.residual import Factored
from gbackprop.calculus.signals import GRADIENT
from gbackprop.losses import CrossEntropyLoss, MSELoss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.quantities import Quantity, Statistic
from gbackprop.testing import check_layer, check_loss, check_operator, check_quantity
from gbackprop.testing.claims import Compared, Evaluation, NotGivenError
from gbackprop.testing.diagnosis import called, deadline, rewriting, search, slips
from gbackprop.testing.diagnosis.called import functions_of
from gbackprop.testing.diagnosis.deadline import Deadline
from gbackprop.testing.diagnosis.source import edits_of

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def time(monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 60)


def draw(*shape):
    return np.random.default_rng(1).standard_normal(shape)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def size(shape):
    return int(np.prod(shape))


def summed_up(x, share):
    return np.cumsum(x, 1) * share


class Slips:
    """Methods that lack something of what their names say; `right` has what is meant."""

    def __init__(self):
        self.tau, self.beta, self.mask = 0.7, 1.9, np.array([1.0, 0, 1, 1])

    def scaled(self, x):
        return x / np.sqrt(self.beta + 1)

    def forgotten_option(self, x, g):
        return g * np.exp(x) - g * x

    def number_for_an_option(self, x, g):
        share = self.tau
        return 0.5 * g + share * x

    def precedence(self, x, g):
        return x / g + self.tau

    def option_in_one_term(self, x, g):
        return self.beta * x + g**2 * np.tanh(x)

    def other_method(self, x, g):
        return g * logistic(x)

    def wrong_axis(self, x, g):
        return (x * g).sum(axis=0, keepdims=True)

    def one_axis(self, x, g):
        return np.sum(x * g, axis=0)

    def all_axes(self, x, g):
        return (x * g).sum(-1)

    def mean_for_sum(self, x, g):
        return np.sqrt((x**2).mean(1))

    def branches(self, x, g):
        return np.where(x > 0, g, self.tau * g)

    def transposed(self, x, g):
        return np.einsum("ni,nj->ij", x, g)

    def not_clipped(self, x, g):
        share = self.tau / np.abs(x)
        return g * share

    def written_over(self, x, g):
        out = np.zeros_like(x)
        for k in range(x.shape[1]):
            out[:, 0] = x[:, k] * g[:, k]
        return out

    def forgotten_mask(self, x, g):
        grad = 2 * (x - g)
        return grad

    def missing_term(self, x, g):
        s = logistic(x)
        return g * s * (1 - s)

    def square_of_sum(self, x, g):
        return (x * g).sum(0) ** 2

    def sum_of_squares(self, x, g):
        return (x**2).sum(1)

    def in_the_root(self, x, g):
        return g / np.sqrt(x**2 + self.tau)

    def beside_the_root(self, x, g):
        return g / (np.sqrt(x**2) + self.tau)

    def not_squared(self, x, g):
        d = x.shape[1]
        return g / (d * np.abs(x))

    def taken_as_symmetric(self, x, g):
        w = x.T @ g[:, :4]
        return 2 * w

    def matrix_not_transposed(self, x, g):
        return (x @ g[:4]).sum(1)

    def matrices_not_transposed(self, x, g):
        return np.stack([x, x]) @ np.stack([g, g])

    def root_too_much(self, x, g):
        return g * np.sqrt(np.abs(x))

    def forwards(self, x, g):
        out, last = np.zeros_like(x), 0 * x[:, 0]
        for k in range(x.shape[1]):
            out[:, k] = last = g[:, k] + self.tau * last
        return out

    def forgotten_constant(self, x, g):
        return g * np.exp(2 * x**2)

    def forgotten_sign(self, x, g):
        return self.tau / (1 + np.abs(x)) ** 3 + 0 * g

    def squares_for_roots(self, x, g):
        return x.sum() ** 2 / (x**2).sum() + 0 * g

    def entries_for_rows(self, x, g):
        return np.trace(x * x) + 0 * g

    def in_a_comprehension(self, x, g):
        return np.stack([x[:, k] * g[:, k] for k in range(x.shape[1])], 1)

    def nested(self, x, g):
        def inner(h):
            return h * g

        return inner(x) + inner(g)


class Others:
    """The same, of functions, indices and numbers of axes."""

    def __init__(self):
        self.tau = 0.7

    def smallest(self, x, g):
        return g * x.max(1, keepdims=True)

    def roots_apart(self, x, g):
        return np.sqrt(x**2) + np.sqrt(g**2)

    def root_of_all(self, x, g):
        return np.sqrt(x**2 + g**2)

    def without_first(self, x, g):
        found = 0
        for k in range(4):
            found = found + x[:, k] * np.cosh(g[:, k])
        return found

    def with_diagonal(self, x, g):
        return np.triu(x) @ g

    def once_too_often_transposed(self, x, g):
        return x @ g.T

    def inverse_forgotten(self, x, g):
        return x @ g

    def indexed_before(self, x, g):
        return x[:, ::-1] * np.cosh(g)

    def indexed_after(self, x, g):
        return (x * np.cosh(g))[:, ::-1]

    def first_of_them(self, x, g):
        return x.T[0] * len(g)

    def first_alone(self, x, g):
        return g[..., 0]

    def names_exchanged(self, x, g):
        c = np.cos(x)
        s = np.sinh(x)
        return -self.tau * (s * g[:, 0, None] + c * g[:, 1, None])

    def sum_missing(self, x, g):
        along = np.cosh(x * g)
        return along - x

    def another_permutation(self, x, g):
        return (x * g).reshape(5, 1, 2, 2).transpose(2, 1, 3, 0) + 0

    def reshaped_not_transposed(self, x, g):
        y = x * g
        return y.reshape(y.shape[1], y.shape[0])

    def shape_of_all(self, x, g):
        return g / size(g.shape)

    def not_summed_up(self, x, g):
        return g * summed_up(x, self.tau) - x

    def other_order(self, x, g):
        return np.einsum("na,nb->bna", x, g)

    def exponent(self, x, g):
        return np.abs(x) ** -self.tau * g

    def computed_exponent(self, x, g):
        return (1 + np.abs(g)) ** self.tau

    def of_another_method(self, x, g):
        return g + self.one(x)

    def one(self, x):
        return np.where(x > 0, np.cosh(x), 3)

    def other(self, x):
        y = np.where(x > 0, np.cosh(x), 3)
        return np.exp(y) / 7

    def plain_mean(self, x, g):
        return x - x.mean(1, keepdims=True)

    def unpacked_wrongly(self, x, g):
        a, b = x[:2]
        return a - 2 * b + 0 * g[0]

    def over_it(self, x, g):
        return np.sort(x[0]) + g

    def assigned_not_added(self, x, g):
        out = np.cosh(x * g)
        out += x
        return out - 2 * out

    def other_part_missing(self, x, g):
        return x @ g

    def axes_missing(self, x, g):
        return x - (x * g).mean(1, keepdims=True)

    def not_centered(self, x, g):
        y = np.cosh(x) * g
        return y + g

    def one_place_on(self, x, g):
        return x[:, 1:3] * g[:, 1:3]

    def argument_missing(self, x, g):
        return g * self.slope(x)

    def slope(self, x, order=0):
        return np.cosh(x) if order == 0 else np.sinh(x)


FOUND = {
    "forgotten_option": (lambda s, x, g: g * np.exp(x) - s.beta * g * x,
                         "`return g * np.exp(x) - g * x` were `return g * np.exp(x) - g * (self.beta * x)`"),
    "number_for_an_option": (lambda s, x, g: s.tau * (g + x), "were `return self.tau * g + share * x`"),
    "precedence": (lambda s, x, g: x / (g + s.tau), "`return x / g + self.tau` were `return x / (g + self.tau)`"),
    "option_in_one_term": (lambda s, x, g: s.beta * x + g**2 * np.tanh(s.tau * x), "np.tanh(x * self.tau)"),
    "other_method": (lambda s, x, g: g * logistic(s.scaled(x)),
                     "were `return g * logistic(self.scaled(x))`"),
    "wrong_axis": (lambda s, x, g: (x * g).sum(1, keepdims=True), "axis=1"),
    "one_axis": (lambda s, x, g: np.sum(x * g), "were `return np.sum(x * g, axis=None)`"),
    "all_axes": (lambda s, x, g: (x * g).sum((1, 2)), "were `return (x * g).sum(tuple(range(1, (x * g).ndim)))`"),
    "mean_for_sum": (lambda s, x, g: np.sqrt((x**2).sum(1)), "were `return np.sqrt((x ** 2).sum(1))`"),
    "branches": (lambda s, x, g: np.where(x > 0, s.tau * g, g), "were `return np.where(x"),
    "transposed": (lambda s, x, g: np.einsum("ni,nj->ji", x, g), "->"),
    "not_clipped": (lambda s, x, g: g * np.minimum(1, s.tau / np.abs(x)),
                    "`share = self.tau / np.abs(x)` were `share = np.minimum(1, self.tau / np.abs(x))`"),
    "written_over": (lambda s, x, g: np.stack([(x * g).sum(1)] + [0 * x[:, 0]] * 3, 1),
                     "`out[:, 0] = x[:, k] * g[:, k]` were `out[:, 0] += x[:, k] * g[:, k]`"),
    "forgotten_mask": (lambda s, x, g: 2 * s.mask * (x - g), "* self.mask`"),
    "missing_term": (lambda s, x, g: g * logistic(x) * (1 - logistic(x)) + s.tau, "+ self.tau`"),
    "square_of_sum": (lambda s, x, g: ((x * g) ** 2).sum(0), "were `return ((x * g) ** 2).sum(0)`"),
    "sum_of_squares": (lambda s, x, g: x.sum(1) ** 2, "were `return x.sum(1) ** 2`"),
    "in_the_root": (lambda s, x, g: g / (np.sqrt(x**2) + s.tau), "were `return g / (np.sqrt(x ** 2) + self.tau)`"),
    "beside_the_root": (lambda s, x, g: g / np.sqrt(x**2 + s.tau), "were `return g / np.sqrt(x ** 2 + self.tau)`"),
    "not_squared": (lambda s, x, g: g / (16 * np.abs(x)), "were `return g / (d * np.abs(x * d))`"),
    "taken_as_symmetric": (lambda s, x, g: x.T @ g + g.T @ x, "`return 2 * w` were `return w + w.swapaxes(-1, -2)`"),
    "matrix_not_transposed": (lambda s, x, g: (x @ g[:4].T).sum(1), "`return (x @ g[:4].T).sum(1)`"),
    "matrices_not_transposed": (lambda s, x, g: np.stack([x @ g.T] * 2),
                                "were `return np.stack([x, x]) @ np.stack([g, g]).swapaxes(-1, -2)`"),
    "root_too_much": (lambda s, x, g: g * np.abs(x), "were `return g * np.abs(x)`"),
    "forwards": (lambda s, x, g: np.stack([sum(s.tau ** (j - k) * g[:, j] for j in range(k, 4)) for k in range(4)], 1),
                 "`for k in range(x.shape[1]):` were `for k in reversed(range(x.shape[1])):`"),
    "forgotten_constant": (lambda s, x, g: g * np.exp(2 * x**2 - 1), "were `return g * np.exp(2 * x ** 2 - 1)`"),
    "forgotten_sign": (lambda s, x, g: s.tau * np.sign(x) / (1 + np.abs(x)) ** 3 + 0 * g, "np.sign(x)"),
    "squares_for_roots": (lambda s, x, g: np.sqrt(x).sum() ** 2 / x.sum() + 0 * g, "`x` were `np.sqrt(x)`"),
    "entries_for_rows": (lambda s, x, g: np.trace(x @ x) + 0 * g, "were `return np.trace(x @ x) + 0 * g`"),
    "in_a_comprehension": (lambda s, x, g: x * g * s.tau, "`g` were `self.tau * g`"),
    "nested": (lambda s, x, g: x * g - g * g, "`return inner(x) + inner(g)` were `return inner(x) - inner(g)`"),
}  # fmt: skip

OTHERS = {
    "smallest": (lambda s, x, g: g * x.min(1, keepdims=True), "were `return g * x.min(1, keepdims=True)`"),
    "roots_apart": (lambda s, x, g: np.sqrt(x**2 + g**2), "were `return np.sqrt(x ** 2 + g ** 2)`"),
    "root_of_all": (lambda s, x, g: np.sqrt(x**2) + np.sqrt(g**2), "were `return np.sqrt(x ** 2) + np.sqrt(g ** 2)`"),
    "without_first": (lambda s, x, g: (x * np.cosh(g))[:, 1:].sum(1), "for k in range(1, 4):`"),
    "with_diagonal": (lambda s, x, g: np.triu(x, 1) @ g, "were `return np.triu(x, 1) @ g`"),
    "once_too_often_transposed": (lambda s, x, g: x @ g, "were `return x @ g`"),
    "inverse_forgotten": (lambda s, x, g: x @ np.linalg.inv(g), "were `return x @ np.linalg.inv(g)`"),
    "indexed_before": (lambda s, x, g: (x * np.cosh(g))[:, ::-1], "were `return (x * np.cosh(g))[:, ::-1]`"),
    "indexed_after": (lambda s, x, g: x[:, ::-1] * np.cosh(g), "were `return x[:, ::-1] * np.cosh(g)`"),
    "first_of_them": (lambda s, x, g: x.sum(1), "were `return x.T.sum(0)`"),
    "first_alone": (lambda s, x, g: g.sum(-1), "were `return g.sum(-1)`"),
    "names_exchanged": (
        lambda s, x, g: -s.tau * (np.cos(x) * g[:, 0, None] + np.sinh(x) * g[:, 1, None]),
        "were `return -self.tau * (c * g[:, 0, None] + s * g[:, 1, None])`"),
    "sum_missing": (lambda s, x, g: np.cosh(x * g).sum(1, keepdims=True) - x, "np.cosh(x * g).sum(1, keepdims=True)`"),
    "another_permutation": (
        lambda s, x, g: (x * g).reshape(5, 1, 2, 2).transpose(3, 1, 0, 2), ".transpose(3, 1, 0, 2)"),
    "reshaped_not_transposed": (lambda s, x, g: (x * g).T, "were `return y.swapaxes(-1, -2)`"),
    "shape_of_all": (lambda s, x, g: g / g.shape[1], "were `return g / size(g.shape[1:])`"),
    "not_summed_up": (lambda s, x, g: g * summed_up(x, s.tau) - summed_up(x, s.tau), "- summed_up(x, self.tau)`"),
    "other_order": (lambda s, x, g: np.einsum("na,nb->abn", x, g), "'na,nb->abn'"),
    "exponent": (lambda s, x, g: np.abs(x) ** (-s.tau - 1) * g, "** (-self.tau - 1)"),
    "computed_exponent": (lambda s, x, g: (1 + np.abs(g)) ** (2 * s.tau), "** (2 * self.tau)"),
    "of_another_method": (lambda s, x, g: g + s.other(x), "were `return g + self.other(x)`"),
    "plain_mean": (lambda s, x, g: x - (g * x).sum(1, keepdims=True), "`return x - (g * x).sum(1, keepdims=True)`"),
    "unpacked_wrongly": (lambda s, x, g: x[1] - 2 * x[0], "`a, b = x[:2]` were `b, a = x[:2]`"),
    "over_it": (lambda s, x, g: np.sort(1 / x[0]) + g, "were `return np.sort(1 / x[0]) + g`"),
    "assigned_not_added": (lambda s, x, g: -x + 0 * g, "`out += x` were `out = x`"),
    "other_part_missing": (lambda s, x, g: x @ g + (x @ g).T, "`return x @ g + np.swapaxes(x @ g, -1, -2)`"),
    "axes_missing": (lambda s, x, g: x - (x * g).mean((1, 2), keepdims=True), "(x * g).mean((1, 2), keepdims=True)"),
    "not_centered": (lambda s, x, g: np.cosh(x) * g - (np.cosh(x) * g).mean(0) + g, "were `return y + g - y.mean(0)`"),
    "one_place_on": (lambda s, x, g: x[:, :2] * g[:, 1:3], "`return x[:, 1 - 1:3 - 1] * g[:, 1:3]`"),
    "argument_missing": (lambda s, x, g: g * np.sinh(x), "`return g * self.slope(x, 1)`"),
}  # fmt: skip


SQUARE = ("taken_as_symmetric", "matrix_not_transposed", "matrices_not_transposed", "entries_for_rows", "with_diagonal",
          "other_part_missing", "once_too_often_transposed", "inverse_forgotten", "over_it")  # fmt: skip


@pytest.mark.parametrize("name", FOUND | OTHERS)
def test_the_cheapest_edit_is_what_is_meant(name):
    right, words = (FOUND | OTHERS)[name]
    owner = Slips() if name in FOUND else Others()
    shape = (5, 4, 3) if name in ("all_axes", "axes_missing") else (5, 4)
    shape = (4, 4) if name in SQUARE else shape
    rng = np.random.default_rng(2)
    x, g = rng.uniform(0.2, 2, (2, *shape)) * (rng.integers(0, 2, (2, *shape)) * 2 - 1)
    x = abs(x) if name == "squares_for_roots" else x
    for _, said, function in edits_of(getattr(type(owner), name), owner):
        with np.errstate(all="ignore"):
            try:
                got = function(owner, x, g)
            except Exception:
                continue
        want = right(owner, x, g)
        numbers = np.shape(got) == np.shape(want) and np.asarray(got).dtype != object
        if numbers and np.allclose(got, want, equal_nan=False):
            assert words in said()
            return
    pytest.fail("no edit")


def test_an_edit_leaves_function_and_owner_as_they_are():
    owner = Slips()
    before, code = copy.deepcopy(vars(owner)), Slips.nested.__code__
    x, g = RNG.standard_normal((2, 5, 4))
    want, count = owner.nested(x, g), 0
    for cost, words, function in edits_of(Slips.nested, owner):
        assert isinstance(function, types.FunctionType)
        assert function.__code__ is not code
        assert 0 < cost < 3
        assert words().startswith(("`", "there were no `"))
        count += 1
    assert count > 100
    np.testing.assert_array_equal(owner.nested(x, g), want)
    assert Slips.nested.__code__ is code
    assert {name: np.asarray(value).tolist() for name, value in vars(owner).items()} == {
        name: np.asarray(value).tolist() for name, value in before.items()
    }


def test_each_edit_is_another_function_than_the_one_that_is_edited():
    texts = [words() for _, words, _ in edits_of(Slips.precedence, Slips())]
    assert len(set(texts)) > 1000
    assert not [text for text in texts if len(set(text.split("`")[1::2])) == 1 and " were " in text]
    costs = [cost for cost, _, _ in edits_of(Slips.precedence, Slips())]
    assert costs == sorted(costs)


def test_edits_that_are_no_programs_hide_no_others():
    """What a loop in brackets assigns to has names that can be exchanged, and calls that nothing can be assigned to."""

    def summed(self, x, g):
        return sum(x[:, k] * g[:, k] for k in range(len(x))) + g[:, 0]

    assert len([*edits_of(summed, Slips())]) > 1000


def test_what_is_assigned_inside_of_an_expression_stays_so():
    """Inside of a choice between functions it would be a name of that alone, and words would say what is not so."""

    def assigned(self, x, g):
        q = (s := np.sin(x)) + 1
        return s * q * g

    x, g = np.ones(3), np.arange(3.0)
    found = {words(): function(Slips(), x, g) for _, words, function in edits_of(assigned, Slips())
             if "(s := np.sin(x)) - 1`" in words()}  # fmt: skip
    (value,) = found.values()
    np.testing.assert_allclose(value, np.sin(1.0) * (np.sin(1.0) - 1) * g)


class Meant:
    """A class with attributes that no line of it names."""

    def __init__(self):
        vars(self).update(rate=0.5, mask=np.ones(3), _count=7, name="meant")

    def function(self, x):
        return x * 2


def test_the_numbers_of_an_object_are_what_may_be_meant_but_no_private_ones():
    words = [text() for _, text, _ in edits_of(Meant.function, Meant())]
    for name, meant in (("rate", True), ("mask", True), ("_count", False), ("name", False)):
        assert any(f"self.{name}" in each for each in words) is meant, name


def test_a_method_that_waits_is_not_tried_for_long():
    deadline = Deadline(0.01)
    assert not deadline.passed
    sleep(0.06)
    assert deadline.passed
    begun, later = Deadline(0), Deadline(0.01)
    sleep(0.06)
    later.put_off(begun)
    assert not later.passed


def endless(self, x):
    while x > 1:
        x = x / 2
    return x


def writing(self, x):
    with open("there", "w") as file:
        file.write(str(x))


def test_what_cannot_be_edited_is_left_alone():
    scope = {}
    exec("def made(self, x):\n    return x + 1\n", scope)
    for function in (scope["made"], endless, writing):  # without a source, that may not end, with more than a result
        assert not [*edits_of(function, Slips())]
    assert not functions_of(Slips(), "no_such_method")
    assert not functions_of(Slips(), "mask")
    assert [(name, function) for name, function, _ in functions_of(Slips(), "other_method")] == [
        ("", Slips.other_method), ("logistic", logistic), ("__init__", Slips.__init__),
    ]  # fmt: skip


class Child(Slips):
    def scaled(self, x):
        return super().scaled(x) + x


def test_closures_and_super_go_on_to_work():
    owner, x = Child(), RNG.standard_normal((3, 4))
    values = [function(owner, x) for _, words, function in edits_of(Child.scaled, owner) if "(x) - x`" in words()]
    assert any(np.allclose(value, Slips.scaled(owner, x) - x) for value in values)
    factor, made = 3.0, []
    made.append(lambda self, x: factor * x + 1)
    found = {words(): function(owner, x) for _, words, function in edits_of(made[0], owner) if "- 1`" in words()}
    np.testing.assert_array_equal(found["`return factor * x + 1` were `return factor * x - 1`"], factor * x - 1)


# ---------------------------------------------------------------------------------------------------- in the diagnosis


class OneFactor(Layer):
    """y = 3 x, and Jᵀ g = 2 g."""

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return 3 * x, ()

    def jmp(self, saved, mat):
        return 3 * mat

    def mjp(self, saved, mat):
        return 2 * mat


class Gate(Layer):
    """y = x σ(w x)."""

    def parameter_shapes(self):
        return {"w": ()}

    def draw(self, rng):
        return {"w": np.array(1.3)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        s = logistic(self.parameters["w"] * x)
        return x * s, (x, s)

    def mjp(self, saved, mat):
        x, s = saved
        return mat * (s + x * s * (1 - s))

    jmp = mjp

    def parameter_jacobians(self, saved):
        x, s = saved
        return {"w": OfScale(lambda mat: (mat * x**2 * s * (1 - s)).sum(-1))}


class OfScale(ParameterJacobian):
    def __init__(self, pull):
        self.pull = pull

    def per_sample(self, mat):
        return self.pull(mat)


class SlippedJacobian(Layer):
    """y = w ∘ x."""

    def parameter_shapes(self):
        return {"w": (4,)}

    def draw(self, rng):
        return {"w": rng.standard_normal(4)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["w"] * x, x

    def mjp(self, x, mat):
        return mat * self.parameters["w"]

    jmp = mjp

    def parameter_jacobians(self, x):
        offset = x.mean(1, keepdims=True)
        return {"w": OfScale(lambda mat: mat * (x - offset))}


class Blend(Layer):
    """y = a σ(b)."""

    def output_shape(self, shape, other):
        return shape

    def forward(self, a, b):
        s = logistic(b)
        return a * s, (a, s)

    def jmp(self, saved, mat, other):
        a, s = saved
        return mat * s + other * a * s * (1 - s)

    def mjp(self, saved, mat):
        a, s = saved  # noqa: RUF059
        return mat * s, mat * s * (1 - s)


def diagnosis(report, method):
    return next(row for row in report.failures if row.method == method).diagnosis


def test_a_method_of_a_layer_is_edited():
    proposals = diagnosis(check_layer(Gate(), draw(3, 4)), "mjp")
    assert proposals[0].words == (
        "right if `return mat * (s + x * s * (1 - s))` were `return mat * (s + self.parameters['w'] * x * s * (1 - s))`"
    )
    assert proposals[0].samples[1:] == (2, 7)


class Two(ElementwiseLoss):
    """ℓ = c Σ e^{b f} / b − y e^{a f} / a."""

    undrawn = "its Hessian depends on the target"
    finite_range = (-30.0, 30.0)

    def __init__(self, reduction="mean", a=-0.5, b=1.7):
        super().__init__(reduction)
        self.a, self.b = a, b

    def values(self, output, target):
        return self.summed(np.exp(self.b * output) / self.b - target * np.exp(self.a * output) / self.a)

    def gradients(self, output, target):
        c = self.summed_weight(output.shape[1:])
        return (np.exp(self.b * output) - target * np.exp(self.a * output)) * c

    def second(self, output, target):
        return np.exp(self.b * output) - self.a * target * np.exp(self.a * output)


def test_methods_behind_that_of_a_claim_are_edited():
    """Jacobians of parameters in `parameter_jacobians`, a loss's second derivative, and joins of several inputs."""
    words = diagnosis(check_layer(SlippedJacobian(), draw(3, 4)), "w.per_sample")[0].words
    assert "(lambda mat: mat * x)" in words
    assert words.endswith(", in parameter_jacobians")
    report = check_loss(Two(), RNG.standard_normal((4, 3)), np.abs(RNG.standard_normal((4, 3))))
    words = diagnosis(report, report.failures[0].method)[0].words
    assert "self.b * np.exp(self.b * output)" in words or "np.exp(self.b * output) * self.b" in words
    assert words.endswith(", in second")
    words = diagnosis(check_layer(Blend(), (draw(3, 4), draw(3, 4))), "mjp")[0].words
    assert "`return (mat * s, mat * (a * s) * (1 - s))`" in words


def test_what_holds_is_edited_nowhere():
    report = check_layer(SlippedJacobian(), draw(3, 4))
    assert report.failures[0].method == "w.per_sample"
    assert not any(row.diagnosis for row in report.rows if not row.failed)


class SampleNorms(Quantity):
    """‖R ∇ℓₙ‖², said to scale with R and c, and not with their squares."""

    name = "sample_norms"
    scale = "‖R ∇ℓₙ‖²"
    powers = (1, 1)
    needs = (Statistic("square_norm", GRADIENT),)

    def definition(self, p):
        return ((p.factor * p.gradients) ** 2).reshape(p.batch, -1).sum(1)


def test_no_edit_changes_what_is_expected():
    """Both sides of "scales with R and c" are of the method: a root of its result would scale as it is said."""
    network = gb.Sequential(L.Linear(3, 4), L.Tanh(), L.Linear(4, 3), rng=0, dtype="float64")
    (row,) = check_quantity(SampleNorms(), network, MSELoss(), draw(5, 3), draw(5, 3)).failures
    assert row.claim == "scales with R and c as it should"
    assert row.diagnosis
    assert not [each.words for each in row.diagnosis if "`" in each.words]


def test_edits_are_of_other_results_of_the_same_kind_and_as_linear():
    class Scaled:
        def mjp(self, x, mat):
            return x * mat

    x, columns = np.arange(1.0, 4), np.eye(3)
    call = rewriting._Call(Scaled(), "mjp", (x, columns), {}, x * columns)

    tried = set()

    def is_another(function):
        return call.is_another(lambda sound, owner, name: function, [], tried)

    assert is_another(lambda x, mat: 2 * x * mat)
    assert not is_another(lambda x, mat: mat * 2 * x)  # tried
    assert not is_another(lambda x, mat: mat * x)  # as before
    assert not is_another(lambda x, mat: 3 * x * mat * mat)
    assert not is_another(lambda x, mat: (3 * x * mat).sum(0))
    assert not is_another(lambda x, mat: x * unknown)  # noqa: F821
    assert is_another(lambda x, mat: 3 * x * mat)


def test_a_result_that_a_claim_compares_must_be_near_what_is_expected():
    """The claim, which may take a network's gradient, is then evaluated for few edits."""

    class Scaled:
        def mjp(self, x, mat):
            return x * mat

    x, columns = np.arange(1.0, 4), np.eye(3)
    call = rewriting._Call(Scaled(), "mjp", (x, columns), {}, x * columns)
    parts = {"a": (x * columns, 2 * x * columns), "b": (columns, 5 * columns), "c": (columns[0], columns[1])}
    (wanted,) = call.wanted(parts)
    np.testing.assert_array_equal(wanted, 2 * x * columns)
    for factor, near in ((3, False), (2.01, False), (2.0001, True), (2, True), (-2, False)):
        function = lambda x, mat, factor=factor: factor * x * mat  # noqa: E731
        assert call.is_another(lambda sound, owner, name, f=function: f, [wanted], set()) is near


class Sum(LinearOperator):
    """A ⊗ I + I ⊗ B, whose transpose has A where it should have Aᵀ."""

    def __init__(self, a, b):
        self.a, self.b = a, b
        super().__init__(np.float64, (len(a) * len(b),) * 2)

    def _matvec(self, v):
        x = v.reshape(len(self.a), len(self.b))
        return (self.a @ x + x @ self.b.T).ravel()

    def _rmatvec(self, v):
        x = v.reshape(len(self.a), len(self.b))
        return (self.a @ x + x @ self.b).ravel()


class Adjoint(Sum):
    """The same by SciPy's `_adjoint`."""

    def _rmatvec(self, v):
        return self._adjoint()._matvec(v)

    def _adjoint(self):
        return Sum(self.a, self.b.T)


def test_an_adjoint_of_an_operator_is_edited():
    a, b = draw(3, 3), draw(4, 4)
    (row,) = check_operator(Adjoint(a, b), np.kron(a, np.eye(4)) + np.kron(np.eye(3), b)).failures
    assert row.diagnosis[0].words.endswith("were `return Sum(np.swapaxes(self.a, -1, -2), self.b.T)`, in _adjoint")


def test_products_of_an_operator_are_edited():
    a, b = draw(3, 3), draw(4, 4)
    (row,) = check_operator(Sum(a, b), np.kron(a, np.eye(4)) + np.kron(np.eye(3), b)).failures
    assert row.diagnosis[0].words == (
        "right if `return (self.a @ x + x @ self.b).ravel()` were `return (self.a.T @ x + x @ self.b).ravel()`, "
        "in _rmatvec"
    )
    assert row.diagnosis[0].evidence.startswith("verified on 9 numbers")


class Binomial(ElementwiseLoss):
    """ℓ = c Σ n log(1 + eᶠ) − y f, of whose second derivative y is subtracted."""

    undrawn = "as if it had no density"

    def values(self, output, target):
        return self.summed(3 * np.log1p(np.exp(output)) - target * output)

    def gradients(self, output, target):
        return self.summed_weight(output.shape[1:]) * (3 * logistic(output) - target)

    def second(self, output, target):
        return (3 - target) * logistic(output) * logistic(-output)


def test_the_source_says_where_an_array_that_should_not_matter_is_taken():
    """That all is right for targets of 0 is true, too, and not what is wrong."""
    report = check_loss(Binomial(), RNG.standard_normal((4, 3)), RNG.integers(0, 3, (4, 3)).astype(float))
    assert "were `return 3 * logistic(output) * logistic(-output)`" in diagnosis(report, "hessian_sqrt")[0].words


class Counts(ElementwiseLoss):
    """ℓ = c Σ (y + r) log(r + eᶠ) − y f, of whose gradient one y lacks r: it is linear in y, and should not be."""

    undrawn, finite_range = "as if it had no density", (-40.0, 40.0)
    dispersion = 2.5

    def values(self, output, target):
        r = self.dispersion
        return self.summed((target + r) * np.log(r + np.exp(output)) - target * output)

    def gradients(self, output, target):
        r, mean = self.dispersion, np.exp(output)
        return self.summed_weight(output.shape[1:]) * (target * mean / (r + mean) - target)

    def second(self, output, target):
        r, mean = self.dispersion, np.exp(output)
        return (target + r) * mean / (r + mean) * (r / (r + mean))


def test_an_edit_of_a_loss_need_not_be_linear():
    report = check_loss(Counts(), RNG.standard_normal((4, 3)), RNG.integers(0, 3, (4, 3)).astype(float))
    assert diagnosis(report, "gradients")[0].words == "right if `target` were `target + r`"


class Cubed(Layer):
    """y = s x³ with a number s for each row, of as many numbers as a row has, and power 2, as its residual has it."""

    curvature = "diagonal"

    def __init__(self):
        self.power = 2
        self.slopes = np.array([0.5, 2.0, 3.0])

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.slopes.astype(x.dtype)[:, None] * x**3, x

    def jmp(self, saved, mat):
        return self.slopes.astype(mat.dtype) * 3 * saved**2 * mat

    def mjp(self, saved, mat):
        return self.slopes.astype(mat.dtype)[:, None] * 3 * saved * mat

    def residual(self, saved, grad):
        return 6 * self.slopes.astype(grad.dtype)[:, None] * saved**1 * grad


def test_axes_are_added_powers_are_numbers_and_dtypes_are_left_alone():
    report = check_layer(Cubed(), draw(3, 3, 3))
    assert "were `return self.slopes.astype(mat.dtype)[:, None] * 3" in diagnosis(report, "jmp")[0].words
    assert "saved ** 2 * mat`" in diagnosis(report, "mjp")[0].words
    edits = {words().rpartition("were `")[2]: cost for cost, words, _ in edits_of(Cubed.jmp, Cubed())}
    line = "return self.slopes.astype(mat.dtype) * 3 * saved ** {} * mat`"
    assert edits[line.format(3)] < edits[line.format("self.power")]
    line = "return self.slopes.astype(mat.dtype) * {} * saved ** 2 * mat`"
    assert edits[line.format(4)] < edits[line.format("self.power")] < edits[line.format("saved")]
    assert not [words for words in edits if re.search(r"dtype\b *[^).]", words)]


class Share(Quantity):
    """m² / (m² + Q/N), with Q for Q/N."""

    name, scale, merging, powers = "share", "m² / (m² + Q/N)", "a ratio does not add up", (0, 0)

    def statistics(self):
        return (Statistic("moments", GRADIENT),)

    def finish(self, scale, moments):
        square = moments.mean**2
        return (square / (square + moments.centered + 1e-300)).astype(scale.dtype)

    def definition(self, parts):
        g = parts.gradients
        return g.mean(0) ** 2 / (g**2).mean(0)


def test_a_quantity_may_lack_its_number_of_samples():
    network = gb.Sequential(L.Linear(3, 2), L.Tanh(), L.Linear(2, 2), rng=0, dtype="float64")
    report = check_quantity(Share(), network, MSELoss(), draw(5, 3), draw(5, 2))
    rows = [row for row in report.diagnose().failures if row.claim.startswith("is m²")]
    assert len(rows) == 2, "of the mean and of the sum"
    assert "scale.batch" in rows[0].known[0].words


@pytest.mark.parametrize("name", ["plain", "with_nan"])
def test_an_edit_that_makes_nan_is_taken_where_the_method_makes_some(name):
    """Comparisons with NaN are false: √x < 6 leaves out what is below 0, and is not what is meant."""

    class Limited:
        def plain(self, x):
            return (x < 6) * 1.0

        def with_nan(self, x):
            return (x < 6) + 0 * np.where(x > 0, np.sqrt(x), 0)

    with np.errstate(all="ignore"):
        x = np.array([-1.0, 2, 7])
        call = rewriting._Call(Limited(), name, (x,), {}, getattr(Limited(), name)(x))
        edited = lambda x: (np.sqrt(x) < 6) * 1.0  # noqa: E731
        assert call.is_another(lambda sound, owner, name: edited, [], set()) is (name == "with_nan")


class Mirrored(Layer):
    """y = x reversed, minus x: for columns of 0 and 1 the wrong sum is the absolute value of the right difference."""

    constant_jacobian = True

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x[:, ::-1] - x, None

    def jmp(self, saved, mat):
        return mat[..., ::-1] - mat

    def mjp(self, saved, mat):
        return mat[..., ::-1] + mat


def test_the_source_says_where_a_sign_was_lost():
    proposals = diagnosis(check_layer(Mirrored(), draw(3, 4)), "mjp")
    assert proposals[0].words == "right if `return mat[..., ::-1] + mat` were `return mat[..., ::-1] - mat`"
    assert "right without this: its absolute value" in [each.words for each in proposals]


OF_USERS = {
    "activation: sides exchanged": "np.where(x > 0, 1, s.negative_slope)`, in first",
    "layer: one norm too few": "were `return Unit.residual(s, saved, g)`",
    "layer: sums of the other axis": "sum(1)`",
    "layer: mean over samples": "were `return RowSums.jmp(s, x, mat)`",
    "layer: three axes, two exchanged": "were `'vno,oij,i->vnj'`",
    "layer: factor forgotten": "the parameter d has no effect",  # (1 - mat) is right for columns of 0 and 1
    "quantity: residual subtracted": "were `return (one + other).sum()`",
    "loss: weights of the sides exchanged": "tau=s.tau)",
    "loss: log 2 added": "were `return LogCosh.values(s, f, y)`",
}


@pytest.mark.parametrize("name", OF_USERS)
def test_a_wrong_line_of_a_user_is_shown_as_it_should_be(name):
    check, _ = (USERS | FURTHER)[name]
    assert OF_USERS[name] in check().failures[0].diagnosis[0].words


def test_columns_of_zeros_and_ones_do_not_pass_a_square_for_what_is_linear():
    columns = np.eye(3)
    assert rewriting._is_linear(lambda x, mat: x * mat, (2.0, columns))
    assert not rewriting._is_linear(lambda x, mat: x * mat * mat, (2.0, columns))
    assert not rewriting._is_linear(lambda: columns, ())
    assert not rewriting._is_linear(lambda mat: {"weight": mat}, (columns,))


class Whitened(ElementwiseLoss):
    """½ |Lᵀ (f − y)|², whose draws are f + L⁻ᵀ z, with the transpose forgotten."""

    root = np.array([[1.2, 0.0], [0.9, 0.6]])

    def values(self, output, target):
        return self.summed(((output - target) @ self.root.astype(output.dtype)) ** 2 / 2)

    def gradients(self, output, target):
        both = (self.root @ self.root.T).astype(output.dtype)
        return (output - target) @ both * self.summed_weight(output.shape[1:])

    def hessian_sqrt(self, output, target, columns=slice(None)):
        root = self.root.T.astype(output.dtype) * self.summed_weight(output.shape[1:]) ** 0.5
        return np.repeat(root[:, None], len(output), 1)[columns]

    def noise(self, batch_shape, mc_samples, rng):
        return rng.standard_normal((mc_samples, *batch_shape))

    def pseudo_targets(self, output, noise):
        inverse = np.linalg.inv(self.root)
        return output + (noise @ inverse.T).astype(output.dtype)


def test_draws_are_edited():
    report = check_loss(Whitened(), draw(4, 2), draw(4, 2)[::-1])
    row = next(row for row in report.failures if row.claim.startswith("follows"))
    assert row.diagnosis[0].words == (
        "right if `return output + (noise @ inverse.T).astype(output.dtype)` were "
        "`return output + (noise @ inverse).astype(output.dtype)`, in pseudo_targets"
    )


def largest(each, sign):
    sizes = np.abs(each).reshape(*each.shape[:3], -1)
    return sizes.max(3).sum(0)


class RowSizes(Quantity):
    """Σᵢ |R ∂ℓₙ/∂W[o, i]|, with the largest for the sum."""

    name = "row_sizes"
    scale = "Σᵢ |R ∂ℓₙ/∂W[o, i]|"
    merging, powers = gb.data.Rows(), (1, 1)
    needs = (Statistic(Reduction("row_sizes", "Σᵢ |Jᵀg|", lambda p: p[0], True, largest), GRADIENT),)

    def definition(self, parts):
        g = abs(parts.factor * parts.gradients)
        return g.reshape(*g.shape[:2], -1).sum(2)


class Shares(Quantity):
    """Shares of the samples in Σₙ tr(Jₙᵀ Hₙ Jₙ), with the gradient in place of the Hessian's root."""

    name = "shares"
    scale = "tr(Jₙᵀ Hₙ Jₙ) / Σₘ tr(Jₘᵀ Hₘ Jₘ)"
    merging, powers = "shares are of one batch", (0, 0)
    needs = (Statistic("batch_square", GRADIENT),)

    def finish(self, scale, square):
        traces = square.reshape(scale.batch, -1).sum(1)
        return traces / traces.sum()

    def definition(self, parts):
        j = parts.jacobians.reshape(*parts.jacobians.shape[:2], -1)
        traces = np.einsum("ncp,ncd,ndp->n", j, parts.hessians, j)
        return traces / traces.sum()


@pytest.mark.parametrize(("quantity", "words"), [
    (RowSizes(), "right if `return sizes.max(3).sum(0)` were `return sizes.sum(3).sum(0)`, in largest"),
    (Shares(), "right if the statistic 'batch_square' of gradient were 'batch_square' of exact"),
])  # fmt: skip
def test_statistics_and_their_formulas_are_edited(quantity, words):
    net = gb.Sequential(L.Linear(3, 4), L.Tanh(), L.Linear(4, 2), rng=0, dtype="float64")
    row = check_quantity(quantity, net, CrossEntropyLoss(), draw(4, 3), np.array([0, 1, 1, 0])).failures[0]
    assert row.diagnosis[0].words == words


class LowRank(LinearOperator):
    """(c I + U Uᵀ)⁻¹, with I for c I inside."""

    symmetric = True

    def __init__(self, u, damping):
        self.u, self.damping = u, damping
        self.small = np.eye(u.shape[1]) + u.T @ u
        super().__init__(np.float64, (len(u), len(u)))

    def _matmat(self, v):
        return (v - self.u @ np.linalg.solve(self.small, self.u.T @ v)) / self.damping


class Unstored(LowRank):
    def __init__(self, u, factor):
        super().__init__(u, factor / 2)


def test_what_the_constructor_computes_is_edited_where_its_arguments_are_attributes():
    u = draw(6, 2)
    right = np.linalg.inv(0.3 * np.eye(6) + u @ u.T)
    row = check_operator(LowRank(u, 0.3), right).failures[0]
    assert row.diagnosis[0].words.endswith("were `self.small = np.eye(u.shape[1]) * damping + u.T @ u`, in __init__")
    given = called.given_to(LowRank(u, 0.3))
    assert given is not None
    assert list(given) == ["u", "damping"]
    changed = LowRank(u, 0.3)
    changed.small = 2 * changed.small
    assert called.given_to(changed) is None
    assert called.given_to(Unstored(u, 0.6)) is None
    assert called.given_to(L.Linear(2, 3)) is None


class Quadratic(Layer):
    """y = xᵀ A x of each sample, of whose derivative (A + Aᵀ) x one term is missing."""

    def __init__(self, a):
        self.a = a

    def forward(self, x):
        return ((x @ self.a) * x).sum(1, keepdims=True), x

    def mjp(self, x, mat):
        return mat * (x @ self.a)


def test_an_edit_of_the_constructor_may_not_change_what_is_expected():
    """With A + Aᵀ for A the product is right, and the function is another; what `forward` does not take may change."""
    edits = [lambda self, a: setattr(self, "a", a + a.T), lambda self, a: vars(self).update(a=a, other=-a)]
    tried = [partial(rewriting._rewritten, called.CONSTRUCTOR, new, len) for new in edits]
    with pytest.raises(ValueError, match=r"^what is expected would be another, too"):
        tried[0](Quadratic(draw(3, 3)), "mjp")
    assert tried[1](Quadratic(draw(3, 3)), "mjp") is len
    assert tried[0](Quadratic(draw(3, 3)), "forward") is len


class Halves(Layer):
    """y = x / 2 + tanh(x), by functions of which one is of the forward pass, too."""

    def part(self, x):
        return x / 2

    def slope(self, saved):
        return 1 + saved**2

    def forward(self, x):
        y = np.tanh(x)
        return self.part(x) + y, y

    def mjp(self, saved, mat):
        return self.part(mat) + mat * self.slope(saved)

    def jmp(self, saved, mat):
        return self.part(mat) + mat * (1 - saved**2)


def test_functions_that_other_methods_call_are_edited_last():
    assert called.callers("part", Halves()) == 3
    assert called.callers("slope", Halves()) == 1
    call = types.SimpleNamespace(owner=Halves(), name="mjp")
    places = {place.title: place for place in rewriting._sources([("mjp", call), ("mjp", call)])}
    assert {title: place.more for title, place in places.items()} == {"mjp": 0.0, "part": 0.35, "slope": 0.0}
    row = next(row for row in check_layer(Halves(), draw(3, 4)).failures if row.method == "mjp")
    assert row.diagnosis[0].words == "right if `return 1 + saved ** 2` were `return 1 - saved ** 2`, in slope"


def folded(x):
    return x if np.ndim(x) < 2 else folded(x.sum(0))


def test_a_function_that_calls_itself_is_edited():
    found = {words(): function(np.ones((3, 4, 2))) for _, words, function in edits_of(folded, Slips())
             if "were `return x if np.ndim(x) < 2 else folded(x.mean(0))`" in words()}  # fmt: skip
    (value,) = found.values()
    np.testing.assert_array_equal(value, 4 * np.ones(2))  # inside, the function is as it was


@pytest.mark.skipif(not deadline.STATUS.exists(), reason="the size of a process is known on Linux alone")
def test_an_edit_may_not_take_all_memory():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with deadline.limited_memory(1 << 30):
        assert np.zeros(1 << 24).sum() == 0
        with pytest.raises(MemoryError):
            np.ones(1 << 29)
        with pytest.raises(ZeroDivisionError), deadline.limited_memory():
            assert 1 / 0
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_deadline_looks_at_times_seldom_and_ends(monkeypatch):
    end = Deadline(0.0)
    assert end.passed
    looks = []
    monkeypatch.setattr(deadline, "process_time", lambda: looks.append(0) or 0.0)
    end = Deadline(100.0)
    assert not any(end.passed for _ in range(1000))
    assert len(looks) < 500


def test_a_deadline_is_put_off_by_the_time_that_something_else_took(monkeypatch):
    processor, clock = iter([10.0, 11.0, 14.0]), iter([100.0, 101.0, 106.0])
    monkeypatch.setattr(deadline, "process_time", lambda: next(processor))
    monkeypatch.setattr(deadline, "perf_counter", lambda: next(clock))
    end, since = Deadline(2.0), Deadline(0.0)
    end.put_off(since)
    assert end.ends == (12 + 3, 100 + 2 * deadline.WAITING + 5)


def made(self, x, g):
    return OfScale(x)


def test_what_makes_an_object_is_taken_for_no_array_and_numbers_of_draws_are_left_alone():
    texts = [words() for _, words, _ in edits_of(made, Slips())]
    assert "`return OfScale(x)` were `return OfScale(g)`" in texts
    assert not [text for text in texts if text.endswith("were `return g`")]
    assert [name for name, *_ in functions_of(Whitened(), "draw")] == [".pseudo_targets"]


def test_an_edit_must_leave_what_was_compared():
    one = np.ones(3)

    def trial(name):
        after = Evaluation(lambda: Compared({name: one}, {name: one}, "ones"), ())
        return types.SimpleNamespace(at=lambda change: after, compared=Compared({"a": 2 * one}, {"a": one}, "ones"))

    assert rewriting.mends([trial("a")], [], None)
    assert not rewriting.mends([trial("b")], [], None)


def test_an_edit_after_which_a_claim_is_not_given_mends_nothing():
    for after, mended in ((lambda: "", True), (not_given, False)):
        trial = types.SimpleNamespace(at=lambda change, after=after: Evaluation(after, ()), compared=None)
        assert rewriting.mends([trial], [], None) == mended


def not_given():
    raise NotGivenError("there is no such matrix")


def test_objects_that_differ_are_of_one_kind():
    one, other = (rewriting._numbers((types.SimpleNamespace(a=size), np.ones(2))) for size in (1.0, 2.0))
    assert one != other
    assert rewriting._kinds(one) == rewriting._kinds(other) != rewriting._kinds(rewriting._numbers(np.ones(2)))


class SignSquared(ParameterJacobian):
    """The sign of a column is squared with it; the first call of the claim has no signs."""

    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x

    def square(self, mat, sign=None):
        each = mat**2 if sign is None else (sign[..., None] * mat) ** 2
        return (each * self.x**2).sum((0, 1))


def test_the_call_is_looked_at_whose_result_is_wrong():
    class Signed(L.Scale):
        def parameter_jacobians(self, saved):
            return {name: SignSquared(saved) for name in super().parameter_jacobians(saved)}

    row = next(row for row in check_layer(Signed(3), draw(4, 3)).failures if row.method == "weight.square")
    assert "were `each = mat ** 2 if sign is None else sign[..., None] * mat ** 2`" in row.diagnosis[0].words


@pytest.mark.skipif(not deadline.STATUS.exists(), reason="the size of a process is known on Linux alone")
def test_of_two_threads_that_limit_memory_none_leaves_a_limit():
    before = resource.getrlimit(resource.RLIMIT_AS)
    entered, left = threading.Event(), threading.Event()

    def other():
        with deadline.limited_memory():
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    with deadline.limited_memory():
        thread.start()
        assert entered.wait(10)
    left.set()
    thread.join()
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_the_edits_are_those_that_are_written_down():
    """Whatever is no longer tried, or at another cost, shows here; the file is the output of `edits_table`."""
    written = Path(__file__).with_name("edits.txt").read_text(encoding="utf-8").splitlines()
    assert [*edits_table.of_kinds(), *edits_table.of_methods()] == written


class Grown:
    """Lists that grow in each way."""

    def appended(self, x):
        found = []
        for row in x:
            found.append((row, 1))
        return found

    def assigned(self, x):
        found = [None] * len(x)
        for i, row in enumerate(x):
            found[i] = row
        return found

    def added(self, x):
        found = []
        for row in x:
            found += [row]
        return found


@pytest.mark.parametrize("name", ["appended", "assigned", "added"])
def test_no_list_becomes_a_part_of_itself(name):
    """NumPy would make an array of it in time without end."""
    texts = [words() for _, words, _ in edits_of(getattr(Grown, name), Grown())]
    assert len(texts) > 100
    wrong = re.compile(r"append\(\(found,|\] = found`|\[found\]|row\.append|x\.append")
    assert not [text for text in texts if wrong.search(text)]


def test_no_module_is_taken_for_an_array():
    class Owner:
        def total(self, x):
            return types.new_class(x)

    texts = [words() for _, words, _ in edits_of(Owner.total, Owner())]
    assert texts
    assert not [text for text in texts if "x.new_class" in text or "types **" in text]

    def named(self, types):
        return 3 * types

    texts = [words() for _, words, _ in edits_of(named, Slips())]
    assert any(text.endswith("were `return 3 * types ** 2`") for text in texts), "here it is an argument"


def test_results_that_are_functions_are_told_apart_by_what_they_give():
    """All edits at one place have the same code, and a number outside of it."""

    def columns(number):
        scope = {"np": np, "number": number}
        exec("def made(span):\n    return number * np.ones((1, 2, 3)), np.ones((1, 2))", scope)
        return Factored(1, scope["made"])

    assert rewriting._numbers(columns(2)) == rewriting._numbers(columns(2))
    assert rewriting._numbers(columns(2)) != rewriting._numbers(columns(3))
    assert isinstance(rewriting._numbers(columns("two")), bytes), "what raises is compared as an object"


def test_the_source_is_looked_at_if_the_search_among_arrays_took_its_time(monkeypatch):
    def careful(self):
        self.deadline = self.relations.deadline = Deadline(-1)
        return []

    monkeypatch.setattr(search._Search, "careful", careful)
    row = next(row for row in check_layer(OneFactor(), draw(3, 4)).failures if row.method == "mjp")
    assert "`return 2 * mat` were `return " in row.diagnosis[0].words


def test_no_edit_calls_what_does_more_than_compute():
    class Owner:
        def stored(self, x):
            np.save("x", x)
            return x

        def plain(self, x):
            return self.beta * x

        def __init__(self):
            self.beta = 2.5

    words = [words() for _, words, _ in edits_of(Owner.plain, Owner())]
    assert len(words) > 100
    assert "save" not in str(words)
    assert not [each for each in words if "self **" in each or ".beta.beta" in each or "x.beta" in each]


def test_a_function_of_numpy_is_edited_as_the_method_of_an_array_is():
    class Owner:
        def total(self, x):
            return np.sum(x, 1)

    texts = [words().rpartition("return ")[2] for _, words, _ in edits_of(Owner.total, Owner())]
    assert {"x.sum((1, 2))`", "x.sum(tuple(range(1, x.ndim)))`"} <= set(texts)
    assert "np`" not in texts, "no array"


class Tempered(CrossEntropyLoss):
    """Cross-entropy of f / 2, whose draws are those of f: the targets are few, and no claim on draws is quicker."""

    def values(self, output, target):
        return super().values(self.halved(output), target)

    def gradients(self, output, target):
        return super().gradients(self.halved(output), target) / 2

    def hessian_sqrt(self, output, target, columns=slice(None)):
        return super().hessian_sqrt(self.halved(output), target, columns) / 2

    def pseudo_targets(self, output, noise):
        return super().pseudo_targets(output, noise)

    def halved(self, output):
        return output / 2


def test_draws_of_few_targets_are_edited_by_the_claim_on_them():
    rows = check_loss(Tempered(), draw(4, 3), np.array([0, 2, 1, 2])).failures
    row = next(row for row in rows if row.method == "draw")
    assert "were `return super().pseudo_targets(output / 2, noise)`" in row.diagnosis[0].words


def writes(x):
    Path("no_such_folder", "log").open("a").close()
    return x


def grown(x):
    return writes(x)


def unending(x):
    while x.min() < 1e300:
        x = 2 * x
    return x


def harmless(x):
    return 2 * x


class Careless:
    """Methods that call functions which write files or need not end; an edit may not."""

    def wrong(self, x, g):
        return g * np.sin(x)

    def record(self, x):
        return writes(x)

    def grow(self, x):
        return grown(x)

    def loop(self, x):
        return unending(x)

    def calm(self, x):
        return harmless(x)

    def through(self, x):
        return self.record(x)


def test_no_edit_calls_functions_that_do_more_than_compute():
    owner = Careless()
    said = " ".join(words() for _, words, _ in edits_of(Careless.wrong, owner))
    assert "self.calm(x)" in said
    assert "harmless(x)" in said
    for name in ("record", "grow", "loop", "through", "writes", "grown", "unending"):
        assert f"{name}(x)" not in said, name


@pytest.mark.parametrize(("call", "others"), [
    ("x.reshape(2, 3).sum(1)", ["x.reshape(3, 2).sum(0)"]),
    ("x.reshape((2, 3)).max((0, 1))", ["x.reshape(3, 2).max((0, 1))"]),
    ("x.reshape(6).sum(0)", []), ("x.reshape(2, 3).sum(2)", []), ("x.reshape(sizes).sum(1)", []),
])  # fmt: skip
def test_a_reduction_of_a_reshaped_array_is_tried_with_its_axes_in_another_order(call, others):
    """Not over an axis that the array has not: such a line raises, and its other edits are tried all the same."""
    assert [ast.unparse(each) for each in slips._reshaped(ast.parse(call, mode="eval").body)] == others


def test_all_orders_are_tried_of_few_axes_alone():
    of = lambda sizes: list(slips._reshaped(ast.parse(f"x.reshape{sizes}.sum(0)", mode="eval").body))  # noqa: E731
    assert [len(of(tuple(range(2, 2 + count)))) for count in (2, 3, 4, 5)] == [1, 5, 23, 0]


@pytest.mark.parametrize(("text", "axis"), [("g[0]", 0), ("g[..., 0]", -1), ("g[:, 0]", None), ("g[..., 0, 1]", None)])
def test_of_one_entry_the_sum_and_the_mean_over_its_axis_may_be_meant(text, axis):
    found = [new for _, new in slips._summed(ast.parse(text, mode="eval").body)]
    assert found == ([] if axis is None else [f"(g).{name}({axis})" for name in ("sum", "mean")])


def test_an_expression_with_a_backslash_is_taken_as_it_stands():
    class Owner:
        sizes = {"\x01": 3.0}

        def scaled(self, x):
            return x * self.sizes["\x01"] + np.sin(x)

    words = [words() for _, words, _ in edits_of(Owner.scaled, Owner())]
    assert any("np.sin(x) + np.sin(self.sizes['\\x01'])" in each for each in words)


def from_text(source, monkeypatch):
    """Return the function of a source that is in no file."""
    monkeypatch.setitem(linecache.cache, "<made>", (len(source), None, source.splitlines(True), "<made>"))
    scope = {"np": np, "__name__": __name__}
    exec(compile(source, "<made>", "exec"), scope)
    return scope["second"]


def test_a_tree_that_is_too_deep_has_no_edits(monkeypatch):
    few, many = ("def second(self, x, y):\n    return " + " + ".join(n * ["x"]) for n in (9, 700))
    assert next(edits_of(from_text(few, monkeypatch), Slips()), None) is not None
    assert next(edits_of(from_text(many, monkeypatch), Slips()), None) is None


class Looks:
    """A deadline that is passed after a number of looks at it."""

    def __init__(self, left):
        self.left = left

    @property
    def passed(self):
        self.left -= 1
        return self.left < 0


def test_the_edits_of_a_long_function_are_found_until_a_time(monkeypatch):
    lines = "".join(f"    t{i} = np.cos(t{i - 1}) * {i} + t{i - 1} * 0.5 - x[:, :1]\n" for i in range(1, 300))
    second = from_text(f"def second(self, x, y):\n    t0 = x * 2\n{lines}    return 2 * t299\n", monkeypatch)
    assert 0 < len([*islice(edits_of(second, Slips(), Looks(50)), 51)]) <= 50


class Unpacking:
    def mjp(self, saved, mat):
        one, other = saved
        return mat * one * other


def test_terms_are_sizes_of_what_is_given_and_not_unpacked():
    words = " ".join(said() for _, said, _ in edits_of(Unpacking.mjp, Unpacking()))
    assert "len(mat)" in words
    assert "len(saved)" not in words
