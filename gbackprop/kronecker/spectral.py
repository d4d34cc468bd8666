"""Functions of a symmetric block by its eigenvalues: determinants, inverses, powers, with and without damping."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number
from gbackprop.kronecker.block import Block, on_own_device
from gbackprop.kronecker.factors import above, check_positive, product

Method = Literal["factored", "exact"]


class SpectralBlock(Block):
    """Base class of symmetric blocks that have their eigenvectors in Kronecker form, QB ⊗ QA for each group.

    Parts that broadcast to ``[G, O, I]`` have the eigenvalues as their product; their names are for errors.
    """

    methods: ClassVar[tuple[str, ...]] = ("exact",)
    """The ways in which the block can be damped; the first is the default."""

    def _decomposed(self) -> tuple[Any, dict[str, Array]]:
        """Return the block as an `EigenKronecker`, and the parts of its eigenvalues."""
        raise NotImplementedError

    def _spectrum(self) -> dict[str, Array]:
        """Return the parts of the eigenvalues."""
        raise NotImplementedError

    def _damped(self, damping: float) -> Any:
        """Return the block with λ in its factors."""
        raise NotImplementedError

    def _inverse(self, damping: float) -> Any:
        """Return the inverse of the block with λ in its factors."""
        raise NotImplementedError

    def _solve(self, v: Array, damping: float, cap: float | None) -> Array:
        """Return the product of `_inverse` with ``[G, O, I, K]``."""
        raise NotImplementedError

    def _power(self, p: float) -> Any:
        """Return the p-th power of the block."""
        raise NotImplementedError

    def _in_basis(self, qa: Array, qb: Array) -> Array:
        """Return the diagonal of (qb ⊗ qa)ᵀ block (qb ⊗ qa), ``[G, O, I]``, of ``[G, I, I]`` and ``[G, O, O]``."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------- the damped inverse

    @on_own_device
    def damped(self, damping: float, method: Method | None = None) -> Any:
        """Return the damped block, whose inverse `inverse` gives.

        Parameters
        ----------
        damping : float
            λ, not negative.
        method : {"factored", "exact"}, optional
            Where λ goes, see `inverse`.

        Returns
        -------
        Block
            In the class of `inverse`'s.

        Raises
        ------
        ValueError
            If `damping` is negative or not finite, or the block has no such `method`.
        """
        damping, how = self._asked(damping, method)
        if how == "factored":
            return self._damped(damping)
        eigen, parts = self._decomposed()
        return eigen._with_eigenvalues(product(parts) + damping)

    @on_own_device
    def inverse(self, damping: float = 0.0, method: Method | None = None) -> Any:
        """Compute the inverse of the damped block, a block.

        Parameters
        ----------
        damping : float
            λ, not negative.
        method : {"factored", "exact"}, optional
            "exact": (block + λ I)⁻¹, an `EigenKronecker`. "factored", the default of blocks that have factors:
            (B + √λ/π I)⁻¹ ⊗ (A + π √λ I)⁻¹ with π² = (tr A / dim A) / (tr B / dim B), π = 1 where a trace is 0; for a
            bias (B + λ I)⁻¹; each group for itself. A block of the same class. Without damping both are the inverse.

        Returns
        -------
        Block
            Of the same class, or an `EigenKronecker`.

        Raises
        ------
        ValueError
            If `damping` is negative or not finite, or the block has no such `method`.
        numpy.linalg.LinAlgError
            If the block is singular even with the damping; the message names the factor.

        Notes
        -----
        Source: Martens & Grosse 2015 (factored Tikhonov damping); George et al. 2018 (exact, in the eigenbasis).
        """
        damping, how = self._asked(damping, method)
        if how == "factored":
            return self._inverse(damping)
        eigen, parts = self._decomposed()
        return eigen._with_eigenvalues(1 / self._shifted(parts, damping, None))

    @on_own_device
    def solve(self, v: Array, damping: float = 0.0, cap: float | None = None, method: Method | None = None) -> Array:
        """Multiply the inverse of the damped block by a vector or each column of a matrix: the paper's update rule.

        Parameters
        ----------
        v : ndarray, shape (D,), (D, K), or the parameter's shape
        damping : float
            λ, not negative.
        cap : float, optional
            The largest eigenvalue that the inverse of a factor, or of the block with "exact", may have; with it a
            singular factor is no error.
        method : {"factored", "exact"}, optional
            Where λ goes, see `inverse`.

        Returns
        -------
        ndarray, shape of `v`

        Raises
        ------
        TypeError
            If `v` is not an array of the block's dtype on its device, or `cap` is no number.
        ValueError
            If `damping` is negative or not finite, `cap` is not above 0, `v` has another shape or a number that is not
            finite, or the block has no such `method`.
        numpy.linalg.LinAlgError
            If the block is singular even with the damping, and there is no `cap`.

        Notes
        -----
        Source: as `inverse`; paper, update rule of its experiments.
        """
        damping, how = self._asked(damping, method)
        is_number = isinstance(cap, Real) and not isinstance(cap, bool)
        if cap is not None and (not is_number or not cap > 0):
            kind = ValueError if is_number else TypeError
            raise kind(f"cap: expected a number above 0, got {cap!r}")
        self.entries.check(v, self.source, self._array())
        split = self.entries.split(v)
        if how == "factored":
            solution = self._solve(split, damping, cap)
        else:
            eigen, parts = self._decomposed()
            solution = eigen._with_eigenvalues(1 / self._shifted(parts, damping, cap))._multiply(split)
        return self.entries.join(solution).reshape(v.shape)

    def _asked(self, damping: float, method: str | None) -> tuple[float, str]:
        if method is not None and method not in self.methods:
            expected = " or ".join(map(repr, self.methods))
            raise ValueError(f"method of {type(self).__name__}: expected {expected}, got {method!r}")
        return number("damping", damping, least=0), method or self.methods[0]

    def _shifted(self, parts: dict[str, Array], damping: float, cap: float | None) -> Array:
        """Return the eigenvalues with λ, ``[G, O, I]``: at least 1/cap, or checked to be above 0."""
        if cap is None and damping == 0:
            for name, part in parts.items():
                check_positive(name, part, None)
            return product(parts)
        return above(f"the block of shape {self.shape}", product(parts), damping or None, cap)

    # --------------------------------------------------------------------------------------- functions of eigenvalues

    @on_own_device
    def eigvalsh(self) -> Array:
        """Compute the eigenvalues of the block in ascending order, shape (D,)."""
        return array_module(self._array()).sort(product(self._spectrum()).ravel())

    @on_own_device
    def logdet(self, damping: float = 0.0) -> Array:
        """Compute log det(block + λ I), a scalar, from the eigenvalues.

        Parameters
        ----------
        damping : float
            λ, not negative.

        Raises
        ------
        ValueError
            If `damping` is negative or not finite.
        numpy.linalg.LinAlgError
            If the block is singular even with the damping, so that the determinant is 0; the message names the factor.
        """
        damping = number("damping", damping, least=0)
        xp, parts = array_module(self._array()), self._spectrum()
        values = self._shifted(parts, damping, None)
        # without damping log βα = log β + log α, also where βα would leave the range of the dtype
        logs = xp.log(values) if damping else sum(xp.log(part) for part in parts.values())
        return logs.sum()

    @on_own_device
    def det(self) -> Array:
        """Compute the determinant of the block, a scalar: 0 or infinite beyond the range of its dtype."""
        xp, parts = array_module(self._array()), self._spectrum()
        signs = product({name: xp.sign(part) for name, part in parts.items()})
        with np.errstate(divide="ignore", over="ignore"):
            logs = sum(xp.log(xp.abs(part.astype("float64"))) for part in parts.values())
            return (signs.prod() * xp.exp(logs.sum())).astype(self.dtype)

    @on_own_device
    def power(self, p: float) -> Any:
        """Compute the p-th power of the block, of the same class. Also written ``block ** p``.

        (B ⊗ A)ᵖ = Bᵖ ⊗ Aᵖ, by the eigenvalues of positive semi-definite factors: p = 1/2 gives the symmetric root, and
        p = −1/2 that of the inverse, with which Gaussian samples have the inverse as their covariance.

        Parameters
        ----------
        p : float

        Returns
        -------
        Block
            Of the same class.

        Raises
        ------
        ValueError
            If `p` is not a finite number.
        numpy.linalg.LinAlgError
            If p is negative and the block singular, or p is no integer and an eigenvalue is negative beyond rounding;
            the message names the factor.
        """
        return self._power(number("p", p))

    __pow__ = power
