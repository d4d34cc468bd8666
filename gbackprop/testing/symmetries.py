"""Check a network of any size by symmetries: no definition by brute force, the engine beside itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import asarray, asnumpy
from gbackprop.base.errors import TooLargeError, UnsupportedError
from gbackprop.calculus.layer import Layer, leaves_of
from gbackprop.calculus.signals import AVERAGE, RESIDUAL
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.network.container import Container
from gbackprop.quantities import EKFAC, KFAC, Quantity
from gbackprop.testing.claims import Claims, Compared, FoundError, NotGivenError
from gbackprop.testing.report import Report
from gbackprop.testing.runs import every_quantity, pairs
from gbackprop.testing.setting import Values
from gbackprop.testing.symmetries_claims import SYMMETRIES, Symmetry, taken
from gbackprop.testing.symmetries_identities import identities, moved
from gbackprop.testing.symmetries_setting import Change, Gradient, Posed, per_sample

SAMPLES = 8
"""The samples of which everything is asked; of the whole batch it is what has no row for each sample."""

MC_SAMPLES = 2
ROUNDINGS, EXACT_TOLERANCE = 1024, 1e-9
"""Errors allowed, of the largest entry: that many times the dtype's rounding, but never less than the second."""

MOVES, SAFETY = 2, 16
"""Times that inputs and parameters are moved by rounding, and by how much the largest move of a result counts."""

LARGEST = 5e-4
"""A parameter whose result rounding alone moves by more is not judged: a factor of 1.001 could not be seen."""

FEATURES = 4096
"""The widest layer of which KFRA's matrices, and the columns of residuals, are formed."""


def check_symmetries(
    network: Layer,
    loss: Loss,
    x: Any,
    y: Any,
    rng: int | np.random.Generator = 0,
    device: str = "cpu",
    quantities: Sequence[Quantity] = (),
) -> Report:
    """Check the gradient and all quantities of a network by symmetries, as it is given: of any size, in its dtype.

    Nothing is compared with a definition by brute force. Network, batch and loss are changed in ways whose effect on
    each quantity is known, and results are compared before and after; others are tied by identities.

    Parameters
    ----------
    network : Layer
        It is not changed; if it lies on another device, it is copied.
    loss : Loss
    x : array_like, shape (N, *in)
    y : array_like, shape (N, ...)
    rng : int or numpy.random.Generator
    device : {"cpu", "cuda", "cuda:0", ...}
        Where everything is computed.
    quantities : sequence of Quantity
        Of your own, beside those that ship: by their `powers`, `merging` and rows for each sample, as far as stated.

    Returns
    -------
    Report
        A row for each symmetry and quantity, named by the quantity, "backward" for gradient and loss; "not given",
        with the reason, where a symmetry does not apply.
    """
    generator, claims = np.random.default_rng(rng), Claims(f"{network!r} with {loss!r}", ["backward"])
    given = (network, loss, x, y, generator, device)
    posed = claims.attempt("backward", "takes the batch", _posed, *given)
    if posed is None:
        return claims.report
    asked = [*every_quantity(), KFAC(sharing="expand"), KFAC(sharing="reduce"), EKFAC(), *quantities]
    few = taken(posed, np.arange(min(len(posed.x), SAMPLES)))
    usable = tuple(each for each in asked if claims.attempt(type(each).__name__, "can be computed", _try, few, each))
    claims.attempt("backward", "can be checked", _check, claims, replace(few, asked=usable), SYMMETRIES, generator)
    if len(few.x) < len(posed.x):
        whole = replace(posed, asked=tuple(each for each in usable if not per_sample(each) and not pairs(each)))
        claims.suffix = f", of {len(posed.x)} samples"
        some = [each for each in SYMMETRIES if each.of_batch]
        claims.attempt("backward", "can be checked", _check, claims, whole, some, generator)
    claims.suffix = ""
    claims.attempt("backward", "can be moved", moved, claims, replace(few, asked=usable), generator)
    return claims.report


def _posed(network: Layer, loss: Loss, x: Any, y: Any, rng: np.random.Generator, device: str) -> Posed:
    """Return the setting on the device, in the network's dtype, with pseudo-targets."""
    chain = network if isinstance(network, Container) else Sequential(network)
    for _, part in chain.named_layers():
        if part.drawn is None:
            chain = copy.deepcopy(chain)
            chain.initialize(rng)
            break
    like = next(iter(chain.parameters.values()), None)
    if like is None:
        raise NotGivenError("a network without parameters has nothing to compute")
    dtype = like.dtype.name
    if device != "cpu":
        chain = copy.deepcopy(chain).to(device)
    x, y = (asarray(a, device, dtype if asnumpy(a).dtype.kind == "f" else None) for a in (x, y))
    try:
        targets = loss.draw(chain(x), MC_SAMPLES, rng)
    except UnsupportedError:
        targets = None
    return Posed(chain, loss, x, y, (), targets)


def _try(posed: Posed, quantity: Quantity) -> bool:
    """Compute a quantity of two samples; raise the reason why it is not asked for."""
    widest = max(prod(leaf.output_shape) for leaf in leaves_of(posed.network, posed.x.shape[1:]))
    curved = [leaf for leaf in leaves_of(posed.network, posed.x.shape[1:]) if leaf.layer.curvature != "zero"]
    signals = {statistic.signal for statistic in quantity.statistics()}
    if widest > FEATURES and (AVERAGE in signals or (RESIDUAL in signals and curved)):
        raise TooLargeError(f"{widest} features of a layer are too many for its columns here")
    replace(taken(posed, np.arange(min(len(posed.x), 2))), asked=(quantity,)).result
    return True


