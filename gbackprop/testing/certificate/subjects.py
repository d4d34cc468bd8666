"""The code of a layer or loss and its stated formulas, as functions of the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer
from gbackprop.layers.operations.operation import CurveOperation
from gbackprop.losses.base import Loss
from gbackprop.losses.class_weights import ClassWeights
from gbackprop.testing.certificate.enclosure import array_of
from gbackprop.testing.certificate.notation import Formula
from gbackprop.testing.flat import dense
from gbackprop.testing.probe import twin_of

LETTERS = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "lambd": "λ", "label_smoothing": "ε"}
"""Options that formulas call by a letter; others have their names."""

TARGETS = ((-1.5, 0.75, 0.25), (0.3, 1.0, 0.6), (3.0, 0.0, 1.0))
"""Targets of a loss of numbers; those are taken that it does not refuse."""

OUTPUTS = (0.4, -1.2, 0.7)
"""The outputs beside the one that takes all values."""


@dataclass(frozen=True)
class Setting:
    """The numbers of a layer or loss, of which one varies between two ends."""

    title: str
    low: float
    high: float
    varied: int
    numbers: Mapping[str, float]  # by symbols: the outputs, then the targets
    count: int  # of the outputs
    options: Mapping[str, Any]  # what has a name in formulas beside these
    given: Callable[[list[Any]], dict[str, Any]]  # names of the numbers in formulas
    code: Callable[[list[Any]], list[Any]]  # the three methods

    def at(self, x: Any) -> list[Any]:
        """Return the numbers where the one that varies is x."""
        return [x if k == self.varied else value for k, value in enumerate(self.numbers.values())]


@singledispatch
def settings_of(layer: Any, low: float, high: float) -> Iterator[Setting]:
    """Yield an elementwise layer on features of shape (1,), as it is, and in training with each number it may draw."""
    layer = twin_of(layer, rng=np.random.default_rng(0))
    weights = {name: float(value.flat[0]) for name, value in layer.parameters.items() if value.size == 1}
    noise = layer.noise((64, 1), np.random.default_rng(0))
    for drawn in (None, *np.unique([] if noise is None else noise).tolist()):
        training = {"training": float(drawn is not None), "drawn": float(drawn or 0), "g": 1.0}
        options, title = {**_options(layer), **weights, **training}, f"training, drawn {drawn}" * (drawn is not None)
        code = partial(_layer_code, layer, drawn)
        yield Setting(title, low, high, 0, {"x": 0.0}, 1, options, lambda made: {"x": made[0]}, code)


def _layer_code(layer: Layer, drawn: float | None, made: list[Any]) -> list[Any]:
    """Compute y, φ'(x) and φ''(x) by a layer's methods."""
    x = array_of(made)
    y, saved = layer.forward(x) if drawn is None else layer.forward_training(x, np.array([[drawn]]))
    first, zero = layer.mjp(saved, np.ones((1, 1, 1)))[0], layer.curvature == "zero"
    return [y, first, np.zeros((1, 1)) if zero else dense(layer.residual(saved, np.ones((1, 1))))]


@settings_of.register
def _(loss: Loss, low: float, high: float) -> Iterator[Setting]:
    """Yield a loss at a few outputs, of which each varies, and with each kind of target."""
    (least, most), (start, end) = loss.domain, loss.finite_range
    weight, labels = vars(loss).get("weight"), isinstance(loss, ClassWeights)
    count = len(weight) if labels and weight is not None else 3  # with 2, c = 1/C may hide a factor 2
    others = [f if least <= f <= most else abs(f) / 2 for f in itertools.islice(itertools.cycle(OUTPUTS), count)]
    targets: Any = [0, *range(count - 1, 0, -1)] if labels else TARGETS
    taken = [target for target in targets if _takes(loss, count, target)]
    if not taken:
        raise ValueError(f"{loss!r}: expected a loss that takes outputs of shape ({count},)")
    for k in range(max(count, len(taken))):
        varied, target = k % count, taken[k % len(taken)]
        numbers = {f"f{n}": f for n, f in enumerate(others, 1)}
        numbers |= {f"{'yv'[n // count]}{n % count + 1}": y for n, y in enumerate(_numbers(target))}
        _check_samples(loss, count, target, [*numbers.values()])
        yield Setting(
            f"output {varied + 1} of {count}, target {target}", max(low, least, start), min(high, most, end), varied,
            numbers, count, _loss_options(loss, count), partial(_given, count, target),
            partial(_loss_code, loss, count, target),
        )  # fmt: skip


def _loss_options(loss: Loss, count: int) -> dict[str, Any]:
    c = 1 / count if loss.reduction == "mean" and not isinstance(loss, ClassWeights) else 1.0
    each = {"weight": 1.0, "pos_weight": 1.0} | {n: v for n, v in vars(loss).items() if isinstance(v, np.ndarray)}
    return {**_options(loss), **{n: np.broadcast_to(v, count).tolist() for n, v in each.items()}, "c": c}


def _takes(loss: Loss, count: int, target: Any) -> bool:
    try:
        f = np.full((1, count), 0.25)
        loss.check_target("target", _target(loss, f, target, _numbers(target)), f)
    except (TypeError, ValueError):
        return False
    return True


def _numbers(target: Any) -> list[float]:
    """Return what a target that is no label has: numbers, and variances, the numbers again above 0."""
    return [] if isinstance(target, int) else [*target, *(abs(y) + 0.5 for y in target)]


def _target(loss: Loss, f: Any, target: Any, numbers: list[Any]) -> Any:
    """Return a target of the loss's shape, for outputs of shape (1, C)."""
    if not numbers:
        return np.array([target])
    both = array_of(numbers).reshape(1, 2, -1)
    return both if loss.target_shape(f.shape) == both.shape else both[:, 0]


