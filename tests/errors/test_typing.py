"""Annotations that let a type checker find mistakes; `make lint` has mypy find those of typed.py."""

from typing import Any, Literal, get_type_hints

import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.array import Array

LOSSES = [getattr(losses, name) for name in losses.__all__]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_reduction_is_one_of_two_words(loss):
    assert get_type_hints(loss.__init__)["reduction"] == Literal["mean", "sum"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *[(call, name) for call in (gb.backward, gb.reference, gb.explain) for name in ("x", "y")],
        *[(losses.Loss.value, name) for name in ("output", "target", "return")],
        (gb.Sequential.__call__, "x"),
        (gb.Sequential.__call__, "return"),
        (q.Kronecker.solve, "v"),
    ],
)
def test_arrays_are_typed_as_arrays(call, name):
    assert get_type_hints(call)[name] == Array != Any
