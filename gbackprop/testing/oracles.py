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
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gbackprop.layers.affine import Matrix, Shift
from gbackprop.layers.base import INPUT, Layer, Leaf, Shape, leaves_of
from gbackprop.layers.jacobian import Bias, ParameterJacobian
from gbackprop.layers.normalization import Norm
from gbackprop.layers.prelu import PReLU
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
            layer.drawn["bias"] = np.zeros(layer.parameter_shapes()["bias"], dtype=np.complex128)
        if isinstance(layer, Matrix):
            layer.__class__ = _Biased
            layer.drawn[f"{layer.key}_bias"] = np.zeros(layer.out_features, dtype=np.complex128)
    return twin


class _Biased(Matrix):
    """A matrix with a bias."""

    def parameter_shapes(self) -> dict[str, Shape]:
        return super().parameter_shapes() | {f"{self.key}_bias": (self.out_features,)}

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        y, saved = super().forward(x)
        return y + self.parameters[f"{self.key}_bias"], saved

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return super().parameter_jacobians(saved) | {f"{self.key}_bias": Bias(self.rows)}


def _complex(x: np.ndarray) -> np.ndarray:
    """A batch as complex128, or as it is if it has integers."""
    return x.astype(np.complex128) if x.dtype.kind == "f" else x


def output_jacobians(twin: Any, leaves: list[Leaf], x: np.ndarray) -> dict[str, np.ndarray]:
    """J of the outputs in each parameter, shape (N, C, *p), by complex steps through the forward pass."""
    values = {leaf.parameters[key]: value for leaf in leaves for key, value in leaf.layer.parameters.items()}
    return {name: complex_derivative(lambda: _flat(twin.forward(x)[0]), value) for name, value in values.items()}


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


ENTRYWISE = (PReLU, Norm, Shift)
"""Layers of which each parameter multiplies or shifts numbers one by one: B is its own curvature, and there is no A."""


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
    twin, x = complex_copy(network), _complex(x)
    jacobians = output_jacobians(twin, leaves_of(twin, x.shape[1:]), x)
    gradient, hessian = loss_derivatives(loss, twin.forward(x)[0].real, y)
    each = {name: np.einsum("nc,nc...->n...", gradient, jacobians[name]) for name in network.parameters}
    factor = loss.factor(len(x), y)
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


def inputs_of(leaves: list[Leaf], x: np.ndarray) -> Iterator[tuple[Leaf, np.ndarray]]:
    """Yield each layer with its first input."""
    for leaf, inputs, _, _ in passes(leaves, x):
        yield leaf, inputs[0]


def input_square(layer: Layer, x: np.ndarray) -> np.ndarray:
    """Σₙₜ u uᵀ, shape (I, I), or (G, I, I) for G groups.

    u is what the weight of one output feature, a group's first, is multiplied with, by complex steps in that weight.
    """
    weight, groups = layer.parameters[_weight(layer)], groups_of(layer)
    features_last = weight.ndim == 2  # a linear layer's features are its last axis, a convolution's its first

    def feature(o: int) -> np.ndarray:
        y = layer.forward(x)[0]
        return y[..., o] if features_last else y[:, o]

    squares = []
    for o in range(0, len(weight), len(weight) // groups):
        u = complex_derivative(partial(feature, o), weight[o]).reshape(-1, prod(weight.shape[1:]))
        squares.append(u.T @ u)
    return np.stack(squares) if groups > 1 else squares[0]


def groups_of(layer: Layer) -> int:
    """Return the number of groups of a layer: a grouped convolution is as many convolutions side by side."""
    return getattr(layer, "groups", 1)


def _b_of_weight(layer: Layer, b: np.ndarray) -> np.ndarray:
    """B of a layer's weight from that of its bias: of groups, that of each convolution's own outputs."""
    groups = groups_of(layer)
    if groups == 1:
        return b
    own = np.arange(len(b)).reshape(groups, -1)  # the outputs of each
    return np.stack([b[np.ix_(outputs, outputs)] for outputs in own])


def _weight(layer: Layer) -> str:
    """Return what a layer calls its weight, if it has one."""
    return layer.key if isinstance(layer, Matrix) else "weight"


def _has_factors(layer: Layer) -> bool:
    """Whether a layer has a weight or shifts numbers, and gives no reason why it has no Kronecker factors."""
    own = _weight(layer) in layer.parameters or isinstance(layer, Shift)
    return own and not isinstance(layer.kronecker_factors, str)


def _kronecker(
    names: list[str], leaves: list[Leaf], x: np.ndarray, jacobians: dict, curvatures: dict, factor: float
) -> Oracle:
    found: Oracle = {kind: {} for kind in curvatures}
    total: dict[str, Any] = {}  # A, over all uses of a weight
    for leaf, arriving in inputs_of(leaves, x):
        if not _has_factors(leaf.layer):
            continue
        entrywise = isinstance(leaf.layer, ENTRYWISE)
        name = "" if entrywise else leaf.parameters[_weight(leaf.layer)]
        if not entrywise:
            total[name] = total.get(name, 0) + input_square(leaf.layer, arriving) / len(x)
        for kind, curvature in curvatures.items():
            for own in [own for own in leaf.parameters.values() if own in names] if entrywise else [_bias(leaf)]:
                jacobian = jacobians[own].reshape(len(x), curvature.shape[1], -1)
                b = factor * np.einsum("nco,ncd,ndp->op", jacobian, curvature, jacobian, optimize=True)
                found[kind] |= {own: (None, b)} if entrywise else _named(names, leaf, total[name], b)
    return found


def _kfra(names: list[str], leaves: list[Leaf], x: np.ndarray, average: np.ndarray, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for leaf, arriving in reversed(list(inputs_of(leaves, x))):
        if "bias" in leaf.layer.parameters and _has_factors(leaf.layer) and not isinstance(leaf.layer, ENTRYWISE):
            bias = _bias_jacobian(leaf.layer, arriving)
            found |= _named(names, leaf, input_square(leaf.layer, arriving) / n, bias.T @ average @ bias)
        if leaf is leaves[0] or leaf.layer.takes == "integers":
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
    if isinstance(leaf.layer, Matrix):
        return f"{leaf.parameters[leaf.layer.key]}_bias"
    return leaf.parameters["weight"].removesuffix("weight") + "bias"


def _named(names: list[str], leaf: Leaf, a: np.ndarray | None, b: np.ndarray) -> dict[str, Any]:
    """(A, B) of a weight and (None, B) of a bias, as far as the network really has them."""
    both = {leaf.parameters[_weight(leaf.layer)]: (a, _b_of_weight(leaf.layer, b)), _bias(leaf): (None, b)}
    return {name: value for name, value in both.items() if name in names}
