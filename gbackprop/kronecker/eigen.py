"""A symmetric block given by eigenvectors in Kronecker form and one eigenvalue for each entry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gbackprop.array import Array, array_module
from gbackprop.base.checks import check_array, check_same
from gbackprop.kronecker.block import on_own_device
from gbackprop.kronecker.entries import Entries, entries_of, on_both_sides
from gbackprop.kronecker.factors import powers
from gbackprop.kronecker.spectral import SpectralBlock


@dataclass(frozen=True, eq=False)
class EigenKronecker(SpectralBlock):
    """The block (QB ⊗ QA) diag(vec E) (QB ⊗ QA)ᵀ of a weight, or QB diag(E) QBᵀ of a bias.

    vec is row-major: entry (o, i) of E belongs to column o of QB and column i of QA. Products are QB (E ∘ (QBᵀ V QA))
    QAᵀ, V the weight's part of a vector as a matrix (O, I). With G groups of outputs all arrays begin with an axis of
    groups, and the block is block-diagonal, as `GroupedKronecker`.

    Attributes
    ----------
    QA : ndarray, shape (I, I) or (G, I, I), or None
        Orthogonal, of the inputs; None for a bias.
    QB : ndarray, shape (O, O) or (G, O, O)
        Orthogonal, of the outputs of a group.
    eigenvalues : ndarray, shape (O, I) or (G, O, I); (O,) or (G, O) for a bias
        E.
    channels_first : int, optional
        C of a weight (C, O, *kernel), see `Kronecker`.

    Raises
    ------
    TypeError
        If dtypes or devices differ.
    ValueError
        If the shapes do not fit together.

    Notes
    -----
    Source: George et al. 2018 (EKFAC's form).
    """

    source, multiplied = "QB", ("eigenvalues",)
    QA: Array | None
    QB: Array
    eigenvalues: Array
    channels_first: int | None = None

    def __post_init__(self) -> None:
        entries = self.entries
        expected = self.QB.shape[:-1] if self.QA is None else (*self.QB.shape[:-1], entries.inputs)
        check_array("eigenvalues", self.eigenvalues)
        if self.eigenvalues.shape != expected:
            raise ValueError(f"eigenvalues: expected shape {expected} for QB and QA, got {self.eigenvalues.shape}")
        check_same("eigenvalues", self.eigenvalues, "QB", self.QB)

    @cached_property
    def entries(self) -> Entries:
        return entries_of("QA", self.QA, "QB", self.QB, (2, 3), self.channels_first)

    @property
    def T(self) -> EigenKronecker:
        """The transpose: the block itself."""
        return self

    def eigh(self) -> EigenKronecker:
        """Return the block itself: its eigenvalues, in the order of QB ⊗ QA and not sorted, and its eigenvectors."""
        return self

    # --------------------------------------------------------------------------------------------- with axes of groups

    def _array(self) -> Array:
        return self.QB

    @property
    def _qa(self) -> Array:
        if self.QA is None:
            return array_module(self.QB).ones((self.entries.groups, 1, 1), dtype=self.dtype)
        return self.QA.reshape(self.entries.groups, *self.QA.shape[-2:])

    @property
    def _qb(self) -> Array:
        return self.QB.reshape(self.entries.groups, *self.QB.shape[-2:])

    @property
    def _values(self) -> Array:
        return self.eigenvalues.reshape(self.entries.groups, self.entries.outputs, self.entries.inputs)

    def _with_eigenvalues(self, values: Array) -> EigenKronecker:
        return replace(self, eigenvalues=values.reshape(self.eigenvalues.shape))

    def _multiply(self, v: Array) -> Array:
        qa, qb = self._qa, self._qb
        turned = on_both_sides(v, lambda rows: qb.swapaxes(1, 2) @ rows, lambda rows: qa.swapaxes(1, 2) @ rows)
        return on_both_sides(self._values[..., None] * turned, lambda rows: qb @ rows, lambda rows: qa @ rows)

    def _blocks(self) -> Array:
        g, o, i = self._values.shape
        vectors = (self._qb[:, :, None, :, None] * self._qa[:, None, :, None, :]).reshape(g, o * i, o * i)
        dense = (vectors * self._values.reshape(g, 1, o * i)) @ vectors.swapaxes(1, 2)
        return dense.reshape(g, o, i, o, i)

    def _diagonal(self) -> Array:
        return self._qb**2 @ self._values @ (self._qa**2).swapaxes(1, 2)

    def _in_basis(self, qa: Array, qb: Array) -> Array:
        """Return the diagonal of (qb ⊗ qa)ᵀ block (qb ⊗ qa), ``[G, O, I]``."""
        left, right = qb.swapaxes(1, 2) @ self._qb, qa.swapaxes(1, 2) @ self._qa
        return left**2 @ self._values @ (right**2).swapaxes(1, 2)

    def _inner(self, other: SpectralBlock) -> Array:
        return (self._values * other._in_basis(self._qa, self._qb)).sum()

    def _scaled(self, factor: float) -> EigenKronecker:
        return self._with_eigenvalues(self._values * factor)

    # ------------------------------------------------------------------------------------------------- its eigenvalues

    @on_own_device
    def trace(self) -> Array:
        """Compute the trace of the block, a scalar: the sum of the eigenvalues."""
        return self.eigenvalues.sum()

    def _spectrum(self) -> dict[str, Array]:
        return {f"the block of shape {self.shape}": self._values}

    def _decomposed(self) -> tuple[EigenKronecker, dict[str, Array]]:
        return self, self._spectrum()

    def _power(self, p: float) -> EigenKronecker:
        ((name, values),) = self._spectrum().items()
        return self._with_eigenvalues(powers(name, values, p))
