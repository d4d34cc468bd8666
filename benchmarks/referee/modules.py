"""Problems as modules of torch, for the adapters of its libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from gbackprop.testing.referee import Problem

DRAWS, SAMPLES = 40, 60
"""Draws of which the mean is judged, and the samples in each."""


def module_of(problem: Problem) -> nn.Sequential:
    """Return the network in float64, with its parameters."""
    module = nn.Sequential(*[getattr(nn, kind)(**keywords) for kind, keywords in problem.layers]).double()
    module.load_state_dict({name: torch.tensor(value) for name, value in problem.parameters.items()})
    return module


def loss_of(problem: Problem) -> nn.Module:
    """Return the loss."""
    return getattr(nn, problem.loss)(reduction=problem.reduction)


def batch_of(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets."""
    return torch.tensor(problem.x), torch.tensor(problem.y)


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array of its own."""
    return tensor.detach().cpu().numpy().copy()


def stacked(function: Callable[[Problem, int], Any]) -> Callable[[Problem], Any]:
    """Return a function that stacks draws; each takes a problem and a seed, which is torch's, too."""

    def draws(problem: Problem) -> dict[str, np.ndarray]:
        every = []
        for seed in range(DRAWS):
            torch.manual_seed(seed)
            every.append(function(problem, seed))
        return {name: np.stack([each[name] for each in every]) for name in every[0]}

    return draws


def by_name(problem: Problem, flat: Any) -> dict[str, np.ndarray]:
    """Return the parts (..., *p) of what has all parameters on its last axis."""
    flat, found, start = np.asarray(flat.detach() if isinstance(flat, torch.Tensor) else flat), {}, 0
    for name, value in problem.parameters.items():
        found[name] = flat[..., start : start + value.size].reshape(*flat.shape[:-1], *value.shape)
        start += value.size
    return found


def diagonal_blocks(problem: Problem, matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Return the block (P, P) of each parameter of a matrix (D, D)."""
    found, start = {}, 0
    for name, value in problem.parameters.items():
        found[name] = np.asarray(matrix)[start : start + value.size, start : start + value.size]
        start += value.size
    return found


def krons(problem: Problem, factors: Iterable[list[torch.Tensor]]) -> dict[str, np.ndarray]:
    """Return B ⊗ A of each [B, A], B of each [B], in the order of the parameters."""
    blocks = [array(each[0]) if len(each) == 1 else np.kron(*map(array, each)) for each in factors]
    return dict(zip(problem.parameters, blocks, strict=True))
