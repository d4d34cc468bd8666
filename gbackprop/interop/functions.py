"""torch's functions that are elementwise, or sums and the like over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.arguments import constructed
from gbackprop.interop.calls import FunctionCall, finite, is_number
from gbackprop.interop.conditions import CONDITIONS, logical
from gbackprop.interop.integers import COMPUTED, exactly, is_integer
from gbackprop.interop.layouts import Fixed, Place, TensorLayout
from gbackprop.interop.moves import widened

ACTIVATIONS: dict[str, type[Layer]] = {
    "relu": layers.ReLU, "relu6": layers.ReLU6, "leaky_relu": layers.LeakyReLU, "selu": layers.SELU,
    "celu": layers.CELU, "hardtanh": layers.Hardtanh, "hardsigmoid": layers.Hardsigmoid,
    "hardswish": layers.Hardswish, "hardshrink": layers.Hardshrink, "softshrink": layers.Softshrink,
    "sigmoid": layers.Sigmoid, "log_sigmoid": layers.LogSigmoid, "tanh": layers.Tanh, "softplus": layers.Softplus,
    "silu": layers.SiLU, "mish": layers.Mish, "gelu": layers.GELU, "elu": layers.ELU, "threshold": layers.Threshold,
}  # fmt: skip
"""Elementwise functions, by torch's names."""

CURVES = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "sin": "sin", "reciprocal": "reciprocal", "cos": "cos", "tan": "tan", "atan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "erf": "erf", "special_erf": "erf", "abs": "absolute", "sign": "sign",
    "square": "square",
}  # fmt: skip
"""The rows of elementwise functions, by torch's names."""

ARGUMENTS = {"lambd": "lambd", "lambda": "lambd"}


def activation(call: FunctionCall) -> str:
    """Return the layer of an elementwise function."""
    kind = ACTIVATIONS[call.assembly.function(call.node)]
    given = {ARGUMENTS.get(name, name): (value, value) for name, value in call.given.items() if name != "self"}
    if given.pop("scale", (1, 1))[0] != 1 or given.pop("input_scale", (1, 1))[0] != 1:
        raise UnsupportedError("scale: expected 1")
    return call.add(constructed(kind, given), call.place(call.self).name)


def prelu(call: FunctionCall) -> str:
    """Return x where x > 0, else a x, with one a or one for each entry of the axis after the first."""
    x, a, layout = call.place(call.self).name, call.place(call.weight).name, call.layout
    if len(layout.shape) < 2:
        a = call.reshape(a, ())
    elif call.shape(a) not in ((), (1,)):
        a = call.reshape(a, (-1, *(1,) * (len(layout.features) - layout.axis_of(1))))
    positive = call.add(layers.ReLU(), x)
    return call.op("add", positive, call.op("multiply", a, call.op("subtract", x, positive)))


def curve(call: FunctionCall) -> str:
    """Return the row of an elementwise function."""
    return call.op(CURVES[call.assembly.function(call.node)], call.place(call.self).name)


def softmax(call: FunctionCall) -> str:
    """Return a softmax, or its logarithm."""
    place = call.place(call.self)
    call.assembly.check_dtype(call.given.get("dtype"))
    kind = layers.LogSoftmax if "log" in call.assembly.function(call.node) else layers.Softmax
    return call.add(kind(place.layout.axis_of(call.dim) - len(place.layout.features) - 1), place.name)


# --------------------------------------------------------------------------------------------------------- arithmetic


def add(call: FunctionCall) -> str:
    """Return a + alpha b; of conditions that is "or"."""
    if call.dtype("self") == call.dtype("other") == torch.bool:
        return logical("maximum", "self", "other")(call)
    return call.plus(call.self, _times(call, call.other, call.given["alpha"]))


def sub(call: FunctionCall) -> str:
    """Return a − alpha b."""
    varies = all(isinstance(value, Place) and value.layout.axis is not None for value in (call.self, call.other))
    if not varies and not is_number(call.other) and not is_number(call.self) and call.given["alpha"] == 1:
        return call.op("subtract", *call.aligned(call.self, call.other))
    return call.plus(call.self, _times(call, call.other, -call.given["alpha"]))


