"""The methods of a layer or loss that are certified, and its stated formulas as functions of the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.losses.class_weights import ClassWeights
from gbackprop.testing.certificate.notation import Formula
from gbackprop.testing.probe import twin_of

LETTERS = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "lambd": "λ", "label_smoothing": "ε"}
"""Options that formulas call by a letter; others have their names."""

TARGETS = ((-1.5, 0.75, 0.25), (0.3, 1.0, 0.6), (3.0, 0.0, 1.0))
"""Targets of a loss of numbers; those are taken that it does not refuse."""

OUTPUTS = (0.4, -1.2, 0.7)
"""The outputs beside the one that takes all values."""

METHODS = {"layer": ("forward", "mjp", "residual"), "loss": ("values", "gradients", "hessian")}


@dataclass(frozen=True)
class Setting:
    """Which of the outputs varies, between which ends, and what the others and the target are."""

    varied: int
    low: float
    high: float
    others: tuple[float, ...]
    target: Any = None  # of a loss: a label, or numbers; what a layer has drawn

    def __str__(self) -> str:
        if len(self.others) == 1:
            return "" if self.target is None else f"training, drawn {self.target}"
        return f"output {self.varied + 1} of {len(self.others)}, target {self.target}"


class CertifiedLayer:
    """An elementwise layer, on features of shape (1,)."""

    kind = "layer"

    def __init__(self, layer: Layer) -> None:
        self.layer, self.count, self.stated = twin_of(layer, rng=np.random.default_rng(0)), 1, layer.formulas

    def settings(self, low: float, high: float) -> Iterator[Setting]:
        """Yield the layer as it is, and in training with each number that it may draw."""
        noise = self.layer.noise((64, 1), np.random.default_rng(0))
        for drawn in (None, *np.unique([] if noise is None else noise).tolist()):
            yield Setting(0, low, high, (0.0,), drawn)

    def target(self, drawn: Any) -> np.ndarray:
        """Return what was drawn, for a batch."""
        return np.array([[drawn]])

    def names(self, drawn: Any = None) -> dict[str, Any]:
        """Return the numbers of the formulas, by name."""
        training = {"training": float(drawn is not None), "drawn": float(drawn or 0)}
        weights = {name: float(value.flat[0]) for name, value in self.layer.parameters.items() if value.size == 1}
        return {**_options(self.layer), **weights, **training, "g": 1.0}

    def code(self, x: Any, target: Any) -> list[Any]:
        """Compute y, φ'(x) and φ''(x) by the layer's methods."""
        y, saved = self.layer.forward(x) if target is None else self.layer.forward_training(x, target.reshape(1, 1))
        first = self.layer.mjp(saved, np.ones((1, 1, 1)))[0]
        zero = self.layer.curvature == "zero"
        return [y, first, np.zeros((len(x), 1)) if zero else self.layer.residual(saved, np.ones((1, 1)))]


class CertifiedLoss:
    """A loss, at a few outputs."""

    kind = "loss"

    def __init__(self, loss: Loss) -> None:
        self.loss, self.count, self.stated = loss, 3, loss.formulas  # with 2, c = 1/C may hide a factor 2
        if isinstance(loss, ClassWeights):
            self.count = self.count if loss.weight is None else len(loss.weight)

    def settings(self, low: float, high: float) -> Iterator[Setting]:
        """Yield each output, and each kind of target."""
        (least, most), (start, end) = self.loss.domain, self.loss.finite_range
        low, high = max(low, least, start), min(high, most, end)
        others = tuple(
            f if least <= f <= most else abs(f) / 2 for f in itertools.islice(itertools.cycle(OUTPUTS), self.count)
        )
        targets: Any = (
            [0, *range(self.count - 1, 0, -1)]
            if isinstance(self.loss, ClassWeights)
            else [t[: self.count] for t in TARGETS]
        )
        taken = list(filter(self._takes, targets))
        for k in range(max(self.count, len(taken)) if taken else 0):
            yield Setting(k % self.count, low, high, others, taken[k % len(taken)])

    def _takes(self, target: Any) -> bool:
        try:
            self.loss.check_target("target", self.target(target), np.full((1, self.count), 0.25))
        except (TypeError, ValueError):
            return False
        return True

    def target(self, values: Any) -> np.ndarray:
        """Return a target of the loss's shape, from a label or numbers; variances are the numbers again, above 0."""
        if isinstance(values, int):
            return np.array([values])
        shape, row = self.loss.target_shape((1, self.count)), np.array([values])
        return row if shape == row.shape else np.stack([row, abs(row) + 0.5], axis=1)

    def names(self, target: Any = None) -> dict[str, Any]:
        """Return the numbers of the formulas, by name."""
        c = 1 / self.count if self.loss.reduction == "mean" and not isinstance(self.loss, ClassWeights) else 1.0
        each = {"weight": 1.0, "pos_weight": 1.0} | {
            n: v for n, v in vars(self.loss).items() if isinstance(v, np.ndarray)
        }
        lists = {name: np.broadcast_to(value, self.count).tolist() for name, value in each.items()}
        return {**_options(self.loss), **lists, "c": c}

    def code(self, f: Any, target: Any) -> list[Any]:
        """Compute ℓ, ∇ℓ and ∇²ℓ by the loss's methods, the last from its root."""
        root = self.loss.hessian_sqrt(f, target)
        outer = [sum((r[0, i] * r[0, j] for r in root), 0) for i, j in itertools.product(range(self.count), repeat=2)]
        return [self.loss.values(f, target), self.loss.gradients(f, target), outer]


def _options(subject: Any) -> dict[str, Any]:
    """Return the options that are numbers by their names in formulas."""
    found = {name: float(value) for name, value in vars(subject).items() if isinstance(value, (bool, int, float))}
    return found | {LETTERS.get(name, name): value for name, value in found.items()}


def parsed(subject: CertifiedLayer | CertifiedLoss, owner: str) -> dict[str, Formula]:
    """Return the stated formulas as functions, by method; definitions in one hold in those that follow."""
    formulas, (function, *_) = subject.stated, METHODS[subject.kind]
    if function not in formulas:
        raise ValueError(f"{owner}: expected its function in formulas[{function!r}], got none")
    names = {*subject.names(), *(["x", "y"] if subject.kind == "layer" else ["f", "y", "v", "i", "j", "k", "C"])}
    definitions: dict[str, Any] = {}
    found = {}
    for name in (each for each in (*METHODS[subject.kind], "where") if each in formulas):
        found[name] = Formula(formulas[name], names, definitions, f"{owner}, formula {name!r}")
        names |= found[name].names
    return found
