"""Arithmetic operations of NumPy calls, from the shapes of their arrays.

A multiplication and an addition are two operations, as in the counter of torch, which counts products alone. Here each
number that an elementwise function gives is one, be it a sum, a comparison or an exponential; a reduction has one for
each number that it takes; what moves, copies or fills has none. Decompositions have the leading term in Golub and Van
Loan, Matrix Computations, of an algorithm that gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import Any

import numpy as np
from scipy import special

from gbackprop.base.errors import UnsupportedError

MOVES = (
    "arange", "array_split", "ascontiguousarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to",
    "concat", "concatenate", "copy", "diagonal", "dsplit", "empty", "expand_dims", "eye", "flip", "fliplr", "flipud",
    "full", "getitem", "hsplit", "hstack", "identity", "linalg.diagonal", "matrix_transpose", "moveaxis", "ones",
    "permute_dims", "ravel", "real", "repeat", "reshape", "roll", "rollaxis", "rot90", "setitem", "sliding_window_view",
    "split", "squeeze", "stack", "swapaxes", "take", "take_along_axis", "tile", "transpose", "tril", "triu", "unstack",
    "vsplit", "vstack", "zeros",
)  # fmt: skip
"""Functions without arithmetic: the numbers of their results are those of their arguments, or are given."""

PADDED = ("constant", "edge", "reflect", "symmetric", "wrap", "empty")

TAKING = ("all", "amax", "amin", "any", "argmax", "argmin", "cumprod", "cumsum", "max", "min", "prod", "sum")
"""Functions with an operation for each number that they take."""


def operations(name: str, out: list[np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the arithmetic operations of a call of NumPy's function, or SciPy's, of this name."""
    rule, single = RULES.get(name), name.removesuffix(".reduce")
    ufunc = getattr(np, single, None) or getattr(special, single, None)
    if rule is None and isinstance(ufunc, np.ufunc) and ufunc.signature is None:
        return sum(each.size for each in (out if single == name else args[:1]))
    count = rule and rule(out[0], *args, **kwargs)
    if count is None:
        raise UnsupportedError(f"cost: {name} with these arguments has no count; expected a rule in {__name__}")
    return count


def _product(y: np.ndarray, a: np.ndarray, *_: Any, axes: Any = None, **__: Any) -> int | None:
    """Return 2 m n k."""
    return 2 * y.size * (a.shape or (1,))[-1] if axes is None else None


def _einsum(y: np.ndarray, letters: Any, *arrays: np.ndarray, **_: Any) -> int | None:
    """Return a multiplication for each combination of letters, if there are two arrays, and an addition, if it sums."""
    if not isinstance(letters, str) or "." in letters or len(arrays) > 2:
        return None
    terms = letters.replace(" ", "").partition("->")[0].split(",")
    axes = [pair for term, a in zip(terms, arrays, strict=True) for pair in zip(term, a.shape, strict=True)]
    sizes = dict(sorted(axes, key=lambda pair: pair[1]))  # of an axis of size 1 and another, the other
    return prod(sizes.values()) * (len(arrays) - 1 + (len(sizes) > y.ndim))


def _svd(y: np.ndarray, a: np.ndarray, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> int | None:
    """Return 14 m n² + 8 n³ for the n singular vectors on both sides, m ≥ n: Golub and Reinsch."""
    m, n = max(a.shape[-2:]), min(a.shape[-2:])
    known = compute_uv and (m == n or not full_matrices)
    return prod(a.shape[:-2]) * (14 * m * n * n + 8 * n**3) if known else None


RULES: dict[str, Callable[..., int | None]] = {
    **dict.fromkeys(MOVES, lambda *_, **__: 0),
    **dict.fromkeys(TAKING, lambda y, a, *_, **__: a.size),
    **dict.fromkeys(("where", "clip", "outer", "round"), lambda y, *_, **__: y.size),
    **dict.fromkeys(("matmul", "dot", "inner"), _product),
    "tensordot": lambda y, a, b, *_, **__: 2 * y.size * isqrt(a.size * b.size // max(y.size, 1)),  # k² = |a| |b| / |y|
    "einsum": _einsum,
    "pad": lambda y, a, width, mode="constant", **_: 0 if mode in PADDED else None,
    "mean": lambda y, a, *_, **__: a.size + y.size,
    "var": lambda y, a, *_, **__: 4 * a.size + 2 * y.size,  # sum, subtract, square, sum; and two divisions
    "std": lambda y, a, *_, **__: 4 * a.size + 3 * y.size,
    "sort": lambda y, a, axis=-1, **_: y.size * (y.shape[-1 if axis is None else axis] - 1).bit_length(),  # n log₂ n
    "linalg.eigh": lambda y, a, **_: 9 * a.size * a.shape[-1],
    "linalg.svd": _svd,
    "linalg.cholesky": lambda y, a, **_: a.size * a.shape[-1] // 3,
    "linalg.inv": lambda y, a: 2 * a.size * a.shape[-1],
    "linalg.solve": lambda y, a, b: 2 * a.size * a.shape[-1] // 3 + 2 * a.shape[-1] * y.size,
}
"""Rules by the function's name, from the first result and the arguments: None if these have no count."""
