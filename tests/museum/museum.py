"""The page of the museum, as Markdown: ``make museum > docs/museum.md``."""

import inspect
import textwrap

from faults_of_kfac_jax import EXHIBITS as OF_KFAC_JAX
from faults_of_kronecker_scales import EXHIBITS as OF_KRONECKER_SCALES
from faults_of_laplace import EXHIBITS as OF_LAPLACE
from faults_of_layers import EXHIBITS as OF_LAYERS
from faults_of_operators import EXHIBITS as OF_OPERATORS
from faults_of_parameters import EXHIBITS as OF_PARAMETERS
from faults_of_positions import EXHIBITS as OF_POSITIONS
from faults_of_update_rules import EXHIBITS as OF_UPDATE_RULES

EXHIBITS = [
    *OF_KFAC_JAX, *OF_UPDATE_RULES, *OF_KRONECKER_SCALES, *OF_OPERATORS, *OF_LAPLACE, *OF_LAYERS, *OF_PARAMETERS,
    *OF_POSITIONS,
]  # fmt: skip
"""All exhibits, in the order of the page."""

INTRODUCTION = """
# A museum of shipped faults

Each number here was wrong in a library that people used, or on its main branch, and each is planted again in something
of a user's own: a layer, a quantity, an operator, draws, an update rule. The mathematics is planted, not the code.
What was wrong, and where it was mended, is from a list that was gathered from the projects' own histories and issue
threads; where the list says less than a formula, the exhibit says what was chosen. The usual check of each is run, and
passes. Then the audit is asked.

**Named by the audit: {named} of {total}**, each with its method first; mended, all of them pass. All numbers on this
page are computed: `make museum` prints it, and `tests/museum` compares.

They have much in common: a factor of N, B or T, a square, a transpose, an update repeated, an axis, a shape that no
test had. Nothing crashes, losses fall, and gradients are right.
"""

HEADER = """
| | library | what was wrong | mended or reported | kind | passes all the same | named by the audit |
|---|---|---|---|---|---|---|
"""


def in_lines(text):
    """Wrap a paragraph, or an entry of a list."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(" ".join(text.split()), 120, subsequent_indent=indent, break_on_hyphens=False)


def is_named(exhibit):
    """Return whether the audit's first failure is the exhibit's, and the mended one has none."""
    failures = exhibit.audit(exhibit.faulty()).failures
    first = bool(failures) and failures[0].method == exhibit.method and failures[0].claim.startswith(exhibit.claim)
    return first and exhibit.audit(exhibit.right()).ok


def room(number, exhibit):
    """Return the section of an exhibit."""
    faulty, right = exhibit.faulty(), exhibit.right()
    effect, verdict = exhibit.effect(faulty, right), exhibit.audit(exhibit.faulty()).failures[0].explain()
    code = textwrap.dedent(inspect.getsource(exhibit.lines)).strip()
    return [
        f"## {number}. {exhibit.title}",
        "",
        in_lines(f"{exhibit.library}: {exhibit.wrong}. {exhibit.mended[0].upper()}{exhibit.mended[1:]}."),
        "",
        in_lines(exhibit.text),
        "",
        *("```python", code, "```"),
        "",
        in_lines(f"- **Measured**: {effect}."),
        in_lines(f"- **Passes**: {exhibit.unseen} (run here: the error is below {exhibit.passes:.0e})."),
        f"- **The audit**, `{exhibit.call}`:",
        "",
        *("```", textwrap.fill(verdict, 110, break_long_words=False), "```"),
        "",
    ]


def page():
    """Return the page."""
    count = sum(is_named(exhibit) for exhibit in EXHIBITS)
    rows = [
        f"| {i} | {e.library} | {e.wrong} | {e.mended} | {e.kind} | {e.missed} | `{e.method}` {e.claim} |"
        for i, e in enumerate(EXHIBITS, 1)
    ]
    sections = [line for i, exhibit in enumerate(EXHIBITS, 1) for line in room(i, exhibit)]
    introduction = INTRODUCTION.format(named=count, total=len(EXHIBITS))
    return "\n".join([introduction.strip(), "", HEADER.strip(), *rows, "", *sections])


if __name__ == "__main__":
    print(page().strip())
