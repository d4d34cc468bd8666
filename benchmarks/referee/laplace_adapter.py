"""Laplace (laplace-torch): its curvature backends; losses are sums, squared error has a factor ½.

Its backend asdl is not judged: laplace-torch 0.3 calls it in a way that no released asdl has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from laplace.curvature import BackPackEF, BackPackGGN, CurvlinopsEF, CurvlinopsGGN, CurvlinopsHessian
from modules import SAMPLES, array, batch_of, by_name, krons, module_of, stacked

from gbackprop.testing.referee import Problem

torch.set_default_dtype(torch.float64)  # BackPACK's convolutions multiply with a matrix of the default


def backend(problem: Problem, kind: Any, **options: Any) -> Any:
    """Return a backend around a problem's network; Jacobians are documented for outputs (batch, outputs)."""
    if problem.family == "positions":
        raise NotImplementedError("not asked: its documentation has outputs (batch, outputs)")
    module = module_of(problem)
    with torch.no_grad():
        module.output_size = module(batch_of(problem)[0]).shape[-1]  # type: ignore[assignment]  # as `Laplace` sets it
    return kind(module, "regression" if problem.loss == "MSELoss" else "classification", **options)


def full(kind: Any) -> Callable[[Problem], Any]:
    """Return a function for a whole matrix."""
    return lambda problem: array(backend(problem, kind).full(*batch_of(problem))[1])


def diag(kind: Any) -> Callable[[Problem], Any]:
    """Return a function for a diagonal."""
    return lambda problem: by_name(problem, backend(problem, kind).diag(*batch_of(problem))[1])


def kron(kind: Any, **options: Any) -> Callable[[Problem], Any]:
    """Return a function for Kronecker factors."""

    def function(problem: Problem) -> Any:
        found = backend(problem, kind).kron(*batch_of(problem), len(problem.x), **options)[1]
        return krons(problem, found.kfacs)

    return function


def gradients(kind: Any) -> Callable[[Problem], Any]:
    """Return a function for individual gradients."""
    return lambda problem: by_name(problem, backend(problem, kind).gradients(*batch_of(problem))[0])


def jacobian(kind: Any) -> Callable[[Problem], Any]:
    """Return a function for Jacobians."""
    return lambda problem: array(backend(problem, kind).jacobians(batch_of(problem)[0])[0])


def diag_mc(problem: Problem, _: int) -> Any:
    """Return a draw of the diagonal of `GGNInterface`."""
    own = backend(problem, CurvlinopsGGN, stochastic=True)
    own.num_samples = SAMPLES
    return by_name(problem, own.diag(*batch_of(problem))[1])


ADAPTERS = {
    f"Laplace, {name}": {
        "batch_grad": gradients(ef),
        "second_moment": diag(ef),
        "jacobian": jacobian(ggn),
        "diag_ggn": diag(ggn),
        "ggn": full(ggn),
        "empirical_fisher": full(ef),
    }
    for name, ggn, ef in (
        ("curvlinops", CurvlinopsGGN, CurvlinopsEF),
        ("BackPACK", BackPackGGN, BackPackEF),
    )
}
ADAPTERS["Laplace, curvlinops"] |= {
    "diag_ggn_mc": stacked(diag_mc),
    "hessian": full(CurvlinopsHessian),
    "kfac_exact_expand": kron(CurvlinopsGGN),
    "kfac_exact_reduce": kron(CurvlinopsGGN, kfac_approx="reduce"),
    "kfac_empirical_expand": kron(CurvlinopsEF),
    "kfac_empirical_reduce": kron(CurvlinopsEF, kfac_approx="reduce"),
}
ADAPTERS["Laplace, BackPACK"] |= {"kfac_exact_bias": kron(BackPackGGN)}
PACKAGES = ("laplace-torch", "curvlinops-for-pytorch", "backpack-for-pytorch", "torch")
CONVENTIONS = """
There is no reduction: losses are sums, of cross-entropy or of ½‖f − y‖² (`factor`, "½ to get to N(f, 1) from
MSELoss"). `gradients` are without the ½. The empirical Fisher is ½ Σₙ ∇ℓₙ ∇ℓₙᵀ of these gradients: twice that of
½‖f − y‖²; the documentation does not say which is meant. `diag` of `EFInterface` is judged as `second_moment`, and is a
sum. Groups are as in curvlinops.
"""
