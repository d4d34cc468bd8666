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
"""Numbers of steps: of a run, before something happens to it, and until a first step should be forgotten."""

RULE_TOLERANCE, FLOAT32_TOLERANCE = 1e-9, 1e-3

FIRST = ("p", "g", "state", "step")
"""The first arguments of a plain rule, in this order."""

Rule = Callable[..., tuple[np.ndarray, Any]]
Make = Optimizer | Callable[[Container], Optimizer]
Moved = dict[str, np.ndarray]


def check_optimizer(make: Make, rule: Rule | None = None, rng: int | np.random.Generator = 0) -> Report:
    """Compare an update rule with a plain one in float64 over drawn steps, and check the laws of any rule.

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
    trial = OptimizerTrial(make, int(np.random.default_rng(rng).integers(2**31)))
    optimizer = trial.start()
    rule = rule or getattr(type(optimizer), "rule", None)
    taken = None if rule is None else list(inspect.signature(rule).parameters)
    own = f"`l2`, `name`, `value` or settings of {type(optimizer).__name__}"
    known = lambda name: name in ("l2", "name", "value") or hasattr(optimizer, name)  # noqa: E731
    if taken is not None and (len(taken) < len(FIRST) or not all(map(known, taken[len(FIRST) :]))):
        raise ValueError(f"rule: expected arguments {', '.join(FIRST)}, then {own}, got ({', '.join(taken)})")
    claims = Claims(repr(optimizer), ["step", "_update"])
    claims.hold("step", "moves the parameters in place, counts, and writes to nothing else", _misstep, trial)
    laws: dict[tuple[str, str], Callable[[OptimizerTrial], Compared]] = {
        ("_update", "of equal gradients is the same from the first step on"): _first,
        ("_update", "parameters of one shape share nothing, and have no order"): _exchanged,
        ("step", "is proportional to lr"): _half,
        ("step", "float32 stays float32"): _float32,
        ("load_state_dict", "goes on from `state_dict` as without a break"): _resumed,
        ("step", "is the same again, beside another optimizer, after a step that failed"): _again,
        ("step", "leaves frozen parameters alone"): _frozen,
    }
    claims.equal("_update", "is the rule", _against, trial, rule, taken, needs=["step"])
    for (method, claim), law in laws.items():
        if (law is _first and rule is not None) or (law is _exchanged and "name" in (taken or ())):
            continue  # the rule says what is right
        claims.equal(method, claim, law, trial, needs=["step"])
    return claims.report


@dataclass(frozen=True)
class OptimizerTrial:
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
            change(optimizer.network.to("cpu").astype("float64"))
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


def _now(optimizer: Optimizer) -> Moved:
    return {name: value.copy() for name, value in optimizer.network.parameters.items()}


def _steps(found: Sequence[Moved]) -> dict[str, dict[str, np.ndarray]]:
    """Return the parameters after each step by name, as claims compare them."""
    return {name: {f"step {i}": each[name] for i, each in enumerate(found[1:], 1)} for name in found[0]}


def _compared(got: Any, want: Any, oracle: str, parameters: Moved, tolerance: float = RULE_TOLERANCE) -> Compared:
    """Compare steps: errors are never relative to less than what the parameters are rounded by.

    A step is θ + Δ − θ, with an error of eps |θ|, and twice that if it is of half the size: 8 eps |θ| may be wrong.
    """
    size = max(float(np.max(np.abs(value), initial=0)) for value in parameters.values())
    floor = max(1e-7, 8 * float(np.finfo(np.float64).eps) / tolerance) * size
    return Compared(got, want, oracle, tolerance, floor)


def _against(trial: OptimizerTrial, rule: Rule | None, taken: list[str] | None) -> Compared:
    """Compare each step of each parameter, from where the optimizer is."""
    if rule is None or taken is None:
        raise NotGivenError("its formula is not checked against anything: give its `rule`")
    optimizer, states = trial.start(), {}  # type: ignore[var-annotated]
    got: dict[str, Any] = {name: {} for name in optimizer.network.trainable}
    want, results = copy.deepcopy(got), trial.results(optimizer)
    for step, result in enumerate(results, 1):
        before = _now(optimizer)
        optimizer.step(result)
        for name, value in optimizer.network.trainable.items():
            p, eta, case = before[name], optimizer.l2[name], f"step {step}"
            given = {each: getattr(optimizer, each, None) for each in taken} | {"l2": eta, "name": name}
            given["value"] = result[optimizer.quantities[0]][name] if optimizer.quantities else None
            g = result.gradient[name] + (0 if "l2" in taken else eta) * p
            more = {each: given[each] for each in taken[len(FIRST) :]}
            wanted, states[name] = rule(p.copy(), g, states.get(name, {}), step, **more)
            got[name][case], want[name][case] = value - p, wanted - p
    return _compared(got, want, "the plain rule", before)


def _first(trial: OptimizerTrial) -> Compared:
    """Compare steps of constant gradients: running means that start at zero and are not corrected make them grow."""
    optimizer = trial.start()
    optimizer.l2 = 0.0
    found = trial.run(optimizer, trial.results(optimizer, 1) * LONG)
    first, last = ({n: after[n] - p for n, p in before.items()} for before, after in (found[:2], found[-2:]))
    size, limit = (sum(np.sum(each**2) for each in moved.values()) ** 0.5 for moved in (first, last))
    if abs(size - limit) > FLOAT32_TOLERANCE * limit:
        share = f"the first step is {size / (limit or 1):.3g} of the {LONG}th"
        raise NotGivenError(f"{share}: right for a rule that corrects no bias; its `rule` would tell")
    return _compared(first, last, f"step {LONG}", found[0], FLOAT32_TOLERANCE)


def _misstep(trial: OptimizerTrial) -> str:
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


def _exchanged(trial: OptimizerTrial) -> Compared:
    """Give parameters of one shape each other's values, gradients and quantities: each moves as the other did."""
    optimizer, twin = trial.start(), trial.start()
    shapes = {name: value.shape for name, value in optimizer.network.trainable.items()}
    settings = [each for each in vars(optimizer).values() if isinstance(each, Mapping) and shapes.keys() <= each.keys()]
    groups: dict[Any, list[str]] = {}
    for name, shape in shapes.items():
        groups.setdefault((shape, *(repr(each[name]) for each in settings)), []).append(name)
    other = {a: b for group in groups.values() for a, b in zip(group, reversed(group)) if a != b}
    if not other:
        raise NotGivenError("no two parameters have one shape and the same settings")

    def swap(given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: given[other.get(name, name)] for name in given}

    results = trial.results(optimizer)
    for name, value in swap(_now(twin)).items():
        twin.network.parameters[name][...] = value
    swapped = [replace(r, gradient=swap(r.gradient), values=[swap(each) for each in r.values]) for r in results]
    want = _steps([swap(each) for each in trial.run(optimizer, results)])
    return Compared(_steps(trial.run(twin, swapped)), want, "the other way round")


