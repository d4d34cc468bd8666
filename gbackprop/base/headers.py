"""The texts and digests that files have beside their arrays."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np


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


def digest_of(arrays: Mapping[str, np.ndarray], size: int = 16) -> str:
    """Return a digest of `size` bytes, in hexadecimal, of names, dtypes, shapes and numbers."""
    digest = blake2b(digest_size=size)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
