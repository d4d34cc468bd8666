"""Threads: the number of processors, and a limit of one BLAS thread while blocks run in threads of their own."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager, nullcontext
from threading import Lock, get_ident
from typing import Any

NO_CONTEXT = nullcontext()
"""A context that does nothing; it can be entered many times, by several threads."""


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """A context that limits BLAS to one thread in the whole process; of concurrent calls the first one sets it.

    The same thread restores the number, because threadpoolctl lets no other do so. A call that continues after the end
    of the first one has BLAS's threads in addition to its own: slower, but correct.
    """

    def __init__(self) -> None:
        self.lock, self.depth = Lock(), 0
        self.owner: int | None = None
        self.limit: Any = None

    def __enter__(self) -> None:
        controller = blas_controller()
        with self.lock:
            if self.owner is None:
                self.owner = get_ident()
                self.limit = controller.limit(limits=1, user_api="blas").__enter__() if controller else None
            self.depth += self.owner == get_ident()

    def __exit__(self, *error: object) -> None:
        with self.lock:
            if self.owner != get_ident():
                return
            self.depth -= 1
            if self.depth == 0:
                self.owner = None
                if self.limit is not None:
                    self.limit.__exit__(*error)


class _Counted:
    """The same by the library's own functions: threadpoolctl takes longer to set a limit than a small call takes.

    The first of several calls stores the number of threads, and the last one restores it.
    """

    def __init__(self) -> None:
        self.lock, self.depth = Lock(), 0
        self.before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.before = [(put, get()) for get, put in blas_functions()]
                for put, _ in self.before:
                    put(1)
            self.depth += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                for put, number in self.before:
                    put(number)


_COUNTED = _Counted()

_SHARED = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread, because the threads of the blocks are enough."""
    return _COUNTED if blas_functions() else _SHARED


def few_blas_threads() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread because products are small, if that can be set in no time."""
    return _COUNTED if blas_functions() else NO_CONTEXT


@functools.cache
def blas_functions() -> list[tuple[Any, Any]]:
    """Return the functions that give and set the number of threads of each BLAS; none if one of them lacks these."""
    controller, found = blas_controller(), []
    for library in controller.lib_controllers if controller else []:
        affixes = [(prefix, suffix) for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]
        for prefix, suffix in affixes if library.internal_api == "openblas" else []:
            name = f"{prefix}openblas_%s_num_threads{suffix}"
            pair = [getattr(library.dynlib, name % verb, None) for verb in ("get", "set")]
            if None not in pair:
                found.append((pair[0], pair[1]))
                break
        else:
            if library.user_api == "blas":
                return []
    return found


@functools.cache  # finding the libraries takes longer than a small sweep
def blas_controller() -> Any:
    """Return the controller of BLAS's threads; None without threadpoolctl, and then one thread takes all blocks."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
