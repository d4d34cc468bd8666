"""Files of arrays in the safetensors format, with text beside them: whole or not at all, and nothing is unpickled."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gbackprop.system.extras import require
from gbackprop.system.files import check_output, written

EXTRA = "interop"
"""The extra that installs the package of the format."""

OWN = "gbackprop"
"""The name of the text that says what a file has, where it is no state dict."""


def check_tensors(path: str | Path, purpose: str) -> None:
    """Check that the package is there and a file can be written, before anything is computed for it.

    Raises
    ------
    MissingExtraError
        If the package safetensors is not installed; the message begins with `purpose`.
    OutputError
        If the file cannot be written; the message names it.
    """
    require("safetensors.numpy", purpose, EXTRA)
    check_output(path)


def write_tensors(
    path: str | Path, arrays: Mapping[str, np.ndarray], purpose: str, texts: Mapping[str, str] | None = None
) -> None:
    """Write arrays by name, and texts by name into the file's header.

    Raises
    ------
    MissingExtraError, OutputError
        As `check_tensors`.
    """
    numpy_format = require("safetensors.numpy", purpose, EXTRA)
    content = numpy_format.save({name: np.asarray(value, order="C") for name, value in arrays.items()}, texts)
    with written(path) as part:
        part.write_bytes(content)


def read_tensors(path: str | Path, purpose: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read all arrays of a file, and the texts in its header.

    Raises
    ------
    ValueError
        If the file is no safetensors file, or is damaged.
    TypeError
        If it has numbers of a dtype that NumPy lacks.
    OSError
        If it cannot be read.
    MissingExtraError
        If the package safetensors is not installed.
    """
    numpy_format = require("safetensors.numpy", purpose, EXTRA)
    content = Path(path).read_bytes()
    try:
        arrays = numpy_format.load(content)
    except require("safetensors", purpose, EXTRA).SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file, or damaged: {error}") from error
    except (KeyError, TypeError) as error:  # which dtypes NumPy lacks differs between versions of the package
        raise TypeError(f"{path}: expected floats and integers that NumPy has, got the dtype {error}") from error
    size = int.from_bytes(content[:8], "little")
    return arrays, json.loads(content[8 : 8 + size]).get("__metadata__") or {}
