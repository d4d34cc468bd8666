"""JAX: derivatives by composition of grad, vmap, jvp, vjp, jacrev and hessian."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from networks import loss_of, network_of, to_jax, to_torch

from gbackprop.testing.referee import Problem


def parts(problem: Problem) -> tuple[Any, Any, Any]:
    """Return parameters, network and the loss l(p, x, y) of a batch."""
    p, f = network_of(problem)
    loss = loss_of(problem)
    return p, f, lambda p, x, y: loss(f(p, x), y)


def vector(problem: Problem) -> Any:
    return {name: to_jax(name, value) for name, value in problem.vector.items()}


def gradient(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    return to_torch(problem, jax.grad(loss)(p, problem.x, problem.y))


def batch_grad(problem: Problem) -> Any:
    """A mean over the batch is one of 1 sample here: ∇ℓₙ, without R."""
    p, _, loss = parts(problem)
    single = lambda p, x, y: loss(p, x[None], y[None])  # noqa: E731
    return to_torch(problem, jax.vmap(jax.grad(single), (None, 0, 0))(p, problem.x, problem.y), 1)


def jacobian(problem: Problem) -> Any:
    p, f, _ = parts(problem)
    found = jax.jacrev(lambda p: f(p, problem.x).reshape(len(problem.x), -1))(p)
    return np.concatenate([v.reshape(*v.shape[:2], -1) for v in to_torch(problem, found, 2).values()], 2)


def hessian(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    rows = jax.hessian(loss)(p, problem.x, problem.y)
    columns = {a: to_torch(problem, rows[a], p[a].ndim) for a in p}  # torch's axes of the second, then of the first
    turned = {b: to_torch(problem, {a: np.moveaxis(columns[a][b], range(-q.ndim, 0), range(q.ndim)) for a in p}, q.ndim)
              for b, q in problem.parameters.items()}  # fmt: skip
    return np.block([[turned[b][a].reshape(q.size, -1) for a in p] for b, q in problem.parameters.items()])


def hessian_product(problem: Problem) -> Any:
    p, _, loss = parts(problem)
    return to_torch(problem, jax.jvp(lambda p: jax.grad(loss)(p, problem.x, problem.y), (p,), (vector(problem),))[1])


def ggn_product(problem: Problem) -> Any:
    p, f, _ = parts(problem)
    loss, y = loss_of(problem), jnp.array(problem.y)
    output, moved = jax.jvp(lambda p: f(p, problem.x), (p,), (vector(problem),))
    curved = jax.jvp(jax.grad(lambda o: loss(o, y)), (output,), (moved,))[1]
    return to_torch(problem, jax.vjp(lambda p: f(p, problem.x), p)[1](curved)[0])


ADAPTERS = {
    "JAX": {
        "gradient": gradient,
        "batch_grad": batch_grad,
        "jacobian": jacobian,
        "hessian": hessian,
        "hessian_product": hessian_product,
        "ggn_product": ggn_product,
    }
}
PACKAGES = ("jax", "jaxlib")
CONVENTIONS = """
Individual gradients are those of batches of one sample, as in the documentation of `vmap`: a mean over one has no 1/N.
"""
