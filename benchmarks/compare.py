"""gbackprop against BackPACK on torch, on this machine: ``python benchmarks/compare.py [SECTION ...]``.

Sections: table (the ratios that the README quotes), individual (for-loop against vectorized), overhead (over batch
sizes), classes (100 classes), hessian (one sigmoid), memory (peaks of our calls). Each writes
``results/SECTION.json``; all write ``results/README.md`` and the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peaks import peaks
from problems import make_problem
from report import write_report
from sides import EIGHT, our_loop, ours, their_loop, theirs
from timing import take_turns

RESULTS = Path(__file__).parent / "results"


def table(turns: int) -> dict[str, Any]:
    """3c3d, N = 128: the gradient, each quantity, the eight in one call; logistic regression, N = 128."""
    problem, logistic = make_problem("3c3d", 128), make_problem("logistic regression", 128)
    rows = {"gradient": _pair(problem, [], turns)}
    rows |= {name: _pair(problem, [name], turns) for name in EIGHT}
    rows["these eight in one call"] = _pair(problem, EIGHT, turns)
    sigmoid = make_problem("3c3d with one sigmoid", 8)
    rows["DiagHessian, one sigmoid, N = 8"] = _pair(sigmoid, ["DiagHessian"], turns)
    calls = {"ours": ours(problem, ["BatchGrad"]), "our loop": our_loop(problem)}
    rows["for-loop over samples / BatchGrad"] = take_turns(calls, turns)
    for name in ("gradient", *EIGHT):
        asked = [] if name == "gradient" else [name]
        rows[f"logistic regression: {name}"] = _pair(logistic, asked, 3 * turns)
    return rows


def individual(turns: int) -> dict[str, Any]:
    """Individual gradients on 3c3d: for-loops against vectorized, over batch sizes."""
    problem, rows = make_problem("3c3d", 128), {}
    for n in (1, 2, 4, 8, 16, 32, 64, 128):
        few = problem.first(n)
        calls = {"ours": ours(few, ["BatchGrad"]), "theirs": theirs(few, ["BatchGrad"])}
        calls |= {"our loop": our_loop(few), "their loop": their_loop(few)}
        rows[f"N = {n}"] = take_turns(calls, turns)
    return rows


def overhead(turns: int) -> dict[str, Any]:
    """Every quantity against the gradient, over batch sizes, on 3c3d and All-CNN-C."""
    rows = {}
    for name, sizes, names in (
        ("3c3d", (16, 64, 128), EIGHT),
        ("All-CNN-C", (8, 32), [n for n in EIGHT if n not in ("DiagGGN", "KFLR")]),
    ):
        problem = make_problem(name, max(sizes))
        for n in sizes:
            for asked in ([], *([each] for each in names)):
                label = f"{name}, N = {n}: {asked[0] if asked else 'gradient'}"
                rows[label] = _pair(problem.first(n), asked, turns)
    return rows


def classes(turns: int) -> dict[str, Any]:
    """100 classes, All-CNN-C: exact against Monte-Carlo, and time over the number of columns."""
    problem = make_problem("All-CNN-C", 4)
    names = ("DiagGGN-MC", "DiagGGN", "KFAC", "KFLR")
    rows = {f"All-CNN-C, N = 4: {name}": _pair(problem, [name], turns) for name in names}
    return rows | {f"All-CNN-C, N = 4, {c} classes: DiagGGN": _columns(c, turns) for c in (10, 50, 100)}


def hessian(turns: int) -> dict[str, Any]:
    """DiagHessian against DiagGGN on 3c3d with one sigmoid before the last layer."""
    problem, rows = make_problem("3c3d with one sigmoid", 8), {}
    for n in (1, 4, 8):
        for name in ("DiagGGN", "DiagHessian"):
            rows[f"N = {n}: {name}"] = _pair(problem.first(n), [name], turns)
    return rows


def memory(turns: int) -> dict[str, Any]:
    """Peaks of our calls, each in a process of its own."""
    return peaks()


def _columns(classes_: int, turns: int) -> dict[str, Any]:
    return take_turns({"ours": ours(make_problem("All-CNN-C", 4, classes=classes_), ["DiagGGN"])}, turns)


def _pair(problem: Any, names: list[str], turns: int) -> dict[str, Any]:
    return take_turns({"ours": ours(problem, names), "theirs": theirs(problem, names)}, turns)


def machine() -> dict[str, str]:
    """What the figures depend on."""
    packages = ("numpy", "scipy", "numba", "torch", "backpack-for-pytorch")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
    return {"processor": cpu, "threads": str(threads()), "python": platform.python_version()} | {
        package: version(package) for package in packages
    }


def threads() -> int:
    """Processors that both sides use."""
    return len(os.sched_getaffinity(0))


SECTIONS = {f.__name__: f for f in (table, individual, overhead, classes, hessian, memory)}


def main() -> None:
    """Measure, and write JSON, Markdown and plots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all by default")
    parser.add_argument("--turns", type=int, default=7, help="counted repetitions (default: %(default)s)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="backpack")
    torch.set_num_threads(threads())
    RESULTS.mkdir(exist_ok=True)
    for section in options.sections or SECTIONS:
        found = {"machine": machine(), "turns": options.turns, "rows": SECTIONS[section](options.turns)}
        (RESULTS / f"{section}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{section}: {len(found['rows'])} rows", flush=True)
    write_report(RESULTS)


if __name__ == "__main__":
    main()
