"""torch's functions of tensors and parameters: products and attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.building import LEAST
from gbackprop.interop.calls import FunctionCall, finite
from gbackprop.interop.layouts import MIXED, Fixed, Place, TensorLayout
from gbackprop.layers.elementwise.softmax import CausalSoftmax


def product(call: FunctionCall, a: Any, b: Any) -> str:
    """Return the product of two matrices, or stacks of them."""
    a, b = call.place(a), call.place(b)
    left, right = a.layout, b.layout
    inner = (len(left.shape) - 1, max(len(right.shape) - 2, 0))
    if left.axis == inner[0] or right.axis == inner[1]:
        raise UnsupportedError(f"{MIXED}, got a sum over the samples")
    vector = len(left.shape) == 1 or len(right.shape) == 1
    if vector or (right.axis is None and len(right.shape) == 2):
        return call.op("matmul", a.name, b.name)
    if left.axis is None and len(left.shape) == 2 and len(right.shape) == 2:
        return call.op("matmul", a.name, b.name)
    ndim = len(call.layout.shape)
    if call.layout.axis is not None and call.layout.axis >= ndim - 2:
        raise UnsupportedError(f"{MIXED}, got the samples as rows of one of several matrices")
    names = call.fitted(a, call.layout, ndim), call.fitted(b, call.layout, ndim)
    shapes = [call.shape(name) for name in names]
    varies = left.axis is not None and right.axis is not None
    if varies and len(shapes[0]) >= 2 and shapes[0][:-2] == shapes[1][:-2]:
        return call.add(layers.MatMul(), *names)
    return call.op("matmul", *names)


def addmm(call: FunctionCall) -> str:
    """Return beta c + alpha a b."""
    a, b = (call.given[key] for key in ("mat1", "mat", "batch1", "mat2", "vec", "batch2") if key in call.given)
    whole = Place(call.scaled(product(call, a, b), call.given["alpha"]), call.layout)
    beta = call.given["beta"]
    if beta == 0:
        return whole.name
    c = call.place(call.self)
    return call.plus(whole, Place(call.scaled(c.name, beta), c.layout))


def dot(call: FunctionCall) -> str:
    """Return the product of two vectors."""
    return call.op(
        "matmul", call.place(call.self).name, call.place(call.given.get("tensor", call.given.get("other"))).name
    )


def einsum(call: FunctionCall) -> str:
    """Return a sum of products of tensors, of which the first two are multiplied first."""
    left, _, out = call.equation.replace(" ", "").partition("->")
    letters, places = left.split(","), [call.place(value) for value in call.tensors]
    counts = [len(p.layout.shape) - len(names) + 3 for p, names in zip(places, letters, strict=True) if "..." in names]
    if counts and "..." in out:  # the axes that an ellipsis stands for, from the last on
        free = "".join(each for each in "ABCDEFGHIJ" if each not in left)[: max(counts)]
        letters = [names.replace("...", free[len(free) - len(p.layout.shape) + len(names) - 3 :])
                   for p, names in zip(places, letters, strict=True)]  # fmt: skip
        out = out.replace("...", free)
    if len(places) < 2 or "." in "".join(letters) or not out or any(len(set(n)) < len(n) for n in letters):
        words = "'a,b->c', or more than two, without repeated letters"
        raise UnsupportedError(f"expected two tensors and {words}, got {call.equation!r}")
    for place, names in zip(places, letters, strict=True):
        if place.layout.axis is not None and names[place.layout.axis] not in out:
            raise UnsupportedError(f"{MIXED}, got a sum over the samples")
    features = {names[p.layout.axis] for p, names in zip(places, letters, strict=True)
                if p.layout.axis is not None and p.layout.shape[p.layout.axis] == 1}  # fmt: skip
    letters = ["".join(each for each in names if each not in features) for names in letters]
    names, found = [place.name for place in places], "".join(each for each in out if each not in features)
    while len(names) > 1:
        rest = found + "".join(letters[2:])
        made = found if len(names) == 2 else "".join(each for each in dict.fromkeys(letters[0] + letters[1])
                                                     if each in rest)  # fmt: skip
        names[:2] = [call.op("einsum", *names[:2], subscripts=f"{letters[0]},{letters[1]}->{made}")]
        letters[:2] = [made]
    return names[0]


# -------------------------------------------------------------------------------------------- layers with parameters


def linear(call: FunctionCall) -> str:
    """Return x Wᵀ + b."""
    x, bias = call.place(call.input), call.given.get("bias")
    keys = ["weight"] if bias is None else ["weight", "bias"]
    features, count = call.input.layout.shape[-1], call.layout.shape[-1]
    if x.layout.axis == len(x.layout.shape) - 1:
        raise UnsupportedError(f"{MIXED}, got a sum over the samples")
    path = call.assembly.owner(call, keys, lambda: layers.Linear(features, count, bias is not None))
    if path is not None:
        return call.assembly.owned(call.node, path, x.name)
    weight = call.op("transpose", call.place(call.weight).name)
    y = call.op("matmul", x.name, weight)
    return y if bias is None else call.op("add", y, call.place(bias).name)


# ---------------------------------------------------------------------------------------------------------- attention


def attention(call: FunctionCall) -> str:
    """Return softmax(Q Kᵀ / √d + mask) V."""
    if call.given["dropout_p"]:
        raise UnsupportedError("dropout_p: expected 0 in evaluation mode")
    q, k, v = (call.place(call.given[key]) for key in ("query", "key", "value"))
    ndim = len(call.layout.shape)
    if call.layout.axis is not None and call.layout.axis >= ndim - 2:
        raise UnsupportedError(f"{MIXED}, got attention among samples")
    names = [call.fitted(place, call.layout, ndim) for place in (q, k, v)]
    if call.given.get("enable_gqa"):
        names[1:] = [_repeated(call, name, call.shape(names[0])[-3]) for name in names[1:]]
    scale = call.given.get("scale")
    scaled = call.scaled(names[0], call.shape(names[0])[-1] ** -0.5 if scale is None else finite(scale))
    count = len(call.shape(names[1]))
    keys = call.add(layers.Permute((0, *range(1, count - 1), count, count - 1)), names[1])
    scores = _matmul(call, scaled, keys)
    mask = call.given.get("attn_mask")
    square = call.shape(scores)[-1] == call.shape(scores)[-2]
    causal = bool(call.given.get("is_causal"))
    if causal and mask is None and square:
        weights = call.add(CausalSoftmax(), scores)
    else:
        if causal:
            sizes = call.shape(scores)[-2:]
            mask = Fixed(torch.ones(sizes).tril().bool(), TensorLayout(sizes), "causal")
        weights = _without_empty_rows(call, call.add(layers.Softmax(-1), _masked(call, scores, mask)), mask)
    return _matmul(call, weights, names[2])


def _matmul(call: FunctionCall, a: str, b: str) -> str:
    same = call.shape(a)[:-2] == call.shape(b)[:-2]
    return call.add(layers.MatMul(), a, b) if same else call.op("matmul", a, b)


def _masked(call: FunctionCall, scores: str, mask: Any) -> str:
    if mask is None:
        return scores
    to = TensorLayout((*call.layout.shape[:-1], call.shape(scores)[-1]), call.layout.axis, call.layout.outer)
    place = call.place(mask, floats=False)
    name = call.fitted(place, to, len(to.shape))
    if _is_condition(call, mask):
        least = call.place(Fixed(torch.tensor(-torch.inf), TensorLayout(()), "masked"))
        return call.op("where", name, scores, least.name)
    return call.op("add", scores, name)


def _is_condition(call: FunctionCall, mask: Any) -> bool:
    return (mask.value.dtype if isinstance(mask, Fixed) else call.dtype("attn_mask")) == torch.bool


def _without_empty_rows(call: FunctionCall, weights: str, mask: Any) -> str:
    """Return weights that are 0 in rows that a mask masks entirely, as in torch."""
    if not isinstance(mask, Fixed):
        if mask is None or not (_is_condition(call, mask) or call.assembly.may_be_infinite(mask.name)):
            return weights
        if not _is_condition(call, mask) and call.assembly.may_be_least(mask.name):
            raise UnsupportedError("attn_mask: expected −inf, or finite numbers, at what is hidden, got both")
        to = TensorLayout((*call.layout.shape[:-1], 1), call.layout.axis, call.layout.outer)
        most = call.op("max", call.fitted(mask, to, len(to.shape)), axis=-1, keepdims=True)
        some = most if _is_condition(call, mask) else call.op("greater", most, call.place(LEAST).name)
        return call.op("multiply", weights, some)
    masked = ~mask.value if mask.value.dtype == torch.bool else mask.value == -torch.inf
    empty = masked.all(-1, keepdim=True)
    if not empty.any():
        return weights
    kept = Place(call.assembly.constant(call.node, Fixed((~empty).double(), mask.layout, f"{mask.name}_rows"), True),
                 TensorLayout((*mask.layout.shape[:-1], 1), mask.layout.axis, mask.layout.outer))  # fmt: skip
    to = TensorLayout((*call.layout.shape[:-1], call.shape(weights)[-1]), call.layout.axis, call.layout.outer)
    return call.op("multiply", weights, call.fitted(kept, to, len(to.shape)))


def _repeated(call: FunctionCall, name: str, heads: int) -> str:
    """Return each head as often as there are heads of queries for it."""
    own = call.shape(name)[-3]
    return name if own == heads else call.op("repeat", name, repeats=heads // own, axis=-3)


def safe_softmax(call: FunctionCall) -> str:
    """Return a softmax."""
    place = call.place(call.self)
    return call.add(layers.Softmax(place.layout.axis_of(call.dim) - len(place.layout.features) - 1), place.name)


def outer(call: FunctionCall) -> str:
    """Return the products of the entries of two vectors."""
    a, b = call.place(call.self), call.place(call.vec2)
    return call.op("multiply", call.op("reshape", a.name, shape=(*a.layout.shape, 1)), b.name)


def distances(call: FunctionCall) -> str:
    """Return the 2-norms of the differences of rows."""
    if call.p != 2:
        raise UnsupportedError(f"p={call.p} is not supported, expected 2")
    a, b = call.place(call.x1), call.place(call.x2)
    if b.layout.axis == len(b.layout.shape) - 2:
        raise UnsupportedError(f"{MIXED}, got distances among samples")
    names = [a.name, b.name]
    if a.layout.axis != len(a.layout.shape) - 2:
        names = [call.fitted(each, call.layout, len(call.layout.shape)) for each in (a, b)]
        one, two = map(call.shape, names)
        names = [call.reshape(names[0], (*one[:-1], 1, one[-1])), call.reshape(names[1], (*two[:-2], 1, *two[-2:]))]
    difference = call.op("subtract", *names)
    return call.op("norm", difference, axis=-1)


def bilinear(call: FunctionCall) -> str:
    """Return x₁ᵀ W x₂ + b."""
    a, b = call.place(call.input1), call.place(call.input2)
    ahead = "abcdefgh"[: len(call.shape(a.name)) - 1]
    halves = call.op("einsum", a.name, call.place(call.weight).name, subscripts=f"{ahead}x,zxy->{ahead}zy")
    y = call.op("einsum", halves, b.name, subscripts=f"{ahead}zy,{ahead}y->{ahead}z")
    return y if call.given.get("bias") is None else call.op("add", y, call.place(call.bias).name)


PRODUCTS: dict[str, Callable[[FunctionCall], Any]] = {
    "matmul": lambda c: product(c, c.self, c.other), "mm": lambda c: product(c, c.self, c.mat2),
    "bmm": lambda c: product(c, c.self, c.mat2), "mv": lambda c: product(c, c.self, c.vec),
    "addmm": addmm, "baddbmm": addmm, "addmv": addmm, "dot": dot, "vdot": dot, "einsum": einsum,
    "outer": outer, "linear": linear, "bilinear": bilinear,
    **dict.fromkeys(("cdist", "_cdist_forward"), distances),
    "scaled_dot_product_attention": attention,
    "_safe_softmax": safe_softmax,
}  # fmt: skip
"""torch's functions by name: each gives the name of a node."""
