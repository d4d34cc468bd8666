"""Planted faults in every row of the table of operations: each wrong rule is found, and named."""

from dataclasses import fields, replace

import numpy as np
import pytest
from faults import check_rows

from gbackprop.layers.operations.operation import ROWS
from gbackprop.testing.cases.operations import CASES, row_of

NAMED = {
    "value": {"forward"}, "first": {"jmp", "mjp", "vjp"}, "second": {"residual"}, "forward": {"forward"},
    "jmp": {"jmp"}, "mjp": {"mjp", "vjp"}, "function": {"forward", "jmp"}, "on_first": {"mjp", "vjp", "residual"},
    "on_second": {"mjp", "vjp", "residual"}, "parts": {"forward"},
}  # fmt: skip
"""The methods that the first failing claim may name, by the rule that is wrong."""

FIRST = {name: (name, options, shapes) for name, options, shapes in reversed(CASES)}
"""A case of each row."""


def wrong(value, entry):
    """Return what a rule gives, with one part of it too large, or not 0."""
    if isinstance(value, tuple):
        return (*value[:entry], wrong(value[entry], 0), *value[entry + 1 :])
    if value.dtype.kind == "b":
        return 1.25 * value
    return np.where(value == 0, 0.25, 1.25 * value)


def planted(row, rule, entry):
    sound = getattr(row, rule)
    if rule == "parts":
        return replace(row, parts=lambda o, op, *x: op("affine", sound(o, op, *x), factor=1.25, shift=0.25))
    return replace(row, **{rule: lambda *given: wrong(sound(*given), entry)})


def faults():
    for name, row in ROWS.items():
        for rule in (each.name for each in fields(row) if each.name in NAMED and getattr(row, each.name)):
            several = len(FIRST[name][2]) if rule == "mjp" and len(FIRST[name][2]) > 1 else 1
            yield from ((name, rule, entry) for entry in range(several))


@pytest.mark.parametrize(("name", "rule", "entry"), list(faults()))
def test_a_wrong_rule_is_found_and_named(name, rule, entry, monkeypatch):
    case = row_of(*FIRST[name])
    monkeypatch.setitem(ROWS, name, planted(ROWS[name], rule, entry))
    report = check_rows((case,))
    assert report.failures, report
    assert report.failures[0].method in NAMED[rule], report.failures[0].explain()
    assert not report.failures[0].problem.startswith("raised"), "the fault itself is at fault"


def test_every_kind_of_rule_has_faults():
    assert {rule for _, rule, _ in faults()} == set(NAMED)
