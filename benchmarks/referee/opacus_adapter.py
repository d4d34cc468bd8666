"""Opacus: individual gradients by hooks, functorch and expanded weights, and their norms by ghost clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modules import array, batch_of, loss_of, module_of
from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping

from gbackprop.testing.referee import Problem


def passed(problem: Problem, kind: Any, **options: Any) -> Any:
    """Return the wrapped network after a backward pass."""
    module = kind(module_of(problem), loss_reduction=problem.reduction, **options)
    x, y = batch_of(problem)
    loss_of(problem)(module(x), y).backward()
    return module


def gradients(kind: Any, **options: Any) -> Callable[[Problem], Any]:
    """Return a function for individual gradients: ∇ℓₙ, also of a mean over the batch."""

    def function(problem: Problem) -> Any:
        named = passed(problem, kind, **options).named_parameters()
        return {name.removeprefix("_module."): array(p.grad_sample) for name, p in named}

    return function


def squares(**options: Any) -> Callable[[Problem], Any]:
    """Return a function for the squared norms by parameter."""

    def function(problem: Problem) -> Any:
        named = passed(problem, GradSampleModuleFastGradientClipping, **options).named_parameters()
        return {name.removeprefix("_module."): array(p._norm_sample).reshape(-1) ** 2 for name, p in named}

    return function


def whole(**options: Any) -> Callable[[Problem], Any]:
    """Return a function for the squared norms of all parameters."""
    kind = GradSampleModuleFastGradientClipping
    return lambda problem: array(passed(problem, kind, **options).get_norm_sample()) ** 2


ADAPTERS: dict[str, dict[str, Callable[[Problem], Any]]] = {
    "Opacus, hooks": {
        "batch_grad": gradients(GradSampleModule),
        "batch_l2": squares(use_ghost_clipping=False),
        "sample_norms": whole(use_ghost_clipping=False),
    },
    "Opacus, ghost clipping": {"batch_l2": squares(), "sample_norms": whole()},
    "Opacus, functorch": {"batch_grad": gradients(GradSampleModule, force_functorch=True)},
    "Opacus, expanded weights": {"batch_grad": gradients(GradSampleModuleExpandedWeights)},
}
PACKAGES = ("opacus", "torch")
CONVENTIONS = """
`grad_sample` is ∇ℓₙ: `loss_reduction` is there to undo the 1/N of a mean. Norms are those of `grad_sample`.
"""
