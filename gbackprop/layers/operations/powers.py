"""The layer of a power in which base and exponent vary."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.residual import Factored, FactoredLayer, Pieces, units


class Power(FactoredLayer):
    """y = a^b, elementwise, of two inputs of equal shape; at a = 0 the derivatives in b are 0, as 0^b is for b > 0."""

    broadcasts = True
    formulas = {
        "forward": "y = a^b", "mjp": "b a^(b − 1) g, y log(a) g",
        "residual": "b (b − 1) a^(b − 2) g on a, y log(a)² g on b, a^(b − 1) (1 + b log(a)) g on both",
    }  # fmt: skip

    def output_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def forward(self, a: Array, b: Array) -> tuple[Array, Any]:  # type: ignore[override]
        y = a**b
        return y, (a, b, y)

    def slopes(self, a: Array, b: Array, y: Array) -> tuple[Array, Array]:
        """Return the derivatives in a and in b."""
        with np.errstate(divide="ignore", invalid="ignore"):  # of an input in which nobody may ask for them
            return _power(b, a, b - 1), y * _logarithm(a)

    def bends(self, saved: Any, grad: Array) -> tuple[Array, Array, Array]:
        """Return the second derivatives, in a, in a and b, in b, times g; those at 0 in a and b are torch's."""
        (a, b, y), xp = saved, array_module(grad)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm, zero = _logarithm(a), a == 0
            both = xp.where(zero, b == 1, xp.where(zero, 1, a) ** (b - 1) * (1 + b * logarithm))
            return times(_power(b * (b - 1), a, b - 2), grad), both * grad, times(y * logarithm * logarithm, grad)

    def jmp(self, saved: Any, of_a: Array, of_b: Array) -> Array:  # type: ignore[override]
        in_a, in_b = self.slopes(*saved)
        return times(in_a, of_a) + times(in_b, of_b)

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, Array]:  # type: ignore[override]
        in_a, in_b = self.slopes(*saved)
        return times(in_a, mat), times(in_b, mat)

    def residual_width(self, *shapes: Shape) -> int:
        return 2 * prod(shapes[0])

    def residual(self, saved: Any, grad: Array) -> Factored:
        """Factor [[p, q], [q, r]] of each number, in units of a and b, by Jacobi's rotation: two columns for each."""
        (a, b, _), xp, (n, *shape), size = saved, array_module(grad), grad.shape, prod(grad.shape[1:])
        unit_a, unit_b = (xp.where(x == 0, 1, abs(x)) for x in (a, b))
        p, q, r = self.bends(saved, grad)
        p, q, r = p * unit_a * unit_a, q * unit_a * unit_b, r * unit_b * unit_b
        angle = (r - p) / xp.where(q == 0, 1, 2 * q)
        tangent = xp.where(abs(q) > 0, xp.copysign(1, angle) / (abs(angle) + xp.hypot(1, angle)), 0)  # NaN: a < 0
        cosine = 1 / xp.hypot(1, tangent)
        values = xp.stack([p - times(q, tangent), r + times(q, tangent)])  # [2, N, *in], as all that follow
        on_a = times(xp.sqrt(abs(values)), xp.stack([cosine, tangent * cosine])) / unit_a
        on_b = times(xp.sqrt(abs(values)), xp.stack([-tangent * cosine, cosine])) / unit_b
        signs = xp.copysign(1, values).reshape(2, n, size).swapaxes(1, 2).reshape(2 * size, n)

        def columns(span: slice) -> Pieces:
            k = xp.arange(2 * size)[span]
            place = units(k % size, n, tuple(shape), grad.dtype) != 0
            return tuple(xp.where(place, each[k // size], 0) for each in (on_a, on_b)), signs[span]

        return Factored(2 * size, columns)


def _power(factor: Array, a: Array, b: Array) -> Array:
    """Return factor · a^b, and 0 where the factor is 0, also where a^b is infinite."""
    xp = array_module(a)
    return xp.where(factor == 0, 0, factor * xp.where(factor == 0, 1, a) ** b)


def _logarithm(a: Array) -> Array:
    """Return log a, and 0 at 0, where what it multiplies is 0."""
    xp = array_module(a)
    return xp.log(xp.where(a == 0, 1, a))


def times(slope: Array, mat: Array) -> Array:
    """Return slope · mat, and 0 where mat is 0, also if the slope is infinite there."""
    return array_module(mat).where(mat == 0, 0, slope) * mat
