"""Checks of what a call asks of a network: each comes before any computation, and names the layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from gbackprop import layers as shipped
from gbackprop.array import Array
from gbackprop.checks import check_contract
from gbackprop.errors import UnsupportedError
from gbackprop.layers.base import INPUT, Layer, Leaf, jacobians_of_zeros
from gbackprop.layers.jacobian import REDUCTIONS, Bias, Outer, ParameterJacobian
from gbackprop.layers.mixed import MixedLayer
from gbackprop.losses.base import Loss
from gbackprop.plan.flow import Flow
from gbackprop.quantities.base import Quantity, Statistic
from gbackprop.signals import RESIDUAL

SHIPPED = frozenset(getattr(shipped, name) for name in shipped.__all__)
"""Layers that the tests check."""

_CHECKED: WeakSet[Layer] = WeakSet()


def check_kinds(network: Any, loss: Any, quantities: Sequence[Any], training: Any) -> None:
    """Check that arguments are a network, a loss, quantities and a choice."""
    for name, value, kind in (("network", network, Layer), ("loss", loss, Loss)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {value!r}")
    for i, quantity in enumerate(quantities):
        if not isinstance(quantity, Quantity):
            hint = " (call the class)" if isinstance(quantity, type) else ""
            raise TypeError(f"quantity {i}: expected a Quantity, got {quantity!r}{hint}")
        if not isinstance(getattr(quantity, "name", None), str):
            raise TypeError(f"quantity {i}, {type(quantity).__name__}: expected a name, by which results are found")
    if not isinstance(training, bool):
        raise TypeError(f"training: expected True or False, got {training!r}")


def check_contracts(leaves: Sequence[Leaf], x: Array) -> None:
    """Check the layers that do not ship, each at its first call, on up to eight samples."""
    if any(type(leaf.layer) not in SHIPPED and leaf.layer not in _CHECKED for leaf in leaves):
        at = {INPUT: x[:8].copy()}
        for leaf in leaves:
            inputs = [at[source] for source in leaf.sources]
            shipped = type(leaf.layer) in SHIPPED
            at[leaf.position] = leaf.layer.forward(*inputs)[0] if shipped else check_contract(leaf, *inputs)
        _CHECKED.update(leaf.layer for leaf in leaves if type(leaf.layer) not in SHIPPED)


def check_supported(
    leaves: Sequence[Leaf], flow: Flow | None, needs: Sequence[tuple[Quantity, tuple[Statistic, ...]]]
) -> None:
    """Check that every layer that the sweep visits provides what the quantities need; `flow` is None for a chain."""
    for leaf in leaves:
        if type(leaf.layer).mjp is Layer.mjp and not leaf.lowest:
            raise UnsupportedError(f"{leaf} cannot give a gradient: it has no mjp")
    for quantity, statistics in needs:
        for statistic in statistics:
            for leaf in leaves:
                reason = _lacks(leaf, flow, statistic)
                if reason is not None:
                    raise UnsupportedError(f"{leaf} cannot give {type(quantity).__name__}: {reason}")


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


def _lacks(leaf: Leaf, flow: Flow | None, statistic: Statistic) -> str | None:
    """Return the reason why a layer cannot give a statistic, or None."""
    layer, reduction = leaf.layer, statistic.reduction
    if statistic.signal == RESIDUAL and layer.curvature != "zero":
        if type(layer).residual is Layer.residual and not leaf.lowest:
            return f"its curvature is {layer.curvature!r}, and it has no residual"
        if flow is not None and flow.mixed(leaf) and not isinstance(layer, MixedLayer):
            return f"its input depends on its {next(iter(flow.mixed(leaf)))} too, and it has no mixed residual"
    if reduction.formula is not None or not leaf.parameters:
        return None
    tied = flow is not None and any(flow.uses[name] > 1 for name in leaf.parameters.values())
    if reduction.name in REDUCTIONS and layer.kronecker_factors is not None and not tied:
        return None if layer.kronecker_factors is True else str(layer.kronecker_factors)
    return _lacks_factor(leaf, tied, reduction.name)


def _lacks_factor(leaf: Leaf, tied: bool, name: str) -> str | None:
    """Return the reason why a Jacobian cannot give a reduction that it must define itself, or None."""
    base = getattr(ParameterJacobian, name, None)
    for key, jacobian in jacobians_of_zeros(leaf).items():
        if key not in leaf.parameters:
            continue
        if getattr(type(jacobian), name, base) is base:
            return f"the Jacobian of its {key} has no {name.replace('_', ' ')}"
        special = tied and name == "input_square" and type(jacobian) not in (Outer, Bias)
        if special and jacobian.input_square() is not None:
            return f"its {key} is used at several places, and its factor A cannot be that of all of them"
    return None
