"""Archives of arrays (``.npz``) that are read: what a file is instead, where it is not the one that was expected."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

STARTS = {
    b"\x93NUMPY": "a single array (.npy)",
    b"\x1f\x8b": "a file compressed by gzip",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "a SQLite database",
    b"\x80": "a pickled Python object, which is never loaded: it could run any code",
}
"""How files begin, and what they are."""

LOOK = 512
"""Bytes by which a text is told from other files."""


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an archive; no Python object is unpickled.

    Parameters
    ----------
    path : str or Path
        The archive.

    Returns
    -------
    dict of str to ndarray

    Raises
    ------
    ValueError
        If the file is no archive of arrays, is damaged, or has an entry that is no array of numbers or text. The
        message says what it is, without its name.
    OSError
        If it cannot be opened.
    """
    with open(path, "rb") as file:
        start = file.read(LOOK)
        if not start.startswith(b"PK"):
            raise ValueError(f"expected an archive of arrays (.npz), got {_content(start)}")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _entry(arrays, name) for name in arrays.files}
        except (EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"the archive is damaged, or was not written to its end: {error}") from error


def _entry(arrays: Mapping[str, Any], name: str) -> np.ndarray:
    try:
        value = arrays[name]
    except ValueError as error:  # NumPy's message recommends to unpickle what nobody knows
        raise ValueError(f"its {name!r}: expected an array of numbers or text, got Python objects or damage") from error
    if not isinstance(value, np.ndarray):
        raise ValueError(f"its {name!r}: expected an array (.npy), got {_content(value[:LOOK])}")
    return value


def _content(start: bytes) -> str:
    """What a file is that begins so."""
    if not start:
        return "an empty file"
    for begins, kind in STARTS.items():
        if start.startswith(begins):
            return kind
    text = start.decode("utf-8", "ignore")  # a letter may be cut at the end
    if len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter.isspace() for letter in text):
        return f"a text file, which begins with {text.strip().partition(chr(10))[0][:40]!r}"
    return f"another kind of file, which begins with the bytes {start[:8].hex(' ')}"
