"""torch's functions of tensors and parameters: products, convolutions, embeddings and attention."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.calls import FunctionCall, finite
from gbackprop.interop.layouts import MIXED, Fixed, Place, TensorLayout
from gbackprop.layers.elementwise.softmax import CausalSoftmax
from gbackprop.layers.embedding import OneHot


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
    a, b = (call.given.get(k) for k in (("mat1", "mat2") if "mat1" in call.given else ("batch1", "batch2")))
    whole = Place(call.scaled(product(call, a, b), call.given.get("alpha", 1)), call.layout)
    beta = call.given.get("beta", 1)
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
    """Return a sum of products of two tensors."""
    tensors = [call.place(value) for value in call.tensors]
    left, _, out = call.equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(tensors) != 2 or "." in left or not out or any(len(set(n)) < len(n) for n in names):
        raise UnsupportedError(f"expected two tensors and 'a,b->c' without repeated letters, got {call.equation!r}")
    places, wanted = [], out
    for i, (place, letters) in enumerate(zip(tensors, names, strict=True)):
        axis = place.layout.axis
        if axis is not None:
            if letters[axis] not in wanted:
                raise UnsupportedError(f"{MIXED}, got a sum over the samples")
            if place.layout.shape[axis] == 1:
                names[i] = letters[:axis] + letters[axis + 1 :]
                out = out.replace(letters[axis], "")
        places.append(place.name)
    return call.op("einsum", *places, subscripts=f"{names[0]},{names[1]}->{out}")


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


def convolution(call: FunctionCall) -> str:
    """Return a convolution, or the transpose of one."""
    if call.given.get("transposed"):
        return transposed(call)
    x, weight, bias = call.plain(call.input), call.weight, call.given.get("bias")
    (c, *size), shape = call.shape(x), call.place(weight).layout.shape
    dims, padding = len(size), call.given.get("padding", 0)
    padding = padding if isinstance(padding, str) else tuple(padding)
    options = [_several(call.given.get(key, 1), dims) for key in ("stride", "dilation")]
    groups = call.given.get("groups", 1)
    kind = getattr(layers, f"Conv{dims}d")

    def make() -> layers.Layer:
        return kind(c, shape[0], shape[2:], options[0], padding, options[1], groups, bias is not None)

    path = call.assembly.owner(call, ["weight"] if bias is None else ["weight", "bias"], make)
    if path is not None:
        return call.assembly.owned(call.node, path, x)
    patches = _patches(call, x, shape[2:], (*options, padding))  # (C k, L)
    k = prod(shape[1:])
    stacked = call.reshape(patches, (groups, k, call.shape(patches)[-1]))
    matrices = call.reshape(call.place(weight).name, (groups, shape[0] // groups, k))
    y = call.reshape(call.op("matmul", matrices, stacked), call.layout.features)
    if bias is None:
        return y
    return call.op("add", y, call.reshape(call.place(bias).name, (shape[0], *(1,) * dims)))


def _patches(call: FunctionCall, x: str, window: tuple[int, ...], options: tuple[Any, ...]) -> str:
    """Return the numbers under the windows of a convolution, ``(C, *S) -> (C K, L)``."""
    stride, dilation, padding = options
    c, *size = call.shape(x)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, window, strict=True)]
        pairs = [(each // 2, each - each // 2) for each in total]
    else:
        pairs = [(p, p) for p in _several(padding, len(size))]
    if any(map(any, pairs)):
        x = call.op("pad", x, widths=[(0, 0), *pairs])
    places = np.arange(prod(call.shape(x))).reshape(call.shape(x))
    views = np.lib.stride_tricks.sliding_window_view(
        places, [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)], tuple(range(1, len(size) + 1))
    )
    steps = (slice(None), *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    moved = np.moveaxis(views[steps], range(1, len(size) + 1), range(-len(size), 0))
    return call.op("gather", x, places=np.ascontiguousarray(moved.reshape(c * prod(window), -1)))


def transposed(call: FunctionCall) -> str:
    """Return the transpose of a convolution by a layer's own weight."""
    x, bias = call.plain(call.input), call.given.get("bias")
    (c, *size), shape = call.shape(x), call.place(call.weight).layout.shape
    names = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}
    options = {key: _several(call.given.get(key, default), len(size)) for key, default in names.items()}
    groups = call.given.get("groups", 1)
    kind = getattr(layers, f"ConvTranspose{len(size)}d")

    def make() -> layers.Layer:
        return kind(c, shape[1] * groups, shape[2:], bias=bias is not None, groups=groups, **options)

    path = call.assembly.owner(call, ["weight"] if bias is None else ["weight", "bias"], make)
    if path is None:
        raise UnsupportedError("expected weight and bias that are parameters of one module, and used there alone")
    return call.assembly.owned(call.node, path, x)


