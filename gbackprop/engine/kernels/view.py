"""The moving windows of an image, as a view of it."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window


def unfold(image: Array, window: Window, out: Shape) -> Array:
    """Return `Window.unfold` of a padded image ``[L, *S, C]`` as a view: ``[L, *out, *kernel, C]``."""
    lead, spatial, last = image.strides[0], image.strides[1:-1], image.strides[-1]
    steps = tuple(a * s for a, s in zip(spatial, window.stride, strict=True))
    inner = tuple(a * d for a, d in zip(spatial, window.dilation, strict=True))
    return array_module(image).lib.stride_tricks.as_strided(
        image, (image.shape[0], *out, *window.kernel, image.shape[-1]), (lead, *steps, *inner, last)
    )