def _times(call: FunctionCall, value: Any, factor: float) -> Any:
    if is_number(value):
        return finite(value) * factor
    place = call.place(value)
    return Place(call.scaled(place.name, factor), place.layout)


def mul(call: FunctionCall) -> str:
    """Return a product, entry by entry."""
    return call.times(call.self, call.other)


def div(call: FunctionCall) -> str:
    """Return a quotient."""
    if call.given.get("rounding_mode") is not None:
        raise UnsupportedError(f"rounding_mode={call.rounding_mode!r} is not supported: it has no derivative")
    if is_number(call.other):
        if finite(call.other) == 0:
            raise UnsupportedError("expected a number other than 0 as the divisor")
        return call.op("divided_by", call.place(call.self).name, number=finite(call.other))
    if is_number(call.self):
        return call.op("reciprocal", call.place(call.other).name, numerator=finite(call.self))
    return call.op("divide", *call.aligned(call.self, call.other))


def power(call: FunctionCall) -> str:
    """Return a power, of which the base or the exponent may be a number; of integers to negative ones torch has 0."""
    if is_integer(call.node.meta["val"].dtype):
        exponents = getattr(call.exponent, "value", call.exponent)
        if isinstance(call.exponent, Place) or bool((torch.as_tensor(exponents) < 0).any()):
            raise UnsupportedError("expected fixed integers from 0 on as the exponents of integers, got others")
    if is_number(call.self):
        if finite(call.self) <= 0:
            raise UnsupportedError(f"expected a base above 0, got {finite(call.self)}")
        return call.op("raised", call.place(call.exponent).name, base=finite(call.self))
    base = call.place(call.self).name
    if not is_number(call.exponent):
        names = call.aligned(call.self, call.exponent)
        if not isinstance(call.exponent, Fixed):
            return call.op("pow", *names)
        exponents = call.exponent.value.double().numpy().reshape(call.shape(names[1]))
        return call.op("power", widened(call, names[0]), exponent=exponents)
    known = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    number = finite(call.exponent)
    return call.op(known[number], base) if number in known else call.op("power", base, exponent=number)


def clamp(call: FunctionCall) -> str:
    """Return numbers within bounds."""
    low, high = call.given.get("min"), call.given.get("max")
    if all(value is None or is_number(value) for value in (low, high)):
        bounds = {"least": low if low is None else finite(low), "most": high if high is None else finite(high)}
        return call.op("clip", call.place(call.self).name, **bounds)
    name = call.place(call.self).name
    for beyond, bound in (("less", low), ("greater", high)):
        if bound is not None:
            inside, limit = call.aligned(Place(name, call.layout), bound)
            name = call.op("where", call.op(beyond, inside, limit), limit, inside)  # at the bound the number itself
    return name


def addcmul(call: FunctionCall) -> str:
    """Return a + value b c."""
    product = call.op("multiply", *call.aligned(call.tensor1, call.tensor2))
    return call.plus(call.self, Place(call.scaled(product, call.given["value"]), call.layout))


# --------------------------------------------------------------------------------------------------- sums over axes


def reduction(row: str, **more: Any) -> Callable[[FunctionCall], str]:
    """Return a reduction over axes."""

    def reduce(call: FunctionCall) -> str:
        call.assembly.check_dtype(call.given.get("dtype"))
        place = call.place(call.self)
        dims = call.given.get("dim")
        layout = place.layout
        axes = layout.axes_of([dims] if isinstance(dims, int) else dims)
        if row in ("var", "std"):
            given = call.given.get("correction")
            more["ddof"] = int(call.given.get("unbiased", True) if given is None else given)
            if given is not None and given != more["ddof"]:
                raise UnsupportedError(f"correction={given} is not supported, expected a whole number")
        if row in ("max", "min"):
            more["first"] = isinstance(dims, int)  # of amax it is a list
        return call.op(row, place.name, axis=axes, keepdims=bool(call.given.get("keepdim", False)), **more)

    return reduce


def truth(row: str) -> Callable[[FunctionCall], str]:
    """Return whether some, or all, are true; numbers other than 0 are."""

    def reduce(call: FunctionCall) -> str:
        if call.dtype("self") != torch.bool:
            place = call.place(call.self)
            call.given["self"] = Place(call.op("square", call.op("sign", place.name)), place.layout)
        return reduction(row)(call)

    return reduce


