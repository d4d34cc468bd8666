"""Every quantity by brute force from its definition, independent of the sweep.

First derivatives are complex steps through the forward pass alone, f'(x) = Im f(x + ih) / h: no difference is formed,
so the error is rounding. Second derivatives are complex steps of reverse-mode gradients, themselves held against the
former. Slow, and meant for a few samples of a small network.

Max pooling and ReLU compare complex numbers by their real parts, so a complex step takes the branch of its point. On a
kink itself (equal pixels in a window, 0 for ReLU) there is no derivative, and what a step gives means nothing: keep
points off kinks, by a little noise for instance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gbackprop.layers.base import INPUT, Layer, Leaf, leaves_of
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential

STEP = 1e-30
"""Any step this small is exact: its square vanishes beside 1."""

Oracle = dict[str, dict[str, Any]]


def complex_derivative(function: Callable[[], np.ndarray], point: np.ndarray) -> np.ndarray:
    """∂ function() / ∂ point, by complex steps in each entry of `point`, which is changed in place and restored.

    Parameters
    ----------
    function : callable
        Gives an array of shape (*f), computed from `point`.
    point : ndarray of complex128, shape (*p)

    Returns
    -------
    ndarray of float64, shape (*f, *p)
    """
    derivatives = []
    for index in np.ndindex(point.shape):
        before = point[index]
        point[index] = before + 1j * STEP
        derivatives.append(function().imag / STEP)
        point[index] = before
    stacked = np.stack(derivatives, axis=-1)
    return stacked.reshape(*stacked.shape[:-1], *point.shape)


def complex_copy(network: Layer) -> Any:
    """A network with the same parameters, as complex128, and a bias of zeros where a layer could have one."""
    twin = copy.deepcopy(network)
    for _, layer in twin.named_layers():
        layer.drawn = {name: np.array(value, dtype=np.complex128) for name, value in layer.parameters.items()}
        if getattr(layer, "bias", None) is False:
            layer.bias = True  # type: ignore[attr-defined]
            layer.drawn["bias"] = np.zeros(layer.drawn["weight"].shape[0], dtype=np.complex128)
    return twin


def output_jacobians(twin: Any, leaves: list[Leaf], x: np.ndarray) -> dict[str, np.ndarray]:
    """J of the outputs in each parameter, shape (N, C, *p), by complex steps through the forward pass."""
    return {
        leaf.parameters[name]: complex_derivative(lambda: _flat(twin.forward(x)[0]), value)
        for leaf in leaves
        for name, value in leaf.layer.parameters.items()
    }


def loss_derivatives(loss: Loss, output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∇_f ℓₙ (N, C) from the loss's values, and ∇²_f ℓₙ (N, C, C) from its gradients."""
    n, features = output.shape[0], output.shape[1:]
    step = np.zeros((1, *features), dtype=np.complex128)  # the same step for every sample: they do not interact
    gradient = complex_derivative(lambda: loss.values(output + step, target), step).reshape(n, -1)
    hessian = complex_derivative(lambda: _flat(loss.gradients(output + step, target)), step)
    return gradient, hessian.reshape(n, gradient.shape[1], gradient.shape[1])


