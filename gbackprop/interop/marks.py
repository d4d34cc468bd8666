"""Calls that stand in what torch.export captures for what it does not show: whole modules, and missing gradients."""

from __future__ import annotations

import inspect
import re
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from gbackprop.base.errors import UnsupportedError

LIBRARY = torch.library.Library("gbackprop", "DEF")
OF = "Tensor x, Tensor? mask, str path, str entry, SymInt[] shape, ScalarType dtype, int number=0"
LIBRARY.define(f"whole({OF}) -> Tensor")


@torch.library.impl(LIBRARY, "whole", "CompositeExplicitAutograd")
def _whole(x: Any, mask: Any, path: str, entry: str, shape: Any, dtype: Any, number: int = 0) -> torch.Tensor:
    return x.new_empty(shape, dtype=dtype)


def whole(x: Any, mask: Any, path: str, entry: str, shape: Any, dtype: Any, number: int = 0) -> torch.Tensor:
    """Record a call as one node: the number-th of a module, or torch's dropout; return one of its outputs."""
    return torch.ops.gbackprop.whole(x, mask, path, entry, list(shape), dtype, number)


def columns(x: torch.Tensor, start: int, shape: Any, dtype: torch.dtype, key: str) -> torch.Tensor:
    """Return one of several inputs, whose columns x has side by side, by its name."""
    return x[:, start : start + prod(shape[1:])].reshape(shape).to(dtype)


LIBRARY.define("columns(Tensor x, int start, SymInt[] shape, ScalarType dtype, str key) -> Tensor")
torch.library.impl(LIBRARY, "columns", "CompositeExplicitAutograd")(columns)


DROPOUT = "dropout "
"""In place of a path: the function, before its probability."""


class Visible(TorchFunctionMode):
    """Makes calls of what does nothing to numbers: dropout in evaluation mode, and no gradients, which is `detach`."""

    def __init__(self) -> None:
        super().__init__()
        self.grows = True  # as the module's code says: a torch.autograd.Function has no gradients inside, either
        self.cut: dict[int, torch.Tensor] = {}  # by identity, without a gradient: what is written there has none

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        of_function = self.grows and not torch.is_grad_enabled()
        found = _kept(func, *args, **(kwargs or {}))
        first: Any = args[0] if args else None
        if func is torch._C._set_grad_enabled and not of_function:
            self.grows = first
        off = torch.is_inference_mode_enabled() or not (self.grows or torch.is_grad_enabled())
        if (off or id(first) in self.cut) and _writes(func):
            first.copy_(torch.detach(first))
        if off:
            found = tree_map_only(torch.Tensor, torch.detach, found)
        if off or id(first) in self.cut or func in DETACHING:
            self.cut.update((id(each), each) for each in tree_leaves(found) if isinstance(each, torch.Tensor))
        return found


DATA = torch.Tensor.data
"""The property that gives a tensor's numbers, without a gradient, in the same memory."""

DETACHING = DATA.__get__, torch.detach, torch.Tensor.detach
"""Functions whose results have no gradient, and the memory of what may have one."""

WRITES = re.compile(r"(?!requires_grad_|detach_).*[^_]_|__setitem__|__i(?!nvert|ndex|nt).+__")
"""The names of methods that write into a tensor."""


def _writes(func: Any) -> bool:
    return bool(WRITES.fullmatch(getattr(func, "__name__", "")))


def _kept(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function; dropout that does nothing keeps its probability, and `data` is `detach`."""
    if func == DATA.__get__:
        return torch.detach(*args)
    if func == DATA.__set__:
        raise UnsupportedError("expected tensors that are computed, got numbers that are assigned to .data (use a new "
                               "tensor, or torch.nn.utils.parametrize for a parameter)")  # fmt: skip
    if func is torch.nn.functional.dropout:
        given = inspect.signature(func).bind(*args, **kwargs)
        given.apply_defaults()
        if not given.arguments["training"]:
            x, p = given.arguments["input"], given.arguments["p"]
            return whole(x, None, f"{DROPOUT}{p}", "", x.shape, x.dtype)
    return func(*args, **kwargs)
