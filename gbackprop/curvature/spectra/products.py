"""Products of a square matrix, given as an array or as a linear operator, with blocks of random vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module, is_array, like
from gbackprop.base.checks import kind_of, positive

Method = Callable[["Products", int, np.random.Generator], "Estimate"]
"""A function of products, a number of samples and a source of random numbers."""


@dataclass(frozen=True)
class Estimate:
    """A stochastic estimate.

    Attributes
    ----------
    value : float or ndarray
    error : float or ndarray
        Its standard error, estimated from the same draws.
    """

    value: Any
    error: Any


def chosen(methods: Mapping[str, tuple[int, Method]], method: str, samples: int) -> Method:
    """Return the function of a method, each with its least number of samples; check both arguments."""
    if not isinstance(method, str) or method not in methods:
        raise ValueError(f"method: expected one of {', '.join(methods)}, got {method!r}")
    least, estimate = methods[method]
    positive(f"samples for {method!r}", samples, least)
    return estimate


class Products:
    """A square real matrix A as the function V ↦ A V, with at most `block` vectors in one product."""

    def __init__(self, A: Any, block: int = 32) -> None:
        shape = getattr(A, "shape", None)
        if shape is None or not hasattr(A, "__matmul__"):
            raise TypeError(
                f"A: expected an array or a linear operator, with shape, dtype and @, got {type(A).__name__}"
            )
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
            raise ValueError(f"A: expected a square matrix, got shape {tuple(shape)}")
        dtype = np.dtype(getattr(A, "dtype", None) or np.float64)
        if dtype.kind not in "fiub":
            raise TypeError(f"A: expected real numbers, got {dtype}")
        self.A, self.n, self.block = A, int(shape[0]), positive("block", block)
        self.dtype = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)

    def __call__(self, vectors: Array) -> Array:
        """A V: ``(n, K) -> (n, K)``."""
        xp, count = array_module(vectors), vectors.shape[1]
        parts = [self.A @ vectors[:, start : start + self.block] for start in range(0, count, self.block)]
        for part, start in zip(parts, range(0, count, self.block), strict=True):
            expected = (self.n, min(self.block, count - start))
            if not is_array(part):
                raise TypeError(f"A: expected products that are arrays, got {kind_of(part)}")
            if part.shape != expected:
                raise ValueError(f"A: expected a product of shape {expected}, got {part.shape}")
        product = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=1)
        if not all_finite(product):
            raise ValueError("A: expected finite products with vectors, got NaN or infinity")
        return product.astype(self.dtype, copy=False)

    def signs(self, count: int, rng: np.random.Generator) -> Array:
        """Draw vectors of ±1 (Rademacher), shape (n, count), on the device of A."""
        return self.here(rng.integers(0, 2, (count, self.n)).T * 2 - 1)

    def directions(self, count: int, rng: np.random.Generator) -> Array:
        """Draw vectors of length 1 of uniform direction, shape (n, count), on the device of A."""
        vectors = rng.standard_normal((count, self.n)).T
        return self.here(vectors / np.linalg.norm(vectors, axis=0))

    def here(self, vectors: np.ndarray) -> Array:
        """Return vectors in the dtype and on the device of A."""
        return like(vectors, self.A, self.dtype) if is_array(self.A) else vectors.astype(self.dtype)
