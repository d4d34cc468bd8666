"""Edits of the arguments of a call: other arrays, or another subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.quantities import Quantity
from gbackprop.testing.diagnosis.arrays import operations
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe
from gbackprop.testing.runs import Runs

Arguments = tuple[Any, ...]
Change = Callable[[Arguments], Arguments]
Edit = tuple[float, str, Change]
"""The cost of a change of arguments, its words, and the change."""

ARRAYS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "were all ones": (1.45, np.ones_like),  # which of several expressions has too much of it the source says
    "were all zeros": (1.45, np.zeros_like),
    "were replaced by absolute values": (1, np.abs),
    "had the other sign": (1, np.negative),
    "were squared": (1.1, np.square),
    "were reversed": (1.1, lambda a: np.flip(a, 0).copy()),
    "were reversed along axis 1": (1.2, lambda a: np.flip(a, 1).copy()),
    "were reversed along the last axis": (1.2, lambda a: np.flip(a, -1).copy()),
    "were the first for all": (1.2, lambda a: np.repeat(a[:1], len(a), 0)),
    "were the first of axis 1 for all": (1.2, lambda a: np.repeat(a[:, :1], a.shape[1], 1)),
    "were moved on by one": (1.3, lambda a: np.roll(a, 1, 0)),
    "were moved on by one along the last axis": (1.3, lambda a: np.roll(a, 1, -1)),
    "were moved back by one along the last axis": (1.3, lambda a: np.roll(a, -1, -1)),
    "were its mean for all": (1.3, lambda a: np.repeat(a.mean(0, keepdims=True), len(a), 0)),
    "had its last two axes exchanged": (1.2, lambda a: np.swapaxes(a, -1, -2).reshape(a.shape)),
    "were read as it lies in memory": (1.4, lambda a: a.ravel("K").reshape(a.shape)),
    "were larger by 1": (1.4, lambda a: a + 1),
    "were smaller by 1": (1.4, lambda a: a - 1),
    "were 1 minus it": (1.4, lambda a: 1 - a),
}  # fmt: skip
"""Edits of an array that is given, each with its cost."""

GIVEN = {"tangents": "the tangents", "columns": "the columns", "signs": "the signs", "curvature": "the curvature",
         "x": "the input", "output": "the output", "target": "the target"}  # fmt: skip


def of_arrays(arguments: Arguments) -> Iterator[Edit]:
    """Yield edits of each array of the probe that a claim is made at."""
    for part in [part for part in arguments if isinstance(part, (Probe, LossProbe))][:1]:
        for name, title in GIVEN.items():
            for words, (cost, change) in ARRAYS.items() if isinstance(getattr(part, name, None), np.ndarray) else ():
                yield cost + 0.5 * (name in ("x", "output")), f"{title} {words}", on_probe(name, change)
        for op in operations(part.x.shape) if isinstance(part, Probe) else ():
            if op.closed:
                yield op.cost + 0.3, f"the input had {op.words}", on_probe("x", op.change)
        for op in operations(part.columns.shape) if isinstance(part, Probe) and part.columns is not None else ():
            if "alone" in op.words and "axis" in op.words:
                yield op.cost, f"the columns had {op.words}", on_probe("columns", op.change)
        if isinstance(part, LossProbe) and part.target.dtype.kind in "iu":
            classes = part.output.shape[1]
            for step, words in ((1, "next"), (-1, "previous")):
                moved = on_probe("target", lambda y, s=step, c=classes: (y + s) % c)
                yield 1, f"the target were the {words} class", moved
        for method, name in (("mjp", "columns"), ("jmp", "columns"), ("jmp", "tangents"), ("mjp", "tangents")):
            yield 1.5, f"the {name} had gone through {method}", partial(_carried, method, name)


SQUARES = {"batch_square": "ᵥ", "square": "ᵥₙ", "square_norm": "ᵥᵢ"}
"""The reductions of Jᵀg of columns v, samples n and entries i that are sums of squares, and over which these go."""


def of_definitions(arguments: Arguments) -> Iterator[Edit]:
    """Yield other definitions of a reduction of Jᵀg: of one column or sample alone, or the square of a sum."""
    *_, method, define = (None, None, *arguments)
    if not isinstance(method, str) or not callable(define):
        return
    for axis, kind in enumerate(("column", "sample")):
        for end, words in ((-1, "last"), (0, "first")):
            one = partial(_of_one, define, axis, end)
            yield 1.3, f"it were of the {words} {kind} alone (= for +=)", lambda given, f=one: (*given[:-1], f)
    over = SQUARES.get(method, "")
    for inner in (subset for size in (1, 2) for subset in combinations(over, size)):
        rest = "".join(each for each in over if each not in inner)
        outer = f"Σ{rest} " if rest else ""
        for sign in ("s ", ""):
            define = partial(_square_of_sum, "".join(inner), rest, bool(sign))
            yield 1.3, f"it were {outer}(Σ{''.join(inner)} {sign}Jᵀg)²", lambda given, f=define: (*given[:-1], f)


def _of_one(define: Callable[..., Any], axis: int, end: int, each: np.ndarray, weights: np.ndarray) -> Any:
    return define(each.take([end], axis), weights.take([end], axis))


def _square_of_sum(inner: str, rest: str, signed: bool, each: np.ndarray, weights: np.ndarray) -> np.ndarray:
    axes = {"ᵥ": (0,), "ₙ": (1,), "ᵢ": tuple(range(2, each.ndim))}
    within, beyond = (tuple(axis for name in names for axis in axes[name]) for names in (inner, rest))
    total = (weights * each if signed else each).sum(within, keepdims=True) ** 2
    return total.sum(beyond, keepdims=True).squeeze(within + beyond)


def on_probe(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Return an edit of arguments: an array of the probe."""

    def changed(part: Any) -> Any:
        if not isinstance(part, (Probe, LossProbe)):
            return part
        before = getattr(part, name)
        after = np.array(change(before), dtype=before.dtype)
        if after.shape != before.shape:  # compiled code trusts the shapes that it is given
            raise ValueError(f"expected shape {before.shape}, got {after.shape}")
        return replace(part, **{name: after})  # type: ignore[arg-type]

    return lambda arguments: tuple(map(changed, arguments))


def _carried(method: str, name: str, arguments: Arguments) -> Arguments:
    probe = next(part for part in arguments if isinstance(part, Probe))
    return on_probe(name, lambda mat: getattr(probe.layer, method)(probe.saved, mat))(arguments)


def on_subject(change: Callable[[Any], Any]) -> Change:
    """Return an edit of arguments: a change of the layer, loss, quantity or operator that they are of."""

    def changed(part: Any) -> Any:
        for name in ("layer", "loss") if isinstance(part, (Probe, LossProbe)) else ():
            if hasattr(part, name):
                return replace(part, **{name: change(getattr(part, name))})
        return change(part) if isinstance(part, (Layer, Loss, Quantity, LinearOperator)) else part

    def everywhere(arguments: Arguments) -> Arguments:
        after = tuple(map(changed, arguments))
        asked = [part for part in after if isinstance(part, Quantity)]
        for part in arguments if asked else ():
            if isinstance(part, Runs):  # it knows quantities by themselves
                runs = Runs(part.setting, np.random.default_rng(0))
                runs.order, runs.members = part.order, asked
                after = tuple(runs if each is part else each for each in after)
        return after

    return everywhere