def reverse_gradients(twin: Any, loss: Loss, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """∇ℓₙ of each parameter by plain reverse mode, shape (N, *p): a vector per sample, `vjp` and `per_sample` alone."""
    passed = list(passes(leaves_of(twin, x.shape[1:]), x))
    found: dict[str, np.ndarray] = {}
    arriving = {len(passed) - 1: loss.gradients(passed[-1].output, y)}
    for leaf, _, _, saved in reversed(passed):
        vec = arriving.pop(leaf.position)[None]
        for key, jacobian in leaf.layer.parameter_jacobians(saved).items():
            name = leaf.parameters[key]
            found[name] = found.get(name, 0) + jacobian.per_sample(vec)[0]
        below = leaf.layer.mjp(saved, vec)
        for source, part in zip(leaf.sources, below if len(leaf.sources) > 1 else (below,), strict=True):
            arriving[source] = arriving.get(source, 0) + part[0]
    return found


class Passed(NamedTuple):
    """A layer at its place, with what it took and gave in a forward pass."""

    leaf: Leaf
    inputs: list[np.ndarray]
    output: np.ndarray
    saved: Any


def passes(leaves: list[Leaf], x: np.ndarray) -> Iterator[Passed]:
    """Pass a batch through the layers of a network, one after the other."""
    at = {INPUT: x}
    for leaf in leaves:
        inputs = [at[source] for source in leaf.sources]
        at[leaf.position], saved = leaf.layer.forward(*inputs)
        yield Passed(leaf, inputs, at[leaf.position], saved)


def is_chain(leaves: list[Leaf]) -> bool:
    """Return whether each layer takes the output of the one before it, and none shares parameters."""
    names = [name for leaf in leaves for name in leaf.parameters.values()]
    return all(leaf.sources == (leaf.position - 1,) for leaf in leaves) and len(set(names)) == len(names)


@dataclass(frozen=True)
class Parts:
    """What a quantity's definition may use, for one parameter: dense derivatives by complex steps, free of R.

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
    twin, x = complex_copy(network), x.astype(np.complex128)
    jacobians = output_jacobians(twin, leaves_of(twin, x.shape[1:]), x)
    gradient, hessian = loss_derivatives(loss, twin.forward(x)[0].real, y)
    each = {name: np.einsum("nc,nc...->n...", gradient, jacobians[name]) for name in network.parameters}
    factor = loss.factor(len(x))
    return {name: Parts(len(x), factor, each[name], jacobians[name], hessian) for name in each}


def dense_quantities(
    network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray, mc_targets: np.ndarray | None = None
) -> Oracle:
    """All quantities from their definitions.

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
        Quantity name -> parameter name -> array, or (A, B) for Kronecker factors, A None for biases. Beside the
        quantities, "gradient".
    """
    twin = complex_copy(network)
    leaves, names = leaves_of(twin, x.shape[1:]), list(network.parameters)
    x = x.astype(np.complex128)
    output = twin.forward(x)[0].real
    jacobians = output_jacobians(twin, leaves, x)
    gradient, hessian = loss_derivatives(loss, output, y)
    n, factor = len(x), loss.factor(len(x))
    found: Oracle = _first_order(names, jacobians, gradient, factor)
    kron: dict[str, np.ndarray] = {"kflr": hessian}
    for kind, curvature in (("diag_ggn", hessian), ("diag_ggn_mc", _mc_curvature(loss, output, mc_targets))):
        if curvature is not None:
            batch = {name: factor * _diagonal(jacobians[name], curvature) for name in names}
            found[f"batch_{kind}"], found[kind] = batch, {name: value.sum(0) for name, value in batch.items()}
    if mc_targets is not None:
        kron["kfac"] = _mc_curvature(loss, output, mc_targets)
    batch = _hessian_diagonals(twin, leaves, loss, x, y)
    found["batch_diag_hessian"] = {name: factor * batch[name] for name in names}
    found["diag_hessian"] = {name: factor * batch[name].sum(0) for name in names}
    found |= _kronecker(names, leaves, x, jacobians, kron, factor)
    if is_chain(leaves):
        found["kfra"] = _kfra(names, leaves, x, factor * hessian.sum(0), n)
    return found


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def _first_order(names: list[str], jacobians: dict, gradient: np.ndarray, factor: float) -> Oracle:
    each = {name: np.einsum("nc,nc...->n...", gradient, jacobians[name]) for name in names}
    return {
        "gradient": {name: factor * g.sum(0) for name, g in each.items()},
        "batch_grad": {name: factor * g for name, g in each.items()},
        "batch_l2_grad": {name: ((factor * _flat(g)) ** 2).sum(1) for name, g in each.items()},
        "second_moment": {name: (g**2).mean(0) for name, g in each.items()},
        "variance": {name: g.var(0) for name, g in each.items()},
    }


def _mc_curvature(loss: Loss, output: np.ndarray, targets: np.ndarray | None) -> Any:
    """1/M Σₘ s sᵀ, shape (N, C, C), with s the gradient at a pseudo-target over the root of the loss's weight."""
    if targets is None:
        return None
    weight = loss.summed_weight(output.shape[1:])
    s = np.stack([loss_derivatives(loss, output, target)[0] for target in targets]) / weight**0.5
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


def inputs_of(leaves: list[Leaf], x: np.ndarray) -> Iterator[tuple[Leaf, np.ndarray]]:
    """Yield each layer with its first input."""
    for leaf, inputs, _, _ in passes(leaves, x):
        yield leaf, inputs[0]


def input_square(layer: Layer, x: np.ndarray) -> np.ndarray:
    """Σₙₜ u uᵀ, shape (I, I): u is what one output feature's weight is multiplied with, by complex steps in it."""
    weight = layer.parameters["weight"]
    features_last = weight.ndim == 2  # a linear layer's features are its last axis, a convolution's its first

    def first_feature() -> np.ndarray:
        y = layer.forward(x)[0]
        return y[..., 0] if features_last else y[:, 0]

    u = complex_derivative(first_feature, weight[0]).reshape(-1, prod(weight.shape[1:]))
    return u.T @ u


def _kronecker(
    names: list[str], leaves: list[Leaf], x: np.ndarray, jacobians: dict, curvatures: dict, factor: float
) -> Oracle:
    found: Oracle = {kind: {} for kind in curvatures}
    total: dict[str, Any] = {}  # A, over all uses of a weight
    for leaf, arriving in inputs_of(leaves, x):
        if "weight" not in leaf.layer.parameters or getattr(leaf.layer, "groups", 1) > 1:
            continue
        name = leaf.parameters["weight"]
        slope = leaf.layer.parameters["weight"].ndim == 1  # of PReLU: B is its own curvature, and there is no A
        total[name] = None if slope else total.get(name, 0) + input_square(leaf.layer, arriving) / len(x)
        jacobian = jacobians[name if slope else _bias(leaf)]
        for kind, curvature in curvatures.items():
            b = factor * np.einsum("nco,ncd,ndp->op", jacobian, curvature, jacobian, optimize=True)
            found[kind] |= _named(names, leaf, total[name], b)
    return found


def _kfra(names: list[str], leaves: list[Leaf], x: np.ndarray, average: np.ndarray, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for leaf, arriving in reversed(list(inputs_of(leaves, x))):
        if "bias" in leaf.layer.parameters and getattr(leaf.layer, "groups", 1) == 1:
            bias = _bias_jacobian(leaf.layer, arriving)
            found |= _named(names, leaf, input_square(leaf.layer, arriving) / n, bias.T @ average @ bias)
        if leaf is leaves[0]:
            break
        jacobian = input_jacobian(leaf.layer, arriving)
        average = np.einsum("nai,ab,nbj->ij", jacobian, average, jacobian, optimize=True) / n
    return found


def input_jacobian(layer: Layer, x: np.ndarray) -> np.ndarray:
    """J of a layer's outputs in its inputs, shape (N, D, D'), by complex steps; samples must not interact."""
    step = np.zeros((1, *x.shape[1:]), dtype=np.complex128)
    jacobian = complex_derivative(lambda: _flat(layer.forward(x + step)[0]), step)
    return jacobian.reshape(*jacobian.shape[:2], -1)


def _bias_jacobian(layer: Layer, x: np.ndarray) -> np.ndarray:
    """J of a layer's outputs in its bias, shape (D, O): the same for every sample."""
    return complex_derivative(lambda: _flat(layer.forward(x[:1])[0])[0], layer.parameters["bias"])


def _bias(leaf: Leaf) -> str:
    """Return the name of a layer's bias, also of one that only the twin has."""
    return leaf.parameters["weight"].removesuffix("weight") + "bias"


def _named(names: list[str], leaf: Leaf, a: np.ndarray | None, b: np.ndarray) -> dict[str, Any]:
    """(A, B) of a weight and (None, B) of a bias, as far as the network really has them."""
    both = {leaf.parameters["weight"]: (a, b), _bias(leaf): (None, b)}
    return {name: value for name, value in both.items() if name in names}
