"""The operators of ONNX that move numbers: shapes, slices, joins."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.onnx_call import OnnxCall
from gbackprop.interop.onnx_values import Axes, Known, OnnxTensor, aligned, features, marked, split
from gbackprop.layers import Operation


def _reshape(call: OnnxCall) -> OnnxTensor:
    """Reshape to sizes of which 0 stands for the same, and -1 for the rest."""
    given = call.targets(1) if call.get(1) else [call.attribute("shape")] * len(call.draft.sizes)
    targets = []
    for count, sizes in zip(call.draft.sizes, given, strict=True):
        own = call.x.sizes(count)
        if not call.attribute("allowzero", 0):
            sizes = [own[k] if size == 0 else size for k, size in enumerate(sizes)]
        rest = prod(size for size in sizes if size != -1)
        targets.append([prod(own) // max(rest, 1) if size == -1 else size for size in sizes])
    return _to(call, targets)


def _flatten(call: OnnxCall) -> OnnxTensor:
    axis, sizes = call.attribute("axis", 1), [call.x.sizes(count) for count in call.draft.sizes]
    return _to(call, [(prod(each[:axis]), prod(each[axis:])) for each in sizes])


def _to(call: OnnxCall, targets: Any) -> OnnxTensor:
    found = {split(call.x.axes, target, count) for target, count in zip(targets, call.draft.sizes, strict=True)}
    return call.reshaped(call.x, _only(found))


def _only(found: set[Axes]) -> Axes:
    if len(found) > 1:
        raise UnsupportedError(f"expected one shape for each sample, got {sorted(map(str, found))}")
    return found.pop()


def _unsqueeze(call: OnnxCall) -> OnnxTensor:
    axes = call.given("axes", 1)
    ndim, rest = len(call.x.axes) + len(axes), iter(call.x.axes)
    new = {axis % ndim for axis in axes}
    return call.reshaped(call.x, tuple(1 if i in new else next(rest) for i in range(ndim)))


def _squeeze(call: OnnxCall) -> OnnxTensor:
    own = call.x.axes
    gone = {axis % len(own) for axis in call.given("axes", 1, [i for i, axis in enumerate(own) if axis == 1])}
    if any(own[axis] != 1 for axis in gone):
        raise UnsupportedError(f"expected axes of length 1 that are not that of the samples, got {gone} of {own}")
    return call.reshaped(call.x, tuple(axis for i, axis in enumerate(own) if i not in gone))


def _expand(call: OnnxCall, value: Any, i: int) -> OnnxTensor:
    """Broadcast; an axis with as many entries as there are samples is that of the samples from there on."""
    fixed = len(call.draft.sizes) == 1
    found = {marked(sizes, count, fixed) for count, sizes in zip(call.draft.sizes, call.targets(i), strict=True)}
    axes, (own, _) = aligned([value.axes, _only(found)])
    return call.put(Operation("broadcast_to", shape=features(axes)), call.tensor(value, own), axes=axes)


def _filled(call: OnnxCall) -> OnnxTensor:
    value = call.attributes.get("value")
    array = np.zeros((), call.draft.dtype) if value is None else onnx.numpy_helper.to_array(value).reshape(())
    return _expand(call, Known(call.node.output[0], (array,)), 0)


def _shape(call: OnnxCall) -> Known:
    part = slice(call.attribute("start", 0), call.attribute("end"))
    return Known(call.node.output[0], tuple(np.array(call.x.sizes(count)[part]) for count in call.draft.sizes))


def _part(call: OnnxCall, parts: dict[int, slice]) -> OnnxTensor:
    """Return slices along axes of ONNX."""
    x, index, axes = call.x, [slice(None)] * len(call.x.shape), list(call.x.axes)
    for axis, part in parts.items():
        whole = x.sizes(call.draft.sizes[0])[axis]
        if part.indices(whole) != (0, whole, 1):
            place = x.feature(axis) - 1
            index[place], axes[axis] = part, len(range(*part.indices(whole)))
    return call.put(Operation("getitem", index=tuple(index)), x, axes=tuple(axes))


def _slice(call: OnnxCall) -> OnnxTensor:
    starts, ends = call.given("starts", 1), call.given("ends", 2)
    axes, steps = call.given("axes", 3, range(len(starts))), call.known(4, np.ones(len(starts), int)).tolist()
    return _part(call, {axis: slice(*each) for axis, *each in zip(axes, starts, ends, steps, strict=True)})


def _split(call: OnnxCall) -> tuple[OnnxTensor, ...]:
    axis, parts = call.attribute("axis", 0), len(call.node.output)
    whole = call.x.shape[call.x.feature(axis) - 1]
    each = -(-whole // parts)
    sizes = call.given("split", 1, [min(each, whole - i * each) for i in range(parts)])
    ends = np.cumsum(sizes).tolist()
    return tuple(_part(call, {axis: slice(end - size, end)}) for size, end in zip(sizes, ends, strict=True))


def _gather(call: OnnxCall) -> OnnxTensor:
    at, indices = call.attribute("axis", 0) % len(call.x.axes), np.asarray(call.known(1))
    return _take(call, call.x, at, indices)


def _take(call: OnnxCall, x: OnnxTensor, at: int, indices: np.ndarray) -> OnnxTensor:
    axes = (*x.axes[:at], *indices.shape, *x.axes[at + 1 :])
    return call.put(Operation("take", indices=indices, axis=x.feature(at)), x, axes=axes)


def _tile(call: OnnxCall) -> OnnxTensor:
    x = call.x
    for at, count in enumerate(call.known(1).tolist()):
        if count != 1:
            x = _take(call, x, at, np.tile(np.arange(x.shape[x.feature(at) - 1]), count))
    return x


def _concat(call: OnnxCall) -> OnnxTensor:
    if len(call.inputs) == 1:
        return call.x
    given = [value.axes for value in call.inputs]  # type: ignore[union-attr]
    at = call.attribute("axis") % len(given[0])
    whole, shapes = aligned([(*axes[:at], 1, *axes[at + 1 :]) for axes in given])
    if any(isinstance(axes[at], tuple) for axes in given):
        raise UnsupportedError("it joins samples, each of which the network computes alone")
    place = OnnxTensor(0, whole).feature(at)
    tensors = [call.tensor(value, (*shape[: place - 1], axes[at], *shape[place:]))
               for value, axes, shape in zip(call.inputs, given, shapes, strict=True)]  # fmt: skip
    axes = (*whole[:at], sum(axes[at] for axes in given), *whole[at + 1 :])
    return call.put(Operation("concatenate", axis=place), *tensors, axes=axes)


def _triangle(call: OnnxCall) -> OnnxTensor:
    if any(isinstance(axis, tuple) for axis in call.x.axes[-2:]):
        raise UnsupportedError("expected matrices of features, the samples along an axis before the last two")
    return call.row("triu" if call.attribute("upper", 1) else "tril", call.x, k=int(call.known(1, 0)))


def _pixels(call: OnnxCall) -> OnnxTensor:
    if call.attribute("mode", "DCR") != "CRD":
        raise UnsupportedError("expected mode='CRD'")
    return call.put(layers.PixelShuffle(call.attribute("blocksize")), call.image())


MOVES: dict[str, Callable[[OnnxCall], Any]] = {
    "Reshape": _reshape, "Flatten": _flatten, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze,
    "Transpose": lambda call: call.transposed(call.x, call.attribute("perm", range(len(call.x.axes))[::-1])),
    "Expand": lambda call: _expand(call, call.get(0), 1), "ConstantOfShape": _filled, "Shape": _shape,
    "Slice": _slice, "Split": _split, "Gather": _gather, "Concat": _concat, "Tile": _tile, "Trilu": _triangle,
    "DepthToSpace": _pixels,
}  # fmt: skip
"""The rules of these operators."""
