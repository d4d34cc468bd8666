"""Tests of the kit: planted faults must be caught, and the first failing row must name the method that is wrong."""

import threading

import numpy as np
import pytest
from faults_in_layers import FAULTS as IN_LAYERS
from faults_in_sweep import FAULTS as IN_SWEEP

from gbackprop.layers import Layer
from gbackprop.testing import check_layer, check_loss, check_network

FAULTS = IN_LAYERS + IN_SWEEP


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_planted_fault_is_caught_and_named(fault, monkeypatch):
    monkeypatch.setattr(fault.owner, fault.attribute, fault.wrong(getattr(fault.owner, fault.attribute)))
    report = fault.check()
    assert report.failures, report
    assert report.failures[0].method == fault.method, report.failures[0].explain()


@pytest.mark.parametrize("check", dict.fromkeys(fault.check for fault in FAULTS))
def test_no_alarm_without_the_fault(check):
    check().assert_ok()


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
    (Picky, "output_shape", "refused with TypeError: three features, please"),
]


def test_double_is_all_right():
    check_layer(Double(), np.random.default_rng(0).standard_normal((3, 3))).assert_ok()


@pytest.mark.parametrize(("kind", "method", "words"), MISBEHAVING)
def test_misbehaviour_is_a_row_that_says_so(kind, method, words):
    report = check_layer(kind(), np.random.default_rng(0).standard_normal((3, 3)))
    assert report.failures, report
    assert report.failures[0].method == method
    assert words in report.failures[0].problem


def test_nonsense_is_a_row_too():
    for report in (
        check_layer(None, np.ones((2, 3))),
        check_layer(Double(), "text"),
        check_loss(None, np.ones((2, 3)), np.ones((2, 3))),
        check_network(Double(), None, np.ones((2, 3)), np.ones((2, 3))),
    ):
        assert not report.ok
