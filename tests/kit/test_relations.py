"""What is said of two sides of a claim that differ by one edit, on drawn samples."""

from types import SimpleNamespace

import numpy as np
import pytest

from gbackprop import layers
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.testing import check_layer
from gbackprop.testing.claims import Compared, Evaluation
from gbackprop.testing.diagnosis import relations, rewriting, search

X = np.random.default_rng(0).random((5, 4)) + 0.2
S = np.random.default_rng(1).random((5, 3, 3)) + 0.2


@pytest.fixture(autouse=True)
def _with_time(monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 60)


def proposals(got, want, samples=X, **options):
    def check(claims, subject, rng):
        (x,) = claims.fresh(samples)
        claims.equal("method", "claim", lambda x: Compared(got(x), want(x), "oracle", **options), x)

    return search.diagnose(check, SimpleNamespace(), "method", "claim")


def first(got, want=lambda x: x, samples=X, **options):
    found = proposals(got, want, samples, **options)
    return found[0].words if found else ""


def test_a_result_is_a_multiple_or_a_change_of_what_is_expected():
    assert first(lambda x: 2 * x) == "right if divided by 2"
    assert first(lambda x: -x) == "right if it had the other sign"
    assert first(lambda x: len(x) * x) == "right if divided by N = 5"
    assert first(lambda x: 0.7 * x) == "right if divided by 7/10"
    assert first(lambda x: x[:, ::-1]) == "right with this: axis 1 reversed"
    assert first(lambda x: 3 * x[:, ::-1]) == "right with this: axis 1 reversed, divided by 3"
    assert first(lambda x: np.cumsum(x, 1)) == "right without this: summed up along axis 1"
    assert first(lambda x: np.where(x > 0.7, np.nan, 2 * x), lambda x: np.where(x > 0.7, np.nan, x)) == (
        "right if divided by 2"
    )
    assert first(lambda x: 0 * x) == "left out: what is got is 0 everywhere"
    assert first(lambda x: x, lambda x: x - x.mean(0)) == "right with this: the mean over axis 0 subtracted"


@pytest.mark.parametrize(("sizes", "words"), [({7}, ""), ({2, 7}, "right if divided by 2")], ids=["one", "two"])
def test_what_fails_on_one_batch_alone_has_no_proposal(sizes, words):
    """Many an edit holds on one batch by chance."""
    assert first(lambda x: 2 * x if len(x) in sizes else x) == words


def test_products_of_many_terms_are_looked_at_while_there_is_time(monkeypatch):
    """Naming the constant of each takes a tenth of a second, and there may be many."""
    looked = []

    def compounds(sides, views):
        for k in range(9):
            looked.append(k)
            yield ["g"], "x", "y", 0.5 + k, 1.0

    monkeypatch.setattr(relations, "compounds", compounds)
    for passed, count in ((False, 9), (True, 1)):
        trial = SimpleNamespace(parts={"": (X, 2 * X)}, terms={}, sizes={}, precision=1e-10, others={"": {}}, seed=0)
        trial.wrong = lambda: [""]
        found = relations.Relations([trial], SimpleNamespace(passed=False))
        monkeypatch.setattr(found, "library", lambda trial, name: {})
        monkeypatch.setattr(relations, "plain", lambda *given: {})
        monkeypatch.setattr(found, "held", lambda *given, f=found, p=passed: setattr(f.deadline, "passed", p))
        looked.clear()
        list(found.compounds())
        assert len(looked) == count + passed


def test_a_constant_is_named_as_exactly_as_the_claim_is():
    assert first(lambda x: 3**0.5 * x) == "right if divided by √3"
    assert first(lambda x: 1.7320508 * x) == "right if divided by 1.7320508"


def test_a_move_by_one_is_named_though_what_comes_in_is_not_known():
    fresh = np.arange(9.0) + 0.3
    for step, words in ((1, "back"), (-1, "on")):
        moved = lambda x, s=step: np.roll(np.column_stack([x, fresh[: len(x)]]), s, 1)[:, :4]  # noqa: E731
        assert first(moved) == f"right if axis 1 were moved {words} by one"
        assert first(lambda x, f=moved: 2 * f(x)) == f"right if axis 1 were moved {words} by one, divided by 2"
    two = lambda x: np.column_stack([x[:, 1], fresh[: len(x)]])  # noqa: E731
    assert first(two, lambda x: x[:, :2]) == ""  # one entry is not enough


def test_a_factor_may_be_at_some_places_alone():
    def at(*places):
        return lambda x: np.where(np.isin(np.arange(4), places), 2 * x, x)

    assert first(at(0, 1, 2)) == "right if divided by 2, at 0 to 2 along axis 1 alone"
    assert first(at(0, 2, 3)) == "right if divided by 2, at 0 and 2 and 3 along axis 1 alone"
    assert [each.words for each in proposals(at(0, 1, 2, 3), lambda x: x)] == ["right if divided by 2"]


