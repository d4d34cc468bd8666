"""Check a network of any size by symmetries: no definition by brute force, the engine beside itself."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import array_module, asarray, asnumpy, like
from gbackprop.base.errors import TooLargeError, UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import AVERAGE, RESIDUAL, MonteCarlo
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.network.container import Container
from gbackprop.quantities import KFAC, Quantity
from gbackprop.testing.claims import Claims, Compared, FoundError, NotGivenError, largest_of, not_given
from gbackprop.testing.probe import one_batch
from gbackprop.testing.report import Report
from gbackprop.testing.runs import every_quantity, pairs
from gbackprop.testing.setting import Values
from gbackprop.testing.symmetries_identities import identities, moved
from gbackprop.testing.symmetries_posed import Change, Gradient, Posed, per_sample
from gbackprop.testing.symmetries_table import SYMMETRIES, Symmetry

SAMPLES, MC_SAMPLES = 8, 2
"""The samples of which everything is asked; of the whole batch it is what has no row for each sample. M of draws."""

ROUNDINGS, LEAST = 1024, 1e-9
"""The error allowed, of an array's largest entry and of its size as a whole: 1024 roundings, at least the second."""

MOVES, SAFETY, LARGEST = 2, 16, 5e-4
"""Results are computed again that often with everything moved by its rounding; 16 times what they then move by is
allowed, too. Where that is more than the third of the whole, it is not judged: a factor of 1.001 would be hidden."""

FEATURES = 4096
"""The widest layer of which KFRA's matrices, and the columns of residuals, are formed."""


def check_symmetries(
    network: Layer, loss: Loss, x: Any, y: Any, rng: int | np.random.Generator = 0, device: str = "cpu",
    quantities: Sequence[Quantity] = (), only: Collection[str] = (),
) -> Report:  # fmt: skip
    """Check the gradient and all quantities of a network by symmetries: of any size, in its dtype.

    Nothing is compared with a definition by brute force. Network, batch and loss are changed in ways whose effect on
    each quantity is known, and results are compared before and after; further claims tie results to each other.

    Parameters
    ----------
    network : Layer
    loss : Loss
    x : array_like, shape (N, *in)
    y : array_like, shape (N, ...)
    rng : int or numpy.random.Generator
    device : {"cpu", "cuda", "cuda:0", ...}
        Where results are computed.
    quantities : sequence of Quantity
        Your own, beside those that ship: judged by `powers`, `merging` and rows for each sample, as far as stated.
    only : collection of str
        Names of symmetries, of `gbackprop.testing.symmetries_table`, in place of all claims.

    Returns
    -------
    Report
        A row for each claim and quantity, "backward" for gradient and loss. "not given" says why a claim is not for it.

    Raises
    ------
    ValueError
        If `only` has a name that no symmetry has, or if the network has no parameter that is not frozen.
    """
    known = [each.name for each in SYMMETRIES]
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"only: expected names among {', '.join(known)}, got {unknown[0]!r}")
    if isinstance(network, Layer) and not is_trainable(network):
        raise ValueError(f"network: expected a parameter that is not frozen, got none in {network!r}")
    generator, claims = np.random.default_rng(rng), Claims(f"{network!r} with {loss!r}", ["backward"])
    posed = claims.attempt("backward", "takes the batch", _posed, network, loss, x, y, (generator, device))
    if posed is None:
        return claims.report
    some = [each for each in SYMMETRIES if not only or each.name in only]
    asked = [*every_quantity(), KFAC(sharing="expand"), KFAC(sharing="reduce"), *quantities]
    few = posed.taken(np.arange(min(len(posed.x), SAMPLES)))
    usable = tuple(q for q in asked if claims.attempt(type(q).__name__, "can be computed", _try, few, q))
    claims.doubtful.clear()
    claims.missing.clear()  # of one quantity: others of its class may be computed
    few = replace(few, asked=usable)
    claims.attempt("backward", "can be checked", _check, claims, few, some, generator, not only)
    if not only:
        claims.attempt("backward", "can be moved", moved, claims, few, generator)
    if len(few.x) < len(posed.x):
        rows = {id(q) for q in usable if per_sample(q, few) or pairs(q) or getattr(q, "convention", None)}
        whole = replace(posed, asked=tuple(q for q in usable if id(q) not in rows))
        claims.suffix = f", of {len(posed.x)} samples"
        of_batch = [each for each in some if each.of_batch]
        claims.attempt("backward", "can be checked", _check, claims, whole, of_batch, generator, not only)
    return claims.report


def is_trainable(network: Layer) -> bool:
    """Return whether a network has a parameter that is not frozen."""
    return any(set(part.parameter_shapes()) - part.frozen for _, part in network.named_layers())


def _posed(network: Layer, loss: Loss, x: Any, y: Any, where: tuple[np.random.Generator, str]) -> Posed:
    """Return the setting on the device, in the network's dtype, with pseudo-targets."""
    (rng, device), chain = where, copy.deepcopy(network if isinstance(network, Container) else Sequential(network))
    for _, part in chain.named_layers():
        if part.drawn is None:
            part.initialize(rng)
    dtype = next(iter(chain.to(device).parameters.values())).dtype.name
    x, y = (asarray(a, device, dtype if asnumpy(a).dtype.kind == "f" else None) for a in (one_batch(network, x), y))
    try:
        targets = loss.draw(chain(x), MC_SAMPLES, rng)
    except UnsupportedError:
        targets = None
    return Posed(chain, loss, x, y, (), targets)


