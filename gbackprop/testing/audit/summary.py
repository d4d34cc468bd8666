"""A summary of findings: counts, and the cells of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gbackprop.testing.audit.findings import Finding
from gbackprop.testing.quantities import NO_DEFINITION
from gbackprop.testing.report import FAILED, NOT_JUDGED, OK, Report, Row, cells_of

EXACT = ("complex step", "dense Jacobians")
"""Oracles without an error of their own but rounding."""


@dataclass(frozen=True)
class Count:
    """Claims by verdict."""

    claims: int
    ok: int
    failed: int

    @property
    def rest(self) -> int:
        """Count claims not given, or not judged because they rest on what failed."""
        return self.claims - self.ok - self.failed

    def __str__(self) -> str:
        rest = f", {self.rest} not judged or not given" if self.rest else ""
        return f"{self.ok} hold, {self.failed} fail{rest}"

    @staticmethod
    def of(findings: Iterable[Finding]) -> Count:
        """Count all rows of all findings."""
        rows = [row for finding in findings for row in finding.report.rows]
        return Count(len(rows), sum(row.verdict == OK for row in rows), sum(row.failed for row in rows))


def verdict_of(report: Report) -> tuple[str, str]:
    """Return the verdict on a subject, and what to say with it.

    A subject none of whose claims failed is not "ok" if some were not judged because a part of it failed.
    """
    if not report.ok:
        return FAILED, ""
    unjudged = sum(row.verdict == NOT_JUDGED for row in report.rows)
    if not unjudged:
        return OK, ""
    return NOT_JUDGED, f"{unjudged} of {len(report.rows)} claims not judged: they rest on parts that failed"


def unchecked(findings: Iterable[Finding]) -> list[str]:
    """Return the names of quantities whose formula was not checked against anything."""
    rows = [row for finding in findings for row in finding.report.rows]
    return list(dict.fromkeys(row.method for row in rows if row.problem == NO_DEFINITION))


def error_of(report: Report) -> str:
    """Return the largest error against an oracle that has none, or nothing if there was none."""
    errors = [row.error for row in report.rows if row.points and any(name in row.oracle for name in EXACT)]
    return f"{np.max(errors):.1e}" if errors else ""  # unlike max(), does not lose a NaN


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, by `COLUMNS`; in one that was not judged the reason takes the place of the oracle."""
    method, claim, oracle, *rest = cells_of(row)
    return method, claim, oracle if row.verdict in (OK, FAILED) else " ".join(row.problem.split()), *rest


def finding_of(row: Row) -> str:
    """Describe the error of a row that failed, in a line."""
    words = [" ".join(row.problem.split())] if row.problem else []
    if row.points:
        words.append(f"error {row.error:.1e}, allowed {row.tolerance:.0e}, against {row.oracle}")
    if row.worst or row.got is not None:
        words.append(row.worst_entry())
    return "; ".join(words)
