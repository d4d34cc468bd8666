"""Upsampling: each place of the output is a copy of the nearest one of the input."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import positive
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.separable import Separable


class Upsample(Separable):
    """A layer that makes an image larger or smaller by taking the nearest pixel to the left and above, per channel.

    For sequences ``[N, C, L]``, images ``[N, C, H, W]`` and volumes ``[N, C, D, H, W]``.

    Parameters
    ----------
    size : int or tuple of int, optional
        The size of the output.
    scale_factor : float or tuple of float, optional
        The size of the output over that of the input, rounded down. Exactly one of the two is given.
    mode : {"nearest"}
        Pixel i is a copy of pixel ⌊i S/O⌋ of S, or of ⌊i/scale_factor⌋; of images, as in torch, ⌊i S/O⌋ also along
        an axis where O is S or 2 S.
    """

    formulas = {"forward": "y[i] = x[⌊i S/O⌋]", "mjp": "Σ g[i] over the copies of a pixel"}

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
    ) -> None:
        if (size is None) == (scale_factor is None):
            raise ValueError(f"size, scale_factor: expected one of the two, got {size!r} and {scale_factor!r}")
        if mode != "nearest":
            raise ValueError(f"mode: expected 'nearest', got {mode!r}")
        if size == () or scale_factor == ():
            raise ValueError("size, scale_factor: expected a number for each axis, got ()")
        self.size = None if size is None else tuple(positive("size", s) for s in _several(size))
        self.scale_factor = None if scale_factor is None else tuple(map(_factor, _several(scale_factor)))

    def describe(self) -> str:
        return f"size={self.size}" if self.size else f"scale_factor={self.scale_factor}"

    def output_shape(self, shape: Shape) -> Shape:
        given = self.size or self.scale_factor or ()
        dims = len(shape) - 1
        if dims not in (1, 2, 3) or len(given) not in (1, dims):
            wanted = "(C, L), (C, H, W) or (C, D, H, W)" if len(given) == 1 else f"(C, *S) with {len(given)} axes S"
            raise ValueError(f"expected features of shape {wanted}, got {shape}")
        out = self._out(shape[1:])
        if min((*out, *shape)) < 1:
            raise ValueError(f"expected an output of at least one place along each axis, got {out} from {shape}")
        return (shape[0], *out)

    def _out(self, spatial: Shape) -> Shape:
        if self.size is not None:
            return self.size * (len(spatial) // len(self.size))
        return tuple(int(s * f) for s, f in zip(spatial, self._factors(spatial)))

    def _factors(self, spatial: Shape) -> tuple[float, ...]:
        assert self.scale_factor is not None
        return self.scale_factor * (len(spatial) // len(self.scale_factor))

    def matrices(self, spatial: Shape, like: Array) -> list[Array]:
        xp, kind = array_module(like), like.real.dtype
        steps = [s / o for s, o in zip(spatial, self._out(spatial))]
        if self.scale_factor is not None:
            steps = [1 / factor for factor in self._factors(spatial)]
            if len(spatial) == 2:  # torch's images that have their size, or twice that, are copied so, 3 by 1.1 too
                sizes = zip(spatial, self._out(spatial), steps, strict=True)
                steps = [s / o if o in (s, 2 * s) else step for s, o, step in sizes]
        found = []
        for size, out, step in zip(spatial, self._out(spatial), steps):
            # torch multiplies in the input's precision and rounds to float32, in which 3 × (1/3) is 1
            product = (xp.arange(out, dtype=kind) * kind.type(step)).astype(np.float32)
            source = xp.minimum(xp.floor(product), size - 1)
            found.append((xp.arange(size) == source[:, None]).astype(kind))
        return found


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"scale_factor: expected a finite number above 0, got {value!r}")
    return float(value)
