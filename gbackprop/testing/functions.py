"""Functions of arrays and their gradients, whatever computes them: arrays by name, and slopes along directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gbackprop.testing.claims import FoundError
from gbackprop.testing.differences import EPS, derivative
from gbackprop.testing.points import size_of

STEPS = 10.0 ** np.arange(-1, -5.5, -0.5)
"""Steps h among which one is chosen by its error; for parameters of size 1."""

TOLERANCE, ROUNDED = 1e-7, 1e4
"""Error allowed beside the largest entry, and how many times the rounding of f."""

Arrays = dict[str, np.ndarray]


def leaves(what: str, tree: Any, name: str = "") -> Arrays:
    """Return the arrays of a tree by their paths."""
    if isinstance(tree, Mapping | list | tuple):
        if not tree:
            raise ValueError(f"{what}: expected arrays, got an empty {type(tree).__name__}")
        parts = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
        found = [leaves(what, value, f"{name}.{key}" if name else str(key)) for key, value in parts]
        return {path: array for each in found for path, array in each.items()}
    array = np.asarray(tree)
    if array.dtype.kind != "f":
        raise TypeError(f"{what}{name and f', {name}'}: expected an array of floats, got {array.dtype}")
    return {name or "params": array}


def like(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """Return a tree of copies of other arrays."""
    if isinstance(tree, Mapping):
        return {key: like(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([like(value, arrays) for value in tree])
    return next(arrays).copy()


@dataclass
class Subject:
    """A function and its gradient, of arrays by name."""

    f: Callable[[Any], Any]
    grad: Any
    tree: Any
    rng: np.random.Generator
    batch: int | None
    eps: float = EPS  # the rounding of f, beside its value
    step: float = float(STEPS[0])
    before: Arrays = field(default_factory=dict)  # the gradient where it was checked last

    @property
    def tolerance(self) -> float:
        """Error to allow beside the largest entry."""
        return max(TOLERANCE, ROUNDED * self.eps)

    def value(self, point: Arrays) -> np.ndarray:
        """Return f, shape ()."""
        value = np.asarray(self.f(like(self.tree, iter(point.values()))))
        if value.size != 1 or value.dtype.kind not in "fc":
            raise FoundError(f"expected one number, got {value.dtype} of shape {value.shape}")
        return value.reshape(()).astype(np.result_type(value, np.float64))

    def gradient(self, point: Arrays) -> Arrays:
        """Return the gradient, of the names and shapes of the parameters."""
        found = leaves("grad", self.grad(like(self.tree, iter(point.values()))) if callable(self.grad) else self.grad)
        want, got = ({n: a.shape for n, a in each.items()} for each in (point, found))
        if want != got:
            raise FoundError(f"expected arrays of shapes {want}, got {got}")
        return {name: np.array(found[name], np.float64) for name in point}

    def direction(self, point: Arrays) -> Arrays:
        """Draw a direction in all parameters, of the size of each."""
        return {n: (self.rng.standard_normal(p.shape) * size_of(p)).astype(p.dtype) for n, p in point.items()}

    def slope(
        self, point: Arrays, direction: Arrays, unit: float = 1.0, complex_too: bool = True
    ) -> tuple[float, float, str] | None:
        """Return the derivative of f along a direction, its error and its oracle; None at a kink, however small h."""

        def curve(t: complex) -> np.ndarray:
            if isinstance(t, complex) and not complex_too:
                raise TypeError("real steps alone")
            return self.value(point | {name: point[name] + t * d for name, d in direction.items()})

        for h in (self.step, self.step / 10, self.step / 100):
            with suppress(Exception):  # beyond where f is defined
                found = derivative(curve, h * unit, self.eps)
                if np.isfinite(found.values) and not found.kinks.any():
                    return float(found.values), found.error, found.oracle
        return None

    def look(self, point: Arrays, name: str, direction: np.ndarray) -> tuple[float, float, str] | None:
        """Return `slope` along a direction in one parameter; to rounding if f is one in float64 of complex numbers."""
        value = point[name]
        exact = self.tolerance == TOLERANCE
        return self.slope(point, {name: direction.astype(value.dtype)}, size_of(value), exact)
