"""A loss at outputs and targets: everything that it can be asked there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.losses.base import Loss
from gbackprop.testing.differences import REAL_STEP, Derivative, derivative
from gbackprop.testing.points import input_curve, inside, largest, size_of

LossMethod = Callable[[np.ndarray, np.ndarray], Any]
"""A function of outputs and targets."""


SURE = 1e-3
"""The share of its terms below which a gradient is what is left of them."""


@dataclass(frozen=True)
class LossProbe:
    """A loss at outputs ``[N, *out]`` and targets, of which some coordinates `where`, counted flat, are looked at."""

    loss: Loss
    output: np.ndarray
    target: np.ndarray
    where: np.ndarray

    @property
    def drawn(self) -> np.ndarray:
        """Outputs of size 1, where the loss is not sure of any target, and nothing cancels."""
        return inside(self.loss, np.random.default_rng(0).standard_normal(self.output.shape))

    @cached_property
    def sizes_of_terms(self) -> tuple[float, float]:
        """The sizes of the terms of ∇ℓ and ∇²ℓ, which cancel where the loss is sure: those at drawn outputs.

        They are 0 where a loss at fault gives no finite numbers.
        """
        there = replace(self, output=self.drawn)
        with suppress(Exception):
            sizes = largest(there.gradients()), largest(there.hessian().values)
            return sizes if np.isfinite(sizes).all() else (0.0, 0.0)
        return 0.0, 0.0

    @property
    def is_sure(self) -> bool:
        """True if ∇ℓ is a thousand times smaller than its terms."""
        with suppress(Exception):  # another claim says what is wrong
            return largest(self.gradients()) < SURE * self.sizes_of_terms[0]
        return False

    def values(self, moved: np.ndarray) -> np.ndarray:
        """Return the loss at a multiple of the batch, in the order [repeat, sample]."""
        return self.loss.values(moved, self._tiled(moved))

    def _tiled(self, moved: np.ndarray) -> np.ndarray:
        return np.concatenate([self.target] * (len(moved) // len(self.output)))

    def gradients(self) -> np.ndarray:
        """Return ∇ℓ, of the shape of the outputs."""
        return self.loss.gradients(self.output, self.target)

    def root(self, columns: slice = slice(None)) -> np.ndarray:
        """Return the columns of the root of ∇²ℓ."""
        return self.loss.hessian_sqrt(self.output, self.target, columns)

    def drawn_root(self, targets: np.ndarray) -> np.ndarray:
        """Return the Monte-Carlo root at given pseudo-targets."""
        return self.loss.hessian_sqrt_mc(self.output, targets, self.target)

    def at(self, columns: np.ndarray) -> np.ndarray:
        """Return columns ``[V, N, *out]`` at the coordinates looked at, ``[V, N, K]``."""
        return columns.reshape(*columns.shape[:2], -1)[:, :, self.where]

    def hessian(self) -> Derivative:
        """∇²ℓ at the coordinates looked at, by differences of the gradients, shape (K, N, K)."""

        def gradients(moved: np.ndarray) -> np.ndarray:
            each = self.loss.gradients(moved, self._tiled(moved))
            return each.reshape(len(each), -1)[:, self.where]

        return derivative(input_curve(gradients, self.output, self.where), REAL_STEP * size_of(self.output))

    def calls(self) -> dict[str, LossMethod]:
        """Return every method of output and target; the Monte-Carlo root at draws of one seed."""

        def root(output: np.ndarray, target: np.ndarray) -> np.ndarray:
            drawn = self.loss.draw(output.astype(np.float64), 2, 0)  # counts that float32 may not tell apart
            drawn = drawn.astype(output.dtype) if drawn.dtype.kind == "f" else drawn
            return self.loss.hessian_sqrt_mc(output, drawn, target)

        names = ("values", "gradients", "hessian_sqrt", "hessian_sum")
        return {name: getattr(self.loss, name) for name in names} | {"hessian_sqrt_mc": root}
