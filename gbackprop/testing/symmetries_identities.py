"""Claims that tie results to each other: of one call, of products of operators, and along a line of parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gbackprop import operators
from gbackprop.array import asnumpy
from gbackprop.quantities import EKFAC, Quantity
from gbackprop.testing.claims import Claims, Compared, NotGivenError
from gbackprop.testing.complex_steps import without_derivative
from gbackprop.testing.differences import derivative
from gbackprop.testing.points import size_of
from gbackprop.testing.probe import twin_of
from gbackprop.testing.symmetries_networks import ungrouped_weights
from gbackprop.testing.symmetries_posed import Posed, Values

Sides = tuple[Values, Values]
"""Got and expected, by parameter."""

TOLERANCE, SAMPLES, STEP = 1e-7, 4, 1e-4
"""Of what is computed in float64, of few samples; and the first step along a line, of parameters of size 1."""


def _of_bias(factors: Any, diagonal: Any, r: float) -> Any:
    return None if "A" in factors else (factors["B"].diagonal(), diagonal.ravel())


IDENTITIES: tuple[tuple[str, str, str, Callable[[Any, Any, float], Any]], ...] = (
    ("batch_grad", "adds up to", "gradient", lambda each, total, r: (each.sum(0), total)),
    ("batch_l2_grad", "is ‖·‖² of", "batch_grad", lambda norms, g, r: (norms, (g**2).reshape(len(g), -1).sum(1))),
    ("second_moment", "is that of", "batch_grad", lambda found, each, r: (found, (each**2).mean(0) / r**2)),
    ("variance", "is that of", "batch_grad", lambda found, each, r: (found, each.var(0) / r**2)),
    ("batch_diag_ggn", "adds up to", "diag_ggn", lambda each, total, r: (each.sum(0), total)),
    ("batch_diag_hessian", "adds up to", "diag_hessian", lambda each, total, r: (each.sum(0), total)),
    ("gram_gradients", "has the diagonal", "batch_l2_grad", lambda gram, norms, r: (gram.diagonal(), norms)),
    ("gram_gradients", "adds up to ‖·‖² of", "gradient", lambda gram, g, r: (gram.sum(), (g**2).sum())),
    ("gram_ggn", "has the trace of", "diag_ggn", lambda gram, diagonal, r: (gram.trace(), diagonal.sum())),
    ("kflr", "of a bias has the diagonal", "diag_ggn", _of_bias),
    ("kfac", "of a bias has the diagonal", "diag_ggn_mc", _of_bias),
)
"""A quantity, what it is of which other, and the two sides in one parameter from both values and R."""


def identities(posed: Posed, judged: tuple[Quantity, ...]) -> Iterator[tuple[str, str, Quantity, Callable[[], Sides]]]:
    """Yield the identities of the results of one call: the claim, the other quantity, the quantity, both sides."""
    known = {each.name: each for each in reversed(judged)}  # of several of one name the first

    def sides(names: tuple[str, str], rule: Callable[[Any, Any, float], Any]) -> Sides:
        one, other = (_by_parameter(posed.of(known[name])) for name in names)
        made = {p: rule(one[p], other[p], posed.loss.factor(len(posed.x), posed.y)) for p in one}
        return tuple({p: np.asarray(pair[i]) for p, pair in made.items() if pair} for i in range(2))  # type: ignore[return-value]

    for name, claim, other, rule in IDENTITIES:
        if {name, other} <= known.keys():
            title = "the gradient" if other == "gradient" else type(known[other]).__name__
            yield f"{claim} {title}", title, known[name], partial(sides, (name, other), rule)


def _by_parameter(values: Values) -> dict[str, Any]:
    """Return arrays by parameter, or factors by their names there."""
    found: dict[str, Any] = {name: value for name, value in values.items() if "/" not in name and name != "loss"}
    for parameter, _, key in (name.partition("/") for name in values if "/" in name):
        found.setdefault(parameter, {})[key] = values[f"{parameter}/{key}"]
    return found


def moved(claims: Claims, posed: Posed, rng: np.random.Generator) -> None:
    """Add rows on products of operators and along a line, of a few samples in float64."""
    x, y = (np.array(asnumpy(a)[:SAMPLES], float if a.dtype.kind == "f" else None) for a in (posed.x, posed.y))
    network: Any = twin_of(posed.network)
    at = replace(posed, network=network, x=x, y=y, targets=None)
    values = at.network.parameters
    where = {name: rng.standard_normal(values[name].shape) * size_of(values[name]) for name in at.names}
    for name, direction in where.items():
        claim = f"the loss follows the gradient where {name} is moved"
        claims.equal("backward", claim, _loss_follows, at, name, direction)
    for kind in ("GGN", "Hessian"):
        for each in (each for each in at.asked if type(each).__name__ == f"Diag{kind}"):
            claims.equal(f"Diag{kind}", f"is the diagonal of operators.{kind}", _diagonal, at, kind, each, rng)
    claims.equal("Hessian", "the gradient follows it where all parameters are moved", _gradient_follows, at, where)
    known = {each.name: each for each in reversed(at.asked)}
    if "diag_ggn" in known:
        claims.equal("EKFAC", "has the trace of DiagGGN", _trace, at, EKFAC(fisher="exact"), known["diag_ggn"])
    if {"kfra", "kflr", "diag_ggn"} <= known.keys():
        claims.equal("KFRA", "of equal samples is KFLR", _equal_samples, at, known)
        claims.equal("KFLR", "of one sample is exact for layers of vectors", _one_sample, at, known)


def _follows(at: Posed, where: Values, of: Callable[[Posed], Any], got: Any) -> Compared:
    """Return a product beside the derivative of a function of the parameters along a direction."""
    network, where = copy.deepcopy(at.network), {name: direction.copy() for name, direction in where.items()}
    for name, row in without_derivative(at.leaves).items():
        if name in where:
            where[name][row] = 0  # `got` has 0 there, whatever the direction

    def curve(t: complex) -> np.ndarray:
        for name, direction in where.items():  # complex steps are refused here, and the derivative does without
            network.parameters[name][...] = at.network.parameters[name] + t * direction
        return np.asarray(of(replace(at, network=network, asked=())))

    for step in (STEP, STEP / 100):
        found = derivative(curve, step)
        if not found.kinks.any():
            return Compared(got, found.values, "central differences", max(TOLERANCE, 10 * found.tolerance))
    raise NotGivenError("there is a kink on the way")


def _loss_follows(at: Posed, name: str, direction: np.ndarray) -> Compared:
    gradient = replace(at, asked=()).result.gradient[name]
    floor = 0.1 * float(np.linalg.norm(gradient) * np.linalg.norm(direction)) + 1e-6 * abs(float(at.result.loss))
    loss = lambda there: there.loss.value(there.network(there.x), there.y)  # noqa: E731
    return replace(_follows(at, {name: direction}, loss, np.asarray((gradient * direction).sum())), floor=floor)


def _flat(at: Posed, values: Any) -> np.ndarray:
    return np.concatenate([values[name].ravel() for name in at.names])


def _gradient_follows(at: Posed, where: Values) -> Compared:
    product = operators.Hessian(at.network, at.loss, (at.x, at.y)) @ _flat(at, where)
    return _follows(at, where, lambda there: _flat(at, there.result.gradient), product)


def _diagonal(at: Posed, kind: str, quantity: Quantity, rng: np.random.Generator) -> Compared:
    values = replace(at, asked=(quantity,)).of(quantity)
    diagonal, ends = _flat(at, values), np.cumsum([values[name].size for name in at.names])
    starts = ends - [values[name].size for name in at.names]
    some = [(i + int(np.argmax(abs(diagonal[i:j]))), rng.integers(i, j)) for i, j in zip(starts, ends, strict=True)]
    which = np.unique(some)
    columns = np.zeros((len(diagonal), len(which)))
    columns[which, np.arange(len(which))] = 1
    product = getattr(operators, kind)(at.network, at.loss, (at.x, at.y)) @ columns
    return Compared(diagonal[which], product[which, np.arange(len(which))], f"operators.{kind}", TOLERANCE)


def _trace(at: Posed, ekfac: Quantity, diagonal: Quantity) -> Compared:
    both = replace(at, asked=(ekfac, diagonal))  # one call: its eigenvectors take longer than all else
    want = {name: np.asarray(value.sum()) for name, value in both.of(diagonal).items()}
    return Compared(both.of(ekfac), want, "DiagGGN", TOLERANCE, 1e-6 * max(map(float, want.values())))


def _equal_samples(at: Posed, known: dict[str, Quantity]) -> Compared:
    same = replace(at.taken([0, 0, 0]), asked=(known["kfra"], known["kflr"]))
    got, want = same.of(known["kfra"]), same.of(known["kflr"])
    return Compared(got, want, "KFLR", TOLERANCE, 1e-6 * max(float(np.max(np.abs(v))) for v in want.values()))


def _one_sample(at: Posed, known: dict[str, Quantity]) -> Compared:
    one = replace(at.taken([0]), asked=(known["kflr"], known["diag_ggn"]))
    factors, want = one.of(known["kflr"]), one.of(known["diag_ggn"])
    vectors = [leaf for leaf in ungrouped_weights(at) if len(leaf.input_shape) == 1]
    orders = {leaf.parameters["weight"]: leaf.layer.weight_order for leaf in vectors}
    if not orders:
        raise NotGivenError("no linear layer of vectors")
    diagonals = {n: {"O": factors[f"{n}/B"].diagonal(), "I": factors[f"{n}/A"].diagonal()} for n in orders}
    got = {n: np.outer(*(diagonals[n][axis] for axis in order)) for n, order in orders.items()}
    return Compared(got, {n: want[n] for n in orders}, "DiagGGN", TOLERANCE)
