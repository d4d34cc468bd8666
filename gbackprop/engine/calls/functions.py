"""Functions of modules on which definitions depend: a written call is valid as long as nobody replaces one."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gbackprop.calculus.state.classes import is_of_library

PACKAGES = "calculus", "layers", "losses", "quantities", "kronecker", "interop"
DEFINING = tuple([f"gbackprop.{each}." for each in PACKAGES])
"""The packages whose functions count; those of the engine decide how, not what is computed."""


class Functions:
    """The functions of modules to which methods of classes, or such functions, refer.

    `foreign` says whether one of them is of no library, so that somebody else has put it there; `of` is for each module
    its variables, a getter of the functions by their names, and these functions.
    """

    def __init__(self, kinds: Iterable[type]) -> None:
        waiting = [value for kind in kinds for value in vars(kind).values()]
        seen, found = set[Any](), dict[int, tuple[dict[str, Any], dict[str, Any]]]()
        while waiting:
            value = waiting.pop()
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if not isinstance(function, FunctionType) or function in seen:
                continue
            seen.add(function)
            names, scope = set(_names(function.__code__)), function.__globals__
            for each in (scope, *[vars(each) for each in map(scope.get, names) if isinstance(each, ModuleType)]):
                if str(each.get("__name__")).startswith(DEFINING):
                    used = {name: each[name] for name in names if isinstance(each.get(name), FunctionType)}
                    found.setdefault(id(each), (each, {}))[1].update(used)
                    waiting += used.values()
        modules = [str(value.__globals__["__name__"]) for _, used in found.values() for value in used.values()]
        self.foreign = not all(map(is_of_library, modules))
        self.of = [(scope, itemgetter(*used)) for scope, used in found.values() if used]
        self.before = [values(scope) for scope, values in self.of]

    def changed(self) -> bool:
        """Return whether a name has another value, or none."""
        try:
            return [values(scope) for scope, values in self.of] != self.before
        except KeyError:
            return True


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names to which a function and those inside of it refer."""
    yield from code.co_names
    for each in code.co_consts:
        yield from _names(each) if isinstance(each, CodeType) else ()
