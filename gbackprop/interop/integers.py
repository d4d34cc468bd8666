"""torch's integers, which are floats here: bounds that are known, and checks where these do not suffice."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.several import LARGEST
from gbackprop.interop.calls import FunctionCall, is_number
from gbackprop.interop.layouts import Fixed, Place
from gbackprop.layers.embedding import Exact

NARROW = {torch.uint8, torch.int8, torch.int16}
"""Integers for which what is larger in others has another value."""

COMPUTED = {"add", "add_", "sub", "subtract", "rsub", "mul", "multiply", "pow", "square", "sum", "prod", "cumsum"}
"""Functions whose integers may be larger than those that they take."""

CHOSEN = {"where", "masked_fill", "maximum", "minimum"}
"""Functions whose integers are among those of several tensors and numbers."""

MOVED = {
    "_to_copy", "to", "type_as", "clone", "contiguous", "alias", "view", "reshape", "_unsafe_view", "flatten", "detach",
    "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "expand", "expand_as", "select", "slice",
    "amax", "amin",
}  # fmt: skip
"""Functions whose integers are among those of the first tensor."""

Extent = tuple[float, float]


def is_integer(dtype: torch.dtype) -> bool:
    """Return whether a dtype is one of integers, of which conditions are none."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def check_cast(call: FunctionCall, before: torch.dtype, after: torch.dtype) -> None:
    """Check that integers of one dtype are the same in another."""
    from_, to = torch.iinfo(before), torch.iinfo(after)
    least, most = extent(call, call.node.args[0])
    if max(from_.min, least) < to.min or min(from_.max, most) > to.max:
        raise UnsupportedError(f"expected a cast to integers that have all of {before}, got {after}")


def exactly(rule: Callable[[FunctionCall], Any]) -> Callable[[FunctionCall], Any]:
    """Return a function whose integers are checked where they may be none of the network's, or wrap around in torch."""

    def checked(call: FunctionCall) -> Any:
        dtype, kinds = call.node.meta["val"].dtype, [each.meta["val"].dtype for each in call.node.all_input_nodes]
        if not is_integer(dtype):
            return rule(call)
        if any(each.is_floating_point for each in kinds) or call.given.get("alpha", 1) != 1:
            raise UnsupportedError("expected integers that are computed of integers, without alpha, got others")
        exact = LARGEST[str(call.assembly.dtype).removeprefix("torch.")]
        if any(is_number(value) and abs(extent(call, value)[0]) > exact for value in call.given.values()):
            raise UnsupportedError(f"expected numbers of at most {exact}, which {call.assembly.dtype} has, got others")
        known = max(map(abs, extent(call, call.node))) < LARGEST["float32"]
        if not known and call.assembly.function(call.node) == "sum":
            place = call.place(call.self)
            axes = place.layout.axes_of(call.given.get("dim"))
            call.given["self"] = Place(_exact(call, place.name, dtype, axes), place.layout)
            return rule(call)
        return rule(call) if known else _exact(call, rule(call), dtype)

    return checked


def _exact(call: FunctionCall, name: str, dtype: torch.dtype, axes: Any = None) -> str:
    return call.add(Exact(name, torch.iinfo(dtype).max, axes), name)


def extent(call: FunctionCall, value: Any) -> Extent:
    """Return the least and the largest that integers may be, by conditions, fixed numbers and shapes."""
    if is_number(value):
        number: Any = value.number if isinstance(value, Fixed) else value
        return (number, number)
    if not isinstance(value, torch.fx.Node):
        return (-inf, inf)
    if "extent" not in value.meta:
        value.meta["extent"] = _extent(call, value)
    return value.meta["extent"]


def _extent(call: FunctionCall, node: torch.fx.Node) -> Extent:
    fixed, found = call.assembly.values.get(node), node.meta["val"]
    if not isinstance(found, torch.Tensor) or node.op != "call_function":
        return (0, 1) if getattr(found, "dtype", None) == torch.bool else (-inf, inf)
    if found.dtype == torch.bool:
        return (0, 1)
    if isinstance(fixed, Fixed) and fixed.value.numel():
        return (float(fixed.value.min()), float(fixed.value.max()))
    name = call.assembly.function(node)
    if name in CHOSEN:
        lows, highs = zip(*[extent(call, value) for value in node.args])
        return (min(lows), max(highs))
    low, high = extent(call, node.args[0]) if node.args else (-inf, inf)
    if name in MOVED:
        return (low, high)
    if name in ("sum", "cumsum"):
        shape, dims = node.args[0].meta["val"].shape, node.args[1] if len(node.args) > 1 else []
        sizes = [shape[dim] for dim in ([dims] if isinstance(dims, int) else dims)]
        count = prod(sizes) if sizes and all(isinstance(size, int) for size in sizes) else inf
        return (_product(min(low, 0), count), _product(max(high, 0), count))
    if name not in ("add", "sub", "mul") or node.kwargs or len(node.args) != 2:
        return (-inf, inf)
    least, most = extent(call, node.args[1])
    if name == "mul":
        products = [_product(a, b) for a in (low, high) for b in (least, most)]
        return (min(products), max(products))
    return (low + least, high + most) if name == "add" else (low - most, high - least)


def _product(a: float, b: float) -> float:
    return a * b if a and b else 0  # 0 · ∞, too
