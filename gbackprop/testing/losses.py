"""Check a loss: its gradient and Hessian against differences, its Monte-Carlo root against the likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.losses.base import Loss
from gbackprop.testing.claims import (
    FLOAT32_TOLERANCE,
    ROUNDINGS,
    TINY,
    UNIT,
    UNIT32,
    Claims,
    Compared,
    FoundError,
    expect_shape,
    not_given,
)
from gbackprop.testing.diagnosis.search import diagnosed
from gbackprop.testing.differences import Derivative
from gbackprop.testing.likelihood import check_likelihood
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.loss_scale import check_factor, check_reductions
from gbackprop.testing.points import BEYOND, finite_range, inside, is_beyond, largest, size_of, smooth, some_of
from gbackprop.testing.probe import without_layout
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report

REQUIRED = ("values", "gradients", "target_shape", "check_values")
"""The methods that every loss must have."""


AT_GIVEN = "is judged at the outputs given, not at drawn ones"

Reference = Callable[[np.ndarray, np.ndarray], np.ndarray]


def check_loss(
    loss: Loss, output: Any, target: Any, rng: int | np.random.Generator = 0, reference: Reference | None = None
) -> Report:
    """Compare every method of a loss with differences of its values, in float64 on the host.

    Parameters
    ----------
    loss : Loss
    output : array_like, shape (N, *out)
        Moved where the loss has a kink; drawn anew if it is sure of all targets, so that rounding hides derivatives,
        and outside its `finite_range`. A row says so.
    target : array_like, shape (N, ...)
    rng : int or numpy.random.Generator
        Of draws. Claims about draws are tested at a false-alarm rate of one in a million.
    reference : callable, optional
        The loss of each sample in plain terms, ``[N, *out], [N, ...] -> [N]``: without it nothing says that `values`
        are the right function, only that all else follows from them.

    Returns
    -------
    Report
        A row for each claim. What the loss raises becomes a row.
    """

    def check(claims: Claims, subject: Loss, rng: np.random.Generator) -> None:
        given = claims, claims.reduced(subject), output, target, rng, reference
        claims.attempt("loss", "can be checked", _check, *given)

    return diagnosed(repr(loss), REQUIRED, check, loss, rng)


def _check(
    claims: Claims, loss: Loss, output: Any, target: Any, rng: np.random.Generator, reference: Reference | None
) -> None:
    output, target = np.array(asnumpy(output), dtype=np.float64), np.array(asnumpy(target))
    target = target.astype(np.float64) if target.dtype.kind == "f" else target
    output, target = claims.fresh(output, target)
    loss.check_output(output)
    probe = LossProbe(loss, output, target, some_of(prod(output.shape[1:]), rng))
    if is_beyond(loss, output):
        claims.hold("loss", AT_GIVEN, not_given, BEYOND)
        probe = replace(probe, output=probe.drawn)
    claims.hold("target_shape", "is the target's", _wrong_target_shape, probe)
    for name in probe.calls():
        claims.hold(name, "is pure", _impurity, probe, name)
    claims.hold("values", "are finite numbers, one for each sample", _malformed, probe)
    claims.equal("values", "samples do not interact", _alone, "values", probe, 0, needs=["values"])
    if reference is not None:
        claims.equal("values", "are what they should be", _against, probe, reference, needs=["values"])
    if {"target_shape", "values"} & claims.doubtful:
        return
    if probe.is_sure:
        claims.hold("loss", AT_GIVEN, not_given, "the loss is sure of all targets there, and rounding hides the rest")
        probe = replace(probe, output=probe.drawn)
    given = (probe.values, probe.output, probe.where, rng, partial(inside, loss))
    found = claims.attempt("values", "are smooth almost everywhere", smooth, *given)
    if found is None:
        return
    probe, slope = replace(probe, output=found[0]), found[1]
    check_factor(claims, loss, target)
    claims.equal("value", "is R Σₙ ℓₙ", _value, probe, needs=["values", "factor"])
    claims.equal("gradients", "are ∇ℓ[n, *out]", _gradients, probe, slope, needs=["values"])
    hessian = claims.attempt("gradients", "can be differentiated", probe.hessian)
    if hessian is not None:
        _check_hessian(claims, probe, hessian)
        check_likelihood(claims, probe, hessian, rng)
    check_reductions(claims, probe)
    _check_conduct(claims, probe, rng)


# -------------------------------------------------------------------------------------------------------- the function


def _wrong_target_shape(probe: LossProbe) -> str:
    expected, shape = probe.loss.target_shape(probe.output.shape), probe.target.shape
    if probe.loss.probabilities and probe.target.dtype.kind == "f":
        expected = probe.output.shape
    return "" if expected == shape else f"says {expected}, but the target has {shape}"


def _malformed(probe: LossProbe) -> str:
    values = probe.values(probe.output)
    if np.shape(values) != probe.output.shape[:1]:
        return f"expected shape {probe.output.shape[:1]}, got {np.shape(values)}"
    return "" if np.isfinite(values).all() else "gives NaN or infinity"


def _against(probe: LossProbe, reference: Reference) -> Compared:
    want = reference(probe.output.copy(), probe.target.copy())
    return Compared(probe.values(probe.output), want, "plain definition", floor=size_of(probe.output))


def _value(probe: LossProbe) -> Compared:
    r = probe.loss.factor(len(probe.output), probe.target)
    return Compared(probe.loss.value(probe.output, probe.target), r * probe.values(probe.output).sum(), "values")


def _gradients(probe: LossProbe, slope: Derivative) -> Compared:
    got, want = probe.gradients(), slope.values.T
    expect_shape(got, probe.output.shape)
    floor = ROUNDINGS * UNIT / slope.tolerance * probe.sizes_of_terms[0]
    if want.size == probe.output.size:
        return Compared(got, want.reshape(got.shape), slope.oracle, slope.tolerance, floor)
    return Compared(probe.at(got[None])[0], want, slope.oracle, slope.tolerance, floor)


# --------------------------------------------------------------------------------------------------------- the Hessian


def _check_hessian(claims: Claims, probe: LossProbe, hessian: Derivative) -> None:
    needs = ["gradients"]
    claims.equal("hessian_sqrt", "S Sᵀ = ∇²ℓ[n, i, j]", _root, probe, hessian, needs=needs)
    claims.hold("columns", "is the number of hessian_sqrt's columns", _wrong_columns, probe, needs=["hessian_sqrt"])
    claims.equal("hessian_sqrt", "blocks of columns are those of the whole", _blocks, probe, needs=["hessian_sqrt"])
    claims.equal("hessian_sum", "is Σₙ ∇²ℓₙ", _hessian_sum, probe, hessian, needs=needs)


def _root(probe: LossProbe, hessian: Derivative) -> Compared:
    s, shape = probe.root(), probe.output.shape
    if s.shape[1:] != shape:
        raise FoundError(f"expected shape (V, {', '.join(map(str, shape))}), got {s.shape}")
    s = probe.at(s)
    return _beside(hessian, np.einsum("vni,vnj->nij", s, s), hessian.values.swapaxes(0, 1), probe)


def _beside(hessian: Derivative, got: np.ndarray, want: np.ndarray, probe: LossProbe) -> Compared:
    """Compare with the Hessian: where it vanishes, rounding is compared with the gradients, and with their terms."""
    floor = max(1e-3 * largest(probe.gradients()), ROUNDINGS * UNIT / hessian.tolerance * probe.sizes_of_terms[1])
    return Compared(got, want, f"{hessian.oracle} of gradients", hessian.tolerance, floor)


def _wrong_columns(probe: LossProbe) -> str:
    says, real = probe.loss.columns(probe.output.shape[1:]), len(probe.root())
    return "" if says == real else f"says {says}, but there are {real}"


def _blocks(probe: LossProbe) -> Compared:
    whole = probe.root()
    windows = [slice(0, 1), slice(1, len(whole)), slice(len(whole) // 2, None), slice(0, 0), slice(None)]
    ends = [["" if end is None else end for end in (window.start, window.stop)] for window in windows]
    names = [f"columns {start}:{stop}" for start, stop in ends]
    got = [probe.root(window) for window in windows]
    return Compared(dict(zip(names, got)), dict(zip(names, (whole[window] for window in windows))), "all columns")


def _hessian_sum(probe: LossProbe, hessian: Derivative) -> Compared:
    d, got = prod(probe.output.shape[1:]), probe.loss.hessian_sum(probe.output, probe.target)
    expect_shape(got, (d, d))
    return _beside(hessian, got[np.ix_(probe.where, probe.where)], hessian.values.sum(1), probe)


# ------------------------------------------------------------------------------------------------------------- conduct


def _impurity(probe: LossProbe, name: str) -> str:
    call = probe.calls()[name]
    output, target = probe.output.copy(), probe.target.copy()  # so that nothing impure spoils what follows
    return impurity(lambda: call(output, target), {"its output": output, "its target": target, "the loss": probe.loss})


def _check_conduct(claims: Claims, probe: LossProbe, rng: np.random.Generator) -> None:
    """Add rows on the laws that hold for each method."""
    axes = {"gradients": 0, "hessian_sqrt": 1}
    low, high = finite_range(probe.loss)
    extreme = rng.choice([low, max(low, 0.0), high], probe.output.shape, p=[0.4, 0.2, 0.4])
    for name in probe.calls():
        if name in axes:
            claims.equal(name, "samples do not interact", _alone, name, probe, axes[name], needs=[name])
        claims.equal(name, "float32 stays float32", _float32, name, probe, needs=[name])
        claims.equal(name, "layout in memory does not matter", _layout, name, probe, needs=[name])
        claims.hold(name, "is finite at the ends of its range", _not_finite, name, probe, extreme, needs=[name])
    claims.hold("check_target", "refuses wrong shapes and types", _accepted, probe)


def _alone(name: str, probe: LossProbe, axis: int) -> Compared:
    call, output, target = probe.calls()[name], probe.output, probe.target
    alone = [call(output[n : n + 1], target[n : n + 1]) for n in range(len(output))]
    return Compared(call(output, target), np.concatenate(alone, axis), "one sample at a time")


def _float32(name: str, probe: LossProbe) -> Compared:
    call = probe.calls()[name]
    single = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in (probe.output, probe.target)]
    got = call(*single)
    if got.dtype != np.float32:
        raise FoundError(f"gives {got.dtype} for float32")
    rounded = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in single]  # so that draws are the same
    terms = largest(call(probe.drawn, probe.target)) * (max(1.0, largest(probe.output)) if name == "values" else 1.0)
    if name == "hessian_sqrt_mc" and probe.loss.counts:  # a large count, less its rate
        terms = max(terms, largest(probe.loss.draw(probe.output, 2, 0)))
    floor = max(TINY, ROUNDINGS * UNIT32 / FLOAT32_TOLERANCE * terms)
    return Compared(got, call(*rounded), "the same in float64", FLOAT32_TOLERANCE, floor)


def _layout(name: str, probe: LossProbe) -> Compared:
    call = probe.calls()[name]
    scattered = call(without_layout(probe.output), without_layout(probe.target))
    return Compared(scattered, call(probe.output, probe.target), "contiguous arrays")


def _not_finite(name: str, probe: LossProbe, extreme: np.ndarray) -> str:
    call, target = probe.calls()[name], probe.target
    for dtype in (np.float64, np.float32):
        found = call(extreme.astype(dtype), target.astype(dtype) if target.dtype.kind == "f" else target)
        if not np.isfinite(found).all():
            return f"gives NaN or infinity in {np.dtype(dtype).name}"
    return ""


def _accepted(probe: LossProbe) -> str:
    target = probe.target
    other = target.astype(np.float64) if target.dtype.kind in "iu" else target.astype(np.int64)
    wrong = {"one sample too few": target[1:], "one axis too many": target[..., None]}
    wrong[f"{other.dtype} for {target.dtype}"] = other
    for name, bad in wrong.items():
        try:
            probe.loss.check_target("target", bad, probe.output)
        except (TypeError, ValueError):
            continue
        return f"takes a target with {name}"
    return ""


