"""The place where a method under test is written: file and line, as far as Python knows."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbackprop.base.checks import is_shipped


@dataclass(frozen=True)
class Source:
    """A function or class as it is written."""

    file: str
    name: str
    line: int  # number of its first line
    text: str  # all its lines, without what they are indented by together

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, in {self.name}"


@dataclass(frozen=True)
class Whereabouts:
    """A place in the source: in words, and the lines that they name; both empty if it is not known."""

    words: str = ""
    sources: tuple[Source, ...] = ()

    @staticmethod
    def of(source: Source | None, note: str = "") -> Whereabouts:
        """In one source, with a note after its name."""
        return Whereabouts(f"{source}{note}", (source,)) if source is not None else Whereabouts()

    def __str__(self) -> str:
        return self.words


def place(subject: Any, method: str, jacobians: Mapping[str, Any] | None = None) -> Whereabouts:
    """Return the place in the source to look at if `method`, as a row names it, fails."""
    kind, (parameter, _, reduction) = type(subject), method.partition(".")
    own = _in_jacobian((jacobians or {}).get(parameter), reduction) if reduction else Whereabouts()
    if own.sources or _is_ours(kind):
        return own
    name = "parameter_jacobians" if "." in method else method
    owner = _owner(kind, name)
    if owner is None:
        return Whereabouts.of(_in(kind, kind.__name__))
    if not _is_ours(owner):
        return Whereabouts.of(_in(vars(owner)[name], f"{kind.__name__}.{name}") or _in(owner, kind.__name__))
    calls = [_in(vars(cls)[call], f"{kind.__name__}.{call}") for cls, call in _calls(kind, name, set())]
    sources = tuple(source for source in calls if source is not None)
    note = f" ({name} is {owner.__name__}'s, and calls {'it' if len(calls) == 1 else 'them'})"
    return Whereabouts(" or ".join(map(str, sources)) + note, sources) if sources else Whereabouts()


def _in_jacobian(jacobian: Any, name: str) -> Whereabouts:
    """Return the place of a reduction of a user's `ParameterJacobian`, or of the `per_sample` that it sums over."""
    kind = type(jacobian)
    for called in dict.fromkeys((name, "per_sample")):
        owner = _owner(kind, called)
        function = vars(jacobian).get(called) if hasattr(jacobian, "__dict__") else None
        if function is None and owner is not None and not _is_ours(owner):
            function = vars(owner)[called]
        source = None if function is None else _in(function, f"{kind.__name__}.{called}")
        if source is not None:
            return Whereabouts.of(source, "" if called == name else f" ({name} is inherited, and sums over it)")
    return Whereabouts()


def _owner(kind: type, name: str) -> type | None:
    """Return the class in which an attribute is found."""
    return next((cls for cls in kind.__mro__ if name in vars(cls)), None)


def _is_ours(cls: type) -> bool:
    return is_shipped(cls) or cls.__module__ == "builtins"


def _calls(kind: type, name: str, seen: set[str]) -> Iterator[tuple[type, str]]:
    """Yield the methods of the user that an inherited method calls, directly or not, by the names in its code."""
    seen.add(name)
    owner = _owner(kind, name)
    code = getattr(vars(owner)[name], "__code__", None) if owner is not None else None
    for called in code.co_names if code is not None else ():
        found = _owner(kind, called)
        if called in seen or found is None or not callable(vars(found)[called]):
            continue
        if _is_ours(found):
            yield from _calls(kind, called, seen)
        else:
            seen.add(called)
            yield found, called


def _in(thing: Any, name: str) -> Source | None:
    """Return a function or class as it is written."""
    try:
        file, (lines, line) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
    except (OSError, TypeError):  # Python has no source of it
        return None
    return Source(_short(file), name, line, textwrap.dedent("".join(lines)).rstrip()) if file else None


def _short(file: str) -> str:
    """Return a path from here, if it is not far."""
    try:
        relative = os.path.relpath(file, Path.cwd())
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative
