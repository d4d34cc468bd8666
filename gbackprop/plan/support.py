"""Reasons why the layers of a network cannot give what quantities need, and checks of layers that do not ship."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

from gbackprop.array import Array
from gbackprop.errors import UnsupportedError
from gbackprop.layers.base import INPUT, Layer, Leaf, jacobians_of_zeros
from gbackprop.layers.jacobian import Bias, Outer, ParameterJacobian, Reduction
from gbackprop.layers.mixed import lacks_mixed
from gbackprop.layers.views import Viewed
from gbackprop.plan.contract import check_contract
from gbackprop.plan.flow import Flow

SHIPPED = "gbackprop."
"""Where the layers' modules are that the tests check; all others are checked at their first call."""

_CHECKED: WeakSet[Layer] = WeakSet()


def check_chain(leaves: Sequence[Leaf]) -> None:
    """Check that KFRA's recursion, which is for chains, can pass the layers that the sweep visits."""
    for leaf in leaves:
        if leaf.swept and not leaf.lowest and leaf.sources != (leaf.position - 1,):
            taken = [leaves[source].name if source != INPUT else "the input" for source in leaf.sources]
            raise UnsupportedError(
                f"{leaf} cannot give KFRA: its recursion is for chains, and this layer takes {' and '.join(taken)}"
            )
    for name, number in Flow(leaves).uses.items():
        if number > 1:
            raise UnsupportedError(f"parameter {name} cannot give KFRA: it is used at {number} places")


def lacks_factor(leaf: Leaf, flow: Flow | None, reduction: Reduction) -> str | None:
    """Return the reason why a Jacobian cannot give a reduction that it must define itself, or None."""
    name, base = reduction.name, getattr(ParameterJacobian, reduction.name, None)
    if isinstance(reduction, Viewed) and reduction.lacks and (reason := reduction.lacks(leaf, flow and flow.uses)):
        return reason
    tied = flow is not None and any(flow.uses[name] > 1 for name in leaf.parameters.values())
    for key, jacobian in jacobians_of_zeros(leaf).items():
        if key not in leaf.parameters:
            continue
        if getattr(type(jacobian), name, base) is base:
            return f"the Jacobian of its {key} has no {name.replace('_', ' ')}"
        special = tied and name == "input_square" and type(jacobian) not in (Outer, Bias)
        if special and jacobian.input_square() is not None:
            return f"its {key} is used at several places, and its factor A cannot be that of all of them"
    return None


def lacks_residual(leaf: Leaf, flow: Flow | None) -> str | None:
    """Return the reason why a layer cannot start the columns of its residual, or None."""
    layer = leaf.layer
    if layer.curvature != "zero" and type(layer).residual is Layer.residual and not leaf.lowest:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if flow is not None and not layer.__module__.startswith(SHIPPED):
        return lacks_mixed(leaf, flow.mixed(leaf))
    return None


def check_contracts(leaves: Sequence[Leaf], x: Array) -> None:
    """Check the layers that do not ship, each at its first call, on up to eight samples."""
    if all(leaf.layer in _CHECKED or leaf.layer.__module__.startswith(SHIPPED) for leaf in leaves):
        return
    at = {INPUT: x[:8].copy()}
    for leaf in leaves:
        inputs = [at[source] for source in leaf.sources]
        taken = leaf.layer.__module__.startswith(SHIPPED) or any(x.dtype.kind != "f" for x in inputs)
        at[leaf.position] = leaf.layer.forward(*inputs)[0] if taken else check_contract(leaf, *inputs)
    _CHECKED.update(leaf.layer for leaf in leaves if not leaf.layer.__module__.startswith(SHIPPED))
