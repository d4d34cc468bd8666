"""One call of each side: what it computes, from the forward pass to the last quantity."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from backpack import backpack, extend
from backpack import extensions as bp
from problems import LOSS, Problem
from torch import nn

import gbackprop as gb
from gbackprop import quantities as q

PAIRS: dict[str, tuple[Callable[[], q.Quantity], Callable[[], Any], str]] = {
    "BatchGrad": (q.BatchGrad, bp.BatchGrad, "grad_batch"),
    "BatchL2Grad": (q.BatchL2Grad, bp.BatchL2Grad, "batch_l2"),
    "SecondMoment": (q.SecondMoment, bp.SumGradSquared, "sum_grad_squared"),
    "Variance": (q.Variance, bp.Variance, "variance"),
    "DiagGGN-MC": (q.DiagGGNMC, lambda: bp.DiagGGNMC(mc_samples=1), "diag_ggn_mc"),
    "KFAC": (q.KFAC, lambda: bp.KFAC(mc_samples=1), "kfac"),
    "DiagGGN": (q.DiagGGN, bp.DiagGGNExact, "diag_ggn_exact"),
    "KFLR": (q.KFLR, bp.KFLR, "kflr"),
    "DiagHessian": (q.DiagHessian, bp.DiagHessian, "diag_h"),
}
"""Name: our quantity, BackPACK's extension, and the attribute that it leaves on a parameter."""

EIGHT = [name for name in PAIRS if name != "DiagHessian"]
"""All that both sides give for networks without curved layers."""


def ours(problem: Problem, names: list[str], **keywords: Any) -> Callable[[], Any]:
    """A call of `gb.backward` with some quantities."""
    quantities = [PAIRS[name][0]() for name in names]
    return lambda: gb.backward(problem.net, LOSS, problem.x, problem.y, *quantities, rng=0, **keywords)


def theirs(problem: Problem, names: list[str]) -> Callable[[], None]:
    """Forward and backward in torch, with BackPACK's extensions if any are asked for.

    Where nothing is asked for the module is a plain one, without BackPACK's hooks.
    """
    x, y = tensors(problem)
    module, loss = problem.module, nn.CrossEntropyLoss()
    if names:
        module, loss = extend(copy_of(module), use_converter=problem.branches), extend(loss)

    def call() -> None:
        for parameter in module.parameters():
            parameter.grad = None
            for name in names:
                if hasattr(parameter, PAIRS[name][2]):
                    delattr(parameter, PAIRS[name][2])
        with backpack(*(PAIRS[name][1]() for name in names)):
            loss(module(x), y).backward()

    return call


def tensors(problem: Problem) -> list[torch.Tensor]:
    """The batch as torch has it, where the module is."""
    there = next(problem.module.parameters()).device
    return [torch.from_numpy(gb.asnumpy(part)).to(there) for part in (problem.x, problem.y)]


def their_loop(problem: Problem) -> Callable[[], None]:
    """Individual gradients in torch the naive way: one pass per sample."""
    x, y = tensors(problem)
    parameters = list(problem.module.parameters())

    def call() -> None:
        for n in range(len(x)):
            value = nn.functional.cross_entropy(problem.module(x[n : n + 1]), y[n : n + 1])
            torch.autograd.grad(value, parameters)

    return call


def our_loop(problem: Problem) -> Callable[[], None]:
    """Individual gradients by one `gb.backward` per sample."""

    def call() -> None:
        for n in range(len(problem.x)):
            gb.backward(problem.net, LOSS, problem.x[n : n + 1], problem.y[n : n + 1])

    return call


def copy_of(module: nn.Module) -> nn.Module:
    """Return a copy that shares no parameter."""
    return copy.deepcopy(module)
