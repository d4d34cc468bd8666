"""Hold the engine against folders of golden files: reference values from elsewhere, one ``.npz`` per case.

A file has a ``spec`` (JSON: layers, loss, …), parameters ``param/NAME``, buffers ``buffer/NAME``, a batch ``x``, ``y``,
and expected values ``QUANTITY/NAME`` (``QUANTITY/NAME/A`` and ``/B`` for Kronecker factors). A cell is one case and one
quantity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop import layers, losses, quantities
from gbackprop.array import asarray, device_of
from gbackprop.base.npz import read_arrays
from gbackprop.engine.backward import backward
from gbackprop.network import Sequential
from gbackprop.testing.errors import relative_error
from gbackprop.testing.runs import SHIPPED
from gbackprop.testing.setting import at_targets

KINDS = SHIPPED | {"batch_l2": quantities.BatchL2Grad}
"""Quantities by their names in the files, of which one is not ours."""

PASS_KEYS = ("output", "loss", "gradient")
"""The results of every backward call."""


@dataclass(frozen=True)
class Cell:
    """One quantity of one case: the largest error relative to the largest expected entry, or why there is none."""

    case: str
    quantity: str
    error: float = np.nan
    problem: str = ""


@dataclass
class FolderReport:
    """The cells of a folder."""

    tolerance: float
    cells: list[Cell] = field(default_factory=list)

    def ok(self, cell: Cell) -> bool:
        """Return whether a cell is within the tolerance (NaN is not)."""
        return not cell.problem and cell.error <= self.tolerance

    @property
    def total(self) -> int:
        """Number of cells."""
        return len(self.cells)

    @property
    def passed(self) -> int:
        """Number of cells within the tolerance."""
        return sum(map(self.ok, self.cells))

    def lines(self) -> list[str]:
        """Return a line for each case: its largest error, and what failed or could not be computed."""
        lines = []
        for case in dict.fromkeys(cell.case for cell in self.cells):
            cells = [cell for cell in self.cells if cell.case == case]
            good = [cell.error for cell in cells if self.ok(cell)]
            largest = f", largest error {max(good):.1e}" if good else ""
            lines.append(f"{case}: {len(good)} of {len(cells)}{largest}")
            reasons: dict[str, list[str]] = {}
            for cell in cells:
                if not self.ok(cell):
                    reasons.setdefault(cell.problem or f"error {cell.error:.1e}", []).append(cell.quantity)
            lines += [f"  {reason} ({', '.join(names)})" for reason, names in reasons.items()]
        return lines


def check_folder(
    folder: str | Path, tolerance: float = 1e-8, dtype: str = "float64", device: str = "cpu"
) -> FolderReport:
    """Compute every cell of every case in a folder."""
    files = sorted(Path(folder).glob("*.npz"))
    if not files:
        raise FileNotFoundError(f"{folder}: expected a folder with .npz files, found none")
    report = FolderReport(tolerance)
    for file in files:
        try:
            values = read_arrays(file)
        except (OSError, ValueError) as error:
            report.cells.append(Cell(file.stem, "file", problem=f"cannot be read: {error}"))
            continue
        report.cells += check_case(file.stem, values, dtype, device)
    return report


def check_case(name: str, case: Mapping[str, np.ndarray], dtype: str = "float64", device: str = "cpu") -> list[Cell]:
    """Return the cells of one case; a case that cannot be built has them all fail, with the reason."""
    found = {key.split("/")[0] for key in case}
    wanted = [key for key in (*PASS_KEYS, *KINDS) if key in found]
    absent = [key for key in ("spec", "x", "y") if key not in found]
    if absent or not wanted:
        problem = f"there is no {', '.join(absent) or 'quantity'} in the file"
        return [Cell(name, key, problem=problem) for key in wanted or ["file"]]
    try:
        network, loss = build(json.loads(str(case["spec"])), case, dtype)
        network.to(device)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        return [Cell(name, key, problem=str(error)) for key in wanted]
    return [_cell(name, key, case, network, loss, dtype) for key in wanted]


def build(spec: Mapping[str, Any], case: Mapping[str, np.ndarray], dtype: str) -> tuple[Sequential, losses.Loss]:
    """Return the network of a case with its parameters loaded, and its loss."""
    for module, kinds in ((layers, [kind for kind, _ in spec["layers"]]), (losses, [spec["loss"][0]])):
        missing = [kind for kind in kinds if kind not in module.__all__]
        if missing:
            raise AttributeError(f"there is no {', '.join(missing)}")
    parts = []
    for kind, keywords in spec["layers"]:
        keywords = {k: tuple(v) if isinstance(v, list) else v for k, v in keywords.items()}
        parts.append(getattr(layers, kind)(**keywords))
    network = Sequential(*parts, rng=0, dtype=dtype)
    state = [(key.partition("/"), value) for key, value in case.items()]
    network.load_state_dict({name: value for (kind, _, name), value in state if kind in ("param", "buffer")})
    kind, reduction = spec["loss"]
    return network, getattr(losses, kind)(reduction=reduction)


def _cell(
    name: str, key: str, case: Mapping[str, np.ndarray], network: Sequential, loss: losses.Loss, dtype: str
) -> Cell:
    there = device_of(next(iter(network.parameters.values()), case["x"]))
    x, y, targets = (_cast(case.get(part), dtype, there) for part in ("x", "y", "mc_targets"))
    if targets is None and key in ("diag_ggn_mc", "kfac"):
        return Cell(name, key, problem="there are no mc_targets in the file")
    try:
        asked = [] if key in PASS_KEYS else [at_targets(KINDS[key](), targets)]
        result = backward(network, loss, x, y, *asked)
    except (TypeError, ValueError) as error:
        return Cell(name, key, problem=str(error))
    values: Any = result[asked[0]] if asked else getattr(result, key)
    got = values if isinstance(values, Mapping) else {"": values}
    expected = {part[len(key) + 1 :]: v for part, v in case.items() if part == key or part.startswith(f"{key}/")}
    unknown = sorted({part.partition("/")[0] for part in expected} - set(got))
    if unknown:
        return Cell(name, key, problem=f"there is no parameter {', '.join(unknown)}")
    errors = [relative_error(_entry(got, part), value) for part, value in expected.items()]
    return Cell(name, key, float(np.max(errors)))  # unlike max(), does not lose a NaN


def _cast(x: np.ndarray | None, dtype: str, device: str) -> Any:
    return None if x is None else asarray(x, device, dtype if x.dtype.kind == "f" else None)


def _entry(values: Mapping[str, Any], name: str) -> Any:
    """``values["0.weight"]``, or a factor of it for ``0.weight/A``."""
    parameter, _, factor = name.partition("/")
    value = values[parameter]
    return getattr(value, factor) if factor else value
