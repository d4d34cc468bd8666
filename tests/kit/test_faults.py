"""Tests of the kit: planted faults must be caught, and the first failing row must name the method that is wrong."""

import re
import threading
from functools import cache

import numpy as np
import pytest
from faults import plant
from faults_in_activations import FAULTS as IN_ACTIVATIONS
from faults_in_forms import FAULTS as IN_FORMS
from faults_in_further_layers import FAULTS as IN_FURTHER_LAYERS
from faults_in_graphs import FAULTS as IN_GRAPHS
from faults_in_layers import FAULTS as IN_LAYERS
from faults_in_norms import FAULTS as IN_NORMS
from faults_in_sequences import FAULTS as IN_SEQUENCES
from faults_in_sweep import FAULTS as IN_SWEEP

from gbackprop.layers import Layer, ParameterJacobian
from gbackprop.testing import check_layer, check_loss, check_network

FAULTS = IN_LAYERS + IN_ACTIVATIONS + IN_FURTHER_LAYERS + IN_GRAPHS + IN_NORMS + IN_SEQUENCES + IN_FORMS + IN_SWEEP


@cache
def planted(fault):
    """The report of a fault's check while the fault is there."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, fault)
        return fault.check()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_planted_fault_is_caught_and_named(fault):
    report = planted(fault)
    assert report.failures, report
    assert report.failures[0].method == fault.method, report.failures[0].explain()
    assert not report.failures[0].problem.startswith("raised"), "the fault itself is at fault"


@pytest.mark.parametrize("check", dict.fromkeys(fault.check for fault in FAULTS))
def test_no_alarm_without_the_fault(check):
    check().assert_ok()


def kinds(rows):
    """Claims without what differs from subject to subject."""
    claims = {re.sub(r" \(.*|,.*", "", row.claim) for row in rows}
    return {re.sub(r"^is (zero|diagonal|dense|flat)$", "is the curvature", claim) for claim in claims}


def test_every_kind_of_claim_is_seen_to_fail():
    reports = [planted(fault) for fault in FAULTS] + [misbehaving(kind) for kind, _, _ in MISBEHAVING]
    made = kinds(row for report in reports for row in report.rows)
    failed = kinds(row for report in reports for row in report.failures)
    elsewhere = {  # in test_layers.py and test_quantities.py
        "⟨J u",
        "permuting the samples changes their order alone",
        "workers=2 changes nothing",
    }
    assert made - failed <= elsewhere


# ------------------------------------------------------------------------------------------ layers that misbehave


class Double(Layer):
    """y = 2 x, and all right; the others each have one line of their own."""

    def forward(self, x):
        return 2 * x, None

    def mjp(self, saved, mat):
        return 2 * mat

    jmp = mjp


class Raises(Double):
    def forward(self, x):
        raise OSError("no such file")


class RaisesBelow(Double):
    def mjp(self, saved, mat):
        raise ZeroDivisionError("division by zero")


class OneResult(Double):
    def forward(self, x):
        return 2 * x


class WrongRows(Double):
    def forward(self, x):
        return 2 * x[:1], None


class WrongShape(Double):
    def mjp(self, saved, mat):
        return 2 * mat[0]


class NoArray(Double):
    def forward(self, x):
        return x.tolist(), None


class NaN(Double):
    def forward(self, x):
        return x * np.nan, None


class InPlace(Double):
    def forward(self, x):
        x *= 2
        return x, None


class Counts(Double):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return 2 * x, None


class KeepsInside(Double):
    def __init__(self):
        self.log = {"shapes": []}

    def forward(self, x):
        self.log["shapes"].append(x.shape)
        return 2 * x, None


class Random(Double):
    def forward(self, x):
        return 2 * x + np.random.default_rng().normal(), None


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


class NoBackward(Double):
    mjp = Layer.mjp


class Rough(Double):
    """Kinks wherever one looks."""

    def forward(self, x):
        return 2 * x + 1e-3 * np.sign(np.sin(1e8 * x)), None


class NotCopied(Double):
    def __init__(self):
        self.lock = threading.Lock()


class OddCurvature(Double):
    curvature = "flat"


class Picky(Double):
    def output_shape(self, shape):
        if shape != (3,):
            raise TypeError("three features, please")
        return shape


MISBEHAVING = [
    (Raises, "forward", "raised OSError: no such file"),
    (RaisesBelow, "mjp", "raised ZeroDivisionError"),
    (OneResult, "forward", "expected (y, saved), got ndarray"),
    (WrongRows, "forward", "expected 3 rows, got shape (1, 3)"),
    (WrongShape, "mjp", "expected shape (3, 3, 3), got (3, 3)"),
    (NoArray, "forward", "expected a float64 array, got list"),
    (NaN, "forward", "NaN"),
    (InPlace, "forward", "writes to its input"),
    (Counts, "forward", "writes to the layer, at .calls"),
    (KeepsInside, "forward", "writes to the layer, at .log['shapes']"),
    (Random, "forward", "gives another result when it is called again"),
    (Stale, "jmp", "gives another result when it is called again"),
    (ChangesSaved, "jmp", "writes to what forward saved, at [0]"),
    (NoBackward, "mjp", "not given, but required"),
    (Rough, "forward", "disagree"),
    (NotCopied, "layer", "cannot pickle"),
    (OddCurvature, "curvature", "is 'flat'"),
    (Mixes, "curvature", ""),
    (Squares, "a", ""),
    (Picky, "output_shape", "refused with TypeError: three features, please"),
]


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


def test_nonsense_is_a_row_too():
    for report in (
        check_layer(None, np.ones((2, 3))),
        check_layer(Double(), "text"),
        check_layer(Double(), [[1, 2], [3]]),
        check_loss(None, np.ones((2, 3)), np.ones((2, 3))),
        check_network(Double(), None, np.ones((2, 3)), np.ones((2, 3))),
    ):
        assert not report.ok
