"""torch's functions that move numbers: shapes, axes, parts, joins; and linear maps of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.calls import FunctionCall, finite, move
from gbackprop.interop.integers import NARROW, check_cast, exactly
from gbackprop.interop.layouts import MIXED, Fixed, Place, TensorLayout


def reshape(call: FunctionCall) -> str:
    """Return a tensor in another shape."""
    return call.reshaped_to(call.self)


def same(call: FunctionCall) -> str:
    """Return a tensor as it is."""
    return call.place(call.given.get("self", call.given.get("input"))).name


def detach(call: FunctionCall) -> str:
    """Return a tensor as it is, if no gradient flows through it."""
    if call.node in call.assembly.flow:
        raise UnsupportedError("expected a function with the gradient of what it computes, got one that is cut off, as "
                               "all are in torch.no_grad (remove it, and freeze parameters that have no gradient)")
    return same(call)


def cast(call: FunctionCall) -> str:
    """Return a tensor of floats, converted to the network's dtype; integers and conditions are floats here, too."""
    before, after = call.dtype("self"), call.node.meta["val"].dtype
    if before.is_floating_point:
        call.assembly.check_dtype(after)
    elif after == torch.bool != before:
        return call.op("not_equal", *call.aligned(call.self, 0))
    elif before != torch.bool and after in NARROW:
        check_cast(call, before, after)
    elif (before, after, call.assembly.dtype) == (torch.int64, torch.int32, torch.float64):  # float32 has fewer
        return exactly(same)(call)
    return same(call)


def permute(call: FunctionCall) -> str:
    """Return a tensor with its axes in another order."""
    place = call.place(call.self)
    rank = len(place.layout.shape)
    order = list(range(rank))
    if "dims" in call.given:
        order = [dim % rank for dim in call.dims]
    elif rank > 1:
        i, j = (call.given.get(key, default) % rank for key, default in (("dim0", 0), ("dim1", 1)))
        order[i], order[j] = j, i
    own = place.layout
    kept = [dim for dim in order if dim != own.axis or own.shape[dim] > 1]
    axes = tuple(own.axis_of(dim) if dim != own.axis else _joined_axis(own) for dim in kept)
    if axes == tuple(range(1, len(axes) + 1)):
        return place.name
    return call.add(layers.Permute((0, *axes)), place.name) if own.axis is not None else call.op(
        "transpose", place.name, axes=axes)  # fmt: skip


def _joined_axis(layout: TensorLayout) -> int:
    """Return the layers' number of the axis that has samples and others."""
    assert layout.axis is not None
    return layout.axis + 1


def expand(call: FunctionCall) -> str:
    """Return a tensor that is repeated along axes of length 1."""
    place = call.place(call.self)
    return widened(call, call.fitted(place, call.layout, len(call.layout.shape)))


def widened(call: FunctionCall, name: str) -> str:
    """Return a node in the output's features, to which its own are broadcast."""
    shape = call.layout.features
    return name if call.shape(name) == shape else call.op("broadcast_to", name, shape=shape)


def copied(call: FunctionCall) -> str:
    """Return a tensor in the shape of another, whose place it takes."""
    if call.dtype("src").is_floating_point and not call.dtype("self").is_floating_point:
        raise UnsupportedError("expected integers in the place of integers, got floats")
    call.given["self"] = call.src
    return expand(call)


def select(call: FunctionCall) -> str:
    """Return one entry of an axis."""
    place = call.place(call.self)
    return call.add(layers.Select(place.layout.axis_of(call.dim), call.index), place.name)


def part(call: FunctionCall, value: Any, dim: int, cut: slice) -> str:
    """Return a part of an axis."""
    place = call.place(value)
    size = place.layout.shape[dim]
    start, stop, step = cut.indices(size)
    if (start, stop, step) == (0, size, 1):
        return place.name
    if dim % len(place.layout.shape) == place.layout.axis:
        raise UnsupportedError(f"{MIXED}, got some of the samples")
    return call.add(layers.Slice(place.layout.axis_of(dim), start, stop, step), place.name)


def cut(call: FunctionCall) -> str:
    """Return a slice."""
    return part(call, call.self, call.dim, slice(call.given.get("start"), call.given.get("end"), call.given["step"]))


