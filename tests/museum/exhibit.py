"""One exhibit of the museum: a wrong number that shipped, planted again in something of a user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.testing import Report


@dataclass(frozen=True)
class Exhibit:
    """A fault with all that its page says of it; what is measured is a function of the subject."""

    title: str
    library: str
    wrong: str  # what was wrong, in the words of the list
    mended: str  # where it was mended or reported
    kind: str  # a factor, a square, a transpose, a repeated update, an axis, a shape that no test had
    text: str  # the formula, how the planting was chosen, why nobody saw it
    faulty: Callable[[], Any]
    right: Callable[[], Any]
    lines: Any  # the function with the faulty line
    missed: str  # the usual check that passes, in two or three words
    unseen: str  # the same in a sentence
    usual: Callable[[Any], float]  # its error
    effect: Callable[[Any, Any], str]  # of the faulty and the right subject: what it did to numbers
    audit: Callable[[Any], Report]
    call: str  # the audit, as a line of code
    method: str
    claim: str  # the first claim that fails
    passes: float = 1e-10  # the error with which the usual check passes

    def __str__(self):
        return self.title


def example(samples=7, *shape, seed=0, out=3, batch_shape=()):
    """A network with loss and batch: two linear layers, over positions if there are any."""
    rng = np.random.default_rng(seed)
    net = gb.Sequential(layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, out), rng=seed, dtype="float64")
    x, y = rng.standard_normal((samples, *shape, 4)), rng.standard_normal((samples, *shape, out))
    return net, losses.MSELoss(), x, y


def value(quantity, *setting):
    """A quantity's results by parameter, Kronecker blocks as matrices."""
    found = gb.backward(*setting, copy.deepcopy(quantity), rng=0)[quantity.name]
    return {name: np.asarray(each.to_dense() if hasattr(each, "to_dense") else each) for name, each in found.items()}


def ratio(got, want):
    """Return the factor by which an array is too large, by the lengths of both."""
    return float(np.linalg.norm(got) / np.linalg.norm(want))


def difference(got, want):
    """The largest difference over the largest entry."""
    return float(np.abs(np.asarray(got) - want).max() / np.abs(want).max())


def gradient_error(layer, x, seed=0):
    """The usual gradient check of Σ c ∘ f(x, θ): by differences, in one direction of x and one of each parameter."""
    rng, layer = np.random.default_rng(seed), copy.deepcopy(layer)
    if layer.drawn is None:
        layer.initialize(rng)
    layer.drawn = {name: each.astype(float) for name, each in layer.parameters.items()}
    y, saved = layer.forward(x)
    c = rng.standard_normal(y.shape)
    slopes = {"x": (x, layer.vjp(saved, c))}
    jacobians = layer.parameter_jacobians(saved)
    slopes |= {name: (layer.parameters[name], each.sum(c[None])) for name, each in jacobians.items()}
    found, want, h = [], [], 1e-5
    for name, (at, slope) in slopes.items():
        direction = rng.standard_normal(at.shape)
        sides = []
        for sign in (1, -1):
            moved = at + sign * h * direction
            if name == "x":
                sides.append((c * layer.forward(moved)[0]).sum())
                continue
            layer.drawn[name] = moved
            sides.append((c * layer.forward(x)[0]).sum())
            layer.drawn[name] = at
        found.append((slope * direction).sum())
        want.append((sides[0] - sides[1]) / (2 * h))
    return difference(np.array(found), np.array(want))


def reduced(layer, x, name, method):
    """A reduction of a parameter's Jacobian by the layer."""
    layer.initialize(np.random.default_rng(0))
    y, saved = layer.forward(x)
    columns = np.random.default_rng(1).standard_normal((2, *y.shape))
    given = () if method == "input_square" else (columns,)
    return np.asarray(getattr(layer.parameter_jacobians(saved)[name], method)(*given))


def times(name, method, x, more):
    """A measured sentence."""

    def effect(faulty, right):
        factor = ratio(reduced(faulty, x, name, method), reduced(right, x, name, method))
        return f"{f'{factor:.3g} times too large' if factor > 1 else f'{1 / factor:.3g} times too small'} {more}"

    return effect


def of(right, name, method, x):
    """The usual check of a reduction: compared with the right one where there is one position, or one group."""
    return lambda layer: difference(reduced(layer, x, name, method), reduced(right(), x, name, method))
