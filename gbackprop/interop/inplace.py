"""Functions in the place of those that write into a tensor, where nothing else views it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

FRESH = {"aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::batch_norm", "aten::layer_norm",
         "aten::matmul", "aten::softmax", "aten::group_norm"}  # fmt: skip
"""Functions that are composed of others, and give a new tensor."""


def functional(graph: torch.fx.Graph, tables: Collection[str], known: Collection[str]) -> bool:
    """Replace functions that write; return whether all others are known, so that torch has not to decompose any.

    A function that writes into a new tensor, of which no view was taken, is the one without its underscore, and who
    takes the tensor later takes its result.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    done = True
    for node in graph.nodes:
        target = node.target
        if isinstance(target, HigherOrderOperator):
            done = False
        elif isinstance(target, OpOverload):
            full, name = target.name().removeprefix("aten::"), target._schema.name.removeprefix("aten::")
            if target._schema.is_mutable and name != "detach_":
                done = _replaced(node, order) and done
            done = done and full not in tables and (name in known or not _is_composed(target))
    return done


def _replaced(node: torch.fx.Node, order: dict[torch.fx.Node, int]) -> bool:
    """Replace a function that writes into its first argument, if that is new and has no views."""
    target: Any = node.target
    base: Any = node.args[0] if node.args else None
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_"), None)
    found = getattr(packet, target._overloadname, None)
    if found is None or found is target or not isinstance(base, torch.fx.Node) or "val" not in base.meta:
        return False
    kinds = {each.meta["val"].dtype for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)}
    users = [user for user in base.users if order[user] < order[node]]
    is_output = any(user.op == "output" for user in base.users)
    if is_output or kinds != {base.meta["val"].dtype} or not all(map(_is_new, [base, *users])):
        return False
    node.target = found
    base.replace_all_uses_with(node, delete_user_cb=lambda user: order[user] > order[node])
    return True


def _is_new(node: torch.fx.Node) -> bool:
    """Return whether a call gives a tensor of its own."""
    target = node.target
    if not isinstance(target, OpOverload) or any(each.alias_info for each in target._schema.returns):
        return False
    return target._schema.name in FRESH or not _is_composed(target)


def _is_composed(target: OpOverload) -> bool:
    """Return whether torch computes a function by others, of which it may give views."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")
