"""Check quantities: against their definitions by brute force, and by the laws that hold for any of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.losses.base import Loss
from gbackprop.plain.reference import reference
from gbackprop.quantities import DiagGGN, Quantity
from gbackprop.quantities.diagonal import Sampled
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import (
    FLOAT32_TOLERANCE,
    ROUNDINGS,
    TINY,
    UNIT32,
    Claims,
    Compared,
    FoundError,
    NotGivenError,
    both,
    defined,
    largest_of,
    rounding_of,
)
from gbackprop.testing.diagnosis.search import diagnosed
from gbackprop.testing.estimates import estimated
from gbackprop.testing.likelihood import ALARMS
from gbackprop.testing.loss_scale import check_factor, takes_reduction
from gbackprop.testing.oracles import ORACLES, definition_of
from gbackprop.testing.points import BEYOND, is_beyond
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report
from gbackprop.testing.runs import Runs, fits, floor_of, has_rows, in_both_axes, is_of_pairs, pairs
from gbackprop.testing.setting import CheckedNetwork, Values

ORACLE_TOLERANCE = 1e-9
LARGEST32 = float(np.finfo(np.float32).max) ** 0.5
"""A number whose square float32 still has: of larger ones, what is computed on the way may be infinite."""
NO_DEFINITION = "its formula is not checked against anything: give the quantity a `definition`"

NO_CONVENTION = "the oracle has no whole blocks, and of KFAC the default of fisher, sharing and joint_bias"

BLOCKS: dict[str, dict[str, int]] = {", ".join(f"{name}={size}" for name, size in each.items()): each for each in (
    {"sample_block": 1}, {"sample_block": 2}, {"workers": 2}, {"column_block": 1}, {"column_block": 3},
    {"sample_block": 2, "column_block": 2},
)}  # fmt: skip
"""Ways to cut the work that must not change results."""


def check_quantity(
    quantity: Quantity, network: Layer, loss: Loss, x: Any, y: Any, rng: int | np.random.Generator = 0,
    device: str = "cpu",
) -> Report:  # fmt: skip
    """Compare a quantity with its definition by brute force, and with the laws of all quantities.

    If a layer is at a kink, samples and parameters are moved by a thousandth of their size first.

    Parameters
    ----------
    quantity : Quantity
        Monte-Carlo quantities are computed at pseudo-targets drawn here. Of a user's quantity its `definition`,
        `powers` and `estimates` are checked, as far as it states them.
    network : Layer
        Analytic or piecewise linear, with at most 1000 parameters, or there are the laws alone.
    loss : Loss
    x : array_like, shape (N, *in)
    y : array_like, shape (N, ...)
        Of the batch, up to five samples are used.
    rng : int or numpy.random.Generator
    device : {"cpu", "cuda", "cuda:0", ...}
        Where quantities are computed.

    Returns
    -------
    Report
        A row for each claim. What the quantity raises becomes a row.
    """

    def check(claims: Claims, subject: Quantity, rng: np.random.Generator) -> None:
        given = (network, loss, x, y, rng, device, claims.fresh)
        setting = claims.attempt("backward", "can be set up", CheckedNetwork.of, *given)
        if setting is not None:
            setting = claims.reduced(setting)
            check_factor(claims, setting.loss, setting.y)  # R, which the oracle takes from the loss
            claims.attempt("backward", "can be checked", check_quantities, claims, setting, [subject], rng)

    return diagnosed(f"{quantity!r} of {network!r}", ["backward"], check, quantity, rng)


def check_quantities(
    claims: Claims, setting: CheckedNetwork, asked: Sequence[Quantity], rng: np.random.Generator,
    needs: Sequence[str] = (),
) -> None:  # fmt: skip
    """Add rows on the driver, and on each quantity."""
    setting.expect_finite()
    setting = setting.off_kinks()
    watched = {"x": setting.x, "y": setting.y, "the network": setting.network, "the loss": setting.loss}
    claims.hold("backward", "is pure", impurity, lambda: setting.run(*asked[:1]).loss, watched, needs=needs)
    claims.equal("backward", "loss, output and gradient are their definitions", _pass, setting, needs=needs)
    for claim, options in BLOCKS.items():
        claims.equal("backward", f"{claim} changes nothing", _pass_in_blocks, setting, options, needs=needs)
    claims.equal("reference", "gives what backward gives", _plain_pass, setting, needs=[*needs, "backward"])
    needs, runs = [*needs, "backward"], Runs(setting, rng)
    for quantity in asked:
        claim = f"is {getattr(quantity, 'scale', 'its definition')}"
        claims.equal(type(quantity).__name__, claim, _definition, runs, quantity, needs=needs)
        own = not is_shipped(quantity) and definition_of(quantity) is not None
        if own and takes_reduction(setting.loss):  # its scale may be right for the given one alone
            other = "mean" if setting.loss.reduction == "sum" else "sum"
            both_ways = f"{claim}, of the {other}"
            claims.equal(type(quantity).__name__, both_ways, _definition, runs, quantity, other, needs=needs)
    bad = claims.doubtful | claims.missing
    runs.members = [quantity for quantity in asked if type(quantity).__name__ not in bad]
    for quantity in asked:  # laws rest on the definition, not on each other
        _check_laws(claims, runs, quantity, [*needs, *({type(quantity).__name__} & bad)])


def _check_laws(claims: Claims, runs: Runs, quantity: Quantity, needs: list[str]) -> None:
    """Add rows on the laws that hold for any quantity."""
    name = type(quantity).__name__
    for claim, options in BLOCKS.items():
        claims.equal(name, f"{claim} changes nothing", _in_blocks, runs, quantity, options, needs=needs)
    claims.equal(name, "the plain sweep gives the same", _plain, runs, quantity, needs=needs)
    claims.equal(name, "what else is asked for changes nothing", _packed, runs, quantity, needs=needs)
    claims.equal(name, "permuting the samples changes their order alone", _permuted, runs, quantity, needs=needs)
    claims.equal(name, "scales with R and c as it should", _reduced, runs, quantity, needs=needs)
    claims.equal(name, "float32 stays float32", _float32, runs, quantity, needs=needs)
    for reduction in ("mean", "sum"):
        claim = f"merged results of two batches are that of one, of the {reduction}"
        claims.equal(name, claim, _merged, runs, quantity, reduction, needs=needs)
    sampled = isinstance(quantity, Sampled) or quantity.stated("estimates") is not None
    if sampled and not getattr(quantity, "convention", None):
        claims.equal(name, f"estimates what it should (t test{ALARMS})", estimated, runs, quantity, needs=needs)


# ---------------------------------------------------------------------------------------------------------- the driver


def _passed(result: Result) -> Values:
    return {"loss": result.loss, "output": result.output, **result.gradient}


def _rounding(setting: CheckedNetwork) -> Any:
    return both(setting.errors(lambda each: _passed(each.run())), setting.rounding(ORACLES["gradient"]))


def _pass(setting: CheckedNetwork) -> Compared:
    output, loss = setting.network.forward(setting.x)[0], setting.loss
    value = loss.factor(len(output), setting.y) * loss.values(output, setting.y).sum()
    gradient = setting.oracle["gradient"]
    want = {"loss": value, "output": output, **gradient}
    got, rounding = _passed(setting.run()), partial(_rounding, setting)
    floor = floor_of(gradient, ORACLE_TOLERANCE)
    return Compared(got, want, "dense Jacobians", ORACLE_TOLERANCE, floor, rounding=rounding)


def _plain_pass(setting: CheckedNetwork) -> Compared:
    want = _passed(setting.run())
    got = _passed(setting.run(call=reference))
    return Compared(got, want, "backward", floor=floor_of(want), rounding=partial(_rounding, setting))


def _pass_in_blocks(setting: CheckedNetwork, options: dict[str, Any]) -> Compared:
    want = _passed(setting.run())
    got = _passed(setting.run(DiagGGN(), **options))  # something that has columns, so that there are blocks of them
    return Compared(got, want, "the whole batch", floor=floor_of(want), rounding=partial(_rounding, setting))


# ------------------------------------------------------------------------------------------------------ one quantity


def _definition(runs: Runs, quantity: Quantity, variant: str = "") -> Compared:
    setting = runs.variants[variant] if variant else runs.setting
    got = runs.alone(quantity, variant)  # first: what it raises matters more than what the oracle lacks
    definition, ours = definition_of(quantity), is_shipped(quantity)
    if definition is None and not ours:
        raise NotGivenError(NO_DEFINITION)
    if definition is None or getattr(quantity, "convention", None):
        raise NotGivenError(NO_CONVENTION)
    if ours and quantity.name in ("kfac", "kflr", "kfra"):
        unknown = [name for name in got if name not in setting.oracle.kronecker[quantity.name]]
        if unknown:
            raise NotGivenError(f"the oracle finds the factors of a `weight` and its `bias`, not of {unknown}")
    got, want = defined(got, setting.defined(definition))
    if ours and setting.kinked and any("kronecker" in statistic.reduction.name for statistic in quantity.statistics()):
        raise NotGivenError("a layer stands at a kink, and the oracle's Jacobian there may be another than the sweep's")
    oracle = "dense Jacobians" if ours else "its definition"
    floor = runs.floor(quantity, want, ORACLE_TOLERANCE)
    rounding = runs.rounding(quantity, variant)
    return Compared(got, want, oracle, ORACLE_TOLERANCE, floor, rounding=rounding)


def _in_blocks(runs: Runs, quantity: Quantity, options: dict[str, int]) -> Compared:
    if not fits(quantity, options):
        raise NotGivenError("needs the whole batch at each layer")
    got = runs.together(quantity, options=options)
    return runs.beside(quantity, got, runs.alone(quantity), "the whole batch")


def _plain(runs: Runs, quantity: Quantity) -> Compared:
    return runs.beside(quantity, runs.plain(quantity), runs.alone(quantity), "gb.backward")


def _packed(runs: Runs, quantity: Quantity) -> Compared:
    return runs.beside(quantity, runs.packed(quantity), runs.alone(quantity), "alone")


def _permuted(runs: Runs, quantity: Quantity) -> Compared:
    if not isinstance(quantity, Sampled) and any(isinstance(s.signal, MonteCarlo) for s in quantity.statistics()):
        raise NotGivenError("draws anew")
    want = runs.alone(quantity)
    if pairs(quantity):
        n = len(runs.order)
        if not all(is_of_pairs(value, n) or value.shape[:1] != (n,) for value in want.values()):
            raise NotGivenError("whether its first axis is that of the samples is not known")
        want = {name: in_both_axes(value, n, runs.order) if is_of_pairs(value, n) else value
                for name, value in want.items()}  # fmt: skip
    elif has_rows(quantity, want, len(runs.order), runs.setting.network.parameters):
        want = {name: value[runs.order] for name, value in want.items()}
    return runs.beside(quantity, runs.together(quantity, "permuted"), want, "the order given")


def _merged(runs: Runs, quantity: Quantity, reduction: str) -> Compared:
    rule = quantity.stated("merging")
    if rule is None or isinstance(rule, str):
        raise NotGivenError(rule or "how results of batches are merged is not stated: give the quantity `merging`")
    if not isinstance(quantity, Sampled) and any(isinstance(s.signal, MonteCarlo) for s in quantity.statistics()):
        raise NotGivenError("draws anew")
    return runs.beside(quantity, runs.merged(quantity, reduction), runs.together(quantity, reduction), "one batch")


def _reduced(runs: Runs, quantity: Quantity) -> Compared:
    powers = quantity.stated("powers")
    if powers is None:
        raise NotGivenError("its powers of R and c are not stated: give the quantity `powers`")
    if not is_shipped(quantity) and _shares(runs)[1] == 1:  # the loss says nothing of c
        with suppress(Exception):  # a quantity may be of this loss alone
            others = Runs(runs.setting.of_squares(), np.random.default_rng(0))
            others.members = [quantity]
            others.together(quantity, "mean")
            runs = others
    r, c = _shares(runs)
    scale = r ** powers[0] * c ** powers[1]
    want = {name: _scaled(value, scale) for name, value in runs.together(quantity, "sum").items()}
    return runs.beside(quantity, runs.together(quantity, "mean"), want, "'sum', scaled, for 'mean'")


def _shares(runs: Runs) -> tuple[float, float]:
    """Return R and c of "mean" beside those of "sum"."""
    mean, total = (runs.variants[reduction] for reduction in ("mean", "sum"))
    shape = mean.network.output_shape(mean.x.shape[1:])
    return mean.loss.factor(len(mean.x), mean.y), mean.loss.summed_weight(shape) / total.loss.summed_weight(shape)


def _scaled(value: Any, factor: float) -> Any:
    return {"A": value["A"], "B": value["B"] * factor} if isinstance(value, dict) else value * factor


def _float32(runs: Runs, quantity: Quantity) -> Compared:
    if quantity.name == "kronecker_error":
        raise NotGivenError("gives Python's floats")
    beyond = is_beyond(runs.setting.loss, runs.setting.network.forward(runs.setting.x)[0])
    try:
        got, want = runs.together(quantity, "float32"), runs.alone(quantity)
    except ValueError:
        if beyond:
            raise NotGivenError(BEYOND) from None
        raise
    for name, value in got.items():
        for array in value.values() if isinstance(value, dict) else [value]:
            if array is not None and array.dtype != np.float32:
                raise FoundError(f"gives {array.dtype} for float32 in {name}")
    if beyond:
        raise NotGivenError(BEYOND)
    got, want = defined(got, want)
    if largest_of(want) > LARGEST32:
        raise NotGivenError(f"float32 has no squares of numbers as large as {largest_of(want):.1e}")
    floor = max(runs.floor(quantity, want, FLOAT32_TOLERANCE, UNIT32), largest_of(want) * FLOAT32_TOLERANCE, TINY)
    definition = definition_of(quantity)

    def rounding() -> Any:
        found = rounding_of(runs.alone(quantity, "rounded"), want, ROUNDINGS)
        found = both(found, runs.spread(quantity, "float32"))
        return found if definition is None else both(found, runs.setting.rounding(definition, UNIT32))

    return Compared(got, want, "the same in float64", FLOAT32_TOLERANCE, floor, rounding=rounding)
