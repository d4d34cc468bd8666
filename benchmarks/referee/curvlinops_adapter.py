"""curvlinops: matrices as linear operators, KFAC and EKFAC among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import curvlinops as cl
import numpy as np
import torch
from modules import SAMPLES, array, batch_of, by_name, diagonal_blocks, loss_of, module_of, stacked

from gbackprop.testing.referee import Problem

FISHER = {"exact": "type-2", "empirical": "empirical"}


def operator(problem: Problem, kind: Any, **options: Any) -> Any:
    """Return a linear operator of a problem."""
    module = module_of(problem)
    data = [batch_of(problem)]
    return kind(module, loss_of(problem), list(module.parameters()), data, check_deterministic=False, **options)


def dense(linop: Any) -> np.ndarray:
    """Return a linear operator as a matrix."""
    return array(linop @ torch.eye(linop.shape[1], dtype=torch.float64))


def product(kind: Any) -> Callable[[Problem], Any]:
    """Return a function for a product with the problem's vector."""

    def function(problem: Problem) -> Any:
        vector = torch.cat([torch.tensor(v).flatten() for v in problem.vector.values()])
        return by_name(problem, operator(problem, kind) @ vector)

    return function


def jacobian(problem: Problem) -> Any:
    """Of all outputs, as (N, C, D)."""
    module = module_of(problem)
    linop = cl.JacobianLinearOperator(module, list(module.parameters()), [batch_of(problem)], check_deterministic=False)
    found = dense(linop)
    return found.reshape(len(problem.x), -1, found.shape[1])


def blocks(fisher: str, sharing: str, joint: bool) -> Callable[[Problem], Any]:
    """Return a function for KFAC: the blocks on the diagonal; of a joint one the weight's and the bias's."""

    def function(problem: Problem) -> Any:
        options = {"fisher_type": FISHER[fisher], "kfac_approx": sharing, "separate_weight_and_bias": not joint}
        matrix = dense(operator(problem, cl.KFACLinearOperator, **options))
        return joint_blocks(problem, matrix) if joint else diagonal_blocks(problem, matrix)

    return function


def joint_blocks(problem: Problem, matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Return the block of each layer, with the entries in the order of [W, b]."""
    found, start = {}, 0
    for name, weight in problem.parameters.items():
        if name.endswith("weight"):
            o, size = len(weight), weight.size + len(weight)
            row = np.arange(weight.size).reshape(o, -1)
            order = np.concatenate([row, weight.size + np.arange(o)[:, None]], 1).ravel()
            order = start + order
            found[name.removesuffix(".weight")] = matrix[np.ix_(order, order)]
            start += size
    return found


def kfac_mc(problem: Problem, seed: int) -> Any:
    return diagonal_blocks(problem, dense(operator(problem, cl.KFACLinearOperator, mc_samples=SAMPLES, seed=seed)))


def ggn_mc(problem: Problem, seed: int) -> Any:
    return {"": dense(operator(problem, cl.FisherMCLinearOperator, mc_samples=SAMPLES, seed=seed))}


ADAPTERS = {
    "curvlinops": {
        "jacobian": jacobian,
        "ggn": lambda problem: dense(operator(problem, cl.GGNLinearOperator)),
        "ggn_mc": stacked(ggn_mc),
        "hessian": lambda problem: dense(operator(problem, cl.HessianLinearOperator)),
        "empirical_fisher": lambda problem: dense(operator(problem, cl.EFLinearOperator)),
        "ggn_product": product(cl.GGNLinearOperator),
        "hessian_product": product(cl.HessianLinearOperator),
        "fisher_product": product(cl.EFLinearOperator),
    }
    | {
        f"kfac_{fisher}_{sharing}{'_joint' * joint}": blocks(fisher, sharing, joint)
        for fisher in FISHER
        for sharing in ("expand", "reduce")
        for joint in (False, True)
    }
    | {"kfac_mc_expand": stacked(kfac_mc)}
}
PACKAGES = ("curvlinops-for-pytorch", "torch")
CONVENTIONS = """
Documented are c Σₙ … with c = 1/N for "mean". For squared error with "mean", the empirical Fisher has c = 1/(NC) and
for ℓ the sum over a sample's entries: C times what c = 1/N and ℓ, their mean, give. Of outputs with positions, it takes
each position for a sample. Documented, too: patches "are averaged over channel groups" (`extract_patches`).
"""
