"""What is checked before anything is computed. Each message names the argument, what was expected and what came."""

from __future__ import annotations

from typing import Any

from gbackprop.array import FLOATS, Array, all_finite, device_of, is_array
from gbackprop.layers.base import Layer


def check_parameters(network: Layer) -> None:
    """All parameters of one dtype, on one device, finite.

    Raises
    ------
    TypeError
        If dtypes or devices differ.
    ValueError
        If a parameter holds NaN or infinity.
    """
    first: tuple[str, Array] | None = None
    for name, value in network.parameters.items():
        first = first or (name, value)
        if (value.dtype, device_of(value)) != (first[1].dtype, device_of(first[1])):
            raise TypeError(
                f"parameter {name}: expected {first[1].dtype} on {device_of(first[1])} as {first[0]} is, "
                f"got {value.dtype} on {device_of(value)} (net.to moves all of them)"
            )
    if all_finite(*network.parameters.values()):
        return
    for name, value in network.parameters.items():
        if not all_finite(value):
            raise ValueError(f"parameter {name}: expected finite numbers, got NaN or infinity")


def check_batch(network: Layer, x: Any) -> None:
    """A non-empty batch of finite floats, of the parameters' dtype and on their device.

    Raises
    ------
    TypeError
        If `x` is not an array of the right dtype on the right device.
    ValueError
        If the batch is empty, or holds NaN or infinity.
    """
    check_floats("x", x)
    parameter = next(iter(network.parameters.items()), None)
    if parameter is not None:
        check_same("x", x, parameter[0], parameter[1])
    if x.ndim < 1 or x.shape[0] == 0:
        raise ValueError(f"x: expected a batch of at least one sample, got shape {x.shape}")
    if not all_finite(x):
        raise ValueError("x: expected finite numbers, got NaN or infinity")


def check_floats(name: str, x: Any) -> None:
    """`x` is an array of float32 or float64.

    Raises
    ------
    TypeError
        Otherwise.
    """
    if not is_array(x):
        raise TypeError(f"{name}: expected a NumPy or CuPy array, got {type(x).__name__}")
    if x.dtype.name not in FLOATS:
        raise TypeError(f"{name}: expected {' or '.join(FLOATS)}, got {x.dtype}")


def check_same(name: str, x: Array, other_name: str, other: Array, dtype: bool = True) -> None:
    """`x` lies on the device of `other` and, if `dtype`, has its dtype.

    Raises
    ------
    TypeError
        Otherwise.
    """
    if device_of(x) != device_of(other):
        raise TypeError(
            f"{name}: expected an array on {device_of(other)} as {other_name} is, got one on {device_of(x)} "
            "(move it with gb.asarray, or the network with net.to)"
        )
    if dtype and x.dtype != other.dtype:
        raise TypeError(f"{name}: expected {other.dtype} as {other_name} is, got {x.dtype}")
