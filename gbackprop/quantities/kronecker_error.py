"""The distance of an approximation from the block of the GGN that it stands for, without forming the block.

With the exact columns c of the block, G = Σ c cᵀ, and an approximation K,

    ‖G‖² = Σ (cᵀ c')² over all pairs        ⟨G, K⟩ = Σ cᵀ K c        ‖G − K‖² = ‖G‖² − 2 ⟨G, K⟩ + ‖K‖²

Where the difference is small the last sum loses its digits: there rows of G − K are formed, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy
from gbackprop.base.checks import generator, positive
from gbackprop.calculus.columns import ENTRIES, STORED, StoredColumns, grams
from gbackprop.calculus.signals import EXACT
from gbackprop.kronecker import Block, EigenKronecker
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.diagonal import DiagGGN, DiagGGNMC
from gbackprop.quantities.kronecker import Factors
from gbackprop.quantities.nearest import NearestKronecker

LOST = 1e-8
"""The share ‖G − K‖² / ‖G‖² below which the difference of squares has too few digits."""


@dataclass(frozen=True)
class BlockError:
    """The distance between the block G of one parameter and its approximation K, in the Frobenius norm.

    Attributes
    ----------
    relative : float
        ‖G − K‖ / ‖G‖. NaN where ‖G‖² was estimated so roughly that ‖G − K‖² would be negative: take more columns.
    best_scale : float
        ⟨G, K⟩ / ⟨K, K⟩, the number by which K would have to be multiplied to be closest to G.
    norm, approximation_norm : float
        ‖G‖ and ‖K‖.
    inner : float
        ⟨G, K⟩.
    standard_error : float or None
        Of `relative`, where ‖G‖² was estimated; None where it is exact.
    """

    relative: float
    best_scale: float
    norm: float
    approximation_norm: float
    inner: float
    standard_error: float | None = None


class KroneckerError(Quantity):
    """The error of an approximation of the GGN's blocks, a `BlockError` for each parameter.

    Scale: ‖G − K‖ / ‖G‖, free of R where K has the factor R that G has. G is the exact block of the GGN, R Σₙ Jₙᵀ Hₙ
    Jₙ, also where K is a Monte-Carlo estimate or of another matrix; with `joint_bias` that of [W, b].

    Asked for together with the quantity, `result.error(quantity)` returns its values.

    Parameters
    ----------
    of : Quantity
        `KFAC`, `KFLR`, `KFRA`, `EKFAC`, `NearestKronecker`, `DiagGGN` or `DiagGGNMC`. It need not be asked for itself.
    columns : int, optional
        m: ‖G‖² is estimated from m of the N C columns, drawn without replacement, and all of their products with all
        others. The estimate is unbiased, its standard error is stated. All by default.
    rng : None, int or numpy.random.Generator
        Source of that draw.

    Raises
    ------
    TypeError
        If `of` is none of these.
    ValueError
        If `columns` is not a positive integer.

    Notes
    -----
    Memory: g and u of all N C columns, N (C T O + T I) numbers for a weight, are stored until the end of the call, and
    are not part of the estimate for a `memory` budget. Time: (N C)² (O + I) multiplications for a weight with one
    position, else (N C)² O I; with `columns` m N C in place of (N C)²: take it where these are too many. Where
    ‖G − K‖ / ‖G‖ is below 1e-4, N C (O I)² more, for digits that the difference of squares has lost.
    """

    name = "kronecker_error"
    scale = "‖G − K‖ / ‖G‖"
    finishes = "from the values of the approximation, and all columns"
    merging = "a block of all samples has products of columns of different batches in its norm"

    def __init__(self, of: Quantity, columns: int | None = None, rng: int | np.random.Generator | None = None) -> None:
        if not isinstance(of, Factors | DiagGGN | DiagGGNMC | NearestKronecker):
            kinds = "KFAC, KFLR, KFRA, EKFAC, NearestKronecker, DiagGGN or DiagGGNMC"
            raise TypeError(f"KroneckerError, of: expected a {kinds}, got {of!r}")
        if columns is not None:
            positive("KroneckerError, columns", columns)
        generator(rng)  # raises an error for what is none
        self.of, self.columns, self.rng = of, columns, rng

    def statistics(self) -> tuple[Statistic, ...]:
        convention = getattr(self.of, "convention", None)
        both = bool(convention and convention.joint_bias)
        return (*self.of.statistics(), Statistic(STORED[both], EXACT))

    @staticmethod
    def together(quantity: KroneckerError, scale: Scale, found: Mapping[str, Sequence[Any]]) -> Any:
        """Compute the approximation, or the quantity of the sweep that gives it, and its error."""
        own = {name: values[:-1] for name, values in found.items()}
        columns = {name: values[-1] for name, values in found.items()}
        return _compared(quantity, columns, _value(quantity.of, scale, own))

    def __repr__(self) -> str:
        return f"KroneckerError({self.of!r}{'' if self.columns is None else f', columns={self.columns}'})"


class _After(Quantity):
    """The error of what a further sweep gives."""

    name = KroneckerError.name

    def __init__(self, error: KroneckerError, of: Quantity, columns: Mapping[str, StoredColumns]) -> None:
        self.error, self.of, self.columns = error, of, columns

    def statistics(self) -> tuple[Statistic, ...]:
        return self.of.statistics()

    @staticmethod
    def together(quantity: _After, scale: Scale, found: Mapping[str, Sequence[Any]]) -> Any:
        return _compared(quantity.error, quantity.columns, _value(quantity.of, scale, found))


def _value(quantity: Quantity, scale: Scale, found: Mapping[str, Sequence[Any]]) -> Any:
    """Compute the results of a quantity."""
    if quantity.together:
        return quantity.together(quantity, scale, found)
    return {name: quantity.finish(scale, *values) for name, values in found.items()}


def _compared(error: KroneckerError, columns: Mapping[str, StoredColumns], value: Any) -> Any:
    """Compare each approximation with its block; where a further sweep gives it, return the quantity of that."""
    if isinstance(value, Quantity):
        return _After(error, value, columns)
    rng = generator(error.rng)
    return {name: block_error(columns[name], each, error.columns, rng) for name, each in value.items()}


def block_error(columns: StoredColumns, approximation: Any, chosen: int | None, rng: np.random.Generator) -> BlockError:
    """Compute the error of one approximation."""
    columns = columns.scaled()
    multiply, square = product_of(approximation, columns)
    inner = sum((block.matrices * multiply(block.matrices)).sum() for block in columns.blocks())
    whole = square_norm(columns) if chosen is None else square
    norm, inner, square, unit = asnumpy(array_module(square).stack([whole, inner, square, columns.unit**2])).tolist()
    deviation = None
    if chosen is not None:
        norm, deviation = estimated_norm(columns, chosen, rng)
    difference = norm - 2 * inner + square
    if not deviation and difference < LOST * norm:
        difference = float(small_difference(columns, multiply))
    share = difference / norm if norm else (np.inf if square else 0.0)
    relative, spread = float(share**0.5) if share >= 0 else np.nan, None  # below 0: estimated from too few columns
    if deviation is not None:  # d relative / d ‖G‖² = (2 ⟨G, K⟩ − ‖K‖²) / (2 ‖G‖⁴ relative)
        known = norm > 0 and relative > 0
        spread = abs(2 * inner - square) / norm / norm / (2 * relative) * deviation if known else np.inf
    best = inner / square if square else np.nan
    return BlockError(relative, best, unit * norm**0.5, unit * square**0.5, unit * (unit * inner), spread)


def square_norm(columns: StoredColumns) -> Array:
    """‖G‖² = Σ ⟨c, c'⟩² over all pairs of columns; pairs c, c' and c', c are counted at once."""
    total: Any = 0
    for i, one in enumerate(columns.blocks()):
        for j, other in enumerate(columns.blocks()):
            if j <= i:
                total = total + (1 + (j < i)) * (grams(one, other) ** 2).sum()
    return total


