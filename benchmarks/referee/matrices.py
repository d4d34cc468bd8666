"""Definitions of what libraries have beside gbackprop's quantities: matrices, products, conventions of KFAC."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from gbackprop.testing.complex_steps import STEP, flat, passes
from gbackprop.testing.kronecker_oracles import b_of_weight, input_jacobian, weight_inputs
from gbackprop.testing.oracles import loss_derivatives, reverse_gradients
from gbackprop.testing.referee import DEFINITIONS, Brute, Definition, Problem


class Matrices(Brute):
    """Dense derivatives of a problem, as matrices over all D parameters."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.factor, self.hessians = self.dense.factor, self.dense.hessian
        self.slopes = loss_derivatives(self.dense.loss, self.dense.output, self.dense.y)[0]

    @cached_property
    def jacobians(self) -> np.ndarray:
        """J, shape (N, C, D)."""
        parts = [self.dense.jacobians[name] for name in self.problem.parameters]
        return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], 2)

    @cached_property
    def gradients(self) -> np.ndarray:
        """∇ℓₙ, shape (N, D)."""
        return np.einsum("nc,ncp->np", self.slopes, self.jacobians)

    @cached_property
    def ggn(self) -> np.ndarray:
        return self.factor * np.einsum("ncp,ncd,ndq->pq", self.jacobians, self.hessians, self.jacobians, optimize=True)

    @cached_property
    def fisher(self) -> np.ndarray:
        return self.factor * self.gradients.T @ self.gradients

    @cached_property
    def fisher_of_positions(self) -> np.ndarray:
        """R Σ g gᵀ, with g the gradient of the part of ℓₙ that belongs to one position of an output."""
        slopes = self.slopes.reshape(-1, self.dense.output.shape[-1])
        rows = np.einsum("nc,ncp->np", slopes, self.jacobians.reshape(*slopes.shape, -1))
        return self.factor * rows.T @ rows

    @cached_property
    def hessian(self) -> np.ndarray:
        """∇²L, shape (D, D): a complex step of reverse-mode gradients in each parameter."""
        dense, rows = self.dense, []
        values = {leaf.parameters[key]: v for leaf in dense.leaves for key, v in leaf.layer.parameters.items()}
        for name in self.problem.parameters:
            for index in np.ndindex(values[name].shape):
                before = values[name][index]
                values[name][index] = before + 1j * STEP
                found = reverse_gradients(dense.twin, dense.loss, dense.x, dense.y)
                stepped = np.concatenate([flat(found[each]) for each in self.problem.parameters], 1)
                rows.append(self.factor * stepped.imag.sum(0) / STEP)
                values[name][index] = before
        return np.stack(rows)

    def product(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Return a matrix times the problem's vector, by parameter."""
        vector = self.problem.vector
        whole = matrix @ np.concatenate([part.ravel() for part in vector.values()])
        parts = np.split(whole, np.cumsum([part.size for part in vector.values()])[:-1])
        return {name: part.reshape(vector[name].shape) for name, part in zip(vector, parts, strict=True)}

    def blocks(self, fisher: str, sharing: str, joint: bool, averaged: bool = False) -> dict[str, np.ndarray]:
        """Return B ⊗ A of each weight and B of each bias; with `joint` of both as one matrix [O, I + 1], by layer.

        A grouped convolution is several side by side; with `averaged`, one, whose inputs are the mean over the groups.
        """
        if sharing == "reduce" and self.problem.family == "positions":
            return {}  # the paper has it for losses of what was reduced over the positions
        dense, found, curvature = self.dense, {}, self.hessians
        if fisher == "empirical":
            curvature = np.einsum("nc,nd->ncd", self.slopes, self.slopes)
        arriving = np.broadcast_to(np.eye(curvature.shape[1]), curvature.shape)  # of outputs in the outputs of a layer
        for leaf, (x,), _, _ in reversed(list(passes(dense.leaves, dense.x))):
            if "weight" in leaf.parameters:
                o, seen, channels_first = len(leaf.layer.parameters["bias"]), weight_inputs(leaf.layer, x), x.ndim == 4
                at = arriving.reshape(*curvature.shape[:2], *((o, -1) if channels_first else (-1, o)))
                at = at.swapaxes(2, 3) if channels_first else at
                at = at if sharing == "expand" else at.sum(2, keepdims=True)
                seen = seen.mean(0, keepdims=True) if averaged else seen
                seen = seen.mean(2, keepdims=True) if sharing == "reduce" else seen
                seen = np.concatenate([seen, np.ones_like(seen[..., :1])], 3) if joint else seen
                a = np.einsum("gnti,gntj->gij", seen, seen) / len(x) / (seen.shape[2] if sharing == "expand" else 1)
                b = self.factor * np.einsum("ncto,ncd,ndtp->op", at, curvature, at, optimize=True)
                own = b_of_weight(leaf.layer, b).reshape(len(a), *[o // len(a)] * 2) if len(a) > 1 else b[None]
                block = block_diag(*[np.kron(*each) for each in zip(own, a, strict=True)])
                name = leaf.parameters["weight"].removesuffix(".weight")
                found |= {name: block} if joint else {f"{name}.weight": block, f"{name}.bias": b}
            arriving = arriving @ input_jacobian(leaf.layer, x)
        return found


def _transposed(name: str) -> tuple[str, Callable[[Any], Any]]:
    return name, lambda got: {"": got[""].T}


def _kfac(fisher: str, sharing: str, joint: bool = False, drawn: bool = False) -> Definition:
    """Return the definition of a convention of KFAC: docs/derivations/weight_sharing.md."""
    words = f"KFAC, {fisher} Fisher, {sharing!r}{', drawn' * drawn}: B ⊗ A{', of [W, b]' * joint}, (P, P)"
    others = {"inputs averaged over the groups": lambda brute: brute.blocks(fisher, sharing, joint, True)}
    values = lambda brute: brute.blocks(fisher, sharing, joint)  # noqa: E731
    return Definition(words, values, labels=fisher == "empirical", drawn=drawn, others=others)


_POSITIONS = "a gradient per position"
_OWN = {
    "sample_norms": Definition(
        "‖R ∇ℓₙ‖², (N,), of all parameters",
        lambda b: {"": (b.factor**2 * b.gradients**2).sum(1)},
        1,
        relation=("batch_grad", lambda got: {"": sum((flat(value) ** 2).sum(1) for value in got.values())}),
    ),
    "jacobian": Definition("J, (N, C, D)", lambda b: {"": b.jacobians}, 1, False),
    "ntk": Definition(
        "Jₙ Jₘᵀ, (N, N, C, C)",
        lambda b: {"": np.einsum("ncp,mdp->nmcd", b.jacobians, b.jacobians)},
        2,
        False,
        relation=("jacobian", lambda got: {"": np.einsum("ncp,mdp->nmcd", got[""], got[""])}),
    ),
    "ggn": Definition("R Σₙ Jᵀ H J, (D, D)", lambda b: {"": b.ggn}, labels=False, relation=_transposed("ggn")),
    "ggn_mc": Definition("the same with H drawn", lambda b: {"": b.ggn}, labels=False, drawn=True),
    "empirical_fisher": Definition(
        "R Σₙ ∇ℓₙ ∇ℓₙᵀ, (D, D)",
        lambda b: {"": b.fisher},
        others={_POSITIONS: lambda b: {"": b.fisher_of_positions}},
        relation=_transposed("empirical_fisher"),
    ),
    "hessian": Definition("∇²L, (D, D)", lambda b: {"": b.hessian}, relation=_transposed("hessian")),
    "ggn_product": Definition("R Σₙ Jᵀ H J v, (*p)", lambda b: b.product(b.ggn), labels=False),
    "fisher_product": Definition(
        "R Σₙ ∇ℓₙ ∇ℓₙᵀ v, (*p)",
        lambda b: b.product(b.fisher),
        others={_POSITIONS: lambda b: b.product(b.fisher_of_positions)},
    ),
    "hessian_product": Definition("∇²L v, (*p)", lambda b: b.product(b.hessian)),
    "kfac_mc_expand": _kfac("exact", "expand", drawn=True),
}
KFAC = {
    f"kfac_{fisher}_{sharing}{'_joint' * joint}": _kfac(fisher, sharing, joint)
    for fisher in ("exact", "empirical")
    for sharing in ("expand", "reduce")
    for joint in (False, True)
}
ALL: dict[str, Definition] = DEFINITIONS | _OWN | KFAC
"""All by name; D counts all parameters in order, row by row."""
