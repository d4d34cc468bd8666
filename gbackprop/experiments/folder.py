"""The folder of a study's checkpoints, and the lock in it that makes a study the only one on its file of results."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gbackprop.experiments.locks import HeldError, LockError, hold
from gbackprop.experiments.store import Store, StoreError


def folder_of(path: str | Path) -> Path:
    """Return the folder of a study's checkpoints: ``results.checkpoints`` beside ``results.sqlite``."""
    return Path(path).with_suffix(".checkpoints")


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the study's lock; afterwards leave no empty folder behind."""
    folder, lock = folder_of(path), folder_of(path) / "study.lock"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made, for checkpoints: {error.strerror}") from error
    try:
        with hold(lock, timeout=0):
            try:
                yield
            finally:
                _tidy(folder, lock)
    except LockError as error:
        raise StoreError(str(error)) from error
    except HeldError as error:
        if not path.exists():  # results.a and results.b have one folder
            message = "another study works in this folder: expected an output of another name"
            raise StoreError(f"{folder}: {message}") from error
        with Store(path, reading=True) as store:
            owner = store.read_note("owner") or "another process"
        raise StoreError(f"{path}: another study works on it ({owner}): wait for it, or stop it") from error


def _tidy(folder: Path, lock: Path) -> None:
    """Remove the folder if nothing but the lock is in it; before the lock is released, so that it is not another's."""
    with contextlib.suppress(OSError):
        if {entry.name for entry in folder.iterdir()} <= {lock.name}:
            lock.unlink(missing_ok=True)
            folder.rmdir()
