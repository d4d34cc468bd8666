"""Rows on the scale of a loss, which the oracles of quantities take from it: R of a batch, and "mean" beside "sum"."""

from __future__ import annotations

import copy
import inspect
from math import prod
from typing import Literal

import numpy as np

from gbackprop.losses.base import Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.testing.claims import Claims, Compared, NotGivenError
from gbackprop.testing.loss_probe import LossProbe


def check_factor(claims: Claims, loss: Loss, target: np.ndarray) -> None:
    """Add the row on R."""
    claims.equal("factor", "is R", _factor, loss, target)


def check_reductions(claims: Claims, probe: LossProbe) -> None:
    """Add rows on what "mean" divides beside R: c of each sample's loss, as `summed_weight` gives it."""
    if isinstance(probe.loss, ElementwiseLoss):
        claims.equal("summed_weight", "is 1/C for 'mean' where it is 1 for 'sum'", _weight, probe)
    for name in ("values", "gradients"):
        needs = ["summed_weight", name]
        claims.equal(name, "of 'mean' are c times those of 'sum'", _of_mean, probe, name, needs=needs)


def _factor(loss: Loss, target: np.ndarray) -> Compared:
    """1/R of a batch and of seven copies: N or, where targets have weights, the sum of what its samples give alone.

    A loss says that they have by `weighted`, or by an R that is not the same for each sample alone.
    """
    batches = {f"1/R, {len(some)} samples": some for some in (target, np.concatenate([target] * 7))}
    got = {name: _divisor(loss, some) for name, some in batches.items()}
    want = {name: 1.0 if loss.reduction == "sum" else float(len(some)) for name, some in batches.items()}
    if loss.reduction == "sum" or type(loss).factor is Loss.factor:
        return Compared(got, want, f"reduction {loss.reduction!r}")
    alone = [_divisor(loss, target[n : n + 1]) for n in range(len(target))]
    if not loss.weighted and np.ptp(alone) <= 1e-9 * max(map(abs, alone)):
        return Compared(got, want, "N, as `weighted` is False")
    want = {name: sum(alone) * (len(some) // len(target)) for name, some in batches.items()}
    plain = loss.unweighted()
    if plain is not loss and not plain.weighted:
        got["1/R, without weights"], want["1/R, without weights"] = _divisor(plain, target), float(len(target))
    return Compared(got, want, f"reduction {loss.reduction!r}")


def _divisor(loss: Loss, target: np.ndarray) -> float:
    """1/R; 0 where no target counts, which is an error."""
    try:
        return 1 / loss.factor(len(target), target)
    except ValueError:
        return 0.0


def takes_reduction(loss: Loss) -> bool:
    """Return whether the reduction is an argument of a loss."""
    arguments = inspect.signature(type(loss).__init__).parameters.values()
    return any(each.name == "reduction" or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in arguments)


def with_reduction(loss: Loss, reduction: Literal["mean", "sum"]) -> Loss:
    """Return a copy of a loss with another reduction."""
    twin = copy.copy(loss)
    twin.reduction = reduction
    return twin


def _both(loss: Loss) -> tuple[Loss, Loss]:
    """Return a loss with "mean" and with "sum"."""
    if not takes_reduction(loss):
        raise NotGivenError(f"has the reduction {loss.reduction!r} alone")
    return with_reduction(loss, "mean"), with_reduction(loss, "sum")


def _weights(loss: Loss, shape: tuple[int, ...]) -> float:
    """Return c of "mean" beside that of "sum"."""
    mean, total = _both(loss)
    return mean.summed_weight(shape) / total.summed_weight(shape)


def _weight(probe: LossProbe) -> Compared:
    shape = probe.output.shape[1:]
    return Compared(_weights(probe.loss, shape), 1 / prod(shape), "the number of outputs")


def _of_mean(probe: LossProbe, name: str) -> Compared:
    mean, total = (getattr(each, name)(probe.output, probe.target) for each in _both(probe.loss))
    return Compared(mean, _weights(probe.loss, probe.output.shape[1:]) * total, "'sum', times c")
