"""Leaves of a graph that take no input: a parameter that is a node, and a fixed array."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, is_array, like
from gbackprop.base.checks import check_flag, positive
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.tied import Direct


class _Leaf(Layer):
    """Base class of nodes without inputs: their output has one row, ``[1, *shape]``, which is that of all samples."""

    broadcasts = True
    shape: Shape

    def output_shape(self, *shapes: Shape) -> Shape:
        if shapes:
            raise ValueError(f"expected no input, got {len(shapes)}")
        return self.shape


class Parameter(_Leaf):
    """A parameter as a node of a `Graph`, for any operation to take; it has the node's name.

    What arrives at it, ``[V, N, *shape]``, is Jᵀ g of each sample: all quantities follow but Kronecker factors.

    Parameters
    ----------
    shape : tuple of int
    initial : ndarray or float, optional
        The values that it begins with, of that shape or one number for all; by default they are drawn from the normal
        distribution of standard deviation 1/√(size of the last axis).

    Raises
    ------
    ValueError
        If the shape is none, or that of `initial` is another.

    Examples
    --------
    >>> Graph({"shift": (Parameter((3,)),), "y": (Operation("add"), "input", "shift")})
    """

    formulas = {"forward": "y = p", "mjp": "no input"}
    kronecker_factors = "a parameter that is a node is no weight of a layer"

    def __init__(self, shape: Any, initial: Any = None) -> None:
        given = (shape,) if isinstance(shape, Integral) else shape
        if not isinstance(given, tuple | list):
            raise ValueError(f"shape: expected an integer or a tuple of integers, got {shape!r}")
        self.shape = tuple(positive("shape", size) for size in given)
        self.initial = None if initial is None else np.array(initial)
        if self.initial is not None and self.initial.dtype.kind not in "fiu":
            raise TypeError(f"initial: expected numbers, got {self.initial.dtype}")
        if self.initial is not None and not np.isfinite(self.initial).all():
            raise ValueError("initial: expected finite numbers, got NaN or infinity")
        if self.initial is not None and self.initial.shape not in ((), self.shape):
            raise ValueError(f"initial: expected a number or shape {self.shape}, got shape {self.initial.shape}")

    def describe(self) -> str:
        return str(self.shape)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"": self.shape}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        if self.initial is not None:
            return {"": np.broadcast_to(self.initial, self.shape).astype("float64")}
        scale = max(1, self.shape[-1] if self.shape else 1) ** -0.5
        return {"": np.asarray(scale * rng.standard_normal(self.shape))}

    def forward(self) -> tuple[Array, Any]:  # type: ignore[override]
        return self.parameters[""][None], None

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return ()

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {"": Itself()}


class Itself(Direct):
    """The Jacobian of a parameter in itself, the identity for each sample."""

    def push(self, directions: Array, batch: int, shape: Shape) -> Array:
        """Return J P = P for each sample: ``[K, *p] -> [K, N, *p]``."""
        xp = array_module(directions)
        return xp.broadcast_to(directions[:, None], (len(directions), batch, *shape))


class Constant(_Leaf):
    """A fixed array as a node of a `Graph`, such as a mask, positions, or a matrix; it is a buffer of the node's name.

    Parameters
    ----------
    value : array_like of floats, integers or booleans
        Floats are taken in the network's dtype, others as they are, which conditions may be.
    persistent : bool
        Whether the array is in the network's state dict.

    Raises
    ------
    TypeError
        If the value is no array of numbers.
    """

    formulas = {"forward": "y = c", "mjp": "no input"}

    def __init__(self, value: Any, persistent: bool = True) -> None:
        self.persistent = check_flag("persistent", persistent)
        array = value.copy() if is_array(value) else np.array(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"value: expected an array of floats, integers or booleans, got {array.dtype}")
        self.buffers: dict[str, Array] = {"": array}

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Shape of the array."""
        return self.buffers[""].shape

    def describe(self) -> str:
        return f"array of shape {self.shape}"

    def forward(self) -> tuple[Array, Any]:  # type: ignore[override]
        value = self.buffers[""]
        dtype = (self.dtype or "float32") if value.dtype.kind == "f" else value.dtype
        return like(value, value, dtype)[None], None

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return ()
