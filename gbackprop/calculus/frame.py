"""Frames around an image whose numbers are the image's own: reflected, repeated at the edge, or from the other side."""

from __future__ import annotations

from dataclasses import dataclass

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape

MODES = ("reflect", "replicate", "circular")


@dataclass(frozen=True)
class Frame:
    """A linear map that adds places before and after the last axes of an array, with numbers from inside."""

    mode: str
    padding: tuple[tuple[int, int], ...]

    def size(self, spatial: Shape) -> Shape:
        """Return the size with the frame."""
        for axis, (size, added) in enumerate(zip(spatial, self.padding), -len(spatial)):
            most = {"reflect": size - 1, "circular": size}.get(self.mode, max(added))
            if max(added) > most:
                words = f"at most {most} places of {self.mode} padding along axis {axis}"
                raise ValueError(f"expected {words}, got {added}")
        return tuple(size + before + after for size, (before, after) in zip(spatial, self.padding))

    def around(self, x: Array) -> Array:
        """Compute ``[*lead, *S] -> [*lead, *framed]``."""
        xp = array_module(x)
        for axis, (before, after) in enumerate(self.padding, x.ndim - len(self.padding)):
            sources = self._sources(x.shape[axis], before, after)
            edges = [x[_along(axis, source)] for source in sources]
            if self.mode == "reflect":
                edges = [xp.flip(edge, axis) for edge in edges]
            if self.mode == "replicate":
                edges = [xp.repeat(edge, count, axis) for edge, count in zip(edges, (before, after))]
            x = xp.concatenate([edges[0], x, edges[1]], axis)
        return x

    def inside(self, g: Array) -> Array:
        """Compute the adjoint of `around`: add each number to the one that it is a copy of."""
        xp = array_module(g)
        for axis, (before, after) in enumerate(self.padding, g.ndim - len(self.padding)):
            size = g.shape[axis] - before - after
            image = g[_along(axis, slice(before, before + size))].copy()
            edges = [g[_along(axis, slice(0, before))], g[_along(axis, slice(before + size, None))]]
            for edge, source in zip(edges, self._sources(size, before, after)):
                if self.mode == "reflect":
                    edge = xp.flip(edge, axis)
                if self.mode == "replicate":
                    edge = edge.sum(axis, keepdims=True)
                image[_along(axis, source)] += edge
            g = image
        return g

    def _sources(self, size: int, before: int, after: int) -> tuple[slice, slice]:
        """Return the places of the image from which the frame is filled, before it and after it."""
        if self.mode == "reflect":
            return slice(1, before + 1), slice(size - 1 - after, size - 1)
        if self.mode == "circular":
            return slice(size - before, size), slice(0, after)
        return slice(0, 1), slice(size - 1, size)


def _along(axis: int, where: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, where)
