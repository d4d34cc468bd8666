"""Threads: the number of processors, and a limit of one BLAS thread while blocks run in threads of their own."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

NO_CONTEXT = nullcontext()
"""A context that does nothing; it can be entered many times, by several threads."""


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """A context that limits BLAS to one thread in the whole process.

    Of several calls at a time the first stores the number of threads, and the last restores it.
    """

    def __init__(self) -> None:
        self.lock, self.depth = Lock(), 0
        self.before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.before = [(put, number) for get, put in blas_functions() if (number := get()) != 1]
                for put, _ in self.before:
                    put(1)
            self.depth += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                for put, number in self.before:
                    put(number)


_SHARED = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread: blocks have threads of their own, or products are small."""
    return _SHARED


@functools.cache
def blas_functions() -> list[tuple[Any, Any]]:
    """Return the functions that give and set the number of threads of each BLAS.

    OpenBLAS has its own: threadpoolctl takes longer to set a limit than a small call takes, and only in one thread.
    """
    controller, found = blas_controller(), []
    for library in controller.lib_controllers if controller else []:
        affixes = [(prefix, suffix) for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]
        names = [f"{prefix}openblas_%s_num_threads{suffix}" for prefix, suffix in affixes]
        known = names if library.internal_api == "openblas" else []
        own = [tuple(getattr(library.dynlib, name % verb, None) for verb in ("get", "set")) for name in known]
        others = [(library.get_num_threads, library.set_num_threads)] if library.user_api == "blas" else []
        found += [*[pair for pair in own if None not in pair], *others][:1]
    return found


@functools.cache  # finding the libraries takes longer than a small sweep
def blas_controller() -> Any:
    """Return the controller of BLAS's threads; None without threadpoolctl, and then one thread takes all blocks."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
