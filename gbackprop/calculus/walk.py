"""The walks over the layers of a network: upwards from its input, and downwards from its output.

The caller has a dictionary of what is at each layer's output, by position, and computes at each layer; the walks take
from it what a layer needs, and add what several layers carry to one output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import INPUT, Leaf, Nodes

At = dict[int, Any]
"""Values at the outputs of layers, by position; at the network's input, by `INPUT`."""


class Unexpanded(Nodes):
    """Layers in the order of computation, without shapes; a layer that is made of others is not expanded."""


def upwards(
    leaves: Sequence[Leaf], at: At, done: Sequence[Sequence[int]] = (), batch: int | None = None
) -> Iterator[tuple[Leaf, list[Any]]]:
    """Yield each layer with the values at its inputs; the caller sets ``at[leaf.position]``.

    `done` has the sources whose values are deleted when a layer has taken its own, see `last_taken`. Where a layer
    needs values of one row for each sample, they are repeated for a `batch`.
    """
    one_row = False
    for leaf in leaves:
        inputs = [at[source] for source in leaf.sources]
        if done:
            for source in done[leaf.position]:
                del at[source]
        if batch is not None and one_row and not leaf.layer.broadcasts:
            inputs = [_repeated(x, batch) if x.shape[0] == 1 else x for x in inputs]
        one_row = one_row or leaf.constant
        yield leaf, inputs
        del inputs  # what nothing else refers to is freed before the next layer computes


def values_upwards(
    leaves: Sequence[Leaf], at: At, done: Sequence[Sequence[int]] = ()
) -> Iterator[tuple[Leaf, list[Any]]]:
    """Return `upwards` from the network's input on, with one row repeated for N samples where a layer needs it."""
    return upwards(leaves, at, done, at[INPUT].shape[0])


def _repeated(x: Any, batch: int) -> Any:
    return array_module(x).broadcast_to(x, (batch, *x.shape[1:]))


def last_taken(leaves: Sequence[Leaf]) -> list[list[int]]:
    """Return for each layer the sources that no later layer takes."""
    last = {source: leaf.position for leaf in leaves for source in leaf.sources}
    return [[source for source in set(leaf.sources) if last[source] == leaf.position] for leaf in leaves]


def downwards(leaves: Sequence[Leaf], at: At) -> Iterator[tuple[Leaf, Any]]:
    """Yield each layer, the last first, with the value at its output; the caller adds what is below by `add_below`."""
    for leaf in reversed(leaves):
        yield leaf, at.pop(leaf.position)


def add_below(
    leaf: Leaf, below: Any, at: At, add: Callable[[Any, Any, int], Any], reaches: Callable[[int], bool] | None = None
) -> None:
    """Add what a layer carries to its inputs, one value or a tuple or list, to what others carried to the same outputs.

    `add` gets the sum so far, the value and the source; `reaches` says to which sources the walk goes on.
    """
    parts = below if isinstance(below, tuple | list) else (below,)
    for source, part in zip(leaf.sources, parts, strict=True):
        if reaches is None or reaches(source):
            at[source] = add(at[source], part, source) if source in at else part


def over_samples(leaves: Sequence[Leaf], source: int, columns: Array) -> Array:
    """Return columns ``[V, N, *out]`` of which a sum over samples is wanted: ``[V, 1, *out]`` at what has one row."""
    one_row = source != INPUT and leaves[source].constant and columns.shape[1] > 1
    return columns.sum(1, keepdims=True) if one_row else columns


def is_chain(leaves: Sequence[Leaf]) -> bool:
    """Return whether each layer takes the output of the one before it, and none shares parameters."""
    return all(leaf.sources == (leaf.position - 1,) for leaf in leaves) and _shares_nothing(leaves)


def is_swept_chain(leaves: Sequence[Leaf]) -> bool:
    """Return the same of the layers that a sweep reaches; the lowest may take what others make of the input."""
    swept = [leaf for leaf in leaves if leaf.swept]
    follow = all(leaf.sources == (before.position,) for before, leaf in pairwise(swept))
    return follow and _shares_nothing(leaves)


def _shares_nothing(leaves: Sequence[Leaf]) -> bool:
    names = [name for leaf in leaves for name in leaf.parameters.values()]
    return len(set(names)) == len(names)
