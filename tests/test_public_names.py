"""What completion offers."""

import importlib
from pathlib import Path

import pytest

import gbackprop as gb

ROOT = Path(gb.__file__).parent
PACKAGES = [
    f"gbackprop.{path.parent.name}" for path in sorted(ROOT.glob("*/__init__.py")) if "\n__all__ = " in path.read_text()
]


def test_the_package_lists_its_public_names_and_no_modules_beside_them():
    assert set(dir(gb)) == {*gb.__all__, "__version__"}
    assert all(hasattr(gb, name) for name in dir(gb))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_with_public_names_lists_these_alone(name):
    package = importlib.import_module(name)
    assert dir(package) == sorted(package.__all__)
    assert all(hasattr(package, each) for each in package.__all__)


def test_what_is_public_has_public_names():
    modules = [value.__name__ for value in map(vars(gb).get, gb.__all__) if isinstance(value, type(gb))]
    assert {*modules, "gbackprop.testing"} <= set(PACKAGES)
