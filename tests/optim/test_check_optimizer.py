"""`check_optimizer`: shipped rules hold, and a fault in each part of a user's rule is named."""

from functools import partial

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers
from gbackprop import quantities as q
from gbackprop.optim import SGD, Adam, Optimizer, Preconditioned
from gbackprop.testing import check_optimizer
from gbackprop.testing.optimizers import STEPS


def sgd(p, g, state, step, lr, momentum, nesterov):
    v = momentum * state.get("v", 0) + g
    return p - lr * (g + momentum * v if nesterov else v), {"v": v}


def adam(p, g, state, step, lr, betas, eps):
    m = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
    v = betas[1] * state.get("v", 0) + (1 - betas[1]) * g**2
    direction = m / (1 - betas[0] ** step) / (np.sqrt(v / (1 - betas[1] ** step)) + eps)
    return p - lr * direction, {"m": m, "v": v}


def preconditioned(p, g, state, step, lr, l2, damping, value, average):
    new = {"A": value.A, "B": value.B} if hasattr(value, "A") else {"C": value}
    if average == "mean" and step > 1:
        new = {key: each if each is None else state[key] + (each - state[key]) / step for key, each in new.items()}
    g, shift = g + l2 * p, damping + l2
    if "C" in new:
        return p - lr * g / (np.maximum(new["C"], 0) + shift), new
    a, b = new["A"], new["B"]
    if a is None:
        return p - lr * np.linalg.solve(b + shift * np.eye(len(b)), g), new
    pi = np.sqrt(np.trace(a) / len(a) / (np.trace(b) / len(b)))
    left = np.linalg.solve(b + shift**0.5 / pi * np.eye(len(b)), g)
    return p - lr * left @ np.linalg.inv(a + pi * shift**0.5 * np.eye(len(a))), new


SHIPPED = [
    (partial(SGD, lr=0.1), sgd),
    (partial(SGD, lr=0.1, momentum=0.9, l2=0.01), sgd),
    (partial(SGD, lr=1e-3, momentum=0.9, nesterov=True, l2={"0.weight": 0.3}), sgd),
    (Adam, adam),
    (partial(Adam, lr=0.1, betas=(0.5, 0.9), eps=1e-2, l2=0.1), adam),
    (lambda network: Preconditioned(network, q.DiagGGN(), 0.1, 0.01, l2=0.1), preconditioned),
    (lambda network: Preconditioned(network, q.KFLR(), 0.1, 0.01, l2=0.1, average="mean"), preconditioned),
    (lambda network: Preconditioned(network, q.KFAC(), 0.1, 0.01), preconditioned),
    (lambda network: Preconditioned(network, q.KFAC(), 0.1, 0.01, average="ema"), None),
    (lambda network: Preconditioned(network, q.EKFAC(), 0.1, 0.01), None),
    (Adam(gb.Sequential(layers.Linear(3, 2, bias=False), rng=0)), adam),
]


@pytest.mark.parametrize(("make", "rule"), SHIPPED)
def test_shipped_rules_hold(make, rule):
    report = check_optimizer(make, rule)
    report.assert_ok()
    assert rule is None or [row.verdict for row in report.rows if row.claim == "is the rule"] == ["ok"]


class Own(Optimizer):
    """Adam, as a user writes it."""

    moments = ("m", "v")
    one, two, eps = 0.9, 0.99, 1e-8

    def __init__(self, network, lr=0.01):
        super().__init__(network, lr)

    def _update(self, name, g, result):
        m = self._advance(f"m/{name}", self.one, (1 - self.one) * g)
        v = self._advance(f"v/{name}", self.two, (1 - self.two) * g**2)
        return self.direction(m, v, self.steps)

    def direction(self, m, v, t):
        return m / (1 - self.one**t) / (np.sqrt(v / (1 - self.two**t)) + self.eps)

    @staticmethod
    def rule(p, g, state, step, lr, one, two, eps):
        return adam(p, g, state, step, lr, (one, two), eps)


