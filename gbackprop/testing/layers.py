"""Check a layer: compare each method of the protocol with differences of its forward pass."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.calculus.layer import Layer, in_mode
from gbackprop.network import Container
from gbackprop.testing.claims import (
    FLOAT32_TOLERANCE,
    MOVED,
    ROUNDINGS,
    TINY,
    UNIT32,
    Claims,
    Compared,
    FoundError,
    NotGivenError,
    moved,
    rounding_of,
)
from gbackprop.testing.derivatives import check_derivatives, has_default_vjp, samples
from gbackprop.testing.diagnosis.search import diagnosed
from gbackprop.testing.flat import Flat, WholeBatch, side_by_side
from gbackprop.testing.forms import check_forms, check_gradient_form
from gbackprop.testing.parameters import check_names, check_parameters
from gbackprop.testing.points import CANCELLED, largest, shrunk, size_of, sizes_of_terms, smooth_point
from gbackprop.testing.probe import PER_SAMPLE_AXIS, Probe, one_batch, rows_of_noise, twin_of
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report

BASIC = ("jmp", "mjp", "vjp", "residual")
"""The methods that others call: their purity is checked first."""

REQUIRED = ("forward", "mjp", "output_shape", "parameter_shapes", "parameter_jacobians")
"""The methods that every layer must have."""

NEAR = ROUNDINGS / MOVED
"""A result may be off by so often what it moves by where inputs are moved by MOVED roundings."""

SAMPLES = 3
"""The number of samples of a batch that are checked."""

Reference = Callable[[np.ndarray], np.ndarray]


def check_layer(layer: Layer, x: Any, rng: int | np.random.Generator = 0, reference: Reference | None = None) -> Report:
    """Compare every method of a layer with differences of its forward pass, in float64 on the host.

    Parameters
    ----------
    layer : Layer
        Is copied, and left as it is.
    x : array_like, shape (N, *in), or tuple of these
        Points at which to look; up to three samples are used. They are moved where the layer has a kink. A tuple is
        for a layer of several inputs, which is checked as a function of all of them side by side.
    rng : int or numpy.random.Generator
        Of the columns to multiply with, and of moves away from kinks.
    reference : callable, optional
        The function itself in plain terms, ``[N, *in] -> [N, *out]``: without it nothing says that `forward` computes
        the right function, only that its derivatives are its own.

    Returns
    -------
    Report
        A row for each claim, from `forward` to what rests on it. What the layer raises becomes a row.
    """
    x = one_batch(layer, x)
    inputs = [asnumpy(part) for part in x] if isinstance(x, tuple) else [x]
    x = inputs[0]
    if len(inputs) > 1:
        layer, x = Flat(layer, [part.shape[1:] for part in inputs]), side_by_side(inputs)

    def check(claims: Claims, subject: Layer, rng: np.random.Generator) -> None:
        claims.attempt("layer", "can be checked", _check, claims, subject, x, rng, reference)

    return diagnosed(_title(layer), REQUIRED, check, layer, rng)


def _check(claims: Claims, layer: Layer, x: Any, rng: np.random.Generator, reference: Reference | None) -> None:
    """Add all rows, in evaluation mode and, where the layer draws anything, in training mode."""
    for name in (name for name, kind in vars(Layer).items() if callable(kind) and not callable(getattr(layer, name))):
        raise FoundError(f"{layer!r} has {name} = {getattr(layer, name)!r} in place of the method of that name")
    inputs = layer.several if isinstance(layer, Container) else None
    if layer.takes == "integers" or (inputs and any(part.kind == "integers" for part in inputs.parts.values())):
        raise NotGivenError("takes integers, which cannot be moved by small steps: `check_network` looks at its weight")
    twin, (batch,) = twin_of(layer, rng=rng), claims.fresh(_batch(asnumpy(x), rng))
    claims.hold("parameter_shapes", "are the shapes of the parameters", _wrong_shapes, twin)
    if "parameter_shapes" in claims.doubtful:
        return
    in_training = in_mode(twin, True)
    if not twin.mixes:
        _check_mode(claims, Probe(twin, batch), rng, reference)
    if in_training.mixes:
        batches = np.stack([batch, batch[::-1] + rng.standard_normal(batch.shape) * size_of(batch)])
        whole = claims if twin.mixes else claims.part(", in training")
        _check_mode(whole, Probe(WholeBatch(in_training), batches), rng, _each_batch(reference) if twin.mixes else None)
        if not twin.mixes:
            claims.report.rows += whole.report.rows
    mixing = any(in_mode(part, True).mixes for _, part in twin.named_layers())
    noise = None if mixing else twin.noise(batch.shape, rng)  # samples of a container do not interact, or it has no row
    drawn: list[Any] = []
    rows_of_noise(noise, drawn.append)
    if drawn:
        training = claims.part(", in training")
        _check_mode(training, Probe(twin, batch, noise, True), rng)
        claims.report.rows += training.report.rows
    if "forward" not in claims.doubtful:
        claim = "other shapes are refused with a ValueError, or go through"
        claims.hold("output_shape", claim, _bad_shapes, twin, batch.shape[1:], needs=["output_shape"])


def _each_batch(reference: Reference | None) -> Reference | None:
    """Return a definition of one batch as one of several."""
    return reference and (lambda x: np.stack([reference(each) for each in x]))


def _check_mode(claims: Claims, bare: Probe, rng: np.random.Generator, reference: Reference | None = None) -> None:
    """Add all rows of one mode."""
    if not _forward_holds(claims, bare, reference):
        return
    point = claims.attempt("forward", "is smooth almost everywhere", smooth_point, bare, rng)
    if point is not None:
        probe = Probe.at(bare.layer, point.x, bare.noise, bare.training, rng)
        claims.rounding = partial(_rounding, probe)
        check_names(claims, probe)
        basic = [name for name in probe.calls() if name in BASIC or name.endswith(".per_sample")]
        _check_purity(claims, probe.cast(np.float64), basic)  # of a copy, so that nothing impure spoils what follows
        check_derivatives(claims, probe, point)
        check_forms(claims, probe)
        check_parameters(claims, probe, rng)
        check_gradient_form(claims, probe)
        _check_purity(claims, probe.cast(np.float64), [name for name in probe.calls() if name not in basic])
        _check_conduct(claims, probe)


# ------------------------------------------------------------------------------------------------------------- forward


def _forward_holds(claims: Claims, probe: Probe, reference: Reference | None) -> bool:
    """Add rows on the function itself; return False if nothing else can be judged."""
    needs = ["forward"]
    claims.hold("forward", "gives finite numbers for each sample", _malformed, probe)
    claims.hold("forward", "is a pure function", _impure_function, probe, needs=needs)
    claims.equal("forward", "samples do not interact", samples, probe, "forward", 0, needs=needs)
    if reference is not None:
        claims.equal("forward", "is the function that it should be", _against, probe, reference, needs=needs)
    claims.hold("output_shape", "is the output's", _wrong_output_shape, probe, needs=needs)
    return "forward" not in claims.doubtful


def _malformed(probe: Probe) -> str:
    y = probe.output
    if not isinstance(y, np.ndarray) or y.dtype != np.float64:
        return f"expected a float64 array, got {getattr(y, 'dtype', type(y).__name__)}"
    if y.shape[:1] != probe.x.shape[:1]:
        return f"expected {len(probe.x)} rows, got shape {y.shape}"
    return "" if np.isfinite(y).all() else "gives NaN or infinity"


def _wrong_output_shape(probe: Probe) -> str:
    declared, real = probe.layer.output_shape(probe.x.shape[1:]), probe.output.shape[1:]
    return "" if declared == real else f"says {declared}, but the output has {real}"


def _against(probe: Probe, reference: Reference) -> Compared:
    return Compared(probe.output, reference(probe.x.copy()), "plain definition")


# ------------------------------------------------------------------------------------------------------------- conduct


def _check_purity(claims: Claims, probe: Probe, names: Collection[str]) -> None:
    for name in names:
        needs = ["mjp"] if name == "vjp" and has_default_vjp(probe.layer) else _needs(name)
        claims.hold(name, "is pure, whatever goes forward", _impurity, probe, name, needs=needs)


def _impure_function(probe: Probe) -> str:
    watched = {"its input": probe.x, "the layer": probe.layer, "what it drew": probe.noise}
    return impurity(lambda: probe.run(probe.x)[0], watched, *_others(probe))


def _impurity(probe: Probe, name: str) -> str:
    arguments = probe.tangents, probe.columns, probe.signs, probe.curvature
    watched = {"its argument": arguments, "what forward saved": probe.saved, "the layer": probe.layer}
    return impurity(probe.calls()[name], watched, *_others(probe))


def _others(probe: Probe) -> tuple[Callable[[], Any], ...]:
    """Return forward passes of other batches: of as many samples, of more, and of features of larger shapes."""
    other, shape = probe.x[::-1] + 1, probe.x.shape[1:]

    def larger() -> None:
        widest = shape
        for i in range(len(shape)):
            wider = (*widest[:i], shape[i] + 1, *shape[i + 1 :])
            widest = wider if _takes(probe.layer, wider) else widest

    return lambda: probe.run(other), lambda: probe.run(np.concatenate([other, other])), larger


def _takes(layer: Layer, shape: tuple[int, ...]) -> bool:
    """Return whether features of a shape go forward."""
    try:
        layer.output_shape(shape)
        layer.forward(np.zeros((2, *shape)))
    except Exception:  # on which there is a claim
        return False
    return True


def _check_conduct(claims: Claims, probe: Probe) -> None:
    """Add rows on the laws that hold for each method."""
    single, scattered = probe.cast(np.float32), probe.scattered()
    for name in probe.calls():
        axis, needs = PER_SAMPLE_AXIS.get(name.rpartition(".")[2]) if "." in name else None, _needs(name)
        if axis is not None:
            claims.equal(name, "samples do not interact", samples, probe, name, axis, needs=needs)
        claims.equal(name, "float32 stays float32", _float32, single, probe, name, needs=needs)
        claims.equal(name, "layout in memory does not matter", _layout, scattered, probe, name, needs=needs)


def _rounding(probe: Probe, name: str) -> Any:
    """Return the rounding error of a method, or that of its oracle, which cancels in x − tanh x, if it is larger.

    Equal numbers, of which a norm makes 0, stay equal in float32: they are moved, too.
    """
    unit, factor = ROUNDINGS * 2.0**-53, float(name in ("jmp", "mjp", "vjp"))
    if name == "average":  # of each J in Jᵀ Ḡ J
        n, out = len(probe.x), probe.output.shape[1:]
        pulled = probe.layer.mjp(probe.saved, probe.curvature.repeat(n, 0).reshape(-1, n, *out))  # Ḡ J
        factor = 2 * float(np.max(np.abs(pulled).sum(0), initial=0)) + unit * float(np.abs(probe.curvature).sum())
    if name == "residual":
        factor = largest(shrunk(probe).residual())
    own, near = probe.calls()[name](), replace(probe, x=moved(probe.x, np.random.default_rng(0)))
    errors = rounding_of(probe.cast(np.float32).calls()[name](), own), rounding_of(near.calls()[name](), own, NEAR)
    return max(*errors, factor * unit)


def _needs(name: str) -> list[str]:
    """Return the methods that a call needs beside `forward`."""
    return [name, "parameter_jacobians"] if "." in name else [name]


def _float32(single: Probe, double: Probe, name: str) -> Compared:
    """float32 in gives float32 out, but for the moments, which are added up in float64."""
    got, expected = single.calls()[name](), "float64" if name.endswith(".moments") else "float32"
    if got is not None and got.dtype.name != expected:
        raise FoundError(f"gives {got.dtype.name} for float32, expected {expected}")
    terms = sizes_of_terms(double) | {"forward": 2 * UNIT32 / FLOAT32_TOLERANCE * largest(double.x)}  # x may cancel
    want, floor = double.calls()[name](), max(terms.get(name, 0.0), TINY)
    floor = max(floor, CANCELLED * double.size_of_residual()) if name == "residual" else floor

    def rounding() -> Any:
        near = replace(double, x=moved(double.x, np.random.default_rng(0), UNIT32))  # a cast leaves equal numbers equal
        cast = rounding_of(single.cast(float).calls()[name](), want, ROUNDINGS)
        cast += rounding_of(near.calls()[name](), want, NEAR)
        return cast + ROUNDINGS * UNIT32 * largest(shrunk(double).residual()) if name == "residual" else cast

    return Compared(got, want, "the same in float64", FLOAT32_TOLERANCE, floor, rounding=rounding)


def _layout(scattered: Probe, contiguous: Probe, name: str) -> Compared:
    return Compared(scattered.calls()[name](), contiguous.calls()[name](), "contiguous arrays")


def _bad_shapes(layer: Layer, shape: tuple[int, ...]) -> str:
    """Return a problem with a feature shape other than the layer's own."""
    axes = range(len(shape))
    bigger = [(*shape[:i], shape[i] + 1, *shape[i + 1 :]) for i in axes]
    smaller = [(*shape[:i], 1, *shape[i + 1 :]) for i in axes]
    for candidate in [(*shape, 2), (2, *shape), shape[1:], (), *bigger, *smaller]:
        problem = _bad_shape(layer, candidate)
        if problem:
            return f"{candidate}: {problem}"
    return ""


def _bad_shape(layer: Layer, shape: tuple[int, ...]) -> str:
    try:
        declared = layer.output_shape(shape)
    except ValueError:
        return ""
    except Exception as error:  # a wrong kind of error is the finding
        return f"refused with {type(error).__name__}: {error}"
    try:
        real = layer.forward(np.zeros((2, *shape)))[0].shape[1:]
    except Exception as error:
        return f"let through, but forward raises {type(error).__name__}: {error}"
    return "" if declared == real else f"says {declared}, but the output has {real}"


# --------------------------------------------------------------------------------------------------------------- input


def _batch(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Up to three samples in float64, and at least two: a second one is made from the first."""
    x = np.array(x[:SAMPLES], dtype=np.float64)
    return x if len(x) > 1 else np.concatenate([x, x + rng.standard_normal(x.shape) * size_of(x)])


def _wrong_shapes(layer: Layer) -> str:
    declared, real = layer.parameter_shapes(), {name: value.shape for name, value in layer.parameters.items()}
    return "" if declared == real else f"says {declared}, but there are {real}"


def _title(layer: Layer) -> str:
    try:
        return repr(layer)
    except Exception:  # a subject that cannot describe itself can still be checked
        return type(layer).__name__
