"""Results as other libraries scale them: the table of factors between theirs and ours.

With ℓ = c ℓ', c the loss's weight (1/C where "mean" of squared error is also one over C outputs, `Loss.summed_weight`),
each factor is a product of powers of N, R, c and h. kfac-jax takes means over samples of ℓ' in place of L, and since
version 0.0.8 divides what is "empirical" by N once more; laplace sums over samples of h ℓ', h = ½ for squared error and
1 else. BackPACK and curvlinops have R and c where ours are, but for
BackPACK's second moments, of R ∇ℓₙ, and curvlinops' "empirical" columns, which have one c.

The Kronecker factors of a weight share the factor of their block: A has a part of it, B the rest, and of a bias B has
all. `LIBRARIES` is the table, and docs/derivations/README.md shows it.

kfac-jax stores other numbers beside the factors of shared weights: its column is for vectors, where its blocks are
those of `joint_bias`. ``benchmarks/conventions.py`` holds the table against BackPACK 1.7.1, curvlinops 3.0.1, kfac-jax
0.0.8 and laplace-torch 0.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from gbackprop.calculus.several import of_inputs
from gbackprop.kronecker import GroupedKronecker, Kronecker, with_factors
from gbackprop.losses import Loss, MSELoss
from gbackprop.quantities.base import Quantity, Scale
from gbackprop.quantities.diagonal import BatchDiagGGN, BatchDiagHessian, DiagGGN, DiagGGNMC, DiagHessian
from gbackprop.quantities.ekfac import EKFAC
from gbackprop.quantities.first_order import BatchGrad, BatchL2Grad, SecondMoment, Variance
from gbackprop.quantities.kronecker import KFAC, KFLR, KFRA


@dataclass(frozen=True)
class Powers:
    """N, R, c and h, each to a power; without powers 1."""

    n: float = 0
    r: float = 0
    c: float = 0
    h: float = 0

    def __call__(self, n: int, r: float, c: float, h: float) -> float:
        """Return the number."""
        return float(n**self.n * r**self.r * c**self.c * h**self.h)

    def __truediv__(self, other: Powers) -> Powers:
        return Powers(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        powers = list(zip("NRch", astuple(self), strict=True))
        above = [_power(name, p) for name, p in powers if p > 0]
        below = [_power(name, -p) for name, p in powers if p < 0]
        shown = " ".join(above) or "1"
        return shown if not below else f"{shown}/({' '.join(below)})" if len(below) > 1 else f"{shown}/{below[0]}"


def _power(name: str, power: float) -> str:
    return {0.5: f"√{name}", 1: name, 2: f"{name}²"}[power]


ONE = Powers()


@dataclass(frozen=True)
class Library:
    """The quantities that a library has, and their scales."""

    factors: dict[type[Quantity], Powers]  # by which our result is multiplied
    names: dict[type[Quantity], str]  # where the library has another name than ours
    sharing: tuple[str, ...] = ("expand", "reduce")  # the conventions of Kronecker factors that it has
    fisher: tuple[str, ...] = ("mc", "exact", "empirical")
    a: Powers = ONE  # the part of a block's factor that belongs to A
    of_vectors: tuple[str, ...] = ()  # the conventions of fisher that are ours for outputs (N, C) alone
    empirical: Powers = Powers(c=1)  # by which the factor of "empirical" columns is divided


_BACKPACK = {
    BatchGrad: "grad_batch", BatchL2Grad: "batch_l2", SecondMoment: "sum_grad_squared", Variance: "variance",
    DiagGGN: "diag_ggn_exact", BatchDiagGGN: "diag_ggn_exact_batch", DiagGGNMC: "diag_ggn_mc", DiagHessian: "diag_h",
    BatchDiagHessian: "diag_h_batch", KFAC: "kfac", KFLR: "kflr", KFRA: "kfra",
}  # fmt: skip
_OF_SUMS, _OF_MEANS = Powers(r=-1, c=-1, h=1), Powers(n=-1, r=-1, c=-1)

LIBRARIES = {
    "backpack": Library(
        dict.fromkeys(_BACKPACK, ONE) | {SecondMoment: Powers(n=1, r=2), Variance: Powers(r=2)},
        _BACKPACK,
        sharing=("bias",),
        fisher=("mc", "exact"),
    ),
    "curvlinops": Library(
        dict.fromkeys((KFAC, EKFAC), ONE),
        {KFAC: "KFACLinearOperator", EKFAC: "EKFACLinearOperator"},
        fisher=("mc", "exact", "empirical", "forward-only"),
        of_vectors=("mc", "exact"),
    ),
    "kfac-jax": Library(
        dict.fromkeys((DiagGGN, DiagGGNMC, KFAC), _OF_MEANS) | {SecondMoment: Powers(n=-1, c=-2)},
        dict.fromkeys((DiagGGN, DiagGGNMC, SecondMoment), "DenseDiagonal") | {KFAC: "DenseTwoKroneckerFactored"},
        sharing=("expand",),
        empirical=Powers(n=1, c=1),
    ),
    "laplace": Library(
        dict.fromkeys((DiagGGN, DiagGGNMC, KFAC), _OF_SUMS)
        | {BatchGrad: Powers(r=-1, c=-1), SecondMoment: Powers(n=1, c=-2, h=1)},
        {
            BatchGrad: "EFInterface.gradients", SecondMoment: "EFInterface.diag", DiagGGN: "GGNInterface.diag",
            DiagGGNMC: "GGNInterface.diag", KFAC: "kron",
        },
        a=Powers(h=0.5),
    ),
}  # fmt: skip
"""The table."""


def scaled(
    quantity: Quantity, values: Mapping[str, Any], library: str, scale: Scale, loss: Loss, features: tuple[int, ...]
) -> dict[str, Any]:
    """Return a quantity's values as a library scales them: see `Result.scaled`."""
    if not isinstance(library, str) or library not in LIBRARIES:
        raise ValueError(f"scaled, library: expected one of {', '.join(map(repr, LIBRARIES))}, got {library!r}")
    entry = LIBRARIES[library]
    if type(quantity) not in entry.factors:
        known = ", ".join(kind.__name__ for kind in entry.factors)
        raise ValueError(f"scaled: {library} has {known}, got {quantity!r}{_hint(quantity)}")
    factor = entry.factors[type(quantity)]
    if isinstance(quantity, KFAC | KFLR | KFRA | EKFAC):
        sharing, fisher = _convention(quantity)
        if sharing not in entry.sharing or fisher not in entry.fisher:
            raise ValueError(
                f"scaled: {library} has sharing in {entry.sharing} and fisher in {entry.fisher}, got {quantity!r}"
                f"{_hint(quantity)}"
            )
        if len(features) > 1 and fisher in entry.of_vectors:
            words = f"with fisher in {entry.of_vectors} expected outputs (N, C), as {library}'s B is another for others"
            raise ValueError(f"scaled: {words}, got {quantity!r} of outputs {('N', *features)}")
        factor = factor / entry.empirical if fisher == "empirical" else factor
    numbers = (scale.batch, scale.factor, loss.summed_weight(features), 0.5 if isinstance(loss, MSELoss) else 1.0)
    whole, a = factor(*numbers), entry.a(*numbers)
    return of_inputs(getattr(values, "inputs", None), {name: _times(v, whole, a) for name, v in values.items()})


def _convention(quantity: Any) -> tuple[str, str]:
    """Return the convention of Kronecker factors: sharing and fisher."""
    if quantity.convention:
        return quantity.convention.sharing, quantity.convention.fisher
    return "bias", "mc" if isinstance(quantity, KFAC) else "exact"


def _hint(quantity: Quantity) -> str:
    if not isinstance(quantity, KFAC | KFLR | KFRA | EKFAC):
        return ""
    kind = "EKFAC" if isinstance(quantity, EKFAC) else "KFAC"
    return f"; ask for {kind}(fisher=…, sharing=…): with one position sharing makes no difference"


def _times(value: Any, whole: float, a: float) -> Any:
    """Return an array or a block times a number, of which A of Kronecker factors has the part `a`."""
    if not isinstance(value, Kronecker | GroupedKronecker):
        return value * whole
    if value.A is None:
        return with_factors(value, None, value.B * whole)
    return with_factors(value, value.A * a, value.B * (whole / a))