class NoCorrection(Own):
    def direction(self, m, v, t):
        return m / (np.sqrt(v) + self.eps)


class OneLate(Own):
    def direction(self, m, v, t):
        return super().direction(m, v, t + 1)


class EpsInside(Own):
    eps = 0.1

    def direction(self, m, v, t):
        return m / (1 - self.one**t) / np.sqrt(v / (1 - self.two**t) + self.eps)


class NoRoot(Own):
    def direction(self, m, v, t):
        return m / (1 - self.one**t) / (v / (1 - self.two**t) + 1)


class SharedByShape(Own):
    rule = None

    def _update(self, name, g, result):
        return super()._update(next(n for n, p in self.network.trainable.items() if p.shape == g.shape), g, result)


class CountsParameters(Own):
    rule, calls = None, 0

    def _update(self, name, g, result):
        self.calls += 1
        return super()._update(name, g, result) / self.calls


class TimesLr(Own):
    rule = None

    def _update(self, name, g, result):
        return super()._update(name, g, result) * self.lr


class Doubles(Own):
    rule = None

    def _advance(self, key, keep, add):
        return super()._advance(key, keep, add.astype(np.float64))

    def _update(self, name, g, result):
        return super()._update(name, g, result).astype(g.dtype)


class OfTheClass(Own):
    rule, shared = None, {}

    def _update(self, name, g, result):
        self.shared[name] = 0.9 * self.shared.get(name, 0) + g
        return self.shared[name].copy()


class InPlace(Own):
    rule = None

    def _update(self, name, g, result):
        m = self._arrays.setdefault(f"m/{name}", np.zeros_like(g))
        self._arrays.setdefault(f"v/{name}", np.zeros_like(g))
        m += g
        return m.copy()


class NotInTheState(Own):
    rule, moments = None, ()

    def __init__(self, network):
        super().__init__(network)
        self.kept = {}

    def _update(self, name, g, result):
        self.kept[name] = 0.9 * self.kept.get(name, 0) + g
        return self.kept[name]


class GivesItsArrays(Own):
    rule = None

    def state_dict(self):
        return {"steps": np.array(self.steps), **self._arrays}

    def _update(self, name, g, result):
        m = self._advance(f"m/{name}", 0.9, g) if f"m/{name}" not in self._arrays else self._arrays[f"m/{name}"]
        self._advance(f"v/{name}", 0.9, g)
        np.copyto(m, 0.9 * m + g) if self.steps > 1 else None
        return m.copy()

    def step(self, result):
        if all(np.isfinite(g).all() for g in result.gradient.values()):
            super().step(result)
        else:
            raise ValueError("not finite")


class WritesToTheGradient(Own):
    def _update(self, name, g, result):
        g *= 2
        return super()._update(name, g, result)


class MovesAll(Own):
    rule = None

    def step(self, result):
        super().step(result)
        for name in self.network.parameters.keys() - self.network.trainable.keys():
            self.network.parameters[name][...] *= 0.9


class ForgetsToCount(Own):
    rule = None

    def step(self, result):
        super().step(result)
        self._steps = min(self._steps, 2)


class DoublesParametersAtLast(Own):
    rule = None

    def step(self, result):
        super().step(result)
        for _, layer in self.network.named_layers():
            if layer.drawn and self.steps == STEPS:  # in float64 these are the arrays themselves
                layer.drawn = {name: np.asarray(value, "float64") for name, value in layer.drawn.items()}


