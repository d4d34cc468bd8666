"""The file of results: what is in it, what is refused, and that a run is there as a whole or not at all."""

import dataclasses
import math
import sqlite3

import numpy as np
import pytest

from gbackprop.experiments.runs import EpochRow, Outcome
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import Store, StoreError
from gbackprop.experiments.stored import StoredRun

SPEC = RunSpec("mnist_logreg", "KFAC", 1e-2, 1e-1, seed=7, epochs=2, average="ema")
OTHER = RunSpec("fmnist_2c2d", "Momentum", 0.1, seed=8, momentum=0.5)
ROWS = tuple(EpochRow(epoch, 0.1 * epoch, 0.2, 0.3, 0.4, 1 / 3, 0.6, 7.0) for epoch in range(3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path):
    with Store(path, timeout=0.1) as store:
        yield store


def sql(path, query):
    """Return what any other program reads."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_a_run_from_list_to_rows(store, path):
    store.add([(SPEC, "grid"), (SPEC, "repeat"), (OTHER, "fixed"), (SPEC, "grid")])
    assert [(run.spec, run.status, run.phases) for run in store.runs()] == [
        (SPEC, "pending", {"grid", "repeat"}),
        (OTHER, "pending", {"fixed"}),
    ]
    store.start(SPEC)
    assert store.runs()[0].status == "running"
    store.finish(Outcome(SPEC, "done", ROWS), "me", "{}")
    with Store(path, reading=True) as reader:
        assert reader.runs()[0] == StoredRun(SPEC, "done", frozenset({"grid", "repeat"}), ROWS)


def test_any_program_reads_it(store, path):
    store.add([(SPEC, "fixed"), (OTHER, "fixed")])
    store.start(SPEC)
    store.finish(Outcome(SPEC, "done", ROWS))
    columns = "problem, optimizer, lr, damping, momentum, average, seed, epochs, status"
    assert sql(path, f"SELECT {columns} FROM runs") == [
        ("mnist_logreg", "KFAC", 0.01, 0.1, None, "ema", 7, 2, "done"),
        ("fmnist_2c2d", "Momentum", 0.1, None, 0.5, None, 8, 100, "pending"),
    ]
    assert sql(path, "SELECT optimizer, epoch, test_loss, test_accuracy FROM final") == [("KFAC", 2, 1 / 3, 0.6)]
    assert sql(path, "SELECT epoch, train_loss FROM epochs WHERE run_id = 1") == [(0, 0.0), (1, 0.1), (2, 0.2)]


def test_numbers_keep_every_bit(store):
    odd = EpochRow(0, np.float64(0.1) + 0.2, 5e-324, math.inf, np.float32(0.1), 1 / 3, math.nan, 1e308)
    store.add([(SPEC, "fixed")])
    store.start(SPEC)
    store.finish(Outcome(SPEC, "diverged", (odd,)))
    (row,) = store.runs()[0].rows
    assert dataclasses.astuple(row)[:6] == (0, 0.1 + 0.2, 5e-324, math.inf, float(np.float32(0.1)), 1 / 3)
    assert math.isnan(row.test_accuracy)
    assert row.seconds == 1e308


def test_a_run_is_stored_once(store):
    store.add([(SPEC, "fixed")])
    with pytest.raises(StoreError, match="expected a running run, got pending"):
        store.finish(Outcome(SPEC, "done", ROWS))
    store.start(SPEC)
    with pytest.raises(StoreError, match="expected a pending run, got running"):
        store.start(SPEC)
    store.finish(Outcome(SPEC, "done", ROWS))
    with pytest.raises(StoreError, match="expected a running run, got done"):
        store.finish(Outcome(SPEC, "done", ROWS[:1]))
    with pytest.raises(StoreError, match="expected a pending run, got none"):
        store.start(OTHER)
    assert store.runs()[0].rows == ROWS


def test_rows_and_status_come_together(store):
    store.add([(SPEC, "fixed")])
    store.start(SPEC)
    with pytest.raises(StoreError, match="UNIQUE"):
        store.finish(Outcome(SPEC, "done", (*ROWS, ROWS[0])))
    assert store.runs() == [StoredRun(SPEC, "running", frozenset({"fixed"}))]


def test_what_a_dead_process_left_is_taken_up(store):
    store.add([(SPEC, "fixed"), (OTHER, "fixed")])
    store.start(SPEC)
    store.start(OTHER)
    store.fail(OTHER, "ValueError: too hot\nTraceback …")
    assert store.runs()[1].error.startswith("ValueError: too hot\n")
    store.take_up([SPEC])
    assert [run.status for run in store.runs()] == ["pending", "failed"]
    store.take_up([SPEC, OTHER])
    assert [run.status for run in store.runs()] == ["pending", "pending"]
    store.start(OTHER)
    store.release(OTHER)
    assert [(run.status, run.error) for run in store.runs()] == [("pending", ""), ("pending", "")]


# --- what is refused ------------------------------------------------------------------------------


def refusal(path, **arguments):
    with pytest.raises(StoreError) as caught:
        Store(path, **arguments)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_a_file_of_a_newer_version(store, path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    for reading in (True, False):
        assert refusal(path, reading=reading) == (
            "expected a file of results in version 1 of the format, got version 2: it was written by a newer gbackprop"
        )


def test_files_of_other_programs(path):
    path.write_text("alpha,beta\n" * 100)
    before = path.read_bytes()
    assert refusal(path) == "is not a file of results: expected a SQLite database"
    assert path.read_bytes() == before
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (mine)")
    connection.close()
    before = path.read_bytes()
    assert "is a database of another program" in refusal(path)
    assert path.read_bytes() == before


def test_files_that_are_not_there(tmp_path):
    assert refusal(tmp_path / "no.sqlite", reading=True) == "no such file of results"
    assert not (tmp_path / "no.sqlite").exists()
    assert "cannot be opened: expected a file" in refusal(tmp_path / "no" / "results.sqlite")
    assert "cannot be opened: expected a file" in refusal(tmp_path)
    (tmp_path / "empty.sqlite").touch()
    assert refusal(tmp_path / "empty.sqlite", reading=True) == "holds no results yet"
    Store(tmp_path / "empty.sqlite").close()


def test_a_damaged_file(store, path):
    store.add([(SPEC, "fixed")])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"results\.sqlite: is damaged"), Store(path, reading=True) as damaged:
        damaged.runs()


def test_a_locked_file(store, path):
    store.add([(SPEC, "fixed")])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match=r"is locked: another program has been writing to it for 0\.1 s"):
        store.start(SPEC)
    assert "is locked" in refusal(path, reading=True, timeout=0.01)
    other.execute("ROLLBACK")
    other.close()
    store.start(SPEC)


def test_a_full_disk(store, path):
    store.add([(SPEC, "fixed"), (OTHER, "fixed")])
    store.start(SPEC)
    store.finish(Outcome(SPEC, "done", ROWS))
    store.start(OTHER)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")  # what SQLite meets on a full disk
    many = tuple(dataclasses.replace(ROWS[0], epoch=epoch) for epoch in range(2000))
    with pytest.raises(StoreError, match="the disk is full: what was stored is safe; free some space"):
        store.finish(Outcome(OTHER, "done", many))
    assert [(run.status, len(run.rows)) for run in store.runs()] == [("done", 3), ("running", 0)]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
    store.finish(Outcome(OTHER, "done", many))
    assert len(store.runs()[1].rows) == 2000


def test_a_run_with_settings_of_another_version(store, path):
    store.add([(SPEC, "fixed")])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET key = '{\"problem\": \"mnist_logreg\", \"warp\": 9}'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"a run that this version does not know.*warp"):
        store.runs()


def test_reading_writes_nothing(store, path):
    store.add([(SPEC, "fixed")])
    with Store(path, reading=True) as reader, pytest.raises(StoreError, match="cannot be written"):
        reader.start(SPEC)


def test_a_store_is_closed_where_its_block_ends(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        list(store.runs())
    with pytest.raises((sqlite3.ProgrammingError, StoreError), match="closed"):
        list(store.runs())
