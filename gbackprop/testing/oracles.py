"""Every quantity by brute force from its definition, independent of the sweep.

First derivatives are complex steps through the forward pass alone, f'(x) = Im f(x + ih) / h: no difference is formed,
so the error is rounding. Second derivatives are complex steps of reverse-mode gradients, themselves compared with the
former. Slow, and meant for a few samples of a small network.

Max pooling and ReLU compare complex numbers by their real parts, so a complex step takes the branch of its point. On a
kink itself (equal pixels in a window, 0 for ReLU) there is no derivative, and what a step gives means nothing: keep
points off kinks, by a little noise for instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.layers.base import Leaf, leaves_of
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.testing.complex_steps import STEP, complex_copy, complex_derivative, flat, is_chain, passes
from gbackprop.testing.kronecker_oracles import Oracle, kfra, kronecker


def _complex(x: np.ndarray) -> np.ndarray:
    """Return a batch as complex128, or as it is if it has integers."""
    return x.astype(np.complex128) if x.dtype.kind == "f" else x


def output_jacobians(twin: Any, leaves: list[Leaf], x: np.ndarray) -> dict[str, np.ndarray]:
    """J of the outputs in each parameter, shape (N, C, *p), by complex steps through the forward pass."""
    values = {leaf.parameters[key]: value for leaf in leaves for key, value in leaf.layer.parameters.items()}
    return {name: complex_derivative(lambda: flat(twin.forward(x)[0]), value) for name, value in values.items()}


def loss_derivatives(loss: Loss, output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∇_f ℓₙ (N, C) from the loss's values, and ∇²_f ℓₙ (N, C, C) from its gradients."""
    n, features = output.shape[0], output.shape[1:]
    step = np.zeros((1, *features), dtype=np.complex128)  # the same step for every sample: they do not interact
    gradient = complex_derivative(lambda: loss.values(output + step, target), step).reshape(n, -1)
    hessian = complex_derivative(lambda: flat(loss.gradients(output + step, target)), step)
    return gradient, hessian.reshape(n, gradient.shape[1], gradient.shape[1])


