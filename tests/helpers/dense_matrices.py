"""Whole curvature matrices from their definitions, by complex steps."""

from __future__ import annotations

import numpy as np

from gbackprop.calculus.layer import leaves_of
from gbackprop.testing.complex_steps import STEP, complex_copy
from gbackprop.testing.oracles import Dense, reverse_gradients


def names_of(network, shape):
    """The parameters that are not frozen, in the order of computation."""
    return list(dict.fromkeys(name for leaf in leaves_of(network, shape) for name in leaf.parameters.values()))


def flat(values, lead=0):
    """One axis in place of all after `lead` leading ones."""
    return np.concatenate([value.reshape(*value.shape[:lead], -1) for value in values], axis=lead)


def jacobian(network, loss, x, y):
    """J (N, C, D) of the outputs, ∇ℓₙ (N, D), ∇²ℓₙ (N, C, C) in the outputs, and R."""
    parts = Dense(network, loss, x, y).parts
    names = names_of(network, x.shape[1:])
    first = parts[names[0]]
    each = flat([parts[name].gradients for name in names], 1)
    return flat([parts[name].jacobians for name in names], 2), each, first.hessians, first.factor


def hessian(network, loss, x, y):
    """∇²L (D, D)."""
    sizes = sum(network.parameters[name].size for name in names_of(network, x.shape[1:]))
    return hessian_times(network, loss, x, y, np.eye(sizes))


def hessian_times(network, loss, x, y, vectors):
    """∇²L V for V (D, K): Im of the gradient after a step along each column."""
    twin, names = complex_copy(network), names_of(network, x.shape[1:])
    values = {}
    for leaf in leaves_of(twin, x.shape[1:]):
        values |= {leaf.parameters[key]: leaf.layer.parameters[key] for key in leaf.parameters}
    x = x.astype(np.complex128) if x.dtype.kind == "f" else x
    before = {name: values[name].copy() for name in names}
    columns = []
    for vector in vectors.T:
        start = 0
        for name in names:
            step = vector[start : start + values[name].size].reshape(values[name].shape)
            values[name][...] = before[name] + 1j * STEP * step
            start += step.size
        gradients = reverse_gradients(twin, loss, x, y)
        columns.append(flat([gradients[name].sum(0).imag / STEP for name in names]))
    return loss.factor(len(x), y) * np.stack(columns, axis=1)
