"""Checks that layers have what the Hessian's product needs, made before anything is computed."""

from __future__ import annotations

from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.mixed import lacks_mixed


def lacks_second(leaf: Leaf) -> str | None:
    """Return the reason why a layer lacks second-order terms of the Hessian, or None."""
    layer = leaf.layer
    if not leaf.lowest and layer.curvature != "zero" and type(layer).residual is Layer.residual:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if is_shipped(layer) or not leaf.parameters:
        return None
    if not leaf.lowest:
        if len(leaf.sources) > 1:
            return "it has parameters and several inputs, and there is no mixed residual of these"
        if lacks_mixed(leaf, leaf.parameters):
            return "it has parameters, is not affine in its input, and has no mixed residual"
    return None
