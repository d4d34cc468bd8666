"""ONNX models that are written node by node: outputs as onnx.reference's, names, moved batches, and what is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from against_dense import compare_with_dense

import gbackprop as gb
from gbackprop import UnsupportedError, layers, losses
from gbackprop import quantities as q

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from gbackprop.interop import from_onnx  # noqa: E402

FLOATS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
RNG = np.random.default_rng(0)


def model(nodes, arrays=(), shape=("n", 3), opset=20, dtype="float64", **more):
    """A model of nodes (operator, inputs, outputs, attributes), from "x" to "y"."""
    made = [
        helper.make_node(op, names.split(), outs.split(), f"node {outs}", **given) for op, names, outs, given in nodes
    ]
    arrays = {
        name: np.asarray(a).astype(dtype) if np.asarray(a).dtype.kind == "f" else np.asarray(a)
        for name, a in dict(arrays).items()
    }
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", FLOATS.get(dtype, TensorProto.INT64), shape)],
        [helper.make_tensor_value_info("y", FLOATS.get(dtype, TensorProto.INT64), ["n", None])],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **more)


def taken(*args, example=None, constants=(), parameters=(), **more):
    return from_onnx(model(*args, **more).SerializeToString(), example, constants, parameters)


def a(*shape):
    return RNG.standard_normal(shape)


def one(op, names="x", shape=(3,), arrays=(), opset=20, **attributes):
    return [(op, names, "y", attributes)], dict(arrays), ("n", *shape), opset


IMAGE = (4, 7, 6)
W = {"w": a(6, 2, 3, 3), "b": a(6)}
CHANNELS = {"s": a(4), "b": a(4), "m": a(4), "v": a(4) ** 2 + 0.5}
CASES = {
    **{
        name: one(name)
        for name in [
            "Relu",
            "Tanh",
            "Sigmoid",
            "LeakyRelu",
            "Elu",
            "Celu",
            "Selu",
            "HardSigmoid",
            "HardSwish",
            "Softplus",
            "Softsign",
            "Mish",
            "Gelu",
            "ThresholdedRelu",
            "Identity",
            "Exp",
            "Sin",
            "Cos",
            "Atan",
            "Sinh",
            "Cosh",
            "Erf",
            "Neg",
            "Abs",
            "Sign",
            "Softmax",
            "LogSoftmax",
            "Flatten",
            "Dropout",
            "Transpose",
        ]
        if name != "Transpose"
    },
    "Swish": one("Swish", opset=24, alpha=1.5),
    "Gelu tanh": one("Gelu", approximate="tanh"),
    "Hardsigmoid of torch": one("HardSigmoid", alpha=1 / 6, beta=0.5),
    "PRelu": one("PRelu", "x s", arrays={"s": a(3)}),
    "Clip": one("Clip", "x low high", arrays={"low": np.array(-0.5), "high": np.array(0.3)}),
    "Clip of opset 7": one("Clip", opset=7, min=-0.5, max=0.25),
    "Clip from above": (
        [("Clip", "x  high".replace("  ", " low "), "y", {})],
        {"low": np.array(-9.0), "high": np.array(0.3)},
        ("n", 3),
        20,
    ),
    **{
        f"{op} {names}": one(
            op, names, arrays={"w": a(2, 3) if op in "Add" else a(3), "c": np.array(2.5)}, shape=(2, 3)
        )
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")
        for names in ("x w", "w x", "x c", "c x", "x x")
    },
    "Sum": one("Sum", "x w x", arrays={"w": a(3)}),
    "Pow": one("Pow", "x c", arrays={"c": np.array(3.0)}),
    "Reciprocal, Sqrt, Log": (
        [("Exp", "x", "e", {}), ("Reciprocal", "e", "r", {}), ("Sqrt", "r", "s", {}), ("Log", "s", "y", {})],
        {},
        ("n", 3),
        20,
    ),
    "fixed powers": (
        [("Constant", "", "e", {"value_floats": [2.0, 3.0, 1.0]}), ("Pow", "x e", "y", {})],
        {},
        ("n", 3),
        20,
    ),
    "powers": ([("Exp", "x", "e", {}), ("Pow", "e w", "y", {})], {"w": a(3)}, ("n", 3), 20),
    **{
        f"{op} and Where": (
            [(op, "x w", "c", {}), ("Not", "c", "d", {}), ("Where", "d x w", "y", {})],
            {"w": a(3)},
            ("n", 3),
            20,
        )
        for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
    },
    "And, Or, Cast": (
        [
            ("Greater", "x w", "c", {}),
            ("Less", "x v", "d", {}),
            ("And", "c d", "e", {}),
            ("Or", "e c", "f", {}),
            ("Cast", "f", "y", {"to": TensorProto.DOUBLE}),
        ],
        {"w": a(3), "v": a(3)},
        ("n", 3),
        20,
    ),
    "mask": one("Where", "m c x", arrays={"m": np.array([True, False, True]), "c": np.array(-np.inf)}),
    **{
        f"{op} {axes}": one(op, "x a", (4, 3), {"a": np.array(axes)}, keepdims=int(axes == [1]))
        for op in (
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceSumSquare",
        )
        for axes in ([1], [-1, -2])
    },
    "ReduceMean of opset 11": one("ReduceMean", shape=(4, 3), opset=11, axes=[2], keepdims=0),
    "ReduceSum of no axes": one("ReduceSum", noop_with_empty_axes=1),
    "ReduceL2 of no axes": one("ReduceL2", noop_with_empty_axes=1),
    "ReduceLogSum": ([("Exp", "x", "e", {}), ("ReduceLogSum", "e a", "y", {})], {"a": np.array([1])}, ("n", 3), 20),
    "CumSum": one("CumSum", "x i", (4, 3), {"i": np.array(1)}),
    "Softmax of opset 11": one("Softmax", opset=11, axis=1),
    "Softmax axis": one("Softmax", shape=(4, 3), axis=1),
    "MatMul": one("MatMul", "x w", (4, 3), {"w": a(3, 2)}),
    "MatMul left": one("MatMul", "w x", (4, 3), {"w": a(2, 4)}),
    "MatMul of a vector": one("MatMul", "x w", (3,), {"w": a(3)}),
    "MatMul of batches": one("MatMul", "x w", (2, 4, 3), {"w": a(1, 2, 3, 2)}),
    "MatMul with columns": (
        [
            ("Transpose", "x", "t", {"perm": [1, 0]}),
            ("MatMul", "w t", "m", {}),
            ("Transpose", "m", "y", {"perm": [1, 0]}),
        ],
        {"w": a(2, 3)},
        ("n", 3),
        20,
    ),
    "MatMul of vectors": (
        [("MatMul", "x w", "h", {}), ("MatMul", "v w", "u", {}), ("Add", "h u", "y", {})],
        {"w": a(3, 2), "v": a(3)},
        ("n", 3),
        20,
    ),
    **{
        f"Gemm {bool(c)} {t}": one(
            "Gemm", f"x w {c}", arrays={"w": a(2, 3) if t else a(3, 2), "c": a(2)}, transB=t, alpha=0.5, beta=2.0
        )
        for t in (0, 1)
        for c in ("", "c")
    },
    "Gemm of transposes": (
        [("Transpose", "x", "t", {"perm": [1, 0]}), ("Gemm", "t w", "y", {"transA": 1})],
        {"w": a(3, 2)},
        ("n", 3),
        20,
    ),
    "Einsum": one("Einsum", "x w", (4, 3), {"w": a(3, 2)}, equation="nti,io->not"),
    "Einsum of batches": ([("Einsum", "x x", "y", {"equation": "bti,bsi->bts"})], {}, ("n", 4, 3), 20),
    "Reshape": one("Reshape", "x s", (4, 3), {"s": np.array([-1, 2, 6])}),
    "Reshape with zeros": one("Reshape", "x s", (4, 3), {"s": np.array([0, 0, 3, 1])}),
    "Unsqueeze": one("Unsqueeze", "x s", arrays={"s": np.array([1, 3])}),
    "Unsqueeze, Squeeze before the samples": (
        [("Unsqueeze", "x s", "u", {}), ("Squeeze", "u s", "y", {})],
        {"s": np.array([0])},
        ("n", 3),
        20,
    ),
    "Unsqueeze of opset 11": one("Unsqueeze", opset=11, axes=[1]),
    "Squeeze": one("Squeeze", shape=(1, 3)),
    "samples in the middle": (
        [
            ("Transpose", "x", "t", {"perm": [1, 0, 2]}),
            ("Add", "t w", "a", {}),
            ("Softmax", "a", "b", {"axis": 0}),
            ("MatMul", "b v", "c", {}),
            ("Transpose", "c", "y", {"perm": [1, 0, 2]}),
        ],
        {"w": a(4, 1, 3), "v": a(3, 2)},
        ("n", 4, 3),
        20,
    ),
    "heads merged with samples": (
        [
            ("Reshape", "x s", "r", {}),
            ("Transpose", "r", "t", {"perm": [0, 2, 1]}),
            ("MatMul", "r t", "m", {}),
            ("Softmax", "m", "p", {}),
            ("Mul", "p w", "q", {}),
            ("Reshape", "q u", "y", {}),
        ],
        {"s": np.array([-1, 4, 3]), "w": a(1, 4, 1), "u": np.array([-1, 2, 4, 4])},
        ("n", 2, 4, 3),
        20,
    ),
    "positions merged with samples": (
        [
            ("Transpose", "x", "t", {"perm": [1, 0, 2]}),
            ("Reshape", "t s", "r", {}),
            ("Gemm", "r w", "g", {}),
            ("Shape", "x", "k", {"start": 0, "end": 1}),
            ("Concat", "f k l", "u", {"axis": 0}),
            ("Reshape", "g u", "h", {}),
            ("Transpose", "h", "y", {"perm": [1, 0, 2]}),
        ],
        {"s": np.array([-1, 3]), "w": a(3, 2), "f": np.array([4]), "l": np.array([2])},
        ("n", 4, 3),
        20,
    ),
    "a start for each sample": (
        [
            ("Shape", "x", "s", {"end": 1}),
            ("Concat", "s k", "u", {"axis": 0}),
            ("ConstantOfShape", "u", "z", {}),
            ("Cast", "z", "c", {"to": TensorProto.DOUBLE}),
            ("Expand", "w u", "e", {}),
            ("Add", "c e", "d", {}),
            ("Concat", "x d", "y", {"axis": 1}),
        ],
        {"k": np.array([3]), "w": a(1, 3)},
        ("n", 3),
        20,
    ),
    "Expand": one("Expand", "x s", (1, 3), {"s": np.array([1, 4, 1])}),
    "Slice": one(
        "Slice",
        "x s e i t",
        (4, 3),
        {"s": np.array([-1, 1]), "e": np.array([-9, 9]), "i": np.array([1, 2]), "t": np.array([-2, 1])},
    ),
    "Slice of opset 9": one("Slice", shape=(4, 3), opset=9, starts=[1], ends=[3], axes=[1]),
    "Split": (
        [("Split", "x", "p r", {"axis": 1, "num_outputs": 2}), ("Concat", "r p", "y", {"axis": 1})],
        {},
        ("n", 5),
        20,
    ),
    "Split sizes": (
        [("Split", "x s", "p r", {"axis": 1}), ("Mul", "p r", "y", {})],
        {"s": np.array([2, 2])},
        ("n", 4),
        20,
    ),
    "Gather": one("Gather", "x i", (4, 3), {"i": np.array([[2, -1], [0, 0]])}, axis=1),
    "Gather of one": one("Gather", "x i", (4, 3), {"i": np.array(1)}, axis=2),
    "Concat": one("Concat", "x x", (4, 3), axis=-1),
    "Concat of one": one("Concat", "x", axis=1),
    "Tile": one("Tile", "x r", (4, 3), {"r": np.array([1, 2, 3])}),
    "Trilu": one("Trilu", "x k", (4, 3), {"k": np.array(1)}),
    "Trilu below": one("Trilu", shape=(4, 3), upper=0),
    "DepthToSpace": one("DepthToSpace", shape=(4, 2, 3), blocksize=2, mode="CRD"),
    "Pad": one("Pad", "x p c", (4, 3), {"p": np.array([0, 1, 0, 0, 2, 1]), "c": np.array(0.5)}),
    "Pad axes": one(
        "Pad",
        "x p n i".replace(" n", " c"),
        (4, 3),
        {"p": np.array([1, 1]), "i": np.array([2]), "c": np.array(0.0)},
        mode="reflect",
    ),
    "Conv": one("Conv", "x w b", IMAGE, W, group=2, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1]),
    "Conv along one axis": one("Conv", "x w", (2, 7), {"w": a(3, 2, 2)}),
    "Conv SAME": one("Conv", "x w", IMAGE, W, group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
    "Conv SAME_LOWER": one("Conv", "x w", IMAGE, W, group=2, auto_pad="SAME_LOWER", strides=[2, 2]),
    "Conv of a computed weight": ([("Mul", "w w", "v", {}), ("Conv", "x v", "y", {"group": 2})], W, ("n", *IMAGE), 20),
    "ConvTranspose": one(
        "ConvTranspose",
        "x c.weight c.bias",
        IMAGE,
        {"c.weight": a(4, 3, 2, 2), "c.bias": a(3)},
        strides=[2, 2],
        pads=[1, 0, 1, 0],
        output_padding=[1, 0],
    ),
    "ConvTranspose of groups": one("ConvTranspose", "x c.weight c.bias", IMAGE, {
        "c.weight": a(4, 3, 2, 1), "c.bias": a(6)}, group=2, strides=[2, 1]),
    "MaxPool": one("MaxPool", shape=IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0]),
    "AveragePool": one("AveragePool", shape=IMAGE, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
    "AveragePool padded": one("AveragePool", shape=IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1),
    "GlobalAveragePool": one("GlobalAveragePool", shape=IMAGE),
    "GlobalMaxPool": one("GlobalMaxPool", shape=IMAGE),
    "BatchNormalization": one("BatchNormalization", "x s b m v", IMAGE, CHANNELS, epsilon=0.1),
    "LayerNormalization": one("LayerNormalization", "x s b", (3, 4), CHANNELS, epsilon=0.1),
    "LayerNormalization alone": one("LayerNormalization", "x s", (3, 4), {"s": a(3, 4)}, axis=1),
    "InstanceNormalization": one("InstanceNormalization", "x s b", IMAGE, CHANNELS),
    "GroupNormalization": one("GroupNormalization", "x s b", IMAGE, CHANNELS, opset=21, num_groups=2),
    "RMSNormalization": one("RMSNormalization", "x s", (3, 4), CHANNELS, opset=23),
    **{
        f"Resize {mode} {way}": one(
            "Resize",
            "x n s".replace(" n", " r"),
            (2, 3, 4),
            {"s": np.array([1, 1, 2, 1.5], "float32"), "r": np.zeros(0)},
            mode=mode,
            coordinate_transformation_mode=way,
        )
        for mode in ("nearest", "linear", "cubic")
        for way in ("half_pixel", "align_corners", "asymmetric")
    },
    "Swish alone": one("Swish", opset=24),
    "ThresholdedRelu alone": one("ThresholdedRelu"),
    "Softmax of opset 11 alone": one("Softmax", opset=11),
    "Clip from below": one("Clip", "x low", arrays={"low": np.array(0.2)}),
    "Sub of numbers": one("Sub", "c x", (2, 3), {"c": np.array([[1.5]])}),
    "a number with more axes": (
        [("Mul", "x c", "m", {}), ("Squeeze", "m s", "y", {})],
        {"c": np.array([[[1.5]]]), "s": np.array([0])}, ("n", 3), 20,
    ),
    "ReduceMax of all but samples": one("ReduceMax", "x a", (4, 3), {"a": np.array([-1])}, keepdims=0),
    "Flatten and back": (
        [("Flatten", "x", "f", {"axis": 2}), ("Softmax", "f", "s", {}), ("Reshape", "s t", "y", {})],
        {"t": np.array([-1, 4, 3])}, ("n", 4, 3), 20,
    ),
    "Trilu alone": one("Trilu", shape=(4, 3)),
    "Pad of opset 10": one("Pad", shape=(4, 3), opset=10, pads=[0, 1, 0, 0, 0, 2], value=0.5),
    "Pad of nothing": one("Pad", "x p", (4, 3), {"p": np.zeros(6, int)}),
    "MaxPool ceil": one("MaxPool", shape=IMAGE, kernel_shape=[2, 2], strides=[2, 3], ceil_mode=1),
    **{f"{op} ceil, unequal pads": one(op, shape=IMAGE, kernel_shape=[2, 3], pads=[1, 0, 0, 2], strides=[2, 2],
                                       ceil_mode=1, **more)
       for op, more in (("MaxPool", {}), ("AveragePool", {"count_include_pad": 1}))},
    "MaxPool of spread entries": one("MaxPool", shape=IMAGE, kernel_shape=[3, 2], dilations=[1, 2]),
    "AveragePool ceil": one("AveragePool", shape=IMAGE, kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1),
    "AveragePool of one axis": one("AveragePool", shape=(2, 7), kernel_shape=[3], pads=[1, 1], count_include_pad=1),
    "Conv of a shared weight": (
        [("Conv", "x w b", "g", {"pads": [1, 1]}), ("Conv", "g w", "y", {"strides": [2], "dilations": [2]})],
        {"w": a(2, 2, 3), "b": a(2)}, ("n", 2, 9), 20,
    ),
    "BatchNormalization by name": one("BatchNormalization", "x c.weight c.bias m v", IMAGE, {
        "c.weight": a(4), "c.bias": a(4), "m": a(4), "v": a(4) ** 2}),
    **{f"{kind} by name": one(kind, "x c.weight c.bias", shape, {"c.weight": a(4), "c.bias": a(4)}, 21, **more)
       for kind, shape, more in (("LayerNormalization", (3, 4), {}), ("InstanceNormalization", IMAGE, {}),
                                 ("GroupNormalization", IMAGE, {"num_groups": 2}))},
    "LayerNormalization of another shape": one("LayerNormalization", "x c.weight c.bias", (3, 4), {
        "c.weight": a(3, 4), "c.bias": a(4)}, axis=2),
    "Resize to sizes": one("Resize", "x   s".replace("   ", " r q "), (2, 3, 4), {
        "r": np.zeros(0), "q": np.zeros(0, "float32"), "s": np.array([6, 3])}, axes=[2, 3]),
    "Resize of axes from the end": one("Resize", "x r s", (2, 3, 4), {
        "r": np.zeros(0), "s": np.array([1.5, 2])}, axes=[-1, -2], mode="linear"),
    "constants are folded": (
        [
            ("Constant", "", "c", {"value": numpy_helper.from_array(np.arange(3.0))}),
            ("Sqrt", "c", "s", {}),
            ("Range", "i j k", "r", {}),
            ("Cast", "r", "f", {"to": 11}),
            ("Mul", "s f", "m", {}),
            ("Mul", "x m", "y", {}),
        ],
        {"i": np.array(0), "j": np.array(3), "k": np.array(1)},
        ("n", 3),
        20,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_compute_as_onnx_reference_does(name):
    """`from_onnx` compares the outputs, for two numbers of samples; each quantity is that of brute force."""
    nodes, arrays, shape, opset = CASES[name]
    arrays = {
        key: value.astype("float32") if name.startswith("Resize") and value.dtype.kind == "f" else value
        for key, value in arrays.items()
    }
    dtype = "float32" if name.startswith("Resize") else "float64"
    network = taken(nodes, arrays, shape, opset, dtype)
    x = np.random.default_rng(3).standard_normal((3, *shape[1:])).astype(dtype)
    whole = network(x)
    alone = np.concatenate([network(x[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(whole, alone, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)
    assert {np.asarray(v).shape for v in arrays.values()} >= {p.shape for p in network.parameters.values()}


FAILING = "ConvTranspose of groups", "Resize of axes from the end"
"""Cases of which `onnx.reference` raises an error."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in FAILING])
def test_outputs_of_larger_numbers_are_those_of_onnx_reference(name):
    """A default may be of numbers that the example, with which a model is taken, does not have."""
    nodes, arrays, shape, opset = CASES[name]
    single = name.startswith("Resize")
    arrays = {key: a.astype("float32") if single and a.dtype.kind == "f" else a for key, a in arrays.items()}
    made = model(nodes, arrays, shape, opset, "float32" if single else "float64")
    x = 3 * np.random.default_rng(3).standard_normal((5, *shape[1:])).astype("float32" if single else "float64")
    with np.errstate(all="ignore"):
        found, (want,) = from_onnx(made.SerializeToString())(x), ReferenceEvaluator(made).run(None, {"x": x})
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.parametrize(("op", "expected"), [
    ("Equal", [1, 0, 0]), ("Less", [0, 0, 0]), ("LessOrEqual", [1, 0, 0]), ("Greater", [0, 0, 1]),
    ("GreaterOrEqual", [1, 0, 1]),
])  # fmt: skip
def test_infinite_numbers_are_equal(op, expected):
    nodes = [("Log", "x", "l", {}), (op, "l c", "d", {}), ("Cast", "d", "y", {"to": TensorProto.DOUBLE})]
    network = taken(nodes, {"c": np.array(-np.inf)}, example=np.ones((1, 3)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(network(np.array([[0.0, -1.0, 1.0]])), [expected])


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_quotient_by_zero_is_that_of_numpy(zero):
    x = np.array([[1.0, -2.0, 0.0]])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(taken([("Div", "x c", "y", {})], {"c": np.array(zero)})(x), x / zero)


@pytest.mark.parametrize(("op", "given", "expected"), [
    ("Clip", {"max": 0.1}, [0.1, -2.0]), ("Clip", {"min": 0.1}, [1.0, 0.1]),
    ("Pad", {"pads": [0, 1, 0, 0], "value": 0.1}, [0.1, 1.0, -2.0]),
])  # fmt: skip
def test_attributes_that_became_inputs_are_the_shortest_decimals(op, given, expected):
    network = taken(*one(op, shape=(2,), opset=9, **given))
    np.testing.assert_array_equal(network(np.array([[1.0, -2.0]])), [expected])


def test_constants_are_computed_as_their_opset_says():
    nodes = [("Constant", "", "c", {"value_ints": [2]}),
             ("Unsqueeze", "c", "u", {"axes": [0]}),  # an attribute until opset 12
             ("Squeeze", "u", "s", {"axes": [0]}),
             ("Concat", "first s", "shape", {"axis": 0}), ("Reshape", "x shape", "y", {})]  # fmt: skip
    network = taken(nodes, {"first": np.array([0, -1])}, ("n", 4), 12)
    x = RNG.standard_normal((3, 4))
    np.testing.assert_array_equal(network(x), x.reshape(3, 2, 2))


def test_cubic_resizing_is_in_float64():
    sizes = {"r": np.zeros(0), "q": np.zeros(0, "float32"), "s": np.array([6, 3])}
    network = taken(*one("Resize", "x r q s", (2, 3, 4), sizes, axes=[2, 3], mode="cubic"))
    np.testing.assert_allclose(network(np.ones((1, 2, 3, 4))), np.ones((1, 2, 6, 3)), rtol=1e-14)


@pytest.mark.parametrize(
    "name",
    [
        "heads merged with samples",
        "positions merged with samples",
        "Conv",
        "powers",
        "Gemm True 1",
        "BatchNormalization",
        "Greater and Where",
        "a start for each sample",
    ],
)
def test_quantities_by_brute_force(name):
    network = taken(*CASES[name])
    x = np.random.default_rng(0).standard_normal((2, *CASES[name][2][1:]))
    compare_with_dense(network, x)


# -------------------------------------------------------------------------------------------------------------- names


CHAIN = [
    ("Gemm", "x 0.weight 0.bias", "h", {"transB": 1}),
    ("Tanh", "h", "t", {}),
    ("Gemm", "t 2.weight", "y", {"transB": 1}),
]
WEIGHTS = {"0.weight": a(4, 3), "0.bias": a(4), "2.weight": a(2, 4)}


def test_a_chain_is_a_sequential_of_layers():
    network = taken(CHAIN, WEIGHTS, opset=13)
    assert [type(layer).__name__ for layer in network] == ["Linear", "Tanh", "Linear"]
    assert isinstance(taken(*CASES["Hardsigmoid of torch"])[0], layers.Hardsigmoid)
    assert all((network.parameters[name] == value).all() for name, value in WEIGHTS.items())
    x = a(3, 3)
    assert gb.backward(network, losses.MSELoss(), x, a(3, 2), q.KFAC(), rng=0)["kfac"]


def test_parameters_have_the_names_of_initializers():
    nodes = [
        ("Gemm", "x w b", "h", {"transB": 1}),
        ("Gemm", "h enc.weight q", "i", {"transB": 1}),
        ("MatMul", "i a.weight", "j", {}),
        ("Add", "j a.bias", "k", {}),
        ("Mul", "k a", "y", {}),
    ]
    arrays = {
        "w": a(4, 3),
        "b": a(4),
        "enc.weight": a(4, 4),
        "q": a(4),
        "a.weight": a(4, 1),
        "a.bias": a(1),
        "a": np.array(2.0),
    }
    network = taken(nodes, arrays)
    assert {name: p.tolist() for name, p in network.parameters.items()} == {
        name: p.tolist() for name, p in arrays.items() if name != "a"
    }
    assert isinstance(network.children["enc"], layers.Linear)
    assert not network.children["enc"].bias


def test_a_weight_of_two_nodes_is_one_parameter():
    nodes = [
        ("Identity", "l.weight", "again", {}),
        ("Gemm", "x l.weight", "h", {"transB": 1}),
        ("Gemm", "h again", "y", {"transB": 1}),
    ]
    network = taken(nodes, {"l.weight": a(3, 3)})
    assert list(network.parameters) == ["l.weight"]
    compare_with_dense(network, a(2, 3))


def test_what_is_a_parameter_may_be_chosen():
    nodes = [("Mul", "x scale", "h", {}), ("MatMul", "h matrix", "m", {}), ("Add", "m mask", "y", {})]
    arrays = {"scale": np.array(2.0), "matrix": a(3, 3), "mask": np.triu(np.full((1, 3), -1e30), 1)}
    assert list(taken(nodes, arrays).parameters) == ["matrix"]
    network = taken(nodes, arrays, parameters=["scale"], constants=["matrix"])
    assert list(network.parameters) == ["scale"]
    assert {"matrix", "mask"} <= set(network.buffers)
    with pytest.raises(ValueError, match=r"constants, parameters: expected names of initializers .*'matrx'"):
        taken(nodes, arrays, constants=["matrx"])


@pytest.mark.parametrize(("nodes", "words"), [
    ([("Clip", "x p", "h", {}), ("Mul", "h p", "y", {})], "node 'node h', Clip: input 1: expected a constant, got 'p'"),
    ([("Identity", "p", "same", {}), ("Clip", "x  same".replace("  ", " low "), "y", {})], "Clip: input 2: expected"),
    ([("Pad", "x pads p", "h", {}), ("Mul", "h p", "y", {})], "node 'node h', Pad: input 2: expected a constant"),
])  # fmt: skip
def test_a_parameter_that_is_chosen_is_no_fixed_number(nodes, words):
    arrays = {"p": np.array(0.7), "low": np.array(-9.0), "pads": np.array([0, 1, 0, 1])}
    with pytest.raises(UnsupportedError) as caught:
        taken(nodes, arrays, parameters=["p"])
    assert words in str(caught.value)


@pytest.mark.parametrize("names", [("2.weight", "2.bias"), ("ones", "zeros")], ids=str)
@pytest.mark.parametrize("named", [False, True])
def test_what_an_exporter_merged_with_statistics_is_a_parameter_where_it_is_one(names, named):
    scale, shift = names
    nodes = [("BatchNormalization", f"x {scale} {shift} {shift} {scale}", "y", {})]
    network = taken(nodes, {scale: np.ones(3), shift: np.zeros(3)}, parameters=names if named else ())
    x, new = a(4, 3), {scale: a(3), shift: a(3)}
    assert set(network.parameters) == set(names)
    network.parameters.load(new)
    np.testing.assert_allclose(network(x), x / np.sqrt(1 + 1e-5) * new[scale] + new[shift], rtol=1e-12)
    compare_with_dense(network, x)


def test_two_normalizations_of_one_mean_have_their_own_epsilon():
    nodes = [("BatchNormalization", "x s b m v", "h", {}), ("BatchNormalization", "h s b m v", "y", {"epsilon": 0.5})]
    arrays = {"s": np.ones(3), "b": np.zeros(3), "m": a(3), "v": np.ones(3)}
    x, m = a(4, 3), arrays["m"]
    np.testing.assert_allclose(taken(nodes, arrays)(x), ((x - m) / np.sqrt(1 + 1e-5) - m) / np.sqrt(1.5), rtol=1e-12)


def left_out(*nodes, arrays):
    """A model in which "_" stands for a name that is left out."""
    made = model([(*node, {}) for node in nodes], arrays, opset=18)
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = [name.replace("_", "") for name in names]
    made.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    return made


@pytest.mark.parametrize("nodes", [
    [("Split", "x sizes", "first _ last"), ("Add", "first last", "sum"), ("Clip", "sum _ high", "y")],
    [("Split", "k sizes", "_ _ last"), ("Add", "x last", "sum"), ("Clip", "sum _ high", "y")],
])  # fmt: skip
def test_an_output_that_is_left_out_is_no_input_that_is(nodes):
    arrays = {"k": np.array([[0.1, 0.2, 0.3]]), "sizes": np.array([1, 1, 1]), "high": np.array(0.3)}
    given = left_out(*nodes, arrays=arrays)
    x = a(4, 3)
    want = np.minimum(x[:, :1] + x[:, 2:] if nodes[0][1][0] == "x" else x + 0.3, 0.3)
    network = from_onnx(given.SerializeToString(), constants=["k"])
    np.testing.assert_allclose(network(x), want, rtol=1e-14)


@pytest.mark.parametrize(("names", "size"), [("w x", 3), ("x w", 4)])
@pytest.mark.parametrize("lead", [(), (2,), (2, 5)])
def test_a_vector_times_matrices(names, size, lead):
    x, w = a(2, *lead, 3, 4), a(size)
    nodes = [("MatMul", names, "y", {})]
    network = taken(nodes, {"w": w}, ("n", *lead, 3, 4))
    np.testing.assert_allclose(network(x), w @ x if names == "w x" else x @ w, rtol=1e-13)
    compare_with_dense(network, x)


@pytest.mark.parametrize(("given", "widths"), [
    ({"kernel_shape": [1, 3], "pads": [0, 1, 0, 1]}, ((0, 0), (1, 1))),
    ({"kernel_shape": [3, 2], "pads": [1, 0, 0, 1]}, ((1, 0), (0, 1))),
    ({"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}, ((1, 1), (1, 0))),
    ({"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, ((1, 0), (0, 0))),
])  # fmt: skip
def test_largest_numbers_of_windows_with_pads_that_onnx_reference_mixes_up(given, widths):
    x = a(2, 4, 5, 6)
    wide = np.pad(x, ((0, 0), (0, 0), *widths), constant_values=-np.inf)
    seen = np.lib.stride_tricks.sliding_window_view(wide, given["kernel_shape"], (2, 3)).max((-2, -1))
    down, along = given.get("strides", (1, 1))
    network = taken([("MaxPool", "x", "y", given)], {}, ("n", 4, 5, 6))
    np.testing.assert_array_equal(network(x), seen[:, :, ::down, ::along])


def test_running_statistics_are_buffers():
    names = ("weight", "bias", "running_mean", "running_var")
    nodes = [("BatchNormalization", "x " + " ".join(f"bn.{name}" for name in names), "y", {})]
    network = taken(nodes, {f"bn.{name}": abs(a(3)) for name in names})
    assert isinstance(network.children["bn"], layers.BatchNorm1d)
    assert {f"bn.{name}" for name in names} <= set(network.state_dict())


@pytest.mark.parametrize(("given", "weight"), [({"momentum": 0.7}, 0.3), ({}, 0.1)])
def test_a_batch_in_training_has_the_weight_in_running_statistics_that_the_file_says(given, weight):
    arrays = {"bn.weight": a(3), "bn.bias": a(3), "m": a(3), "v": a(3) ** 2}
    network = taken([("BatchNormalization", "x bn.weight bn.bias m v", "y", given)], arrays)
    x = a(5, 3)
    gb.backward(network, losses.MSELoss(), x, a(5, 3), training=True)
    expected = (1 - weight) * arrays["m"] + weight * x.mean(0)
    np.testing.assert_allclose(network.state_dict()["bn.running_mean"], expected, rtol=1e-12)
    assert ("momentum" in repr(network)) == bool(given)


def test_statistics_that_are_no_layers_are_right_in_evaluation_mode_alone():
    network = taken([("BatchNormalization", "x s b m v", "y", {})], CHANNELS, ("n", 4))
    words = "training=True is not supported: a batch norm has running statistics that are no layer's"
    with pytest.raises(UnsupportedError, match=words):
        gb.backward(network, losses.MSELoss(), a(5, 4), a(5, 4), training=True)


RATIOS = [(10, "x", 0.25), (12, "x r", 0.25), (12, "x", 0.5), (10, "x", 0.0)]


@pytest.mark.parametrize(("opset", "names", "ratio"), RATIOS)
def test_dropout_is_a_layer_that_draws_in_training(opset, names, ratio):
    given = {"ratio": ratio} if opset < 12 else {}
    nodes = [("Relu", "x", "h", {}), ("Dropout", names.replace("x", "h"), "y", given)]
    network, x = taken(nodes, {"r": np.array(0.25)}, opset=opset), a(200, 3)
    np.testing.assert_array_equal(network(x), np.maximum(x, 0))
    some = np.ones_like(x)
    seen = gb.backward(network, losses.MSELoss(), some, some, rng=0, training=True).output
    assert set(np.unique(seen)) == {0, 1 / (1 - ratio)} - ({0} if not ratio else set())
    assert abs((seen == 0).mean() - ratio) < 0.1


@pytest.mark.parametrize("opset", [7, 9, 13, 15])
def test_batch_normalization_of_all_opsets_is_in_evaluation_mode(opset):
    nodes, arrays = [("BatchNormalization", "x s b m v", "y", {"epsilon": 0.1})], {**CHANNELS}
    x = a(5, 4)
    expected = CHANNELS["s"] * (x - CHANNELS["m"]) / np.sqrt(CHANNELS["v"] + 0.1) + CHANNELS["b"]
    np.testing.assert_allclose(taken(nodes, arrays, ("n", 4), opset)(x), expected, rtol=1e-7)


@pytest.mark.parametrize("shape", [(1, 4), (1,), (4,)])
def test_a_bias_that_is_broadcast(shape):
    arrays = {"fc.weight": a(4, 3), "fc.bias": a(*shape)}
    network, x = taken([("Gemm", "x fc.weight fc.bias", "y", {"transB": 1})], arrays), a(5, 3)
    assert network.parameters["fc.bias"].shape == shape
    np.testing.assert_allclose(network(x), x @ arrays["fc.weight"].T + arrays["fc.bias"], rtol=1e-12)


def test_an_operator_whose_opset_has_no_body_is_refused():
    with pytest.raises(UnsupportedError, match="Shrink: there is no operation"):
        taken([("Shrink", "x", "y", {})], opset=13)


def test_samples_as_the_second_factor():
    w, x = a(4, 3), a(5, 3)
    network = taken([("Gemm", "w x", "z", {"transB": 1}), ("Transpose", "z", "y", {})], {"w": w})
    np.testing.assert_allclose(network(x), x @ w.T, rtol=1e-12)


def test_names_that_are_no_paths_are_changed():
    network = taken(
        [("MatMul", "x w.", "w.a", {}), ("Add", "w.a w", "input", {}), ("Exp", "input", "y", {})],
        {"w.": a(3, 3), "w": a(3)},
    )
    assert sorted(network.parameters) == ["w", "w_1"]


# -------------------------------------------------------------------------------------------------------- fixed batches


def test_a_fixed_batch_may_have_any_size_afterwards():
    nodes = [("Reshape", "x s", "r", {}), ("Transpose", "r", "t", {"perm": [0, 2, 1]}), ("Flatten", "t", "y", {})]
    for size in (1, 2):
        network = taken(nodes, {"s": np.array([size, 2, -1])}, (size, 4, 3))
        x = a(5, 4, 3)
        assert (network(x) == x.reshape(5, 2, 6).transpose(0, 2, 1).reshape(5, 12)).all()


@pytest.mark.parametrize(("sizes", "shape"), [
    ((2, 3), (2, 3)), ((1, 3), (2, 3)), ((1, 2, 3), (2, 2, 3)), ((2, 2, 3), (2, 2, 3)),
])  # fmt: skip
def test_an_array_that_is_expanded_beside_a_fixed_batch_is_the_same_for_each_sample(sizes, shape):
    """Also where it has one row, or an axis of features as long as the model's batch."""
    w, x = a(1, 3), a(5, *shape[1:])
    network = taken([("Expand", "w s", "e", {}), ("Mul", "x e", "y", {})], {"w": w, "s": np.array(sizes)}, shape)
    np.testing.assert_allclose(network(x), x * w, rtol=1e-14)


@pytest.mark.parametrize("samples", [1, 2])
def test_rows_that_have_the_samples_beside_positions_are_no_features(samples):
    """In a file of one sample a matrix (4, 3) could have rows of 3 features, or of those of all samples."""
    nodes = [("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("Reshape", "t rows", "r", {}), ("Gemm", "r w", "g", {}),
             ("Reshape", "g back", "h", {}), ("Transpose", "h", "y", {"perm": [1, 0, 2]})]  # fmt: skip
    arrays = {"rows": np.array([4 * samples, 3]), "w": a(3, 2), "back": np.array([4, samples, 2])}
    network, x = taken(nodes, arrays, (samples, 4, 3)), a(5, 4, 3)
    np.testing.assert_allclose(network(x), x @ arrays["w"], rtol=1e-12)


def test_the_example_gives_sizes_that_are_open():
    nodes = [("ReduceMean", "x a", "y", {"keepdims": 0})]
    arrays = {"a": np.array([1])}
    assert taken(nodes, arrays, ("n", "t", 3), example=a(2, 5, 3))(a(4, 5, 3)).shape == (4, 3)
    with pytest.raises(ValueError, match="example: expected a batch, as input 'x' has no fixed shape"):
        taken(nodes, arrays, ("n", "t", 3))


def test_an_input_without_sizes_has_no_fixed_batch():
    """The sizes of a fixed one would be taken for the number of samples: (1, 12) for (N, 12)."""
    nodes, arrays = [("Reshape", "x s", "y", {})], {"s": np.array([1, 12])}
    assert taken(nodes, arrays, (1, 4, 3))(a(5, 4, 3)).shape == (5, 12)
    with pytest.raises(UnsupportedError, match=r"samples along one axis, got \(1, 12\) from \(N, 4, 3\)"):
        taken(nodes, arrays, (), example=a(1, 4, 3))


def test_functions_are_inlined():
    body = [helper.make_node("Mul", ["u", "u"], ["v"]), helper.make_node("Tanh", ["v"], ["w"])]
    function = helper.make_function("own", "Square", ["u"], ["w"], body, [helper.make_opsetid("", 20)])
    whole = model([("Square", "x", "y", {})], functions=[function])
    whole.graph.node[0].domain = "own"
    whole.opset_import.append(helper.make_opsetid("own", 1))
    x = a(2, 3)
    np.testing.assert_allclose(from_onnx(whole.SerializeToString())(x), np.tanh(x * x), rtol=1e-15)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("mask", [np.tri(3, k=1) > 0, a(3, 3)], ids=["conditions", "numbers"])
def test_a_fixed_mask_of_attention_is_taken(mask, opset):
    """The operator is a function, whose body depends on the mask's dtype; in opset 24 it pads the mask."""
    w, x = a(4, 4), a(2, 3, 4)
    heads = {"q_num_heads": 1, "kv_num_heads": 1, "scale": 0.25}
    nodes = [("MatMul", "x w", "q", {}), ("Attention", "q x x m", "y", heads)]
    network = taken(nodes, {"w": w, "m": mask}, ("n", 3, 4), opset, example=x)
    scores = np.exp(x @ w @ x.transpose(0, 2, 1) / 4 + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask))
    np.testing.assert_allclose(network(x), scores / scores.sum(2, keepdims=True) @ x, rtol=1e-6)
    compare_with_dense(network, x)


def test_an_array_that_a_function_of_onnx_takes_has_its_dtype():
    angles, x = a(1, 3, 2), a(2, 3, 4)
    nodes = [("Unsqueeze", "x one", "u", {}), ("RotaryEmbedding", "u cos sin", "r", {}), ("Squeeze", "r one", "y", {})]
    arrays = {"one": np.array([1]), "cos": np.cos(angles), "sin": np.sin(angles)}
    network = taken(nodes, arrays, ("n", 3, 4), 23)
    turned = (x[..., :2] + 1j * x[..., 2:]) * np.exp(1j * angles)
    np.testing.assert_allclose(network(x), np.concatenate([turned.real, turned.imag], -1), rtol=1e-12)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("Floor", "x", "y", {})], "node 'node y', Floor: there is no operation for it"),
        ([("ReduceSum", "x", "y", {})], "ReduceSum: axis 0 is that of the samples"),
        ([("Transpose", "x", "t", {}), ("MatMul", "t x", "y", {})], "MatMul: it sums over the samples"),
        (
            [("Transpose", "x", "t", {}), ("Add", "t x", "y", {})],
            "Add: expected inputs that broadcast, got axes (4, N) and (N, 4)",
        ),
        ([("Gather", "x i", "y", {"axis": 0})], "Gather: axis 0 is that of the samples"),
        ([("Reshape", "x j", "y", {})], "Reshape: expected a shape with the samples along one axis, got (2, 6)"),
        (
            [
                ("Shape", "x", "s", {}),
                ("Cast", "s", "c", {"to": 11}),
                ("ReduceSum", "c", "d", {}),
                ("Mul", "x d", "y", {}),
            ],
            "Mul: expected no number that follows from the number of samples",
        ),
        ([("RandomNormalLike", "x", "r", {}), ("Add", "x r", "y", {})], "RandomNormalLike: random numbers cannot"),
        *[
            (
                [("Shape", "x", "s", {}), ("Div", "s k", "t", {}), (op, f"{v} t", "r", {}), ("Mul", "x r", "y", {})],
                f"{op}: expected one shape for each sample",
            )
            for op, v in (("Reshape", "w"), ("Expand", "w"), ("Expand", "x"))
        ],
        ([("Cast", "x", "c", {"to": 1}), ("Cast", "c", "y", {"to": 11})], "Cast: expected a cast to float64"),
        ([("Unknown", "x", "y", {})], "Unknown: expected an operator of ONNX, got one of domain 'ai.onnx'"),
        ([("Dropout", "x ratio mode", "y", {})], "Dropout: expected evaluation mode, got training_mode=True"),
        ([("BatchNormalization", "x w w w w", "y a b", {"training_mode": 1})], "expected evaluation mode"),
        ([("Transpose", "x", "y", {})], "output 'y': expected the samples along axis 0"),
    ],
)
def test_what_cannot_be_taken_over_is_named(nodes, words):
    arrays = {
        "i": np.array([0, 1]),
        "j": np.array([2, 6]),
        "k": np.array([3, 1]),
        "ratio": np.array(0.5),
        "mode": np.array(True),
        "w": np.ones(4),
    }
    with pytest.raises(UnsupportedError) as caught:
        taken(nodes, arrays, ("n", 4))
    assert words in str(caught.value)
    assert str(caught.value).startswith("model of ")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (one("CumSum", "x i", (4,), {"i": np.array(1)}, exclusive=1), "expected exclusive=0 and reverse=0"),
        (one("CumSum", "x i", (4,), {"i": np.array(1)}, reverse=1), "expected exclusive=0 and reverse=0"),
        (one("Softmax", shape=(4, 3), opset=11, axis=1), "expected the last axis before opset 13"),
        (one("Selu", alpha=1.5), "expected the usual alpha and gamma"),
        (one("Selu", gamma=1.5), "expected the usual alpha and gamma"),
        *[(one("Einsum", "x w", (4, 3), {"w": a(4, 3)}, equation=text), "expected two inputs, all axes named")
          for text in ("nti,...i->nt", "nti,ti->ti", "nnn,ti->n")],
        (one("Conv", "x w", (2, 1, 1, 1, 1), {"w": a(3, 2, 1, 1, 1, 1)}), "expected one to three axes after the"),
        *[(one("ConvTranspose", "x c.weight", (4, 5), {"c.weight": a(4, 3, 2)}, **more), "expected equal pads at both")
          for more in ({"pads": [1, 0]}, {"auto_pad": "SAME_UPPER"}, {"output_shape": [6]})],
        (one("ConvTranspose", "x c", (4, 5), {"c": a(4, 3, 2)}), "expected a weight of its own"),
        (one("AveragePool", shape=IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1]), "expected no dilations, and equal"),
        (one("AveragePool", shape=IMAGE, kernel_shape=[2, 2], dilations=[2, 1]), "expected no dilations, and equal"),
        (one("DepthToSpace", shape=(4, 2, 3), blocksize=2), "expected mode='CRD'"),
        (one("Trilu"), "expected matrices of features"),
        (one("Concat", "x x", axis=0), "it joins samples"),
        (one("Split", "x", opset=13), "axis 0 is that of the samples"),
        (one("Gather", "x i", arrays={"i": np.array([0])}), "axis 0 is that of the samples"),
        (one("Squeeze", "x i", arrays={"i": np.array([1])}), "expected axes of length 1"),
        (one("Resize", "x r s", (2, 3, 4), {"r": np.zeros(8), "s": np.array([1, 1, 2, 2])},
             coordinate_transformation_mode="tf_crop_and_resize"), "expected opset 11 or newer, no crop"),
        (([("MaxPool", "x", "m i", {"kernel_shape": [2, 2]}), ("Cast", "i", "f", {"to": 11}), ("Add", "m f", "y", {})],
          {}, ("n", *IMAGE), 20), "Cast: 'i' is a further output of a node, which is not taken over"),
        (one("Add", "x w", arrays={"w": np.ones(3, int)}), "onnx.reference, with which outputs are compared, fails"),
        (([("DequantizeLinear", "w s", "d", {}), ("MatMul", "x d", "y", {})],
          {"w": np.ones((3, 2), "uint8"), "s": np.array(0.5)}, ("n", 3), 13, "float32"), "No implementation for"),
        (one("Resize", "x s", (2, 3), {"s": np.array([1.0, 1, 2])}, 10), "expected opset 11 or newer, no crop"),
        (([("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("GlobalMaxPool", "t", "y", {})], {}, ("n", 4, 3), 20),
         "expected the samples along axis 0, got axes (4, (None,), 3)"),
        (([("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("MatMul", "t x", "y", {})], {}, ("n", 3, 3), 20),
         "expected the samples along the same axis of"),
        (([("Transpose", "x", "t", {}), ("MatMul", "t w", "y", {})], {"w": a(2, 4)}, (2, 3), 20), "it sums over the"),
        (([("Constant", "", "k", {"sparse_value": helper.make_sparse_tensor(
            helper.make_tensor("v", TensorProto.DOUBLE, [1], [2.0]),
            helper.make_tensor("i", TensorProto.INT64, [1], [0]), [3])}), ("Mul", "x k", "y", {})], {}, ("n", 3), 13),
         "node 'node k', Constant: expected a dense array, got a sparse one"),
        (one("CumSum", "x x"), "input 1: expected an array that does not follow from the network's input"),
        (one("Reshape", "x x"), "input 1: expected sizes that follow from shapes alone"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_taken_over_are_named(case, words):
    with pytest.raises(UnsupportedError) as caught:
        taken(*case)
    assert words in str(caught.value)


def test_all_refusals_are_in_one_message():
    with pytest.raises(UnsupportedError) as caught:
        taken([("Floor", "x", "f", {}), ("Exp", "f", "e", {}), ("Ceil", "x", "c", {}), ("Add", "e c", "y", {})])
    assert "Floor" in str(caught.value)
    assert "Ceil" in str(caught.value)
    assert "Add" not in str(caught.value)


def test_control_flow_is_named():
    body = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 11, None)]
    )
    nodes = [("If", "c", "y", {"then_branch": body, "else_branch": body})]
    with pytest.raises(UnsupportedError, match="If: control flow cannot be taken over"):
        taken(nodes, {"c": np.array(True)})


def test_a_fixed_number_of_samples_in_an_array_is_named():
    with pytest.raises(
        UnsupportedError, match=r"node 'node y', Add: .* \(N, 3\) and \(2, 3\), a fixed number of samples"
    ):
        taken([("Add", "x w", "y", {})], {"w": a(2, 3)}, (2, 3))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda m: m.opset_import[0].__setattr__("version", 99), UnsupportedError, "expected an opset from 7 to"),
        (
            lambda m: m.graph.input.append(helper.make_tensor_value_info("z", 11, [1])),
            UnsupportedError,
            "expected inputs of one dtype, and of one number of samples, got",
        ),
        (
            lambda m: m.graph.input[0].type.tensor_type.__setattr__("elem_type", TensorProto.INT64),
            UnsupportedError,
            "input 'x': expected float32 or float64, got INT64",
        ),
        (
            lambda m: m.graph.input[0].type.tensor_type.__setattr__("elem_type", TensorProto.FLOAT),
            UnsupportedError,
            "expected parameters in float32 as the input is, got ['float64']",
        ),
        (lambda m: m.graph.node[1].input.__setitem__(0, "nowhere"), ValueError, "expected a whole ONNX model"),
        (lambda m: m.graph.ClearField("name"), ValueError, "expected a whole ONNX model"),
    ],
)
def test_models_that_are_none_are_refused(change, error, words):
    broken = model(CHAIN, WEIGHTS)
    change(broken)
    with pytest.raises(error) as caught:
        from_onnx(broken.SerializeToString())
    assert words in str(caught.value)


def test_a_truncated_file_is_named(tmp_path):
    data, path = model(CHAIN, WEIGHTS).SerializeToString(), tmp_path / "cut.onnx"
    for length in (*range(0, len(data), 37), len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.onnx: expected a whole ONNX model, with all of its data"):
            from_onnx(path)
    path.write_bytes(data)
    assert from_onnx(str(path))(a(2, 3)).shape == (2, 2)
    with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
        from_onnx(tmp_path / "none.onnx")


def test_external_data_that_is_missing_or_cut_is_named(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(model(CHAIN, WEIGHTS), path, save_as_external_data=True, location="net.bin", size_threshold=0)
    assert from_onnx(path)(a(2, 3)).shape == (2, 2)
    data = (tmp_path / "net.bin").read_bytes()
    (tmp_path / "net.bin").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"net\.onnx: expected a whole ONNX model, with all of its data"):
        from_onnx(path)
    (tmp_path / "net.bin").unlink()
    with pytest.raises(ValueError, match=r"net\.onnx: expected a whole ONNX model, with all of its data: .*net\.bin"):
        from_onnx(path)


@pytest.mark.parametrize("given", [None, 3, object()])
def test_an_argument_that_is_no_model_is_refused(given):
    with pytest.raises(TypeError, match="model: expected a path or bytes, got"):
        from_onnx(given)


def test_outputs_that_differ_are_an_error(monkeypatch):
    monkeypatch.setattr(layers.Tanh, "value", lambda self, x: x)
    with pytest.raises(
        ValueError, match=r"output: expected that of onnx\.reference, of at most .*, got one that differs"
    ):
        taken(CHAIN, WEIGHTS)


def test_an_infinite_output_hides_no_difference(monkeypatch):
    monkeypatch.setattr(layers.Tanh, "value", lambda self, x: 1.01 * x)
    nodes = [("Log", "x", "l", {}), ("Tanh", "x", "t", {}), ("Add", "l t", "y", {})]
    words = r"output: expected that of onnx\.reference, of at most 1.*, got one that differs"
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=words):
        taken(nodes, example=np.array([[0.0, 1, 2]]))


def test_the_extra_is_named():
    code = "import sys; sys.modules['onnx'] = None; import gbackprop as gb; gb.interop.from_onnx(b'')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    words = "gb.interop.from_onnx: the package 'onnx' is not installed; pip install \"gbackprop[onnx]\"\n"
    assert done.stderr.endswith(words), done.stderr


@pytest.mark.parametrize("quotient", [("x", "c"), ("c", "x"), ("x", "w"), ("x", "x")])
def test_equal_numbers_are_equal_after_quotients(quotient):
    nodes = [("Div", " ".join(quotient), "q", {}), ("GreaterOrEqual", "q one", "more", {}),
             ("Where", "more w x", "y", {})]  # fmt: skip
    w, x = np.array([49.0, 41, 47]), np.array([[49.0, 41, 47], [98, 49, 49]])
    network = taken(nodes, {"c": np.array(49.0), "one": np.array(1.0), "w": w})
    more = {"x": x, "c": 49.0, "w": w}
    want = np.where(more[quotient[0]] / more[quotient[1]] >= 1, w, x)
    np.testing.assert_array_equal(network(x), want)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(("op", "row"), [
    ("Mul", "'affine', factor=2.0"), ("Div", "'divided_by', number=2.0"), ("Pow", "'power', exponent=2.0"),
    ("Sub", "'affine', shift=-2.0"),
])  # fmt: skip
def test_one_number_of_no_more_axes_is_an_option_of_a_row(op, row, shape):
    network = taken([(op, "x w", "y", {})], {"w": np.full(shape, 2.0)})
    assert repr(network) == f"Sequential(Operation({row}))"
