"""How a report says where the largest error is."""

import numpy as np
import pytest

from gbackprop.calculus.jacobian import Bias
from gbackprop.layers import Linear
from gbackprop.testing import Row, check_layer
from gbackprop.testing.report import entry


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

    class Layer(Linear):
        def parameter_jacobians(self, saved):
            found = super().parameter_jacobians(saved)
            found["bias"].__class__ = Clipped
            return found

    report = check_layer(Layer(3, 2), np.ones((2, 3)))
    (row,) = (row for row in report.failures if row.method == "bias.square")
    assert row.worst_entry().startswith("worst entry [")
    assert " with signs): got " in row.worst_entry()
