"""Forms for columns routed through max pooling: the routes of layers, and a convolution's Jacobians below a route."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.window import pad
from gbackprop.engine import costs
from gbackprop.engine.forms.pooling import places
from gbackprop.engine.registry import Context, Function
from gbackprop.engine.routes import Route, RoutedBias, RoutedOuter, numbered
from gbackprop.layers.elementwise.activation import Elementwise
from gbackprop.layers.elementwise.dropout import Dropout
from gbackprop.layers.moves.reshape import Identity, ZeroPad2d
from gbackprop.layers.windows.conv import _Conv as Conv
from gbackprop.layers.windows.pooling import MaxPool2d


def through_max_pool(layer: MaxPool2d, saved: Any, above: Route | None, context: Context) -> Route:
    """Return the route to the maxima."""
    spatial, out = saved[0].shape[2:], saved[1].shape[1:-1]
    image = pad(numbered(spatial), layer.window.fitted(spatial), -1)
    views = (image[(slice(None), *where, slice(None))] for where in layer.window.offsets(out))
    seen = np.stack([view.reshape(-1) for view in views])  # [K, W]
    winners = places(layer, saved, context.memory).reshape(len(saved[0]), prod(out), -1)
    table = seen.take(winners * prod(out) + np.arange(prod(out))[:, None])
    return Route.of(table) if above is None else above.through(table)


def through_elementwise(layer: Elementwise, saved: Any, above: Route, context: Context) -> Route:
    """Return the same route times φ'(x), which may be one number, or one for each channel."""
    return above.scaled(np.broadcast_to(layer.first(*saved), saved[0].shape))


def through_dropout(layer: Dropout, saved: Any, above: Route, context: Context) -> Route:
    """Return the same route times the mask."""
    return above if saved is None else above.scaled(saved)


def through_padding(layer: ZeroPad2d, saved: Any, above: Route, context: Context) -> Route:
    """Return the route to the moved places."""
    return above.through(pad(numbered(saved), layer.padding, -1).reshape(1, -1, 1))


def through_identity(layer: Identity, saved: Any, above: Route, context: Context) -> Route:
    """Return the same route."""
    return above


ROUTES = {
    (MaxPool2d.forward, Layer.forward_training, MaxPool2d.mjp): through_max_pool,
    (Elementwise.forward, Layer.forward_training, Elementwise.mjp): through_elementwise,
    (Dropout.forward, Dropout.forward_training, Dropout.mjp): through_dropout,
    (ZeroPad2d.forward, Layer.forward_training, ZeroPad2d.mjp): through_padding,
    (Identity.forward, Layer.forward_training, Identity.mjp): through_identity,
}
"""``form(layer, saved, above, context)`` returns the route to the layer's input, given the route `above` to its output,
None for max pooling, where a route begins."""


@dataclass(frozen=True)
class Routed:
    """The form of a layer with parameters for routed columns.

    Attributes
    ----------
    is_faster : callable
        ``is_faster(layer, columns, windows, shape)``: whether squares are faster from routed columns with `windows`
        numbers per channel, for inputs of feature shape `shape`.
    jacobians : callable
        ``jacobians(layer, plain, route, context)``: the Jacobians for routed columns ``[V, N, C, *W]``.
    """

    is_faster: Function
    jacobians: Function


def conv_pays(layer: Conv, columns: int, windows: int, shape: Shape) -> bool:
    """Return whether routing is faster for a convolution, by the cost models."""
    inputs = prod(layer.window.kernel) * layer.in_channels // layer.groups
    return costs.routing_pays(columns, windows, prod(layer.output_shape(shape)[1:]), inputs, layer.out_channels)


def conv_jacobians(
    layer: Conv, plain: dict[str, ParameterJacobian], route: Route, context: Context
) -> dict[str, ParameterJacobian]:
    """Return the Jacobians of a convolution's weight and bias below a route."""
    weight = plain["weight"]
    assert isinstance(weight, Outer)
    found: dict[str, ParameterJacobian] = {"weight": RoutedOuter(weight, route, context.memory)}
    return found | {"bias": RoutedBias(route)} if layer.bias else found


ROUTED = {(Conv.forward, Conv.mjp, Conv.parameter_jacobians): Routed(conv_pays, conv_jacobians)}

