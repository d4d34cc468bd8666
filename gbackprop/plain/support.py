"""Reasons why the layers of a network cannot give what quantities need, and checks of layers that do not ship."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any
from weakref import finalize

from gbackprop.array import Array
from gbackprop.base.checks import is_original, own_methods
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import REDUCTIONS, Bias, Outer, ParameterJacobian, Reduction
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.calculus.mixed import jacobians_of_zeros, lacks_mixed
from gbackprop.calculus.signals import RESIDUAL
from gbackprop.calculus.state import settings_of
from gbackprop.calculus.views import Swapped, Viewed, outer_of
from gbackprop.calculus.walk import values_upwards
from gbackprop.plain.affine import lacks_affinity
from gbackprop.plain.contract import check_contract
from gbackprop.plain.flow import Flow
from gbackprop.quantities.base import Quantity

_CHECKED: dict[int, dict[Hashable, dict[str, str]]] = {}
"""The checks that each layer from outside this package, by its id, has passed, with the digest of its attributes."""


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
    """Return the reason why a layer cannot give a reduction that its Jacobians must define themselves, or None."""
    reason = _lacks_factor(leaf, flow, reduction)
    return reason and f"{reason}{left_out(leaf)}"


def _lacks_factor(leaf: Leaf, flow: Flow | None, reduction: Reduction) -> str | None:
    name, base = reduction.name, getattr(ParameterJacobian, reduction.name, None)
    if isinstance(reduction, Viewed) and reduction.lacks and (reason := reduction.lacks(leaf, flow and flow.uses)):
        return reason
    tied = flow is not None and any(flow.uses[name] > 1 for name in leaf.parameters.values())
    for key, jacobian in jacobians_of_zeros(leaf).items():
        if key not in leaf.parameters:
            continue
        if getattr(type(jacobian), name, base) is base or _is_of_another(jacobian, reduction):
            return _lacks_reduction(reduction, key)
        known = type(jacobian) in (Outer, Bias, Swapped) and is_original(jacobian)
        special = tied and name == "input_square" and not known
        if special and jacobian.input_square() is not None:
            return f"its {key} is used at several places, and its factor A cannot be that of all of them"
    return None


def _is_of_another(jacobian: ParameterJacobian, reduction: Reduction) -> bool:
    """Return whether a factor is that of a weight with positions, and Jᵀ g is a user's, who wrote no factor for it."""
    weight = isinstance(getattr(jacobian, "outer", jacobian), Outer) and outer_of(jacobian) is None
    return weight and (isinstance(reduction, Viewed) or reduction.name not in own_methods(jacobian))


def _lacks_reduction(reduction: Reduction, key: str) -> str:
    """Return the reason for a parameter whose Jacobian has no method for a reduction."""
    if reduction.name in REDUCTIONS:
        return f"its {key} has no Kronecker factors{' of KFRA' if reduction.name == 'average_kronecker' else ''}"
    return f"the Jacobian of its {key} has no method {reduction.name}, and that reduction has no formula"


def left_out(leaf: Leaf) -> str:
    """Return words on how to do without the Kronecker factors of a layer."""
    names = ", ".join(map(repr, leaf.parameters.values()))
    return f" (leave it out with network.freeze({names}), or ask for another quantity)"


def lacks_residual(leaf: Leaf, flow: Flow | None) -> str | None:
    """Return the reason why a layer cannot start the columns of its residual, or None."""
    layer = leaf.layer
    if layer.curvature != "zero" and type(layer).residual is Layer.residual and not leaf.lowest:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if flow is not None and not is_original(layer):
        return lacks_mixed(leaf, flow.mixed(leaf))
    return None


def check_own(leaves: Sequence[Leaf], x: Array, training: bool, needs: Sequence[tuple[Quantity, Any]]) -> None:
    """Check the layers that do not ship on up to eight samples, at the first call and the first of several samples.

    A layer with other attributes than at its check is checked again.
    They must be affine in their parameters if a quantity `needs` the residual, and in their inputs where it is mixed.
    """
    own = [leaf for leaf in leaves if not is_original(leaf.layer)]
    facts = {leaf.position: ("contract", training, leaf.input_shapes, len(x) > 1) for leaf in own}
    _check_once(leaves, x, facts, lambda leaf, inputs: check_contract(leaf, inputs, training))
    for quantity, statistics in needs:
        if any(statistic.signal == RESIDUAL for statistic in statistics):
            check_affine(leaves, x, type(quantity).__name__, Flow(leaves).mixed)


def check_affine(
    leaves: Sequence[Leaf], x: Array, what: str, mixed: Callable[[Leaf], Iterable[str]], together: bool = False
) -> None:
    """Check that layers that do not ship are affine in their parameters, for `what` needs it, at its first call.

    For the parameters in `mixed` they must be affine in their inputs, too.
    """

    def check(leaf: Leaf, inputs: list[Array]) -> None:
        reason = lacks_affinity(leaf, inputs, together) or lacks_mixed(leaf, mixed(leaf), *inputs[:1])
        if reason is not None:
            raise UnsupportedError(f"{leaf} cannot give {what}: {reason}")

    own = [leaf for leaf in leaves if leaf.parameters and not is_original(leaf.layer)]
    _check_once(leaves, x, {leaf.position: ("affine", together, *leaf.parameters, *mixed(leaf)) for leaf in own}, check)


def _check_once(
    leaves: Sequence[Leaf], x: Array, facts: Mapping[int, Hashable], check: Callable[[Leaf, list[Array]], Array | None]
) -> None:
    """Check facts of the layers at some positions that are not known yet; `check` may return a layer's output."""
    settings = {i: settings_of(leaves[i].layer) for i in facts}
    if all(_passed(leaves[i].layer).get(fact) == settings[i] for i, fact in facts.items()):
        return
    at = {INPUT: x[:8].copy()}
    for leaf, inputs in values_upwards(leaves, at):
        y = check(leaf, inputs) if leaf.position in facts else None
        at[leaf.position] = leaf.layer.forward(*inputs)[0] if y is None else y
    for i, fact in facts.items():
        _passed(leaves[i].layer)[fact] = settings[i]


def _passed(layer: Layer) -> dict[Hashable, dict[str, str]]:
    """Return the checks that a layer has passed, as long as it exists; a dataclass has no hash."""
    if id(layer) not in _CHECKED:
        _CHECKED[id(layer)] = {}
        finalize(layer, _CHECKED.pop, id(layer)).atexit = False
    return _CHECKED[id(layer)]
