"""The second-order terms of the Hessian's product: what the tangents of a layer's inputs and parameters change in Jᵀ g.

A layer y = f(x, p) with the gradient g at its output gives the gradients Jᵀ g at its input and J_pᵀ g in its parameter.
Along tangents ẋ and directions P both change, beside the change of g itself, by

    at the input       (∇²ₓ gᵀf) ẋ + (∂²(gᵀf) / ∂x ∂p) P
    in the parameter   Σₙ (∂²(gᵀf) / ∂p ∂x) ẋ

for a layer that is affine in each parameter. By the definition these are products with a layer's `residual` and with
`mixed_residual`. Classes of layers have shorter forms in the registry; with an empty one all results are the same up to
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import is_original
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.mixed import MixedLayer, is_added, lacks_mixed, mixed_residual
from gbackprop.calculus.residual import DiagonalFactors, Factored
from gbackprop.operators.linearized import Directions, Linearized, Tangents

COLUMN_BYTES = 2**26
"""Bytes of the columns of a factored residual that are formed at a time."""


class SecondOrder:
    """The second-order terms of each layer of a linearized network, for K directions.

    Parameters
    ----------
    at : Linearized
    directions : dict
    tangents : dict
        `Linearized.tangents` of these directions.
    """

    def __init__(self, at: Linearized, directions: Directions, tangents: Tangents) -> None:
        self.at, self.directions, self.tangents, self.context = at, directions, tangents, at.context()

    def inputs(self, leaf: Leaf) -> list[Array] | None:
        """Return ẋ of each input of a layer, None if all are zero."""
        mats = [self.tangents[source] for source in leaf.sources]
        return None if all(mat is None for mat in mats) else self.at.filled(leaf, mats, len(self.at.output))

    def on_inputs(self, leaf: Leaf) -> list[Array | None]:
        """Return what is added to Jᵀ ġ at each input of a layer."""
        saved, grad, inputs = self.at.saved[leaf.position], self.at.gradients[leaf.position], self.inputs(leaf)
        found: list[Array | None] = [None] * len(leaf.sources)
        if inputs is not None and leaf.curved:
            found = [*self.curved(leaf, saved, grad, inputs)]
        for key, name in leaf.parameters.items():
            if name in self.directions and not self.is_added(leaf, key):
                mixed = self.mixed_input(leaf, saved, key, grad, self.directions[name])
                found = [mixed if found[0] is None else found[0] + mixed]
        return found

    def on_parameter(self, leaf: Leaf, key: str) -> Array | None:
        """Return what is added to Σₙ J_pᵀ ġ in a parameter of a layer, None if that is nothing."""
        inputs = self.inputs(leaf)
        if inputs is None or self.is_added(leaf, key):
            return None
        saved, grad = self.at.saved[leaf.position], self.at.gradients[leaf.position]
        form = self.context.known.of(leaf.layer).mixed_parameter
        if form is not None:
            return form(leaf.layer, saved, grad, inputs[0], self.context)
        shape = (*inputs[0].shape[:2], *leaf.layer.parameters[key].shape)
        zeros = array_module(grad).zeros(shape, dtype=leaf.layer.parameters[key].dtype)
        residual = mixed_residual(leaf, saved, key, grad)
        return products(residual, [zeros, inputs[0]], leaf.layer.mixes)[0].sum(1)

    def is_added(self, leaf: Leaf, key: str) -> bool:
        """Return whether a parameter is added, so that no input multiplies it."""
        if isinstance(leaf.layer, MixedLayer):
            return leaf.layer.mixed_width(key, leaf.input_shape) == 0
        return is_added(self.at.jacobians[leaf.position][key])

    # ------------------------------------------------------------------------------------------------ by definition

    def curved(self, leaf: Leaf, saved: Any, grad: Array, inputs: Sequence[Array]) -> Sequence[Array]:
        """(∇²ₓ gᵀf) ẋ over all inputs of a layer."""
        form = self.context.known.of(leaf.layer).residual_product
        if form is not None:
            return form(leaf.layer, saved, grad, *inputs)
        residual = leaf.layer.residual(saved, grad)
        if isinstance(residual, Factored):
            return products(residual, inputs, leaf.layer.mixes)
        (mat,) = inputs
        if isinstance(residual, DiagonalFactors):
            return [residual.times(mat)]
        if residual.shape == grad.shape[:1] + mat.shape[2:]:
            return [self.context.memory.multiply(mat, residual)]
        flat = array_module(mat).moveaxis(mat.reshape(*mat.shape[:2], -1), 0, 2)  # [N, D, K]
        return [array_module(mat).moveaxis(residual @ flat, 2, 0).reshape(mat.shape)]

    def mixed_input(self, leaf: Leaf, saved: Any, key: str, grad: Array, direction: Array) -> Array:
        """(∂²(gᵀf) / ∂x ∂p) P."""
        form = self.context.known.of(leaf.layer).mixed_input
        if form is not None:
            return form(leaf.layer, saved, grad, direction, self.context)
        xp, n = array_module(grad), len(grad)
        each = xp.broadcast_to(direction[:, None], (len(direction), n, *direction.shape[1:]))
        zeros = xp.zeros((len(direction), n, *leaf.input_shape), dtype=direction.dtype)
        return products(mixed_residual(leaf, saved, key, grad), [each, zeros], leaf.layer.mixes)[1]


def lacks_second(leaf: Leaf) -> str | None:
    """Return the reason why a layer lacks second-order terms of the Hessian, or None."""
    layer = leaf.layer
    if not leaf.lowest and layer.curvature != "zero" and type(layer).residual is Layer.residual:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if is_original(layer) or not leaf.parameters:
        return None
    if not leaf.lowest:
        if len(leaf.sources) > 1:
            return "it has parameters and several inputs, and there is no mixed residual of these"
        if lacks_mixed(leaf, leaf.parameters):
            return "it has parameters, is not affine in its input, and has no mixed residual"
    return None


def products(residual: Factored, mats: Sequence[Array], mixes: bool = False) -> list[Array]:
    """Σᵥ signᵥ v (vᵀ z) of a factored residual and columns z over the same places, each (K, N, *features).

    Of a layer that `mixes` samples, the batch is one sample.
    """
    xp, k, n = array_module(mats[0]), len(mats[0]), 1 if mixes else mats[0].shape[1]
    flat = [xp.moveaxis(mat.reshape(k, n, -1), 0, 1) for mat in mats]  # [N, K, D]
    found = [xp.zeros_like(each) for each in flat]
    step = max(1, COLUMN_BYTES // max(1, sum(mat[0].nbytes for mat in mats)))
    width = residual.width if residual.pairs is None else residual.width // 2
    for start in range(0, width, step):
        if residual.pairs is not None:  # a (bᵀ z₁) and b (aᵀ z₀): as columns they would cancel
            pair = residual.pairs(slice(start, min(start + step, width)))
            a, b, *also = (xp.moveaxis(each.reshape(len(each), n, -1), 0, 1) for each in pair)
            of_a, of_b = flat[0] @ a.swapaxes(1, 2), flat[1] @ b.swapaxes(1, 2)
            found = [found[0] + of_b @ a, found[1] + of_a @ b]
            for c in also:  # a is on the second input, too
                found[1] = found[1] + of_b @ c + flat[1] @ c.swapaxes(1, 2) @ b
            continue
        pieces, sign = residual.columns(slice(start, min(start + step, residual.width)))
        columns = [xp.moveaxis(piece.reshape(len(piece), n, -1), 0, 1) for piece in pieces]  # [N, V, D]
        along = sum(z @ v.swapaxes(1, 2) for z, v in zip(flat, columns, strict=True)) * sign.T[:, None]  # [N, K, V]
        found = [total + along @ v for total, v in zip(found, columns, strict=True)]
    return [xp.moveaxis(each, 1, 0).reshape(mat.shape) for each, mat in zip(found, mats, strict=True)]