def test_something_is_missing_or_too_much():
    assert first(lambda x: x + 3) == "right if -3 were added"
    assert first(lambda x: x + 1 / len(x)) == "right if -1/N = -0.2 were added"
    assert first(lambda x: x + 3 * np.eye(3), samples=S) == "right if -3 were added on the diagonal"
    assert first(lambda x: 0 * x + 0.5, lambda x: 0 * x) == "right if -1/2 were added"
    words = "right if -2 times what is expected, axis 1 reversed, were added"
    assert first(lambda x: x + 2 * x[:, ::-1]) == words


def test_a_result_of_another_shape_lacks_an_axis():
    assert first(lambda x: x.sum(1)) == "right without this: summed over axis 1"
    assert first(lambda x: x.mean(0)) == "right without this: the mean over axis 0"
    assert first(lambda x: x[0]) == "right without this: the first along axis 0"
    assert first(lambda x: 1.5 * x.sum(1)) == first(lambda x: x.sum(1) + 1e-6) == ""


def test_parts_that_are_exchanged_are_named():
    def parts(*names):
        return lambda x: dict(zip(names, (x, x**2, np.exp(x), x), strict=True))

    want = parts("a/A", "a/B", "b/A", "c")
    assert first(parts("a/B", "a/A", "b/A", "c"), want) == "right if a/A and a/B were exchanged"
    assert first(parts("a/B", "b/A", "a/A", "c"), want) != "right if a/A and b/A were exchanged", "three in a circle"
    want = lambda x: parts("a/A", "a/B", "b/A", "c")(x) | {"b/B": x**3}  # noqa: E731
    twice = lambda x: parts("a/B", "a/A", "b/B", "c")(x) | {"b/A": x**3}  # noqa: E731
    assert first(twice, want) == "right if a/A and a/B, b/A and b/B were exchanged"
    one = lambda x: parts("a/B", "a/A", "b/A", "c")(x) | {"b/B": np.sin(x)}  # noqa: E731
    assert "exchanged" not in first(one, want), "that alone is not enough"


def test_parts_that_are_wrong_are_named():
    def parts(one, other):
        return lambda x: {"a": one * x, "b": other * x, "c": x}

    assert first(parts(2, 3), parts(1, 1)) == "right if divided by 2 in a, divided by 3 in b"
    assert first(parts(2, 2), parts(1, 1)) == "right if divided by 2, in a, b"
    assert first(parts(1, 5), parts(1, 1)) == "right if divided by 5, in b"
    unknown = np.random.default_rng(5).random((5, 4))
    both = lambda x: {"a": x, "b": x}  # noqa: E731
    assert first(lambda x: {"a": 2 * x, "b": unknown[: len(x)]}, both) == "", "one of two"
    assert first(lambda x: {"a": x**2, "b": unknown[: len(x)]}, both) == "", "one of two"
    assert first(lambda x: {"a": x**2, "b": x[:, ::-1]}, both) == (
        "right without this: squared, in a; right with this: axis 1 reversed, in b"
    )
    many = "abcdef"
    assert first(lambda x: dict.fromkeys(many, 2 * x) | {"g": x}, lambda x: dict.fromkeys(many + "g", x)) == (
        "right if divided by 2, in a, b, c …"
    )
    assert first(lambda x: {"a": x[:, ::-1], "b": 2 * x[:, ::-1]}, lambda x: {"a": x, "b": x}) == (
        "right with this: axis 1 reversed, divided by 1 in a, divided by 2 in b"
    )


def of_draws(factor, error, sizes=(5, 7)):
    """Return what is said of means of draws that are a factor of N too large, with errors."""
    trials = []
    for n in sizes:
        want = np.array([1.0, 2.0])
        compared = SimpleNamespace(draws=(factor(n) * want, want, error * want), sizes={})
        trial = SimpleNamespace(compared=compared, sizes={"N": float(n)}, tolerance=5, parts={}, wrong=list)
        trials.append(trial)
    found = relations.Relations(trials, SimpleNamespace(passed=False)).drawn()
    return found and found.words


def test_a_factor_of_means_of_draws_has_a_name_where_errors_and_a_tenth_allow_it():
    assert of_draws(lambda n: n, 0.001) == "right if divided by N"
    assert of_draws(lambda n: n, 0.001, (5,)) is None, "one batch tells nothing"
    assert of_draws(lambda n: 1.06 * n, 0.4) == "right if divided by N"
    assert of_draws(lambda n: 1.06 * n, 0.001) is None
    assert of_draws(lambda n: 1.06 / n, 0.01) == "right if multiplied by N"
    assert "N" not in str(of_draws(lambda n: 1.2 * n, 0.6))


def test_parts_whose_names_have_a_size_in_them_are_the_same_parts():
    def named(factor):
        return lambda x: {f"of {len(x)}": factor * x}

    assert first(named(2), named(1)) == "right if divided by 2"


