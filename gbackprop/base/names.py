"""Names: those that completion offers, those that a user may have mistyped, and paths."""

import difflib
from collections.abc import Callable, Iterable


def near_miss(name: object, names: Iterable[str]) -> str:
    """Return the end of an error message, "; did you mean …?", whatever the case of the letters; or nothing."""
    lowered = {each.lower(): each for each in names}
    near = difflib.get_close_matches(str(name).lower(), lowered, n=1, cutoff=0.4)
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


def listing(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a module's `__dir__`, which lists its public names alone: what it imports is left out."""
    return lambda: sorted(names)


def inside(path: str, name: str) -> str:
    """Return the name of something inside a layer at a path; a parameter without a name has that of its layer."""
    return f"{path}.{name}" if path and name else path or name
