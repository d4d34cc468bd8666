"""Products of columns with inputs, g uᵀ: the forms of `Outer` are sums over them.

Letters as in `calculus.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import Outer, weigh
from gbackprop.engine import costs
from gbackprop.engine.kernels import calls_of, numba_kernels
from gbackprop.engine.scratch import row_blocks


def summed(g: Array, u: Array) -> Array:
    """Σₗ gₗ uₗᵀ: ``[G, L, O], [G, L, I] -> [G, O, I]``."""
    if g.shape[1] > 1:
        return g.swapaxes(1, 2) @ u
    out = array_module(g).empty((g.shape[0], g.shape[2], u.shape[2]), dtype=g.dtype)
    outer_product_of_rows(g[:, 0], u[:, 0], out)
    return out


def products(outer: Outer, g: Array) -> Iterator[tuple[slice, slice, Array]]:
    """Yield gᵀ u for blocks of columns and samples: (columns, samples, product (G, v, n, O, I))."""
    groups, columns, n, _, o = g.shape
    size = groups * o * outer.u.shape[3] * g.dtype.itemsize
    for rows in row_blocks(n, size, g):
        for v in row_blocks(columns, size * (rows.stop - rows.start), g):
            yield v, rows, outer_product(g[:, v, rows], outer.u[:, None, rows])


def total_of(products: Array, weights: Array | None) -> Array:
    """Σᵥₙ of ``weights * products``: ``[V, N], [G, V, N, O, I] -> [G, O*I]``, as one product, in one pass."""
    groups, columns, n = products.shape[:3]
    if weights is None and columns * n == 1:
        return products.reshape(groups, -1)
    if weights is None:
        weights = array_module(products).ones(columns * n, dtype=products.dtype)
    return weights.reshape(-1).astype(products.dtype, copy=False) @ products.reshape(groups, columns * n, -1)


def over_columns(mat: Array, sign: Array | None) -> Array:
    """Σᵥ s g[v, n], shape (1, N, *out); a single column is not copied."""
    return mat if mat.shape[0] == 1 and sign is None else weigh(mat, sign).sum(0, keepdims=True)


def outer_product(g: Array, u: Array, out: Array | None = None) -> Array:
    """Σₜ gₜ uₜᵀ: ``[..., T, O], [..., T, I] -> [..., O, I]``, into `out` if it is given."""
    xp = array_module(g)
    product = xp.multiply if g.shape[-2] == 1 else xp.matmul  # a product of many 1-column matrices is slow
    return product(g.swapaxes(-1, -2), u, out=out)


def outer_product_of_rows(g: Array, u: Array, out: Array) -> None:
    """g uᵀ of rows: ``[..., O], [..., I] -> [..., O, I]``, written to `out`."""
    kernels = (
        calls_of(out, numba_kernels()) if out.size > costs.COMPILED_OUTER and isinstance(out, np.ndarray) else None
    )
    o, i = out.shape[-2:]
    if kernels is not None and out.flags.c_contiguous and g.dtype == u.dtype == out.dtype:
        kernels.outer(g.reshape(-1, o), u.reshape(-1, i), out.reshape(-1, o, i))
    elif out.size > costs.COMPILED_OUTER and isinstance(out, np.ndarray):
        np.einsum("...o,...i->...oi", g, u, out=out, casting="same_kind")
    else:
        array_module(out).multiply(g[..., :, None], u[..., None, :], out=out)
