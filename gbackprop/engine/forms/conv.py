"""Forms of convolutions: by tiles where these are faster, else in blocks of samples with u in the cache."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.engine import costs
from gbackprop.engine.forms.linear import by_weight
from gbackprop.engine.forms.moves import padded
from gbackprop.engine.forms.outer import OUTER, outer_sums, without
from gbackprop.engine.forms.products import over_columns
from gbackprop.engine.kernels import transforms_of, windows_of
from gbackprop.engine.kernels.tiles import Tiles
from gbackprop.engine.kernels.view import unfold
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import SUM, Context, LayerForms, Routed
from gbackprop.engine.routes import Route, RoutedBias, RoutedOuter
from gbackprop.engine.scratch import row_blocks
from gbackprop.layers.windows.conv import _Conv as Conv


def forward(layer: Conv, x: Array, context: Context) -> tuple[Array, Any]:
    """y[t] = W u[t] + b."""
    x = layer.frame.around(x) if layer.frame else x
    memory, out = context.memory, layer.window.out(x.shape[2:])
    unfolded_bytes = len(x) * _bytes(layer, out, x)
    u = None
    if unfolded_bytes > costs.UNFOLDED_BYTES or tiles(layer, x.shape[2:], x, memory, len(x)) is not None:
        y = linear(layer, x, memory)
    else:  # the backward sweep needs u again
        u = unfolded(layer, x, memory)
        y = of_windows(layer, u, out, memory)
    if layer.bias:
        y += layer.parameters["bias"].reshape(-1, *(1,) * layer.dims)
    return y, (x, u)


def of_windows(layer: Conv, u: Array, out: Shape, memory: Allocator) -> Array:
    """Compute W u: ``[G, L, T, I] -> [L, O, *out]``."""
    return channels_first(_product(layer, u, memory).reshape(u.shape[1], *out, -1))


def linear(layer: Conv, x: Array, memory: Allocator) -> Array:
    """Compute W u: ``[L, C, *S] -> [L, O, *out]``."""
    tiled = tiles(layer, x.shape[2:], x, memory, len(x))
    if tiled is not None:
        return channels_first(tiled.forward(channels_last(x), layer.parameters["weight"]))
    out = layer.window.out(x.shape[2:])
    y = memory.empty(x, (len(x), prod(out), layer.out_channels))
    for block in row_blocks(len(x), _bytes(layer, out, x), x):
        y[block] = _product(layer, unfolded(layer, x[block], memory), memory)
    return channels_first(y.reshape(len(x), *out, layer.out_channels))


def carry(layer: Conv, saved: Any, mat: Array, context: Context) -> Array:
    """fold(Wᵀ g[t])."""
    return transposed(layer, mat, saved[0].shape[2:], context)


def transposed(layer: Conv, mat: Array, spatial: Shape, context: Context) -> Array:
    """Compute fold(Wᵀ g[t]) for images of size `spatial`."""
    memory, out = context.memory, mat.shape[3:]
    rows = layer.rows(mat)
    columns, n, positions, _ = rows.shape
    tiled = tiles(layer, spatial, mat, memory, columns * n)
    if tiled is not None:
        image = tiled.backward(rows.reshape(columns * n, *out, -1), layer.parameters["weight"])
        return _inside(layer, channels_first(image.reshape(columns, n, *image.shape[1:]), 2))
    rows, matrix = rows.reshape(columns * n, positions, layer.groups, -1), layer._matrix()
    result = memory.empty(mat, (columns * n, *spatial, layer.in_channels))
    for block in row_blocks(columns * n, _bytes(layer, out, mat), mat):
        g = rows[block].transpose(2, 0, 1, 3)
        shares = memory.matmul(g.reshape(layer.groups, -1, g.shape[3]), matrix)  # [G, L*T, I]
        by_place = shares.reshape(layer.groups, g.shape[1], *out, *layer.window.kernel, -1)
        by_place = by_place.transpose(*range(1, by_place.ndim - 1), 0, by_place.ndim - 1)
        result[block] = _folded(layer, by_place.reshape(*by_place.shape[:-2], -1), spatial, memory)
    return _inside(layer, channels_first(result.reshape(columns, n, *spatial, layer.in_channels), 2))


def _inside(layer: Conv, image: Array) -> Array:
    """Return columns at the framed image as columns at the image."""
    return layer.frame.inside(image) if layer.frame else image


def jacobians(layer: Conv, saved: Any, context: Context) -> dict[str, ParameterJacobian]:
    """Return the layer's Jacobians, with u unfolded by this form and the gradient by tiles if there are any."""
    (x, u), memory = saved, context.memory
    plain = Conv.parameter_jacobians(layer, saved)
    weight = plain["weight"]
    assert isinstance(weight, Outer)
    tiled = tiles(layer, x.shape[2:], x, memory, len(x))
    if u is None:
        weight.inputs = lambda: unfolded(layer, x, memory)
    if tiled is not None:
        plain["weight"] = TiledOuter(weight, channels_last(x), tiled)
    return plain


class TiledOuter(Outer):
    """The Jacobian of the weight of a convolution by tiles, whose gradient needs no u.

    Parameters
    ----------
    outer : Outer
    x : ndarray, shape (N, *S, C)
    tiles : Tiles
    """

    def __init__(self, outer: Outer, x: Array, tiles: Tiles) -> None:
        super().__init__(outer.inputs, outer.bias, outer.to_parameter, outer.from_parameter)
        self.x, self.tiles = x, tiles

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        one = over_columns(mat, sign)[0]
        return self.joined(self.tiles.weight_sum(self.x, channels_last(one))[None])


