"""Drawn graphs of operations, parameters, fixed arrays and layers."""

import numpy as np

import gbackprop as gb
from gbackprop import layers
from gbackprop.layers import Constant, Operation, Parameter

SMOOTH = ("sin", "cos", "arctan", "square", "erf", "absolute", "exp", "expm1", "sinh", "cosh", "negative", "sign")
POSITIVE = ("log", "log1p", "sqrt", "root", "rsqrt", "reciprocal")
PAIRS = ("add", "subtract", "multiply", "maximum", "minimum", "greater", "less_equal")
OVER = ("sum", "mean", "max", "min", "var", "logsumexp", "prod")
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
        if rng.random() < 0.5:  # long programs, not wide ones
            a = names[-1]
        layer, taken = drawn_operation(rng, a, b, shapes)
        try:
            shape = layer.output_shape(*[shapes[name] for name in taken])
        except ValueError:
            layer, taken, shape = layers.Tanh(), (a,), shapes[a]
        if np.prod(shape) > 12:
            layer, taken, shape = Operation("mean", axis=-1), (a,), shapes[a][:-1]
        bound = layers.Softplus() if getattr(layer, "name", "") in (*POSITIVE, "divide") else layers.Tanh()
        nodes |= {f"n{i}_{k}": (bound, name) for k, name in enumerate(taken)}
        nodes[f"n{i}"] = (layer, *[f"n{i}_{k}" for k in range(len(taken))])
        shapes[f"n{i}"] = shape
    flat, used = [], {taken for node in nodes.values() for taken in node[1:]}
    for name in (name for name in shapes if name not in used or name == "input"):  # every node is used
        nodes[f"{name}_flat"] = (Operation("reshape", shape=(-1,)), name)
        flat.append(f"{name}_flat")
    nodes["all"] = (Operation("concatenate", axis=1), *flat, *flat[:1])
    size = sum(int(np.prod(shapes[name.removesuffix("_flat")])) for name in (*flat, flat[0]))
    nodes["bounded"] = (layers.Tanh(), "all")
    nodes["last"] = (layers.Linear(size, 2), "bounded")
    network = gb.Graph(nodes, rng=int(rng.integers(1000)), dtype="float64")
    for value in network.parameters.values():
        value += rng.uniform(-0.1, 0.1, value.shape)  # a bias of zeros is a tie for a maximum, and a kink for others
    return network


def drawn_operation(rng, a, b, shapes):
    """Return a layer, and the nodes that it takes; they may not fit."""
    shape, other = shapes[a], shapes[b]
    ndim, size = len(shape), int(np.prod(shape))
    axis = int(rng.integers(1, ndim + 1)) if ndim else 1
    along = shape[axis - 1] if ndim else 1
    kind = rng.choice(["curve", "pair", "over", "product", "layer", "move", "join", "tie"])
    if kind == "pair":
        return Operation(rng.choice([*PAIRS, "divide"]).item()), (a, b)
    if kind == "over" and ndim:
        every = rng.random() < 0.3
        return Operation(rng.choice(OVER).item(), axis=None if every else axis, keepdims=bool(rng.integers(2))), (a,)
    if kind == "product":
        letters, more = "ab"[:ndim], "bc"[: len(other)]
        out = "".join(x for x in dict.fromkeys(letters + more) if rng.random() < 0.6)
        einsum = Operation("einsum", subscripts=f"{letters},{more}->{out}")
        return [Operation("matmul"), einsum][rng.integers(2)], (a, b)
    if kind == "join":
        joins = Operation("concatenate", axis=axis), Operation("stack", axis=axis)
        return joins[rng.integers(2)], (a, a if shape != other else b)
    if kind == "tie":
        return [(Operation("where"), (b, a, a)), (Operation("clip", least=-0.5, most=0.5), (a,)),
                (Operation("power", exponent=int(rng.integers(4))), (a,)),
                (Operation("affine", factor=-1.5, shift=0.5), (a,))][rng.integers(4)]  # fmt: skip
    if kind == "move" and ndim:
        moves = {
            "flip": {}, "reshape": {"shape": (-1,)}, "transpose": {}, "cumsum": {"axis": axis}, "tril": {},
            "roll": {"shift": 1, "axis": axis}, "repeat": {"repeats": 2, "axis": axis},
            "take": {"indices": rng.integers(along, size=3), "axis": axis},
            "gather": {"places": rng.integers(size, size=(2, 2))},
            "scatter_add": {"places": rng.integers(4, size=shape), "shape": (4,)},
            "pad": {"widths": ((1, 0),) * ndim, "mode": rng.choice(["constant", "edge"]).item()},
            "getitem": {"index": (..., slice(0, 1 + along // 2))}, "broadcast_to": {"shape": (2, *shape)},
            "along": {"matrix": rng.standard_normal((2, along)), "axis": axis},
            "interpolate": {"size": 3, "mode": "linear"},
        }  # fmt: skip
        name = rng.choice(list(moves)).item()
        return Operation(name, **moves[name]), (a,)
    if kind == "layer" and ndim and shape[-1] > 1:
        made = [layers.Softmax(-1), layers.LayerNorm(shape[-1]), layers.Linear(shape[-1], 2), Operation("log_softmax"),
                Operation("glu")]  # fmt: skip
        return made[rng.integers(len(made))], (a,)
    return [layers.Tanh(), *(Operation(rng.choice(each).item()) for each in (SMOOTH, POSITIVE))][rng.integers(3)], (a,)
