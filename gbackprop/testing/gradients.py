"""Check the gradient of any function of arrays, whatever computes it: the usual advice, as an automatic run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import factorial
from typing import Any

import numpy as np

from gbackprop.base.checks import positive
from gbackprop.testing.claims import Claims, Compared, NotGivenError
from gbackprop.testing.differences import EPS
from gbackprop.testing.functions import STEPS, TOLERANCE, Arrays, Subject, leaves, like
from gbackprop.testing.points import size_of
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report

ENTRIES, DIRECTIONS, DESCENT = 16, 4, 5
"""The numbers of entries that are moved alone, of random directions in larger parameters, of steps of descent."""

HIDDEN, SMALL = 1e-3, 1e-4
"""Differences with a larger error are not used; it is relative to the entries, or this share of the whole gradient."""


def check_gradient(
    f: Callable[[Any], Any], grad: Any, params: Any, batch: int | None = None, rng: int | np.random.Generator = 0
) -> Report:
    """Compare a gradient with differences of its function, in NumPy alone.

    Parameters
    ----------
    f : callable
        The loss at parameters like `params`: one number. Where it takes complex numbers, it is checked to rounding.
    grad : callable, or like params
        The gradient at parameters, or at `params` alone; then it is not checked after training.
    params : ndarray, or dict, list or tuple of these, nested
        Arrays of floats. Copies are given away; at a kink, of numbers that were moved.
    batch : int, optional
        N, by which a mean differs from a sum.
    rng : int or numpy.random.Generator
        Of directions and entries.

    Returns
    -------
    Report
        A row for each parameter, and again after some steps of descent, as a loss near its start hides faults; before
        them, rows on what spoils such a check. One that fails names the worst entry that was found and, where one holds
        at further points, the likely cause.

    Raises
    ------
    TypeError, ValueError
        If `params` hold anything but arrays of floats, or `grad` is neither a function nor like `params`.
    """
    point = {name: value.copy() for name, value in leaves("params", params).items()}
    if not callable(f):
        raise TypeError(f"f: expected a function of parameters, got {type(f).__name__}")
    if not callable(grad):
        want, got = ({n: a.shape for n, a in each.items()} for each in (point, leaves("grad", grad)))
        if want != got:
            raise ValueError(f"grad: expected arrays of shapes {want}, got {got}")
    n = None if batch is None else positive("batch", batch)
    claims = Claims(getattr(f, "__name__", "f"), ["f", "grad", *point])
    subject = Subject(f, grad, params, np.random.default_rng(rng), n)
    claims.attempt("f", "can be checked", _check, claims, subject, point)
    return claims.report


def _check(claims: Claims, subject: Subject, point: Arrays) -> None:
    for name, call in (("f", subject.f), ("grad", subject.grad)):
        if callable(call):
            claims.hold(name, "is a function of its parameters, and writes to nothing", _moody, subject, point, call)
    for words in ("", f", after {DESCENT} steps of descent") if callable(subject.grad) else ("",):
        if "f" in claims.doubtful:
            return
        if words:
            point = claims.attempt("grad", "leads downhill", _descended, subject, point) or point
        found = claims.attempt("grad", "is like the parameters", subject.gradient, point)
        if found is None:
            return
        claims.hold("f", f"is precise{words}", _imprecise, subject, point, found)
        point = _off_kinks(subject, point)
        found = subject.gradient(point)
        for name in found:
            claims.equal(name, f"is ∂f/∂{name}{words}", _compared, subject, point, found, name, needs=["grad", name])
            if claims.report.rows[-1].failed and (cause := _cause(subject, point, found, name)):
                claims.report.rows[-1] = replace(claims.report.rows[-1], problem=f"likely cause: {cause}")
        subject.before = found


# ------------------------------------------------------------------------------------------------ what spoils a check


def _moody(subject: Subject, point: Arrays, call: Callable[[Any], Any]) -> str:
    """Describe the side effect of a function, or that it depends on more than its parameters."""
    tree, seen = like(subject.tree, iter(point.values())), []

    def flat(given: Any) -> np.ndarray:
        found = leaves("grad" if call is subject.grad else "f", call(given)).values()
        seen.append(np.concatenate([np.ravel(each) for each in found]))
        return seen[-1]

    other = like(subject.tree, (value + size_of(value) for value in point.values()))
    words = impurity(lambda: flat(tree), {"its parameters": tree}, lambda: flat(other))
    if "another result" in words:
        stale = np.array_equal(seen[0], seen[1])
        words += ": that of the parameters before, it is stale" if stale else ": seed what it draws, as for dropout"
    return words or ("" if np.isfinite(seen[0]).all() else "gives NaN or infinity")


def _imprecise(subject: Subject, point: Arrays, found: Arrays) -> str:
    """Measure the rounding of f by fourth differences of small steps (Moré & Wild 2011)."""
    direction, subject.eps = subject.direction(point), EPS
    for h in (1e-10, 1e-8, 1e-6, 1e-4):
        moved = [{n: p + (k * h * direction[n]).astype(p.dtype) for n, p in point.items()} for k in range(12)]
        values = np.array([subject.value(each) for each in moved])
        if len(set(values)) > len(values) // 2:
            noise = np.mean(np.diff(values, 4) ** 2) ** 0.5 * factorial(4) / factorial(8) ** 0.5
            subject.eps = max(EPS, float(noise / np.max(np.abs(values))))
            break
    short = [all((a == a.astype("f4")).all() for a in each.values()) for each in (found, point)]
    if short[0] and (not short[1] or any(p.dtype == np.float32 for p in point.values())):
        subject.eps = max(subject.eps, float(np.finfo(np.float32).eps))
    if subject.tolerance > TOLERANCE:
        rounded = f"it is rounded by {subject.eps:.0e}, as in float32"
        raise NotGivenError(f"{rounded}: errors to {subject.tolerance:.0e} pass")
    return ""


def _off_kinks(subject: Subject, point: Arrays) -> Arrays:
    """Choose the step by its error along a random direction; move the point if it stands at a kink."""
    for _ in range(5 if callable(subject.grad) else 1):
        direction, errors = subject.direction(point), {}
        for subject.step in STEPS:
            found = subject.slope(point, direction, complex_too=False)
            errors[subject.step] = np.inf if found is None else found[1]
        subject.step = min(errors, key=errors.__getitem__)
        if np.isfinite(errors[subject.step]):
            break
        point = {name: p + direction[name] / 100 for name, p in point.items()}
    return point


def _descended(subject: Subject, point: Arrays) -> Arrays:
    """Take steps downhill, each the longest of some, as long as the gradient does not vanish."""
    first = None
    for _ in range(DESCENT):
        g, value = subject.gradient(point), subject.value(point)
        norm, size = (sum(np.sum(a**2) for a in each.values()) ** 0.5 or 1.0 for each in (g, point))
        first = first or norm
        for share in 0.3 ** np.arange(1, 8) * size / norm if norm > 0.1 * first else ():
            moved = {name: (p - share * g[name]).astype(p.dtype) for name, p in point.items()}
            with suppress(Exception):  # beyond where f is defined
                if subject.value(moved) < value:
                    point = moved
                    break  # the longest of them
    return point


# -------------------------------------------------------------------------------------------------------- one parameter


def _compared(subject: Subject, point: Arrays, found: Arrays, name: str) -> Compared:
    """Compare single entries, all of them if they are few; of more also random directions, which lead to the worst."""
    g, rng, seen = found[name], subject.rng, []
    got, want = {name: np.zeros(g.shape)}, {name: np.zeros(g.shape)}
    whole = max(float(np.max(np.abs(each), initial=0)) for each in found.values())
    least = max(float(np.max(np.abs(g), initial=0)), SMALL * whole)

    def pair(direction: np.ndarray) -> tuple[float, float]:
        made = subject.look(point, name, direction)
        if made is None or made[1] > HIDDEN * max(abs(made[0]), least):
            return 0.0, 0.0
        seen.append(made)
        return float(np.sum(g * direction)), made[0]

    places, several = rng.permutation(g.size)[:ENTRIES], np.zeros((2, 0))
    if g.size > ENTRIES:
        several = np.array([pair(each) for each in rng.standard_normal((DIRECTIONS, *g.shape))]).T
        places = np.unique([*places[2:], np.argmax(np.abs(g)), np.argmin(np.abs(g))])
        if np.max(np.abs(several[0] - several[1])) > subject.tolerance * np.max(np.abs(several[1])):
            places = np.append(places, _worst(pair, g.shape, rng))
    for place in places:
        got[name].flat[place], want[name].flat[place] = pair(np.eye(1, g.size, place).reshape(g.shape))
    if not seen or subject.tolerance > 0.1:
        raise NotGivenError(f"at {least:.0e} rounding of f hides it, or it stands at a kink")
    noise = 20 * max(each[1] for each in seen)
    if np.max(np.abs(got[name] - want[name])) <= max(subject.tolerance * np.max(np.abs(want[name])), noise):
        got["random directions"], want["random directions"] = several  # of which no entry was found wrong
    oracle = seen[0][2] if seen[0][2] == "complex step" else f"{seen[0][2]}, h = {subject.step:.0e}"
    return Compared(got, want, oracle, subject.tolerance, noise / subject.tolerance)


def _worst(pair: Callable[[np.ndarray], tuple[float, float]], shape: tuple[int, ...], rng: np.random.Generator) -> int:
    """Return the entry to which bisection by random signs leads."""
    places = np.arange(int(np.prod(shape)))
    while len(places) > 1:
        halves, off = np.array_split(places, 2), []
        for half in halves:
            signs = np.zeros((2, int(np.prod(shape))))
            signs[:, half] = rng.choice([-1.0, 1.0], (2, len(half)))
            off.append(max(abs(np.diff(pair(each.reshape(shape)))[0]) for each in signs))
        places = halves[int(np.argmax(off))]
    return int(places[0])


def _cause(subject: Subject, point: Arrays, found: Arrays, name: str) -> str:
    """Return the likely cause of a wrong gradient: an edit that makes it right along directions not seen before."""
    g, p, n = found[name], point[name].astype(np.float64), subject.batch or 0
    if not g.any():
        return "it is zero, as if nothing were computed"
    if name in subject.before and np.array_equal(g, subject.before[name]):
        return "it is that of the parameters before, not computed anew"
    made = [(d, look) for d in subject.rng.standard_normal((6, *p.shape)) if (look := subject.look(point, name, d))]
    want = np.array([look[0] for _, look in made])
    allowed = 20 * max(look[1] for _, look in made) + 10 * subject.tolerance * np.max(np.abs(want))
    factors = {1.0: "", -1.0: "its sign is wrong", 2.0: "a factor 2 is missing", 0.5: "a factor 2 is too much"}
    if n > 1:
        factors |= {n: f"it is divided by N = {n} once too often", 1 / n: f"it is a sum where f is divided by N = {n}"}
    edits = {"": g} | {f"it stands at {other}": each for other, each in found.items() if other != name}
    edits["it is transposed"] = g.T if g.shape == g.T.shape else g.reshape(g.shape[::-1]).T
    for words, each in edits.items():
        if each.shape != g.shape:
            continue
        got, decay = (np.array([np.sum(a * d) for d, _ in made]) for a in (each, p))
        factor, share = float(got @ want / (got @ got or 1)), float((want - got) @ decay / (decay @ decay or 1))
        known = [text for number, text in factors.items() if abs(factor - number) <= 1e-4 * abs(number)]
        if np.max(np.abs(want - factor * got)) <= allowed and (known or p.size > 2):
            return ", ".join(filter(None, [words, (known or [f"it should be multiplied by {factor:.6g}"])[0]]))
        if p.size > 1 and np.max(np.abs(want - got - share * decay)) <= allowed:
            side = "is missing" if share > 0 else "is too much, or there twice"
            return ", ".join(filter(None, [words, f"{abs(share):.4g} × the parameter, as of weight decay, {side}"]))
    return ""
