"""Every quantity by brute force from its definition, independent of the sweep.

The definitions of the shipped quantities are in `ORACLES`; a user's quantity has a method `definition`.

First derivatives are complex steps through the forward pass alone, f'(x) = Im f(x + ih) / h: no difference is formed,
so the error is rounding. Second derivatives are complex steps of reverse-mode gradients, themselves compared with the
former. Slow, and meant for a few samples of a small network.

Max pooling and ReLU compare complex numbers by their real parts, so a complex step takes the branch of its point. On a
kink itself (equal pixels in a window, 0 for ReLU) there is no derivative, and what a step gives means nothing: keep
points off kinks, by a little noise for instance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Leaf, leaves_of
from gbackprop.calculus.walk import add_below, downwards, is_swept_chain
from gbackprop.losses.base import Loss
from gbackprop.network import Container
from gbackprop.quantities import Quantity
from gbackprop.testing.claims import MOVED, NotGivenError, moved
from gbackprop.testing.complex_steps import (
    STEP,
    complex_copy,
    complex_derivative,
    flat,
    passes,
    stepped,
    without_derivative,
)
from gbackprop.testing.kronecker_oracles import Oracle, kfra, kronecker
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.rounded import RoundedLoss, round_values


def output_jacobians(twin: Any, leaves: list[Leaf], x: np.ndarray) -> dict[str, np.ndarray]:
    """J of the outputs in each parameter, shape (N, C, *p), by complex steps through the forward pass."""
    found = {name: complex_derivative(lambda: flat(twin.forward(x)[0]), v) for name, v in _values(leaves).items()}
    for name, row in without_derivative(leaves).items():
        found[name][:, :, row] = 0
    return found


def _values(leaves: list[Leaf]) -> dict[str, np.ndarray]:
    """The values of all parameters."""
    return {leaf.parameters[key]: value for leaf in leaves for key, value in leaf.layer.parameters.items()}


def loss_derivatives(loss: Loss, output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∇_f ℓₙ (N, C) from the loss's values, and ∇²_f ℓₙ (N, C, C) from its gradients."""
    n, features = output.shape[0], output.shape[1:]
    step = np.zeros((1, *features), dtype=np.complex128)  # the same step for every sample: they do not interact
    gradient = complex_derivative(lambda: loss.values(output + step, target), step).reshape(n, -1)
    hessian = complex_derivative(lambda: flat(loss.gradients(output + step, target)), step)
    return gradient, hessian.reshape(n, gradient.shape[1], gradient.shape[1])


