"""Tests of the kit: planted faults must be caught, and the first failing row must name the method that is wrong."""

import re
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from common import one_in
from fault_table import FAULTS, judged, planted, row, table, whole_row

from gbackprop import Sequential, backward, layers, losses
from gbackprop.calculus.jacobian import Bias
from gbackprop.layers import Layer, Linear, ParameterJacobian
from gbackprop.quantities import DiagGGN, DiagHessian
from gbackprop.testing import Row, check_layer, check_loss, check_network
from gbackprop.testing.claims import ROUNDING, Compared, _compared
from gbackprop.testing.report import FAILED, entry

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()


@pytest.mark.parametrize("fault", one_in(3, FAULTS, lambda fault: fault.owner), ids=str)
def test_planted_fault_is_caught_and_named(fault, request):
    if "." not in fault.method:  # no layer's
        request.getfixturevalue("apart")
    report = planted(fault)
    assert report.failures, report
    assert report.failures[0].method == fault.method, report.failures[0].explain()
    assert not report.failures[0].problem.startswith("raised"), "the fault itself is at fault"


def kinds(rows):
    """Claims without what differs from subject to subject."""
    claims = {re.sub(r" \(.*|,.*", "", row.claim) for row in rows}
    return {re.sub(r"^is (zero|diagonal|dense|flat)$", "is the curvature", claim) for claim in claims}


@pytest.mark.long
def test_every_kind_of_claim_is_seen_to_fail():
    reports = [planted(fault) for fault in FAULTS]
    reports += [misbehaving(kind) for kind in [Bent, *(kind for kind, _, _ in MISBEHAVING)]]
    made = kinds(row for report in reports for row in report.rows)
    failed = kinds(row for report in reports for row in report.failures)
    elsewhere = {  # test_layers, test_quantities, test_loss_scale, test_mixed_residuals, test_optional_parts
        "has as many columns as residual_width says",
        "is J",
        "is linear in each of two inputs",
        "merged results of two batches are that of one",
        "has as many columns as mixed_width says",
        "of 'mean' are c times those of 'sum'",
        "is 1/C for 'mean' where it is 1 for 'sum'",
        "⟨J u",
        "permuting the samples changes their order alone",
        "workers=2 changes nothing",
    }
    assert made - failed <= elsewhere


def test_the_page_has_each_fault_with_the_method_that_must_be_named():
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    rows = [row(fault, fault.method) for fault in FAULTS]
    assert [line[: len(expected)] for line, expected in zip(lines, rows, strict=True)] == rows
    assert f"**Caught: {len(FAULTS)} of {len(FAULTS)} planted. Rightly located: {len(FAULTS)} of" in PAGE


def in_standard_errors(name):
    fault = next(fault for fault in FAULTS if str(fault) == f"Loss.hessian_sqrt_mc: {name}")
    (found,) = [row for row in planted(fault, diagnosed=True).failures if "standard errors" in row.oracle]
    return [each.words for each in found.known]


def test_no_edit_of_numbers_in_standard_errors_is_proposed():
    assert in_standard_errors("w for √w") == []

    class Nothing(losses.MSELoss):
        def hessian_sqrt_mc(self, output, targets, target):
            return 0 * super().hessian_sqrt_mc(output, targets, target)

    report = check_loss(Nothing(), np.ones((3, 2)), np.arange(6.0).reshape(3, 2)).diagnose()
    assert [row.known for row in report.failures if "standard errors" in row.oracle] == [()]


def test_a_factor_of_means_of_draws_is_proposed_with_its_error():
    (words,) = in_standard_errors("one part in five")
    factor, error = map(float, words.removeprefix("right if divided by ").split(" ± "))
    assert abs(factor - 1.2**2) < error < 0.02


@pytest.mark.parametrize("fault", FAULTS[::25], ids=str)
def test_a_row_of_the_page_is_what_the_command_prints(fault):
    assert whole_row(fault, *judged(fault)) in PAGE.splitlines()


@pytest.mark.long
@pytest.mark.page
def test_the_page_is_what_the_command_prints():
    assert PAGE.strip() == table()


