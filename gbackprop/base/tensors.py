"""Files of arrays in the safetensors format, with text beside them: whole or not at all, and nothing is unpickled.

A file of gbackprop has two texts in its header: under `OWN` what it has, as JSON, and under `DIGEST` a digest of all
other bytes. Each of the two names, and the beginning of the digest, says that the file is one of gbackprop, so that no
damage to one of them makes it a file of another program, whose contents nothing could confirm.
"""

import json
import reprlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.base.extras import require
from gbackprop.base.files import check_output, parsed, written

EXTRA = "interop"
"""The extra that installs the package of the format."""

VERSION = 2
"""The version of the format that gbackprop writes."""

OWN, DIGEST, BEGIN = "gbackprop", "gbackprop.digest", "gbackprop:"
"""The names of the two texts, and how the digest begins."""

PLACE = f'"{DIGEST}":"{BEGIN}'.encode()
"""The text before the digest, and in no other place: a quotation mark inside a text would have a backslash."""

OTHERS = (".npz", ".npy", ".pt", ".pth", ".onnx", ".h5", ".pkl")
"""Ends of names by which other programs take a file for one of another format."""

SIZE = 16
"""The digest's number of bytes."""


def check_tensors(path: str | Path, purpose: str) -> None:
    """Check that the package is there and a file can be written, before anything is computed for it."""
    require("safetensors.numpy", purpose, EXTRA)
    if Path(path).suffix in OTHERS:
        raise ValueError(f"{path}: expected a name that ends in .safetensors, the format that {purpose} writes")
    check_output(path)


def write_tensors(
    path: str | Path, arrays: Mapping[str, np.ndarray], purpose: str, kind: str, tree: Mapping[str, Any]
) -> None:
    """Write arrays by name; into the file's header the kind of thing that they are, a tree of JSON, and a digest."""
    numpy_format = require("safetensors.numpy", purpose, EXTRA)
    texts = {OWN: json.dumps({"version": VERSION, "kind": kind, **tree}), DIGEST: f"{BEGIN}{'0' * 2 * SIZE}"}
    content = numpy_format.save({name: np.asarray(value, order="C") for name, value in arrays.items()}, texts)
    before, _, after = _around(content)
    with written(path) as part, open(part, "wb") as file:
        file.writelines((before, _digest(before, after), after))


def read_tensors(path: str | Path, purpose: str) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """Read all arrays of a file, and the tree in its header with "version" and "kind", or None for another tool's."""
    numpy_format = require("safetensors.numpy", purpose, EXTRA)
    content = Path(path).read_bytes()
    try:
        arrays = numpy_format.load(content)
        texts = parsed(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
    except (require("safetensors", purpose, EXTRA).SafetensorError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: not a safetensors file, or damaged: {error}") from error
    except (KeyError, TypeError) as error:  # which dtypes NumPy lacks differs between versions of the package
        raise TypeError(f"{path}: expected floats and integers that NumPy has, got the dtype {error}") from error
    if texts.keys().isdisjoint((OWN, DIGEST)) and not any(text.startswith(BEGIN) for text in texts.values()):
        return arrays, None
    before, digest, after = _around(content)
    if digest != _digest(before, after):
        raise ValueError(f"{path}: damaged, or changed: it has another digest than its contents")
    return arrays, _tree(path, texts.get(OWN, ""))


def _around(content: bytes) -> tuple[memoryview, bytes, memoryview]:
    """Return what is before the digest, the digest, and what is after it."""
    found = content.find(PLACE)
    at = len(content) if found < 0 else found + len(PLACE)
    whole = memoryview(content)
    return whole[:at], content[at : at + 2 * SIZE], whole[at + 2 * SIZE :]


def _digest(before: memoryview, after: memoryview) -> bytes:
    digest = blake2b(before, digest_size=SIZE)
    digest.update(after)
    return digest.hexdigest().encode()


def _tree(path: str | Path, text: str) -> dict[str, Any]:
    try:
        tree = parsed(text)
    except ValueError as error:
        raise ValueError(f"{path}: damaged: its header does not say what it has ({error})") from error
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str) or type(tree.get("version")) is not int:
        raise ValueError(f"{path}: damaged: its header does not say what it has ({reprlib.repr(tree)})")
    if tree["version"] != VERSION:
        raise ValueError(f"{path}: expected version {VERSION} of the format, got {tree['version']}")
    return tree
