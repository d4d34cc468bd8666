"""Optional packages, and what to say where one is missing."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


class MissingExtraError(ImportError):
    """A package of one of the extras is not installed."""


def require(module: str, purpose: str, extra: str = "experiments") -> ModuleType:
    """Import a module of an optional package."""
    with needed(module.partition(".")[0], purpose, extra):
        return importlib.import_module(module)


@contextmanager
def needed(package: str, purpose: str, extra: str = "experiments") -> Iterator[None]:
    """Name the extra where an import of an optional package fails in this context, as a MissingExtraError."""
    try:
        yield
    except ModuleNotFoundError as error:
        # A package that is there but broken inside is another fault, and its own message says more.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        install = f'pip install "gbackprop[{extra}]"'
        raise MissingExtraError(f"{purpose}: the package {package!r} is not installed; {install}") from error
