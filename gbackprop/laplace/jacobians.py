"""The Jacobians of single samples' outputs in the parameters, a few samples at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gbackprop.array import Array, array_module
from gbackprop.backward import backward
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
