"""TF32 on a GPU: an explicit context, off by default."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any

import numpy as np

from gbackprop.array import cupy_with_gpu


def tf32() -> AbstractContextManager:
    """Return a context in which products of float32 on a GPU may round their factors to TF32, 10 bits of mantissa.

    ::

        with gb.tf32():
            result = gb.backward(net, loss, x, y, quantity)

    This is less accurate, and meant to be faster: one rounding is up to 2⁻¹¹ of a factor, 4.9e-4; docs/gpu.md has what
    that did to results of one network. Without it products are in float32, unless CuPy's own variable ``CUPY_TF32=1``
    is set. The setting belongs to CuPy and to the process: meanwhile it applies to calls in other threads, too. It
    changes nothing on the host, nothing in float64, and neither sums nor elementwise steps.

    Raises
    ------
    RuntimeError
        On entering, if CuPy is missing or finds no GPU.
    """
    return _shared()


class _TF32:
    """A context that the first thread to enter sets, and the last one to leave restores."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = Lock(), 0, None

    def __enter__(self) -> None:
        core: Any = cupy_with_gpu("cuda")._core
        with self.lock:
            if self.users == 0:
                self.before = core.get_compute_type(np.float32)
                core.set_compute_type(np.float32, core._routines_linalg.COMPUTE_TYPE_TF32)
            self.users += 1

    def __exit__(self, *error: object) -> None:
        core: Any = cupy_with_gpu("cuda")._core
        with self.lock:
            self.users -= 1
            if self.users == 0:
                core.set_compute_type(np.float32, self.before)


@functools.cache
def _shared() -> _TF32:
    return _TF32()
