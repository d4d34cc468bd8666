"""The Kronecker product that is closest to the block of each weight.

‖G − B ⊗ A‖ is that between the matrix R(G), whose rows are the blocks of G as vectors, and the rank-1 matrix vec B vec
Aᵀ (Van Loan, Pitsianis 1993): B and A are the largest singular vectors of R(G). The power iteration takes products
with R(G) alone, which are sums over the columns M[v, n] = Jᵀ s as matrices [O, I]:

    R(G) vec A = vec Σᵥₙ M A Mᵀ        R(G)ᵀ vec B = vec Σᵥₙ Mᵀ B M
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number, positive
from gbackprop.base.errors import NotConvergedWarning
from gbackprop.calculus.columns import STORED, StoredColumns
from gbackprop.calculus.views import Viewed, joint
from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.quantities.base import Scale, Statistic
from gbackprop.quantities.diagonal import Sampled
from gbackprop.quantities.sharing import A_TEXT, OPTIONS, Convention, joined_bias, lacks_joint


class NearestKronecker(Sampled):
    """The Kronecker product closest to the block in the Frobenius norm, a `Kronecker` for each parameter.

    Scale: min over A and B of ‖G − B ⊗ A‖, G = Σ c cᵀ over the columns of `fisher`: for "exact", G = R Σₙ Jₙᵀ Hₙ Jₙ. A
    and B are symmetric and positive semi-definite, and ‖A‖ = ‖B‖; B ⊗ A contains R. The block of a bias is exact, and
    A is None. Each group of a weight has the closest pair of factors for its own block.

    Parameters
    ----------
    fisher : {"exact", "mc", "empirical"}
        The columns, as for `KFAC`.
    joint_bias : bool
        As for `KFAC`.
    mc_samples, targets
        As for `KFAC`, for "mc".
    tolerance : float
        The iteration ends once ‖B ⊗ A‖, which grows, changes by at most this share in each group. The distance to G is
        then known to about as much, A and B to about its root.
    iterations : int
        The most steps, each two sums over all columns.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As for `KFAC`; if `tolerance` is not above 0, or `iterations` is not a positive integer.

    Warns
    -----
    NotConvergedWarning
        If that many steps were not enough for a parameter.

    Notes
    -----
    The start is A = Σᵥₙ Mᵀ M, so that the same columns give the same factors. Memory: g and u of all columns, as
    `KroneckerError` stores them.

    Source: Van Loan, Pitsianis 1993; Koroko et al. 2022 (without forming the block).
    """

    fixed = Sampled.fixed | OPTIONS
    name = "nearest_kronecker"
    scale = "argmin ‖G − B ⊗ A‖"
    finishes = "power iteration on the columns"
    merging = "the product closest to a sum of blocks is no function of those closest to each"

    def __init__(
        self,
        fisher: str = "exact",
        joint_bias: bool = False,
        mc_samples: int = 1,
        targets: Array | None = None,
        tolerance: float = 1e-12,
        iterations: int = 2000,
    ) -> None:
        super().__init__(mc_samples, targets)
        self.fisher, self.joint_bias = fisher, joint_bias
        known = ("mc", "exact", "empirical")
        self.convention = Convention("NearestKronecker", fisher, "bias", joint_bias, self.signal, known)
        self.tolerance = number("NearestKronecker, tolerance", tolerance, above=0)
        self.iterations = positive("NearestKronecker, iterations", iterations)

    def statistics(self) -> tuple[Statistic, ...]:
        both, signal = self.convention.joint_bias, self.convention.columns(self.signal)
        # A says which parameters are weights, and whether their layers have both
        a = Viewed.of("input_square", joint, A_TEXT["bias"], lacks_joint) if both else "input_square"
        return Statistic(a), Statistic(STORED[both], signal)

    @staticmethod
    def together(quantity: NearestKronecker, scale: Scale, found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Compute the block of each parameter that has one."""
        weights = {name for name, (a, _) in found.items() if a is not None}
        biases = {joined_bias(name) for name in weights} if quantity.convention.joint_bias else set()
        named = {name: columns for name, (_, columns) in found.items() if name not in biases}
        values, rest = {}, {}
        for name, columns in named.items():
            values[name], rest[name] = quantity.block(scale, columns, name in weights)
        slow = {name: change for name, change in rest.items() if change is not None}
        if slow:
            words = ", ".join(
                f"{name} (the last changed ‖B ⊗ A‖ by {change:.1e} of it)" for name, change in slow.items()
            )
            text = f"{quantity!r}: not converged after {quantity.iterations} iterations: {words}"
            warnings.warn(text, NotConvergedWarning, stacklevel=2)
        return values

    def block(
        self, scale: Scale, columns: StoredColumns, weight: bool
    ) -> tuple[Kronecker | GroupedKronecker, float | None]:
        """Compute the closest block of one parameter, and its last change if it did not converge.

        That of a parameter that is no weight is exact.
        """
        root = self.convention.of_squares(scale, 1.0) ** 0.5
        if not weight:
            return Kronecker(None, (root**2 * outer_products(columns, None)[0]).astype(scale.dtype)), None
        a, b, rest = nearest(columns, self.tolerance, self.iterations)
        a, b = (root * a).astype(scale.dtype), (root * b).astype(scale.dtype)
        channels = None if columns.axes is None else columns.axes[0]
        return Kronecker(a[0], b[0], channels) if len(b) == 1 else GroupedKronecker(a, b, channels), rest

    def __repr__(self) -> str:
        words = [f"fisher={self.convention.fisher!r}"] if self.convention.fisher != "exact" else []
        words += [super().__repr__().partition("(")[2][:-1]] if self.convention.fisher == "mc" else []
        words += ["joint_bias=True"] if self.convention.joint_bias else []
        return f"NearestKronecker({', '.join(words)})"


