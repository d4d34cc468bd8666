"""Claims that tie results to each other: identities of one call, and what results say of each other along a line."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gbackprop import operators
from gbackprop.array import asarray, asnumpy
from gbackprop.engine.backward import backward
from gbackprop.quantities import Quantity
from gbackprop.testing import symmetries_networks as written
from gbackprop.testing.claims import Claims, Compared, NotGivenError
from gbackprop.testing.differences import derivative
from gbackprop.testing.points import size_of
from gbackprop.testing.probe import twin_of
from gbackprop.testing.symmetries_setting import Gradient, Posed, Values

Pair = tuple[Any, Any]
"""A result, and what it should be."""


def _flat(each: np.ndarray) -> np.ndarray:
    return each.reshape(len(each), -1)


def _second(v: dict[str, Any], r: float) -> np.ndarray:
    return ((v["batch_grad"] / r) ** 2).mean(0)


OF_PARAMETERS: tuple[tuple[str, str, tuple[str, ...], Callable[[dict[str, Any], float], Pair]], ...] = (
    ("batch_grad", "adds up to the gradient", ("gradient",), lambda v, r: (v["batch_grad"].sum(0), v["gradient"])),
    ("batch_l2_grad", "is ‖BatchGrad‖²", ("batch_grad",), lambda v, r: (v["batch_l2_grad"], (_flat(v["batch_grad"]) ** 2).sum(1))),
    ("second_moment", "is that of BatchGrad", ("batch_grad",), lambda v, r: (v["second_moment"], _second(v, r))),
    ("variance", "is that of BatchGrad", ("batch_grad",), lambda v, r: (v["variance"], (v["batch_grad"] / r).var(0))),
    ("batch_diag_ggn", "adds up to DiagGGN", ("diag_ggn",), lambda v, r: (v["batch_diag_ggn"].sum(0), v["diag_ggn"])),
    ("batch_diag_hessian", "adds up to DiagHessian", ("diag_hessian",), lambda v, r: (v["batch_diag_hessian"].sum(0), v["diag_hessian"])),
    ("gram_gradients", "has BatchL2Grad as its diagonal", ("batch_l2_grad",), lambda v, r: (v["gram_gradients"].diagonal(), v["batch_l2_grad"])),
    ("gram_gradients", "adds up to ‖∇L‖²", ("gradient",), lambda v, r: (v["gram_gradients"].sum(), (v["gradient"] ** 2).sum())),
    ("gram_ggn", "has the trace of DiagGGN", ("diag_ggn",), lambda v, r: (v["gram_ggn"].trace(), v["diag_ggn"].sum())),
    ("ekfac", "has the trace of DiagGGNMC", ("diag_ggn_mc",), lambda v, r: (v["ekfac"], v["diag_ggn_mc"].sum())),
    ("diag_ggn", "is not negative", (), lambda v, r: (np.minimum(v["diag_ggn"], 0), 0 * v["diag_ggn"])),
    ("kflr", "of a bias has the diagonal DiagGGN", ("diag_ggn",), lambda v, r: _of_bias(v["kflr"], v["diag_ggn"])),
    ("kfac", "of a bias has the diagonal DiagGGNMC", ("diag_ggn_mc",), lambda v, r: _of_bias(v["kfac"], v["diag_ggn_mc"])),
    ("kfac", "has the A of KFLR", ("kflr",), lambda v, r: (v["kfac"].get("A", np.zeros(0)), v["kflr"].get("A", np.zeros(0)))),
)
"""A quantity, what it is, which others that needs, and the two sides of one parameter, from values and R."""


def _of_bias(factors: dict[str, np.ndarray], diagonal: np.ndarray) -> Pair:
    return (np.zeros(0), np.zeros(0)) if "A" in factors else (factors["B"].diagonal(), diagonal.ravel())


def _by_parameter(values: Values) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        parameter, _, key = name.partition("/")
        if key:
            found.setdefault(parameter, {})[key] = value
        else:
            found[parameter] = value
    return found


def identities(posed: Posed, judged: Sequence[Quantity]) -> Iterator[tuple[str, str, Quantity, Callable[[], Pair]]]:
    """Yield identities of the results of one call: the claim, the oracle, the quantity and the two sides."""
    known = {each.name: each for each in reversed(judged)}

    def sides(names: tuple[str, ...], rule: Callable[..., Pair]) -> Pair:
        values = {name: _by_parameter(posed.of(known[name])) for name in names}
        r = posed.loss.factor(len(posed.x), posed.y)
        pairs = {p: rule({name: values[name][p] for name in names}, r) for p in values[names[0]] if p != "loss"}
        return tuple({p: pair[i] for p, pair in pairs.items()} for i in range(2))  # type: ignore[return-value]

    for name, claim, needs, rule in OF_PARAMETERS:
        if {name, *needs} <= known.keys():
            yield claim, ", ".join(needs), known[name], partial(sides, (name, *needs), rule)


# --------------------------------------------------------------------------------------------------------- along a line

COLUMNS = 4
STEP = 1e-4
ENTRIES = 6
"""The number of entries of each diagonal that are compared with products of the operator."""


def _line(posed: Posed, rng: np.random.Generator) -> Posed:
    """Return the setting in float64, of a few samples."""
    at = slice(0, COLUMNS)
    network = twin_of(posed.network)
    x, y = (asnumpy(a[at]).astype(float) if a.dtype.kind == "f" else asnumpy(a[at]) for a in (posed.x, posed.y))
    return replace(posed, network=network, x=x, y=y, targets=None, asked=())


def moved(claims: Claims, posed: Posed, rng: np.random.Generator) -> None:
    """Add rows on a line through the parameters, and on products of operators, of a few samples in float64."""
    at = _line(posed, rng)
    where = {name: rng.standard_normal(v.shape) * size_of(v) for name, v in at.network.trainable.items()}
    claims.equal("backward", "moved parameters: the loss follows the gradient", _loss_follows, at, where)
    claims.equal("Hessian", "moved parameters: the gradient follows the Hessian", _gradient_follows, at, where)
    known = {each.name: each for each in posed.asked}
    for kind, name in (("GGN", "diag_ggn"), ("Hessian", "diag_hessian")):
        if name in known:
            claims.equal(type(known[name]).__name__, f"is the diagonal of operators.{kind}", _diagonal, at, kind, known[name], rng)
    for kind in ("GGN", "Hessian"):
        claims.equal(kind, "is symmetric", _symmetric, at, kind, rng)
    claims.equal("Jacobian", "⟨J u, v⟩ = ⟨u, Jᵀ v⟩", _adjoint, at, rng)
    claims.equal("KFRA", "of equal samples is KFLR", _equal_samples, at, known)
    claims.equal("KFLR", "of one sample is exact for vectors", _one_sample, at, known)
    claims.equal("DiagHessian", "is DiagGGN above all curvature", _top, posed, known)


def _curve(at: Posed, where: dict[str, np.ndarray], function: Callable[[Posed], np.ndarray]) -> Callable[[complex], np.ndarray]:
    network = copy.deepcopy(at.network)
    values = {name: value.copy() for name, value in network.parameters.items()}

    def curve(t: complex) -> np.ndarray:
        if isinstance(t, complex):
            raise NotImplementedError
        for name, direction in where.items():
            network.parameters.put(name, values[name] + t * direction)
        return function(replace(at, network=network))

    return curve


def _follows(curve: Callable[[complex], np.ndarray], got: Any) -> Compared:
    for step in (STEP, STEP / 100):
        found = derivative(curve, step)
        if not found.kinks.any():
            return Compared(got, found.values, "central differences", max(100 * found.tolerance, 1e-6))
    raise NotGivenError("there is a kink on the way")


def _loss_follows(at: Posed, where: dict[str, np.ndarray]) -> Compared:
    found, gradient = {}, backward(at.network, at.loss, at.x, at.y).gradient
    worst = None
    for name, direction in where.items():
        value = lambda posed: np.array(at.loss.value(posed.network(at.x), at.y))  # noqa: E731
        try:
            pair = _follows(_curve(at, {name: direction}, value), np.array((gradient[name] * direction).sum()))
        except NotGivenError:
            continue
        scale = float(np.sqrt((gradient[name] ** 2).sum() * (direction**2).sum()))
        found[name] = replace(pair, got={name: pair.got}, want={name: pair.want}, floor=0.1 * scale)
    if not found:
        raise NotGivenError("there is a kink on the way")
    for pair in found.values():
        (name, want), got = *pair.want.items(), pair.got
        error = abs(got[name] - want) / max(abs(want), pair.floor) / pair.tolerance
        worst = (error, pair) if worst is None or not error <= worst[0] else worst
    return worst[1]


def _gradient_follows(at: Posed, where: dict[str, np.ndarray]) -> Compared:
    product = operators.Hessian(at.network, at.loss, (at.x, at.y)) @ np.concatenate([where[n].ravel() for n in at.network.trainable])

    def gradient(posed: Posed) -> np.ndarray:
        found = backward(posed.network, at.loss, at.x, at.y).gradient
        return np.concatenate([found[name].ravel() for name in at.network.trainable])

    return _follows(_curve(at, where, gradient), product)


def _diagonal(at: Posed, kind: str, quantity: Quantity, rng: np.random.Generator) -> Compared:
    values = replace(at, asked=(quantity,)).of(quantity)
    diagonal = np.concatenate([values[name].ravel() for name in at.network.trainable])
    which = np.unique(np.concatenate([[start + rng.integers(v.size), start + int(np.argmax(abs(v)))] for start, v in _starts(values, at)]))
    columns = np.zeros((len(diagonal), len(which)))
    columns[which, np.arange(len(which))] = 1
    product = getattr(operators, kind)(at.network, at.loss, (at.x, at.y)) @ columns
    return Compared(diagonal[which], product[which, np.arange(len(which))], f"operators.{kind}", 1e-8)


def _starts(values: Values, at: Posed) -> list[tuple[int, np.ndarray]]:
    found, start = [], 0
    for name in at.network.trainable:
        found.append((start, values[name]))
        start += values[name].size
    return found


def _symmetric(at: Posed, kind: str, rng: np.random.Generator) -> Compared:
    operator = getattr(operators, kind)(at.network, at.loss, (at.x, at.y))
    u = rng.standard_normal((operator.shape[0], 2))
    product = u.T @ (operator @ u)
    return Compared(product, product.T, "its transpose", 1e-8)


def _adjoint(at: Posed, rng: np.random.Generator) -> Compared:
    jacobian = operators.Jacobian(at.network, at.x)
    v, u = (rng.standard_normal(size) for size in jacobian.shape)
    return Compared(v @ (jacobian @ u), (jacobian.T @ v) @ u, "Jᵀ", 1e-8, 0.01 * float(np.linalg.norm(jacobian @ u)))


def _equal_samples(at: Posed, known: dict[str, Quantity]) -> Compared:
    if not {"kfra", "kflr"} <= known.keys():
        raise NotGivenError("KFRA cannot be computed")
    kfra, kflr = known["kfra"], known["kflr"]
    same = replace(at, x=np.repeat(at.x[:1], 3, 0), y=np.repeat(at.y[:1], 3, 0), asked=(kfra, kflr))
    return Compared(same.of(kfra), same.of(kflr), "KFLR", 1e-8)


def _one_sample(at: Posed, known: dict[str, Quantity]) -> Compared:
    kflr, diag = known["kflr"], known["diag_ggn"]
    one = replace(at, x=at.x[:1], y=at.y[:1], asked=(kflr, diag))
    factors, want = _by_parameter(one.of(kflr)), one.of(diag)
    vectors = [n for leaf in written.weights(written.leaves_in(at)) for k, n in leaf.parameters.items() if k == "weight" and len(leaf.input_shapes[0]) == 1]
    if not vectors:
        raise NotGivenError("no linear layer of vectors")
    return Compared({n: np.outer(factors[n]["B"].diagonal(), factors[n]["A"].diagonal()) for n in vectors}, {n: want[n] for n in vectors}, "DiagGGN", 1e-8)


def _top(posed: Posed, known: dict[str, Quantity]) -> Compared:
    leaves, hessian, ggn = written.leaves_in(posed), known["diag_hessian"], known["diag_ggn"]
    curved = max((leaf.position for leaf in leaves if leaf.layer.curvature != "zero"), default=-1)
    names = [n for leaf in leaves if leaf.position > curved for n in leaf.parameters.values()]
    lower = {n for leaf in leaves if leaf.position <= curved for n in leaf.parameters.values()}
    names = [n for n in names if n not in lower and not any(n in leaf.parameters.values() and leaf.layer.curvature != "zero" for leaf in leaves)]
    if not names or len({n for l in leaves for n in l.parameters.values()}) != sum(len(l.parameters) for l in leaves):
        raise NotGivenError("no parameter above all curvature")
    got, want = posed.of(hessian), posed.of(ggn)
    return Compared({n: got[n] for n in names}, {n: want[n] for n in names}, "DiagGGN", 1e-4)
