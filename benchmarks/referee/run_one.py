"""Run one adapter: ``python benchmarks/referee/run_one.py backpack FILE.json``."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from matrices import ALL, Matrices

from gbackprop.testing.referee import judge


def main(name: str, file: str) -> None:
    """Judge all libraries of an adapter, and write the verdicts and the versions."""
    warnings.simplefilter("ignore")
    adapter = importlib.import_module(f"{name}_adapter")
    found = {}
    for library, own in adapter.ADAPTERS.items():
        found[library] = [asdict(each) for each in judge(own, definitions=ALL, brute=Matrices)]
    versions = {package: version(package) for package in adapter.PACKAGES}
    result = {"versions": versions, "conventions": adapter.CONVENTIONS, "libraries": found}
    Path(file).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
