"""Check an update rule: against a plain one in float64 over drawn steps, and by the laws that hold for any."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbackprop.engine.backward import backward
from gbackprop.layers import Linear, Tanh
from gbackprop.losses import MSELoss
from gbackprop.network import Container, Sequential
from gbackprop.optim import Optimizer
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import Claims, Compared, FoundError, NotGivenError
from gbackprop.testing.purity import changes, snapshot
from gbackprop.testing.report import Report
from gbackprop.testing.setting import values

STEPS, BREAK, LONG = 6, 3, 40
"""Numbers of steps: of a run, before it is broken off, and until a first step should be forgotten."""

RULE_TOLERANCE, FLOAT32_TOLERANCE = 1e-9, 1e-3

SMALL = 1e-7
"""Errors of a step are never relative to less than this share of the parameters, which are rounded."""

FIRST = ("p", "g", "state", "step")
"""The first arguments of a plain rule, in this order."""

Rule = Callable[..., tuple[np.ndarray, Any]]
Make = Optimizer | Callable[[Container], Optimizer]
Moved = dict[str, np.ndarray]


def check_optimizer(make: Make, rule: Rule | None = None, rng: int | np.random.Generator = 0) -> Report:
    """Hold an update rule against a plain one in float64 over drawn steps, and against the laws that hold for any.

    Parameters
    ----------
    make : callable or Optimizer
        A class or function, of a network to an optimizer for it, such as ``lambda network: MyAdam(network, lr=0.1)``.
        Or an optimizer that has taken no step and needs no quantities: copies of it and of its network are checked.
    rule : callable, optional
        The update of one parameter in plain NumPy, ``(p, g, state, step, …) -> (p, state)``: p and g = ∇L + ηp, the
        state, {} at first, and the number of the step, from 1. What it takes further is given by name: settings of the
        optimizer, such as `lr`; `name`, the parameter's; `value`, that of the optimizer's first quantity; and `l2`, η,
        with which g is ∇L. By default the class's attribute `rule`; without one there are the laws alone.
    rng : int or numpy.random.Generator
        Of gradients and parameters.

    Returns
    -------
    Report
        A row for each claim. What the optimizer raises becomes a row.

    Raises
    ------
    TypeError, ValueError
        If `make` gives no optimizer, or one that has taken steps, or `rule` takes what the optimizer does not have.
    """
    if not callable(make) and not isinstance(make, Optimizer):
        raise TypeError(f"make: expected an optimizer, or a function of a network, got {type(make).__name__}")
    trial = Trial(make, int(np.random.default_rng(rng).integers(2**31)))
    optimizer = trial.start()
    rule = rule or getattr(type(optimizer), "rule", None)
    if rule is not None:
        _check_rule(rule, optimizer)
    claims = Claims(repr(optimizer), ["step", "_update"])
    claims.hold("step", "moves the parameters in place, counts, and writes to nothing else", _misstep, trial)
    claims.equal("_update", "is the rule", _against, trial, rule, needs=["step"])
    if rule is None:
        claims.equal("_update", "of equal gradients is the same from the first step on", _first, trial, needs=["step"])
    claim = "parameters of one shape share nothing, and have no order"
    claims.equal("_update", claim, _exchanged, trial, rule, needs=["step"])
    claims.equal("_update", "gradients of zero give finite numbers", _of_zeros, trial, needs=["step"])
    claims.equal("step", "is proportional to lr", _half, trial, needs=["step"])
    claims.equal("step", "float32 stays float32", _float32, trial, needs=["step"])
    claims.equal("step", "is the same again, whatever another optimizer does", _beside, trial, needs=["step"])
    claims.equal("step", "leaves all as it was if it fails", _failed, trial, needs=["step"])
    claims.hold("step", "leaves frozen parameters alone", _thawed, trial, needs=["step"])
    claims.equal("load_state_dict", "goes on from `state_dict` as without a break", _resumed, trial, needs=["step"])
    return claims.report


@dataclass(frozen=True)
class Trial:
    """An optimizer to be made again and again, and the steps that are drawn for it."""

    make: Make
    seed: int

    def start(self, change: Callable[[Container], Any] = lambda network: None) -> Optimizer:
        """Return an optimizer before its first step, of a network of its own that was changed before."""
        if isinstance(self.make, Optimizer):
            if self.make.steps or self.make.quantities:
                has = f"{self.make.steps} steps" if self.make.steps else "quantities"
                raise ValueError(f"make: expected a function of a network, not an optimizer with {has}: {self.make!r}")
            optimizer = copy.deepcopy(self.make)
            change(optimizer.network.astype("float64"))
            return optimizer
        layers = Linear(3, 3), Tanh(), Linear(3, 3), Tanh(), Linear(3, 2)
        network = Sequential(*layers, rng=self.seed, dtype="float64")
        change(network)
        made = self.make(network)
        if not isinstance(made, Optimizer) or made.network is not network:
            raise TypeError(f"make: expected an optimizer for the network that is given, got {made!r:.80}")
        return made

    def results(self, optimizer: Optimizer, steps: int = STEPS) -> list[Result]:
        """Return what each step is given: drawn gradients, and quantities of drawn batches."""
        network, found = optimizer.network, []
        dtype = next(iter(network.parameters.values())).dtype
        for step in range(steps):
            rng = np.random.default_rng([self.seed, step])
            drawn = {n: rng.standard_normal(shape).astype(dtype) for n, shape in network.parameter_shapes().items()}
            result = Result(dtype.type(0), np.zeros((1, 1), dtype), {}, (), ())
            if optimizer.quantities:
                x, y = (rng.standard_normal((4, size)).astype(dtype) for size in (3, 2))
                result = backward(network, MSELoss(), x, y, *optimizer.quantities, rng=step)
            found.append(replace(result, gradient={name: drawn[name] for name in network.trainable}))
        return found

    def run(self, optimizer: Optimizer | None = None, results: Sequence[Result] | None = None) -> list[Moved]:
        """Take steps; return all parameters before the first and after each."""
        optimizer = optimizer or self.start()
        found = [_now(optimizer)]
        for result in self.results(optimizer) if results is None else results:
            optimizer.step(result)
            found.append(_now(optimizer))
        return found

    def beside(self, found: Sequence[Moved], oracle: str) -> Compared:
        """Compare a run with that of another optimizer, to which nothing happens."""
        return Compared(_steps(found), _steps(self.run()), oracle)


def _now(optimizer: Optimizer) -> Moved:
    return {name: value.copy() for name, value in optimizer.network.parameters.items()}


def _steps(found: Sequence[Moved]) -> dict[str, dict[str, np.ndarray]]:
    """Return the parameters after each step by name, as claims compare them."""
    return {name: {f"step {i}": each[name] for i, each in enumerate(found[1:], 1)} for name in found[0]}


def _floor(parameters: Moved) -> float:
    return SMALL * max(float(np.max(np.abs(value), initial=0)) for value in parameters.values())


# ------------------------------------------------------------------------------------------------------------ the rule


def _check_rule(rule: Rule, optimizer: Optimizer) -> None:
    """Refuse a rule that takes what there is not."""
    names = list(inspect.signature(rule).parameters)
    unknown = [n for n in names[len(FIRST) :] if n not in ("l2", "name", "value") and not hasattr(optimizer, n)]
    if len(names) < len(FIRST) or unknown:
        own = f"`l2`, `name`, `value` or settings of {type(optimizer).__name__}"
        raise ValueError(f"rule: expected arguments {', '.join(FIRST)}, then {own}, got ({', '.join(names)})")


def _against(trial: Trial, rule: Rule | None) -> Compared:
    """Compare each step of each parameter, from where the optimizer is."""
    if rule is None:
        raise NotGivenError("its formula is not checked against anything: give its `rule`")
    optimizer, states, more = trial.start(), {}, list(inspect.signature(rule).parameters)[len(FIRST) :]
    got: dict[str, Any] = {name: {} for name in optimizer.network.trainable}
    want, results = copy.deepcopy(got), trial.results(optimizer)
    for step, result in enumerate(results, 1):
        before = _now(optimizer)
        optimizer.step(result)
        for name, value in optimizer.network.trainable.items():
            p, eta, case = before[name], optimizer.l2[name], f"step {step}"
            given = {each: getattr(optimizer, each, None) for each in more} | {"l2": eta, "name": name}
            given["value"] = result[optimizer.quantities[0]][name] if optimizer.quantities else None
            g = result.gradient[name] + (0 if "l2" in more else eta) * p
            wanted, states[name] = rule(p.copy(), g, states.get(name, {}), step, **{each: given[each] for each in more})
            got[name][case], want[name][case] = value - p, wanted - p
    return Compared(got, want, "the plain rule", RULE_TOLERANCE, _floor(before))


def _first(trial: Trial) -> Compared:
    """Compare steps of constant gradients: running means that start at zero and are not corrected make them grow."""
    optimizer = trial.start()
    optimizer.l2 = 0.0
    found = trial.run(optimizer, trial.results(optimizer, 1) * LONG)
    first, last = ({n: after[n] - p for n, p in before.items()} for before, after in (found[:2], found[-2:]))
    size, limit = (sum(np.sum(each**2) for each in moved.values()) ** 0.5 for moved in (first, last))
    if abs(size - limit) > FLOAT32_TOLERANCE * limit:
        share = f"the first step is {size / (limit or 1):.3g} of the {LONG}th"
        raise NotGivenError(f"{share}: right for a rule that corrects no bias; its `rule` would tell")
    return Compared(first, last, f"step {LONG}", FLOAT32_TOLERANCE)


# ---------------------------------------------------------------------------------------------------------------- laws


def _misstep(trial: Trial) -> str:
    optimizer = trial.start()
    arrays, results = dict(optimizer.network.trainable), trial.results(optimizer)
    before = snapshot([(each.gradient, values(each)) for each in results])
    found = trial.run(optimizer, results)
    if written := changes(before, snapshot([(each.gradient, values(each)) for each in results])):
        return f"writes to the result that it is given, at {', '.join(written[:3])}"
    for name, value in arrays.items():
        if optimizer.network.trainable[name] is not value or np.array_equal(found[0][name], value):
            return f"does not move {name} in place"
    return "" if optimizer.steps == STEPS else f"counts {optimizer.steps} after {STEPS} steps"


def _exchanged(trial: Trial, rule: Rule | None) -> Compared:
    """Give two parameters of one shape each other's values, gradients and quantities: each moves as the other did."""
    optimizer = trial.start()
    shapes = {name: value.shape for name, value in optimizer.network.trainable.items()}
    settings = [each for each in vars(optimizer).values() if isinstance(each, Mapping) and shapes.keys() <= each.keys()]
    by_name = rule is not None and "name" in inspect.signature(rule).parameters
    alike = [(a, b) for a in shapes for b in shapes if a < b and shapes[a] == shapes[b] and not by_name]
    pairs = [(a, b) for a, b in alike if all(each[a] == each[b] for each in settings)]
    if not pairs:
        raise NotGivenError("no two parameters have one shape and the same settings")
    results, got, want = trial.results(optimizer), {}, {}
    found = trial.run(optimizer, results)
    for a, b in pairs:

        def swap(given: Mapping[str, Any], other: Mapping[str, str]) -> dict[str, Any]:
            return {name: given[other.get(name, name)] for name in given}

        twin, other = trial.start(), {a: b, b: a}
        for name, value in swap(_now(twin), other).items():
            twin.network.parameters[name][...] = value
        theirs = [
            replace(each, gradient=swap(each.gradient, other), values=[swap(value, other) for value in each.values])
            for each in results
        ]
        got[f"{a} and {b}"] = _steps(trial.run(twin, theirs))
        want[f"{a} and {b}"] = _steps([swap(each, other) for each in found])
    return Compared(got, want, "the other way round")


