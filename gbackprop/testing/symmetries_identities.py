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
from gbackprop.engine.backward import backward
from gbackprop.quantities import Quantity
from gbackprop.testing.claims import Claims, Compared, NotGivenError
from gbackprop.testing.differences import derivative
from gbackprop.testing.points import size_of
from gbackprop.testing.probe import twin_of
from gbackprop.testing.symmetries_networks import ungrouped_weights
from gbackprop.testing.symmetries_posed import Gradient, Posed, Values

Sides = tuple[Values, Values]
"""What is so, and what should be, by parameter."""

TOLERANCE, SAMPLES, STEP = 1e-7, 4, 1e-4
"""Of what is computed in float64, of few samples; and the first step along a line, of parameters of size 1."""


def _bias(factors: str, diagonal: str) -> Callable[..., Any]:
    """The B of a parameter without A has the diagonal of the block."""
    return lambda v, r: (v[f"{factors}/B"].diagonal(), v[diagonal].ravel()) if f"{factors}/A" not in v else None


IDENTITIES: tuple[tuple[str, str, str, Callable[[dict[str, Any], float], Any]], ...] = (
    ("batch_grad", "adds up to", "gradient", lambda v, r: (v["batch_grad"].sum(0), v["gradient"])),
    (
        "batch_l2_grad", "is ‖·‖² of", "batch_grad",
        lambda v, r: (v["batch_l2_grad"], (v["batch_grad"] ** 2).reshape(len(v["batch_grad"]), -1).sum(1)),
    ),
    ("second_moment", "is that of", "batch_grad", lambda v, r: (v["second_moment"], (v["batch_grad"] ** 2).mean(0) / r**2)),
    ("variance", "is that of", "batch_grad", lambda v, r: (v["variance"], v["batch_grad"].var(0) / r**2)),
    ("batch_diag_ggn", "adds up to", "diag_ggn", lambda v, r: (v["batch_diag_ggn"].sum(0), v["diag_ggn"])),
    ("batch_diag_hessian", "adds up to", "diag_hessian", lambda v, r: (v["batch_diag_hessian"].sum(0), v["diag_hessian"])),
    ("gram_gradients", "has the diagonal", "batch_l2_grad", lambda v, r: (v["gram_gradients"].diagonal(), v["batch_l2_grad"])),
    ("gram_gradients", "adds up to ‖·‖² of", "gradient", lambda v, r: (v["gram_gradients"].sum(), (v["gradient"] ** 2).sum())),
    ("gram_ggn", "has the trace of", "diag_ggn", lambda v, r: (v["gram_ggn"].trace(), v["diag_ggn"].sum())),
    ("ekfac", "has the trace of", "diag_ggn_mc", lambda v, r: (v["ekfac"], v["diag_ggn_mc"].sum())),
    ("kflr", "of a bias has the diagonal", "diag_ggn", _bias("kflr", "diag_ggn")),
    ("kfac", "of a bias has the diagonal", "diag_ggn_mc", _bias("kfac", "diag_ggn_mc")),
)  # fmt: skip
"""A quantity, what it is of which other, and the two sides in one parameter, from values by quantity, and R."""


def identities(posed: Posed, judged: tuple[Quantity, ...]) -> Iterator[tuple[str, str, Quantity, Callable[[], Sides]]]:
    """Yield the identities of the results of one call: the claim, the other quantity, the quantity, both sides."""
    known = {each.name: each for each in reversed(judged)}  # of several of one name the first

    def sides(names: tuple[str, ...], rule: Callable[..., Any]) -> Sides:
        v: dict[str, dict[str, Any]] = {}
        for name, key, value in ((n, k, a) for n in names for k, a in posed.of(known[n]).items() if k != "loss"):
            parameter, slash, factor = key.partition("/")
            v.setdefault(parameter, {})[name + slash + factor] = value
        made = {parameter: rule(each, posed.loss.factor(len(posed.x), posed.y)) for parameter, each in v.items()}
        return tuple({p: np.asarray(pair[i]) for p, pair in made.items() if pair} for i in range(2))  # type: ignore[return-value]

    for name, claim, other, rule in IDENTITIES:
        if {name, other} <= known.keys():
            title = "the gradient" if other == "gradient" else type(known[other]).__name__
            yield f"{claim} {title}", title, known[name], partial(sides, (name, other), rule)


# -------------------------------------------------------------------------------------- products, and along a line