# ------------------------------------------------------------------------------------------ layers that misbehave


class Double(Layer):
    """y = 2 x, and all right; the others each have one line of their own."""

    def forward(self, x):
        return 2 * x, None

    def mjp(self, saved, mat):
        return 2 * mat

    jmp = mjp


class Stale(Double):
    last = {}

    def forward(self, x):
        self.last["x"] = x
        return x * x, None

    def mjp(self, saved, mat):
        return 2 * self.last["x"] * mat

    jmp = mjp
    curvature = "diagonal"

    def residual(self, saved, grad):
        return 2 * grad


class ChangesSaved(Double):
    def forward(self, x):
        return 2 * x, [2.0]

    def mjp(self, saved, mat):
        factor = saved[0]
        saved[0] = 0.0
        return factor * mat

    jmp = mjp


class Mixes(Double):
    """y = x times x in reverse: its second derivative is not diagonal, as it says."""

    curvature = "diagonal"

    def forward(self, x):
        return x * x[:, ::-1], x

    def mjp(self, x, mat):
        return mat * x[:, ::-1] + (mat * x)[..., ::-1]

    def jmp(self, x, mat):
        return mat * x[:, ::-1] + mat[..., ::-1] * x

    def residual(self, x, grad):
        return 0 * grad


class Squares(Double):
    """y = a² x, which is not linear in a."""

    def parameter_shapes(self):
        return {"a": (1,)}

    def draw(self, rng):
        return {"a": rng.standard_normal(1)}

    def forward(self, x):
        return self.parameters["a"] ** 2 * x, x

    def mjp(self, x, mat):
        return self.parameters["a"] ** 2 * mat

    jmp = mjp

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = lambda mat: 2 * self.parameters["a"] * (mat * x).sum(2, keepdims=True)
        return {"a": jacobian}


def own(**attributes):
    """`Double` with a line of its own."""
    return type("Own", (Double,), attributes)


def raises(error):
    def method(self, *given):
        raise error

    return method


def takes_three(self, shape):
    if shape != (3,):
        raise TypeError("three features, please")
    return shape


def keeps(change):
    """`forward`, after a change of the layer."""

    def forward(self, x):
        change(self, x)
        return 2 * x, None

    return forward


NOISY = own(forward=lambda self, x: (2 * x + np.random.default_rng().normal(), None))
COUNTS = own(calls=0, forward=keeps(lambda self, x: setattr(self, "calls", self.calls + 1)))
LOGS = own(
    __init__=lambda self: setattr(self, "log", {"shapes": []}),
    forward=keeps(lambda self, x: self.log["shapes"].append(x.shape)),
)
MISBEHAVING = [
    (own(forward=raises(OSError("no such file"))), "forward", "raised OSError: no such file"),
    (own(mjp=raises(ZeroDivisionError("division by zero"))), "mjp", "raised ZeroDivisionError"),
    (own(forward=lambda self, x: 2 * x), "forward", "expected (y, saved), got ndarray"),
    (own(forward=lambda self, x: (2 * x[:1], None)), "forward", "expected 3 rows, got shape (1, 3)"),
    (own(mjp=lambda self, saved, mat: 2 * mat[0]), "mjp", "expected shape (3, 3, 3), got (3, 3)"),
    (own(forward=lambda self, x: (x.tolist(), None)), "forward", "expected a float64 array, got list"),
    (own(forward=lambda self, x: (x * np.nan, None)), "forward", "NaN"),
    (own(forward=lambda self, x: (np.multiply(x, 2, out=x), None)), "forward", "writes to its input"),
    (COUNTS, "forward", "writes to the layer, at .calls"),
    (LOGS, "forward", "writes to the layer, at .log['shapes']"),
    (own(forward=keeps(lambda self, x: setattr(self, "rows", len(x)))), "forward", "writes to the layer, at .rows"),
    (own(forward=keeps(lambda self, x: setattr(self, "width", x.shape[1]))), "forward", "layer, at .width"),
    (own(forward=keeps(lambda self, x: setattr(type(self), "width", x.shape[1])),
         mjp=lambda self, saved, mat: 2 * mat * self.width / 3), "mjp", "another result when it is called again"),
    (NOISY, "forward", "gives another result when it is called again"),
    (Stale, "jmp", "gives another result when it is called again"),
    (ChangesSaved, "jmp", "writes to what forward saved, at [0]"),
    (own(mjp=Layer.mjp), "mjp", "not given, but required"),
    (own(forward=lambda self, x: (2 * x + 1e-3 * np.sign(np.sin(1e8 * x)), None)), "forward", "disagree"),  # kinks
    (own(__init__=lambda self: setattr(self, "lock", threading.Lock())), "layer", "cannot pickle"),
    (own(curvature="flat"), "curvature", "is 'flat'"),
    (Mixes, "curvature", ""),
    (own(output_shape=takes_three), "output_shape", "refused with TypeError: three features, please"),
    *[
        (own(output_shape=lambda self, given, wrong=wrong: (9,) if given == wrong else given), "output_shape",
         f"{wrong}: says (9,), but the output has {wrong}")
        for wrong in [(3, 2), (2, 3), (), (4,), (1,)]
    ],
]  # fmt: skip


