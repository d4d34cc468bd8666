"""Gradients of a torch module beside those of the calls that are captured of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop.interop.arguments import at
from gbackprop.interop.capture import Capture, calling, evaluating

TOLERANCE = 1e-2
"""Largest difference of gradients, relative to the largest of a parameter; what is cut off differs by all."""

NOISE = 1e-5
"""Gradients that are no more than this, relative to the largest of all, are rounding."""


def check_gradients(
    module: torch.nn.Module, chosen: Any, capture: Capture, x: torch.Tensor, calls: Callable[..., Any]
) -> None:
    """Check that a module has the gradients of the calls that it makes, which a hook or `no_grad` may change."""
    named = {name: value for name, value in module.named_parameters() if value.requires_grad}
    with torch.inference_mode(False), torch.enable_grad():
        x = x.clone().requires_grad_(x.is_floating_point())
        leaves = {**named, **({"its input": x} if x.requires_grad else {})}
        own = {node: named[name] for node, name in capture.parameters.items() if name in named}
        try:
            with evaluating(module), calling({module: chosen}):
                theirs = _gradients(module(x.clone()), leaves)
            found = _gradients(capture.run(x, calls, known=own, gradients=True)[capture.output], leaves)
        except RuntimeError:  # there are no gradients, such as of what is changed in place and needed
            return
    largest = max((float(value.abs().max()) for value in theirs.values() if value.numel()), default=0.0)
    wrong = [name for name, value in theirs.items() if _differ(value, found[name], NOISE * largest)]
    if wrong:
        words = f"{', '.join(wrong[:3])}{f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''}"
        reasons = "torch.no_grad, a torch.autograd.Function, or a hook"
        raise at("", module, f"expected the gradients of the functions that it calls, got others of {words} "
                 f"({reasons})")  # fmt: skip


def _gradients(output: torch.Tensor, leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the gradients of a sum of all outputs with factors that differ."""
    if not output.requires_grad or not leaves:
        return {name: torch.zeros_like(value) for name, value in leaves.items()}
    factors = torch.arange(output.numel(), dtype=output.dtype).cos().reshape(output.shape)
    found = torch.autograd.grad((output * factors).sum(), list(leaves.values()), materialize_grads=True)
    return {name: value.nan_to_num_() for name, value in zip(leaves, found, strict=True)}


def _differ(a: torch.Tensor, b: torch.Tensor, noise: float) -> bool:
    if not a.numel():
        return False
    largest = float(torch.maximum(a.abs(), b.abs()).max())
    return float((a - b).abs().max()) > max(TOLERANCE * largest, noise)