# ----------------------------------------------------------------------------------------------------------- comparing


class Noise:
    """How far rounding moves results: the same with inputs and parameters moved by as much, several times."""

    def __init__(self, posed: Posed, asked: Sequence[Quantity], rng: np.random.Generator) -> None:
        self.dtype = next(iter(posed.network.parameters.values())).dtype
        self.eps = float(np.finfo(self.dtype).eps)
        self.tolerance = max(ROUNDINGS * self.eps, EXACT_TOLERANCE)
        self.found: dict[int, dict[str, tuple[float, float]]] = {id(each): {} for each in asked}
        for _ in range(MOVES):
            other = self._moved(posed, rng)
            for each in asked:
                base = posed.of(each)
                for name, value in other.of(each).items():
                    errors = misfit(value, base[name])
                    known = self.found[id(each)].get(name, errors)
                    self.found[id(each)][name] = (max(known[0], errors[0]), max(known[1], errors[1]))

    def _moved(self, posed: Posed, rng: np.random.Generator) -> Posed:
        def move(array: Any) -> Any:
            z = asarray(1 + self.eps * rng.uniform(-2, 2, array.shape), _device(array), self.dtype.name)
            return array * z

        network = copy.deepcopy(posed.network)
        for name, value in network.parameters.items():
            network.parameters.put(name, move(value))
        return replace(posed, network=network, x=move(posed.x) if posed.x.dtype.kind == "f" else posed.x)

    def compared(self, quantity: Quantity, got: Values, want: Values, oracle: str) -> Compared:
        """Return the array that is furthest off, entry by entry or as a whole, of those that rounding does not hide."""
        known = self.found[id(quantity)]
        rest = tuple(np.max(list(known.values()) or [(0.0, 0.0)], axis=0))
        largest = max((float(np.max(np.abs(value), initial=0)) for value in want.values()), default=0.0)
        floor = 64 * self.eps / self.tolerance * largest
        worst: tuple[float, Any] = (-1.0, None)
        hidden = 0.0
        for name, value in want.items():
            array = got.get(name)
            if array is None:
                raise FoundError(f"expected {name}, got {sorted(got)}")
            array = array.reshape(value.shape) if array.size == value.size else array
            by_entry, whole = (self.tolerance + SAFETY * float(noise) for noise in known.get(name, rest))
            if whole > LARGEST and np.isfinite(array).all():
                hidden = max(hidden, whole)
                continue
            entry = Compared({name: array}, {name: value}, oracle, by_entry, floor)
            errors = misfit(array, value, floor) if array.shape == value.shape else (np.inf, 0.0)
            factor = Compared({name: np.array(1 + errors[1])}, {name: np.array(1.0)}, f"the factor between it and {oracle}", whole)
            for size, pair in ((errors[0] / by_entry, entry), (errors[1] / whole, factor)):
                worst = max(worst, (np.inf if np.isnan(size) else size, pair), key=lambda each: each[0])
        if worst[1] is None:
            raise NotGivenError(f"rounding alone moves it by {hidden:.0e}" if hidden else "has no entry to compare")
        return worst[1]


def _device(array: Any) -> str:
    from gbackprop.array import device_of

    return device_of(array)


def misfit(got: np.ndarray, want: np.ndarray, floor: float = 0.0) -> tuple[float, float]:
    """Return the largest difference over the largest entry, and how far the factor between both is from 1."""
    got, want = got.astype(float), want.astype(float)
    difference, largest = got - want, float(np.max(np.abs(want), initial=0))
    scale = max(largest, floor) or 1.0
    square = float((want**2).sum())
    factor = abs(float((difference * want).sum())) / square if largest > floor and square else 0.0
    return float(np.max(np.abs(difference), initial=0)) / scale, factor


# ------------------------------------------------------------------------------------------------------------- checking


def _check(claims: Claims, posed: Posed, symmetries: Sequence[Symmetry], rng: np.random.Generator) -> None:
    """Add a row for each symmetry and quantity."""
    judged = (Gradient(), *posed.asked)
    noise = Noise(posed, judged, rng)
    shapes = dict(posed.network.parameter_shapes())
    names = {id(each): "backward" if isinstance(each, Gradient) else type(each).__name__ for each in judged}
    for name, oracle, quantity, pair in identities(posed, judged):
        claims.equal(names[id(quantity)], name, lambda: noise.compared(quantity, *pair(), oracle))
    for symmetry in symmetries:
        try:
            change = symmetry.make(posed, rng)
        except NotGivenError as reason:
            claims.equal("backward", symmetry.name, _not_given, str(reason))
            continue
        for each in judged:
            claims.equal(names[id(each)], symmetry.name, _pair, noise, posed, change, shapes, each)


def _not_given(reason: str) -> Compared:
    raise NotGivenError(reason)


def _pair(noise: Noise, posed: Posed, change: Change, shapes: Mapping[str, Any], quantity: Quantity) -> Compared:
    reason = change.lacks(quantity)
    if reason:
        raise NotGivenError(reason)
    got = change.posed.of(quantity)
    want = change.expected(quantity, posed.of(quantity), shapes, got)
    return noise.compared(quantity, got, want, "the same before")
