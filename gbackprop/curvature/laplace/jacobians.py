"""The Jacobians of single samples' outputs in the parameters, a few samples at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Layer
from gbackprop.curvature.laplace.structures import Root
from gbackprop.operators import Jacobian

BYTES = 2**28
"""Most bytes of the Jacobians that exist at a time, in float64."""


def covariance(network: Layer, x: Array, output: Array, size: int, root: Root) -> Array:
    """Compute J P⁻¹ Jᵀ of each sample, ``[N, C, C]`` in float64."""
    outputs = prod(output.shape[1:])
    found = array_module(output).zeros((len(x), outputs, outputs))
    for some, halves in _halves(network, x, output, size, root):
        for half in halves:
            half = half.reshape(-1, outputs, half.shape[1])
            found[some] += half @ half.swapaxes(1, 2)
    return found


def joint_covariance(network: Layer, x: Array, output: Array, size: int, root: Root) -> Array:
    """Compute J P⁻¹ Jᵀ of all samples, ``[N, C, N, C]`` in float64.

    The Jacobians of a slice of samples exist beside those of one other slice: these are computed again for each pair.
    """
    n, outputs = len(x), prod(output.shape[1:])
    found = array_module(output).zeros((n, outputs, n, outputs))

    def add(some: slice, left: list[Array], other: slice, right: list[Array]) -> None:
        for one, two in zip(left, right, strict=True):
            found[some, :, other] += (one @ two.T).reshape(-1, outputs, len(two) // outputs, outputs)
        if other.start > some.start:
            found[other, :, some] = found[some, :, other].transpose(2, 3, 0, 1)

    for some, left in _halves(network, x, output, size, root):
        add(some, left, some, left)
        for later, right in _halves(network, x[some.stop :], output[some.stop :], size, root):
            add(some, left, slice(some.stop + later.start, some.stop + later.stop), right)
    return found


def _halves(network: Layer, x: Array, output: Array, size: int, root: Root) -> Iterator[tuple[slice, list[Array]]]:
    """Yield slices of samples with their J P^(−1/2), ``[n C, d]`` for each parameter of d entries."""
    step = max(1, BYTES // (8 * size * prod(output.shape[1:])))
    for start in range(0, len(x), step):
        some = slice(start, min(start + step, len(x)))
        rows = Jacobian(network, x[some]).to_arrays()  # {parameter: [n, C, *p]}
        yield some, [*root({name: each.reshape(-1, *each.shape[2:]) for name, each in rows.items()}).values()]
