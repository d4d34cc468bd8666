"""Archives of arrays (``.npz``): what a file is instead, where it is not the one that was expected; checkpoints."""

import json
import os
import reprlib
import zipfile
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.base.files import parsed, written

STARTS = {
    b"\x93NUMPY": "a single array (.npy)",
    b"\x1f\x8b": "a file compressed by gzip",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "a SQLite database",
    b"\x80": "a pickled Python object, which is never loaded: it could run any code",
}
"""The first bytes of other kinds of files, and the names of these kinds."""

LOOK = 512
"""The number of bytes by which a text is distinguished from other files."""

DAMAGE = (EOFError, LookupError, OSError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""The exceptions that Python raises for a damaged archive."""

KINDS = "biufcSU"
"""The kinds of dtypes that are numbers or text."""


def write_checkpoint(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, a text "header" in JSON, and a "digest" of both into an archive: the whole of it or nothing."""
    entries = {"header": np.array(json.dumps(header)), **arrays}
    digest = np.array(_digest_of(entries))
    with written(path) as part, open(part, "wb") as file:
        np.savez(file, digest=digest, **entries)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def read_checkpoint(
    path: str | Path, version: int, parts: Mapping[str, type]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header, with parts of these types, and the arrays of an archive of `write_checkpoint`."""
    arrays = read_arrays(path)
    for name in ("header", "digest"):
        if name not in arrays:
            raise ValueError(f"expected an entry {name!r}, got {', '.join(arrays) or 'none'}")
    digest = str(arrays.pop("digest"))
    if digest != _digest_of(arrays):
        raise ValueError("the archive is damaged, or changed: it has another digest than its contents")
    header = parsed(str(arrays.pop("header")))
    if not isinstance(header, dict) or header.get("format") != version:
        got = header.get("format") if isinstance(header, dict) else header
        raise ValueError(f"expected a checkpoint of format {version}, got format {got!r}")
    for name, kind in parts.items():
        if type(header.get(name)) is not kind:
            raise ValueError(f"its header: expected {name!r}, a {kind.__name__}, got {reprlib.repr(header)}")
    return header, arrays


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an archive; no Python object is unpickled."""
    with open(path, "rb") as file:
        start = file.read(LOOK)
        if not start.startswith(b"PK"):
            raise ValueError(f"expected an archive of arrays (.npz), got {_content(start)}")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _entry(arrays, name) for name in arrays.files}
        except DAMAGE as error:
            raise ValueError(f"the archive is damaged, or was not written to its end: {error}") from error


def _digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest, in hexadecimal, of names, dtypes, shapes and numbers."""
    digest = blake2b(digest_size=16)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _entry(arrays: Mapping[str, Any], name: str) -> np.ndarray:
    try:
        value = arrays[name]
    except (ValueError, MemoryError) as error:  # NumPy's message recommends to unpickle an unknown file
        raise ValueError(f"its {name!r}: expected an array of numbers or text, got Python objects or damage") from error
    if not isinstance(value, np.ndarray):
        raise ValueError(f"its {name!r}: expected an array (.npy), got {_content(value[:LOOK])}")
    if value.dtype.kind not in KINDS or not value.dtype.itemsize:
        raise ValueError(f"its {name!r}: expected an array of numbers or text, got {value.dtype}")
    return value


def _content(start: bytes) -> str:
    """Describe the kind of a file by its first bytes."""
    if not start:
        return "an empty file"
    for begins, kind in STARTS.items():
        if start.startswith(begins):
            return kind
    text = start.decode("utf-8", "ignore")  # a letter may be cut at the end
    if len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter.isspace() for letter in text):
        return f"a text file, which begins with {text.strip().partition(chr(10))[0][:40]!r}"
    return f"another kind of file, which begins with the bytes {start[:8].hex(' ')}"