@cache
def misbehaving(kind):
    return check_layer(kind(), np.random.default_rng(0).standard_normal((3, 3)))


def test_double_is_all_right():
    misbehaving(Double).assert_ok()


@pytest.mark.parametrize(("kind", "method", "words"), MISBEHAVING)
def test_misbehaviour_is_a_row_that_says_so(kind, method, words):
    report = misbehaving(kind)
    assert report.failures, report
    assert report.failures[0].method == method
    assert words in report.failures[0].problem


class Apart(Squares):
    """y = (a² x, −a² x): a column of ones says nothing of a."""

    def output_shape(self, shape):
        if not shape:
            raise ValueError("expected at least one axis")
        return (*shape[:-1], 2 * shape[-1])

    def forward(self, x):
        y, saved = super().forward(x)
        return np.concatenate([y, -y], -1), saved

    def jmp(self, x, mat):
        y = self.parameters["a"] ** 2 * mat
        return np.concatenate([y, -y], -1)

    def mjp(self, x, mat):
        one, other = np.split(mat, 2, axis=-1)
        return super().mjp(x, one - other)

    def parameter_jacobians(self, x):
        found = super().parameter_jacobians(x)
        at = found["a"].per_sample
        found["a"].per_sample = lambda mat: at(np.subtract(*np.split(mat, 2, axis=-1)))
        return found


class Straight(Squares):
    """y = a x, with the Jacobian of a² x."""

    def forward(self, x):
        return self.parameters["a"] * x, x


class Bent(Squares):
    """Its Jacobian does not depend on a, as if the layer were linear in it."""

    def parameter_jacobians(self, x):
        found = super().parameter_jacobians(x)
        at = found["a"].per_sample
        found["a"].per_sample = lambda mat: at(mat) / self.parameters["a"] * 0.7
        return found


def test_a_layer_that_is_not_affine_in_a_parameter_passes_if_its_jacobian_says_so():
    """The quantities that take it to be affine refuse it; a Jacobian that is the same everywhere is wrong."""
    x, words = np.random.default_rng(0).standard_normal((3, 3)), "the output is linear in it"
    check_layer(Apart(), x).assert_ok()
    report = misbehaving(Squares)
    report.assert_ok()
    (row,) = (row for row in report.rows if row.claim.startswith(words))
    assert (row.method, row.verdict) == ("a", "not given")
    assert row.problem.startswith("it is not affine in its parameter a")
    net = Sequential(Squares(), layers.Linear(3, 2), rng=0, dtype="float64")
    with pytest.raises(ValueError, match="cannot give DiagHessian: it is not affine in its parameter a"):
        backward(net, losses.MSELoss(), x, np.ones((3, 2)), DiagHessian())
    assert backward(net, losses.MSELoss(), x, np.ones((3, 2)), DiagGGN()).gradient
    assert [row.claim[: len(words)] for row in check_layer(Bent(), x).failures if row.method == "a"] == [words]
    assert {row.verdict for row in check_layer(Straight(), x).rows if row.method == "a"} == {"ok"}, "as its output is"


