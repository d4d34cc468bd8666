"""Drawn graphs of operations, parameters, fixed arrays and layers."""

import numpy as np

import gbackprop as gb
from gbackprop import layers
from gbackprop.layers import Constant, Operation, Parameter

SMOOTH = ("sin", "cos", "arctan", "square", "erf", "absolute")
SHAPES = ((), (3,), (1,), (2, 3), (2, 1), (1, 3))


def drawn_program(rng, length):
    """Return a graph of `length` operations on features (3,), parameters and fixed arrays, and a linear layer."""
    nodes, shapes = {}, {"input": (3,)}
    for i in range(rng.integers(1, 4)):
        shape = SHAPES[rng.integers(len(SHAPES))]
        nodes[f"p{i}"], shapes[f"p{i}"] = (Parameter(shape),), shape
    shape = SHAPES[rng.integers(len(SHAPES))]
    nodes["c"], shapes["c"] = (Constant(rng.uniform(-1, 1, shape)),), shape
    for i in range(length):
        names = list(shapes)
        a, b = (names[rng.integers(len(names))] for _ in range(2))
        layer, taken = drawn_operation(rng, a, b, shapes)
        nodes[f"n{i}"] = (layer, *taken)
        shapes[f"n{i}"] = layer.output_shape(*[shapes[name] for name in taken])
    flat = []
    for name in shapes:  # every node is used
        if name not in {taken for node in nodes.values() for taken in node[1:]} or name == "input":
            nodes[f"{name}_flat"] = (Operation("reshape", shape=(-1,)), name)
            flat.append(f"{name}_flat")
    nodes["all"] = (Operation("concatenate", axis=1), *flat, *flat[:1])
    size = sum(int(np.prod(shapes[name.removesuffix("_flat")])) for name in (*flat, flat[0]))
    nodes["bounded"] = (layers.Tanh(), "all")
    nodes["last"] = (layers.Linear(size, 2), "bounded")
    return gb.Graph(nodes, rng=int(rng.integers(1000)), dtype="float64")


def drawn_operation(rng, a, b, shapes):
    """Return a layer, and the nodes that it takes."""
    kind = rng.choice(["curve", "pair", "sum", "product", "layer", "mean", "move", "compose"])
    if kind == "pair" or (kind == "compose" and rng.random() < 0.5):
        return Operation(rng.choice(["add", "subtract", "multiply", "multiply", "maximum"]).item()), (a, b)
    shape = shapes[a]
    if kind == "product" and shape and shapes[b] and shape[-1] == shapes[b][-2:][0]:
        return Operation("matmul"), (a, b)
    if kind == "sum" and shape:
        return Operation("sum", axis=int(rng.integers(1, len(shape) + 1)), keepdims=bool(rng.integers(2))), (a,)
    if kind == "mean":
        return Operation("mean"), (a,)
    if kind == "move" and shape:
        return Operation("flip"), (a,)
    if kind == "compose":
        return Operation("logsumexp", keepdims=True), (a,)
    if kind == "layer" and shape and shape[-1] > 1:
        return [layers.Softmax(-1), layers.LayerNorm(shape[-1]), layers.Linear(shape[-1], 2)][rng.integers(3)], (a,)
    return [layers.Tanh(), Operation(rng.choice(SMOOTH).item())][rng.integers(2)], (a,)
