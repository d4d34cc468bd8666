"""Blocks given by two factors of each group, B ⊗ A."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from gbackprop.array import Array, array_module, is_array
from gbackprop.kronecker import factors
from gbackprop.kronecker.block import on_own_device
from gbackprop.kronecker.eigen import EigenKronecker
from gbackprop.kronecker.entries import Entries, entries_of, on_both_sides
from gbackprop.kronecker.spectral import SpectralBlock


def _floats(factor: Any) -> Any:
    """Return a factor as it is, or in float64 if it is an array of integers or booleans."""
    return factor.astype("float64") if is_array(factor) and factor.dtype.kind in "iub" else factor


class FactoredBlock(SpectralBlock):
    """Base class of blocks with a factor A of the inputs and B of the outputs, stacked over groups where there are any.

    Products, transposes, multiples, diagonals and norms are those of any factors; what eigenvalues give is that of
    symmetric ones, of which the lower triangles count.
    """

    multiplied = ("A", "B")
    methods = ("factored", "exact")
    axes: ClassVar[int]
    """The number of axes of a factor: 2, or 3 with one of groups."""

    A: Any
    B: Any
    channels_first: Any

    @cached_property
    def entries(self) -> Entries:
        return entries_of("A", _floats(self.A), "B", _floats(self.B), (self.axes,), self.channels_first)

    @property
    def T(self) -> Any:
        """The transpose: Bᵀ ⊗ Aᵀ."""
        return self._of(None if self.A is None else self._a.swapaxes(1, 2), self._b.swapaxes(1, 2))

    # ------------------------------------------------------------------------------------------- with an axis of groups

    def _array(self) -> Array:
        return _floats(self.B)

    @property
    def _a(self) -> Array:
        if self.A is None:
            return array_module(self.B).ones((self.entries.groups, 1, 1), dtype=self.dtype)
        return _floats(self.A).reshape(self.entries.groups, *self.A.shape[-2:])

    @property
    def _b(self) -> Array:
        return _floats(self.B).reshape(self.entries.groups, *self.B.shape[-2:])

    def _checked(self) -> tuple[Array | None, Array]:
        """Return A and B as they are, once it is seen that they are the factors of a block."""
        return None if self.A is None else self._a.reshape(self.A.shape), self._b.reshape(self.B.shape)

    def _of(self, a: Array | None, b: Array) -> Any:
        """Return the block of other factors, given with an axis of groups."""
        shapes: dict[str, Any] = {"A": None if a is None else a.reshape(self.A.shape), "B": b.reshape(self.B.shape)}
        return replace(self, **shapes)  # type: ignore[type-var]  # subclasses are dataclasses

    def _pair(self) -> tuple[Array, Array]:
        return self._a, self._b

    def _multiply(self, v: Array) -> Array:
        a, b = self._a, self._b
        return on_both_sides(v, lambda rows: b @ rows, lambda rows: a @ rows)

    def _blocks(self) -> Array:
        return self._b[:, :, None, :, None] * self._a[:, None, :, None, :]

    def _diagonal(self) -> Array:
        return self._b.diagonal(0, 1, 2)[:, :, None] * self._a.diagonal(0, 1, 2)[:, None, :]

    def _in_basis(self, qa: Array, qb: Array) -> Array:
        b, a = ((q * (factor @ q)).sum(1) for q, factor in ((qb, self._b), (qa, self._a)))
        return b[:, :, None] * a[:, None, :]

    def _inner(self, other: SpectralBlock) -> Array:
        if not isinstance(other, FactoredBlock):
            return other._inner(self)
        return ((self._b * other._b).sum((1, 2)) * (self._a * other._a).sum((1, 2))).sum()

    def _scaled(self, factor: float) -> Any:
        return self._of(None if self.A is None else self._a, self._b * factor)

    # -------------------------------------------------------------------------------------------------- the eigenvalues

    @on_own_device
    def trace(self) -> Array:
        """Compute the trace of the block, a scalar: tr B tr A, summed over groups."""
        return (self._b.trace(0, 1, 2) * self._a.trace(0, 1, 2)).sum()

    @on_own_device
    def eigh(self) -> EigenKronecker:
        """Compute eigenvalues and eigenvectors: β[o] α[i] and column o of QB ⊗ column i of QA.

        Returns
        -------
        EigenKronecker
            The same block: ``eigenvalues`` has β[o] α[i] at (o, i), ``QA`` and ``QB`` the factors' eigenvectors.
        """
        return self._decomposed()[0]

    def _decomposed(self) -> tuple[EigenKronecker, dict[str, Array]]:
        eigh = array_module(self.B).linalg.eigh
        a, b = self._checked()
        beta, qb = eigh(b)
        alpha, qa = (None, None) if a is None else eigh(a)
        parts = self._parts(alpha, beta)
        values = factors.product(parts)
        shape = self.B.shape[:-1] if self.A is None else (*self.B.shape[:-1], self.A.shape[-1])
        return EigenKronecker(qa, qb, values.reshape(shape), self.channels_first), parts

    def _spectrum(self) -> dict[str, Array]:
        eigvalsh = array_module(self.B).linalg.eigvalsh
        a, b = self._checked()
        return self._parts(None if a is None else eigvalsh(a), eigvalsh(b))

    def _parts(self, alpha: Array | None, beta: Array) -> dict[str, Array]:
        g, o, i = self.entries.groups, self.entries.outputs, self.entries.inputs
        parts = {factors.described("B", self.B): beta.reshape(g, o, 1)}
        return parts if alpha is None else {factors.described("A", self.A): alpha.reshape(g, 1, i)} | parts

    def _power(self, p: float) -> Any:
        a = None if self.A is None else factors.power("A", self._a, p)
        return self._of(a, factors.power("B", self._b, p))

    # ----------------------------------------------------------------------------------------------- λ in the factors

    def _damped(self, damping: float) -> Any:
        a, b = self._shares(damping)
        return self._of(None if self.A is None else factors.shifted(self._a, a), factors.shifted(self._b, b))

    def _inverse(self, damping: float) -> Any:
        a, b = self._shares(damping)
        inverse_a = None if self.A is None else factors.inverse("A", self._a, a)
        return self._of(inverse_a, factors.inverse("B", self._b, b))

    def _solve(self, v: Array, damping: float, cap: float | None) -> Array:
        a, b = self._shares(damping)

        def inputs(rows: Array) -> Array:
            return rows if self.A is None else factors.solve("A", self._a, a, rows, cap)

        return on_both_sides(v, lambda rows: factors.solve("B", self._b, b, rows, cap), inputs)

    def _shares(self, damping: float) -> tuple[Array | None, Array | None]:
        """Return what is added to the diagonals of A and B, ``[G]``: π √λ and √λ/π, or λ to a bias's B."""
        xp, groups = array_module(self.B), self.entries.groups
        if damping == 0:
            return None, None
        if self.A is None:
            return None, xp.full(groups, damping, dtype=self.dtype)
        pi = self._pi()
        return (pi * damping**0.5).astype(self.dtype), (damping**0.5 / pi).astype(self.dtype)

    def _pi(self) -> Array:
        """π of each group, ``[G]``: √((tr A / dim A) / (tr B / dim B)), and 1 where a trace is not above 0."""
        xp = array_module(self.B)
        a, b = (factor.trace(0, 1, 2).astype("float64") / factor.shape[1] for factor in (self._a, self._b))
        above = (a > 0) & (b > 0)
        return xp.where(above, a / xp.where(above, b, 1), 1) ** 0.5
