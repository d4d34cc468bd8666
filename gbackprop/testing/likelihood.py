"""Rows on what a loss draws: pseudo-targets must follow the likelihood p(y) ∝ exp(−ℓ(f, y)/c) whose loss it is.

Where targets can be listed (class labels, a few bits), expectations are exact sums. Elsewhere they are means over
draws, tested at a stated rate of false alarms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import special

from gbackprop.losses.base import Loss
from gbackprop.testing.claims import ROUNDINGS, UNIT, Claims, Compared, NotGivenError
from gbackprop.testing.differences import Derivative
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.points import inside, largest, size_of

FALSE_ALARMS = 1e-6
"""The probability with which a test of draws may fail on a correct loss."""

ALARMS = f", false alarms {FALSE_ALARMS:.0e}"

FOLLOWS = f"follows exp(−ℓ/c) (χ² test{ALARMS})"
"""The claim on draws."""

COVARIES = "E[s sᵀ] = ∇²ℓ[n, i, j]", f"E[s sᵀ] = ∇²ℓ[n, i, j] (z test{ALARMS})"
"""The claims on the root of draws: over all targets where these can be listed, else by draws."""

LEVEL = FALSE_ALARMS / 100
"""At which tests are made: tails of counts and means are only nearly those that the tests assume."""

DRAWS = 4096
MORE = 6
"""The factor of the number of draws where a mean of these is off by half of what is allowed."""

BITS = 6
"""Entries of a target that are looked at together: 2⁶ targets are few, 4096 draws are many."""

LEAST_EXPECTED = 50
"""Bins with fewer draws expected are merged, as χ² tests want."""

GRID = 400
"""Points on a line through the density of a draw."""

LINES = 300
"""The number of draws that have such a line."""

SINGLE = 16
"""The largest output that is tried as it is in float32, which tells counts up to 2²⁴ apart: e^16 is about half."""


@dataclass(frozen=True)
class Listing:
    """Targets that a batch can have: all of them, or those in which a few bits of each sample vary."""

    targets: np.ndarray  # [Q, N, …]
    complete: bool  # whether these are all
    entries: np.ndarray  # the coordinates of the output, among those looked at, that belong to what varies


def check_likelihood(claims: Claims, probe: LossProbe, hessian: Derivative, rng: np.random.Generator) -> None:
    """Rows on summed_weight, draw and hessian_sqrt_mc."""
    claims.hold("draw", "gives targets that the loss takes, the same from the same rng", _bad_draws, probe)
    if {"draw", "values"} & claims.doubtful or "draw" in claims.missing:
        return
    listing = claims.attempt("draw", "can be drawn", _listed, probe, rng)
    needs = ["draw", "summed_weight"]
    if listing is not None and listing.complete:
        claims.equal("summed_weight", "c: exp(−ℓ/c) sums to 1 over all targets", _total, probe, listing)
        claims.hold("draw", FOLLOWS, _misdrawn_listed, probe, listing, rng, needs=needs)
    else:
        claims.hold("draw", FOLLOWS, _misdrawn, probe, rng, needs=needs)
    claims.equal("hessian_sqrt_mc", "of M targets is that of each over √M", _shares, probe, rng)
    needs += ["gradients", "hessian_sqrt_mc"]
    if listing is not None:
        claims.equal("hessian_sqrt_mc", COVARIES[0], _expectation, probe, listing, hessian, needs=needs)
    else:
        claims.equal("hessian_sqrt_mc", COVARIES[1], _mean, probe, hessian, rng, needs=needs)


def _bad_draws(probe: LossProbe) -> str:
    loss, output = probe.loss, probe.output
    draws = loss.draw(output, 3, 1)
    if len(draws) != 3:
        return f"expected 3 draws a sample, got shape {draws.shape}"
    loss.check_target("draw", draws[0], output)
    single = output if largest(output) <= SINGLE else inside(loss, output / max(1.0, size_of(output)))
    single = single.astype(np.float32)
    loss.check_target("draw", loss.draw(single, 3, 1)[0], single)
    if not np.array_equal(draws, loss.draw(output, 3, 1)):
        return "the same rng gives other draws"
    copies = loss.draw(np.concatenate([output] * 64), 64, 1)
    copies = copies.reshape(64, 64, len(output), -1)
    alike = [(copies == copies.take([0], axis)).all(axis).all() for axis in (0, 1)]
    if alike[0] != alike[1]:  # where one target is certain, all are alike
        return f"is the same for all {'M' if alike[0] else 'samples of equal outputs'}"
    return ""


# ------------------------------------------------------------------------------------------------------ listed targets


def _listed(probe: LossProbe, rng: np.random.Generator) -> Listing | None:
    """Targets that the batch can have, unless there is a continuum of them."""
    loss, output, where = probe.loss, probe.output, probe.where
    draws, n = loss.draw(output, 64, rng), len(output)
    if draws.dtype.kind in "iu" and draws.shape[1:] == (n,):
        labels = np.repeat(np.arange(output.shape[1])[:, None], n, axis=1)
        return Listing(labels, True, np.arange(len(where)))
    if loss.counts or not np.isin(draws, (0, 1)).all() or draws.shape[1:] != output.shape:
        return None
    entries = np.sort(rng.permutation(len(where))[:BITS])
    bits = np.array(list(itertools.product((0, 1), repeat=len(entries))), dtype=draws.dtype)
    targets = np.repeat(draws[:1].reshape(1, n, -1), len(bits), axis=0)
    targets[:, :, where[entries]] = bits[:, None]
    return Listing(targets.reshape(len(bits), *output.shape), len(entries) == prod(output.shape[1:]), entries)


def _weights(probe: LossProbe, listing: Listing) -> np.ndarray:
    """exp(−ℓ/c) of each target, shape (Q, N); of targets that are not all, beside the others."""
    logarithm = _logarithm(probe.loss, probe.output, listing.targets)
    if listing.complete:
        return np.exp(logarithm)
    weights = np.exp(logarithm - logarithm.max(0))
    return weights / weights.sum(0)


def _total(probe: LossProbe, listing: Listing) -> Compared:
    total = _weights(probe, listing).sum(0)
    return Compared(total, np.ones_like(total), "values")


def _expectation(probe: LossProbe, listing: Listing, hessian: Derivative) -> Compared:
    """Compute Σ p(y) s(y) s(y)ᵀ over the listed targets, and the Hessian.

    Where not all bits of a target are listed, both are compared in the listed entries alone: bits are independent.
    """
    s = probe.at(np.stack([probe.drawn_root(listed[None])[0] for listed in listing.targets]))[:, :, listing.entries]
    got = np.einsum("qn,qni,qnj->nij", _weights(probe, listing), s, s)
    want = hessian.values.swapaxes(0, 1)[:, listing.entries][:, :, listing.entries]
    floor = 1e-3 * float(np.max(np.abs(s), initial=0)) ** 2
    return Compared(got, want, "sum over targets", hessian.tolerance, floor)


def _misdrawn_listed(probe: LossProbe, listing: Listing, rng: np.random.Generator) -> str:
    draws, weights = probe.loss.draw(probe.output, DRAWS, rng), _weights(probe, listing)
    alike = (draws[:, None] == listing.targets).reshape(*draws.shape[:1], *weights.shape, -1).all(3)  # [M, Q, N]
    return _misfit(alike.sum(0).T, DRAWS * (weights / weights.sum(0)).T)


# -------------------------------------------------------------------------------------------------------- other targets


def _misdrawn(probe: LossProbe, rng: np.random.Generator) -> str:
    """F(yⱼ | all other entries) is uniform, F from the density along a line through the draw in direction j."""
    draws = probe.loss.draw(probe.output, LINES, rng)  # [M, N, *out]
    if draws.dtype.kind not in "fiu":
        raise NotGivenError(f"no test for targets of type {draws.dtype}")
    flat = draws.reshape(LINES, len(probe.output), -1)
    most = largest(probe.loss.values(probe.output, draws[0])) / probe.loss.summed_weight(probe.output.shape[1:])
    most = max(most, largest(draws[0] * probe.output)) if probe.loss.counts else most  # y f, which y log y takes away
    if UNIT * most > HIDDEN:
        raise NotGivenError(f"a loss of {most:.1e} is rounded by more than other targets change it")
    for j in range(min(flat.shape[2], BITS)):
        places, density = _line(probe.loss, probe.output, draws, j)
        total, drawn = density.sum(0), flat[:, :, j]
        below = np.sum(density, axis=0, where=places[:, None] < drawn)
        here = np.sum(density, axis=0, where=places[:, None] == drawn)  # of a bit: any number between the two will do
        uniform = (below + here * rng.random(drawn.shape)) / total
        if not np.isfinite(uniform).all():
            return "the values at draws are no numbers"
        counts = np.histogram(uniform, bins=10, range=(0, 1))[0]
        problem = _misfit(counts[None], np.full((1, 10), counts.sum() / 10))
        if problem:
            return problem
    return ""


def _line(loss: Loss, output: np.ndarray, draws: np.ndarray, j: int) -> tuple[np.ndarray, np.ndarray]:
    """Places on a line in direction j, shape (G, N), and the density there beside all other entries, (G, M, N)."""
    flat = draws.reshape(len(draws), len(output), -1)
    low, high = flat[:, :, j].min(0), flat[:, :, j].max(0)
    places = np.linspace(2 * low - high, 2 * high - low, GRID)
    if np.isin(draws, (0, 1)).all() and draws.dtype.kind == "f" and not loss.counts:
        places = np.repeat([[0.0], [1.0]], len(output), axis=1)
    elif draws.dtype.kind in "iu" or loss.counts or np.array_equal(draws, np.rint(draws)):
        labels = draws.dtype.kind in "iu"
        least, most = (0, output.shape[1]) if labels else ((2 * low - high).min(), (2 * high - low).max() + 10)
        least = max(0, least) if loss.counts else least
        if most - least > MOST_COUNTS:
            raise NotGivenError(f"no test for counts from {least:.3g} to {most:.3g}")
        places = np.repeat(np.arange(least, most)[:, None], len(output), axis=1)
    outputs, found = np.concatenate([output] * len(draws)), []
    for place in places:
        moved = flat.copy()
        moved[:, :, j] = place
        found.append(_where_taken(loss, outputs, moved.reshape(-1, *draws.shape[2:])).reshape(flat.shape[:2]))
    logarithm = np.stack(found)
    return places, np.exp(logarithm - logarithm.max(0))


def _where_taken(loss: Loss, output: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the density; of targets that the loss refuses, as counts above a largest one, −∞."""
    try:
        loss.check_target("draw", targets, output)
    except ValueError:
        return np.full(len(targets), -np.inf)
    return _logarithm(loss, output, targets[None])[0]


