"""Kernels for the host, compiled by Numba (the extra ``fast``): moving windows, outer products of rows, and ReLU.

Windows are channels-last, ``[L, *S, C]``; all results are written to an array that is given. This file flattens the
geometry; the loops are in `compiled`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from gbackprop.calculus.window import Window
from gbackprop.engine.kernels import compiled
from gbackprop.engine.kernels.view import seen


def fold(cols: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add windows ``[L, *out, *kernel, C]`` to the places that they cover in the padded image ``[L, *S, C]``."""
    size, kernel = image.shape[1:-1], window.kernel
    out = cols.shape[1 : 1 + len(size)]
    places = np.ascontiguousarray(cols).reshape(len(cols), prod(out), prod(kernel), cols.shape[-1])
    compiled.fold(places, *seen(window, out, size), _flat(image))


def scatter(rows: np.ndarray, places: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add each number ``[V, L, *out, C]`` to one place of its window in the padded image ``[V, L, *S, C]``."""
    size, out = image.shape[2:-1], places.shape[1:-1]
    rows = np.ascontiguousarray(rows).reshape(*rows.shape[:2], -1, rows.shape[-1])
    flat = image.reshape(*image.shape[:2], -1, image.shape[-1])
    compiled.scatter(rows, _flat(places), *seen(window, out, size), flat)


def first_places(image: np.ndarray, y: np.ndarray, window: Window, places: np.ndarray) -> None:
    """Write to `places` the first place of the maximum y ``[L, *out, C]`` in each window of the padded image."""
    places[...] = 0
    entries = seen(window, y.shape[1:-1], image.shape[1:-1])
    compiled.first_places(_flat(image), _flat(y), *entries, _flat(places))


def largest(image: np.ndarray, window: Window, y: np.ndarray) -> None:
    """Compute the maximum of each window of the padded image, written to `y` ``[L, *out, C]``."""
    compiled.largest(_flat(image), *seen(window, y.shape[1:-1], image.shape[1:-1]), _flat(y))


outer = compiled.outer
"""g uᵀ of rows: ``[L, O], [L, I] -> [L, O, I]``, written to `out`, which is C-contiguous."""


def positive(x: np.ndarray, y: np.ndarray) -> None:
    """max(x, 0), written to `y`; both have the same order in memory, without gaps."""
    compiled.positive(x.ravel("K"), y.ravel("K"))


def where_positive(x: np.ndarray, g: np.ndarray) -> None:
    """[x > 0] g for columns `g`, each with the order of x in memory, without gaps; written over g."""
    compiled.where_positive(x.ravel("K"), g.ravel("K").reshape(len(g), -1))


def _flat(x: np.ndarray) -> np.ndarray:
    """Return ``[L, *S, C]`` as ``[L, S, C]``."""
    return np.ascontiguousarray(x).reshape(len(x), prod(x.shape[1:-1]), x.shape[-1])
