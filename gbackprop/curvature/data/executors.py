"""Executors, which compute tasks elsewhere: any `concurrent.futures.Executor`, and some that are known by name.

The tasks are the runs of a study, or the batches of a data set.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process

from gbackprop.base.extras import require
from gbackprop.base.names import near_miss
from gbackprop.base.threads import cpu_count

DASK = "dask://"
NAMES = ("processes", "serial", "mpi", DASK)


@dataclass
class Pool:
    """An executor, and how many tasks it takes at a time."""

    executor: Executor
    slots: int
    renew: Callable[[], Executor] | None = None  # makes another executor when a process of this one has died

    def replace(self) -> bool:
        """Go on with a new executor where the old one is broken; return whether there is a new one."""
        if self.renew is None:
            return False
        self.executor = self.renew()
        return True


@contextmanager
def open_pool(name: str, workers: int | None = None, more: tuple[str, ...] = ()) -> Iterator[Pool]:
    """Open an executor by its name, and close it afterwards; `more` are names that the caller takes besides.

    "processes": those of this machine; "serial": this process, one task after another; "mpi": the other ranks of
    ``mpiexec``; "dask://": Dask workers of this machine, "dask://HOST:PORT" those of a scheduler that runs.
    """
    kind = DASK if name.startswith(DASK) else name
    if kind not in _OPEN:
        names = (*more, *NAMES)
        listed = ", ".join((*names, f"{DASK}HOST:PORT"))
        raise ValueError(f"executor: expected one of {listed}, got {name!r}{near_miss(name, names)}")
    address = name.removeprefix(DASK)
    if workers is not None and (kind in ("serial", "mpi") or (kind == DASK and address)):
        raise ValueError(f"workers: the executor {name} has its own, got {workers}")
    with contextlib.ExitStack() as stack:
        with interrupts_blocked():
            pool = _OPEN[kind](stack, address, workers or cpu_count())
        yield pool


def _serial(stack: contextlib.ExitStack, address: str, workers: int) -> Pool:
    # One thread beside the one that hands out the work: so the progress can be watched, and Ctrl-C is heard.
    return Pool(stack.enter_context(ThreadPoolExecutor(1)), 1)


def _processes(stack: contextlib.ExitStack, address: str, workers: int) -> Pool:
    # Spawned, not forked: a fork would copy the threads' locks of BLAS in whatever state they are.
    context = multiprocessing.get_context("spawn")

    def make() -> Executor:
        return ProcessPoolExecutor(workers, context, initializer=initialize)

    pool = Pool(make(), workers, make)
    stack.callback(lambda: pool.executor.shutdown(cancel_futures=True))
    return pool


def _dask(stack: contextlib.ExitStack, address: str, workers: int) -> Pool:
    distributed = require("distributed", "the executor dask://", "dask")
    if not address:
        # One thread each: BLAS threads are limited for a process as a whole.
        cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        address = stack.enter_context(cluster).scheduler_address
    try:
        client = stack.enter_context(distributed.Client(address, timeout=10))
    except (OSError, ValueError) as error:
        raise RuntimeError(f"executor: no Dask scheduler answers at {address}: {error}") from error
    slots = sum(client.nthreads().values())
    if not slots:
        raise RuntimeError(f"executor: the Dask scheduler at {address} has no workers")
    # Not "pure", which would take two runs with equal arguments for one.
    return Pool(stack.enter_context(client.get_executor(pure=False)), slots)


def _mpi(stack: contextlib.ExitStack, address: str, workers: int) -> Pool:
    futures = require("mpi4py.futures", "the executor mpi", "mpi")
    ranks = require("mpi4py.MPI", "the executor mpi", "mpi").COMM_WORLD.size
    if ranks < 2 or "mpi4py.futures" not in sys.orig_argv:
        # Without, mpi4py would try to start ranks itself, which many machines answer by waiting for ever.
        raise RuntimeError(
            "executor: mpi wants two ranks or more, one to hand out the work, as in "
            f"mpiexec -n 3 python -m mpi4py.futures SCRIPT (or -m gbackprop study FILE --executor mpi); got {ranks}"
        )
    return Pool(stack.enter_context(futures.MPIPoolExecutor()), ranks - 1)


_OPEN: dict[str, Callable[[contextlib.ExitStack, str, int], Pool]] = {
    "processes": _processes,
    "serial": _serial,
    "mpi": _mpi,
    DASK: _dask,
}


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C for afterwards, and from the processes that this thread starts meanwhile: they inherit that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def initialize() -> None:
    """Prepare a process of the pool: it ends when its parent does, however that ends, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
