"""kfac-jax: damping that goes the wrong way."""

import numpy as np
from exhibit import Exhibit, example

import gbackprop as gb
from gbackprop.optim import Optimizer
from gbackprop.testing.optimizers import check_optimizer


class Damped(Optimizer):
    """θ ← θ − α g / (1 + λ) with a damping λ for each number: doubled after a step too far, else halved.

    A step was too far, and would be rejected, if the gradient after it has turned its sign.
    """

    moments = ("damping", "last")

    def __init__(self, network, lr=0.1, l2=0.0):
        super().__init__(network, lr, l2)

    def adapted(self, damping, rejected):
        return np.where(rejected, 2 * damping, damping / 2).astype(damping.dtype)

    def _update(self, name, gradient, result):
        damping = self._arrays.get(f"damping/{name}", np.ones_like(gradient))
        if f"last/{name}" in self._arrays:
            damping = self.adapted(damping, gradient * self._arrays[f"last/{name}"] < 0)
        self._arrays[f"damping/{name}"], self._arrays[f"last/{name}"] = damping, gradient.copy()
        return gradient / (1 + damping)


class OtherWay(Damped):
    def adapted(self, damping, rejected):
        return np.where(rejected, damping / 2, 2 * damping).astype(damping.dtype)  # raised if it was not rejected


def rule(p, g, state, step, lr):
    """The same for one parameter, in plain NumPy."""
    damping = state.get("damping", np.ones_like(g))
    if step > 1:
        damping = np.array([2 * d if turned else d / 2 for d, turned in zip(damping.flat, (g * state["g"] < 0).flat)])
        damping = damping.reshape(g.shape)
    return p - lr * g / (1 + damping), {"damping": damping, "g": g}


def losses(kind, steps):
    """The loss before each step of a training run."""
    network, loss, x, y = example(20)
    optimizer, found = kind(network), []
    for _ in range(steps):
        result = gb.backward(network, loss, x, y)
        optimizer.step(result)
        found.append(float(result.loss))
    return np.array(found)


def largest_rise(kind):
    """The usual test of an optimizer: the loss falls."""
    found = losses(kind, 100)
    return max(0.0, float(np.diff(found).max()) / found[0])


EXHIBITS = [
    Exhibit(
        title="Damping raised without a reason",
        library="kfac-jax",
        wrong="damping raised when a step was not rejected",
        mended="commit aaf3064 (2024-12)",
        kind="a condition",
        text="""
A step that was too far is rejected and asks for more damping, one that was not for less. The other way round the
damping grows with each good step until nothing moves. Planted here in a rule with a damping for each number,
rejected where the gradient turns its sign: the list says when the damping was raised, and the rest is ours.
""",
        faulty=lambda: OtherWay,
        right=lambda: Damped,
        lines=OtherWay.adapted,
        missed="the loss falls",
        unseen="the loss falls with each of 100 steps of training",
        usual=largest_rise,
        effect=lambda faulty, right: "the loss after 100 steps is {:.3g} instead of {:.3g}, from {:.3g}".format(
            *(losses(kind, 100)[-1] for kind in (faulty, right)), losses(right, 1)[0]
        ),
        audit=lambda kind: check_optimizer(kind, rule),
        call="check_optimizer(OtherWay, rule)",
        method="_update",
        claim="is the rule",
    ),
]
