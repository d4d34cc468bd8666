"""Some rows or columns of an operator: those of parameters by name, or by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, is_array, like, on_device_of
from gbackprop.operators.vectors import Layout


class IndexSet:
    """Some rows, or columns, of an operator.

    Parameters
    ----------
    name : str
        "rows" or "columns", for errors.
    given : str, sequence of str, sequence of int, or None
        What was asked for; None for all.
    layout : Layout, optional
        The parameters whose entries they are.
    size : int
        How many there are.
    other : ndarray
        An array on the operator's device.
    narrow : bool
        Whether the operator multiplies the rows and columns of some parameters alone.

    Attributes
    ----------
    places : ndarray of int
        The numbers of those that are chosen.
    named : Layout or None
        The parameters that were named.
    layout : Layout or None
        The parameters with which the operator is multiplied: those that have one that is chosen.
    index : ndarray of int, or None
        The places in a vector of these; None for all of them.
    """

    def __init__(self, name: str, given: Any, layout: Layout | None, size: int, other: Array, narrow: bool) -> None:
        if given is None:
            self.named, self.places = layout, np.arange(size)
        elif isinstance(given, str) or (isinstance(given, Sequence) and given and isinstance(given[0], str)):
            self.named = _named(name, [given] if isinstance(given, str) else given, layout)
            self.places = _places(layout, self.named.shapes)
        else:
            self.named, self.places = None, _numbers(name, given, size)
        self.layout, within = layout, np.arange(size)
        if narrow and layout is not None:
            spans = layout.places().items()
            self.layout = self.named or layout.only([key for key, span in spans if _any_in(span, self.places)])
            within = _places(layout, self.layout.shapes)
        self.size, where = len(within), np.zeros(size, int)
        where[within] = np.arange(self.size)
        index = where[self.places]
        self.index = None if np.array_equal(index, np.arange(self.size)) else like(index, other)

    def put(self, V: Array) -> Array:
        """Return the vectors of which these are the entries, zero elsewhere: ``[n, K] -> [size, K]``."""
        if self.index is None:
            return V
        with on_device_of(V):
            wide = array_module(V).zeros((self.size, V.shape[1]), dtype=V.dtype)
            wide[self.index] = V
            return wide

    def take(self, V: Array) -> Array:
        """Return these entries of vectors: ``[size, K] -> [n, K]``."""
        return V if self.index is None else V[self.index]


def _named(name: str, names: Sequence[str], layout: Layout | None) -> Layout:
    """Return the layout of parameters that are named, or raise an error."""
    if layout is None:
        raise TypeError(f"{name}: expected numbers, as they are not all entries of parameters, got {list(names)}")
    unknown = [each for each in names if each not in layout.shapes]
    if unknown or len(set(names)) != len(names):
        raise ValueError(f"{name}: expected some of the parameters {list(layout.shapes)}, each once, got {list(names)}")
    return layout.only(names)


def _numbers(name: str, given: Any, size: int) -> np.ndarray:
    """Return numbers of rows or columns as an array, or raise an error."""
    wrong = f"{name}: expected names of parameters, or numbers from 0 to {size - 1}, each once"
    found = asnumpy(given) if is_array(given) else np.asarray(given if isinstance(given, Sequence | range) else None)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TypeError(f"{wrong}, got {given!r}")
    if not len(found) or found.min() < 0 or found.max() >= size or len(np.unique(found)) != len(found):
        raise ValueError(f"{wrong}, got {given!r}")
    return found.astype(int)


def _places(layout: Any, names: Iterable[str]) -> np.ndarray:
    """Return the numbers of the entries of some parameters."""
    spans = layout.places()
    return np.concatenate([np.arange(spans[each].start, spans[each].stop) for each in names])


def _any_in(span: slice, places: np.ndarray) -> bool:
    return bool(((places >= span.start) & (places < span.stop)).any())
