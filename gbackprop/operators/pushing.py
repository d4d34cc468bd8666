"""The Jacobian of a parameter applied to K columns at once, in both directions: J P, and Σₙ Jᵀ g of each column.

`ParameterJacobian.per_sample` defines both: J is its transpose. The shorter forms here are registered under that very
function, so that a Jacobian with another one is computed by the definition. A Jacobian of one's own may have a method
``push(directions, batch, shape)``, which is then called instead.

Letters as in `layers.jacobian`: u is (G, N, T, I), g is (G, K, N, T, O); P is a direction, of the parameter's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any

from gbackprop.array import Array, array_module, channels_first
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.engine.forms.conv import TiledOuter
from gbackprop.engine.memory import Reused, result_like
from gbackprop.engine.registry import SUM, Context, function_of
from gbackprop.layers.elementwise.prelu import _Slope
from gbackprop.layers.embedding import _Rows
from gbackprop.layers.norms.normalization import Entrywise
from gbackprop.layers.norms.scale import Factor
from gbackprop.layers.windows.conv_transpose import _Weight
from gbackprop.plain.affine import replaced

UNIT_BYTES = 2**26
"""Bytes of the products with unit columns that `by_units` forms at a time."""


class NotAViewError(Exception):
    """The rows of a Jacobian are a copy of the columns, so that nothing can be written through them."""


def push(jacobian: ParameterJacobian, directions: Array, batch: int, shape: Shape) -> Array:
    """J P: directions ``[K, *p] -> [K, N, *out]``, for outputs of feature shape `shape`."""
    own = getattr(jacobian, "push", None)
    if own is not None:
        return own(directions, batch, shape).copy()  # the sum of all J P is written over the first
    form = PUSH.get(function_of(jacobian, "per_sample"))
    with suppress(NotAViewError):
        if form is not None:
            return form(jacobian, directions, batch, shape)
    return by_units(jacobian, directions, batch, shape)


def add_pushed(
    total: Array | None, jacobian: ParameterJacobian, directions: Array, batch: int, shape: Shape
) -> Array:
    """Return total + J P, written over `total` if there is one; a bias is added where it is, without an array J P."""
    if total is None:
        return push(jacobian, directions, batch, shape)
    if function_of(jacobian, "per_sample") is Bias.per_sample and not hasattr(jacobian, "push"):
        view = jacobian.rows(total)  # type: ignore[attr-defined]  # of a `Bias`
        if array_module(total).may_share_memory(view, total):
            view += directions[:, None, None]
            return total
    total += push(jacobian, directions, batch, shape)
    return total


def pull(jacobian: ParameterJacobian, mat: Array, context: Context) -> Array:
    """Σₙ Jᵀ g[k, n] of each column: ``[K, N, *out] -> [K, *p]``."""
    form = PULL.get(function_of(jacobian, "per_sample"))
    if form is not None and len(mat) > 1 and not isinstance(jacobian, TiledOuter):
        return form(jacobian, mat)
    columns = [context.reduce(jacobian, SUM, mat[k : k + 1], None) for k in range(len(mat))]
    return columns[0][None] if len(columns) == 1 else array_module(mat).stack(columns)


def by_units(jacobian: ParameterJacobian, directions: Array, batch: int, shape: Shape) -> Array:
    """J P by its definition: entry c of the output is ⟨Jᵀ e_c, P⟩, for each unit column e_c."""
    xp, count, c = array_module(directions), len(directions), prod(shape)
    step = max(1, UNIT_BYTES // max(1, batch * directions[0].nbytes))
    parts = []
    for start in range(0, c, step):
        units = xp.eye(c, dtype=directions.dtype)[start : start + step, None]
        units = xp.broadcast_to(units, (len(units), batch, c)).reshape(-1, batch, *shape)
        each = jacobian.per_sample(units).reshape(len(units), batch, -1)
        parts.append(each @ directions.reshape(count, -1).T)  # [c, N, K]
    return xp.concatenate(parts).transpose(2, 1, 0).reshape(count, batch, *shape)


# --------------------------------------------------------------------------------------------------------------- forms


def place(rows: Callable[[Array], Array], count: int, batch: int, shape: Shape, like: Array) -> tuple[Array, Array]:
    """Return an uninitialized array ``[K, N, *out]`` and its view by position, ``rows(array)``.

    The array has its channels last in memory if the view is contiguous then.
    """
    xp, memory = array_module(like), Reused()
    usual = memory.empty(like, (count, batch, *shape))
    view = rows(usual)
    if view.flags.c_contiguous and xp.may_share_memory(view, usual):
        return usual, view
    last = channels_first(memory.empty(like, (count, batch, *shape[1:], shape[0])), 2)
    view = rows(last)
    if xp.may_share_memory(view, last):
        return last, view
    raise NotAViewError


def _bias(jacobian: Bias, directions: Array, batch: int, shape: Shape) -> Array:
    """y[t] = p."""
    y, view = place(jacobian.rows, len(directions), batch, shape, directions)
    view[...] = directions[:, None, None]
    return y


def _outer(jacobian: Outer, directions: Array, batch: int, shape: Shape) -> Array:
    """y[t] = P u[t]."""
    if isinstance(jacobian, TiledOuter):
        return _by_tiles(jacobian, directions)
    xp, u, count = array_module(directions), jacobian.u, len(directions)
    groups, n, t, i = u.shape
    y, view = place(jacobian.bias.rows, count, batch, shape, directions)
    weights = xp.moveaxis(jacobian.from_parameter(directions).reshape(count, groups, -1, i), 1, 0).swapaxes(2, 3)
    rows = u.reshape(groups, 1, n * t, i)
    if groups == 1 and view.flags.c_contiguous:
        xp.matmul(rows, weights, out=view.reshape(1, count, n * t, -1))
    else:
        jacobian.split(y)[...] = (rows @ weights).reshape(groups, count, n, t, -1)
    return y


def _by_tiles(jacobian: TiledOuter, directions: Array) -> Array:
    """y[t] = P u[t] of a convolution by tiles, which needs no u."""
    images = [jacobian.tiles.forward(jacobian.x, direction) for direction in directions]
    return channels_first(images[0][None] if len(images) == 1 else array_module(directions).stack(images), 2)


def _entrywise(jacobian: Entrywise, directions: Array, batch: int, shape: Shape) -> Array:
    """y[t] = p ∘ u[t]."""
    y, view = place(jacobian.rows, len(directions), batch, shape, directions)
    p = directions.reshape(len(directions), 1, 1, -1)
    view[...] = p if jacobian.u is None else p * jacobian.u
    return y


def _factor(jacobian: Factor, directions: Array, batch: int, shape: Shape) -> Array:
    """y[c, t] = p[c] x[c, t]."""
    return spread(directions, len(shape)) * jacobian.x


def _slope(jacobian: _Slope, directions: Array, batch: int, shape: Shape) -> Array:
    """y[c, t] = p[c] x[c, t] where x ≤ 0, else 0."""
    x = jacobian.x
    return spread(directions, len(shape)) * array_module(x).where(x > 0, 0, x)


def spread(directions: Array, dims: int) -> Array:
    """Return one number for each channel, or for all, in a shape that goes with columns: ``[K, 1, C, 1, …]``."""
    return directions.reshape(len(directions), 1, -1, *(1,) * (dims - 1))


def _rows(jacobian: _Rows, directions: Array, batch: int, shape: Shape) -> Array:
    """y[t] = row x[t] of P, zero for the padding."""
    padding, y = jacobian.layer.padding_idx, directions[:, jacobian.x]
    return y if padding is None else y * (jacobian.x != padding)[..., None]


def _transposed(jacobian: _Weight, directions: Array, batch: int, shape: Shape) -> Array:
    """y = fold(Pᵀ x[t])."""
    layers = [replaced(jacobian.layer, {"weight": direction}) for direction in directions]
    return array_module(directions).stack([layer._folded(jacobian.x) for layer in layers])


def _outer_sum(jacobian: Outer, mat: Array) -> Array:
    """Σₙₜ g[k, n, t] u[n, t]ᵀ."""
    return outer_sums(jacobian, jacobian.split(mat), jacobian.u[:, None])


def outer_sums(jacobian: Outer, g: Array, u: Array) -> Array:
    """Σₙₜ g[k, n, t] u[k, n, t]ᵀ, where one of the two may be the same for each k: its K is 1."""
    g, u = g.reshape(*g.shape[:2], -1, g.shape[4]), u.reshape(*u.shape[:2], -1, u.shape[4])
    shape = (len(g), max(g.shape[1], u.shape[1]), g.shape[3], u.shape[3])
    product = array_module(g).matmul(g.swapaxes(2, 3), u, out=result_like(g, shape))
    return jacobian.joined(product)


def _over_samples(jacobian: ParameterJacobian, mat: Array) -> Array:
    """Σₙ Jᵀ g[k, n], of a parameter that is small beside the columns."""
    return jacobian.per_sample(mat).sum(1)


PUSH: dict[Any, Callable[..., Array]] = {
    Bias.per_sample: _bias,
    Outer.per_sample: _outer,
    Entrywise.per_sample: _entrywise,
    Factor.per_sample: _factor,
    _Slope.per_sample: _slope,
    _Rows.per_sample: _rows,
    _Weight.per_sample: _transposed,
}
"""Forms of J P, by the definition that they are short for."""

PULL: dict[Any, Callable[..., Array]] = {
    Bias.per_sample: _over_samples,
    Outer.per_sample: _outer_sum,
    Entrywise.per_sample: _over_samples,
    Factor.per_sample: _over_samples,
    _Slope.per_sample: _over_samples,
}
"""Forms of Σₙ Jᵀ g, likewise."""