def _given(count: int, target: Any, made: list[Any]) -> dict[str, Any]:
    """Return the names of outputs and targets in formulas."""
    return {"f": made[:count], "y": made[count : 2 * count] or target, "v": made[2 * count :]}


def _check_samples(loss: Loss, count: int, label: Any, numbers: list[float]) -> None:
    """Refuse a loss of which the methods depend on the other samples, or on their number."""
    try:
        found = [_loss_code(loss, count, label, numbers, (1.0, 0.5, 0.75)[:n]) for n in (1, 3)]
        alone, beside = (np.hstack([*map(np.ravel, each)]).astype(float) for each in found)
    except Exception:  # the certificate will say so
        return
    if not np.allclose(alone, beside, 1e-12, 0, equal_nan=True):
        raise TypeError(f"{loss!r}: expected a loss whose methods compute each sample from itself alone")


def _loss_code(
    loss: Loss, count: int, label: Any, made: list[Any], factors: tuple[float, ...] = (1.0,)
) -> list[Any]:
    """Compute ℓ, ∇ℓ and ∇²ℓ by a loss's methods, the last from its root, of the first of some samples."""
    f = array_of(made[:count])
    target = np.repeat(_target(loss, f, label, made[count:]), len(factors), 0)
    f = f if len(factors) == 1 else np.concatenate([factor * f for factor in factors])
    root = loss.hessian_sqrt(f, target)
    outer = [sum((r[0, i] * r[0, j] for r in root), 0) for i, j in itertools.product(range(count), repeat=2)]
    return [loss.values(f, target)[:1], loss.gradients(f, target)[:1], outer]


def _options(subject: Any) -> dict[str, Any]:
    """Return the options that are numbers by their names in formulas."""
    given = vars(subject.bound((1,))) if isinstance(subject, CurveOperation) else vars(subject)
    found = {name: float(value) for name, value in given.items() if isinstance(value, (bool, int, float))}
    return found | {LETTERS.get(name, name): value for name, value in found.items()}


def parsed(formulas: Mapping[str, str], methods: Iterable[str], setting: Setting, owner: str) -> dict[str, Formula]:
    """Return the stated formulas as functions, by method; definitions in one hold in those that follow."""
    names = {"y", "i", "j", "k", "C", *setting.options, *setting.given([*setting.numbers])}
    definitions: dict[str, Any] = {}
    found = {}
    for name in (each for each in (*methods, "where") if each in formulas):
        found[name] = Formula(formulas[name], names, definitions, f"{owner}, formula {name!r}")
        names |= found[name].names
    return found
