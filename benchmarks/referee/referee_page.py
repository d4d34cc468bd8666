"""The page docs/referee.md, from the stored verdicts and the stored output of the programs in ``red/``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CLAIMS = ("MLP", "ReLU", "convolution", "groups", "sequence", "positions")
SYMMETRIES = ("relations", "permuted", "repeated", "labels", "shifted", "sum and mean")
SHOWN = {"right": "right", "factor": "factor", "refused": "refused", "silent": "**silent**", "wrong": "**WRONG**"}
HEAD = """# Other libraries, judged

`make referee` runs other libraries on small problems that are given as plain data ([testing.md](testing.md) shows how
to judge one's own), writes their verdicts to `benchmarks/referee/results`, runs each program in
`benchmarks/referee/red`, and writes this page. All is computed in float64.

## What is claimed

- **MLP, ReLU, convolution, groups, sequence, positions**: the number equals its definition, by brute force (complex
  steps through the forward pass), for networks of this kind: sigmoid and tanh; ReLU; a convolution with a pool; a
  convolution with two groups; a linear layer on the 5 positions of a sequence; outputs at each position. Each with
  cross-entropy and squared error ("positions" with the latter alone), "mean" and "sum", N = 7, 4 and 1.
- **relations**: the number follows from others of the library: the gradient from individual gradients, norms and
  variances from these, a diagonal from its parts, the tangent kernel from the Jacobian, a matrix from its transpose.
- **permuted, repeated, labels, shifted, sum and mean**: symmetries, without any definition: samples in another order;
  each sample twice; other labels, where they must not matter; a constant added to all logits, of cross-entropy; one
  reduction from the other.

Relations and symmetries are right up to a factor of the sizes, too, as conventions differ in it.

## Verdicts

| verdict | meaning |
|---|---|
| right | Equal up to 1e-7 of the largest entry. Of drawn quantities the mean of 40 draws, within seven standard errors in each entry. |
| factor | Right up to a product of powers of N, C (entries of a sample's output), T (positions of the layer) and 2, found for N = 7 and confirmed for N = 4 and 1; or by another convention, which is named. **No fault**: the text above each table has what the library documents. Of drawn quantities as far as the draws tell factors apart. |
| refused | The library raised; or its documentation excludes the case, where the message begins with "not asked". |
| **silent** | Nothing came back for some parameter, without an error. |
| **WRONG** | None of these; a program below shows it without gbackprop, with what was checked before it was called wrong. |
| (empty) | No such claim, or the library has no such number. |

"joint" is one block for weight and bias; "bias", "expand" and "reduce" are in
[weight_sharing.md](derivations/weight_sharing.md). "reduce" is not judged on "positions": it is defined for losses of
what was reduced over the positions. What users compose themselves (torch.func, JAX) is composed as the documentation
does it: a mean over a batch of one sample has no 1/N.

Of Laplace the backends curvlinops and BackPACK are judged. The backend asdl is not: laplace-torch 0.3 passes
`batch_size` to `asdl.gradient.batch_gradient`, which asdl 0.1.5, the newest release, does not take.
kfac-jax 0.0.8 runs with JAX 0.8.1; JAX 0.10 changed an interface that it uses.
"""  # noqa: E501


def read(folder: Path) -> dict[str, Any]:
    """Return the stored results: of each adapter, of the red programs, and the date."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def page(results: Mapping[str, Any], red: Path) -> str:
    """Return the page."""
    run = results["run"]
    adapters = {name: found for name, found in results.items() if name != "run"}
    lines = [HEAD, "## All libraries", "", f"Run on {run['date']} with Python {run['python']}. Numbers of cells:", ""]
    lines += ["| library | versions | right | factor | refused | silent | wrong |", "|---|---|---|---|---|---|---|"]
    for name, found in adapters.items():
        versions = ", ".join(f"{package} {number}" for package, number in found.get("versions", {}).items())
        if "problem" in found:
            lines.append(f"| {name} | {versions} | did not run: {found['problem']} | | | | |")
        for library, cells in found.get("libraries", {}).items():
            counts = [sum(cell["verdict"] == verdict for cell in cells) for verdict in SHOWN]
            lines.append(f"| {library} | {versions} | {' | '.join(map(str, counts))} |")
    for found in adapters.values():
        for library, cells in found.get("libraries", {}).items():
            lines += ["", f"## {library}", "", found["conventions"].strip(), "", *matrix(cells), "", *reasons(cells)]
    lines += ["", "## Red cells, without gbackprop", ""]
    lines += ["Each program needs the library and NumPy alone. `make referee` runs it; its output is quoted."]
    for name, output in run["red"].items():
        text = (red / name).read_text()
        lines += ["", f"### {name.removesuffix('.py')}", "", text.split('"""')[1].strip(), ""]
        lines += [f"[`benchmarks/referee/red/{name}`](../benchmarks/referee/red/{name}) prints", ""]
        lines += ["```text", output.strip(), "```"]
    return "\n".join(lines) + "\n"


def matrix(cells: list[dict[str, str]]) -> list[str]:
    """Return the table of a library: a row for each quantity, a column for each claim, with numbers of reasons."""
    at = {(cell["quantity"], cell["claim"]): cell for cell in cells}
    numbers = {reason: number for number, reason in enumerate(_reasons(cells), 1)}
    claims = [claim for claim in CLAIMS + SYMMETRIES if any(own == claim for _, own in at)]
    lines = [f"| quantity | {' | '.join(claims)} |", f"|---|{'---|' * len(claims)}"]
    for name in dict.fromkeys(cell["quantity"] for cell in cells):
        row = [_cell(at[name, claim], numbers) if (name, claim) in at else "" for claim in claims]
        lines.append(f"| `{name}` | {' | '.join(row)} |")
    return lines


def reasons(cells: list[dict[str, str]]) -> list[str]:
    """Return a numbered line for each fault, silence, factor and refusal."""
    return [f"{i}. {SHOWN[word]}: {_plain(detail)}" for i, (word, detail) in enumerate(_reasons(cells), 1)]


def _reasons(cells: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Return each verdict with its detail once, faults first."""
    found = dict.fromkeys((cell["verdict"], cell["detail"]) for cell in cells if cell["verdict"] != "right")
    return sorted(found, key=lambda reason: ("wrong", "silent", "factor", "refused").index(reason[0]))


def _cell(cell: Mapping[str, str], numbers: Mapping[tuple[str, str], int]) -> str:
    number = numbers.get((cell["verdict"], cell["detail"]))
    return SHOWN[cell["verdict"]] + (f" ({number})" if number else "")


def _plain(detail: str) -> str:
    """Return a reason for Markdown, losses by their short names."""
    short = re.sub(r"\bMSELoss\b(?! mean| sum|\.)", "MSE", detail.replace("CrossEntropyLoss", "CE"))
    return short.replace("MSELoss mean", "MSE mean").replace("MSELoss sum", "MSE sum").replace("|", "\\|")
