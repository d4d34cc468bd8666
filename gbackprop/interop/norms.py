"""torch's normalizations and pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.arguments import constructed
from gbackprop.interop.calls import FunctionCall
from gbackprop.interop.layouts import Fixed


def channels(call: FunctionCall, name: str, value: Any) -> Any:
    """Return a parameter of channels in a shape that broadcasts to features (C, …)."""
    place = call.place(value)
    rest = (1,) * (len(call.shape(name)) - 1)
    return call.reshape(place.name, place.layout.shape + rest)


def norm(call: FunctionCall, kind: Callable[[bool], Layer], over: int | None = None) -> str:
    """Return a normalization by its own parameters, or without and then scaled and shifted by others."""
    given = {key: call.given.get(key) for key in ("weight", "bias")}
    x = call.place(call.input).name if over is not None else call.plain(call.input)
    parts = {key: value for key, value in given.items() if value is not None}
    if parts and (len(parts) == 2 or over is not None):
        path = call.assembly.owner(call, list(parts), lambda: kind(True))
        if path is not None:
            return call.assembly.owned(call.node, path, x)
    y = call.add(kind(False), x)
    for key, row in (("weight", "multiply"), ("bias", "add")):
        if key in parts:
            y = call.op(row, y, call.place(parts[key]).name if over is not None else channels(call, y, parts[key]))
    return y


def layer_norm(call: FunctionCall) -> str:
    """Return a LayerNorm."""
    size, bias = tuple(call.normalized_shape), call.given.get("bias") is not None
    return norm(call, lambda affine: layers.LayerNorm(size, call.eps, affine, bias), len(size))


def rms_norm(call: FunctionCall) -> str:
    """Return an RMSNorm."""
    size = tuple(call.normalized_shape)
    return norm(call, lambda affine: layers.RMSNorm(size, call.eps, affine), len(size))


def group_norm(call: FunctionCall) -> str:
    """Return a GroupNorm."""
    count = call.layout.features[0]
    return norm(call, lambda affine: layers.GroupNorm(call.num_groups, count, call.eps, affine))


def instance_norm(call: FunctionCall) -> str:
    """Return an InstanceNorm."""
    if not call.use_input_stats:
        raise UnsupportedError("use_input_stats: expected True")
    features = call.layout.features
    kind = getattr(layers, f"InstanceNorm{len(features) - 1}d")
    return norm(call, lambda affine: kind(features[0], call.eps, affine=affine))


def batch_norm(call: FunctionCall) -> list[str]:
    """Return a BatchNorm with its running statistics."""
    if call.given.get("training"):
        return standardized(call)
    x = call.plain(call.input)
    features = call.layout.features
    kind = getattr(layers, f"BatchNorm{max(1, len(features) - 1)}d")
    affine = call.given.get("weight") is not None
    keys = ["weight", "bias", "running_mean", "running_var"] if affine else ["running_mean", "running_var"]
    path = call.assembly.owner(call, keys, lambda: kind(features[0], call.eps, call.momentum, affine))
    if path is not None:
        return [call.assembly.owned(call.node, path, x)]
    mean, var = call.given["running_mean"], call.given["running_var"]
    if not isinstance(mean, Fixed) or not isinstance(var, Fixed):
        raise UnsupportedError("expected running statistics that are buffers")
    call.assembly.fixed_statistics = True
    factor = Fixed((var.value + call.eps).rsqrt(), var.layout, f"{var.name}_factor")
    y = call.op("subtract", x, channels(call, x, mean))
    y = call.op("multiply", y, channels(call, x, factor))
    for key, row in (("weight", "multiply"), ("bias", "add")):
        if call.given.get(key) is not None:
            y = call.op(row, y, channels(call, x, call.given[key]))
    return [y]


def standardized(call: FunctionCall) -> list[str]:
    """Return a parameter, standardized by a batch norm in training mode, over all axes but its second."""
    layout = call.place(call.input).layout
    shape, has_buffers = layout.shape, call.given.get("running_mean") is not None
    if layout.axis is not None or shape[:1] != (1,) or has_buffers:
        raise UnsupportedError("expected running statistics, or a parameter of shape (1, C, …), got a batch's own")
    kind = getattr(layers, f"InstanceNorm{len(shape) - 2}d")
    return [norm(call, lambda affine: kind(shape[1], call.eps, affine=affine))]


def pool(kind: str, defaults: Mapping[str, Any]) -> Callable[[FunctionCall], Any]:
    """Return a pool over the last axes, whatever axes are before the channels."""

    def pooled(call: FunctionCall) -> Any:
        given = {name: call.given.get(name, default) for name, default in defaults.items()}
        dims = int(call.assembly.function(call.node).partition("pool")[2][0])
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
        if given.get("stride") == ():
            given["stride"] = None
        layer = constructed(getattr(layers, f"{kind}{dims}d"), {key: (v, defaults[key]) for key, v in given.items()})
        x = call.plain(call.self)
        if len(call.shape(x)) > dims:
            return call.add(layer, x)
        single = call.add(layer, call.reshape(x, (1, *call.shape(x))))  # torch has the samples as channels
        return call.reshape(single, call.layout.features)

    return pooled


AVG = {"kernel_size": None, "stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True,
       "divisor_override": None}  # fmt: skip
MAX = {"kernel_size": None, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
ADAPTIVE = {"output_size": None}


NORMS: dict[str, Callable[[FunctionCall], Any]] = {
    "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm, "instance_norm": instance_norm,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), batch_norm),
    "_native_batch_norm_legit": standardized,
    **{f"avg_pool{d}d": pool("AvgPool", AVG if d > 1 else dict(list(AVG.items())[:5])) for d in (1, 2, 3)},
    **{f"max_pool{d}d": pool("MaxPool", MAX) for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": pool("MaxPool", MAX) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": pool("AdaptiveAvgPool", ADAPTIVE) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": pool("AdaptiveMaxPool", ADAPTIVE) for d in (1, 2, 3)},
}  # fmt: skip
"""torch's functions by name: each gives the name of a node, or several for several outputs."""