def _half(trial: OptimizerTrial) -> Compared:
    moved = []
    for share in (1.0, 0.5):
        optimizer = trial.start()
        optimizer.lr *= share
        before, after = trial.run(optimizer, trial.results(optimizer, 1))
        moved.append({name: (after[name] - before[name]) / share for name in before})
    return _compared(moved[1], moved[0], "lr, half of it", before)


def _float32(trial: OptimizerTrial) -> Compared:
    single = trial.start(lambda network: network.astype("float32"))
    found = trial.run(single)
    arrays = {**found[-1], **single.state_dict()}
    wrong = [f"{each.dtype} in {name}" for name, each in arrays.items() if each.dtype.kind == "f" and each.itemsize > 4]
    if wrong:
        raise FoundError(f"gives {', '.join(wrong[:3])} for float32")
    if single.quantities:  # a curvature that is nearly singular may round to another
        return Compared({}, {}, "")
    return Compared(_steps(found), _steps(trial.run()), "the same in float64", FLOAT32_TOLERANCE)


def _again(trial: OptimizerTrial) -> Compared:
    """Run beside another optimizer, and once with a gradient that is no number, at the parameter that comes last."""
    one, other = trial.start(), trial.start()
    found, last = [_now(one)], list(one.network.trainable)[-1]
    for step, result in enumerate(trial.results(one)):
        other.step(replace(result, gradient={name: 3 * value for name, value in result.gradient.items()}))
        if step == BREAK:
            with suppress(Exception):
                one.step(replace(result, gradient={**result.gradient, last: result.gradient[last] * np.nan}))
            if one.steps > step and all(np.isfinite(value).all() for value in _now(one).values()):
                raise NotGivenError("goes on where a gradient is no number")
        found += trial.run(one, [result])[1:]
    return Compared(_steps(found), _steps(trial.run()), "alone")


def _frozen(trial: OptimizerTrial) -> Compared:
    name = next(iter(trial.start().network.trainable))
    before, *_, after = trial.run(trial.start(lambda network: network.freeze(name)))
    return Compared(after[name], before[name], "before")


def _resumed(trial: OptimizerTrial) -> Compared:
    first, second = trial.start(), trial.start()
    results = trial.results(first)
    found = trial.run(first, results[:BREAK])
    state = first.state_dict()
    trial.run(first, results[BREAK:])  # writes to no array that it gave away
    for name, value in found[-1].items():
        second.network.parameters[name][...] = value
    found += trial.run(second.load_state_dict(state), results[BREAK:])[1:]
    if second.steps != STEPS:
        raise FoundError(f"counts {second.steps} steps after {STEPS}, of which {BREAK} were loaded")
    return Compared(_steps(found), _steps(trial.run()), "without a break")
