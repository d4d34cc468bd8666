"""Initial values of parameters, each a function of a generator and a shape, in float64."""

from collections.abc import Callable
from math import prod

import numpy as np
from scipy.special import ndtr, ndtri

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def constant(rng: np.random.Generator, shape: tuple[int, ...], value: float = 0.0) -> np.ndarray:
    """Return an array in which all numbers are the same."""
    return np.full(shape, float(value))


def truncated_normal(
    rng: np.random.Generator, shape: tuple[int, ...], deviation: float = 1.0, cut: float = 2.0
) -> np.ndarray:
    """Draw from a normal distribution about 0, truncated at `cut` deviations."""
    # By the inverse of the distribution function, one uniform number an entry: how far this moves the generator
    # depends on the shape alone, which drawing again whatever lies outside would not give.
    below, above = ndtr(-cut), ndtr(cut)
    return deviation * ndtri(rng.uniform(below, above, shape))


def xavier_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw from a normal distribution about 0 with variance 2 / (fan_in + fan_out)."""
    return rng.normal(scale=(2 / sum(fans(shape))) ** 0.5, size=shape)


def xavier_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw uniformly between ±√(6 / (fan_in + fan_out)), with the variance of `xavier_normal`."""
    bound = (6 / sum(fans(shape))) ** 0.5
    return rng.uniform(-bound, bound, shape)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of inputs that an output depends on, and of outputs that depend on an input."""
    if len(shape) < 2:
        raise ValueError(f"shape: expected that of a weight, (outputs, inputs, *kernel), got {shape}")
    outputs, inputs, *kernel = shape
    return inputs * prod(kernel), outputs * prod(kernel)