def nearest(columns: StoredColumns, tolerance: float, iterations: int) -> tuple[Array, Array, float | None]:
    """Return A (G, I, I) and B (G, O, O) of equal norms, and the largest change of a group if one did not converge."""
    a, change = inner_products(columns, None), None
    xp, before = array_module(a), 0.0 * _norm(a)
    for _ in range(iterations):
        b = outer_products(columns, a / _norm(a))
        b_norm = _norm(b)
        a = inner_products(columns, b / b_norm)
        total = _norm(a)
        change = float((abs(total - before) / total).max())
        if change <= tolerance:
            change = None
            break
        before = total
    value = xp.sqrt(_norm(a))  # the largest singular value, shared by both
    return a / _norm(a) * value, b / b_norm * value, change


def outer_products(columns: StoredColumns, a: Array | None) -> Array:
    """Σᵥₙ M A Mᵀ, shape (G, O, O); without A it is I."""
    return _sum(columns, lambda m: m if a is None else m @ a[:, None], True)


def inner_products(columns: StoredColumns, b: Array | None) -> Array:
    """Σᵥₙ Mᵀ B M, shape (G, I, I); without B it is I."""
    return _sum(columns, lambda m: m if b is None else b[:, None] @ m, False)


def _sum(columns: StoredColumns, multiply: Any, outputs: bool) -> Array:
    total: Any = 0
    for block in columns.blocks():
        m = block.matrices.swapaxes(0, 1)  # [G, k, O, I]
        left, right = multiply(m), m
        axis = 2 if outputs else 3
        xp = array_module(m)
        left, right = (xp.moveaxis(each, axis, 1).reshape(len(m), m.shape[axis], -1) for each in (left, right))
        total = total + left @ right.swapaxes(1, 2)
    return (total + total.swapaxes(1, 2)) / 2


def _norm(factor: Array) -> Array:
    """Return the Frobenius norm of each group's factor, (G, 1, 1); 1 where it is 0."""
    xp = array_module(factor)
    most = abs(factor).max((1, 2), keepdims=True)
    most = most + (most == 0)  # squares of small numbers would be 0
    return most * xp.sqrt(xp.maximum(((factor / most) ** 2).sum((1, 2), keepdims=True), 1))
