"""The words of programs: operators, methods, arrays that are written out, and names that Python takes."""

from __future__ import annotations

import ast
import keyword
import re

import numpy as np

LITERAL = 12
"""Most numbers of an array that is written out; a larger one, and on a device each, is among the constants."""

INFIX: dict[str, ast.operator] = {
    "add": ast.Add(), "subtract": ast.Sub(), "multiply": ast.Mult(), "divide": ast.Div(), "power": ast.Pow(),
    "matmul": ast.MatMult(), "floor_divide": ast.FloorDiv(), "remainder": ast.Mod(), "bitwise_and": ast.BitAnd(),
    "bitwise_or": ast.BitOr(), "bitwise_xor": ast.BitXor(),
}  # fmt: skip

COMPARED: dict[str, ast.cmpop] = {
    "less": ast.Lt(), "less_equal": ast.LtE(), "greater": ast.Gt(), "greater_equal": ast.GtE(), "equal": ast.Eq(),
    "not_equal": ast.NotEq(),
}  # fmt: skip

PREFIX: dict[str, ast.unaryop] = {"negative": ast.USub(), "invert": ast.Invert()}

METHODS = ("reshape", "transpose", "swapaxes", "sum", "mean", "max", "min", "astype", "argmax", "cumsum", "prod")
"""Functions of NumPy that are written as methods of their first argument."""

VIEWS = ("getitem", "reshape", "transpose", "swapaxes", "moveaxis", "broadcast_to", "ravel", "squeeze", "expand_dims",
         "sliding_window_view", "as_strided", "real", "imag", "diagonal", "split", "array_split", "atleast_1d",
         "atleast_2d", "atleast_3d", "rollaxis", "flip", "flipud", "fliplr", "rot90", "matrix_transpose",
         "permute_dims", "ascontiguousarray", "asarray", "hsplit", "vsplit", "dsplit", "broadcast_arrays",
         "real_if_close")  # fmt: skip
"""Functions whose result may be a view of their argument."""


def expression(text: str) -> ast.expr:
    """Parse an expression."""
    return ast.parse(text, mode="eval").body


def written(value: np.ndarray, listed: bool) -> str | None:
    """Return an array as text, None if that is long; a list of numbers only if `listed` says so."""
    dtype = f", dtype={value.dtype.name!r}"
    if value.ndim == 1 and value.dtype == np.int64 and value.size > 1 and (value == np.arange(value.size)).all():
        return f"np.arange({value.size})"
    content = value.tobytes()  # not what compares as equal: 0 and −0 do
    if value.size > 1 and content == value.flat[:1].tobytes() * value.size:
        first = repr(value.flat[0].item())
        name = {"0.0": "zeros", "0": "zeros", "1.0": "ones", "1": "ones"}.get(first)
        number = f"float({first!r})" if first in ("inf", "-inf", "nan") else first
        return f"np.{name}({value.shape}{dtype})" if name else f"np.full({value.shape}, {number}{dtype})"
    eye = np.eye(len(value), dtype=value.dtype) if value.ndim == 2 and len(value) > 1 else value[..., None]
    if value.shape == eye.shape and content == eye.tobytes():
        return f"np.eye({len(value)}{dtype})"
    finite = value.dtype.kind in "iub" or (value.dtype.kind == "f" and np.isfinite(value).all())
    if value.size <= LITERAL * listed and finite:
        return f"np.array({value.tolist()}{dtype})"
    return None


def identifier(name: str) -> str:
    """Return a name that Python takes."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not name or name[0].isdigit() or keyword.iskeyword(name) or name in RESERVED:
        name = f"{name}_" if name and not name[0].isdigit() else f"_{name}"
    return name


RESERVED = frozenset({"np", "special", "parameters", "random", "constants", "assigned", "slice", "R"})
