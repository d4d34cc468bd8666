"""Locks that die with the process that holds them, so that nothing killed leaves one behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gbackprop.base.extras import require


class HeldError(RuntimeError):
    """Another process holds the lock."""


class LockError(RuntimeError):
    """The file cannot be locked."""


@contextmanager
def hold(path: Path, timeout: float) -> Iterator[None]:
    """Hold a lock of the operating system on a file."""
    filelock = require("filelock", "studies")
    lock = filelock.FileLock(path, timeout=timeout, poll_interval=0.02)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise HeldError(f"{path}: held by another process") from error
    except OSError as error:
        raise LockError(f"{path}: cannot be locked: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