def test_edits_of_about_one_cost_are_proposed_with_what_they_hold_on():
    found = proposals(lambda x: x**2, lambda x: x)
    assert [each.words for each in found] == [
        "right without this: squared",
        "right with this: its square root",
        "right with this: the square root of its absolute value",
    ]
    assert (found[0].samples, found[0].points) == ((5, 2, 7), 4 * (5 + 2 + 7))
    assert str(found[0]) == "right without this: squared (verified on 56 numbers of batches of 5, 2 and 7 samples)"


def test_an_edit_that_costs_half_a_unit_more_is_proposed_and_no_other(monkeypatch):
    found = [relations.Found(cost, f"at {cost}") for cost in (1.75, 1.5, 1.0)]
    monkeypatch.setattr(search._Search, "found", lambda self: found)
    assert [each.words for each in proposals(lambda x: 2 * x, lambda x: x)] == ["at 1.0", "at 1.5"]


@pytest.mark.parametrize("error", [1e-8, 0])
def test_what_holds_has_no_proposal(error):
    assert proposals(lambda x: x * (1 + error), lambda x: x, tolerance=1e-7) == ()


def test_what_holds_for_one_part_and_makes_another_0_does_not_hold():
    parts = {"a": (2 * X, X), "b": (2 * X, X)}
    trial = SimpleNamespace(parts=parts, terms={}, sizes={}, precision=1e-10, compared=None)
    trial.wrong, trial.near = lambda: [*parts], lambda name, a, b: np.allclose(a, b)
    found = relations.Relations([trial, trial], SimpleNamespace(passed=False))
    for size, holds in ((2, True), (0, False)):
        given = {"a": (2 * X, X), "b": (size * X, X)}
        with np.errstate(invalid="ignore"):
            assert (found.held(lambda trial, name, given=given: given[name], "right if {c}", 1.0) is not None) == holds


@pytest.mark.parametrize("words", ["right if{and c}", "right if divided by {k}"])
def test_a_relation_of_equal_parts_costs_what_it_costs_for_one(words):
    """So that it stays before the less likely ones that only hold for a part."""

    def cost(*names):
        parts = dict.fromkeys(names, (X, 2 * X))
        trial = SimpleNamespace(parts=parts, terms={}, sizes={}, precision=1e-10, compared=None)
        trial.wrong, trial.near = lambda: [*names], lambda name, a, b: np.allclose(a, b)
        found = relations.Relations([trial, trial], SimpleNamespace(passed=False))
        return found.held(lambda trial, name: trial.parts[name], words, 1.0).cost

    assert cost("a") > 1
    np.testing.assert_allclose([cost("a", "b"), cost("a", "b", "c")], cost("a"), rtol=1e-12)


class OfGain(ParameterJacobian):
    """Squares are means over columns and samples, not sums."""

    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x

    def square(self, mat, sign=None):
        return super().square(mat, sign) / (mat.shape[0] * mat.shape[1])


class Gain(layers.Layer):
    """y = a x with one number in a for each feature."""

    kronecker_factors = "a gain for each feature is no matrix"

    def parameter_shapes(self):
        return {"a": (3,)}

    def draw(self, rng):
        return {"a": rng.uniform(0.5, 1.5, 3)}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected features of shape (3,), got {shape}")
        return shape

    def forward(self, x):
        return self.parameters["a"] * x, x

    def jmp(self, x, mat):
        return self.parameters["a"] * mat

    mjp = jmp

    def parameter_jacobians(self, x):
        return {"a": OfGain(x)}


def test_a_factor_of_the_columns_and_samples_of_a_reduction_is_named():
    failures = check_layer(Gain(), np.random.default_rng(0).standard_normal((4, 3))).failures
    (failure,) = (row for row in failures if row.method == "a.square")
    assert failure.diagnosis[0].words.startswith("right if multiplied by (V N) = ")


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_an_edit_that_changes_what_is_expected_mends_nothing(size):
    want = size * X
    for after, mended in ((want, True), (0 * want, False), (1.001 * want, False)):
        edited = Evaluation(lambda after=after: Compared(after, after, "oracle"), ())
        trial = SimpleNamespace(compared=Compared(2 * want, want, "oracle"), at=lambda change, edited=edited: edited)
        assert rewriting.mends([trial], [], lambda: None) == mended


def test_a_change_that_multiplies_all_by_one_number_is_no_change_of_its_own():
    trials = [SimpleNamespace(parts={"": (scale * X, X)}) for scale in (1.0, 3.0)]
    held = SimpleNamespace(trials=trials, wrong=[""])
    changes = {"negated": np.negative, "by its size": lambda x: x / x.max(), "by row": lambda x: x * np.arange(1, 5)}
    ops = {name: SimpleNamespace(change=change) for name, change in changes.items()}
    found = {name: relations.Relations._trivial(held, op, 0) for name, op in ops.items()}
    assert found == {"negated": True, "by its size": False, "by row": False}
