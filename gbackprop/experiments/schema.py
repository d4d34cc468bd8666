"""The tables of a file of results, and what an error of SQLite means to whoever runs a study."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APPLICATION = 0x67626B70  # "gbkp": distinguishes our files from those of other programs
VERSION = 1

TABLES = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,      -- everything that decides the numbers, as JSON: no run is there twice
    problem TEXT NOT NULL,
    optimizer TEXT NOT NULL,
    lr REAL NOT NULL,
    damping REAL,
    momentum REAL,
    average TEXT,
    seed INTEGER NOT NULL,
    epochs INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'done', 'diverged', 'failed')),
    error TEXT,                    -- why it failed: one line, then the traceback
    started TEXT,                  -- UTC; the last time, if it was taken up again
    finished TEXT,
    owner TEXT,                    -- the process and machine that computed it last
    versions TEXT                  -- of what it was computed with, as JSON
);

CREATE TABLE phases (              -- what a run is for; a run of the grid may be one of the repeats too
    run_id INTEGER NOT NULL REFERENCES runs (id),
    phase TEXT NOT NULL CHECK (phase IN ('grid', 'repeat', 'fixed')),
    PRIMARY KEY (run_id, phase)
) WITHOUT ROWID;

CREATE TABLE epochs (              -- epoch 0 is before training; NULL is NaN
    run_id INTEGER NOT NULL REFERENCES runs (id),
    epoch INTEGER NOT NULL,
    train_loss REAL,
    train_accuracy REAL,
    valid_loss REAL,
    valid_accuracy REAL,
    test_loss REAL,
    test_accuracy REAL,
    seconds REAL,
    PRIMARY KEY (run_id, epoch)
) WITHOUT ROWID;

CREATE VIEW final AS               -- the last epoch of every run that has come to its end
SELECT runs.id, problem, optimizer, lr, damping, momentum, average, seed, epochs, status, epochs.epoch,
    train_loss, train_accuracy, valid_loss, valid_accuracy, test_loss, test_accuracy
FROM runs JOIN epochs ON epochs.run_id = runs.id
WHERE epochs.epoch = (SELECT max(epoch) FROM epochs WHERE run_id = runs.id);
"""

_MEANINGS = {
    sqlite3.SQLITE_BUSY: "is locked: another program has been writing to it for {timeout:g} s; close it and try again",
    sqlite3.SQLITE_FULL: "the disk is full: what was stored is safe; free some space and run the same command again",
    sqlite3.SQLITE_NOTADB: "is not a file of results: expected a SQLite database",
    sqlite3.SQLITE_CORRUPT: "is damaged: {error}",
    sqlite3.SQLITE_READONLY: "cannot be written: {error}",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: expected a file, or a name for one in a folder that exists",
}


class StoreError(RuntimeError):
    """A file of results cannot be used; one line says why."""


@contextmanager
def explained(path: Path, timeout: float) -> Iterator[None]:
    """Turn errors of SQLite into a `StoreError` that names the file and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The lower byte is the kind of error, the rest says more of it than a user can use.
        kind = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        meaning = _MEANINGS.get(kind, "{error}").format(timeout=timeout, error=error)
        raise StoreError(f"{path}: {meaning}") from error


def prepare(connection: sqlite3.Connection, path: Path, create: bool) -> None:
    """Make the tables in a new file; refuse one that this version cannot read."""
    if create:
        _create(connection)
    if _is_empty(connection):
        raise StoreError(f"{path}: holds no results yet")
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
    if application != APPLICATION:
        raise StoreError(f"{path}: is a database of another program, not a file of results of gbackprop")
    if version != VERSION:
        raise StoreError(
            f"{path}: expected a file of results in version {VERSION} of the format, got version {version}"
            + (": it was written by a newer gbackprop" if version > VERSION else "")
        )


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables where there are none: all or nothing, and one process alone."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection):
            # Not `executescript`, which would commit what was begun.
            for statement in TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_MARKS = ("application_id", "user_version")


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
