"""Rows on Jacobians in parameters: the definition against differences, each reduction against the definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.mixed import MixedLayer
from gbackprop.calculus.residual import Factored
from gbackprop.calculus.signals import ALL
from gbackprop.operators.pushing import by_units
from gbackprop.plain.affine import lacks_affinity
from gbackprop.testing.claims import ROUNDING, Claims, Compared, NotGivenError, rounding_of
from gbackprop.testing.complex_steps import give_bias
from gbackprop.testing.derivatives import another_width, check_linear
from gbackprop.testing.differences import Curve, derivative
from gbackprop.testing.flat import Flat
from gbackprop.testing.kronecker_oracles import b_of_weight, by_output, groups_of
from gbackprop.testing.points import NUMBERS, size_of, some_of, units
from gbackprop.testing.probe import COLUMNS, LARGEST_AVERAGE, Probe, is_container, twin_of

MANY_COLUMNS = 64

PLAIN = "without a fast form"
"""The case of a reduction that is called itself, and not the form that may replace it."""

Definition = Callable[[np.ndarray, np.ndarray], Any]


def _norms(each: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (weights * each**2).reshape(*each.shape[:2], -1).sum((0, 2))


def _moments(each: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    count = each.shape[0] * each.shape[1]
    return {"mean": each.mean((0, 1)), "centered": each.var((0, 1)) * count}


DEFINITIONS: dict[str, tuple[str, Definition]] = {
    "batch": ("is Σᵥ s Jᵀg", lambda each, s: (s * each).sum(0)),
    "sum": ("is Σᵥₙ s Jᵀg", lambda each, s: (s * each).sum((0, 1))),
    "batch_square": ("is Σᵥ s (Jᵀg)²", lambda each, s: (s * each**2).sum(0)),
    "square": ("is Σᵥₙ s (Jᵀg)²", lambda each, s: (s * each**2).sum((0, 1))),
    "square_norm": ("is Σᵥ s ‖Jᵀg‖²", _norms),
    "moments": ("is the mean of Jᵀg and Σᵥₙ (Jᵀg − mean)²", _moments),
}
"""Each reduction from Jᵀg of every column and sample, ``[V, N, *p]``, and its sign s, ``[V, N, 1, …]``."""


def check_names(claims: Claims, probe: Probe) -> None:
    """Add the row on `parameter_jacobians` that all others on parameters depend on."""
    if not is_container(probe.layer):
        claims.hold("parameter_jacobians", "there is one for each parameter", _wrong_names, probe)


def check_parameters(claims: Claims, probe: Probe, rng: np.random.Generator) -> None:
    """Rows on all methods of each `ParameterJacobian`: first the definitions, on which the others rest."""
    for name in probe.parameters:
        needs = ["parameter_jacobians"]
        method = f"{name}.per_sample"
        claims.equal(method, "is Jᵀ, entries J[n, *out, *p]", _per_sample, probe, name, rng, needs=needs)
        check_linear(claims, method, partial(_multiplied, probe, name), probe.columns)
        claims.equal(name, "the output is linear in it, as DiagHessian takes for granted", _bend, probe, name, rng)
        if isinstance(probe.layer, MixedLayer):
            check_mixed(claims, probe, name, rng)
    for name in probe.parameters:
        needs = ["parameter_jacobians", f"{name}.per_sample"]
        for method, (claim, define) in DEFINITIONS.items():
            pair = _unsupported if method in probe.unsupported else _reduction
            claims.equal(f"{name}.{method}", claim, pair, probe, name, method, define, needs=needs)
        if _has_push(probe, name):
            claims.equal(f"{name}.push", "is J", _pushed, probe, name, rng, needs=needs)
        _check_kronecker(claims, probe, name)
    if probe.layer.kronecker_factors is True and probe.parameters:
        claims.hold("kronecker_factors", "says what its Jacobians have", _without_factors, probe)


def check_mixed(claims: Claims, probe: Probe, name: str, rng: np.random.Generator) -> None:
    """Add rows on the mixed residual of a parameter, which networks ask for that use it several times."""
    method = f"{name}.mixed_residual"
    claims.hold(method, "has as many columns as mixed_width says", _wrong_width, probe, name)
    claims.equal(method, "is ∂² (gᵀ y) / ∂p ∂x, both ways", _mixed, probe, name, rng, needs=["mjp", method])


def _wrong_names(probe: Probe) -> str:
    found, want = probe.layer.parameter_jacobians(probe.saved), probe.parameters
    if set(found) != set(want):
        return f"expected {want}, got {list(found)}"
    strange = [name for name, jacobian in found.items() if not isinstance(jacobian, ParameterJacobian)]
    return f"{', '.join(strange)}: expected a ParameterJacobian" if strange else ""


def _unsupported(probe: Probe, name: str, method: str, *_: Any) -> Compared:
    """Raise `NotGivenError` with the reason that the layer states."""
    raise NotGivenError(probe.unsupported[method])


# ---------------------------------------------------------------------------------------------------------- definition


def _multiplied(probe: Probe, name: str, columns: np.ndarray) -> np.ndarray:
    return probe.jacobian(name).per_sample(columns)


def _per_sample(probe: Probe, name: str, rng: np.random.Generator) -> Compared:
    n, out = len(probe.x), probe.output.shape[1:]
    shape = probe.layer.parameters[name].shape
    outputs = some_of(prod(out), rng, n * (prod(out) + prod(shape)))
    entries = some_of(prod(shape), rng, n * prod(out) + prod(shape))
    want = derivative(parameter_curve(probe, name, entries))
    got = probe.jacobian(name).per_sample(units(out, n, outputs))
    if got.shape != (len(outputs), n, *shape):
        return Compared(got, np.zeros((len(outputs), n, *shape)), want.oracle)  # the row names both shapes
    got = got.reshape(len(outputs), n, -1)[:, :, entries].transpose(1, 0, 2)
    expected = want.values.reshape(len(entries), n, -1)[:, :, outputs].transpose(1, 2, 0)
    kinks = want.kinks.reshape(len(entries), n, -1)[:, :, outputs].transpose(1, 2, 0)
    got, expected = np.where(kinks, 0, got), np.where(kinks, 0, expected)
    if len(outputs) == prod(out) and len(entries) == prod(shape):  # an index says which entry of which output
        got, expected = got.reshape(n, *out, *shape), expected.reshape(n, *out, *shape)
    return Compared(got, expected, want.oracle, want.tolerance)


def _bend(probe: Probe, name: str, rng: np.random.Generator) -> Compared:
    """Return the second difference in a random direction, beside the first; not given where the Jacobian bends, too."""
    twin, value = twin_of(probe.layer), probe.layer.parameters[name]
    direction = rng.standard_normal(value.shape) * size_of(value)

    def moved(t: float) -> np.ndarray:
        twin.parameters[name] = value + t * direction
        return probe.run(probe.x, twin)[0]

    low, middle, high = moved(-1.0), moved(0.0), moved(1.0)
    floor = max(float(np.max(np.abs(high - low), initial=0)), 1e-4 * float(np.max(np.abs(middle), initial=0)))
    second = low + high - 2 * middle
    if np.any(np.abs(second) > ROUNDING * floor) and (reason := _not_affine(probe, name)):
        raise NotGivenError(reason)
    return Compared(second, np.zeros_like(middle), "second differences", ROUNDING, floor)


def _not_affine(probe: Probe, name: str) -> str | None:
    """Return why quantities and operators of the Hessian refuse a layer: its Jacobian depends on the parameter."""
    own = probe.layer
    layer, inputs = (own.layer, own.split(probe.x, 1)) if isinstance(own, Flat) else (own, [probe.x])
    leaf: Any = SimpleNamespace(layer=layer, parameters={name: name}, input_shapes=[each.shape[1:] for each in inputs])
    return lacks_affinity(leaf, inputs)


def parameter_curve(
    probe: Probe, name: str, entries: np.ndarray, of: Callable[[Layer, np.ndarray], np.ndarray] | None = None
) -> Curve:
    """t ↦ f(x; p + t e) for each entry e of a parameter: gives ``[K, N, *out]``; of another function of layer and x."""
    function = of or (lambda layer, x: probe.run(x, layer)[0])

    def curve(t: complex) -> np.ndarray:
        twin = twin_of(probe.layer, np.result_type(np.float64, type(t)))
        x, value = probe.x.astype(np.result_type(np.float64, type(t))), twin.parameters[name]
        found = []
        for entry in entries:
            before = value.flat[entry]
            value.flat[entry] = before + t
            found.append(function(twin, x))
            value.flat[entry] = before
        return np.stack(found)

    return curve


def _has_push(probe: Probe, name: str) -> bool:
    """Return whether a Jacobian has a product of its own with directions of the parameter."""
    try:
        return hasattr(probe.jacobian(name), "push")
    except Exception:  # a row says so
        return False


def _pushed(probe: Probe, name: str, rng: np.random.Generator) -> Compared:
    """Return J P of drawn directions P, beside products of P with Jᵀ of unit columns."""
    jacobian, shape = probe.jacobian(name), probe.output.shape
    directions = rng.standard_normal((COLUMNS, *probe.layer.parameters[name].shape))
    got = jacobian.push(directions, shape[0], shape[1:])  # type: ignore[attr-defined]
    return Compared(got, by_units(jacobian, directions, shape), "its definition by per_sample")


# ------------------------------------------------------------------------------------------------------ mixed residuals


def _mixed_residual(probe: Probe, name: str) -> Factored:
    layer, shape = probe.layer, probe.x.shape[1:]
    if not layer.mixed_width(name, shape):  # type: ignore[attr-defined]
        return Factored(0, lambda span: ((np.zeros((0, len(probe.x), *layer.parameters[name].shape)),
                                          np.zeros((0, *probe.x.shape))), np.zeros((0, len(probe.x)))))  # fmt: skip
    return layer.mixed_residual(probe.saved, name, probe.columns[0], shape)  # type: ignore[attr-defined]


def _wrong_width(probe: Probe, name: str) -> str:
    width = probe.layer.mixed_width(name, probe.x.shape[1:])  # type: ignore[attr-defined]
    return another_width(width, _mixed_residual(probe, name))


def _mixed(probe: Probe, name: str, rng: np.random.Generator) -> Compared:
    """Return Σᵥ signᵥ v vᵀ, v over entries of p and over x, and the changes of Jᵀg with these entries."""
    n, d, g = len(probe.x), prod(probe.x.shape[1:]), probe.columns[:1]
    p = probe.layer.parameters[name].size
    entries = some_of(p, rng, n * (p + d))

    def squared(probe: Probe) -> tuple[np.ndarray, float]:
        """Σᵥ signᵥ v vᵀ, and the largest of the squares that cancel."""
        (of_parameter, of_input), sign = _mixed_residual(probe, name).columns(ALL)
        both = [of_parameter.reshape(*sign.shape, p)[..., entries], of_input.reshape(*sign.shape, d)]
        whole = np.concatenate(both, 2).swapaxes(0, 1)
        size = max(float(np.max(np.abs(each), initial=0)) for each in both) ** 2
        return (whole * sign.T[..., None]).swapaxes(1, 2) @ whole, size

    got, size = squared(probe)

    def carried(layer: Layer, x: np.ndarray) -> np.ndarray:
        return layer.mjp(probe.run(x, layer)[1], g)[0]

    second = derivative(parameter_curve(probe, name, entries, carried))
    mixed, want = second.values.reshape(len(entries), n, d).swapaxes(0, 1), np.zeros_like(got)
    want[:, : len(entries), len(entries) :] = mixed
    want[:, len(entries) :, : len(entries)] = mixed.swapaxes(1, 2)
    kinks = np.zeros(got.shape, dtype=bool)
    kinks[:, : len(entries), len(entries) :] = second.kinks.reshape(len(entries), n, d).swapaxes(0, 1)
    off = kinks | kinks.swapaxes(1, 2)
    (found, expected), oracle = np.where(off, 0, (got, want)), f"{second.oracle} of mjp"
    rounding = lambda: rounding_of(squared(probe.cast(np.float32))[0], got)  # noqa: E731
    return Compared(found, expected, oracle, second.tolerance, size, rounding=rounding)


# ---------------------------------------------------------------------------------------------------------- reductions


def _cases(probe: Probe, name: str) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Columns and signs to reduce: one, several, and many, for which a reduction may go another way."""
    rng, n = np.random.default_rng(0), len(probe.x)
    many = min(MANY_COLUMNS, NUMBERS // (n * probe.layer.parameters[name].size))
    mixed = np.tensordot(rng.standard_normal((max(many, COLUMNS), COLUMNS)), probe.columns, 1)
    return {
        "one column": (probe.columns[:1], None),
        "several columns": (probe.columns, None),
        "several columns with signs": (probe.columns, probe.signs),
        "many columns": (mixed, None),
        "many columns with signs": (mixed, np.resize(probe.signs, mixed.shape[:2])),
    }


def _reduction(probe: Probe, name: str, method: str, define: Definition) -> Compared:
    jacobian, cases = probe.jacobian(name), _cases(probe, name)
    if method == "moments":  # of columns without signs
        cases = {case: given for case, given in cases.items() if given[1] is None}
    got = {case: probe.reduce(name, method, columns, signs) for case, (columns, signs) in cases.items()}
    want = {}
    for case, (columns, signs) in cases.items():
        each = jacobian.per_sample(columns)
        weights = np.ones(each.shape[:2]) if signs is None else signs
        want[case] = define(each, weights.reshape(weights.shape + (1,) * (each.ndim - 2)))
    several = "several columns" if method == "moments" else "several columns with signs"
    got[PLAIN], want[PLAIN] = getattr(jacobian, method)(*cases[several]), want[several]
    if method == "moments":
        got = {case: {"mean": value.mean, "centered": value.centered} for case, value in got.items()}
    numbers = {case: columns.shape[:2] for case, (columns, _) in {**cases, PLAIN: cases[several]}.items()}
    sizes = {case: {"V": v, "V N": v * n, "V N − 1": v * n - 1} for case, (v, n) in numbers.items()}
    return Compared(got, want, "its definition by per_sample", sizes=sizes)


# ------------------------------------------------------------------------------------------------------------ Kronecker


def _check_kronecker(claims: Claims, probe: Probe, name: str) -> None:
    """Add rows on the factors of a weight y[t] = W u[t] + b, or of the bias b, by the Jacobian of the bias.

    A weight with groups has those of each group: B of its own outputs, A of its own inputs.
    """
    bias = name if _is_vector(probe, name) or "bias" not in probe.parameters else "bias"
    needs = ["parameter_jacobians", f"{name}.per_sample", f"{bias}.per_sample"]
    rows: dict[str, tuple[str, Callable[..., Compared]]] = {
        "kronecker": (f"is Σᵥₙ s b bᵀ, b = Jᵀg of the {bias if _is_vector(probe, name) else 'bias'}", _kronecker),
        "average_kronecker": ("is Jᵀ Ḡ J of the bias", _average_kronecker),
        "input_square": ("is Σₙₜ u uᵀ, of what W is multiplied with", _input_square),
    }
    for method, (claim, define) in rows.items():
        pair = _unsupported if method in probe.unsupported else define
        claims.equal(f"{name}.{method}", claim, pair, probe, name, method, needs=needs)


def _without_factors(probe: Probe) -> str:
    return "; ".join(dict.fromkeys(probe.unsupported.values()))


def _is_vector(probe: Probe, name: str) -> bool:
    """Return whether a parameter is a bias, or like a bias has a factor B of its own and no A."""
    own = "input_square" not in probe.unsupported and probe.jacobian(name).input_square() is None
    return probe.layer.parameters[name].ndim == 1 or own


def _bias_jacobian(probe: Probe, name: str, columns: np.ndarray) -> np.ndarray:
    """Jᵀg of the bias, shape (V, N, O), of a twin with a bias if the layer has none; of a vector, its own."""
    if _is_vector(probe, name):
        return probe.jacobian(name).per_sample(columns)
    if "bias" in probe.parameters:
        return probe.jacobian("bias").per_sample(columns)
    twin = twin_of(probe.layer)
    if not give_bias(twin):
        raise NotGivenError("there is no bias to define it by")
    assert twin.drawn is not None
    twin.drawn["bias"] = np.zeros(twin.parameter_shapes()["bias"])
    return twin.parameter_jacobians(probe.saved)["bias"].per_sample(columns)


def _of_groups(probe: Probe, name: str, b: np.ndarray) -> np.ndarray:
    """Return B of a weight with groups from the matrix of the bias; that of a bias is the matrix."""
    return b if _is_vector(probe, name) else b_of_weight(probe.layer, b)


def _kronecker(probe: Probe, name: str, method: str) -> Compared:
    got = {
        "several columns": probe.reduce(name, method, probe.columns, None),
        "several columns with signs": probe.reduce(name, method, probe.columns, probe.signs),
        PLAIN: getattr(probe.jacobian(name), method)(probe.columns, probe.signs),
    }
    b = _bias_jacobian(probe, name, probe.columns)
    b = b.reshape(*b.shape[:2], -1)
    want = {
        "several columns": _of_groups(probe, name, np.einsum("vno,vnp->op", b, b)),
        "several columns with signs": _of_groups(probe, name, np.einsum("vn,vno,vnp->op", probe.signs, b, b)),
    }
    want[PLAIN] = want["several columns with signs"]
    return Compared(got, want, "its definition by per_sample")


def _average_kronecker(probe: Probe, name: str, method: str) -> Compared:
    out = probe.output.shape[1:]
    if probe.curvature is None:
        raise NotGivenError(f"not compared with dense Jacobians: {out} outputs are too many")
    got = probe.reduce(name, method, probe.curvature, out)
    b = _bias_jacobian(probe, name, units(out, len(probe.x), np.arange(prod(out))))[:, 0]
    return Compared(got, _of_groups(probe, name, b.T @ probe.curvature @ b), "its definition by per_sample")


def _input_square(probe: Probe, name: str, method: str) -> Compared:
    got, out = probe.reduce(name, method), probe.output.shape[1:]
    if got is None and _is_vector(probe, name):
        return Compared(None, None, "")
    if max(prod(out), got.size // LARGEST_AVERAGE) > LARGEST_AVERAGE:
        raise NotGivenError(f"not compared with per_sample: {out} outputs or {got.shape} numbers are too many")
    columns, groups = units(out, len(probe.x), np.arange(prod(out))), groups_of(probe.layer)
    features = _bias_jacobian(probe, name, columns)[:, 0]
    squares = []
    for group in range(groups):
        places = np.flatnonzero(features[:, group * features.shape[1] // groups])  # the first feature of each group
        each = np.moveaxis(probe.jacobian(name).per_sample(columns[places]), (0, 1), (-2, -1))
        u = by_output(probe.layer, each)[group, 0]
        u = u.reshape(-1, u.shape[-2] * u.shape[-1])
        squares.append(u @ u.T)
    both = {"with a fast form": got, PLAIN: getattr(probe.jacobian(name), method)()}
    want = np.stack(squares) if groups > 1 else squares[0]
    if probe.layer.weight_order == "IO":  # the outputs stand between the channels and the places
        channels = probe.layer.parameters["weight"].shape[0] // groups
        want = want.reshape(*want.shape[:-2], *(channels, want.shape[-1] // channels) * 2)
    return Compared(both, dict.fromkeys(both, want), "its definition by per_sample")
