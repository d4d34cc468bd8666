"""Networks beyond the paper's: one and three axes, transposed convolution, shortcuts, a recurrent layer, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from backpack.custom_module.reduce_tuple import ReduceTuple
from backpack.custom_module.slicing import Slicing
from problems import LOSS, Problem
from sides import copy_of, ours, tensors, theirs
from timing import take_turns
from torch import nn

import gbackprop as gb
from gbackprop import layers

NETWORK = ["gradient", "BatchGrad", "DiagGGN-MC", "KFAC"]
"""What is asked of a network that BackPACK takes whole."""


def one_axis() -> nn.Module:
    """Three strided convolutions over 256 positions of 8 channels."""
    sizes = [(8, 32, 5, 2, 2), (32, 64, 5, 2, 2), (64, 128, 3, 2, 1)]
    parts = [part for size in sizes for part in (nn.Conv1d(*size), nn.ReLU())]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(128 * 32, 10))


def three_axes() -> nn.Module:
    """Three strided convolutions over volumes of 16 × 16 × 16."""
    sizes = [(3, 16, 3, 2, 1), (16, 32, 3, 2, 1), (32, 64, 3, 2, 1)]
    parts = [part for size in sizes for part in (nn.Conv3d(*size), nn.ReLU())]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(512, 10))


def transposed() -> nn.Module:
    """Two strided convolutions of images of 32 × 32, and two transposed ones back to their size."""
    down = [nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU()]
    up = [nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1)]
    return nn.Sequential(*down, *up, nn.Flatten(), nn.Linear(3072, 10))


class Block(nn.Module):
    """Two convolutions beside a shortcut, each with a batch normalization in evaluation mode, or with none."""

    def __init__(self, before: int, channels: int, stride: int, norm: bool) -> None:
        super().__init__()

        def step(i: int, k: int, s: int) -> list[nn.Module]:
            found: list[nn.Module] = [nn.Conv2d(i, channels, k, s, k // 2, bias=not norm)]
            return [*found, nn.BatchNorm2d(channels)] if norm else found

        self.main = nn.Sequential(*step(before, 3, stride), nn.ReLU(), *step(channels, 3, 1))
        same = stride == 1 and before == channels
        self.shortcut = nn.Sequential() if same else nn.Sequential(*step(before, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both ways."""
        return self.relu(self.main(x) + self.shortcut(x))


def resnet18(norm: bool) -> nn.Module:
    """ResNet-18 for images of 32 × 32: a first convolution of 3 × 3 without pooling, 11 million parameters."""
    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    first: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=not norm), *([nn.BatchNorm2d(64)] if norm else [])]
    blocks = [Block(*size, norm) for size in [*sizes, (512, 512, 1)]]
    return nn.Sequential(*first, nn.ReLU(), *blocks, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)).eval()


def recurrent() -> tuple[nn.Module, gb.Sequential]:
    """An LSTM with 64 units over 50 steps of 32 numbers, and a linear layer on its last output."""
    last = Slicing((slice(None), -1))
    module = nn.Sequential(nn.LSTM(32, 64, batch_first=True), ReduceTuple(0), last, nn.Linear(64, 10))
    network = gb.Sequential(gb.LSTM(32, 64), layers.Identity(), layers.Select(1, -1), layers.Linear(64, 10), rng=0)
    return module, network


class SelfAttention(nn.MultiheadAttention):
    """Self-attention with four heads over tokens of width 64."""

    def __init__(self) -> None:
        super().__init__(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Compute the output alone, as fast as torch can."""
        return super().forward(x, x, x, need_weights=False)[0]


def attention() -> tuple[nn.Module, gb.Sequential]:
    """Self-attention over 64 tokens of width 64, and a linear layer on all tokens."""
    network = gb.Sequential(gb.MultiheadAttention(64, 4), layers.Flatten(), layers.Linear(4096, 10), rng=0)
    return nn.Sequential(SelfAttention(), nn.Flatten(), nn.Linear(64 * 64, 10)), network


def problem_of(name: str, module: nn.Module, shape: tuple[int, ...], network: gb.Sequential | None = None) -> Problem:
    """Make a problem of a torch module and a batch of shape `shape`; both sides must have the same gradient."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape, dtype=np.float32), rng.integers(0, 10, shape[0])
    if network is None:
        network = gb.interop.from_torch(module, x[:2])
    else:
        network.load_state_dict(module.state_dict())
    branches = any(isinstance(part, Block) for part in module.modules())
    found = Problem(name, network, x, y, module, branches)
    _compare(found)
    return found


def rows(turns: int) -> dict[str, Any]:
    """Measure the gradient beside torch's, quantities beside BackPACK's or, where it has none, torch.func's."""
    torch.manual_seed(0)
    found = {}
    for name, make, shape, asked in (
        ("Conv1d network, N = 64", one_axis, (64, 8, 256), NETWORK),
        ("Conv3d network, N = 16", three_axes, (16, 3, 16, 16, 16), NETWORK),
        ("ConvTranspose2d network, N = 32", transposed, (32, 3, 32, 32), NETWORK),
        ("ResNet-18 with BatchNorm, N = 32", lambda: resnet18(True), (32, 3, 32, 32), NETWORK[:3]),
        ("ResNet-18 without norms, N = 32", lambda: resnet18(False), (32, 3, 32, 32), NETWORK),
        ("LSTM, N = 64, 50 steps, 64 units", recurrent, (64, 50, 32), NETWORK[:3]),
    ):
        made = make()
        module, network = made if isinstance(made, tuple) else (made, None)
        problem = problem_of(name, module, shape, network)
        for each in asked:
            names = [] if each == "gradient" else [each]
            calls = {"ours": ours(problem, names), "theirs": theirs(problem, names)}
            found[f"{name}: {each}"] = take_turns(calls, turns)
    name = "attention, N = 32, 64 tokens, width 64"
    module, network = attention()
    problem = problem_of(name, module, (32, 64, 64), network)
    found[f"{name}: gradient"] = take_turns({"ours": ours(problem, []), "theirs": theirs(problem, [])}, turns)
    calls = {"ours": ours(problem, ["BatchGrad"]), "theirs": each_gradient(problem)}
    return found | {f"{name}: BatchGrad (torch.func)": take_turns(calls, turns)}


def each_gradient(problem: Problem) -> Callable[[], Any]:
    """Return a call of torch.func that computes individual gradients."""
    x, y = tensors(problem)
    module = copy_of(problem.module)
    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def loss(values: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        output = torch.func.functional_call(module, values, (image[None],))
        return nn.functional.cross_entropy(output, label[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return lambda: each(parameters, x, y)


def _compare(problem: Problem) -> None:
    """Check that both sides compute the same gradient of four samples, in float64."""
    few, network = problem.first(4), problem.net.astype("float64")  # converts the network itself
    module, (x, y) = copy_of(problem.module).double(), tensors(few)
    nn.functional.cross_entropy(module(x.double()), y).backward()
    found = gb.backward(network, LOSS, few.x.astype("float64"), few.y).gradient
    network.astype("float32")
    for name, parameter in module.named_parameters():
        other = parameter.grad.numpy()
        error = abs(found[name] - other).max() / abs(other).max()
        if error > 1e-10:
            raise ValueError(f"{problem.name}: the gradients of {name} differ by {error:.1e} of the largest number")
