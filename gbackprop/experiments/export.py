"""Results as one flat table, a line for each epoch of each run, for pandas and its like."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gbackprop.base.extras import require
from gbackprop.base.files import check_output, written
from gbackprop.experiments.store import COLUMNS, SPEC_COLUMNS
from gbackprop.experiments.stored import FINISHED, StoredRun

HEADER = (*SPEC_COLUMNS, "status", "phases", *COLUMNS)


def check_format(path: Path) -> None:
    """Check that a table can be written, before anything is computed for it."""
    if path.suffix not in _WRITERS:
        raise ValueError(f"expected a name that ends in {' or '.join(_WRITERS)}, got {str(path)!r}")
    if path.suffix == ".parquet":
        require("pyarrow.parquet", "parquet files", "parquet")
    check_output(path)


def export(runs: Sequence[StoredRun], path: Path) -> None:
    """Write a table, whole or not at all."""
    check_format(path)
    with written(path) as part:
        _WRITERS[path.suffix](list(lines(runs)), part)


def lines(runs: Sequence[StoredRun]) -> Iterator[dict[str, Any]]:
    """Yield the table's lines."""
    for run in runs:
        if run.status in FINISHED:
            settings = {name: getattr(run.spec, name) for name in SPEC_COLUMNS}
            for row in run.rows:
                yield settings | {"status": run.status, "phases": " ".join(sorted(run.phases))} | asdict(row)


def _write_csv(table: list[dict[str, Any]], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(table)


def _write_parquet(table: list[dict[str, Any]], path: Path) -> None:
    arrow, parquet = (require(name, "parquet files", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    text, whole = arrow.string(), arrow.int64()
    kinds = {"problem": text, "optimizer": text, "average": text, "status": text, "phases": text}
    kinds |= {"seed": whole, "epochs": whole, "epoch": whole}
    # Written out, for a column of which every entry is missing has no type of its own.
    schema = arrow.schema([(name, kinds.get(name, arrow.float64())) for name in HEADER])
    parquet.write_table(arrow.Table.from_pylist(table, schema), path)


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet}