def var_mean(call: FunctionCall) -> list[str]:
    """Return a variance and a mean."""
    return [reduction("var")(call), reduction("mean")(call)]


def vector_norm(call: FunctionCall) -> str:
    """Return a 2-norm or a 1-norm."""
    order = call.given.get("ord", call.given.get("p", 2))
    row = {None: "norm", 2: "norm", 1: "sum"}.get(order)
    if row is None:
        raise UnsupportedError(f"ord={order} is not supported, expected 1 or 2")
    if row == "sum":
        place = call.place(call.self)
        call.given["self"] = Place(call.op("absolute", place.name), place.layout)
    return reduction(row)(call)


def norm_except(call: FunctionCall) -> str:
    """Return the 2-norm over all axes but one, or over all."""
    place = call.place(call.v)
    if call.given["pow"] != 2:
        raise UnsupportedError(f"pow={call.pow} is not supported, expected 2")
    dims = [i for i in range(len(place.layout.shape)) if i != call.given["dim"]]
    return call.op("norm", place.name, axis=place.layout.axes_of(dims), keepdims=len(dims) < len(place.layout.shape))


def arcsine(call: FunctionCall) -> str:
    """Return arcsin(x) = arctan(x / √(1 − x²))."""
    x = call.place(call.self).name
    cosine = call.op("affine", call.op("square", x), factor=-1, shift=1)
    return call.op("arctan", call.op("multiply", x, call.op("rsqrt", cosine)))


def arccosine(call: FunctionCall) -> str:
    """Return arccos(x) = π/2 − arcsin(x)."""
    return call.op("affine", arcsine(call), factor=-1, shift=pi / 2)


def likeness(call: FunctionCall) -> str:
    """Return the cosine similarity of tensors that are broadcast, along an axis that the output lacks."""
    to, places = call.layout, [call.place(call.x1), call.place(call.x2)]
    ndim = len(to.shape) + 1
    dim = call.dim % ndim
    axis = None if to.axis is None else to.axis + (dim <= to.axis)
    wide = TensorLayout((*to.shape[:dim], 1, *to.shape[dim:]), axis, to.outer)
    one, other = (call.fitted(place, wide, ndim) for place in places)
    return call.op("cosine_similarity", one, other, eps=call.eps, axis=wide.axis_of(dim))


FUNCTIONS: dict[str, Callable[[FunctionCall], Any]] = {
    **dict.fromkeys(ACTIVATIONS, activation), **dict.fromkeys(CURVES, curve),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax", "special_log_softmax"), softmax),
    **dict.fromkeys(("add", "add_"), add), **dict.fromkeys(("sub", "subtract"), sub),
    **dict.fromkeys(("mul", "multiply"), mul), **dict.fromkeys(("div", "divide", "true_divide"), div),
    "addcmul": addcmul, **dict.fromkeys(("prelu", "_prelu_kernel"), prelu),
    "rsub": lambda c: c.plus(c.other, _times(c, c.self, -c.given["alpha"])),
    "neg": lambda c: c.scaled(c.place(c.self).name, -1), "pow": power,
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max"), clamp),
    **CONDITIONS, "any": truth("max"), "all": truth("min"),
    "sum": reduction("sum"), "mean": reduction("mean"), "amax": reduction("max"), "amin": reduction("min"),
    "max": reduction("max"), "min": reduction("min"), "prod": reduction("prod"), "var": reduction("var"),
    "std": reduction("std"), "var_mean": var_mean, "logsumexp": reduction("logsumexp"),
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    "norm_except_dim": norm_except, "asin": arcsine, "acos": arccosine,
    "cumsum": lambda c: c.op("cumsum", c.place(c.self).name, axis=c.place(c.self).layout.axis_of(c.dim)),
    "glu": lambda c: c.op("glu", c.place(c.self).name, axis=c.place(c.self).layout.axis_of(c.dim)),
    "cosine_similarity": likeness,
}  # fmt: skip
FUNCTIONS |= {name: exactly(FUNCTIONS[name]) for name in COMPUTED & set(FUNCTIONS)}
"""torch's functions by name: each gives the name of a node, or several for several outputs."""
