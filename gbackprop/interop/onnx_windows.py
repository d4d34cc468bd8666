"""The operators of ONNX that know axes of channels: convolutions, pools, normalizations, padding, resizing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from operator import le
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv_transpose, op_max_pool, op_resize

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.onnx_call import OnnxCall
from gbackprop.interop.onnx_values import BATCH, Known, OnnxTensor
from gbackprop.layers import Operation


def _window(call: OnnxCall, kernel: Any, fill: float = 0) -> tuple[OnnxTensor, list[tuple[int, ...]]]:
    """Return the input, and sizes, strides, padding, dilations of windows.

    Padding that is not the same at both ends is added to the input.
    """
    x, dims = call.image(), len(kernel)
    if not 1 <= dims <= 3:
        raise UnsupportedError(f"expected one to three axes after the channels, got {dims}")
    strides, steps = [tuple(call.attribute(name, (1,) * dims)) for name in ("strides", "dilations")]
    pads, mode = call.attribute("pads", (0,) * 2 * dims), call.attribute("auto_pad", "NOTSET")
    before, after = tuple(pads[:dims]), tuple(pads[dims:])
    if mode.startswith("SAME"):
        sizes = zip(x.shape[1:], kernel, strides, steps, strict=True)
        whole = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in sizes]
        less, more = tuple(each // 2 for each in whole), tuple(each - each // 2 for each in whole)
        before, after = (less, more) if mode == "SAME_UPPER" else (more, less)
    if before != after:
        x = _framed(call, x, zip(before, after, strict=True), fill)
        before = (0,) * dims
    return x, [tuple(kernel), strides, before, steps]


def _framed(call: OnnxCall, x: OnnxTensor, widths: Any, fill: float = 0) -> OnnxTensor:
    return call.put(Operation("pad", widths=[(0, 0), *widths], value=fill), x)


def _scaled(call: OnnxCall, x: OnnxTensor, scale: Any, bias: Any) -> OnnxTensor:
    """Multiply, then add, numbers of channels."""
    wide = (x.shape[0], *(1,) * (len(x.shape) - 1))
    y = x if scale is None else call.row("multiply", x, call.tensor(scale, wide))
    return y if bias is None else call.row("add", y, call.tensor(bias, wide))


def _conv(call: OnnxCall) -> OnnxTensor:
    weight, groups = call.tensor(call.get(1)), call.attribute("group", 1)
    x, window = _window(call, weight.shape[2:])
    kind = getattr(layers, f"Conv{len(window[0])}d")
    y, bias = call.weighted(lambda own: kind(x.shape[0], weight.shape[0], *window, groups, own), x)
    return _scaled(call, y or _conv_by_windows(call, x, weight, window), None, bias)


def _conv_by_windows(call: OnnxCall, x: OnnxTensor, weight: OnnxTensor, window: list[tuple[int, ...]]) -> OnnxTensor:
    """Multiply the entries that the windows see with a weight that is no layer's own, but shared or computed."""
    (kernel, strides, around, steps), groups, dims = window, call.attribute("group", 1), len(window[0])
    x = _framed(call, x, [(pad, pad) for pad in around]) if any(around) else x
    spans = [(k - 1) * step + 1 for k, step in zip(kernel, steps, strict=True)]
    places = np.arange(prod(x.shape)).reshape(x.shape)
    views = np.lib.stride_tricks.sliding_window_view(places, spans, tuple(range(1, 1 + dims)))
    seen = views[(slice(None), *[slice(None, None, step) for step in (*strides, *steps)])]
    rows = seen.transpose(0, *range(1 + dims, 1 + 2 * dims), *range(1, 1 + dims))
    columns = call.put(Operation("gather", places=rows.reshape(groups, x.shape[0] // groups * prod(kernel), -1)), x)
    matrices = call.tensor(weight, (groups, weight.shape[0] // groups, columns.shape[1]))
    y = call.put(Operation("matmul"), matrices, columns)
    return call.reshaped(y, (BATCH, weight.shape[0], *rows.shape[1 + dims :]))


def _conv_transpose(call: OnnxCall) -> OnnxTensor:
    weight, groups = call.tensor(call.get(1)), call.attribute("group", 1)
    x, (kernel, strides, around, steps) = _window(call, weight.shape[2:])
    if "output_shape" in call.attributes or call.attribute("auto_pad", "NOTSET") != "NOTSET" or x != call.x:
        raise UnsupportedError("expected equal pads at both ends, and no auto_pad or output_shape")
    kind, outs = getattr(layers, f"ConvTranspose{len(kernel)}d"), weight.shape[1] * groups
    more = tuple(call.attribute("output_padding", (0,) * len(kernel)))
    sizes = x.shape[0], outs, kernel, strides, around, more, groups
    y, bias = call.weighted(lambda own: kind(*sizes, own, steps), x)
    if y is None:
        raise UnsupportedError("expected a weight of its own, with a name that ends with '.weight'")
    return _scaled(call, y, None, bias)


def _pooled(call: OnnxCall, layer: Layer, x: OnnxTensor, strides: tuple[int, ...]) -> OnnxTensor:
    """Pool; without windows that start in padding which was added after the input, as the layer takes it for input."""
    y, pads = call.put(layer, x), call.attribute("pads", (0,) * len(strides))
    starts = [-(-(n + pad) // s) for n, pad, s in zip(call.x.shape[1:], pads, strides, strict=False)]
    if all(map(le, y.shape[1:], starts)):
        return y
    return call.put(Operation("getitem", index=(slice(None), *map(slice, starts))), y)


def _max_pool(call: OnnxCall) -> OnnxTensor:
    x, window = _window(call, call.attribute("kernel_shape"), -float("inf"))
    layer = getattr(layers, f"MaxPool{len(window[0])}d")(*window, bool(call.attribute("ceil_mode", 0)))
    return _pooled(call, layer, x, window[1])


def _avg_pool(call: OnnxCall) -> OnnxTensor:
    x, window = _window(call, call.attribute("kernel_shape"))
    ceil, pad = bool(call.attribute("ceil_mode", 0)), bool(call.attribute("count_include_pad", 0))
    if set(window[3]) != {1} or (x != call.x and not pad):
        raise UnsupportedError("expected no dilations, and equal pads at both ends or count_include_pad=1")
    return _pooled(call, getattr(layers, f"AvgPool{len(window[0])}d")(*window[:3], ceil, pad), x, window[1])


def _global_pool(name: str) -> Callable[[OnnxCall], OnnxTensor]:
    return lambda call: call.put(Operation(name, axis=tuple(range(2, len(call.x.axes))), keepdims=True), call.image())


def _batch_norm(call: OnnxCall) -> OnnxTensor:
    x, scale, bias = call.image(), *call.inputs[1:3]
    if call.attribute("training_mode", 0) or any(call.node.output[1:]):
        raise UnsupportedError("expected evaluation mode: in training mode the samples meet")
    eps, (mean, var) = call.attribute("epsilon", 1e-5), (call.known(i, merged=True) for i in (3, 4))
    path = call.path(scale, "weight")
    if path is not None and call.path(bias, "bias") == path:
        call.draft.buffers |= {f"{path}.running_mean": mean, f"{path}.running_var": var}
        new = round(1 - call.attributes.get("momentum", 0.9), 7)  # the batch's weight; ONNX's is that of the statistics
        return call.put(getattr(layers, f"BatchNorm{max(len(x.shape) - 1, 1)}d")(x.shape[0], eps, new), x, name=path)
    call.draft.fixed_statistics = True
    fixed = {"centre": -mean, "factor": 1 / np.sqrt(var + eps)}
    centre, factor = [Known(f"{call.node.output[0]}_{name}", (array,)) for name, array in fixed.items()]
    return _scaled(call, _scaled(call, _scaled(call, x, None, centre), factor, None), scale, bias)


class BatchNormalization(OpRun):
    """Evaluation mode, for the comparison: onnx.reference mixes the batch's statistics in for opsets 9 to 13."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: float, **options: Any) -> tuple[Any]:
        scale, bias, mean, var = (each.reshape(-1, *(1,) * (x.ndim - 2)) for each in (scale, bias, mean, var))
        return ((scale * (x - mean) / np.sqrt(var + epsilon) + bias).astype(x.dtype),)


class MaxPool(op_max_pool.MaxPool):
    """By the way for all strides, for the comparison: onnx.reference's own for strides of 1 mixes up pads of axes.

    SAME_LOWER, for which it has other sizes, is SAME_UPPER of the input turned round.
    """

    op_domain = ""

    def _run(self, x: Any, auto_pad: Any = None, **options: Any) -> Any:
        if auto_pad != "SAME_LOWER":
            return self._max_pool(x, auto_pad=auto_pad, **options)
        axes = tuple(range(2, x.ndim))
        return (np.flip(self._max_pool(np.flip(x, axes), auto_pad="SAME_UPPER", **options)[0], axes),)


class ConvTranspose(op_conv_transpose.ConvTranspose):
    """With groups, which onnx.reference cannot compute, for the comparison."""

    op_domain = ""

    def _run(self, x: Any, weight: Any, bias: Any = None, group: int = 1, **options: Any) -> tuple[Any]:
        biases = [None] * group if bias is None else np.split(bias, group)
        parts = map(partial(super()._run, group=1, **options), np.split(x, group, 1), np.split(weight, group), biases)
        return (np.concatenate([each[0] for each in parts], 1),)


class Resize(op_resize.Resize):
    """With axes counted from the end, which onnx.reference cannot compute, for the comparison."""

    op_domain = ""

    def _run(self, x: Any, *sizes: Any, axes: Any = None, **options: Any) -> tuple[Any]:
        return super()._run(x, *sizes, axes=axes and [axis % x.ndim for axis in axes], **options)


COMPARED = [BatchNormalization, ConvTranspose, MaxPool, Resize]
"""Operators that are compared with what is here, and not with onnx.reference."""


def _layer_norm(call: OnnxCall) -> OnnxTensor:
    x, scale, bias, eps = call.x, call.get(1), call.get(2), call.attribute("epsilon", 1e-5)
    axis = call.attribute("axis", -1) % len(x.axes)
    shape = tuple(x.shape[x.feature(each) - 1] for each in range(axis, len(x.axes)))
    if call.node.op_type == "RMSNormalization":
        return call.row("multiply", call.same(layers.RMSNorm(shape, eps, False), x), scale)
    path = call.path(scale, "weight")
    if path is not None and (bias is None or call.path(bias, "bias") == path) and scale.axes == shape:
        return call.put(layers.LayerNorm(shape, eps, bias=bias is not None), x, axes=x.axes, name=path)
    y = call.row("multiply", call.same(layers.LayerNorm(shape, eps, False), x), scale)
    return y if bias is None else call.row("add", y, bias)


def _group_norm(call: OnnxCall) -> OnnxTensor:
    x, (scale, bias), eps = call.image(), call.inputs[1:3], call.attribute("epsilon", 1e-5)
    groups = call.attribute("num_groups", x.shape[0])  # InstanceNormalization has one channel in each
    path = call.path(scale, "weight")
    if path is not None and call.path(bias, "bias") == path:
        return call.put(layers.GroupNorm(groups, x.shape[0], eps), x, name=path)
    return _scaled(call, call.put(layers.GroupNorm(groups, x.shape[0], eps, False), x), scale, bias)


def _pad(call: OnnxCall) -> OnnxTensor:
    x, pads, value = call.x, call.given("pads", 1), call.given("value", 2, [0.0])[0]
    axes = call.given("axes", 3, range(len(x.axes)))
    widths, sizes = [(0, 0)] * len(x.shape), list(x.axes)
    for axis, *around in zip(axes, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        if any(around):
            widths[x.feature(axis) - 1] = tuple(around)
            sizes[axis] += sum(around)
    row = Operation("pad", widths=widths, mode=call.attribute("mode", "constant"), value=value)
    return call.put(row, x, axes=tuple(sizes)) if np.any(widths) else x


def _resize(call: OnnxCall) -> OnnxTensor:
    """Map each axis by the matrix that resizes unit vectors: it is linear, and along one axis after another."""
    x, sizes = call.x, call.targets(3)[0] if call.get(3) else []
    crops = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crops or call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch" or call.version < 11:
        raise UnsupportedError("expected opset 11 or newer, no crop, and the policy 'stretch'")
    one = onnx.NodeProto(op_type="Resize", input=["x", "", "scales", "sizes"], output=["y"])
    one.attribute.extend(each for each in call.node.attribute if each.name not in ("axes", "keep_aspect_ratio_policy"))
    evaluator, coefficient = ReferenceEvaluator(one, opsets={"": call.version}), call.attribute("cubic_coeff_a", -0.75)
    if call.attribute("mode") == "cubic":  # the reference's number is in float32, and its weights are as rough
        evaluator.rt_nodes_[0].cubic_coeff_a, call.draft.rounded = coefficient, True
    for axis, target in zip(call.attribute("axes", range(len(x.axes))), sizes or call.known(2).tolist(), strict=True):
        if target != (x.sizes(call.draft.sizes[0])[axis] if sizes else 1):
            axis, place = axis % len(x.axes), x.feature(axis)
            wide = x.axes[axis]
            to = {"scales": None, "sizes": np.array([wide, target])} if sizes else {
                "scales": np.array([1, target], "float32"), "sizes": None}  # fmt: skip
            matrix = np.ascontiguousarray(evaluator.run(None, {"x": np.eye(wide, dtype=call.draft.dtype), **to})[0].T)
            after = (*x.axes[:axis], len(matrix), *x.axes[axis + 1 :])
            x = call.put(Operation("along", matrix=matrix, axis=place), x, axes=after)
    return x


WINDOWS: dict[str, Callable[[OnnxCall], Any]] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _max_pool, "AveragePool": _avg_pool,
    "GlobalAveragePool": _global_pool("mean"), "GlobalMaxPool": _global_pool("max"),
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
    "InstanceNormalization": _group_norm, "GroupNormalization": _group_norm, "Pad": _pad, "Resize": _resize,
}  # fmt: skip
"""The rules of these operators."""
