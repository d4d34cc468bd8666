"""Rows on a layer's derivatives in its input: Jacobian products, curvature, KFRA's step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer
from gbackprop.calculus.residual import Factored, FactoredLayer
from gbackprop.calculus.signals import ALL
from gbackprop.testing.claims import LEAST_SEEN, Claims, Compared, FoundError, NotGivenError, expect_shape
from gbackprop.testing.differences import EPS, REAL_STEP, Derivative, derivative
from gbackprop.testing.flat import Flat
from gbackprop.testing.points import Point, input_curve, largest, pulled, shrunk, units
from gbackprop.testing.probe import Probe, is_container

EQUAL = 0.7
"""All inputs, where ties are looked at."""

CURVATURES = ("zero", "diagonal", "dense")


def check_derivatives(claims: Claims, probe: Probe, point: Point) -> None:
    """Add rows on jmp, mjp, vjp, curvature, residual and average."""
    claims.equal("jmp", "is J[n, *out, *in]", _jmp, probe, point)
    claims.equal("mjp", "is Jᵀ, entries J[n, *out, *in]", _mjp, probe, point)
    for name, mat in (("jmp", probe.tangents), ("mjp", probe.columns)):
        check_linear(claims, name, partial(getattr(probe.layer, name), probe.saved), mat)
        claims.equal(name, "samples do not interact", samples, probe, name, 1, needs=[name])
    claims.equal("mjp", "⟨J u, v⟩ = ⟨u, Jᵀ v⟩", _adjoint, probe, needs=["jmp", "mjp"])
    claims.equal("mjp", "adds up where all inputs are equal and move as one", _shift, probe, needs=["mjp"])
    claims.equal("vjp", "is Jᵀ", _vjp, probe, point, needs=["mjp"] * has_default_vjp(probe.layer))
    if probe.layer.constant_jacobian:
        claims.equal("constant_jacobian", "J is the same for every sample", _constant, point)
    if not is_container(probe.layer):
        _check_curvature(claims, probe, point)
    claims.equal("average", "is 1/N Σₙ Jₙᵀ Ḡ Jₙ", _average, probe, point, needs=["mjp", "constant_jacobian"])


def check_linear(claims: Claims, name: str, multiply: Callable[[np.ndarray], np.ndarray], mat: np.ndarray) -> None:
    """Add rows on a method that multiplies columns ``[V, N, …]`` with a matrix."""
    claims.equal(name, "is linear", _linear, multiply, mat, needs=[name])
    claims.equal(name, "columns do not interact", _columns, multiply, mat, needs=[name])


def has_default_vjp(layer: Layer) -> bool:
    """Return whether vjp is the inherited one: mjp of one column."""
    return type(layer.layer if isinstance(layer, Flat) else layer).vjp is Layer.vjp


def samples(probe: Probe, name: str, axis: int) -> Compared:
    """Return a call for the whole batch, and for each sample alone."""
    alone = [probe.sample(n).calls()[name]() for n in range(len(probe.x))]
    return Compared(probe.calls()[name](), np.concatenate(alone, axis), "one sample at a time")


# ------------------------------------------------------------------------------------------------- Jacobian products


def _jmp(probe: Probe, point: Point) -> Compared:
    n, jacobian = len(point.x), point.jacobian
    got = probe.layer.jmp(probe.saved, units(point.x.shape[1:], n, point.inputs))
    expect_shape(got, (len(point.inputs), n, *point.output_shape))
    got = got.reshape(*got.shape[:2], -1)[:, :, point.outputs].transpose(1, 2, 0)
    return Compared(point.readable(got), point.readable(point.matrix()), jacobian.oracle, jacobian.tolerance)


def _mjp(probe: Probe, point: Point) -> Compared:
    n, jacobian = len(point.x), point.jacobian
    got = probe.layer.mjp(probe.saved, units(point.output_shape, n, point.outputs))
    expect_shape(got, (len(point.outputs), n, *point.x.shape[1:]))
    got = got.reshape(*got.shape[:2], -1)[:, :, point.inputs].transpose(1, 0, 2)
    return Compared(point.readable(got), point.readable(point.matrix()), jacobian.oracle, jacobian.tolerance)


def _vjp(probe: Probe, point: Point) -> Compared:
    vec, jacobian = probe.columns[0], point.jacobian
    got = probe.layer.vjp(probe.saved, vec)
    expect_shape(got, point.x.shape)
    want = np.einsum("nd,knd->nk", vec.reshape(len(vec), -1), jacobian.values.reshape(*jacobian.values.shape[:2], -1))
    return Compared(got.reshape(len(got), -1)[:, point.inputs], want, jacobian.oracle, jacobian.tolerance)


def _adjoint(probe: Probe) -> Compared:
    pushed, pulled = probe.layer.jmp(probe.saved, probe.tangents), probe.layer.mjp(probe.saved, probe.columns)
    lead = pushed.shape[:2]
    return Compared(
        (pulled * probe.tangents).reshape(*lead, -1).sum(2), (pushed * probe.columns).reshape(*lead, -1).sum(2), "jmp"
    )


def _linear(multiply: Callable[[np.ndarray], np.ndarray], mat: np.ndarray) -> Compared:
    first, second = multiply(mat), multiply(mat[::-1])
    return Compared(multiply(3 * mat - 2 * mat[::-1]), 3 * first - 2 * second, "the sum of its parts")


def _columns(multiply: Callable[[np.ndarray], np.ndarray], mat: np.ndarray) -> Compared:
    alone = [multiply(mat[v : v + 1]) for v in range(len(mat))]
    return Compared(multiply(mat), np.concatenate(alone), "one column at a time")


def _shift(probe: Probe) -> Compared:
    """At ties, too, the shares of the winners must add up: max pooling moves as much as all that it sees."""
    x = np.full_like(probe.x, EQUAL)
    pulled = probe.layer.mjp(probe.run(x)[1], probe.columns)
    shifted = derivative(lambda t: probe.run(x + t)[0])
    if shifted.kinks.any():
        raise NotGivenError("has a kink there")
    got = pulled.reshape(*pulled.shape[:2], -1).sum(2)
    want = (probe.columns * shifted.values).reshape(*got.shape, -1).sum(2)
    return Compared(got, want, shifted.oracle, shifted.tolerance, float(np.max(np.abs(probe.columns), initial=0)))


def _constant(point: Point) -> Compared:
    matrix = point.matrix()
    return Compared(matrix, np.broadcast_to(matrix[:1], matrix.shape), "the first sample's", point.jacobian.tolerance)


def _average(probe: Probe, point: Point) -> Compared:
    if probe.curvature is None or not point.complete:
        raise NotGivenError(f"not compared with dense Jacobians: {point.output_shape} outputs are too many")
    j, n = point.matrix(), len(point.x)
    want = np.einsum("nai,ab,nbj->ij", j, probe.curvature, j, optimize=True) / n
    got = probe.layer.average(probe.saved, probe.curvature, n, point.output_shape)
    twice = (1 + point.jacobian.tolerance) ** 2 - 1  # the errors of two factors J
    return Compared(got, want, f"dense Jacobians, {point.jacobian.oracle}", twice)


# --------------------------------------------------------------------------------------------------------- curvature


def _check_curvature(claims: Claims, probe: Probe, point: Point) -> None:
    kind, needs = probe.layer.curvature, ["curvature", "vjp"]
    second = cache(lambda: _second(probe, point))
    claims.hold("curvature", f"is one of {', '.join(CURVATURES)}", _unknown, kind)
    claims.equal("curvature", f"is {kind}", _off_pattern, probe, point, second, needs=needs)
    if kind != "zero":
        claims.equal("residual", "is Σⱼ (∇² yⱼ) gⱼ", _residual, probe, point, second, needs=needs)
        claims.equal("residual", "samples do not interact", samples, probe, "residual", 0, needs=["residual"])
    if isinstance(probe.own, FactoredLayer):
        claims.hold("residual", "has as many columns as residual_width says", _wrong_width, probe, probe.own)
        if probe.own.bilinear:
            claims.equal("bilinear", "is linear in each of two inputs", _of_each, probe, point, second, needs=needs)
        elif probe.own.linear_in:
            claims.equal("linear_in", "is linear in these inputs", _of_each, probe, point, second, needs=needs)
    elif kind == "dense":
        claims.equal("residual", "is symmetric", _symmetric, probe, needs=["residual"])


def _unknown(kind: str) -> str:
    return "" if kind in CURVATURES else f"is {kind!r}"


def _second(probe: Probe, point: Point) -> Derivative:
    """d/dx of Jᵀ g, by differences of the vjp, shape (K, N, *in)."""
    terms, left = (largest(each.calls()["vjp"]()) for each in (shrunk(probe), probe))
    eps = EPS * max(1.0, terms / (left or terms or 1.0))  # values are rounded as their terms are
    curve = input_curve(partial(pulled, probe, probe.columns[0]), point.x, point.inputs)
    second = derivative(curve, REAL_STEP * point.size, eps)
    if second.tolerance > LEAST_SEEN:
        raise NotGivenError(f"rounding alone moves differences of vjp by {second.tolerance:.0e} of them")
    return second


def _hessian(point: Point, second: Derivative) -> np.ndarray:
    """Σⱼ (∇² yⱼ) gⱼ: rows are the coordinates looked at, shape (N, K, D)."""
    return second.values.reshape(*second.values.shape[:2], -1).swapaxes(0, 1)


def _off_pattern(probe: Probe, point: Point, given: Callable[[], Derivative]) -> Compared:
    """Compare the entries of the second derivative that the declared curvature excludes with zero."""
    second = given()
    hessian, kind = _hessian(point, second).copy(), probe.layer.curvature
    if kind == "dense":
        raise NotGivenError("dense: nothing is claimed to vanish")
    if kind == "diagonal":
        if point.output_shape != point.x.shape[1:]:
            raise FoundError(f"diagonal, but outputs {point.output_shape} are not inputs {point.x.shape[1:]}")
        hessian[:, np.arange(len(point.inputs)), point.inputs] = 0
    return _vanishing(probe, point, second, hessian)


def _of_each(probe: Probe, point: Point, given: Callable[[], Derivative]) -> Compared:
    """Compare the second derivative in each input alone, of two or of those that are named, with zero."""
    second, sizes = given(), [prod(shape) for shape in getattr(probe.layer, "shapes", (point.x.shape[1:],))]
    own: Any = probe.own
    linear = (0, 1) if own.bilinear else own.linear_in
    if own.bilinear and len(sizes) != 2:
        raise FoundError(f"bilinear is of two inputs, got {len(sizes)}")
    if not isinstance(linear, tuple) or not set(range(len(sizes))).issuperset(linear):
        raise FoundError(f"expected some of the inputs {tuple(range(len(sizes)))}, got {linear!r}")
    of = np.repeat(np.arange(len(sizes)), sizes)
    alone = (of[point.inputs][:, None] == of) & np.isin(of, linear)
    return _vanishing(probe, point, second, _hessian(point, second) * alone)


def _vanishing(probe: Probe, point: Point, second: Derivative, entries: np.ndarray) -> Compared:
    """Compare entries of the second derivative with zero, to the size of the gradient."""
    gradient = probe.layer.vjp(probe.saved, probe.columns[0])
    floor = float(np.max(np.abs(gradient), initial=0)) / point.size
    return Compared(entries, np.zeros_like(entries), f"{second.oracle} of vjp", 1e-7, floor)


def _wrong_width(probe: Probe, layer: FactoredLayer) -> str:
    shapes = getattr(probe.layer, "shapes", [probe.x.shape[1:]])
    return another_width(layer.residual_width(*shapes), layer.residual(probe.saved, probe.columns[0]))


def another_width(width: int, found: Factored) -> str:
    """Return that a residual has another number of columns, or of signs, than is declared; "" if it has that."""
    signs = len(found.columns(ALL)[1])
    return "" if found.width == signs == width else f"expected {width}, got width={found.width} and {signs} signs"


def _residual(probe: Probe, point: Point, given: Callable[[], Derivative]) -> Compared:
    second = given()
    hessian, n = _hessian(point, second), len(point.x)
    got = probe.residual()
    if probe.layer.curvature == "diagonal":
        expect_shape(got, point.x.shape)
        got, want = got.reshape(n, -1)[:, point.inputs], hessian[:, np.arange(len(point.inputs)), point.inputs]
    else:
        d = prod(point.x.shape[1:])
        expect_shape(got, (n, d, d))
        got, want = got[:, point.inputs], hessian
    return Compared(got, want, f"{second.oracle} of vjp", second.tolerance, probe.size_of_residual())


def _symmetric(probe: Probe) -> Compared:
    residual = probe.residual()
    return Compared(residual, residual.swapaxes(1, 2), "its transpose")
