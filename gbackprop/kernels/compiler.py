"""Numba as the compiler of loops: compiled code is stored, so that only the first process on a machine waits for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop at its first call for each kind of arrays, which takes seconds.

    Numba stores the code in the folder of the loop's file, else in the user's cache, or in NUMBA_CACHE_DIR.

    Raises
    ------
    RuntimeError
        If none of these folders can be written.
    """
    fast = njit(nogil=True, cache=True)(loop)

    @functools.wraps(loop)
    def call(*arguments: Any) -> None:
        try:
            fast(*arguments)
        except OSError:  # the code is compiled, but could not be stored, on a full disk for instance; nothing has run
            fast(*arguments)

    return call