def tiles(layer: Conv, spatial: Shape, like: Array, memory: Allocator, images: int) -> Tiles | None:
    """Return the layer's tiles for so many images, or None if there are none or they are slower."""
    transforms = transforms_of(like)
    channels = (layer.in_channels, layer.out_channels)
    if transforms is None or not costs.tiles_pay(layer.window, channels, layer.groups, spatial, images):
        return None
    return Tiles.of(layer.window, spatial, memory, transforms)


def unfolded(layer: Conv, x: Array, memory: Allocator) -> Array:
    """Compute the layer's `_unfolded`: ``[L, C, *S] -> [G, L, T, I]``."""
    last, window = channels_last(x), layer.window
    if isinstance(last, np.ndarray) and last.strides[-1] != last.itemsize:
        last = memory.contiguous(last)  # a small copy, so that the large one reads contiguous memory
    spatial = x.shape[2:]
    seen = unfold(padded(last, window.fitted(spatial), memory), window, window.out(spatial))
    positions = prod(seen.shape[1 : 1 + layer.dims])
    if layer.groups == 1:
        return memory.contiguous(seen).reshape(1, len(x), positions, -1)
    split = seen.reshape(len(x), positions, *window.kernel, layer.groups, -1)
    return array_module(x).moveaxis(split, -2, 0).reshape(layer.groups, len(x), positions, -1)


def _product(layer: Conv, u: Array, memory: Allocator) -> Array:
    """Compute W u as one large product for each group: ``[G, L, T, I] -> [L, T, O]``."""
    groups, rows, positions, _ = u.shape
    product = memory.matmul(u.reshape(groups, rows * positions, -1), layer._matrix().swapaxes(1, 2))
    return array_module(u).moveaxis(product, 0, 1).reshape(rows, positions, layer.out_channels)


def _folded(layer: Conv, seen: Array, spatial: Shape, memory: Allocator) -> Array:
    window, kernels = layer.window, windows_of(seen, layer.dims)
    assert kernels is not None  # of floats, and of three axes at most, there are some
    image = memory.empty(seen, (len(seen), *window.padded(spatial), seen.shape[-1]))
    kernels.fold(seen, window, image)
    return image[(slice(None), *window.inside(spatial))]


def _bytes(layer: Conv, out: Shape, x: Array) -> int:
    """Return the bytes of one sample's unfolded input."""
    return prod(out) * prod(layer.window.kernel) * layer.in_channels * x.dtype.itemsize


def jmp(layer: Conv, saved: Any, mat: Array, context: Context) -> Array:
    """W u̇[t]."""
    y = linear(layer, _framed(layer, mat), context.memory)
    return y.reshape(*mat.shape[:2], *y.shape[1:])


def mixed_parameter(layer: Conv, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """y[t] = W u[t]: Σₙₜ g[n, t] u̇[k, n, t]ᵀ, with u̇ the unfolded tangent."""
    jacobian: Any = context.jacobians(layer, (_framed(layer, mat), None))["weight"]
    if len(mat) == 1:
        return context.reduce(jacobian, SUM, g[None], None)[None]
    u = jacobian.u  # of K batches, one after the other
    return outer_sums(jacobian, jacobian.split(g[None]), u.reshape(len(u), len(mat), -1, *u.shape[2:]))


def _framed(layer: Conv, mat: Array) -> Array:
    """Return columns at the image as images in the layer's frame: ``[K, N, *in] -> [K N, C, *S]``."""
    x = mat.reshape(-1, *mat.shape[2:])
    return layer.frame.around(x) if layer.frame else x


def push_tiled(outer: TiledOuter, directions: Array, shape: Shape) -> Array:
    """y[t] = P u[t] by tiles, which needs no u."""
    images = [outer.tiles.forward(outer.x, direction) for direction in directions]
    return channels_first(array_module(directions).stack(images), 2)


def routing_pays(layer: Conv, columns: int, windows: int, shape: Shape) -> bool:
    """Return whether squares are faster from routed columns, by the cost models."""
    inputs = prod(layer.window.kernel) * layer.in_channels // layer.groups
    return costs.routing_pays(columns, windows, prod(layer.output_shape(shape)[1:]), inputs, layer.out_channels)


def routed_jacobians(
    layer: Conv, plain: dict[str, ParameterJacobian], route: Route, context: Context
) -> dict[str, ParameterJacobian]:
    """Return the Jacobians of the weight and bias below a route."""
    weight = plain["weight"]
    assert isinstance(weight, Outer)
    found: dict[str, ParameterJacobian] = {"weight": RoutedOuter(weight, route, context.memory)}
    return found | {"bias": RoutedBias(route)} if layer.bias else found


ROWS = [
    LayerForms(
        Conv,
        forward=forward,
        carry=carry,
        pure=True,
        jacobians=jacobians,
        routed=Routed(routing_pays, routed_jacobians),
        jmp=jmp,
        mixed_input=by_weight,
        mixed_parameter=mixed_parameter,
    ),
    without(OUTER, TiledOuter, "sum", push=push_tiled, pull=None),
]
