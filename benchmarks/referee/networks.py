"""Problems as functions of JAX: channels last, weights as JAX has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gbackprop.testing.referee import Problem

jax.config.update("jax_enable_x64", True)
ELEMENTWISE = {"Sigmoid": jax.nn.sigmoid, "Tanh": jnp.tanh, "ReLU": jax.nn.relu}
Weights = dict[str, Any]


def to_jax(name: str, value: np.ndarray) -> Any:
    """Return a parameter (or what has its axes last two or four): (I, O) or (H, W, I, O)."""
    if value.ndim == 4:
        return jnp.array(value.transpose(2, 3, 1, 0))
    return jnp.array(value.T if value.ndim == 2 else value)


def to_torch(problem: Problem, values: Weights, axes: int = 0) -> dict[str, np.ndarray]:
    """Return arrays with JAX's axes of parameters after some others, with torch's."""
    orders = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
    found = {}
    for name, parameter in problem.parameters.items():
        order = tuple(range(axes)) + tuple(axes + i for i in orders[parameter.ndim])
        found[name] = np.asarray(values[name]).transpose(order)
    return found


def network_of(problem: Problem) -> tuple[Weights, Callable[[Weights, Any], Any]]:
    """Return the parameters and the network f(parameters, x)."""

    def call(weights: Weights, x: Any) -> Any:
        x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        for i, (kind, keywords) in enumerate(problem.layers):
            if kind == "Linear":
                x = x @ weights[f"{i}.weight"] + weights[f"{i}.bias"]
            elif kind == "Conv2d":
                x = jax.lax.conv_general_dilated(
                    x, weights[f"{i}.weight"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                    feature_group_count=keywords["groups"],
                ) + weights[f"{i}.bias"]  # fmt: skip
            elif kind == "AvgPool2d":
                h, w = keywords["kernel_size"]
                x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, h, w, 1), (1, h, w, 1), "VALID") / (h * w)
            elif kind == "Flatten":
                x = (x.transpose(0, 3, 1, 2) if x.ndim == 4 else x).reshape(len(x), -1)
            else:
                x = ELEMENTWISE[kind](x)
        return x

    return {name: to_jax(name, value) for name, value in problem.parameters.items()}, call


def loss_of(problem: Problem) -> Callable[[Any, Any], Any]:
    """Return the loss l(output, y)."""

    def value(output: Any, y: Any) -> Any:
        squared = problem.loss == "MSELoss"
        terms = (output - y) ** 2 if squared else -jax.nn.log_softmax(output)[jnp.arange(len(y)), y]
        return terms.mean() if problem.reduction == "mean" else terms.sum()

    return value
