"""The Jacobians of single samples' outputs in the parameters, a few samples at a time."""

from __future__ import annotations

from collections.abc import Iterator

from gbackprop.array import Array
from gbackprop.layers.base import Layer
from gbackprop.operators import Jacobian

BYTES = 2**28
"""Most bytes of the Jacobians that exist at a time, in float64."""


def jacobians(network: Layer, x: Array, entries: int) -> Iterator[tuple[slice, dict[str, Array]]]:
    """Yield slices of samples with their Jacobians, ``{parameter: [n, C, *p]}``, in order.

    Parameters
    ----------
    network : Layer
    x : ndarray, shape (N, *in)
    entries : int
        C D, the number of entries of a sample's Jacobian.
    """
    step = max(1, BYTES // (8 * entries))
    for start in range(0, len(x), step):
        some = slice(start, min(start + step, len(x)))
        yield some, Jacobian(network, x[some]).to_arrays()
