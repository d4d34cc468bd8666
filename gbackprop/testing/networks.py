"""Check a whole network: its layers, its loss, what the sweep carries, and every quantity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer, leaves_of
from gbackprop.calculus.residual import FactoredLayer
from gbackprop.calculus.signals import GRADIENT, RESIDUAL
from gbackprop.calculus.walk import is_chain
from gbackprop.losses.base import Loss
from gbackprop.quantities import Quantity
from gbackprop.testing.claims import ROUNDINGS, UNIT, Claims, Compared, NotGivenError, both, largest_of
from gbackprop.testing.complex_steps import passes
from gbackprop.testing.diagnosis.search import diagnosed
from gbackprop.testing.layers import check_layer
from gbackprop.testing.losses import check_loss
from gbackprop.testing.quantities import ORACLE_TOLERANCE, check_quantities
from gbackprop.testing.report import Report
from gbackprop.testing.runs import every_quantity, floor_of
from gbackprop.testing.setting import CheckedNetwork, at_targets
from gbackprop.testing.signals import Arrivals, arrivals, dense_arrivals

LARGEST = 512
"""Features of a layer up to which dense matrices are formed."""

CANCELLING = 1e-3
"""The share of the largest entry that counts where residual columns of both signs cancel, which are rounded alone."""

PARTS = "layers and loss"
"""The name in rows of the parts from which sweep and quantities are computed."""


def check_network(
    network: Layer, loss: Loss, x: Any, y: Any, rng: int | np.random.Generator = 0, device: str = "cpu"
) -> Report:
    """Check each layer where it stands, the loss, what the sweep carries from layer to layer, and every quantity.

    What rests on a part that failed is not judged, so that the failures name the parts. Quantities of a network with a
    layer at a kink are judged at samples and parameters that are moved by a thousandth of their size.

    Parameters
    ----------
    network : Layer
    loss : Loss
    x : array_like, shape (N, *in)
    y : array_like, shape (N, ...)
    rng : int or numpy.random.Generator
    device : {"cpu", "cuda", "cuda:0", ...}
        Where quantities are computed; all else is on the host.

    Returns
    -------
    Report
        Rows on a layer's methods bear the layer's path, as in "2.mjp".
    """

    def check(claims: Claims, subject: Layer, rng: np.random.Generator) -> None:
        given = (subject, loss, x, y, rng, device, claims.fresh)
        setting = claims.attempt("forward", "takes the batch", CheckedNetwork.of, *given)
        if setting is not None:
            claims.attempt("backward", "can be checked", _check, claims, claims.reduced(setting), rng)

    return diagnosed(f"{network!r} with {loss!r}", ["forward", "backward"], check, network, rng)


def _check(claims: Claims, setting: CheckedNetwork, rng: np.random.Generator) -> None:
    for path, report in [] if claims.watching else _parts(setting, rng):
        prefix = f"{path}." if path else ""
        claims.report.rows += [replace(row, method=prefix + row.method) for row in report.rows]
        if not report.ok:
            claims.doubtful.add(PARTS)
    setting.expect_finite()
    asked = setting.supported(every_quantity())
    signals = claims.attempt("sweep", "can be watched", _signals, setting, asked)
    share = CANCELLING if _cancels(setting) else 0.0
    for name in signals[0] if signals else ():
        claim = f"carries the {name} signal to each layer"
        claims.equal("sweep", claim, _arrival, name, *signals, share, needs=[PARTS])
    check_quantities(claims, setting, every_quantity(), rng, needs=[PARTS, "sweep"])


def _parts(setting: CheckedNetwork, rng: np.random.Generator) -> list[tuple[str, Report]]:
    """Return a report for each layer, at what comes to it, and for the loss."""
    found, x = [], setting.x
    for leaf, inputs, output, _ in passes(leaves_of(setting.network, x.shape[1:]), x):
        if inputs:
            found.append((leaf.name, check_layer(leaf.layer, tuple(inputs) if len(inputs) > 1 else inputs[0], rng)))
        x = output
    return [*found, ("", check_loss(setting.loss, x, setting.y, rng))]


def _signals(setting: CheckedNetwork, asked: list[Quantity]) -> tuple[Arrivals, Arrivals, Callable[[str], Any]]:
    """Return the columns that reach each layer in the sweep, the expected ones, and a function for their rounding."""
    widest = max(prod(leaf.output_shape) for leaf in leaves_of(setting.network, setting.x.shape[1:]))
    if widest > LARGEST:
        raise NotGivenError(f"{widest} features are too many for dense matrices")

    def ours(s: CheckedNetwork) -> Arrivals:
        return arrivals(s.network, s.loss, s.x, s.y, [at_targets(quantity, s.targets) for quantity in asked])

    def expected(s: CheckedNetwork) -> Arrivals:
        return dense_arrivals(s.network, s.loss, s.x, s.y, s.targets)

    def rounding(name: str) -> Any:
        return both(setting.errors(lambda s: ours(s)[name]), setting.spread(lambda s: expected(s)[name]))

    return ours(setting), expected(setting), rounding


def _cancels(setting: CheckedNetwork) -> bool:
    """Return whether residual columns of both signs may cancel: in graphs, and where a layer factors its residual."""
    leaves = leaves_of(setting.network, setting.x.shape[1:])
    return not is_chain(leaves) or any(isinstance(leaf.layer, FactoredLayer) for leaf in leaves)


def _arrival(name: str, found: Arrivals, dense: Arrivals, rounding: Callable[[str], Any], share: float) -> Compared:
    want = {layer: dense[name][layer] for layer in found[GRADIENT.name]}
    got = {layer: found[name].get(layer, np.zeros_like(want[layer])) for layer in want}  # no column carries zeros
    floor = max(share * largest_of(want), floor_of(want, ORACLE_TOLERANCE))
    if name == RESIDUAL.name:  # its terms are of the gradient's size
        floor = max(floor, ROUNDINGS * UNIT / ORACLE_TOLERANCE * largest_of(dense[GRADIENT.name]))
    return Compared(got, want, "dense Jacobians", ORACLE_TOLERANCE, floor, rounding=partial(rounding, name))
