"""Products with curvature matrices, Kronecker factors and their inverses, beside curvlinops on torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from curvlinops import (
    EKFACLinearOperator,
    GGNLinearOperator,
    HessianLinearOperator,
    KFACInverseLinearOperator,
    KFACLinearOperator,
)
from problems import LOSS, Problem, make_problem
from sides import copy_of, tensors
from timing import take_turns
from torch import nn

import gbackprop as gb
from gbackprop import quantities as q

CASES = ("3c3d", "784-128-64-10 with sigmoids")
SAMPLES = 128
DAMPING = 1e-2
VECTORS = (1, 16)

Sides = dict[str, Callable[[], Any]]


def arguments(problem: Problem) -> tuple[Any, ...]:
    """Return the arguments of curvlinops' operators."""
    module = copy_of(problem.module)
    return module, nn.CrossEntropyLoss(), [p for p in module.parameters() if p.requires_grad], [tensors(problem)]


def products(problem: Problem) -> Iterator[tuple[str, Sides]]:
    """Yield products with the GGN and the Hessian; both sides must give the same for one vector."""
    rng = np.random.default_rng(0)
    pairs = {"GGN": (gb.operators.GGN, GGNLinearOperator), "Hessian": (gb.operators.Hessian, HessianLinearOperator)}
    for name, (our_kind, their_kind) in pairs.items():
        ours = our_kind(problem.net, LOSS, (problem.x, problem.y))
        theirs = their_kind(*arguments(problem), check_deterministic=False)
        for k in VECTORS:
            v = rng.standard_normal((ours.shape[1], k), dtype=np.float32)
            v = v[:, 0] if k == 1 else v
            there = torch.from_numpy(v)
            want = np.asarray(theirs @ there)
            np.testing.assert_allclose(ours @ v, want, rtol=0, atol=1e-3 * abs(want).max())
            label = f"{name} times {'a vector' if k == 1 else f'{k} vectors'}"
            yield label, {"ours": lambda a=ours, v=v: a @ v, "curvlinops": lambda a=theirs, v=there: a @ v}


def factors(problem: Problem) -> Iterator[tuple[str, Sides]]:
    """Yield KFAC's and EKFAC's factors with one draw, and the inverse of KFAC's, multiplied by a vector."""

    def ours(quantity: q.Quantity) -> Callable[[], Any]:
        return lambda: gb.backward(problem.net, LOSS, problem.x, problem.y, quantity, rng=0)

    given = arguments(problem)
    options = {"mc_samples": 1, "separate_weight_and_bias": True, "check_deterministic": False}

    def kfac() -> KFACLinearOperator:
        operator = KFACLinearOperator(*given, **options)
        operator.compute_kronecker_factors()
        return operator

    def ekfac() -> EKFACLinearOperator:
        operator = EKFACLinearOperator(*given, **options)
        operator.compute_kronecker_factors()
        operator.compute_eigenvalue_correction()
        return operator

    yield "KFAC factors", {"ours": ours(q.KFAC()), "curvlinops": kfac}
    yield "EKFAC factors", {"ours": ours(q.EKFAC()), "curvlinops": ekfac}
    blocks = gb.kronecker.BlockDiagonal(ours(q.KFAC())()["kfac"])
    vector, operator = {name: np.ones_like(value) for name, value in problem.net.parameters.items()}, kfac()
    there = torch.ones(operator.shape[1])

    def solved() -> Any:
        return KFACInverseLinearOperator(operator, damping=DAMPING, use_heuristic_damping=True) @ there

    yield "inverse of KFAC times a vector", {"ours": lambda: blocks.inverse(DAMPING) @ vector, "curvlinops": solved}
    yield "KFAC solved for a vector", {"ours": lambda: blocks.solve(vector, DAMPING), "curvlinops": solved}


def rows(turns: int) -> dict[str, Mapping[str, Any]]:
    """Measure each case."""
    found = {}
    for name in CASES:
        problem = make_problem(name, SAMPLES)
        for of in (products, factors):
            for label, sides in of(problem):
                found[f"{name}, N = {SAMPLES}: {label}"] = take_turns(sides, turns)
    return found
