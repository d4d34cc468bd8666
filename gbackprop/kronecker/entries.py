"""The order of a parameter's entries, and of their groups, outputs and inputs, in which blocks multiply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from gbackprop.array import Array, all_finite, array_module, device_of
from gbackprop.base.checks import check_array, check_floats, check_same, positive


@dataclass(frozen=True)
class Entries:
    """The entries of a parameter with G groups of O outputs, each with I inputs; G = 1 and I = 1 for a bias.

    In the parameter the groups come first, then the outputs, then the inputs; but of inputs numbered (C, *kernel) with
    `channels` C given, a divisor of I, the channels come before the outputs.
    """

    groups: int
    outputs: int
    inputs: int
    channels: int | None = None

    @property
    def size(self) -> int:
        """The number of entries, D = G O I."""
        return self.groups * self.outputs * self.inputs

    def check(self, v: Array, name: str, other: Array) -> None:
        """Check that v is finite, on the host alone, of shape (D,), (D, K) or the parameter's, and beside `other`.

        Where I = 1, as for biases and parameters of norms, any shape of D numbers is taken for the parameter's.
        """
        check_array("v", v)
        check_same("v", v, name, other)
        d, rows = self.size, self.groups * (self.channels or self.outputs)
        single = prod(v.shape) == d and (self.inputs == 1 or v.shape[:1] in ((rows,), (d,)))
        if not single and (v.ndim != 2 or v.shape[0] != d):
            lead = "" if self.inputs == 1 else f"{rows}, "
            raise ValueError(f"v: expected shape ({d},), ({d}, K) or ({lead}…) with {d} entries, got {v.shape}")
        if device_of(v) == "cpu" and not all_finite(v):  # on a GPU a look at the numbers would wait for it
            raise ValueError("v: expected finite numbers, got NaN or infinity")

    def split(self, v: Array) -> Array:
        """Return v, in the parameter's order, as ``[G, O, I, K]``; K = 1 for a single vector."""
        g, o, i, c = self.groups, self.outputs, self.inputs, self.channels or 1
        return v.reshape(g, c, o, i // c, v.size // self.size).swapaxes(1, 2).reshape(g, o, i, -1)

    def join(self, split: Array) -> Array:
        """Return ``[G, O, I]`` or ``[G, O, I, K]`` in the parameter's order, ``[D]`` or ``[D, K]``."""
        g, o, i, c = self.groups, self.outputs, self.inputs, self.channels or 1
        return split.reshape(g, o, c, i // c, *split.shape[3:]).swapaxes(1, 2).reshape(self.size, *split.shape[3:])

    def dense(self, blocks: Array) -> Array:
        """Return the matrix ``[D, D]`` of the blocks ``[G, O, I, O, I]`` of the groups, in the parameter's order."""
        g, o, i, c = self.groups, self.outputs, self.inputs, self.channels or 1
        blocks = blocks.reshape(g, o, c, i // c, o, c, i // c).transpose(0, 2, 1, 3, 5, 4, 6).reshape(g, o * i, o * i)
        if g == 1:
            return blocks[0]
        xp = array_module(blocks)
        dense, own = xp.zeros((g, o * i, g, o * i), dtype=blocks.dtype), xp.arange(g)
        dense[own, :, own] = blocks
        return dense.reshape(self.size, self.size)


def entries_of(
    name_a: str, a: Array | None, name_b: str, b: Array, axes: tuple[int, ...], channels: int | None
) -> Entries:
    """Return the entries of a block with the square arrays a, of the inputs, and b, of the outputs."""
    check_floats(name_b, b)
    _check_square(name_b, b, axes, "O")
    groups, outputs, inputs = 1 if b.ndim == 2 else b.shape[0], b.shape[-1], 1
    if a is not None:
        check_floats(name_a, a)
        check_same(name_a, a, name_b, b)
        _check_square(name_a, a, (b.ndim,), "I")
        if a.shape[:-2] != b.shape[:-2]:
            raise ValueError(f"{name_a}: expected {groups} groups as {name_b} has, got shape {a.shape}")
        inputs = a.shape[-1]
    if channels is not None and (positive("channels_first", channels) > inputs or inputs % channels):
        raise ValueError(f"channels_first: expected a divisor of I = {inputs}, got {channels}")
    return Entries(groups, outputs, inputs, channels)


def _check_square(name: str, value: Array, axes: tuple[int, ...], letter: str) -> None:
    if value.ndim not in axes or value.shape[-1] != value.shape[-2] or 0 in value.shape:
        shapes = {2: f"({letter}, {letter})", 3: f"(G, {letter}, {letter})"}
        expected = " or ".join(shapes[n] for n in axes)
        raise ValueError(f"{name}: expected shape {expected}, got {value.shape}")


def on_both_sides(v: Array, left: Callable[[Array], Array], right: Callable[[Array], Array]) -> Array:
    """Map ``[G, O, I, K]`` by `left` on the side of the outputs and by `right` on that of the inputs.

    `left` is given ``[G, O, I K]`` and `right` ``[G, I, O K]``: a product with a matrix is one for each group.
    """
    g, o, i, k = v.shape
    half = left(v.reshape(g, o, i * k)).reshape(g, o, i, k).swapaxes(1, 2)
    return right(half.reshape(g, i, o * k)).reshape(g, i, o, k).swapaxes(1, 2)
