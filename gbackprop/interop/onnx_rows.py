"""The table of ONNX's operators: what each adds to a network, from its attributes and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer
from gbackprop.interop.onnx_call import OnnxCall
from gbackprop.interop.onnx_moves import MOVES
from gbackprop.interop.onnx_values import BATCH, Known, OnnxTensor, aligned, features
from gbackprop.interop.onnx_windows import WINDOWS
from gbackprop.layers import Operation

Rule = Callable[[OnnxCall], Any]

# ------------------------------------------------------------------------------------- functions of each number


def _curve(make: Callable[[OnnxCall], Layer]) -> Rule:
    return lambda call: call.same(make(call), call.x)


def _row(name: str) -> Rule:
    return lambda call: call.row(name, *call.inputs)


def _several(name: str) -> Rule:
    def rule(call: OnnxCall) -> OnnxTensor:
        first, *rest = call.inputs
        for value in rest:
            first = call.row(name, first, value)
        return call.tensor(first)

    return rule


def _arithmetic(name: str, right: Callable[[float], Any], left: Callable[[float], Any] | None = None) -> Rule:
    """Return the rule of a row of two inputs; of one and a number, that of factor and shift."""

    def rule(call: OnnxCall) -> OnnxTensor:
        for i, options in ((1, right), (0, left)):
            number = call.number(i)
            if number is not None and options:
                return call.row("affine", call.inputs[1 - i], **options(number))
        return call.row(name, *call.inputs)

    return rule


def _quotient(call: OnnxCall) -> OnnxTensor:
    above, below = call.number(0), call.number(1)
    if below:
        return call.row("divided_by", call.inputs[0], number=below)
    return call.row("reciprocal", call.inputs[1], numerator=above) if above else call.row("divide", *call.inputs)


def _power(call: OnnxCall) -> OnnxTensor:
    number, base, exponents = call.number(1), call.get(0), call.get(1)
    if number is not None:
        return call.row("power", base, exponent=number)
    if not isinstance(exponents, Known) or isinstance(base, Known):
        return call.row("pow", base, exponents)
    axes, (own, shape) = aligned([base.axes, exponents.axes])
    wide = call.put(Operation("broadcast_to", shape=features(axes)), call.tensor(base, own), axes=axes)
    return call.same(Operation("power", exponent=exponents.value.reshape(shape).astype("float64")), wide)


def _hard_sigmoid(call: OnnxCall) -> OnnxTensor:
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    if (np.float32(alpha), beta) == (np.float32(1 / 6), 0.5):
        return call.same(layers.Hardsigmoid(), call.x)
    return call.row("clip", call.row("affine", call.x, factor=alpha, shift=beta), least=0, most=1)


def _selu(call: OnnxCall) -> Layer:
    usual = np.array([1.6732632423543772, 1.0507009873554805], "float32")
    given = np.array([call.attributes.get(name, usual[i]) for i, name in enumerate(("alpha", "gamma"))], "float32")
    if (given != usual).any():
        raise UnsupportedError(f"expected the usual alpha and gamma, got {given.tolist()}")
    return layers.SELU()


def _clip(call: OnnxCall) -> OnnxTensor:
    given = {key: call.given(name, i) for key, name, i in (("least", "min", 1), ("most", "max", 2))}
    bounds = {key: value[0] for key, value in given.items() if value}
    return call.row("clip", call.x, **bounds) if bounds else call.x


def _prelu(call: OnnxCall) -> OnnxTensor:
    positive = call.same(layers.ReLU(), call.x)
    return call.row("add", positive, call.row("multiply", call.get(1), call.row("subtract", call.x, positive)))


def _swish(call: OnnxCall) -> OnnxTensor:
    scaled = call.row("affine", call.x, factor=call.attribute("alpha", 1.0))
    return call.row("multiply", call.x, call.same(layers.Sigmoid(), scaled))


def _cast(call: OnnxCall) -> OnnxTensor | Known:
    to, value = call.attribute("to"), call.get(0)
    if isinstance(value, Known):  # of CastLike: its other input gives nothing but its dtype
        return Known(call.node.output[0], tuple(each.astype(call.draft.dtype) for each in value.arrays))
    name = call.draft.dtype if to is None else onnx.helper.tensor_dtype_to_np_dtype(to).name
    if name != call.draft.dtype:
        raise UnsupportedError(f"expected a cast to {call.draft.dtype}, in which the network computes, got {name}")
    return call.x


def _dropout(call: OnnxCall) -> OnnxTensor:
    if call.version >= 12 and call.known(2, False):
        raise UnsupportedError("expected evaluation mode, got training_mode=True")
    p = float(call.known(1, 0.5) if call.version >= 12 else call.attribute("ratio", 0.5))
    return call.same(layers.Dropout(p), call.x) if p else call.x


# -------------------------------------------------------------------------------------------------------- products


def _product(call: OnnxCall, a: OnnxTensor, b: OnnxTensor) -> OnnxTensor:
    rows, last = a.axes[:-1], b.axes[-1:] if len(b.axes) > 1 else ()
    if isinstance(a.axes[-1], tuple) or isinstance(b.axes[-2:][0], tuple):
        raise UnsupportedError("it sums over the samples, each of which the network computes alone")
    if (rows and isinstance(rows[-1], tuple) and len(b.axes) <= 2) or (last == (BATCH,) and len(a.axes) <= 2):
        return call.put(Operation("matmul"), a, b, axes=(*rows, *last))  # rows or columns are samples
    if any(isinstance(axis, tuple) for axis in (*rows[-1:], *last)):
        raise UnsupportedError(f"expected the samples along the same axis of both inputs, got {a.axes} and {b.axes}")
    lead, shapes = aligned([a.axes[:-2], b.axes[:-2]])
    a, b = [call.tensor(x, (*shape * (len(x.axes) > 1), *features(x.axes[-2:])))
            for x, shape in zip((a, b), shapes, strict=True)]  # fmt: skip
    return call.put(Operation("matmul"), a, b, axes=(*lead, *rows[-1:], *last))


def _gemm(call: OnnxCall) -> OnnxTensor:
    x, weight, y, bias = call.x, call.tensor(call.get(1)), None, call.get(2)
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if call.attribute("transA", 0):
        x = call.transposed(x, (1, 0))
    if call.attribute("transB", 0):
        if alpha == beta == 1 and x.axes[0] == BATCH and len(weight.shape) == 2:
            outs, ins = weight.shape
            y, bias = call.weighted(lambda own: layers.Linear(ins, outs, own), x)
        weight = weight if y else call.transposed(weight, (1, 0))
    y = y or _product(call, x, weight)
    if alpha != 1:
        y = call.row("affine", y, factor=alpha)
    if bias is not None and beta != 1:
        bias = call.row("affine", call.tensor(bias), factor=beta)
    return y if bias is None else call.row("add", y, bias)


def _einsum(call: OnnxCall) -> OnnxTensor:
    text, given = call.attribute("equation").replace(" ", ""), list(map(call.tensor, call.inputs))
    terms, out = text.partition("->")[0].split(","), text.partition("->")[2]
    pairs = [pair for term, x in zip(terms, given, strict=True) for pair in zip(term, x.axes, strict=False)]
    sizes = {letter: axis for letter, axis in pairs if isinstance(axis, int)}
    batch = {letter for letter, axis in pairs if isinstance(axis, tuple)}
    if "." in text or len(given) != 2 or len(batch) != 1 or not batch <= set(out) or batch & set(sizes):
        raise UnsupportedError(f"expected two inputs, all axes named, and the samples along one of them, got {text!r}")
    (letter,) = batch
    axes = tuple(BATCH if each == letter else sizes[each] for each in out)
    return call.put(Operation("einsum", subscripts=text.replace(letter, "")), *given, axes=axes)


# ------------------------------------------------------------------------------------------------ along some axes


def _reduction(name: str, before: str = "", after: str = "") -> Rule:
    """Return the rule of a reduction, of a curve of the input, followed by one."""

    def rule(call: OnnxCall) -> OnnxTensor:
        x = call.row(before, call.x) if before else call.x
        axes, keep = call.given("axes", 1, []), bool(call.attribute("keepdims", 1))
        if axes or not call.attribute("noop_with_empty_axes", 0):
            gone = {axis % len(x.axes) for axis in axes} or set(range(len(x.axes)))
            places = tuple(x.feature(axis) for axis in sorted(gone))
            left = tuple(1 if i in gone else axis for i, axis in enumerate(x.axes) if keep or i not in gone)
            x = call.put(Operation(name, axis=places, keepdims=keep), x, axes=left)
        return call.row(after, x) if after else x

    return rule


def _softmax(kind: Any) -> Rule:
    def rule(call: OnnxCall) -> OnnxTensor:
        axis, last = call.attribute("axis", -1 if call.version >= 13 else 1), len(call.x.axes) - 1
        if call.version < 13 and axis not in (-1, last):
            raise UnsupportedError(f"expected the last axis before opset 13, where it is over all axes from {axis} on")
        return call.same(kind(call.x.feature(axis)), call.x)

    return rule


def _cumsum(call: OnnxCall) -> OnnxTensor:
    if call.attribute("exclusive", 0) or call.attribute("reverse", 0):
        raise UnsupportedError("expected exclusive=0 and reverse=0")
    return call.row("cumsum", call.x, axis=call.x.feature(int(call.known(1).item())))


TABLE: dict[str, Rule] = {
    **WINDOWS, **MOVES,
    **{name: _row(row) for name, row in {
        "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Sin": "sin", "Cos": "cos",
        "Tan": "tan", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh", "Erf": "erf", "Neg": "negative",
        "Abs": "absolute", "Sign": "sign", "And": "multiply", "Or": "maximum", "Where": "where",
        "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
        "Equal": "equal",
    }.items()},
    "Relu": _curve(lambda call: layers.ReLU()),
    "Tanh": _curve(lambda call: layers.Tanh()),
    "Sigmoid": _curve(lambda call: layers.Sigmoid()),
    "LeakyRelu": _curve(lambda call: layers.LeakyReLU(call.attribute("alpha", 0.01))),
    "Elu": _curve(lambda call: layers.ELU(call.attribute("alpha", 1.0))),
    "Celu": _curve(lambda call: layers.CELU(call.attribute("alpha", 1.0))),
    "Selu": _curve(_selu),
    "HardSwish": _curve(lambda call: layers.Hardswish()),
    "Softplus": _curve(lambda call: layers.Softplus(threshold=700.0)),
    "Softsign": _curve(lambda call: layers.Softsign()),
    "Mish": _curve(lambda call: layers.Mish()),
    "Gelu": _curve(lambda call: layers.GELU(call.attribute("approximate", "none"))),
    "ThresholdedRelu": _curve(lambda call: layers.Threshold(call.attribute("alpha", 1.0), 0.0)),
    "HardSigmoid": _hard_sigmoid, "Clip": _clip, "PRelu": _prelu, "Swish": _swish,
    "Cast": _cast, "CastLike": _cast, "Identity": lambda call: call.x, "Dropout": _dropout,
    "Add": _arithmetic("add", lambda c: {"shift": c}, lambda c: {"shift": c}),
    "Sub": _arithmetic("subtract", lambda c: {"shift": -c}, lambda c: {"factor": -1, "shift": c}),
    "Mul": _arithmetic("multiply", lambda c: {"factor": c}, lambda c: {"factor": c}),
    "Div": _quotient, "Pow": _power,
    "Sum": _several("add"), "Max": _several("maximum"), "Min": _several("minimum"),
    "Not": lambda call: call.row("affine", call.x, factor=-1, shift=1),
    "MatMul": lambda call: _product(call, *map(call.tensor, call.inputs)), "Gemm": _gemm, "Einsum": _einsum,
    "ReduceSum": _reduction("sum"), "ReduceMean": _reduction("mean"), "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"), "ReduceProd": _reduction("prod"), "ReduceL2": _reduction("sum", "square", "root"),
    "ReduceL1": _reduction("sum", before="absolute"), "ReduceSumSquare": _reduction("sum", before="square"),
    "ReduceLogSum": _reduction("sum", after="log"), "ReduceLogSumExp": _reduction("logsumexp"),
    "Softmax": _softmax(layers.Softmax), "LogSoftmax": _softmax(layers.LogSoftmax), "CumSum": _cumsum,
}  # fmt: skip
"""The rule of each operator, for all versions of it; it returns the output, or several of them."""
