"""What completion offers, and every default of what is public.

``python tests/test_public_names.py`` writes the defaults into ``tests/defaults.txt``.
"""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import gbackprop as gb

DEFAULTS = Path(__file__).with_name("defaults.txt")
ROOMS = ["gbackprop", *(each.__name__ for each in map(vars(gb).get, gb.__all__) if isinstance(each, ModuleType))]
ROOMS += ["gbackprop.plain.explanation", "gbackprop.network", "gbackprop.testing"]

ROOT = Path(gb.__file__).parent
PACKAGES = [
    ".".join(["gbackprop", *path.parent.relative_to(ROOT).parts])
    for path in sorted(ROOT.glob("*/**/__init__.py"))
    if "\n__all__ = " in path.read_text() and "experiments" not in path.parts
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


def callables():
    """Public functions and classes and the public methods of these, by the places where they are defined."""
    for room in map(importlib.import_module, ROOMS):
        for value in [getattr(room, name) for name in room.__all__]:
            if inspect.isclass(value) and not issubclass(value, Exception):
                yield f"{value.__module__}.{value.__qualname__}", value
                for kind in [kind for kind in value.__mro__ if kind.__module__.startswith("gbackprop")]:
                    for name in [name for name in vars(kind) if not name.startswith("_")]:
                        if inspect.isroutine(method := getattr(kind, name)) and callable(method):
                            yield f"{kind.__module__}.{kind.__qualname__}.{name}", method
            elif inspect.isroutine(value):
                yield f"{value.__module__}.{value.__qualname__}", value


def defaults():
    """A line for each of them that has a default, without annotations."""
    lines = set()
    for name, value in callables():
        signature = inspect.signature(value)
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        if any(p.default is not p.empty for p in plain):
            lines.add(f"{name}{signature.replace(parameters=plain, return_annotation=signature.empty)}\n")
    return "".join(sorted(lines))


def test_every_public_default_is_the_one_that_is_written_down():
    words = "if a change is meant, 'python tests/test_public_names.py' writes it into tests/defaults.txt, for review"
    assert defaults().splitlines() == DEFAULTS.read_text().splitlines(), words


if __name__ == "__main__":
    DEFAULTS.write_text(defaults())
