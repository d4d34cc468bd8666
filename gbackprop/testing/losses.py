"""Check a loss: its gradient and Hessian against differences, its Monte-Carlo root against the likelihood."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.losses.base import Loss
from gbackprop.testing.claims import Claims, FoundError, Pair
from gbackprop.testing.differences import REAL_STEP, Derivative, derivative
from gbackprop.testing.likelihood import check_likelihood
from gbackprop.testing.points import finite_range, input_curve, inside, size_of, smooth, some_of
from gbackprop.testing.probe import without_layout
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report

REQUIRED = ("values", "gradients", "target_shape", "check_values")
"""The methods that every loss must have."""

FLOAT32_TOLERANCE = 1e-3


Reference = Callable[[np.ndarray, np.ndarray], np.ndarray]


def check_loss(
    loss: Loss, output: Any, target: Any, rng: int | np.random.Generator = 0, reference: Reference | None = None
) -> Report:
    """Hold every method of a loss against differences of its values, in float64 on the host.

    Parameters
    ----------
    loss : Loss
    output : array_like, shape (N, *out)
        Moved where the loss has a kink.
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
    claims = Claims(repr(loss), REQUIRED)
    generator = np.random.default_rng(rng)
    claims.attempt("loss", "can be checked", _check, claims, loss, output, target, generator, reference)
    return claims.report


def _check(
    claims: Claims, loss: Loss, output: Any, target: Any, rng: np.random.Generator, reference: Reference | None
) -> None:
    output, target = np.array(asnumpy(output), dtype=np.float64), np.array(asnumpy(target))
    target = target.astype(np.float64) if target.dtype.kind == "f" else target
    loss.check_output(output)
    claims.hold("target_shape", "is the target's", _wrong_target_shape, loss, output, target)
    for name, call in _calls(loss, 0).items():
        claims.hold(name, "is pure", _impurity, loss, call, output, target)
    claims.hold("values", "are finite numbers, one for each sample", _malformed, loss, output, target)
    claims.equal("values", "samples do not interact", _alone, loss.values, output, target, 0, needs=["values"])
    if reference is not None:
        claims.equal("values", "are what they should be", _against, loss, output, target, reference, needs=["values"])
    if {"target_shape", "values"} & claims.doubtful:
        return
    where = some_of(prod(output.shape[1:]), rng)

    def values(moved: np.ndarray) -> np.ndarray:
        return loss.values(moved, _tiled(target, moved, output))

    place = partial(inside, loss)
    found = claims.attempt("values", "are smooth almost everywhere", smooth, values, output, where, rng, place)
    if found is None:
        return
    output, slope = found
    claims.equal("factor", "is R", _factor, loss, target)
    claims.equal("value", "is R Σₙ ℓₙ", _value, loss, output, target, needs=["values", "factor"])
    claims.equal("gradients", "are ∇ℓ[n, *out]", _gradients, loss, output, target, where, slope, needs=["values"])
    hessian = claims.attempt("gradients", "can be differentiated", _hessian, loss, output, target, where)
    if hessian is not None:
        _check_hessian(claims, loss, output, target, where, hessian)
        check_likelihood(claims, loss, output, target, where, hessian, rng)
    _check_conduct(claims, loss, output, target, rng)


