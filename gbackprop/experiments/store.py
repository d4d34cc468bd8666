"""Results of a study in one SQLite file, which any program that speaks SQL can read.

A run's rows and its status "done" are written in one transaction, so whatever is killed when, a run is either there as
a whole or still to do. Only one process writes: the one that hands out the work, see `locks.py`.
"""

import json
import math
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from gbackprop.experiments.runs import EpochRow, Outcome
from gbackprop.experiments.schema import StoreError, explained, prepare
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import Phase, StoredRun

__all__ = ["Store", "StoreError", "process_name"]

COLUMNS = tuple(field.name for field in fields(EpochRow))
SPEC_COLUMNS = ("problem", "optimizer", "lr", "damping", "momentum", "average", "seed", "epochs")


class Store:
    """A file of results, opened: only to look at with `reading`, else made if it is not there.

    A file that is no file of results, of a newer version, locked for `timeout` seconds by another program, or that
    cannot be opened is a `StoreError`.
    """

    def __init__(self, path: str | Path, reading: bool = False, timeout: float = 30.0) -> None:
        self.path, self.timeout = Path(path), timeout
        if reading and not os.path.isfile(path):  # False, too, for a name that is too long
            raise StoreError(f"{path}: no such file of results")
        new = not self.path.exists()
        with self._explained():
            self._connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None)
        try:
            with self._explained():
                self._connection.execute("PRAGMA foreign_keys = ON")
                if reading:
                    # Not opened read-only: what a killed writer left half-done may have to be rolled back first.
                    self._connection.execute("PRAGMA query_only = ON")
                prepare(self._connection, self.path, create=not reading)
        except StoreError:
            self._connection.close()
            if new and self.path.exists() and not self.path.stat().st_size:  # a full disk
                self.path.unlink()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------------------- writing

    def add(self, members: Iterable[tuple[RunSpec, Phase]]) -> None:
        """Put runs on the list; those that are there already stay as they are."""
        names = ", ".join(SPEC_COLUMNS)
        marks = ", ".join("?" * (len(SPEC_COLUMNS) + 1))
        with self._transaction() as execute:
            for spec, phase in members:
                values = [getattr(spec, name) for name in SPEC_COLUMNS]
                execute(f"INSERT OR IGNORE INTO runs (key, {names}) VALUES ({marks})", (spec.key(), *values))
                execute(
                    "INSERT OR IGNORE INTO phases (run_id, phase) SELECT id, ? FROM runs WHERE key = ?",
                    (phase, spec.key()),
                )

    def take_up(self, specs: Iterable[RunSpec]) -> None:
        """Make runs pending again that a dead process left running; of `specs`, also those that failed."""
        with self._transaction() as execute:
            execute("UPDATE runs SET status = 'pending' WHERE status = 'running'")
            for spec in specs:
                execute("UPDATE runs SET status = 'pending' WHERE status = 'failed' AND key = ?", (spec.key(),))

    def start(self, spec: RunSpec) -> None:
        """Note that a run has begun."""
        with self._transaction() as execute:
            assigned = "started = ?, finished = NULL, error = NULL, owner = ?"
            self._move(execute, spec, "pending", "running", assigned, (_now(), process_name()))

    def release(self, spec: RunSpec) -> None:
        """Note that a running run was stopped before its end."""
        with self._transaction() as execute:
            self._move(execute, spec, "running", "pending", "owner = NULL", ())

    def finish(self, outcome: Outcome, owner: str = "", versions: str = "") -> None:
        """Store a run with all its rows, in one transaction."""
        with self._transaction() as execute:
            values = _now(), owner or process_name(), versions
            assigned = "finished = ?, owner = ?, versions = ?"
            number = self._move(execute, outcome.spec, "running", outcome.status, assigned, values)
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            for row in outcome.rows:
                execute(
                    f"INSERT INTO epochs (run_id, {', '.join(COLUMNS)}) VALUES ({marks})",
                    (number, *map(_plain, astuple(row))),
                )

    def fail(self, spec: RunSpec, error: str) -> None:
        """Note that a running run raised."""
        with self._transaction() as execute:
            self._move(execute, spec, "running", "failed", "finished = ?, error = ?", (_now(), error))

    def write_note(self, key: str, value: str) -> None:
        """Set a line of the table `meta`."""
        with self._transaction() as execute:
            execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    # -------------------------------------------------------------------------------------------------------- reading

    def read_note(self, key: str) -> str:
        """Return a line of the table `meta`; empty where there is none."""
        with self._explained():
            row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def runs(self) -> list[StoredRun]:
        """Return every run, in the order in which they were put on the list."""
        with self._explained():
            execute = self._connection.execute
            # One transaction: a study may be writing.
            execute("BEGIN")
            try:
                listed = execute("SELECT id, key, status, coalesce(error, '') FROM runs ORDER BY id").fetchall()
                phases = execute("SELECT run_id, phase FROM phases").fetchall()
                rows = execute(f"SELECT run_id, {', '.join(COLUMNS)} FROM epochs ORDER BY run_id, epoch").fetchall()
            finally:
                execute("COMMIT")
        wanted: dict[int, set[str]] = {}
        epochs: dict[int, list[EpochRow]] = {}
        for number, phase in phases:
            wanted.setdefault(number, set()).add(phase)
        for number, *values in rows:
            figures: list[Any] = [math.nan if value is None else value for value in values]
            epochs.setdefault(number, []).append(EpochRow(*figures))
        return [
            StoredRun(self._spec(key), status, frozenset(wanted.get(i, ())), tuple(epochs.get(i, ())), error)
            for i, key, status, error in listed
        ]

    # -------------------------------------------------------------------------------------------------------- helpers

    def _spec(self, key: str) -> RunSpec:
        try:
            return RunSpec.from_mapping(json.loads(key))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{self.path}: a run that this version does not know, {key}: {error}") from error

    def _move(
        self, execute: Any, spec: RunSpec, before: str, after: str, assignments: str, values: tuple[Any, ...]
    ) -> int:
        """Change a run's status, which must be `before`; its number."""
        row = execute("SELECT id, status FROM runs WHERE key = ?", (spec.key(),)).fetchone()
        if row is None or row[1] != before:
            raise StoreError(f"{self.path}: expected a {before} run, got {row[1] if row else 'none'}: {spec.key()}")
        execute(f"UPDATE runs SET status = ?, {assignments} WHERE id = ?", (after, *values, row[0]))
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite itself rolls back where the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _explained(self) -> Any:
        return explained(self.path, self.timeout)


def process_name() -> str:
    """Return a name of this process for messages: its number and machine."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _plain(value: Any) -> Any:
    """Return a number that SQLite takes: NumPy's scalars would become blobs."""
    return value if isinstance(value, int) else float(value)
