"""Definitions of the quantities that are judged, by brute force, and the relations between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from gbackprop.testing.complex_steps import flat
from gbackprop.testing.oracles import ORACLES, Dense
from gbackprop.testing.referee.posed import Problem

Values = Mapping[str, np.ndarray]


class Brute:
    """Dense derivatives of a problem, by complex steps."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.dense = problem, Dense(*problem.build(), problem.x, problem.y)


@dataclass(frozen=True)
class Definition:
    """The formula of a quantity.

    Attributes
    ----------
    formula : str
        In words, with the shape.
    values : callable
        Computes it from a `Brute`: arrays by parameter, or by "" if one is of all parameters; none if it is undefined.
    samples : int
        The number of leading axes over samples.
    labels, drawn : bool
        Whether it depends on the targets; whether an adapter returns draws along a first axis: their mean is judged.
    others : dict of str to callable
        Further conventions by their description, tried where the definition itself does not hold.
    relation : tuple of (str, callable), optional
        Another quantity, and how this one follows from its values, up to a number.
    """

    formula: str
    values: Callable[[Any], Values]
    samples: int = 0
    labels: bool = True
    drawn: bool = False
    others: Mapping[str, Callable[[Any], Values]] = field(default_factory=dict)
    relation: tuple[str, Callable[[Any], Values]] | None = None


def shipped(name: str) -> Callable[[Brute], Values]:
    """Return the definition of one of gbackprop's quantities; factors (A, B) become B ⊗ A, or B."""

    def dense(value: Any) -> np.ndarray:
        a, b = value if isinstance(value, tuple) else (None, value)
        return b if a is None else np.kron(b, a) if a.ndim == 2 else block_diag(*map(np.kron, b, a))

    return lambda brute: {key: dense(value) for key, value in brute.dense.values(ORACLES[name]).items()}


def each(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Values], Values]:
    """Return a function of all arrays by name."""
    return lambda values: {key: function(value) for key, value in values.items()}


_MOMENT, _VARIANCE = each(lambda g: (g**2).mean(0)), each(lambda g: g.var(0))
_SUMS, _SQUARES = each(lambda g: g.sum(0)), each(lambda g: (flat(g) ** 2).sum(1))
DEFINITIONS = {
    "gradient": Definition("∇L, (*p)", shipped("gradient"), relation=("batch_grad", _SUMS)),
    "batch_grad": Definition("R ∇ℓₙ, (N, *p)", shipped("batch_grad"), 1),
    "batch_l2": Definition("‖R ∇ℓₙ‖², (N,)", shipped("batch_l2_grad"), 1, relation=("batch_grad", _SQUARES)),
    "second_moment": Definition("1/N Σₙ (∇ℓₙ)², (*p)", shipped("second_moment"), relation=("batch_grad", _MOMENT)),
    "variance": Definition("1/N Σₙ (∇ℓₙ − ∇L/(R N))², (*p)", shipped("variance"), relation=("batch_grad", _VARIANCE)),
    "diag_ggn": Definition("diag R Σₙ Jᵀ H J, (*p)", shipped("diag_ggn"), 0, False, relation=("batch_diag_ggn", _SUMS)),
    "diag_ggn_mc": Definition("the same with H drawn", shipped("diag_ggn"), labels=False, drawn=True),
    "batch_diag_ggn": Definition("diag R Jᵀ H J, (N, *p)", shipped("batch_diag_ggn"), 1, False),
    "diag_hessian": Definition("diag ∇²L, (*p)", shipped("diag_hessian"), relation=("batch_diag_hessian", _SUMS)),
    "batch_diag_hessian": Definition("diag R ∇²ℓₙ, (N, *p)", shipped("batch_diag_hessian"), 1),
    "kfac_exact_bias": Definition("KFLR: B ⊗ A, or B of a bias, (P, P)", shipped("kflr"), labels=False),
    "kfac_mc_bias": Definition("KFAC: the same with H drawn", shipped("kflr"), labels=False, drawn=True),
    "kfra": Definition("KFRA: B ⊗ A, or B of a bias, (P, P)", shipped("kfra"), labels=False),
}
"""The quantities of gbackprop by name, each by parameter; P counts the entries of one, row by row."""