HIDDEN = 1e-3
"""The largest rounding of a logarithm of the likelihood with which draws are compared with it."""

MOST_COUNTS = 10_000
"""The number of counts of which each is looked at."""

RARE = 2.5
"""Standard errors are no less than so many draws make: rarer targets may not come at all, and nothing spreads then."""


def _mean(probe: LossProbe, hessian: Derivative, rng: np.random.Generator, count: int = DRAWS) -> Compared:
    """Compare means over draws with the Hessian; where they are in doubt, over more draws, once."""
    some = rng.permutation(len(probe.where))[:BITS]
    targets = probe.loss.draw(probe.output, count, rng)
    s = probe.at(probe.drawn_root(targets) * count**0.5)[:, :, some]
    products = s[..., :, None] * s[..., None, :]  # [M, N, K, K]
    want = hessian.values.swapaxes(0, 1)[:, some][:, :, some]
    deviation = products.std(0) / count**0.5
    rounding = max(1e-11 * largest(want), ROUNDINGS * UNIT * probe.sizes_of_terms[0] ** 2) or 1.0
    rare = extremes(probe.loss, targets, probe.output)  # which may not have been drawn
    most = max((largest(probe.at(probe.drawn_root(each))) for each in rare), default=0.0)
    unseen = RARE / count * max(largest(products), most**2)
    draws = products.mean(0), want, np.maximum(deviation, max(rounding, unseen))
    z = (draws[0] - want) / draws[2]
    allowed = -float(special.ndtri(LEVEL / (2 * z.size)))
    if count == DRAWS and allowed / 2 < largest(z) <= allowed:
        return _mean(probe, hessian, rng, MORE * DRAWS)
    return Compared(z, np.zeros_like(z), f"{count} draws, in standard errors", allowed, draws=draws)


