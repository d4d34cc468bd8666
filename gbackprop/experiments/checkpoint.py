"""Checkpoints of a run: one .npz file, written whole or not at all.

Arrays under ``parameters/`` and ``optimizer/``, and one text, ``header``: JSON with the format's number, the run's
settings and its rows so far.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.system.files import written
from gbackprop.system.npz import read_arrays

FORMAT = 1
PARTS = ("parameters", "optimizer")


def save(
    path: Path,
    key: str,
    rows: list[dict[str, Any]],
    parameters: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
) -> None:
    """Write a checkpoint beside its place, then move it there in one step: a kill leaves the old one or the new one.

    Parameters
    ----------
    path : Path
        Where; its folder is made if it is missing.
    key : str
        The run's settings, see `RunSpec.key`.
    rows : list of dict
        What `EpochRow` holds, for each epoch.
    parameters, optimizer : mapping of str to ndarray
        State dicts.

    Raises
    ------
    OutputError
        If it cannot be written; the old one is still there.
    """
    header = json.dumps({"format": FORMAT, "run": json.loads(key), "rows": rows})
    arrays = {
        f"{part}/{name}": value
        for part, mapping in zip(PARTS, (parameters, optimizer), strict=True)
        for name, value in mapping.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as part, open(part, "wb") as file:
        np.savez(file, header=np.array(header), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def load(path: Path, key: str) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read a checkpoint of the run `key`.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        The settings of the run that shall go on. It may have more epochs than the one that was saved.

    Returns
    -------
    rows : list of dict
        For `EpochRow`.
    parameters, optimizer : dict of str to ndarray
        State dicts.

    Raises
    ------
    ValueError
        If the file is no checkpoint, is damaged, comes from a newer version, or is of another run.
    """
    try:
        arrays = read_arrays(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a checkpoint, or a damaged one: {error}") from error
    if "header" not in arrays:
        raise ValueError(f"{path}: not a checkpoint: expected an entry 'header', got {', '.join(arrays) or 'none'}")
    try:
        header = json.loads(str(arrays.pop("header")))
        version, run, rows = header["format"], header["run"], header["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a checkpoint, or a damaged one (its header)") from error
    if not isinstance(run, dict) or not isinstance(rows, list):
        raise ValueError(f"{path}: not a checkpoint, or a damaged one (its header)")
    if version != FORMAT:
        raise ValueError(f"{path}: expected a checkpoint of format {FORMAT}, got format {version}")
    _check_run(path, run, json.loads(key), len(rows) - 1)
    parameters, optimizer = (
        {name.removeprefix(f"{part}/"): value for name, value in arrays.items() if name.startswith(f"{part}/")}
        for part in PARTS
    )
    return rows, parameters, optimizer


def _check_run(path: Path, saved: dict[str, Any], wanted: dict[str, Any], done: int) -> None:
    # How long a run is decides none of its numbers up to there.
    other = [name for name in wanted if name != "epochs" and saved.get(name) != wanted[name]]
    if other:
        differences = ", ".join(f"{name} {saved.get(name)!r} instead of {wanted[name]!r}" for name in other)
        raise ValueError(f"{path}: a checkpoint of another run: {differences}")
    if done > wanted["epochs"]:
        raise ValueError(f"{path}: the checkpoint is at epoch {done}, beyond the {wanted['epochs']} asked for")
