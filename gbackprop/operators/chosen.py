"""Some rows or columns of an operator: those of parameters by name, or by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, is_array, like, on_device_of
from gbackprop.operators.vectors import Layout


class Chosen:
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
        names = [given] if isinstance(given, str) else given
        self.named = layout if given is None else None
        if given is None:
            self.places = np.arange(size)
        elif isinstance(names, Sequence) and names and all(isinstance(each, str) for each in names):
            self.named = _named(name, names, layout)
            self.places = _places(layout, list(names))
        else:
            self.places = _numbers(name, given, size)
        self.layout = layout
        if narrow and layout is not None:
            spans = layout.places().items()
            chosen = self.named or [n for n, span in spans if _any_within(self.places, span)]
            self.layout = layout.only(chosen.shapes if isinstance(chosen, Layout) else chosen)
        inside = self.places
        if self.layout is not None and self.layout is not layout:
            wide = np.zeros(size, int)
            wide[_places(layout, list(self.layout.shapes))] = np.arange(self.layout.size)
            inside = wide[self.places]
        self.size = size if self.layout is None else self.layout.size
        whole = len(inside) == self.size and np.array_equal(inside, np.arange(self.size))
        self.index = None if whole else like(inside, other)

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
    if layout is None:
        raise TypeError(f"{name}: expected numbers, as they are not all entries of parameters, got {list(names)}")
    unknown = [each for each in names if each not in layout.shapes]
    if unknown or len(set(names)) != len(names):
        raise ValueError(f"{name}: expected some of the parameters {list(layout.shapes)}, each once, got {list(names)}")
    return layout.only(names)


def _numbers(name: str, given: Any, size: int) -> np.ndarray:
    wrong = f"{name}: expected names of parameters, or numbers from 0 to {size - 1}, each once"
    found = asnumpy(given) if is_array(given) else np.asarray(given if isinstance(given, Sequence | range) else None)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TypeError(f"{wrong}, got {given!r}")
    if not len(found) or found.min() < 0 or found.max() >= size or len(np.unique(found)) != len(found):
        raise ValueError(f"{wrong}, got {given!r}")
    return found.astype(int)


def _places(layout: Any, names: list[str]) -> np.ndarray:
    spans = layout.places()
    return np.concatenate([np.arange(spans[each].start, spans[each].stop) for each in names])


def _any_within(places: np.ndarray, span: slice) -> bool:
    return bool(((places >= span.start) & (places < span.stop)).any())
