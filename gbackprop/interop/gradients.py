"""Gradients of a torch module beside those of the calls that are captured of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop.interop.arguments import at
from gbackprop.interop.capture import Capture, calling, evaluating

Gradients = dict[str, torch.Tensor]
"""Gradients by the name of a parameter, or "its input"."""

FURTHER = 30
"""A factor of the example: beyond a bound the derivatives of a torch.autograd.Function may be others."""

LARGER = 1e4
"""The factor of larger gradients of the output, which a hook may clip."""

TOLERANCE = 1e3
"""Largest difference of an entry of a gradient, relative to it, in roundings of its dtype."""

NOISE = 100
"""The same, relative to the rounding that the calls' own gradients of a parameter show."""

LEAST = 20
"""The same, relative to the largest gradient of all, in roundings; 2 are measured."""


def check_gradients(
    module: torch.nn.Module, chosen: Any, capture: Capture, x: torch.Tensor, calls: Callable[..., Any]
) -> None:
    """Check that a module has the gradients of the calls that it makes, which a hook or `no_grad` may change."""
    named = {name: value for name, value in module.named_parameters() if value.requires_grad}
    hooked = [name for name, value in named.items() if is_hooked(value)]
    if hooked:
        raise at("", module, f"expected parameters without hooks, got {hooked[0]} with one, which may change its "
                 "gradient (remove it)")  # fmt: skip
    with torch.inference_mode(False), torch.enable_grad():
        pairs, defines = _both(module, chosen, capture, x, calls, named)
        if defines and x.is_floating_point():
            further, _ = _both(module, chosen, capture, FURTHER * x, calls, named)
            # where the calls overflow, a Function may be written for that
            pairs += [pair for pair in further if all(bool(v.isfinite().all()) for v in pair[1].values())]
    for theirs, found, noise in pairs:
        _compare(module, theirs, found, noise)


def is_hooked(value: torch.Tensor) -> bool:
    """Return whether a parameter has hooks that take its gradient, before or after it is added to `grad`."""
    return bool(value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None))


def _both(
    module: torch.nn.Module,
    chosen: Any,
    capture: Capture,
    x: torch.Tensor,
    calls: Callable[..., Any],
    named: dict[str, torch.nn.Parameter],
) -> tuple[list[tuple[Gradients, Gradients, Gradients]], bool]:
    """Return gradients of a module at x, those of its calls and their rounding, and whether it defines any itself."""
    x = x.clone().requires_grad_(x.is_floating_point())
    leaves = {**named, **({"its input": x} if x.requires_grad else {})}
    own = {node: named[name] for node, name in capture.parameters.items() if name in named}
    try:
        with evaluating(module), calling({module: chosen}):
            output = module(x.clone())
            theirs = _gradients(output, leaves)
    except (RuntimeError, IndexError):  # torch has none, such as of what is changed in place; or no such input
        return [], False
    found = _gradients(capture.run(x, calls, known=own, gradients=True)[capture.output], leaves)
    one, larger = found
    noise = {name: (one[name] - larger[name]).nan_to_num(0, 0, 0).abs() for name in leaves}
    return [(*pair, noise) for pair in zip(theirs, found, strict=True)], _has_function(output)


def _has_function(output: torch.Tensor) -> bool:
    """Return whether an output is computed with a torch.autograd.Function, whose derivatives are its own."""
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                return True
            waiting += [each for each, _ in node.next_functions]
    return False


def _compare(module: torch.nn.Module, theirs: Gradients, found: Gradients, noise: Gradients) -> None:
    """Check that gradients are equal, up to rounding."""
    largest = max((float(v[v.isfinite()].abs().max()) for v in theirs.values() if v.isfinite().any()), default=0.0)
    wrong = []
    for name, value in theirs.items():
        eps = torch.finfo(value.dtype).eps
        bound = LEAST * eps * largest + NOISE * float(noise[name].max() if value.numel() else 0)
        if not torch.allclose(value, found[name], TOLERANCE * eps, bound, equal_nan=True):
            wrong.append(name)
    if wrong:
        words = f"{', '.join(wrong[:3])}{f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''}"
        raise at("", module, f"expected the gradients of the functions that it calls, got others of {words} "
                 "(a torch.autograd.Function, a hook, or cosine_similarity of a norm below its eps)")  # fmt: skip


def _gradients(output: torch.Tensor, leaves: Gradients) -> list[Gradients]:
    """Return the gradients of a sum of all outputs with factors that differ, and with larger ones, over these."""
    if not output.requires_grad or not leaves:
        return [{name: torch.zeros_like(value) for name, value in leaves.items()}] * 2
    factors = torch.arange(output.numel(), dtype=output.dtype).cos().reshape(output.shape)
    gradients = []
    for size in (1, LARGER):
        total = (output * (size * factors)).sum()
        found = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True, retain_graph=True)
        gradients.append({name: value.to_dense() / size for name, value in zip(leaves, found, strict=True)})
    return gradients
