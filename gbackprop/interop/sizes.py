"""Conditions on the number of samples under which torch.export captures a module, and what is right beyond them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from gbackprop.interop.arguments import at
from gbackprop.network import Container

MOST, LARGE = 2_000, 5_000_000
"""The largest number of samples at which a condition is looked at, and of numbers of a batch that is compared there."""

LOOSE = 1e-3
"""By how much torch's two ways to compute the same may differ, relative to the largest number."""


def conditions_of(program: Any) -> tuple[str, ...]:
    """Return the conditions on the number of samples, N, under which a program was captured."""
    guards = [re.sub(r"L\['?\w+'?\]\.size\(\)\[0\]", "N", each) for each in getattr(program, "_guards_code", ())]
    bounds = [f"N <= {each.upper}" for each in program.range_constraints.values() if each.upper.is_Integer]
    return tuple(guards or bounds)


def sizes_beyond(conditions: Sequence[str]) -> list[int]:
    """Return up to three numbers of samples for which a condition does not hold; none where that is not known."""
    try:
        codes = [compile(each, "<condition>", "eval") for each in conditions]
        holds = lambda n: all(eval(code, {"N": n}) for code in codes)  # noqa: E731
        first = next((n for n in range(2, MOST) if not holds(n)), 0)
        return [n for n in (first, first + 1, 2 * first + 1) if first and not holds(n)]
    except Exception:  # a condition on something else
        return []


def check_beyond(
    module: torch.nn.Module, output_of: Callable[[torch.Tensor], np.ndarray], network: Container,
    conditions: Sequence[str], x: torch.Tensor,
) -> None:  # fmt: skip
    """Check that a network has the module's output, too, where conditions under which it was captured do not hold.

    Functions such as torch.cdist choose by the number of samples how they compute the same.
    """
    sizes = [n for n in sizes_beyond(conditions) if n * x[0].numel() < LARGE]
    right = bool(sizes) or not conditions
    for n in sizes:
        batch = x[torch.arange(n) % len(x)]
        try:
            expected = output_of(batch)
        except ValueError:  # the module refuses so many
            continue
        near = partial(np.allclose, rtol=LOOSE, atol=LOOSE * np.abs(expected).max())
        found = network(batch.numpy())
        right = right and found.shape == expected.shape and near(found, expected)
    if not right:
        words = " and ".join(conditions)
        raise at("", module, f"expected code for any number of samples, got code for {words} alone")
