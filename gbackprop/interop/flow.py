"""The calls of a captured module that gradients flow through."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch

from gbackprop.interop.capture import Capture


def flow_of(capture: Capture, used: Sequence[torch.fx.Node], trained: Set[str]) -> set[torch.fx.Node]:
    """Return the calls, in the order of `used`, on paths of floats from data or trained parameters to the output."""
    flow, floats = {capture.output}, [node for node in used if _has_floats(node)]
    for node in reversed(floats):
        if node in flow:
            flow.update(node.all_input_nodes)
    live = {node for node, name in capture.parameters.items() if name in trained}
    live.update(filter(_has_floats, [capture.input]))
    for node in floats:
        if not live.isdisjoint(node.all_input_nodes):
            live.add(node)
    return flow & live


def _has_floats(node: torch.fx.Node) -> bool:
    """Return whether a call gives floats, which have gradients."""
    found = node.meta.get("val")
    several = found if isinstance(found, tuple | list) else [found]
    return any(isinstance(each, torch.Tensor) and each.is_floating_point() for each in several)