def moved(claims: Claims, posed: Posed, rng: np.random.Generator) -> None:
    """Add rows on products of operators and along a line, of a few samples in float64."""
    x, y = (np.array(asnumpy(a)[:SAMPLES], float if a.dtype.kind == "f" else None) for a in (posed.x, posed.y))
    at = replace(posed, network=twin_of(posed.network), x=x, y=y, targets=None)
    where = {name: rng.standard_normal(v.shape) * size_of(v) for name, v in at.network.trainable.items()}
    for name, direction in where.items():
        claims.equal("backward", f"the loss follows the gradient where {name} is moved", _loss_follows, at, name, direction)
    for kind in ("GGN", "Hessian"):
        claims.equal(kind, "is symmetric", _symmetric, at, kind, rng)
        for each in (each for each in at.asked if type(each).__name__ == f"Diag{kind}"):
            claims.equal(f"Diag{kind}", f"is the diagonal of operators.{kind}", _diagonal, at, kind, each, rng)
    claims.equal("Hessian", "the gradient follows it where all parameters are moved", _gradient_follows, at, where)
    claims.equal("Jacobian", "⟨J u, v⟩ = ⟨u, Jᵀ v⟩", _adjoint, at, rng)
    known = {each.name: each for each in reversed(at.asked)}
    if {"kfra", "kflr", "diag_ggn"} <= known.keys():
        claims.equal("KFRA", "of equal samples is KFLR", _equal_samples, at, known)
        claims.equal("KFLR", "of one sample is exact for layers of vectors", _one_sample, at, known)


def _follows(at: Posed, where: Values, of: Callable[[Posed], Any], got: Any, floor: float = 0.0) -> Compared:
    """Return a product beside the derivative of a function of the parameters along a direction."""
    network = copy.deepcopy(at.network)

    def curve(t: complex) -> np.ndarray:
        for name, direction in where.items():  # complex steps are refused here, and the derivative does without
            network.parameters.put(name, at.network.parameters[name] + t * direction)
        return np.asarray(of(replace(at, network=network, asked=())))

    for step in (STEP, STEP / 100):
        found = derivative(curve, step)
        if not found.kinks.any():
            return Compared(got, found.values, "central differences", max(TOLERANCE, 10 * found.tolerance), floor)
    raise NotGivenError("there is a kink on the way")


def _loss_follows(at: Posed, name: str, direction: np.ndarray) -> Compared:
    gradient = replace(at, asked=()).result.gradient[name]
    floor = 0.1 * float(np.linalg.norm(gradient) * np.linalg.norm(direction))
    loss = lambda there: there.loss.value(there.network(there.x), there.y)  # noqa: E731
    return _follows(at, {name: direction}, loss, np.asarray((gradient * direction).sum()), floor)


def _flat(at: Posed, values: Any) -> np.ndarray:
    return np.concatenate([values[name].ravel() for name in at.network.trainable])


def _gradient_follows(at: Posed, where: Values) -> Compared:
    product = operators.Hessian(at.network, at.loss, (at.x, at.y)) @ _flat(at, where)
    return _follows(at, where, lambda there: _flat(at, there.result.gradient), product)


def _diagonal(at: Posed, kind: str, quantity: Quantity, rng: np.random.Generator) -> Compared:
    values = replace(at, asked=(quantity,)).of(quantity)
    diagonal, ends = _flat(at, values), np.cumsum([values[name].size for name in at.network.trainable])
    some = [(end - size + int(np.argmax(abs(diagonal[end - size : end]))), end - 1 - rng.integers(size))
            for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]  # fmt: skip
    which = np.unique(some)
    columns = np.zeros((len(diagonal), len(which)))
    columns[which, np.arange(len(which))] = 1
    product = getattr(operators, kind)(at.network, at.loss, (at.x, at.y)) @ columns
    return Compared(diagonal[which], product[which, np.arange(len(which))], f"operators.{kind}", TOLERANCE)


def _symmetric(at: Posed, kind: str, rng: np.random.Generator) -> Compared:
    operator = getattr(operators, kind)(at.network, at.loss, (at.x, at.y))
    u = rng.standard_normal((operator.shape[0], 2))
    product = u.T @ (operator @ u)
    return Compared(product, product.T, "its transpose", TOLERANCE)


def _adjoint(at: Posed, rng: np.random.Generator) -> Compared:
    jacobian = operators.Jacobian(at.network, at.x)
    v, u = (rng.standard_normal(size) for size in jacobian.shape)
    pushed = jacobian @ u
    return Compared(np.asarray(v @ pushed), np.asarray(u @ (jacobian.T @ v)), "Jᵀ", TOLERANCE, float(np.linalg.norm(pushed)))


def _equal_samples(at: Posed, known: dict[str, Quantity]) -> Compared:
    same = replace(at.taken([0, 0, 0]), asked=(known["kfra"], known["kflr"]))
    return Compared(same.of(known["kfra"]), same.of(known["kflr"]), "KFLR", TOLERANCE)


def _one_sample(at: Posed, known: dict[str, Quantity]) -> Compared:
    one = replace(at.taken([0]), asked=(known["kflr"], known["diag_ggn"]))
    factors, want = one.of(known["kflr"]), one.of(known["diag_ggn"])
    names = [leaf.parameters["weight"] for leaf in ungrouped_weights(at) if len(leaf.input_shape) == 1]
    if not names:
        raise NotGivenError("no linear layer of vectors")
    got = {n: np.outer(factors[f"{n}/B"].diagonal(), factors[f"{n}/A"].diagonal()) for n in names}
    return Compared(got, {n: want[n] for n in names}, "DiagGGN", TOLERANCE)
