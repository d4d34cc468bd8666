"""torch.func: derivatives by composition of jvp, vjp, vmap, jacrev and hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from modules import array, batch_of, loss_of, module_of
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

from gbackprop.testing.referee import Problem


def parts(problem: Problem) -> tuple[dict[str, torch.Tensor], Callable[..., Any], Callable[..., Any]]:
    """Return the parameters, the network f(p, x), and the loss l(p, x, y) of a batch."""
    module, loss = module_of(problem), loss_of(problem)
    f = lambda p, x: functional_call(module, p, (x,))  # noqa: E731
    return dict(module.named_parameters()), f, lambda p, x, y: loss(f(p, x), y)


def by_name(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return arrays by name."""
    return {name: array(tensor) for name, tensor in tensors.items()}


def joined(tensors: dict[str, torch.Tensor], axes: int) -> torch.Tensor:
    """Return arrays (*axes, *p) as one (*axes, D)."""
    return torch.cat([t.reshape(*t.shape[:axes], -1) for t in tensors.values()], -1)


def gradient(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    return by_name(grad(loss)(p, *batch_of(problem)))


def batch_grad(problem: Problem) -> Any:
    """A mean over the batch is one of 1 sample here: ∇ℓₙ, without R."""
    p, _, loss = parts(problem)
    single = lambda p, x, y: loss(p, x[None], y[None])  # noqa: E731
    return by_name(vmap(grad(single), (None, 0, 0))(p, *batch_of(problem)))


def jacobian(problem: Problem) -> Any:
    p, f, _ = parts(problem)
    return array(joined({k: v.flatten(1, -p[k].ndim - 1) for k, v in jacrev(f)(p, batch_of(problem)[0]).items()}, 2))


def ntk(problem: Problem) -> Any:
    """As in torch's tutorial on neural tangent kernels: contraction of Jacobians of single samples."""
    p, f, _ = parts(problem)
    each = vmap(jacrev(lambda p, x: f(p, x[None])[0].flatten()), (None, 0))(p, batch_of(problem)[0])
    return array(sum(torch.einsum("ncp,mdp->nmcd", j.flatten(2), j.flatten(2)) for j in each.values()))


def hessian_matrix(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    rows = hessian(loss)(p, *batch_of(problem))
    size = lambda k: p[k].numel()  # noqa: E731
    return array(torch.cat([torch.cat([rows[a][b].reshape(size(a), size(b)) for b in p], 1) for a in p]))


def hessian_product(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    v = {name: torch.tensor(value) for name, value in problem.vector.items()}
    return by_name(jvp(lambda p: grad(loss)(p, *batch_of(problem)), (p,), (v,))[1])


def ggn_product(problem: Problem) -> Any:
    p, f, _ = parts(problem)
    loss, (x, y) = loss_of(problem), batch_of(problem)
    v = {name: torch.tensor(value) for name, value in problem.vector.items()}
    output, moved = jvp(lambda p: f(p, x), (p,), (v,))
    curved = jvp(grad(lambda o: loss(o, y)), (output,), (moved,))[1]
    return by_name(vjp(lambda p: f(p, x), p)[1](curved)[0])


ADAPTERS = {
    "torch.func": {
        "gradient": gradient,
        "batch_grad": batch_grad,
        "jacobian": jacobian,
        "ntk": ntk,
        "hessian": hessian_matrix,
        "hessian_product": hessian_product,
        "ggn_product": ggn_product,
    }
}
PACKAGES = ("torch",)
CONVENTIONS = """
Individual gradients are those of batches of one sample, as in the documentation of `vmap`: a mean over one has no 1/N.
"""