def extremes(loss: Loss, drawn: np.ndarray, output: np.ndarray) -> list[np.ndarray]:
    """Return targets that are one label everywhere, or one bit, or counts beside the median; none of other targets."""
    middle = np.median(drawn, 0, keepdims=True).astype(drawn.dtype)
    if drawn.dtype.kind in "iu":
        return [np.full_like(middle, label) for label in range(output.shape[1])]
    if loss.counts:
        return [np.maximum(middle + step, 0) for step in (-1, 0, 1)]
    bits = 0, 1
    return [np.full_like(middle, bit) for bit in bits] if np.isin(drawn, bits).all() else []


# -------------------------------------------------------------------------------------------------------------- shared


def _shares(probe: LossProbe, rng: np.random.Generator) -> Compared:
    targets = probe.loss.draw(probe.output, 4, rng)
    alone = [probe.drawn_root(targets[m : m + 1]) for m in range(4)]
    return Compared(probe.drawn_root(targets), np.concatenate(alone) / 2, "one target at a time")


def _logarithm(loss: Loss, output: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """log of the likelihood's density without weights, up to a constant, shape (Q, N); of counts, with 1/y! in it.

    A term of y alone in the loss is none of the likelihood's: for counts it is taken away, as the loss at outputs 0.
    """
    plain, c = loss.unweighted(), loss.summed_weight(output.shape[1:])
    logarithm = -np.stack([plain.values(output, each) for each in targets]) / c
    if not loss.counts:
        return logarithm
    at_zero = np.stack([plain.values(np.zeros_like(output), each) for each in targets]) / c
    return logarithm + at_zero - special.gammaln(targets + 1).reshape(*at_zero.shape, -1).sum(2)


def _misfit(counts: np.ndarray, expected: np.ndarray) -> str:
    """Describe the misfit in a χ² test of counts, one distribution in each row; or return an empty string."""
    statistic, freedom = 0.0, 0
    for count, expect in zip(counts, expected, strict=True):
        order = np.argsort(expect)
        rare = np.cumsum(expect[order]) < LEAST_EXPECTED
        first = min(int(rare.sum()), len(order) - 1)  # bins up to this one become one
        observed = np.concatenate([[count[order][: first + 1].sum()], count[order][first + 1 :]])
        wanted = np.concatenate([[expect[order][: first + 1].sum()], expect[order][first + 1 :]])
        statistic += float(((observed - wanted) ** 2 / wanted).sum())
        freedom += len(wanted) - 1
    p = float(special.chdtrc(freedom, statistic)) if freedom else 1.0
    return "" if p >= LEVEL else f"χ² = {statistic:.1f} on {freedom} degrees of freedom, p = {p:.1e}"
