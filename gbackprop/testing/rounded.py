"""Layers and losses whose results are off by roundings of the terms that may have cancelled in them.

The Jacobian p (δ − pᵀ) of a softmax that is sure of a class is what is left of terms of size 1, as is σ (1 − σ) of a
sigmoid: what results move by where inputs move does not show how these are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer
from gbackprop.layers import Elementwise
from gbackprop.losses.base import Loss
from gbackprop.testing.claims import MOVED, UNIT
from gbackprop.testing.complex_steps import flat
from gbackprop.testing.points import largest


class Rounding(partial[Any]):
    """A method with roundings; as it ships, a layer that has it is not tested as a user's, which would take draws."""


def round_products(layers: Iterable[Layer], rng: np.random.Generator, unit: float = UNIT) -> None:
    """Let Jᵀ of each layer that is not linear be off by MOVED roundings of the columns that it multiplies."""
    for layer in _curved(layers):
        for name in ("mjp", "vjp"):
            vars(layer)[name] = Rounding(_product, getattr(layer, name), rng, MOVED * unit)


def round_values(layers: Iterable[Layer], rng: np.random.Generator, unit: float) -> None:
    """Let y of each layer that is not linear be off by MOVED roundings of its input, for complex steps."""
    for layer in _curved(layers):
        vars(layer)["forward"] = Rounding(_values, layer.forward, rng, MOVED * unit, isinstance(layer, Elementwise))


def _curved(layers: Iterable[Layer]) -> list[Layer]:
    each = {id(layer): layer for layer in layers}.values()
    return [layer for layer in each if layer.curvature != "zero" or isinstance(layer, Elementwise)]


def _product(method: Callable[..., Any], rng: np.random.Generator, share: float, saved: Any, mat: np.ndarray) -> Any:
    below = method(saved, mat)
    size = share * largest(mat)

    def off(part: np.ndarray) -> np.ndarray:
        return (part + size * rng.uniform(-1, 1, part.shape)).astype(part.dtype)

    return tuple(map(off, below)) if isinstance(below, tuple) else off(below)


def _values(
    forward: Callable[..., Any], rng: np.random.Generator, share: float, elementwise: bool, *x: np.ndarray
) -> tuple[np.ndarray, Any]:
    """Return values that are off; those of an elementwise function may be what is left of its input, as x − tanh x."""
    y, saved = forward(*x)
    if elementwise:
        y = y + share * largest(x[0]) * np.random.default_rng(0).uniform(-1, 1, y.shape)
    steps = share * max(largest(part.imag) for part in x)
    return y + 1j * steps * rng.uniform(-1, 1, y.shape), saved


@dataclass(frozen=True)
class RoundedLoss:
    """The gradients of a loss, to be differentiated at an output, with errors (N, C, C) of its Hessian there."""

    loss: Loss
    output: np.ndarray
    errors: np.ndarray

    def gradients(self, output: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return ∇ℓ of each sample, and the errors times what the output has moved by."""
        off = np.einsum("ncd,nd->nc", self.errors, flat(output - self.output))
        return self.loss.gradients(output, target) + off.reshape(output.shape)
