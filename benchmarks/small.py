"""Small calls: what a call costs apart from its arithmetic, alone and beside a busy neighbour."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
from curvlinops import KFACLinearOperator
from jax import numpy as jnp
from problems import Problem, make_problem
from sides import copy_of, ours, tensors, their_loop, theirs
from timing import take_turns
from torch import nn

NEIGHBOUR = "import numpy as np\na = np.ones((256, 256))\nwhile True:\n    a @ a\n"
"""A process that multiplies small matrices without end, with BLAS on one thread."""


@contextmanager
def neighbour() -> Iterator[None]:
    """Compute beside another process that is busy all the time."""
    code = f"import os\nos.environ['OPENBLAS_NUM_THREADS'] = '1'\n{NEIGHBOUR}"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def in_jax(problem: Problem) -> Callable[[], Any]:
    """Return a call of JAX, compiled before: loss and gradient of a chain of linear layers."""
    linear = [part for part in problem.module if isinstance(part, nn.Linear)]
    parameters = [tuple(jnp.asarray(value.detach().numpy()) for value in part.parameters()) for part in linear]
    between = jax.nn.sigmoid if any(isinstance(part, nn.Sigmoid) for part in problem.module) else jax.nn.relu
    x, y = jnp.asarray(problem.x.reshape(len(problem.x), -1)), jnp.asarray(problem.y)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for i, (weight, bias) in enumerate(parameters):
            x = x @ weight.T + bias
            if i + 1 < len(parameters):
                x = between(x)
        return -jax.nn.log_softmax(x)[jnp.arange(len(y)), y].mean()

    both = jax.jit(jax.value_and_grad(loss))
    return lambda: jax.block_until_ready(both(parameters, x, y))


def in_curvlinops(problem: Problem) -> Callable[[], Any]:
    """Return a call of curvlinops: the Kronecker factors, with one Monte-Carlo draw."""
    x, y = tensors(problem)
    module = copy_of(problem.module)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def call() -> None:
        operator = KFACLinearOperator(
            module,
            nn.CrossEntropyLoss(),
            parameters,
            [(x, y)],
            mc_samples=1,
            separate_weight_and_bias=True,
            check_deterministic=False,
        )
        operator.compute_kronecker_factors()

    return call


def sides(problem: Problem, name: str) -> dict[str, Callable[[], Any]]:
    """Return our call and those of the others that have it."""
    calls = {"ours": ours(problem, [] if name == "gradient" else [name])}
    convolutions = any(isinstance(part, nn.Conv2d) for part in problem.module)
    if name == "gradient":
        calls["torch"] = theirs(problem, [])
        if not convolutions:
            calls["JAX"] = in_jax(problem)
        return calls
    calls["BackPACK"] = theirs(problem, [name])
    if name == "KFAC":
        calls["curvlinops"] = in_curvlinops(problem)
    if name == "BatchGrad" and convolutions:
        calls["loop in torch"] = their_loop(problem)
    return calls


MLPS = ("784-128-64-10 with sigmoids", "784-128-64-10 with ReLU")


def cases() -> Iterator[tuple[str, Problem, list[str]]]:
    """Yield a label, a problem, and what is asked of it."""
    for name in (*MLPS, "logistic regression"):
        some = ["gradient"] if name == MLPS[1] else ["gradient", "BatchGrad", "DiagGGN", "KFAC"]
        for n in (1, 128):
            yield f"{name}, N = {n}", make_problem(name, n), some
    for n in (1, 2, 4):
        yield f"3c3d, N = {n}", make_problem("3c3d", n), ["gradient", "BatchGrad"]


def rows(turns: int) -> dict[str, Mapping[str, Any]]:
    """Measure each case alone, and again beside a busy neighbour."""
    found = {}
    measured = [
        (f"{label}: {name}", sides(problem, name), 2 if label.startswith("3c3d") else 20)
        for label, problem, some in cases()
        for name in some
    ]
    for label, calls, each in measured:
        found[label] = take_turns(calls, 2 * turns, each=each)
    with neighbour():
        for label, calls, each in measured:
            found[f"{label}, beside a neighbour"] = take_turns(calls, 2 * turns, each=each)
    return found

