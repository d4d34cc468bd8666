"""Terms at the entries of a result: arrays of fewer axes, repeated along those that they have not."""

from __future__ import annotations

from itertools import combinations, permutations
from math import prod

import numpy as np

from gbackprop.testing.diagnosis.terms import FUNCTIONS, Terms

MOST = 260
"""Views of terms that are looked at."""


def library(terms: Terms, shape: tuple[int, ...]) -> Terms:
    """Return all terms and functions of their entries, at the entries of a result of some shape."""
    found: Terms = {"1": np.ones((1,) * len(shape))}
    for name, array in terms.items():
        for view_name, view in placed(name, array, shape):
            found.setdefault(view_name, view)
    for form, function in list(FUNCTIONS.items())[1:]:
        for name, array in terms.items():
            if name in ("g", "u", "columns", "signs") or array.size > 100_000:
                continue
            with np.errstate(all="ignore"):
                changed = function(array)
            for view_name, view in placed(form.format(name), changed, shape):
                if len(found) < MOST:
                    found.setdefault(view_name, view)
    return found


def placed(name: str, array: np.ndarray, shape: tuple[int, ...]) -> list[tuple[str, np.ndarray]]:
    """Return an array along each choice of the axes of a result that its own fit, in order; a matrix either way."""
    found = []
    forms = [(name, array)]
    if array.ndim > 2 and (len(array), prod(array.shape[1:])) != array.shape:
        forms.append((f"{name} (flat)", array.reshape(len(array), -1)))
    if array.ndim == 2 and len(set(array.shape)) > 1 or array.ndim == 2 and len(shape) == 2:
        forms.append((f"{name}ᵀ", array.T))
    for title, each in forms:
        kept = each.reshape([size for size in each.shape if size != 1])
        for axes in combinations(range(len(shape)), kept.ndim):
            if all(shape[axis] == size for axis, size in zip(axes, kept.shape, strict=True)):
                wide = [1] * len(shape)
                for axis, size in zip(axes, kept.shape, strict=True):
                    wide[axis] = size
                where = "" if axes == tuple(range(kept.ndim)) or not axes else f" along {', '.join(map(str, axes))}"
                found.append((f"{title}{where}", kept.reshape(wide)))
    return found