def pieces(call: FunctionCall) -> list[str]:
    """Return the parts of an axis, side by side; of the samples' one, which is then all of it."""
    place, dim = call.place(call.self), call.given["dim"]
    shapes = [value.shape for value in call.node.meta["val"]]
    ends, end = [], 0
    for shape in shapes:
        ends.append(end)
        end += int(shape[dim])
    return [part(call, place, dim, slice(start, start + int(shape[dim])))
            for start, shape in zip(ends, shapes, strict=True)]  # fmt: skip


def unbind(call: FunctionCall) -> list[str]:
    """Return the entries of an axis."""
    place = call.place(call.self)
    axis = place.layout.axis_of(call.given["dim"])
    count = place.layout.shape[call.given["dim"]]
    return [call.add(layers.Select(axis, i), place.name) for i in range(count)]


def joined(call: FunctionCall) -> str:
    """Return tensors side by side along an axis, or along a new one."""
    dim = call.given["dim"]
    stacks = call.assembly.function(call.node) == "stack"
    out = call.layout
    axis = out.axis_of(dim)
    places = [call.place(value) for value in call.tensors if not _empty(value)]
    if stacks:
        at = dim % len(out.shape)
        inner = TensorLayout(out.shape[:at] + out.shape[at + 1 :],
                       None if out.axis is None else out.axis - (at < out.axis), out.outer)  # fmt: skip
        names = [call.fitted(place, inner, len(inner.shape)) for place in places]
        return call.op("stack", *names, axis=axis)
    names = [call.fitted(place, out, len(out.shape)) for place in places]
    if len(names) == 1:
        return names[0]
    if all(place.layout.axis is not None for place in places):
        return call.add(layers.Concat(axis), *names)
    return call.op("concatenate", *names, axis=axis)


def _empty(value: Any) -> bool:
    return isinstance(value, Fixed) and value.value.numel() == 0


def scattered(call: FunctionCall) -> str:
    """Return a tensor with another in the place of a part of it: what is before, that, and what is after."""
    whole, dim = call.layout, call.given["dim"] % len(call.layout.shape)
    if dim == whole.axis:
        start, stop = call.given.get("start"), call.given.get("end")
        if "index" not in call.given and start in (None, 0) and (stop is None or stop > 2**62):
            return call.place(call.src).name
        raise UnsupportedError(f"{MIXED}, got some of the samples")
    size = whole.shape[dim]
    single = "index" in call.given
    chosen = slice(call.index % size, call.index % size + 1) if single else slice(
        call.given.get("start"), call.given.get("end"), call.given["step"])  # fmt: skip
    start, stop, step = chosen.indices(size)
    if step != 1:
        raise UnsupportedError("step: expected 1")
    src = call.place(call.src)
    own = src.layout
    if single:
        axis = None if own.axis is None else own.axis + (dim <= own.axis)
        own = TensorLayout((*own.shape[:dim], 1, *own.shape[dim:]), axis, own.outer)
        src = Place(call.reshape(src.name, own.features), own)
    names, around = [], call.place(call.self)
    for low, high, value in ((0, start, around), (start, stop, src), (stop, size, around)):
        if high > low:
            shape = (*whole.shape[:dim], high - low, *whole.shape[dim + 1 :])
            to = TensorLayout(shape, whole.axis, whole.outer)
            if value is around:
                cropped = (*around.layout.shape[:dim], high - low, *around.layout.shape[dim + 1 :])
                value = Place(part(call, around, dim, slice(low, high)),
                              TensorLayout(cropped, around.layout.axis, around.layout.outer))  # fmt: skip
            name = call.fitted(value, to, len(shape))
            names.append(name if call.shape(name) == to.features else call.op("broadcast_to", name, shape=to.features))
    return call.op("concatenate", *names, axis=whole.axis_of(dim)) if len(names) > 1 else names[0]


