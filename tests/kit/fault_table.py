"""The table of planted faults, as Markdown: ``make faults > docs/faults.md``."""

from functools import cache

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
from symmetry_table import by_symmetries

from gbackprop.testing.diagnosis import search

FAULTS = IN_LAYERS + IN_ACTIVATIONS + IN_FURTHER_LAYERS + IN_GRAPHS + IN_NORMS + IN_SEQUENCES + IN_FORMS + IN_SWEEP
"""All faults, in the order of the page."""


RAISED = ("takes the batch", "can be checked", "can be computed", "can be moved")
"""Claims of `check_symmetries` that are no symmetries: they fail where something raises."""


@cache
def planted(fault, diagnosed=False):
    """Return the report of a fault's check while the fault is there, if asked for with the diagnosis of failures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SECONDS", 15)  # the same proposals on a slow machine
        plant(patch, fault)
        report = fault.check()
        return report.diagnose() if diagnosed else report


def row(fault, named: str | None) -> str:
    """Return the row of a fault: what was planted, whether it was caught, and which method the kit named first."""
    return f"| {_cell(fault)} | {'yes' if named else 'NO'} | `{named or 'nothing'}` |"


def _cell(text) -> str:
    return str(text).replace("|", chr(92) + "|")


def judged(fault) -> tuple[str | None, str | None, str | None]:
    """Plant a fault; return the method named first, the first proposal and the first symmetry that does not hold."""
    failures = planted(fault, diagnosed=True).failures
    edits = next((row.known for row in failures if row.known), ())
    symmetry = next((each.claim for each in by_symmetries(fault).failures), None)
    return failures[0].method if failures else None, edits[0].words if edits else None, symmetry


def whole_row(fault, named: str | None, words: str | None, symmetry: str | None) -> str:
    """Return the row of a fault with its diagnosis and symmetry."""
    return f"{row(fault, named)} {_cell(words or '–')} | {_cell(symmetry or '–')} |"


def table() -> str:
    """Plant each fault; return the page."""
    verdicts = [(fault, *judged(fault)) for fault in FAULTS]
    rows = [whole_row(*each) for each in verdicts]
    caught = sum(named is not None for _, named, _, _ in verdicts)
    located = sum(named == fault.method for fault, named, _, _ in verdicts)
    diagnosed = sum(words is not None for _, _, words, _ in verdicts)
    broken = sum(symmetry not in (None, *RAISED) for *_, symmetry in verdicts)
    total = len(rows)
    lines = [
        "# Planted faults",
        "",
        "Each is one wrong line, patched into the sound code for one check; `make faults` prints this page.",
        "",
        f"**Caught: {caught} of {total} planted. Rightly located: {located} of {total} planted.**",
        "",
        f"**Diagnosed: {diagnosed} of {total}.** The fourth column is the first proposal: an edit with which the claim",
        "holds, verified on batches of several sizes, in the words of [the audit](audit.md#the-diagnosis).",
        "",
        f"**By symmetries alone: {broken} of {total}.** The last column is the first",
        "[symmetry](audit.md#symmetries-networks-of-any-size) that does not hold for a small network with the fault.",
        "Those for which the call raises (“takes the batch”, “can be checked”) do not count.",
        "",
        "| fault | caught | first method named | diagnosis | symmetry |",
        "|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