FAULTS = [
    (NoCorrection, "_update", "the rule"), (OneLate, "_update", "the rule"), (EpsInside, "_update", "the rule"),
    (NoRoot, "_update", "the rule"), (SharedByShape, "_update", "share nothing"),
    (CountsParameters, "_update", "share nothing"), (TimesLr, "step", "proportional"), (Doubles, "step", "float32"),
    (OfTheClass, "_update", ""), (InPlace, "step", "failed"), (NotInTheState, "load_state_dict", "without a break"),
    (GivesItsArrays, "load_state_dict", "without a break"), (WritesToTheGradient, "step", "writes to nothing"),
    (MovesAll, "step", "frozen"), (DoublesParametersAtLast, "step", "float32"),
    (ForgetsToCount, "step", "counts"),
]  # fmt: skip


def test_the_sound_rule_holds():
    report = check_optimizer(Own)
    report.assert_ok()
    assert {row.verdict for row in report.rows} == {"ok"}


@pytest.mark.parametrize(("make", "method", "claim"), FAULTS)
def test_a_fault_is_named(make, method, claim):
    OfTheClass.shared.clear()
    report = check_optimizer(make)
    assert report.failures, report
    assert report.failures[0].method == method, report.failures[0].explain()
    assert claim in report.failures[0].claim


def test_without_a_rule_a_correction_that_is_missing_is_a_remark_and_no_failure():
    for make, verdict in ((NoCorrection, "not given"), (Own, "ok")):
        rows = check_optimizer(type("Bare", (make,), {"rule": None})).rows
        assert [row.verdict for row in rows if "first step" in row.claim] == [verdict]
    rows = check_optimizer(partial(SGD, lr=1, momentum=0.5)).rows
    assert ["the first step is 0.5 of" in row.problem for row in rows if "first step" in row.claim] == [True]


@pytest.mark.parametrize("lr", [1e-6, 1e-8, 1e-12])
def test_rounding_of_small_steps_is_no_failure_and_hides_none(lr):
    check_optimizer(partial(SGD, lr=lr), rule=sgd).assert_ok()
    check_optimizer(partial(Adam, lr=lr, eps=1e3), rule=adam).assert_ok()

    class Squared(SGD):
        def _update(self, name, g, result):
            return super()._update(name, g, result) * (3 * self.lr / lr)

    failures = check_optimizer(partial(Squared, lr=lr), rule=sgd).failures
    assert any("proportional to lr" in row.claim for row in failures)
    assert any("rule" in row.claim for row in failures)


def test_settings_by_name_are_no_shared_state():
    check_optimizer(partial(SGD, lr=0.1, l2={"0.weight": 1.0, "2.bias": 0.1})).assert_ok()


def test_a_rule_that_couples_all_parameters_alike_is_no_shared_state():
    class Clipped(SGD):
        def _update(self, name, g, result):
            return super()._update(name, g, result) / sum(np.sum(each**2) for each in result.gradient.values()) ** 0.5

    check_optimizer(partial(Clipped, lr=0.1, momentum=0.9)).assert_ok()


BAD = {
    "no optimizer": (lambda: check_optimizer(3), TypeError, "make: expected an optimizer, or a function"),
    "no optimizer made": (lambda: check_optimizer(lambda network: 3), TypeError, "make: expected an optimizer for"),
    "too few arguments": (lambda: check_optimizer(Own, lambda p, g: p), ValueError, "rule: expected arguments p, g"),
    "unknown settings": (
        lambda: check_optimizer(Own, lambda p, g, state, step, beta: p), ValueError, "settings of Own, got .*beta",
    ),
    "quantities": (
        lambda: check_optimizer(Preconditioned(gb.Sequential(layers.Linear(2, 2)), q.KFAC(), 0.1, 0.1)),
        ValueError, "with quantities",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        call()


def test_an_optimizer_that_has_taken_steps():
    network = gb.Sequential(layers.Linear(2, 2), rng=0)
    optimizer = Own(network)
    x = np.ones((1, 2), np.float32)
    optimizer.step(gb.backward(network, gb.losses.MSELoss(), x, x))
    with pytest.raises(ValueError, match="with 1 steps"):
        check_optimizer(optimizer)