def pad(call: FunctionCall) -> str:
    """Return a tensor with numbers around it."""
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[
        call.given["mode"]]  # fmt: skip
    place, widths = call.place(call.self), list(call.pad)
    if min(widths) < 0:
        if max(widths) > 0:
            raise UnsupportedError(f"pad: expected widths of one sign, got {widths}")
        return move(call, call.self)
    own = place.layout
    pairs = [(0, 0)] * len(own.shape)
    for i in range(len(widths) // 2):
        pairs[-1 - i] = widths[2 * i], widths[2 * i + 1]
    if own.axis is not None and own.shape[own.axis] == 1:
        if any(pairs[own.axis]):
            raise UnsupportedError(f"{MIXED}, got more samples")
        del pairs[own.axis]
    value = {"value": float(call.given.get("value") or 0)} if mode == "constant" else {}
    return call.op("pad", place.name, widths=pairs, mode=mode, **value)


def diagonal_matrix(call: FunctionCall) -> str:
    """Return the lower or upper triangle."""
    own = call.place(call.self)
    return call.op(call.assembly.function(call.node), own.name, k=call.given["diagonal"])


def along(axes: int) -> Callable[[FunctionCall], str]:
    """Return a linear map of each of the last axes, by its matrix: torch's results for the unit vectors."""

    def mapped(call: FunctionCall) -> str:
        place = call.place(call.self)
        name = place.name
        for i in range(1, axes + 1):
            size, after = place.layout.shape[-i], call.layout.shape[-i]
            wide = 1 if i == 1 else 2  # of an image of one column torch's antialias takes the wrong kernel
            unit = torch.eye(size, dtype=call.assembly.dtype).reshape(size, 1, *[size if j == i else 1
                                                                      for j in range(axes, 0, -1)])  # fmt: skip
            unit = unit.repeat_interleave(wide, -1)
            found = call.assembly.again(call.node, unit, size, _one_axis(call, i, axes, wide))
            found = found.reshape(size, after, wide)[..., 0]
            name = call.op("along", name, matrix=found.T.numpy().copy(), axis=-i)
        return name

    return mapped


def _one_axis(call: FunctionCall, i: int, axes: int, wide: int) -> dict[str, Any]:
    """Return the arguments of an interpolation of one axis."""
    after = call.layout.shape
    changed: dict[str, Any] = {}
    keep = [j == i for j in range(axes, 0, -1)]
    if call.given.get("output_size") is not None:
        changed["output_size"] = [after[-j] if j == i else wide if j == 1 else 1 for j in range(axes, 0, -1)]
    if call.given.get("scale_factors") is not None:
        changed["scale_factors"] = [f if k else 1.0 for f, k in zip(call.scale_factors, keep, strict=True)]
    for key, k in zip(("scales_d", "scales_h", "scales_w")[3 - axes :], keep, strict=True):
        if call.given.get(key) is not None and not k:
            changed[key] = None
    return changed


MOVES: dict[str, Callable[[FunctionCall], Any]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"), reshape),
    **dict.fromkeys(("clone", "contiguous", "alias", "lift_fresh_copy", "lift_fresh"), same),
    **dict.fromkeys(("_to_copy", "to", "type_as"), cast), "copy": copied, "detach": detach,
    "zero": lambda c: c.op("affine", c.place(c.self).name, factor=0),
    "fill": lambda c: c.op("affine", c.place(c.self).name, factor=0, shift=finite(c.value)),
    **dict.fromkeys(("permute", "transpose", "t", "numpy_T"), permute), "expand": expand, "expand_as": expand,
    "select": select,
    "slice": cut, "unbind": unbind,
    **dict.fromkeys(
        ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "tensor_split"), pieces
    ),
    **dict.fromkeys(("cat", "stack"), joined),
    **dict.fromkeys(("slice_scatter", "select_scatter"), scattered), **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    **dict.fromkeys(("tril", "triu"), diagonal_matrix),
    **dict.fromkeys(
        ("flip", "roll", "repeat", "unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "diagonal",
         "repeat_interleave", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "rot90",
         "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
         "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "tile", "native_channel_shuffle"),
        lambda call: move(call, call.given.get("self", call.given.get("input"))),
    ),
    **{f"upsample_{how}": along(axes) for how, axes in (("linear1d", 1), ("bilinear2d", 2), ("bicubic2d", 2),
                                                        ("trilinear3d", 3))},
    "_upsample_bilinear2d_aa": along(2), "_upsample_bicubic2d_aa": along(2),
}  # fmt: skip
"""torch's functions by name: each gives the name of a node, or several for several outputs."""