def _try(posed: Posed, quantity: Quantity) -> bool:
    """Compute a quantity of two samples; raise the reason why it is not asked for."""
    signals = {statistic.signal for statistic in quantity.statistics()}
    curved = any(leaf.layer.curvature != "zero" for leaf in posed.leaves)
    widest = max(prod(leaf.output_shape) for leaf in posed.leaves)
    if widest > FEATURES and (AVERAGE in signals or (RESIDUAL in signals and curved)):
        raise TooLargeError(f"a layer has {widest} features, and columns of more than {FEATURES} are not formed here")
    found = replace(posed.taken(np.arange(min(len(posed.x), 2))), asked=(quantity,)).result
    if posed.targets is None and any(isinstance(signal, MonteCarlo) for signal in signals):
        raise UnsupportedError("of some samples no pseudo-targets can be drawn")
    return bool(found)


def _check(claims: Claims, posed: Posed, symmetries: Sequence[Symmetry], rng: np.random.Generator, both: bool) -> None:
    """Add a row for each symmetry and quantity, and, of both, for each identity of results."""
    judged = (Gradient(), *posed.asked)
    noise = Noise(posed, judged, rng)
    names = {id(each): "backward" if isinstance(each, Gradient) else type(each).__name__ for each in judged}
    for claim, other, each, sides in identities(posed, judged) if both else ():
        claims.equal(names[id(each)], claim, lambda q, o, made: noise.compared(q, made(), o), each, other, sides)
    for symmetry in symmetries:
        try:
            change = symmetry.make(posed, rng)
        except NotGivenError as reason:
            claims.equal("backward", symmetry.name, not_given, str(reason))
            continue
        for each in judged:
            claims.equal(names[id(each)], symmetry.name, _changed, noise, posed, change, each)


def _changed(noise: Noise, posed: Posed, change: Change, quantity: Quantity) -> Compared:
    if reason := change.lacks(quantity):
        raise NotGivenError(reason)
    sides = change.posed.of(quantity), change.expected(quantity, posed)
    return noise.compared(quantity, sides, "the same before")


class Noise:
    """The distance by which results move when inputs and parameters are moved by their rounding, several times."""

    def __init__(self, posed: Posed, judged: Sequence[Quantity], rng: np.random.Generator) -> None:
        self.eps = float(np.finfo(next(iter(posed.network.parameters.values())).dtype).eps)
        self.tolerance = max(ROUNDINGS * self.eps, LEAST)
        self.found: dict[int, dict[str, np.ndarray]] = {id(each): {} for each in judged}
        for _ in range(MOVES):
            other = self._moved(posed, rng)
            for each in judged:
                base, known = posed.of(each), self.found[id(each)]
                for name, value in other.of(each).items():
                    only = value.any() and not largest_of(base)  # what is 0 but for rounding has no size of its own
                    moves = (np.inf, np.inf) if only else np.abs(misfit(value, base[name]))
                    known[name] = np.maximum(known.get(name, 0), moves)

    def _moved(self, posed: Posed, rng: np.random.Generator) -> Posed:
        network = copy.deepcopy(posed.network)

        def move(array: Any) -> Any:
            return array * like(1 + self.eps * rng.uniform(-2, 2, array.shape), array, array.dtype)

        for value in network.parameters.values():
            value[...] = move(value)
        x = move(posed.x) if posed.x.dtype.kind == "f" else posed.x
        if network.several is not None:  # indices and masks are columns beside floats
            x = array_module(x).where(posed.x % 1 == 0, posed.x, x)
        return replace(posed, network=network, x=x)

    def compared(self, quantity: Quantity, sides: tuple[Values, Values], oracle: str) -> Compared:
        """Return the array that is furthest off, entry by entry or as a whole, of those that rounding does not hide."""
        (got, want), known, hidden = sides, self.found[id(quantity)], 0.0
        found: list[tuple[float, Compared]] = []
        rest = np.max([np.zeros(2), *known.values()], axis=0)
        floor = 64 * self.eps / self.tolerance * max([0.0, *(np.max(np.abs(v), initial=0) for v in want.values())])
        for name, value in want.items():
            if name not in got:
                raise FoundError(f"expected {name}, got {sorted(got)}")
            array = got[name].reshape(value.shape) if got[name].size == value.size else got[name]
            by_entry, whole = self.tolerance + SAFETY * known.get(name, rest)
            if whole > LARGEST and np.isfinite(array).all():
                hidden = max(hidden, whole)
                continue
            entry = Compared({name: array}, {name: value}, oracle, by_entry, float(floor))
            errors = misfit(array, value, floor) if array.shape == value.shape else (np.inf, 0.0)
            ratio = {name: np.array(1 + errors[1])}
            factor = Compared(ratio, {name: np.array(1.0)}, f"the factor between it and {oracle}", whole)
            found += [(errors[0] / by_entry, entry), (abs(errors[1]) / whole, factor)]
        if not found:
            raise NotGivenError(f"rounding alone moves it by {hidden:.0e}" if hidden else "it has nothing to compare")
        return max(found, key=lambda each: np.nan_to_num(each[0], nan=np.inf))[1]


def misfit(got: np.ndarray, want: np.ndarray, floor: float = 0.0) -> tuple[float, float]:
    """Return the largest difference over the largest entry, if that is not 0, and the factor between both, less 1."""
    difference, want = got.astype(float) - want, want.astype(float)
    largest, square = float(np.max(np.abs(want), initial=0)), float((want**2).sum())
    factor = float((difference * want).sum()) / square if largest > floor and square else 0.0
    return float(np.max(np.abs(difference), initial=0)) / (max(largest, floor) or 1.0), factor
