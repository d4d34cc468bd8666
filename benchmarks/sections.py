"""What is measured: each section gives rows of medians by side. On the host; `gpu` has the sections of a GPU."""

from __future__ import annotations

from typing import Any

from breadth import rows as breadth_rows
from peaks import peaks
from problems import make_problem
from sides import EIGHT, our_loop, ours, their_loop, theirs
from timing import take_turns


def table(turns: int) -> dict[str, Any]:
    """3c3d, N = 128: the gradient, each quantity, the eight in one call; logistic regression, N = 128."""
    problem, logistic = make_problem("3c3d", 128), make_problem("logistic regression", 128)
    rows = {"gradient": _pair(problem, [], turns)}
    rows |= {name: _pair(problem, [name], turns) for name in EIGHT}
    rows["these eight in one call"] = _pair(problem, EIGHT, turns)
    sigmoid = make_problem("3c3d with one sigmoid", 8)
    rows["DiagHessian, one sigmoid, N = 8"] = _pair(sigmoid, ["DiagHessian"], turns)
    calls = {"ours": ours(problem, ["BatchGrad"]), "our loop": our_loop(problem), "their loop": their_loop(problem)}
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


def breadth(turns: int) -> dict[str, Any]:
    """Networks of other layers, and networks that are no chains."""
    return breadth_rows(turns)


def small(turns: int) -> dict[str, Any]:
    """Small calls, beside torch, JAX, BackPACK and curvlinops, alone and beside a busy process."""
    from small import rows  # JAX and curvlinops are asked for here alone

    return dict(rows(turns))


def operators(turns: int) -> dict[str, Any]:
    """Products with curvature matrices, Kronecker factors and inverses, beside curvlinops."""
    from operators import rows  # curvlinops is asked for here

    return dict(rows(turns))


def memory(turns: int) -> dict[str, Any]:
    """Peaks of our calls, each in a process of its own."""
    return peaks()


def _columns(classes_: int, turns: int) -> dict[str, Any]:
    return take_turns({"ours": ours(make_problem("All-CNN-C", 4, classes=classes_), ["DiagGGN"])}, turns)


def _pair(problem: Any, names: list[str], turns: int) -> dict[str, Any]:
    return take_turns({"ours": ours(problem, names), "theirs": theirs(problem, names)}, turns)


SECTIONS = {f.__name__: f for f in (table, individual, overhead, classes, hessian, breadth, small, operators, memory)}