def _tiled(target: np.ndarray, moved: np.ndarray, output: np.ndarray) -> np.ndarray:
    return np.concatenate([target] * (len(moved) // len(output)))


# -------------------------------------------------------------------------------------------------------- the function


def _wrong_target_shape(loss: Loss, output: np.ndarray, target: np.ndarray) -> str:
    expected = loss.target_shape(output.shape)
    if loss.probabilities and target.dtype.kind == "f":
        expected = output.shape
    return "" if expected == target.shape else f"says {expected}, but the target has {target.shape}"


def _malformed(loss: Loss, output: np.ndarray, target: np.ndarray) -> str:
    values = loss.values(output, target)
    if np.shape(values) != output.shape[:1]:
        return f"expected shape {output.shape[:1]}, got {np.shape(values)}"
    return "" if np.isfinite(values).all() else "gives NaN or infinity"


def _against(loss: Loss, output: np.ndarray, target: np.ndarray, reference: Reference) -> Pair:
    want, floor = reference(output.copy(), target.copy()), 1e-3 * size_of(output)
    return Pair(loss.values(output, target), want, "plain definition", floor=floor)


def _factor(loss: Loss, target: np.ndarray) -> Pair:
    """1/R of a batch and of seven copies: N or, where targets have weights, the sum of what its samples give alone."""
    batches = {f"1/R, {len(some)} samples": some for some in (target, np.concatenate([target] * 7))}
    got = {name: np.asarray(_divisor(loss, some)) for name, some in batches.items()}
    want = dict.fromkeys(batches, 1.0)
    if loss.reduction == "mean":
        alone = type(loss).factor is not Loss.factor
        want = {
            name: sum(_divisor(loss, some[n : n + 1]) for n in range(len(some))) if alone else float(len(some))
            for name, some in batches.items()
        }
    return Pair(got, want, f"reduction {loss.reduction!r}")


def _divisor(loss: Loss, target: np.ndarray) -> float:
    """1/R; 0 where no target counts, which is an error."""
    try:
        return 1 / loss.factor(len(target), target)
    except ValueError:
        return 0.0


def _value(loss: Loss, output: np.ndarray, target: np.ndarray) -> Pair:
    r = loss.factor(len(output), target)
    return Pair(loss.value(output, target), r * loss.values(output, target).sum(), "values")


def _gradients(loss: Loss, output: np.ndarray, target: np.ndarray, where: np.ndarray, slope: Derivative) -> Pair:
    got = loss.gradients(output, target)
    if got.shape != output.shape:
        raise FoundError(f"expected shape {output.shape}, got {got.shape}")
    want = slope.values.T
    if want.size == output.size:
        return Pair(got, want.reshape(output.shape), slope.oracle, slope.tolerance)
    return Pair(got.reshape(len(got), -1)[:, where], want, slope.oracle, slope.tolerance)


# --------------------------------------------------------------------------------------------------------- the Hessian


def _hessian(loss: Loss, output: np.ndarray, target: np.ndarray, where: np.ndarray) -> Derivative:
    """∇²ℓ at the coordinates looked at, by differences of the gradients, shape (K, N, K)."""

    def gradients(moved: np.ndarray) -> np.ndarray:
        each = loss.gradients(moved, _tiled(target, moved, output))
        return each.reshape(len(each), -1)[:, where]

    return derivative(input_curve(gradients, output, where), REAL_STEP * size_of(output))


def _check_hessian(
    claims: Claims, loss: Loss, output: np.ndarray, target: np.ndarray, where: np.ndarray, hessian: Derivative
) -> None:
    given, needs = (loss, output, target), ["gradients"]
    claims.equal("hessian_sqrt", "S Sᵀ = ∇²ℓ[n, i, j]", _root, *given, where, hessian, needs=needs)
    claims.hold("columns", "is the number of hessian_sqrt's columns", _wrong_columns, *given, needs=["hessian_sqrt"])
    claims.equal("hessian_sqrt", "blocks of columns are those of the whole", _blocks, *given, needs=["hessian_sqrt"])
    claims.equal("hessian_sum", "is Σₙ ∇²ℓₙ", _hessian_sum, *given, where, hessian, needs=needs)


def _root(
    loss: Loss, output: np.ndarray, target: np.ndarray, where: np.ndarray, hessian: Derivative
) -> Pair:
    s = loss.hessian_sqrt(output, target)
    if s.shape[1:] != output.shape:
        raise FoundError(f"expected shape (V, {', '.join(map(str, output.shape))}), got {s.shape}")
    s = s.reshape(*s.shape[:2], -1)[:, :, where]
    got, want = np.einsum("vni,vnj->nij", s, s), hessian.values.swapaxes(0, 1)
    return Pair(got, want, f"{hessian.oracle} of gradients", hessian.tolerance, _floor(loss, output, target))


def _floor(loss: Loss, output: np.ndarray, target: np.ndarray) -> float:
    """Return the floor of a Hessian's error: where it vanishes, rounding is compared with the gradients."""
    return 1e-3 * float(np.max(np.abs(loss.gradients(output, target)), initial=0))


def _wrong_columns(loss: Loss, output: np.ndarray, target: np.ndarray) -> str:
    says, real = loss.columns(output.shape[1:]), len(loss.hessian_sqrt(output, target))
    return "" if says == real else f"says {says}, but there are {real}"


def _blocks(loss: Loss, output: np.ndarray, target: np.ndarray) -> Pair:
    whole = loss.hessian_sqrt(output, target)
    windows = [slice(0, 1), slice(1, len(whole)), slice(len(whole) // 2, None), slice(0, 0), slice(None)]
    ends = [["" if end is None else end for end in (window.start, window.stop)] for window in windows]
    names = [f"columns {start}:{stop}" for start, stop in ends]
    got = [loss.hessian_sqrt(output, target, window) for window in windows]
    return Pair(dict(zip(names, got)), dict(zip(names, (whole[window] for window in windows))), "all columns")


def _hessian_sum(
    loss: Loss, output: np.ndarray, target: np.ndarray, where: np.ndarray, hessian: Derivative
) -> Pair:
    d, got = prod(output.shape[1:]), loss.hessian_sum(output, target)
    if got.shape != (d, d):
        raise FoundError(f"expected shape {(d, d)}, got {got.shape}")
    want, floor = hessian.values.sum(1), _floor(loss, output, target)
    return Pair(got[np.ix_(where, where)], want, f"{hessian.oracle} of gradients", hessian.tolerance, floor)


# ------------------------------------------------------------------------------------------------------------- conduct

Call = Callable[[np.ndarray, np.ndarray], Any]


def _calls(loss: Loss, seed: int) -> dict[str, Call]:
    """Return every method of output and target; the Monte-Carlo root at draws of one seed."""

    def root(output: np.ndarray, target: np.ndarray) -> np.ndarray:
        return loss.hessian_sqrt_mc(output, loss.draw(output, 2, seed), target)

    names = ("values", "gradients", "hessian_sqrt", "hessian_sum")
    return {name: getattr(loss, name) for name in names} | {"hessian_sqrt_mc": root}


def _impurity(loss: Loss, call: Call, output: np.ndarray, target: np.ndarray) -> str:
    own = output.copy(), target.copy()  # so that nothing impure spoils what follows
    return impurity(lambda: call(*own), {"its output": own[0], "its target": own[1], "the loss": loss})


def _check_conduct(
    claims: Claims, loss: Loss, output: np.ndarray, target: np.ndarray, rng: np.random.Generator
) -> None:
    """Add rows on the laws that hold for each method."""
    axes = {"gradients": 0, "hessian_sqrt": 1}
    low, high = finite_range(loss)
    extreme = rng.choice([low, max(low, 0.0), high], output.shape, p=[0.4, 0.2, 0.4])
    for name, call in _calls(loss, 0).items():
        if name in axes:
            claims.equal(name, "samples do not interact", _alone, call, output, target, axes[name], needs=[name])
        claims.equal(name, "float32 stays float32", _float32, call, output, target, needs=[name])
        claims.equal(name, "layout in memory does not matter", _layout, call, output, target, needs=[name])
        claims.hold(name, "is finite at the ends of its range", _not_finite, call, extreme, target, needs=[name])
    claims.hold("check_target", "refuses wrong shapes and types", _accepted, loss, output, target)


def _alone(call: Call, output: np.ndarray, target: np.ndarray, axis: int) -> Pair:
    alone = [call(output[n : n + 1], target[n : n + 1]) for n in range(len(output))]
    return Pair(call(output, target), np.concatenate(alone, axis), "one sample at a time")


def _float32(call: Call, output: np.ndarray, target: np.ndarray) -> Pair:
    single = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in (output, target)]
    got = call(*single)
    if got.dtype != np.float32:
        raise FoundError(f"gives {got.dtype} for float32")
    rounded = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in single]  # so that draws are the same
    return Pair(got, call(*rounded), "the same in float64", FLOAT32_TOLERANCE)


def _layout(call: Call, output: np.ndarray, target: np.ndarray) -> Pair:
    return Pair(call(without_layout(output), without_layout(target)), call(output, target), "contiguous arrays")


def _not_finite(call: Call, extreme: np.ndarray, target: np.ndarray) -> str:
    for dtype in (np.float64, np.float32):
        found = call(extreme.astype(dtype), target.astype(dtype) if target.dtype.kind == "f" else target)
        if not np.isfinite(found).all():
            return f"gives NaN or infinity in {np.dtype(dtype).name}"
    return ""


def _accepted(loss: Loss, output: np.ndarray, target: np.ndarray) -> str:
    other = target.astype(np.float64) if target.dtype.kind in "iu" else target.astype(np.int64)
    wrong = {
        "one sample too few": target[1:],
        "one axis too many": target[..., None],
        f"{other.dtype} for {target.dtype}": other,
    }
    for name, bad in wrong.items():
        try:
            loss.check_target("target", bad, output)
        except (TypeError, ValueError):
            continue
        return f"takes a target with {name}"
    return ""