def _of_zeros(trial: Trial) -> Compared:
    """Take steps of zeros: the optimizer raises the error itself."""
    optimizer = trial.start()
    zeros = [replace(r, gradient={n: 0 * g for n, g in r.gradient.items()}) for r in trial.results(optimizer)]
    trial.run(optimizer, zeros)
    return Compared({}, {}, "")


def _half(trial: Trial) -> Compared:
    moved = []
    for share in (1.0, 0.5):
        optimizer = trial.start()
        optimizer.lr *= share
        before, after = trial.run(optimizer, trial.results(optimizer, 1))
        moved.append({name: (after[name] - before[name]) / share for name in before})
    return Compared(moved[1], moved[0], "lr, half of it", RULE_TOLERANCE, _floor(before))


def _float32(trial: Trial) -> Compared:
    single = trial.start(lambda network: network.astype("float32"))
    found = trial.run(single)
    arrays = {**found[-1], **single.state_dict()}
    wrong = [f"{each.dtype} in {name}" for name, each in arrays.items() if each.dtype.kind == "f" and each.itemsize > 4]
    if wrong:
        raise FoundError(f"gives {', '.join(wrong[:3])} for float32")
    if single.quantities:  # a curvature that is nearly singular may round to another
        return Compared({}, {}, "")
    return Compared(_steps(found), _steps(trial.run()), "the same in float64", FLOAT32_TOLERANCE)