def estimated_norm(columns: StoredColumns, chosen: int, rng: np.random.Generator) -> tuple[float, float]:
    """Estimate ‖G‖² from m of the M columns, M/m Σᵢ Σⱼ ⟨cᵢ, cⱼ⟩², and return its standard error, too.

    The rows' sums yᵢ are drawn without replacement: the variance is M² (1 − m/M) s² / m, s² that of the yᵢ drawn.
    """
    count = columns.shape[0]
    chosen = min(chosen, count)
    which = np.sort(rng.choice(count, chosen, replace=False))
    chosen_blocks = columns.chosen(which).blocks()
    rows = [sum((grams(one, other) ** 2).sum(1) for other in columns.blocks()) for one in chosen_blocks]
    y = asnumpy(array_module(rows[0]).concatenate(rows))
    spread, rest = y.var(ddof=1) if chosen > 1 else np.inf, 1 - chosen / count
    return float(count * y.mean()), float(count * (rest * spread / chosen) ** 0.5) if rest else 0.0


def small_difference(columns: StoredColumns, multiply: Callable[[Array], Array]) -> Array:
    """‖G − K‖², a few rows of both at a time: row d of K is K e_d, of G Σ c[d] cᵀ."""
    _, groups, o, i = columns.shape
    size, total = groups * o * i, columns.parts[0][0][:0].astype("float64").sum()
    xp = array_module(columns.parts[0][0])
    step = max(1, ENTRIES // size)
    for start in range(0, size, step):
        rows = slice(start, min(start + step, size))
        unit = xp.zeros((rows.stop - start, size))
        unit[xp.arange(len(unit)), xp.arange(start, rows.stop)] = 1
        difference = -multiply(unit.reshape(-1, groups, o, i)).reshape(len(unit), size)
        for block in columns.blocks():
            c = block.matrices.reshape(-1, size)
            difference += c[:, rows].T @ c
        total = total + (difference**2).sum()
    return total


def product_of(approximation: Any, columns: StoredColumns) -> tuple[Callable[[Array], Array], Array]:
    """Return the product of an approximation with matrices (k, G, O, I), and its squared norm, in the columns' unit."""
    if not isinstance(approximation, Block):
        diagonal = _as_matrices(approximation.astype("float64"), columns) / columns.unit**2
        return lambda c: c * diagonal, (diagonal**2).sum()
    size, block = approximation._in_double()._in_unit()  # so that neither factor leaves the range
    block = block._scaled(size / columns.unit / columns.unit)
    if isinstance(block, EigenKronecker):
        qa, qb, values = block._qa, block._qb, block._values
        left, right = qb.swapaxes(1, 2), qa.swapaxes(1, 2)
        return lambda c: qb @ ((left @ c @ qa) * values) @ right, block._inner(block)
    a, b = block._a, block._b
    return lambda c: b @ c @ a, block._inner(block)


def _as_matrices(value: Array, columns: StoredColumns) -> Array:
    """Return what has a parameter's shape as matrices (G, O, I), as the columns are."""
    _, groups, o, i = columns.shape
    if columns.axes is None:
        return value.reshape(groups, o, i)
    channels, places = columns.axes
    return value.reshape(groups, channels, o, places).swapaxes(1, 2).reshape(groups, o, i)
