"""The table of planted faults, as Markdown: ``make faults > docs/faults.md``."""

from faults_in_activations import FAULTS as IN_ACTIVATIONS
from faults_in_forms import FAULTS as IN_FORMS
from faults_in_further_layers import FAULTS as IN_FURTHER_LAYERS
from faults_in_graphs import FAULTS as IN_GRAPHS
from faults_in_layers import FAULTS as IN_LAYERS
from faults_in_norms import FAULTS as IN_NORMS
from faults_in_sequences import FAULTS as IN_SEQUENCES
from faults_in_sweep import FAULTS as IN_SWEEP
from test_faults import planted


def table() -> str:
    """One row for each fault: what was planted, whether it was caught, and which method the kit named."""
    rows, caught, located = [], 0, 0
    faults = IN_LAYERS + IN_ACTIVATIONS + IN_FURTHER_LAYERS + IN_GRAPHS + IN_NORMS + IN_SEQUENCES
    for fault in faults + IN_FORMS + IN_SWEEP:
        failures = planted(fault).failures
        named = failures[0].method if failures else "nothing"
        caught, located = caught + bool(failures), located + (named == fault.method)
        rows.append(f"| {str(fault).replace('|', chr(92) + '|')} | {'yes' if failures else 'NO'} | `{named}` |")
    total = len(rows)
    lines = [
        "# Planted faults",
        "",
        "Each is one wrong line, patched into the sound code for one check; `make faults` prints this page.",
        "",
        f"**Caught: {caught} of {total} planted. Rightly located: {located} of {total} planted.**",
        "",
        "| fault | caught | first method named |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