def _several(value: Any, dims: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, list | tuple) else (value,)
    return given * dims if len(given) == 1 else given


def unfold_images(call: FunctionCall) -> str:
    """Return the numbers under windows of images, as torch.nn.functional.unfold."""
    options = tuple(call.stride), tuple(call.dilation), tuple(call.padding)
    return _patches(call, call.plain(call.self), tuple(call.kernel_size), options)


def fold_images(call: FunctionCall) -> str:
    """Return images to which the numbers under windows are added, as torch.nn.functional.fold."""
    shape, x = call.layout.features, call.plain(call.self)
    options = {key: tuple(call.given[key]) for key in ("kernel_size", "dilation", "padding", "stride")}
    places = torch.arange(1, prod(shape) + 1, dtype=torch.float64).reshape(1, *shape)
    at = torch.nn.functional.unfold(places, **options)[0].long().numpy()  # 0 for those outside
    flat = call.op("scatter_add", x, places=at, shape=(prod(shape) + 1,))
    return call.reshape(call.op("getitem", flat, index=slice(1, None)), shape)


def embedding(call: FunctionCall) -> str:
    """Return rows of a weight, by integers that are the network's input or fixed."""
    indices, weight = call.indices, call.place(call.weight)
    if call.given.get("scale_grad_by_freq"):
        raise UnsupportedError("scale_grad_by_freq: expected False")
    rows, size = weight.layout.shape
    padding = call.given.get("padding_idx", -1)
    if isinstance(indices, Fixed):
        if padding >= 0:
            raise UnsupportedError("padding_idx: expected None for fixed indices")
        return call.op("take", weight.name, indices=indices.value.numpy(), axis=1)
    kind = layers.Embedding(rows, size, None if padding < 0 else padding)
    path = call.assembly.owner(call, ["weight"], lambda: kind)
    if path is not None:
        return call.assembly.owned(call.node, path, indices.name)
    chosen = call.add(OneHot(rows), indices.name)
    found = call.op("matmul", chosen, weight.name)
    if padding < 0:
        return found
    raise UnsupportedError("padding_idx: expected None of a weight that other modules use, too")


# ---------------------------------------------------------------------------------------------------------- attention


def attention(call: FunctionCall) -> str:
    """Return softmax(Q Kᵀ / √d + mask) V."""
    if call.given.get("dropout_p", 0):
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
    if isinstance(mask, Fixed) and mask.value.dtype == torch.bool:
        least = call.place(Fixed(torch.tensor(-torch.inf), TensorLayout(()), "masked"))
        return call.op("where", name, scores, least.name)
    return call.op("add", scores, name)


def _without_empty_rows(call: FunctionCall, weights: str, mask: Any) -> str:
    """Return weights that are 0 in rows that a fixed mask masks entirely, as in torch."""
    if not isinstance(mask, Fixed):
        return weights
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


PRODUCTS: dict[str, Callable[[FunctionCall], Any]] = {
    "matmul": lambda c: product(c, c.self, c.other), "mm": lambda c: product(c, c.self, c.mat2),
    "bmm": lambda c: product(c, c.self, c.mat2), "mv": lambda c: product(c, c.self, c.vec),
    "addmm": addmm, "baddbmm": addmm, "dot": dot, "vdot": dot, "einsum": einsum, "outer": outer, "linear": linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), transposed),
    "im2col": unfold_images, "col2im": fold_images, "embedding": embedding, "scaled_dot_product_attention": attention,
    "_safe_softmax": safe_softmax,
}  # fmt: skip
"""torch's functions by name: each gives the name of a node."""
