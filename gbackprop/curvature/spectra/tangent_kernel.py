"""The neural tangent kernel: products of the outputs' gradients over all parameters."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gbackprop.array import Array, array_module, device_of, on_device_of
from gbackprop.base.checks import batch_of, check_array
from gbackprop.base.memory import check_memory
from gbackprop.calculus.layer import Layer
from gbackprop.engine.forms.gram import products
from gbackprop.operators import Jacobian
from gbackprop.operators.linearized import Linearized

BLOCK_BYTES = 2**28
"""Bytes of the columns at all layers, and of the largest parameter's Jacobian, of the samples of a block."""


def ntk(network: Layer, x1: Array, x2: Array | None = None) -> Array:
    """Compute the empirical neural tangent kernel J(x₁) J(x₂)ᵀ of the parameters that are not frozen.

    Scale: K[n, c, m, d] = Σ_θ ∂fₙ[c]/∂θ ∂fₘ[d]/∂θ, with no factor.

    Parameters
    ----------
    network : Layer
        In evaluation mode.
    x1 : ndarray, shape (N, *in)
    x2 : ndarray, shape (M, *in), optional
        x₁ by default.

    Returns
    -------
    ndarray, shape (N, C, M, C)
        C numbers the entries of an output in row-major order. In the parameters' dtype, on their device.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `gbackprop.operators.Jacobian`.
    TooLargeError
        If the kernel does not fit into memory.

    Notes
    -----
    Pairs of blocks of samples are computed one after the other, and in each the parameters. Of a weight that is applied
    once to each sample, as in a linear layer, the products are (g₁ᵀ g₂)(u₁ᵀ u₂), and no Jacobian of it is formed.

    Source: Jacot, Gabriel, Hongler 2018.
    """
    check_array("x1", x1 := batch_of(network, x1))
    operators = [Jacobian(network, x1)]
    if x2 is not None:
        check_array("x2", x2 := batch_of(network, x2))
        operators.append(Jacobian(network, x2))
        if operators[0].plan.leaves[0].input_shapes != operators[1].plan.leaves[0].input_shapes:
            raise ValueError(f"x2: expected shape {('M', *x1.shape[1:])} as x1 has, got {x2.shape}")
    first, second = operators[0], operators[-1]
    (n, m), c = (len(x1), len(x1 if x2 is None else x2)), first.features
    needed, what = n * c * m * c * first.dtype.itemsize, f"the kernel of {n} and {m} samples, {c} outputs:"
    check_memory(device_of(first.like), needed, what)
    with on_device_of(first.like):
        kernel = array_module(first.like).zeros((n, c, m, c), dtype=first.dtype)
        for rows in _blocks(first, x1):
            at = Linearized(first.plan, x1[rows], None)
            for columns in _blocks(second, x1 if x2 is None else x2):
                if x2 is not None:
                    kernel[rows, :, columns] = _products(at, Linearized(second.plan, x2[columns], None))
                elif columns == rows:
                    kernel[rows, :, rows] = _products(at, at)
                elif columns.start > rows.start:
                    block = _products(at, Linearized(first.plan, x1[columns], None))
                    kernel[rows, :, columns], kernel[columns, :, rows] = block, block.transpose(2, 3, 0, 1)
        return kernel


def _blocks(operator: Jacobian, x: Array) -> Iterator[slice]:
    """Yield slices of samples."""
    entries = sum(prod(leaf.output_shape) for leaf in operator.plan.leaves)
    entries += max(map(prod, operator.layout.shapes.values()))
    step = max(1, BLOCK_BYTES // (operator.features * entries * operator.dtype.itemsize))
    return (slice(start, min(start + step, len(x))) for start in range(0, len(x), step))


def _products(one: Linearized, other: Linearized) -> Array:
    """Compute the kernel of two blocks of samples, ``[n, C, m, C]``, in one sweep through both."""
    xp, c = array_module(one.output), prod(one.output.shape[1:])
    n, m = len(one.output), len(other.output)
    units = xp.eye(c, dtype=one.output.dtype)
    total = xp.zeros((n * c, m * c), dtype=units.dtype)
    tied: dict[str, list[Array]] = {}
    names = [name for leaf in one.plan.leaves for name in leaf.parameters.values()]
    sweeps = one.sweep(one.each_sample(units)), other.sweep(other.each_sample(units))
    for (leaf, mat), (_, columns) in zip(*sweeps, strict=True):
        for key, name in leaf.parameters.items():
            pair = (one.jacobians[leaf.position][key], mat), (other.jacobians[leaf.position][key], columns)
            if names.count(name) == 1:
                total += products(*pair, one.known)
            else:  # a parameter that is used several times: its Jacobian is a sum
                each = [jacobian.per_sample(some) for jacobian, some in pair]
                tied[name] = [one + two for one, two in zip(tied[name], each, strict=True)] if name in tied else each
    for each in tied.values():
        rows, others = [part.swapaxes(0, 1).reshape(part.shape[0] * part.shape[1], -1) for part in each]
        total += rows @ others.T
    return total.reshape(n, c, m, c)
