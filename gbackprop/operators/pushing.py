"""The Jacobian of a parameter applied to K columns at once, in both directions: J P, and Σₙ Jᵀ g of each column.

`ParameterJacobian.per_sample` defines both: J is its transpose. Classes of Jacobians have shorter forms in the
registry. A Jacobian of one's own may have a method ``push(directions, batch, shape)``, which is then called instead.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.engine.registry import SUM, Context, NoFormError

UNIT_BYTES = 2**26
"""Bytes of the products with unit columns that `by_units` forms at a time."""


def push(jacobian: ParameterJacobian, directions: Array, shape: Shape, context: Context) -> Array:
    """J P: directions ``[K, *p] -> [K, *shape]``, for outputs of shape (N, *out)."""
    own, form = getattr(jacobian, "push", None), context.known.of_jacobian(jacobian).push
    if own is not None:
        return own(directions, shape[0], shape[1:]).copy()  # the sum of all J P is written over the first
    if form is not None:
        with suppress(NoFormError):
            return form(jacobian, directions, shape)
    return by_units(jacobian, directions, shape)


def add_pushed(
    total: Array | None, jacobian: ParameterJacobian, directions: Array, shape: Shape, context: Context
) -> Array:
    """Return total + J P, written over `total` if there is one."""
    if total is None:
        return push(jacobian, directions, shape, context)
    form = None if hasattr(jacobian, "push") else context.known.of_jacobian(jacobian).add_push
    if form is None or not form(jacobian, directions, total):
        total += push(jacobian, directions, shape, context)
    return total


def pull(jacobian: ParameterJacobian, mat: Array, context: Context) -> Array:
    """Σₙ Jᵀ g[k, n] of each column: ``[K, N, *out] -> [K, *p]``."""
    form = context.known.of_jacobian(jacobian).pull
    if form is not None and len(mat) > 1:
        return form(jacobian, mat)
    columns = [context.reduce(jacobian, SUM, mat[k : k + 1], None) for k in range(len(mat))]
    return columns[0][None] if len(columns) == 1 else array_module(mat).stack(columns)


def by_units(jacobian: ParameterJacobian, directions: Array, shape: Shape) -> Array:
    """J P by its definition: entry c of the output is ⟨Jᵀ e_c, P⟩, for each unit column e_c."""
    xp, count, (batch, *out) = array_module(directions), len(directions), shape
    c = prod(out)
    step = max(1, UNIT_BYTES // max(1, batch * directions[0].nbytes))
    parts = []
    for start in range(0, c, step):
        units = xp.eye(c, dtype=directions.dtype)[start : start + step, None]
        units = xp.broadcast_to(units, (len(units), batch, c)).reshape(-1, batch, *out)
        each = jacobian.per_sample(units).reshape(len(units), batch, -1)
        parts.append(each @ directions.reshape(count, -1).T)  # [c, N, K]
    return xp.concatenate(parts).transpose(2, 1, 0).reshape(count, *shape)