def reverse_gradients(twin: Any, loss: Loss, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """∇ℓₙ of each parameter by plain reverse mode, shape (N, *p): a vector per sample, `vjp` and `per_sample` alone."""
    passed = list(passes(leaves_of(twin, x.shape[1:]), x))
    found: dict[str, np.ndarray] = {}
    arriving = {len(passed) - 1: loss.gradients(passed[-1].output, y)}
    for leaf, _, _, saved in reversed(passed):
        if not leaf.swept:  # no parameters here or below
            continue
        vec = arriving.pop(leaf.position)[None]
        for key, jacobian in leaf.layer.parameter_jacobians(saved).items():
            name = leaf.parameters[key]
            found[name] = found.get(name, 0) + jacobian.per_sample(vec)[0]
        if leaf.lowest:  # nothing below has parameters
            continue
        below = leaf.layer.mjp(saved, vec)
        for source, part in zip(leaf.sources, below if len(leaf.sources) > 1 else (below,), strict=True):
            arriving[source] = arriving.get(source, 0) + part[0]
    return found


@dataclass(frozen=True)
class Parts:
    """The inputs of a quantity's definition, for one parameter: dense derivatives by complex steps, free of R.

    Attributes
    ----------
    batch : int
        N.
    factor : float
        R.
    gradients : ndarray, shape (N, *p)
        ∇ℓₙ.
    jacobians : ndarray, shape (N, C, *p)
        Jₙ, of the network's outputs.
    hessians : ndarray, shape (N, C, C)
        Hₙ = ∇²ℓₙ in the network's outputs.
    """

    batch: int
    factor: float
    gradients: np.ndarray
    jacobians: np.ndarray
    hessians: np.ndarray


def dense_parts(network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray) -> dict[str, Parts]:
    """Compute what definitions may use, by parameter name; the arguments are those of `dense_quantities`."""
    twin, x = complex_copy(network), _complex(x)
    jacobians = output_jacobians(twin, leaves_of(twin, x.shape[1:]), x)
    gradient, hessian = loss_derivatives(loss, twin.forward(x)[0].real, y)
    each = {name: np.einsum("nc,nc...->n...", gradient, jacobians[name]) for name in network.parameters}
    factor = loss.factor(len(x), y)
    return {name: Parts(len(x), factor, each[name], jacobians[name], hessian) for name in each}


def dense_quantities(
    network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray, mc_targets: np.ndarray | None = None
) -> Oracle:
    """Compute all quantities from their definitions.

    Parameters
    ----------
    network : Sequential
        A chain of layers with analytic or piecewise linear functions; float64.
    loss : Loss
    x : ndarray, shape (N, *in)
    y : ndarray, shape (N, ...)
    mc_targets : ndarray, shape (M, N, ...), optional
        Pseudo-targets; without them "diag_ggn_mc" and "kfac" are left out.

    Returns
    -------
    dict
        Quantity name -> parameter name -> array, or (A, B) for Kronecker factors, A None for biases, both
        with a leading axis of groups for a weight that has any. Beside the quantities, "gradient".
    """
    twin = complex_copy(network)
    leaves, names = leaves_of(twin, x.shape[1:]), list(network.parameters)
    x = _complex(x)
    output = twin.forward(x)[0].real
    jacobians = output_jacobians(twin, leaves, x)
    gradient, hessian = loss_derivatives(loss, output, y)
    n, factor = len(x), loss.factor(len(x), y)
    found: Oracle = _first_order(names, jacobians, gradient, factor)
    kron: dict[str, np.ndarray] = {"kflr": hessian}
    for kind, curvature in (("diag_ggn", hessian), ("diag_ggn_mc", _mc_curvature(loss, output, mc_targets, y))):
        if curvature is not None:
            batch = {name: factor * _diagonal(jacobians[name], curvature) for name in names}
            found[f"batch_{kind}"], found[kind] = batch, {name: value.sum(0) for name, value in batch.items()}
    if mc_targets is not None:
        kron["kfac"] = _mc_curvature(loss, output, mc_targets, y)
    batch = _hessian_diagonals(twin, leaves, loss, x, y)
    found["batch_diag_hessian"] = {name: factor * batch[name] for name in names}
    found["diag_hessian"] = {name: factor * batch[name].sum(0) for name in names}
    columns = loss.hessian_sqrt(output, y)  # any root of the Hessian gives the same matrix but for its basis
    found["gram_ggn"] = _gram(names, jacobians, np.moveaxis(columns.reshape(len(columns), n, -1), 0, 1) * factor**0.5)
    found["gram_gradients"] = _gram(names, jacobians, gradient[:, None] * factor)
    found |= kronecker(names, leaves, x, jacobians, kron, factor)
    if is_chain(leaves):
        found["kfra"] = kfra(names, leaves, x, factor * hessian.sum(0), n)
    return found


def _gram(names: list[str], jacobians: dict[str, np.ndarray], columns: np.ndarray) -> dict[str, np.ndarray]:
    """Return the products of all Jₙᵀ c of columns c at the outputs, (N, V, C) -> (N V, N V), in each parameter."""
    found = {}
    for name in names:
        rows = np.einsum("nvc,nc...->nv...", columns, jacobians[name]).reshape(columns.shape[0] * columns.shape[1], -1)
        found[name] = np.einsum("ip,jp->ij", rows, rows)
    return found


def _first_order(names: list[str], jacobians: dict, gradient: np.ndarray, factor: float) -> Oracle:
    each = {name: np.einsum("nc,nc...->n...", gradient, jacobians[name]) for name in names}
    return {
        "gradient": {name: factor * g.sum(0) for name, g in each.items()},
        "batch_grad": {name: factor * g for name, g in each.items()},
        "batch_l2_grad": {name: ((factor * flat(g)) ** 2).sum(1) for name, g in each.items()},
        "second_moment": {name: (g**2).mean(0) for name, g in each.items()},
        "variance": {name: g.var(0) for name, g in each.items()},
    }


def _mc_curvature(loss: Loss, output: np.ndarray, targets: np.ndarray | None, y: np.ndarray) -> Any:
    """1/M Σₘ s sᵀ, shape (N, C, C), with s the gradient at a pseudo-target over the root of the loss's weight.

    Weights of true targets multiply the Hessian that the loss has without them: the diagonals' quotient is theirs.
    """
    if targets is None:
        return None
    weight = loss.summed_weight(output.shape[1:])
    plain = loss.unweighted()
    s = np.stack([loss_derivatives(plain, output, target)[0] for target in targets]) / weight**0.5
    if loss.weighted or loss.probabilities:
        pairs = ((loss, y), (plain, targets[0]))
        own, drawn = (np.einsum("nii->ni", loss_derivatives(each, output, target)[1]) for each, target in pairs)
        s = s * np.sqrt(np.divide(np.maximum(own, 0), drawn, out=np.zeros_like(drawn), where=drawn > 0))
    return np.einsum("mni,mnj->nij", s, s) / len(targets)


def _diagonal(jacobian: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """diag(Jₙᵀ Hₙ Jₙ), shape (N, *p)."""
    flat = jacobian.reshape(*jacobian.shape[:2], -1)
    return np.einsum("ncp,ncd,ndp->np", flat, curvature, flat, optimize=True).reshape(len(flat), *jacobian.shape[2:])


def _hessian_diagonals(
    twin: Any, leaves: list[Leaf], loss: Loss, x: np.ndarray, y: np.ndarray
) -> dict[str, np.ndarray]:
    """Diagonal of ∇²ℓₙ in each parameter, shape (N, *p): Im of a gradient's entry after a step in the same entry."""
    found: dict[str, np.ndarray] = {}
    for leaf in leaves:
        for key, value in leaf.layer.parameters.items():
            name, diagonal = leaf.parameters[key], np.zeros((len(x), *value.shape))
            if name in found:
                continue
            for index in np.ndindex(value.shape):
                before = value[index]
                value[index] = before + 1j * STEP
                diagonal[(slice(None), *index)] = reverse_gradients(twin, loss, x, y)[name][(slice(None), *index)].imag
                value[index] = before
            found[name] = diagonal / STEP
    return found


