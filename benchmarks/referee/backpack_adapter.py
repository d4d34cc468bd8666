"""BackPACK: extensions of a backward pass, and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from backpack import backpack, extend, extensions
from backpack.hessianfree.ggnvp import ggn_vector_product
from backpack.hessianfree.hvp import hessian_vector_product
from modules import SAMPLES, array, batch_of, by_name, krons, loss_of, module_of, stacked

from gbackprop.testing.referee import Problem

torch.set_default_dtype(torch.float64)  # KFRA begins with a matrix of the default


def extended(problem: Problem, extension: Any) -> dict[str, Any]:
    """Return what an extension leaves on each parameter."""
    module, loss, (x, y) = extend(module_of(problem)), extend(loss_of(problem)), batch_of(problem)
    with backpack(extension):
        loss(module(x), y).backward()
    named = module.named_parameters()
    return {name: getattr(p, extension.savefield, None) for name, p in named}


def arrays(make: Callable[[], Any]) -> Callable[[Problem], Any]:
    """Return a function for an extension of which the results are arrays."""
    return lambda problem: {k: None if v is None else array(v) for k, v in extended(problem, make()).items()}


def factors(make: Callable[[], Any]) -> Callable[[Problem], Any]:
    """Return a function for an extension of which the results are factors, B first."""
    return lambda problem: krons(problem, extended(problem, make()).values())


def product(multiply: Callable[..., Any]) -> Callable[[Problem], Any]:
    """Return a function for a product with the problem's vector."""

    def function(problem: Problem) -> Any:
        module, loss, (x, y) = extend(module_of(problem)), extend(loss_of(problem)), batch_of(problem)
        vector, output = [torch.tensor(v) for v in problem.vector.values()], module(x)
        found = multiply(loss(output, y), output, module, vector)
        return by_name(problem, torch.cat([part.flatten() for part in found]))

    return function


DIAG_MC = arrays(lambda: extensions.DiagGGNMC(mc_samples=SAMPLES))
KFAC_MC = factors(lambda: extensions.KFAC(mc_samples=SAMPLES))
ADAPTERS = {
    "BackPACK": {
        "batch_grad": arrays(extensions.BatchGrad),
        "batch_l2": arrays(extensions.BatchL2Grad),
        "second_moment": arrays(extensions.SumGradSquared),
        "variance": arrays(extensions.Variance),
        "diag_ggn": arrays(extensions.DiagGGNExact),
        "diag_ggn_mc": stacked(lambda problem, _: DIAG_MC(problem)),
        "batch_diag_ggn": arrays(extensions.BatchDiagGGNExact),
        "diag_hessian": arrays(extensions.DiagHessian),
        "batch_diag_hessian": arrays(extensions.BatchDiagHessian),
        "ggn_product": product(ggn_vector_product),
        "hessian_product": product(lambda value, _, net, v: hessian_vector_product(value, list(net.parameters()), v)),
        "kfac_exact_bias": factors(extensions.KFLR),
        "kfac_mc_bias": stacked(lambda problem, _: KFAC_MC(problem)),
        "kfra": factors(extensions.KFRA),
    }
}  # fmt: skip
PACKAGES = ("backpack-for-pytorch", "torch")
CONVENTIONS = """
Extensions are about the loss as it is called: with "mean" individual gradients are ∇ℓₙ/N, as here. The documentation
of `SumGradSquared` and `Variance` says so ("beware of scaling issue"): the former, here `second_moment`, is the sum
Σₙ (R ∇ℓₙ)², the latter is the variance of R ∇ℓₙ.
"""
