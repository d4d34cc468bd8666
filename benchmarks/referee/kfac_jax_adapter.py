"""kfac-jax: exact products, and its diagonal and Kronecker-factored blocks; losses are means over samples of ℓ'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import kfac_jax
import numpy as np
from networks import network_of, to_jax, to_torch

from gbackprop.testing.referee import Problem

DIAGONAL = {"dense": kfac_jax.DenseDiagonal, "conv2d": kfac_jax.Conv2DDiagonal, "generic": kfac_jax.NaiveDiagonal}


def setting(problem: Problem) -> tuple[Any, Any]:
    """Return a function with a registered loss, and its arguments."""
    weights, network = network_of(problem)

    def call(weights: Any, batch: Any) -> Any:
        x, y = batch
        output = network(weights, x)
        if problem.loss == "MSELoss":
            kfac_jax.register_squared_error_loss(output, targets=y)
            return jnp.sum((output - y) ** 2)
        kfac_jax.register_softmax_cross_entropy_loss(output, targets=y)
        return -jnp.sum(jax.nn.log_softmax(output)[jnp.arange(len(y)), y])

    return call, (weights, (jnp.array(problem.x), jnp.array(problem.y)))


def product(name: str) -> Callable[[Problem], Any]:
    """Return a function for an exact product."""

    def function(problem: Problem) -> Any:
        call, arguments = setting(problem)
        vector = {name: to_jax(name, value) for name, value in problem.vector.items()}
        return to_torch(problem, getattr(kfac_jax.ImplicitExactCurvature(call), name)(arguments, vector))

    return function


def blocks(problem: Problem, mode: str, constructors: Any) -> Any:
    """Return the curvature blocks with their states, from one update."""
    call, arguments = setting(problem)
    curvature = kfac_jax.BlockDiagonalCurvature(
        call, layer_tag_to_block_ctor=constructors, default_estimation_mode=mode
    )
    key = jax.random.PRNGKey(0)
    state = curvature.init(key, arguments, None, None)
    options = {"ema_old": 0.0, "ema_new": 1.0, "identity_weight": 0.0, "batch_size": len(problem.x), "rng": key}
    state = curvature.update_curvature_matrix_estimate(state, func_args=arguments, **options)
    return curvature, state


def diagonal(mode: str) -> Callable[[Problem], Any]:
    """Return a function for the diagonal."""

    def function(problem: Problem) -> Any:
        if problem.family in ("sequence", "positions", "groups"):
            raise NotImplementedError("not asked: kfac-jax has no diagonal block for this kind of layer")
        curvature, state = blocks(problem, mode, DIAGONAL)
        found = {}
        layers = [name.removesuffix(".weight") for name in problem.parameters if name.endswith("weight")]
        for layer, block, own in zip(layers, curvature.blocks, state.blocks_states, strict=True):
            for factor in own.diagonal_factors:
                key = "bias" if factor.value.ndim == 1 else "weight"
                found[f"{layer}.{key}"] = factor.value * block.scale(own, False)
        return to_torch(problem, found)

    return function


def kfac(mode: str) -> Callable[[Problem], Any]:
    """Return a function for the blocks of weight and bias, inputs in torch's order."""

    def function(problem: Problem) -> Any:
        if problem.family == "groups":
            raise NotImplementedError("not asked: kfac-jax takes grouped convolutions as generic blocks, no factors")
        curvature, state = blocks(problem, mode, None)
        found = {}
        layers = [name for name in problem.parameters if name.endswith("weight")]
        for name, block, own in zip(layers, curvature.blocks, state.blocks_states, strict=True):
            a, b = (np.asarray(factor.value) for factor in own.factors)
            weight = problem.parameters[name]
            if weight.ndim == 4:  # A has (H, W, I)
                _, i, h, w = weight.shape
                order = np.append(np.arange(h * w * i).reshape(h, w, i).transpose(2, 0, 1).ravel(), h * w * i)
                a = a[np.ix_(order, order)]
            found[name.removesuffix(".weight")] = np.kron(b, a) * float(block.scale(own, False))
        return found

    return function


ADAPTERS = {
    "kfac-jax": {
        "ggn_product": product("multiply_ggn"),
        "hessian_product": product("multiply_hessian"),
        "diag_ggn": diagonal("fisher_exact"),
        "second_moment": diagonal("fisher_empirical"),
        "kfac_exact_expand_joint": kfac("fisher_exact"),
        "kfac_empirical_expand_joint": kfac("fisher_empirical"),
    }
}
PACKAGES = ("kfac-jax", "jax", "jaxlib")
CONVENTIONS = """
There is no reduction: registered losses are sums over the entries of an output, and curvature is a mean over samples,
1/N Σₙ. The mode "fisher_empirical" has, as documented, "an additional normalization […] by the batch size". Blocks are
their factors times `scale`.
"""
