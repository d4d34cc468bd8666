"""The functions that are edited: a method, those that it calls, and what else its result depends on."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state import digest
from gbackprop.calculus.state.classes import is_of_library
from gbackprop.quantities import Quantity

CONSTRUCTOR = "__init__"
"""The name of the function that makes an object, whose edits are run in a copy."""

STATISTIC = "statistic "
"""The name of a formula, before its number."""

SIZED = "noise"
"""The method of losses whose argument is a number of draws, an edit of which may need any memory."""


def functions_of(owner: Any, name: str) -> list[tuple[str, FunctionType, Any]]:
    """Return a method's function, by "", and those that it calls, by their names, with the object that they are of.

    Names are ".name" of methods, "layer.name" of those of a layer inside, and "name" of other functions of its module;
    `STATISTIC` and a number are that of the formula of a quantity's statistic. The library's own are left out where
    there are others.
    """
    method = getattr(owner, name, None)
    start = getattr(method, "__func__", method)
    if not isinstance(start, FunctionType):
        return []
    waiting, seen, found = [("", start)], {start}, list[tuple[str, FunctionType, Any]]()
    for called, function in waiting:  # which grows
        found.append((called, function, owner))
        for each in (name for name in dict.fromkeys(names_in(function.__code__)) if name != SIZED):
            inner, there = getattr(type(owner), each, None), function.__globals__.get(each)
            near = function is start and getattr(there, "__module__", "") == start.__module__
            for title, new in ((f".{each}", inner), (each, there if near else None)):
                if isinstance(new, FunctionType) and new not in seen:
                    seen.add(new)
                    waiting.append((title, new))
    inside = getattr(owner, "layer", None)
    if isinstance(inside, Layer):
        others = functions_of(inside, name)
        found += [(f"layer.{each[0].strip('.') or name}", *each[1:]) for each in others if each[0][:1] in ("", ".")]
    if given_to(owner) is not None:
        found.append((CONSTRUCTOR, type(owner).__init__, owner))
    for i, statistic in enumerate(owner.statistics() if isinstance(owner, Quantity) else ()):
        formula = statistic.reduction.formula
        found += [(f"{STATISTIC}{i}", formula, owner)] if isinstance(formula, FunctionType) else []
    users = [each for each in found if not is_of_library(each[1].__module__)]
    return users or found[:1]


def given_to(owner: Any) -> dict[str, Any] | None:
    """Return the arguments of a user's constructor that are attributes now; None where it makes another object."""
    init = type(owner).__init__
    if not isinstance(init, FunctionType) or is_of_library(init.__module__):
        return None
    known, names = vars(owner), [*inspect.signature(init).parameters][1:]
    given = {name: known[name] for name in names if name in known}
    try:
        again = copy.copy(owner)
        init(again, **given)
        return given if digest(vars(again)) == digest(known) else None
    except Exception:  # other arguments are needed
        return None


def expected(owner: Any, method: str) -> set[str]:
    """Return the names that the functions take of which other methods are judged by what they give."""
    bases = [name for name in ("forward", "values", "definition") if name != method]
    functions = (each for basis in bases for each in functions_of(owner, basis) if each[0] != CONSTRUCTOR)
    return {name for _, function, _ in functions for name in names_in(function.__code__)}


def callers(name: str, owner: Any) -> int:
    """Return how many methods of an object's class call a function of a name."""
    methods = {each for kind in type(owner).__mro__ for each in vars(kind).values() if isinstance(each, FunctionType)}
    return sum(name in names_in(each.__code__) for each in methods)


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a code, and those inside of it, take from elsewhere."""
    for each in codes_in(code):
        yield from each.co_names


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those inside of it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_in(each)