def reverse_gradients(twin: Any, loss: Loss | RoundedLoss, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """∇ℓₙ of each parameter by plain reverse mode, shape (N, *p): a vector per sample, `vjp` and `per_sample` alone."""
    passed = list(passes(leaves_of(twin, x.shape[1:]), x))
    found: dict[str, np.ndarray] = {}
    arriving = {len(passed) - 1: loss.gradients(passed[-1].output, y)[None]}
    for leaf, vec in downwards([each.leaf for each in passed if each.leaf.swept], arriving):
        saved = passed[leaf.position].saved
        for key, jacobian in leaf.layer.parameter_jacobians(saved).items():
            name = leaf.parameters[key]
            found[name] = found.get(name, 0) + jacobian.per_sample(vec)[0]
        if leaf.lowest:  # nothing below has parameters
            continue
        add_below(leaf, leaf.layer.mjp(saved, vec), arriving, lambda total, part, _: total + part)
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
    name : str
        The parameter's name.
    dense : Dense
        The derivatives of the whole network.
    """

    batch: int
    factor: float
    gradients: np.ndarray
    jacobians: np.ndarray
    hessians: np.ndarray
    name: str
    dense: Dense


class Dense:
    """Dense derivatives of a network and each quantity, ``dense["kfac"]``, computed when it is asked for.

    Kronecker factors are (A, B), A None for biases, both with a leading axis of groups for a weight that has any. The
    network is of layers with analytic or piecewise linear functions, in float64; pseudo-targets ``[M, N, …]`` are for
    "diag_ggn_mc" and "kfac".
    """

    def __init__(
        self, network: Container, loss: Loss, x: np.ndarray, y: np.ndarray, mc_targets: np.ndarray | None = None
    ) -> None:
        self.differentiated: Loss | RoundedLoss = loss
        self.x = x.astype(np.complex128) if x.dtype.kind == "f" else x
        self.loss, self.y, self.factor = loss, y, loss.factor(len(x), y)
        self.twin, self.names = complex_copy(network), list(network.trainable)
        self.leaves, own = leaves_of(self.twin, x.shape[1:]), leaves_of(network, x.shape[1:])
        self.lowest = next((leaf.position for leaf in own if leaf.swept), 0) if is_swept_chain(own) else None
        self.output = self.twin.forward(self.x)[0].real
        self.mc_targets, self.mc_curvature = mc_targets, _mc_curvature(loss, self.output, mc_targets, y)
        self.jacobians = output_jacobians(self.twin, self.leaves, self.x)
        self.gradient, self.hessian = loss_derivatives(loss, self.output, y)

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """The arguments of definitions, for each parameter."""
        found = {}
        for name in self.names:
            jacobian = self.jacobians[name]
            each = np.einsum("nc,nc...->n...", self.gradient, jacobian)
            found[name] = Parts(len(self.x), self.factor, each, jacobian, self.hessian, name, self)
        return found

    def near(self, rng: np.random.Generator, unit: float) -> Dense:
        """Return the derivatives at inputs and parameters that are off by a few roundings, and so are they."""
        near = copy.copy(self)
        for cached in ("parts", "kronecker", "hessian_diagonals"):
            near.__dict__.pop(cached, None)
        near.twin, near.x = copy.deepcopy(self.twin), moved(self.x, rng, unit)
        near.leaves = leaves_of(near.twin, near.x.shape[1:])
        for value in _values(near.leaves).values():
            value[...] = moved(value, rng, unit)
        round_values((leaf.layer for leaf in near.leaves), rng, unit)
        near.output = near.twin.forward(near.x)[0].real
        probe = LossProbe(self.loss, self.output, self.y, np.arange(self.output[0].size))
        slope, bend = (MOVED * unit * size for size in probe.sizes_of_terms)
        off = lambda a, size: moved(a, rng, unit) + size * rng.uniform(-1, 1, a.shape)  # noqa: E731
        found = loss_derivatives(self.loss, near.output, self.y)
        near.gradient, near.hessian = map(off, found, (slope, bend))
        near.differentiated = RoundedLoss(self.loss, near.output, bend * rng.uniform(-1, 1, near.hessian.shape))
        near.mc_curvature = _mc_curvature(self.loss, near.output, self.mc_targets, self.y, lambda a: off(a, slope))
        jacobians = output_jacobians(near.twin, near.leaves, near.x)
        near.jacobians = {name: moved(jacobian, rng, unit) for name, jacobian in jacobians.items()}
        return near

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self.values(ORACLES[name])

    def values(self, definition: Definition) -> dict[str, Any]:
        """Compute what a definition gives for each parameter."""
        return {name: definition(parts) for name, parts in self.parts.items()}

    @cached_property
    def hessian_diagonals(self) -> dict[str, np.ndarray]:
        """Diagonal of ∇²ℓₙ in each parameter, (N, *p): Im of a gradient's entry after a step in the same entry."""
        found: dict[str, np.ndarray] = {}
        for name, value in _values(self.leaves).items():
            found[name] = np.zeros((len(self.x), *value.shape))
            for index in np.ndindex(value.shape):
                with stepped(value, index):
                    gradients = self._stepped_gradients()
                found[name][:, *index] = gradients[name][:, *index].imag / STEP
        return found

    def _stepped_gradients(self) -> dict[str, np.ndarray]:
        """∇ℓₙ of each parameter after a complex step, which derivatives may refuse though the function does not."""
        try:
            return reverse_gradients(self.twin, self.differentiated, self.x, self.y)
        except Exception as error:
            raise NotGivenError(f"derivatives do not take complex numbers: {error}") from error

    @cached_property
    def kronecker(self) -> Oracle:
        where, hessian = (self.names, self.leaves, self.x), self.hessian
        curvatures = {"kflr": hessian} | ({} if self.mc_curvature is None else {"kfac": self.mc_curvature})
        found = kronecker(*where, self.jacobians, curvatures, self.factor)
        if self.lowest is not None:
            found["kfra"] = kfra(*where, self.factor * hessian.sum(0), self.lowest)
        return found


Definition = Callable[[Parts], Any]

ORACLES: dict[str, Definition] = {
    "gradient": lambda p: p.factor * p.gradients.sum(0),
    "batch_grad": lambda p: p.factor * p.gradients,
    "batch_l2_grad": lambda p: (flat(p.factor * p.gradients) ** 2).sum(1),
    "second_moment": lambda p: (p.gradients**2).mean(0),
    "variance": lambda p: p.gradients.var(0),
    "batch_diag_ggn": lambda p: p.factor * _diagonal(p.jacobians, p.hessians),
    "diag_ggn": lambda p: p.factor * _diagonal(p.jacobians, p.hessians).sum(0),
    "diag_ggn_mc": lambda p: p.factor * _diagonal(p.jacobians, p.dense.mc_curvature).sum(0),
    "batch_diag_hessian": lambda p: p.factor * p.dense.hessian_diagonals[p.name],
    "diag_hessian": lambda p: p.factor * p.dense.hessian_diagonals[p.name].sum(0),
    "gram_gradients": lambda p: _gram(p.factor * p.gradients),
    "gram_ggn": lambda p: _gram(_columns(p)),
    "kfac": lambda p: p.dense.kronecker["kfac"][p.name],
    "kflr": lambda p: p.dense.kronecker["kflr"][p.name],
    "kfra": lambda p: p.dense.kronecker["kfra"][p.name],
}
"""The definitions of the shipped quantities by name, and that of the gradient."""


def definition_of(quantity: Quantity) -> Definition | None:
    """Return the definition that a quantity states, or that of a shipped one, if there is any."""
    return quantity.stated("definition") or (ORACLES.get(quantity.name) if is_shipped(quantity) else None)


def _columns(parts: Parts) -> np.ndarray:
    """√R Jₙᵀ s of all columns s of the loss's root, (N V, *p); any root gives the same matrix but for its basis."""
    dense = parts.dense
    columns = dense.loss.hessian_sqrt(dense.output, dense.y)
    found = np.einsum("vnc,nc...->nv...", columns.reshape(*columns.shape[:2], -1), parts.jacobians)
    return parts.factor**0.5 * found.reshape(-1, *found.shape[2:])


def _gram(rows: np.ndarray) -> np.ndarray:
    return np.einsum("ip,jp->ij", flat(rows), flat(rows))


def _mc_curvature(
    loss: Loss, output: np.ndarray, targets: np.ndarray | None, y: np.ndarray, off: Any = np.asarray
) -> Any:
    """1/M Σₘ s sᵀ, shape (N, C, C), with s the gradient at a pseudo-target over the root of the loss's weight.

    Weights of true targets multiply the Hessian that the loss has without them: the diagonals' quotient is theirs.
    `off` adds rounding errors to s.
    """
    if targets is None:
        return None
    weight = loss.summed_weight(output.shape[1:])
    plain = loss.unweighted()
    s = off(np.stack([loss_derivatives(plain, output, target)[0] for target in targets])) / weight**0.5
    if loss.weighted or loss.probabilities:
        pairs = ((loss, y), (plain, targets[0]))
        own, drawn = (np.einsum("nii->ni", loss_derivatives(each, output, target)[1]) for each, target in pairs)
        s = s * np.sqrt(np.divide(np.maximum(own, 0), drawn, out=np.zeros_like(drawn), where=drawn > 0))
    return np.einsum("mni,mnj->nij", s, s) / len(targets)


def _diagonal(jacobian: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """diag(Jₙᵀ Hₙ Jₙ), shape (N, *p)."""
    flat = jacobian.reshape(*jacobian.shape[:2], -1)
    return np.einsum("ncp,ncd,ndp->np", flat, curvature, flat, optimize=True).reshape(len(flat), *jacobian.shape[2:])
