"""Rows on the fast forms that `gbackprop.backward` uses instead of a layer's methods: they give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbackprop.engine.routes import Route
from gbackprop.testing.claims import Claims, Compared
from gbackprop.testing.probe import Probe

SAME = "the fast form gives the same"

METHOD = "the layer's method"


def check_forms(claims: Claims, probe: Probe) -> None:
    """Add a row for each method that has a fast form; others are computed by the method itself."""
    forms = probe.context.known.of(probe.layer)
    if forms.forward and not probe.training:
        claims.equal("forward", SAME, _forward, probe, needs=["forward", "mjp"])
    if forms.carry:
        claims.equal("mjp", SAME, _mjp, probe, probe.context.mjp, needs=["mjp"])
    if forms.in_place:
        claims.equal("mjp", "the form in place gives the same", _mjp, probe, forms.in_place, needs=["mjp"])
    if forms.add_to:
        claims.equal("mjp", "the form that adds to columns gives the same", _into, probe, forms.add_to, needs=["mjp"])
    if forms.average and probe.curvature is not None:
        claims.equal("average", SAME, _average, probe, needs=["average"])
    if forms.routes and probe.x.ndim == probe.output.ndim == 4:
        claims.equal("mjp", "the route takes what J takes", _route, probe, needs=["jmp", "mjp"])


def check_gradient_form(claims: Claims, probe: Probe) -> None:
    """Add a row for the form that takes the place of Jacobians where only the gradient is asked for."""
    form = probe.context.known.of(probe.layer).gradients
    if form is not None:
        claims.equal("parameter_jacobians", "the form of the gradient alone gives the same", _gradients, probe, form)


def _forward(probe: Probe) -> Compared:
    """Return the output, and what the plain methods make of what the form saved."""
    y, saved = probe.context.forward(probe.layer, probe.x)
    return Compared({"output": y} | _used(probe, saved), {"output": probe.output} | _used(probe, probe.saved), METHOD)


def _used(probe: Probe, saved: Any) -> dict[str, np.ndarray]:
    """Columns multiplied by the transposed Jacobians in the input and in each parameter."""
    jacobians = probe.layer.parameter_jacobians(saved) if probe.parameters else {}
    found = {name: jacobian.per_sample(probe.columns) for name, jacobian in jacobians.items()}
    return found | {"input": probe.layer.mjp(saved, probe.columns)}


def _mjp(probe: Probe, form: Callable[..., Any]) -> Compared:
    got = form(probe.layer, probe.saved, probe.columns.copy())
    return Compared(got, probe.layer.mjp(probe.saved, probe.columns), METHOD)


def _into(probe: Probe, form: Callable[..., Any]) -> Compared:
    want = probe.layer.mjp(probe.saved, probe.columns)
    place = np.random.default_rng(0).standard_normal(want.shape)
    got = place.copy()
    form(probe.layer, probe.saved, probe.columns, got)
    return Compared(got - place, want, METHOD)


def _gradients(probe: Probe, form: Callable[..., Any]) -> Compared:
    columns, jacobians = probe.columns[:1], probe.layer.parameter_jacobians(probe.saved)
    got = form(probe.layer, probe.saved, columns, probe.context)
    want = {name: jacobian.per_sample(columns).sum((0, 1)) for name, jacobian in jacobians.items()}
    return Compared(got, want, "per_sample")


def _average(probe: Probe) -> Compared:
    given = (probe.layer, probe.saved, probe.curvature, len(probe.x), probe.output.shape[1:])
    return Compared(probe.context.average(*given), probe.layer.average(*given[1:]), METHOD)


def _route(probe: Probe) -> Compared:
    """Return some numbers of J u for one u, as often, in the order and with the slopes of a route above; some are 0."""
    rng, layer, context = np.random.default_rng(0), probe.layer, probe.context
    u, y = (np.moveaxis(mat[0], 1, -1) for mat in (probe.tangents, layer.jmp(probe.saved, probe.tangents[:1])))
    u, y = (rows.reshape(len(rows), -1, rows.shape[-1]) for rows in (u, y))
    above = Route.of(rng.integers(-1, y.shape[1], (len(y), y.shape[1] + 2, y.shape[2])))
    above = Route(above.places, above.slope * rng.standard_normal(above.places.shape))
    form = context.known.of(layer).routes
    assert form is not None
    found = form(layer, probe.saved, above, context)
    got, want = (np.take_along_axis(rows, each.places, 1) * each.slope for rows, each in ((u, found), (y, above)))
    return Compared(got, want, "jmp")
