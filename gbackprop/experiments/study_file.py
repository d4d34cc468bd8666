"""Studies read from TOML files, with errors that name the wrong entry."""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gbackprop.base.names import near_miss
from gbackprop.experiments.optimizers import CURVATURES, OPTIMIZERS, TAKEN_BY
from gbackprop.experiments.protocol import Grid, Protocol
from gbackprop.experiments.spec import RunSpec

LEARNING_RATES = tuple(10.0**exponent for exponent in range(-4, 1))
DAMPINGS = tuple(10.0**exponent for exponent in range(-4, 2))
GRID_SEED = 42
SEEDS = tuple(range(42, 52))

SHARED = ("problem", "epochs", "seeds", "momentum", "average")
OF_RUNS = (*SHARED, "optimizer", "lr", "damping")
KEYS = {"runs": OF_RUNS, "grids": (*OF_RUNS, "seed")}


class StudyFileError(ValueError):
    """A study cannot be read; one line says why."""


def read(path: str | Path) -> Protocol:
    """Read a study."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise StudyFileError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StudyFileError(f"{path}: not TOML: {error}") from error
    try:
        return parse(document)
    except StudyFileError as error:
        raise StudyFileError(f"{path}: {error}") from error


def parse(document: Mapping[str, Any]) -> Protocol:
    """Turn what a TOML file holds into a study."""
    _check_keys("", document, (*SHARED, *KEYS))
    shared = {key: document[key] for key in SHARED if key in document}
    fixed: list[RunSpec] = []
    grids: list[Grid] = []
    for where, table in _tables(document, "runs"):
        fixed += _runs(where, {"seeds": list(SEEDS)} | shared | table, table)
    for where, table in _tables(document, "grids"):
        grids += _grids(where, {"seeds": list(SEEDS)} | shared | table, table)
    if not fixed and not grids:
        raise StudyFileError("nothing to run: expected at least one [[runs]] or [[grids]]")
    return Protocol(tuple(dict.fromkeys(fixed)), tuple(dict.fromkeys(grids)))


def _tables(document: Mapping[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    tables = document.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise StudyFileError(f"{kind}: expected tables that begin with [[{kind}]], got {tables!r}")
    named = [(f"[[{kind}]] number {number}", table) for number, table in enumerate(tables, 1)]
    for where, table in named:
        _check_keys(where, table, KEYS[kind])
    return named


def _runs(where: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[RunSpec]:
    lr = _needed(where, table, "lr")
    seeds = _several(where, table, "seeds")
    for settings in _settings(where, table, own):
        damping = {"damping": table["damping"]} if "damping" in table else {}
        for seed in seeds:
            yield _spec(where, lr=lr, seed=seed, **damping, **settings)


def _grids(where: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[Grid]:
    table = {"lr": list(LEARNING_RATES), "damping": list(DAMPINGS), "seed": GRID_SEED} | dict(table)
    rates, dampings, seeds = (_several(where, table, key) for key in ("lr", "damping", "seeds"))
    for settings in _settings(where, table, own):
        # Optimizers without damping have a grid of one dimension.
        columns = dampings if settings["optimizer"] in CURVATURES else [None]
        points = tuple(
            _spec(where, lr=lr, damping=damping, seed=table["seed"], **settings)
            for lr, damping in itertools.product(rates, columns)
        )
        for seed in seeds:
            _spec(where, lr=rates[0], damping=columns[0], seed=seed, **settings)
        yield Grid(points, tuple(seeds))


def _settings(where: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each problem with each optimizer, and what else these have in common."""
    problems, optimizers = _names(where, table, "problem"), _names(where, table, "optimizer")
    for name in optimizers:
        if name not in OPTIMIZERS:
            expected = ", ".join(OPTIMIZERS)
            raise StudyFileError(
                f"{where}: optimizer: expected one of {expected}, got {name!r}{near_miss(name, OPTIMIZERS)}"
            )
    for key, takers in TAKEN_BY.items():
        # What all tables share goes to those it concerns; in a table of its own it must concern somebody.
        if key in own and not set(optimizers) & set(takers):
            raise StudyFileError(f"{where}: {key}: {', '.join(optimizers)} has none")
    for name, optimizer in itertools.product(problems, optimizers):
        common = {"problem": name, "optimizer": optimizer}
        for key in ("epochs", "momentum", "average"):
            if key in table and optimizer in TAKEN_BY.get(key, OPTIMIZERS):
                common[key] = table[key]
        yield common


def _spec(where: str, **settings: Any) -> RunSpec:
    try:
        return RunSpec(**settings)
    except (TypeError, ValueError) as error:
        raise StudyFileError(f"{where}: {error}") from error


def _check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            place = f"{where}: " if where else ""
            raise StudyFileError(f"{place}unknown key {key!r}{near_miss(key, known)}; expected {', '.join(known)}")


def _needed(where: str, table: Mapping[str, Any], key: str) -> Any:
    if key not in table:
        raise StudyFileError(f"{where}: {key}: missing")
    return table[key]


def _names(where: str, table: Mapping[str, Any], key: str) -> list[str]:
    value = _needed(where, table, key)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise StudyFileError(f"{where}: {key}: expected a name or a list of names, got {value!r}")
    return value


def _several(where: str, table: Mapping[str, Any], key: str) -> list[Any]:
    value = table[key]
    if not isinstance(value, list) or not value:
        raise StudyFileError(f"{where}: {key}: expected a list with at least one entry, got {value!r}")
    if any(entry in value[:place] for place, entry in enumerate(value)):
        raise StudyFileError(f"{where}: {key}: expected each entry once, got {value!r}")
    return value
