"""The Jacobians of single samples' outputs in the parameters, a few samples at a time, and covariances from them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gbackprop.array import Array, array_module
from gbackprop.backward import backward
from gbackprop.laplace.structures import Root
from gbackprop.layers.base import Layer
from gbackprop.layers.jacobian import Reduction
from gbackprop.losses import MSELoss
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.signals import EXACT

BYTES = 2**28
"""Most bytes of the Jacobians that exist at a time, in float64."""


class OutputJacobian(Quantity):
    """∂fₙ[c]/∂θ for each sample and output, shape (N, C, *p) for each parameter.

    With the loss ℓₙ = ‖fₙ − yₙ‖² the columns of Sₙ are √2 e_c, so that Jₙᵀ sₙ_c / √2 are the rows of Jₙ.

    Parameters
    ----------
    outputs : int
        C.
    """

    name = "output_jacobian"
    scale = "∂fₙ[c]/∂θ"

    def __init__(self, outputs: int) -> None:
        columns = Reduction(
            "columns",
            "Jᵀ g, each column of each sample",
            lambda p: outputs * prod(p),
            True,
            lambda each, sign: each.swapaxes(0, 1),
        )
        self.needs = (Statistic(columns, EXACT),)

    def statistics(self) -> tuple[Statistic, ...]:
        return self.needs

    def finish(self, scale: Scale, columns: Array) -> Array:
        return columns * 0.5**0.5


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
    for some, rows in jacobians(network, x, output, size):
        yield some, [*root({name: each.reshape(-1, *each.shape[2:]) for name, each in rows.items()}).values()]


def jacobians(network: Layer, x: Array, output: Array, size: int) -> Iterator[tuple[slice, dict[str, Array]]]:
    """Yield slices of samples with their Jacobians, ``{parameter: [n, C, *p]}``, in order.

    Parameters
    ----------
    network : Layer
    x : ndarray, shape (N, *in)
    output : ndarray, shape (N, *out)
        The network's.
    size : int
        D, the number of entries of all parameters that are not frozen.
    """
    outputs = prod(output.shape[1:])
    step = max(1, BYTES // (8 * size * outputs))
    targets = array_module(output).zeros((min(step, len(x)), *output.shape[1:]), dtype=output.dtype)
    for start in range(0, len(x), step):
        some, quantity = slice(start, min(start + step, len(x))), OutputJacobian(outputs)
        result = backward(network, MSELoss("sum"), x[some], targets[: some.stop - start], quantity)
        yield some, dict(result[quantity])