def _beside(trial: Trial) -> Compared:
    one, other = trial.start(), trial.start()
    found = [_now(one)]
    for result in trial.results(one):
        other.step(replace(result, gradient={name: 3 * value for name, value in result.gradient.items()}))
        found += trial.run(one, [result])[1:]
    return trial.beside(found, "alone")


def _failed(trial: Trial) -> Compared:
    """Give one step a gradient that is no number, at the parameter that comes last."""
    optimizer = trial.start()
    results = trial.results(optimizer)
    found, last = trial.run(optimizer, results[:BREAK]), list(optimizer.network.trainable)[-1]
    with suppress(Exception):
        optimizer.step(replace(results[0], gradient={**results[0].gradient, last: results[0].gradient[last] * np.nan}))
        if all(np.isfinite(value).all() for value in _now(optimizer).values()):
            return Compared({}, {}, "")  # it knows what to do
    return trial.beside(found + trial.run(optimizer, results[BREAK:])[1:], "without the step that failed")


def _thawed(trial: Trial) -> str:
    name = next(iter(trial.start().network.trainable))
    found = trial.run(trial.start(lambda network: network.freeze(name)))
    return "" if np.array_equal(found[0][name], found[-1][name]) else f"moves {name}, which is frozen"


def _resumed(trial: Trial) -> Compared:
    first, second = trial.start(), trial.start()
    results = trial.results(first)
    found = trial.run(first, results[:BREAK])
    state = first.state_dict()
    trial.run(first, results[BREAK:])  # writes to no array that it gave away
    for name, value in found[-1].items():
        second.network.parameters[name][...] = value
    second.load_state_dict(state)
    found += trial.run(second, results[BREAK:])[1:]
    if second.steps != STEPS:
        raise FoundError(f"counts {second.steps} steps after {STEPS}, of which {BREAK} were loaded")
    return trial.beside(found, "without a break")
