"""Checks that what a call needs fits into the memory that is free."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, cupy_with_gpu, device_index, device_of
from gbackprop.base.errors import TooLargeError

MANY_DRAWS = 2**24
"""Number of random numbers up to which the free memory is not looked up."""

KFRA_COPIES = 7
"""Largest number of [D, D] matrices that KFRA's largest step needs at once, as measured: Ḡ, Ḡ J, its transpose, Jᵀ Ḡ J,
and temporary arrays of a layer's product."""


def available_memory(device: str) -> int:
    """Return the bytes that can still be allocated on a device, as far as the system reports them."""
    if device != "cpu":
        cupy = cupy_with_gpu(device)
        with cupy.cuda.Device(device_index(device)):
            return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: the limit is unknown
        return sys.maxsize


def size(nbytes: float) -> str:
    """Format a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def check_draws(quantity: Any, loss: Any, mc_samples: int, batch_shape: tuple[int, ...]) -> None:
    """Check that the random numbers of a Monte-Carlo quantity fit into memory, from the size of one sample's."""
    one = loss.noise((1, *batch_shape[1:]), 1, np.random.default_rng(0)).nbytes
    what = f"{quantity!r} draws {mc_samples} pseudo-targets for each of {batch_shape[0]} samples: random numbers of"
    rest = " (fewer mc_samples, or the mean over several calls)"
    check_memory("cpu", mc_samples * batch_shape[0] * one, what, rest)


def check_memory(device: str, needed: int, what: str, rest: str = "") -> None:
    """Check that so many bytes are free on a device; raise a TooLargeError, `what` and their number, otherwise."""
    free = available_memory(device)
    if needed > free:
        raise TooLargeError(f"{what} {size(needed)}, with {size(free)} free{rest}")


def check_average(leaves: Sequence[Any], x: Array) -> None:
    """Check that KFRA's largest matrices, [D, D] with D the size of a layer's output, fit into memory."""
    largest = max(leaves, key=lambda leaf: prod(leaf.output_shape), default=None)
    if largest is None:
        return
    d = prod(largest.output_shape)
    nbytes, free = d * d * x.dtype.itemsize, available_memory(device_of(x))
    if KFRA_COPIES * nbytes > free:
        raise TooLargeError(
            f"KFRA needs the averaged curvature at the output of {largest}: a [{d}, {d}] matrix of {size(nbytes)}, "
            f"{KFRA_COPIES} times, with {size(free)} free"
        )
