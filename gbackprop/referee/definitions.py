"""Definitions of the quantities that are judged, by brute force, and the relations between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from gbackprop.referee.problems import Problem
from gbackprop.testing.complex_steps import STEP, flat, inputs_of
from gbackprop.testing.kronecker_oracles import b_of_weight, input_jacobian, weight_inputs
from gbackprop.testing.oracles import ORACLES, Dense, loss_derivatives, reverse_gradients


@dataclass(frozen=True)
class Definition:
    """The formula of a quantity.

    Attributes
    ----------
    formula : str
        With L = R Σₙ ℓₙ; J the Jacobian of the outputs, H the Hessian of ℓₙ in them, g the gradient of ℓₙ.
    values : callable
        Computes it from `Brute`: arrays by parameter (by layer for joint blocks), or by "" if it is of all of them.
    samples : int
        The number of leading axes over samples.
    labels : bool
        Whether it depends on the targets.
    drawn : bool
        Whether it is drawn: an adapter's result has a leading axis of independent draws, whose mean is judged.
    """

    formula: str
    values: Callable[[Brute], Mapping[str, np.ndarray]]
    samples: int = 0
    labels: bool = True
    drawn: bool = False


class Brute:
    """Dense derivatives of a problem, by complex steps."""

    def __init__(self, problem: Problem) -> None:
        network, loss = problem.build()
        self.problem, self.dense = problem, Dense(network, loss, problem.x, problem.y)
        self.factor, self.hessians = self.dense.factor, self.dense.hessian

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        return self.dense[name]

    @cached_property
    def jacobians(self) -> np.ndarray:
        """J, shape (N, C, D)."""
        parts = [self.dense.jacobians[name] for name in self.problem.parameters]
        return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], 2)

    @cached_property
    def gradients(self) -> np.ndarray:
        """g, shape (N, D)."""
        return self.joined({name: parts.gradients for name, parts in self.dense.parts.items()})

    @cached_property
    def ggn(self) -> np.ndarray:
        return self.factor * np.einsum("ncp,ncd,ndq->pq", self.jacobians, self.hessians, self.jacobians, optimize=True)

    @cached_property
    def fisher(self) -> np.ndarray:
        return self.factor * self.gradients.T @ self.gradients

    @cached_property
    def hessian(self) -> np.ndarray:
        """∇²L, shape (D, D): a complex step of reverse-mode gradients in each parameter."""
        dense, rows = self.dense, []
        for name in self.problem.parameters:
            value = {leaf.parameters[key]: v for leaf in dense.leaves for key, v in leaf.layer.parameters.items()}[name]
            for index in np.ndindex(value.shape):
                before = value[index]
                value[index] = before + 1j * STEP
                stepped = reverse_gradients(dense.twin, dense.loss, dense.x, dense.y)
                rows.append(self.factor * self.joined(stepped).imag.sum(0) / STEP)
                value[index] = before
        return np.stack(rows)

    def joined(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return arrays (N, *p) side by side, shape (N, D), in the order of the parameters."""
        return np.concatenate([flat(values[name]) for name in self.problem.parameters], 1)

    def product(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Return a matrix times the problem's vector, by parameter."""
        vector = self.problem.vector
        whole = matrix @ np.concatenate([part.ravel() for part in vector.values()])
        parts = np.split(whole, np.cumsum([part.size for part in vector.values()])[:-1])
        return {name: part.reshape(vector[name].shape) for name, part in zip(vector, parts, strict=True)}

    def blocks(self, fisher: str, sharing: str, joint: bool = False) -> dict[str, np.ndarray]:
        """Return B ⊗ A of each weight and B of each bias; with `joint` of both as one matrix [O, I + 1], by layer.

        The conventions are those of `gbackprop.quantities.KFAC`; a grouped convolution is several side by side.
        """
        dense, found, curvature = self.dense, {}, self.hessians
        if fisher == "empirical":
            slope = loss_derivatives(dense.loss, dense.output, dense.y)[0]
            curvature = np.einsum("nc,nd->ncd", slope, slope)
        arriving = np.broadcast_to(np.eye(curvature.shape[1]), curvature.shape)  # of outputs in the outputs of a layer
        for leaf, x in reversed(list(inputs_of(dense.leaves, dense.x))):
            if "weight" in leaf.parameters:
                o, seen = len(leaf.layer.parameters["bias"]), weight_inputs(leaf.layer, x)
                at = arriving.reshape(*curvature.shape[:2], *((o, -1) if len(x.shape) == 4 else (-1, o)))
                at = at.swapaxes(2, 3) if len(x.shape) == 4 else at
                at = at if sharing == "expand" else at.sum(2, keepdims=True)
                seen = seen.mean(2, keepdims=True) if sharing == "reduce" else seen
                seen = np.concatenate([seen, np.ones_like(seen[..., :1])], 3) if joint else seen
                a = np.einsum("gnti,gntj->gij", seen, seen) / len(x) / (seen.shape[2] if sharing == "expand" else 1)
                b = self.factor * np.einsum("ncto,ncd,ndtp->op", at, curvature, at, optimize=True)
                own = b_of_weight(leaf.layer, b).reshape(len(a), *[o // len(a)] * 2)
                block = block_diag(*[np.kron(*each) for each in zip(own, a, strict=True)])
                name = leaf.parameters["weight"].removesuffix(".weight")
                found |= {name: block} if joint else {f"{name}.weight": block, f"{name}.bias": b}
            arriving = arriving @ input_jacobian(leaf.layer, x)
        return found


def _own(name: str) -> Callable[[Brute], Mapping[str, np.ndarray]]:
    return lambda brute: brute.dense.values(ORACLES[name])


def _kfac(fisher: str, sharing: str, joint: bool = False) -> Callable[[Brute], Mapping[str, np.ndarray]]:
    return lambda brute: brute.blocks(fisher, sharing, joint)


def _kfra(brute: Brute) -> dict[str, np.ndarray]:
    """B ⊗ A of each weight, B of each bias."""
    pairs = brute.dense["kfra"].items()
    return {name: b if a is None else np.kron(b, a) if a.ndim == 2 else block_diag(*map(np.kron, b, a)) for name, (a, b) in pairs}


DEFINITIONS = {
    "gradient": Definition("∇L, (*p)", _own("gradient")),
    "batch_grad": Definition("R ∇ℓₙ, (N, *p)", _own("batch_grad"), 1),
    "batch_l2": Definition("‖R ∇ℓₙ‖², (N,), by parameter", _own("batch_l2_grad"), 1),
    "sample_norms": Definition("‖R ∇ℓₙ‖², (N,), of all parameters", lambda b: {"": b.factor**2 * (b.gradients**2).sum(1)}, 1),
    "second_moment": Definition("1/N Σₙ (∇ℓₙ)², (*p)", _own("second_moment")),
    "variance": Definition("1/N Σₙ (∇ℓₙ)² − (1/N Σₙ ∇ℓₙ)², (*p)", _own("variance")),
    "gram": Definition("R² ∇ℓₙ · ∇ℓₘ, (N, N)", lambda b: {"": b.factor**2 * b.gradients @ b.gradients.T}, 2),
    "jacobian": Definition("J, (N, C, D)", lambda b: {"": b.jacobians}, 1, labels=False),
    "ntk": Definition("Jₙ Jₘᵀ, (N, N, C, C)", lambda b: {"": np.einsum("ncp,mdp->nmcd", b.jacobians, b.jacobians)}, 2, False),
    "diag_ggn": Definition("diag R Σₙ Jᵀ H J, (*p)", _own("diag_ggn"), labels=False),
    "diag_ggn_mc": Definition("the same, H drawn", _own("diag_ggn"), labels=False, drawn=True),
    "batch_diag_ggn": Definition("diag R Jᵀ H J, (N, *p)", _own("batch_diag_ggn"), 1, False),
    "diag_hessian": Definition("diag ∇²L, (*p)", _own("diag_hessian")),
    "batch_diag_hessian": Definition("diag R ∇²ℓₙ, (N, *p)", _own("batch_diag_hessian"), 1),
    "ggn": Definition("R Σₙ Jᵀ H J, (D, D)", lambda b: {"": b.ggn}, labels=False),
    "ggn_mc": Definition("the same, H drawn", lambda b: {"": b.ggn}, labels=False, drawn=True),
    "empirical_fisher": Definition("R Σₙ ∇ℓₙ ∇ℓₙᵀ, (D, D)", lambda b: {"": b.fisher}),
    "hessian": Definition("∇²L, (D, D)", lambda b: {"": b.hessian}),
    "ggn_product": Definition("R Σₙ Jᵀ H J v, (*p)", lambda b: b.product(b.ggn), labels=False),
    "fisher_product": Definition("R Σₙ ∇ℓₙ ∇ℓₙᵀ v, (*p)", lambda b: b.product(b.fisher)),
    "hessian_product": Definition("∇²L v, (*p)", lambda b: b.product(b.hessian)),
    "kfra": Definition("KFRA: B ⊗ A, B of a bias, (P, P)", _kfra, labels=False),
} | {
    f"kfac_mc_{sharing}": Definition(
        f"KFAC, exact Fisher drawn, {sharing!r}", _kfac("exact", sharing), labels=False, drawn=True
    )
    for sharing in ("bias", "expand", "reduce")
} | {
    f"kfac_{fisher}_{sharing}{'_joint' * joint}": Definition(
        f"KFAC, {fisher} Fisher, {sharing!r}: B ⊗ A" + (", [W, b], by layer" if joint else ", B of a bias") + ", (P, P)",
        _kfac(fisher, sharing, joint),
        labels=fisher == "empirical",
    )
    for fisher in ("exact", "empirical")
    for sharing in ("bias", "expand", "reduce")
    for joint in (False, True)
}  # fmt: skip
"""The quantities by name. D counts all parameters, P those of one, in order and row by row."""

Got = Mapping[str, Mapping[str, np.ndarray]]


def _all(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays by parameter as one vector."""
    return {"": np.concatenate([np.ravel(value) for value in values.values()])}


RELATIONS: dict[tuple[str, str], tuple[str, Callable[[Any], Mapping[str, np.ndarray]]]] = {
    ("gradient", "batch_grad"): ("Σ of individual gradients", lambda got: {k: v.sum(0) for k, v in got.items()}),
    ("batch_l2", "batch_grad"): ("squares of individual gradients", lambda got: {k: (flat(v) ** 2).sum(1) for k, v in got.items()}),
    ("sample_norms", "batch_grad"): ("squares of individual gradients", lambda got: {"": sum((flat(v) ** 2).sum(1) for v in got.values())}),
    ("second_moment", "batch_grad"): ("squares of individual gradients", lambda got: {k: (v**2).mean(0) for k, v in got.items()}),
    ("variance", "batch_grad"): ("variance of individual gradients", lambda got: {k: v.var(0) for k, v in got.items()}),
    ("gram", "batch_grad"): ("products of individual gradients", lambda got: {"": sum(flat(v) @ flat(v).T for v in got.values())}),
    ("ntk", "jacobian"): ("J Jᵀ", lambda got: {"": np.einsum("ncp,mdp->nmcd", got[""], got[""])}),
    ("diag_ggn", "batch_diag_ggn"): ("Σ over samples", lambda got: {k: v.sum(0) for k, v in got.items()}),
    ("diag_hessian", "batch_diag_hessian"): ("Σ over samples", lambda got: {k: v.sum(0) for k, v in got.items()}),
    ("ggn", "ggn"): ("symmetric", lambda got: {"": got[""].T}),
    ("hessian", "hessian"): ("symmetric", lambda got: {"": got[""].T}),
    ("empirical_fisher", "empirical_fisher"): ("symmetric", lambda got: {"": got[""].T}),
}  # fmt: skip
"""A quantity, another, and how the first follows from the second, up to a number."""
