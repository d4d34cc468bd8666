"""Checkpoints of a run: one .npz file, written whole or not at all.

Arrays under ``parameters/`` and ``optimizer/``, and a header with the format's number, the run's settings and its rows
so far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.base.npz import read_checkpoint, write_checkpoint

FORMAT = 3
PARTS = ("parameters", "optimizer")


def save(
    path: Path, key: str, rows: list[dict[str, Any]], parameters: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
) -> None:  # fmt: skip
    """Write a checkpoint beside its place, then move it there in one step: a kill leaves the old one or the new one."""
    parts = dict(zip(PARTS, (parameters, optimizer), strict=True))
    arrays = {f"{part}/{name}": value for part, given in parts.items() for name, value in given.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, {"format": FORMAT, "run": json.loads(key), "rows": rows}, arrays)


def load(path: Path, key: str) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read a checkpoint of the run `key`."""
    try:
        header, arrays = read_checkpoint(path, FORMAT, {"run": dict, "rows": list})
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a checkpoint, or a damaged one: {error}") from error
    rows = header["rows"]
    _check_run(path, header["run"], json.loads(key), len(rows) - 1)
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
