"""Kronecker factors as other libraries scale them.

Ours: A is a mean over samples, B contains R and the loss's weight c (1/C where "mean" of squared error is also one over
C outputs, `Loss.summed_weight`). With ℓ = c ℓ', B of "empirical" has c² in it, and that of the others c. The table's
entries multiply A and B:

============ ============================ ==================== ========================================================
library      sharing                      A                    B
============ ============================ ==================== ========================================================
backpack     "bias"                       1                    1
curvlinops   "expand", "reduce"           1                    1; 1/c for "empirical"
kfac-jax     "expand"                     1                    1/(N R c); 1/(N R c²) for "empirical": a mean over
                                                               samples of ℓ' in place of L
laplace      "expand", "reduce"           √h                   √h/(R c), √h/(R c²) for "empirical": the sum over samples
                                                               of h ℓ', h = ½ for squared error and 1 else; of a bias h
                                                               in place of √h
============ ============================ ==================== ========================================================

With "forward-only" B is I in curvlinops too. kfac-jax stores other numbers beside the factors of shared weights: its
row is for vectors, where its blocks are those of `joint_bias`. ``benchmarks/conventions.py`` holds the table against
BackPACK 1.7.1, curvlinops 3.0.1, kfac-jax 0.0.6 and laplace-torch 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gbackprop.kronecker import GroupedKronecker, Kronecker, with_factors
from gbackprop.losses import Loss, MSELoss
from gbackprop.quantities.base import Quantity, Scale
from gbackprop.quantities.kronecker import KFAC, KFLR, KFRA

Block = Kronecker | GroupedKronecker


@dataclass(frozen=True)
class Setting:
    """What factors depend on.

    Attributes
    ----------
    batch : int
        N.
    factor : float
        R.
    weight : float
        c.
    empirical : bool
        Whether the columns are ∇ℓₙ.
    likelihood : float
        h, by which laplace multiplies ℓ'.
    """

    batch: int
    factor: float
    weight: float
    empirical: bool
    likelihood: float

    @property
    def without_weight(self) -> float:
        """What turns B of ℓ into that of ℓ': 1/c, or 1/c² for squares of ∇ℓₙ."""
        return 1 / self.weight**2 if self.empirical else 1 / self.weight


@dataclass(frozen=True)
class Library:
    """How a library scales.

    Attributes
    ----------
    sharing, fisher : tuple of str
        The conventions that it has.
    scales : callable
        Returns the numbers by which A and B are multiplied, from the setting and whether there is an A.
    """

    sharing: tuple[str, ...]
    fisher: tuple[str, ...]
    scales: Callable[[Setting, bool], tuple[float, float]]


def _laplace(s: Setting, weight: bool) -> tuple[float, float]:
    root = s.likelihood**0.5 if weight else s.likelihood
    return root, root * s.without_weight / s.factor


def _curvlinops(s: Setting, weight: bool) -> tuple[float, float]:
    return 1.0, s.without_weight * s.weight  # 1 but for "empirical"


def _kfac_jax(s: Setting, weight: bool) -> tuple[float, float]:
    return 1.0, s.without_weight / (s.batch * s.factor)


CURVATURE = ("mc", "exact", "empirical")

LIBRARIES = {
    "backpack": Library(("bias",), ("mc", "exact"), lambda s, weight: (1.0, 1.0)),
    "curvlinops": Library(("expand", "reduce"), (*CURVATURE, "forward-only"), _curvlinops),
    "kfac-jax": Library(("expand",), CURVATURE, _kfac_jax),
    "laplace": Library(("expand", "reduce"), CURVATURE, _laplace),
}
"""The table."""


def scaled(
    quantity: Quantity, values: Mapping[str, Block], library: str, scale: Scale, loss: Loss, features: tuple[int, ...]
) -> dict[str, Block]:
    """Return Kronecker factors as a library scales them: see `Result.scaled`."""
    if library not in LIBRARIES:
        raise ValueError(f"scaled, library: expected one of {', '.join(map(repr, LIBRARIES))}, got {library!r}")
    if not isinstance(quantity, KFAC | KFLR | KFRA):
        raise TypeError(f"scaled: expected KFAC, KFLR or KFRA, got {quantity!r}")
    entry, convention = LIBRARIES[library], quantity.convention
    sharing = convention.sharing if convention else "bias"
    fisher = convention.fisher if convention else "mc" if isinstance(quantity, KFAC) else "exact"
    averaged = isinstance(quantity, KFRA) and library != "backpack"
    if sharing not in entry.sharing or fisher not in entry.fisher or averaged:
        raise ValueError(
            f"scaled: {library} has sharing in {entry.sharing} and fisher in {entry.fisher}, got {quantity!r}; ask for "
            "KFAC(fisher=…, sharing=…): with one position sharing makes no difference"
        )
    weight, squared = loss.summed_weight(features), isinstance(loss, MSELoss)
    setting = Setting(scale.batch, scale.factor, weight, fisher == "empirical", 0.5 if squared else 1.0)
    return {name: _times(value, *entry.scales(setting, value.A is not None)) for name, value in values.items()}


def _times(block: Block, a: float, b: float) -> Block:
    """Return a block with other multiples of its factors."""
    return with_factors(block, None if block.A is None else block.A * a, block.B * b)
