"""Files that are written: first a check that they can be, and then all of a file or nothing; the JSON in them."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class OutputError(OSError):
    """A file cannot be written; one line names it and says why."""


def check_output(path: str | Path) -> None:
    """Check that a file can be written, before anything is computed for it."""
    path, target = Path(path), _target(path)
    if target.is_dir():
        raise OutputError(f"{path}: expected a file to write to, got a folder")
    if not target.parent.is_dir():
        raise OutputError(f"{path.parent}: no such folder to write {path.name} to")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"{path}: the file is there and cannot be written over: permission denied")
    if not _is_stream(target):
        try:
            with tempfile.TemporaryFile(dir=target.parent):  # asks the system itself, and leaves nothing
                pass
        except OSError as error:
            raise OutputError(f"{path}: the folder cannot be written: {error.strerror}") from error


@contextmanager
def written(path: str | Path) -> Iterator[Path]:
    """Write a file whole or not at all: into ``FILE.part`` beside its place, which is then moved there in one step."""
    target = _target(path)
    part = target if _is_stream(target) else target.with_name(f"{target.name}.part")
    try:
        try:
            yield part
            if part != target:
                if target.exists():
                    shutil.copymode(target, part)
                os.replace(part, target)
        finally:
            if part != target:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _target(path: str | Path) -> Path:
    """Resolve links, so that the file is replaced and not the link; a device or pipe stays as it is named."""
    return Path(path) if _is_stream(Path(path)) else Path(os.path.realpath(path))


def _is_stream(target: Path) -> bool:
    """Return whether it is something other than a file, such as /dev/null, which must not be replaced by one."""
    return target.exists() and not target.is_file()


def parsed(text: str | bytes) -> Any:
    """Return the value of a text in JSON."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"it has a name twice among {[name for name, _ in pairs][:9]}")
    return found