def test_nonsense_is_a_row_too():
    for report in (
        check_layer(None, np.ones((2, 3))),
        check_layer(Double(), "text"),
        check_layer(Double(), [[1, 2], [3]]),
        check_loss(None, np.ones((2, 3)), np.ones((2, 3))),
        check_network(Double(), None, np.ones((2, 3)), np.ones((2, 3))),
    ):
        assert not report.ok


@pytest.mark.parametrize(
    ("got", "want", "problem"),
    [
        ({"a": np.ones(2)}, {"b": np.ones(2)}, "expected ['b'], got ['a']"),
        (np.ones(2), {"b": np.ones(2)}, "expected ['b'], got ndarray"),
        ({"a": {"A": np.ones(2)}}, {"a": {"A": np.ones(3)}}, "a: A: expected shape (3,), got (2,)"),
        ({"a": None}, {"a": np.ones(1)}, "a: expected [1.], got None"),
        ({"a": np.ones(1)}, {"a": None}, "a: expected None, got [1.]"),
    ],
)
def test_what_cannot_be_compared_is_told(got, want, problem):
    assert _compared(Compared(got, want, "this"), 0.0)["problem"] == problem


def test_a_comparison_counts_all_entries_and_names_the_worst():
    want = {"a": np.array([1.0, -4.0]), "b": np.zeros((2, 2)), "none": None, "empty": np.ones(0)}
    assert _compared(Compared(want, want, "this"), 0.0) == {
        "verdict": "ok", "oracle": "this", "tolerance": ROUNDING, "points": 6, "error": 0.0, "worst": (),
        "got": None, "want": None,
    }  # fmt: skip
    got = want | {"a": np.array([1.5, -4.0]), "b": np.array([[0, 0], [0.25, 0]])}
    found = _compared(Compared(got, want, "this", floor=8.0), 0.0)
    assert [found[key] for key in ("points", "error", "worst", "got", "want")] == [6, 0.5 / 8, ("a", 0), 1.5, 1.0]
    found = _compared(Compared(got, want, "this"), 0.0)  # beside zeros errors are as they are
    assert (found["error"], found["worst"], found["verdict"]) == (0.25, ("b", 1, 0), FAILED)
    found = _compared(Compared(got | {"b": np.full((2, 2), np.nan)}, want, "this", tolerance=np.inf), 0.0)
    assert (found["worst"], found["verdict"]) == (("b", 0, 0), FAILED)


# ------------------------------------------------------------------------- how a report says where the largest error is


@pytest.mark.parametrize(
    ("worst", "words"),
    [
        ((1, 0, 2), "[1, 0, 2]"),
        (("0.weight", 1, 0), "0.weight[1, 0]"),
        (("0.weight", "A", 1, 0), "0.weight/A[1, 0]"),
        (("loss",), "loss"),
        (("many columns with signs", 0), "[0] (many columns with signs)"),
        (("several columns", "mean", 2), "mean[2] (several columns)"),
        (("7 samples",), "(7 samples)"),
    ],
)
def test_an_entry_reads_as_array_index_and_case(worst, words):
    assert entry(worst) == words


def test_a_single_number_has_no_entry():
    row = Row("is R Σₙ ℓₙ", "value", points=1, got=2.0, want=1.0, verdict="FAILED")
    assert row.explain().endswith("; got 2, expected 1")


def test_the_case_that_fails_is_named_in_words():
    class Clipped(Bias):
        def square(self, columns, signs=None):
            return super().square(columns, None if signs is None else np.abs(signs))

    class WithClipped(Linear):
        def parameter_jacobians(self, saved):
            found = super().parameter_jacobians(saved)
            found["bias"].__class__ = Clipped
            return found

    report = check_layer(WithClipped(3, 2), np.ones((2, 3)))
    (row,) = (row for row in report.failures if row.method == "bias.square")
    assert row.worst_entry().startswith("worst entry [")
    assert " with signs): got " in row.worst_entry()
