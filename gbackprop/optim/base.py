"""The base class of update rules: the parameters, the step size and the state."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from gbackprop.array import Array, all_finite, array_module, asarray, asnumpy, beside, device_of
from gbackprop.base.checks import Constructed, check_same, number
from gbackprop.base.errors import NotFiniteError
from gbackprop.network import Container
from gbackprop.optim.settings import CheckedSetting, numeric
from gbackprop.quantities import Quantity
from gbackprop.quantities.result import Result


class Optimizer(Constructed, ABC):
    """An update rule for the parameters of a network.

    A step has two halves, and the sweep between them is the user's, who may ask it for more::

        result = gb.backward(net, loss, x, y, *optimizer.quantities, rng=rng, training=True)
        optimizer.step(result)

    Parameters
    ----------
    network : Container
        Its parameters are changed in place, but for those that are frozen.
    lr : float
        Step size α, above 0.
    l2 : float or mapping of str to float
        Strength η ≥ 0 of ½ η ‖θ‖², which the step adds to the objective: for all parameters, or by name (0 for
        those not named).

    The settings are attributes, checked whenever they are assigned; all but the network may change between steps.

    Attributes
    ----------
    quantities : tuple of Quantity
        What `step` needs besides the gradient.
    steps : int
        Steps taken so far.

    Raises
    ------
    TypeError
        If `network` is not a container of layers, such as a Sequential.
    ValueError
        If a number is out of range, or `l2` names a parameter that does not exist.
    """

    quantities: tuple[Quantity, ...] = ()

    moments: ClassVar[tuple[str, ...]] = ()
    """The kinds of running arrays that each parameter has; they are called "kind/parameter" in the state."""

    network = CheckedSetting(lambda _, name, value: _container(name, value), fixed=True)
    lr = numeric(above=0)

    def __init__(self, network: Container, lr: float, l2: float | Mapping[str, float] = 0.0) -> None:
        self.network = network
        self.lr = lr
        self.l2 = l2
        self._steps = 0
        self._taken: dict[str, int] = {}
        self._arrays: dict[str, Array] = {}
        self._apart: tuple[set[str], dict[str, Array]] = set(), {}

    @property
    def steps(self) -> int:
        """Steps taken so far: a part of the state, which `load_state_dict` sets."""
        return self._steps

    def steps_of(self, name: str) -> int:
        """Return the steps that a parameter has taken so far: fewer than `steps` if it was frozen for some of them.

        What starts with a parameter's first step, such as a running mean, goes by this number.
        """
        return self._taken.get(name, 0)

    @property
    def l2(self) -> Mapping[str, float]:
        """η of each parameter, read-only. A number or a mapping may be assigned, as in the constructor."""
        return MappingProxyType(self._l2)

    @l2.setter
    def l2(self, value: float | Mapping[str, float]) -> None:
        self._l2 = _strengths(value, self.network)

    @abstractmethod
    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        """Compute the direction of one parameter, shape (*p): θ ← θ − α · this.

        `step` calls it once for each parameter, after counting the step in `steps` and `steps_of`. It replaces arrays
        of the state, as `_advance` does, and writes into none: if a step fails, those from before it are restored.
        """

    def _advance(self, key: str, keep: float, add: Array) -> Array:
        """Compute m ← keep · m + add, m = 0 before the first, as a new array of the state; return m."""
        if key in self._arrays:
            moment = keep * self._arrays[key]
            moment += add
        else:
            moment = array_module(add).array(add)
        self._arrays[key] = moment
        return moment

    @beside(lambda self: next(iter(self.network.trainable.values()), None))
    def step(self, result: Result) -> None:
        """Change the parameters, in place, by one step. If that fails, parameters and state are as before.

        Parameters
        ----------
        result : Result
            Of `gb.backward` for the network as it is, with `quantities`.

        Raises
        ------
        KeyError
            If the result lacks one of `quantities`.
        TypeError, ValueError
            If its gradient is of another network, on another device or of another dtype, the state is, or a parameter
            cannot be written to, has the array of another one or a view of it, or is new to the optimizer.
        NotFiniteError
            If a parameter, or an array of the state, would no longer be finite.
        """
        parameters = self.network.trainable
        self._check(result, parameters)
        before, steps, taken = dict(self._arrays), self.steps, dict(self._taken)
        try:
            self._steps += 1
            self._taken |= {name: self.steps_of(name) + 1 for name in parameters}
            after = {name: self._moved_on(name, value, result) for name, value in parameters.items()}
            state = {f"state {key}": value for key, value in self._arrays.items() if value is not before.get(key)}
            made = {f"parameter {name}": value for name, value in after.items()} | state
            if not all_finite(*made.values()):  # an infinite running mean would stop its parameter from then on
                name = next(name for name, value in made.items() if not all_finite(value))
                hint = "a smaller lr, or more damping, takes shorter steps"
                if name in state:  # on which lr and damping have no influence
                    hint = f"numbers of the result are too large for it in {made[name].dtype}"
                words = f"{name} would contain NaN or infinity: all parameters are left as they were ({hint})"
                raise NotFiniteError(f"step {self.steps}: {words}")
        except BaseException:
            self._steps, self._arrays, self._taken = steps, before, taken
            raise
        for name, value in parameters.items():
            value[...] = after[name]

    def _moved_on(self, name: str, value: Array, result: Result) -> Array:
        """Compute a parameter after the step: θ − α · direction."""
        gradient, l2 = result.gradient[name], self._l2[name]
        direction = self._update(name, gradient + l2 * value if l2 else gradient, result)
        if (direction.shape, direction.dtype) != (value.shape, value.dtype):
            raise ValueError(
                f"step: direction of {name}: expected shape {value.shape} in {value.dtype}, got {direction.shape} in "
                f"{direction.dtype}"
            )
        return value - self.lr * direction

    def _check(self, result: Result, parameters: Mapping[str, Array]) -> None:
        if not isinstance(result, Result):
            raise TypeError(f"step: expected a Result of gb.backward, got {type(result).__name__}")
        missing = [quantity for quantity in self.quantities if quantity not in result]
        if missing:
            raise KeyError(
                f"step: the result holds {list(result.quantities)}, not {missing}: "
                "pass *optimizer.quantities to gb.backward"
            )
        if set(result.gradient) != set(parameters):
            raise ValueError(f"step: expected gradients of {list(parameters)}, got {list(result.gradient)}")
        if unknown := [name for name in parameters if name not in self._l2]:
            raise ValueError(
                f"step: parameters {unknown} are new since the optimizer was made: make another optimizer, or assign l2"
            )
        self._check_apart(parameters)
        for name, value in parameters.items():
            gradient = result.gradient[name]
            if gradient.shape != value.shape:
                raise ValueError(f"step: gradient {name}: expected shape {value.shape}, got {gradient.shape}")
            check_same(f"step: gradient {name}", gradient, f"parameter {name}", value)
            if not getattr(value.flags, "writeable", True):
                raise ValueError(f"step: parameter {name}: expected an array to write to, got a read-only one")
        for key, array in self._arrays.items():
            value = parameters.get(_parameter(key), array)
            if (array.dtype, device_of(array)) != (value.dtype, device_of(value)):
                raise TypeError(
                    f"step: state {key}: expected {value.dtype} on {device_of(value)} as its parameter is, got "
                    f"{array.dtype} on {device_of(array)} (after net.to: optimizer.load_state_dict("
                    "optimizer.state_dict()); after net.astype: another optimizer)"
                )

    def _check_apart(self, parameters: Mapping[str, Array]) -> None:
        """Check, once for the same arrays, that no parameter to train has memory in common with another one."""
        every, trained = dict(self.network.parameters), set(parameters)  # frozen ones, and whether they still are
        if trained <= self._apart[0] and all(self._apart[1].get(name) is value for name, value in every.items()):
            return
        views = not all(value.flags.owndata for value in every.values())
        for (other, first), (name, value) in combinations(every.items(), 2):
            if (other in trained or name in trained) and (first is value or (views and _overlap(first, value))):
                raise ValueError(
                    f"step: parameter {name}: expected an array of its own, got that of {other} (for one parameter at "
                    "two places, a layer at both)"
                )
        self._apart = trained, every

    def __repr__(self) -> str:
        """Return the class, its settings as they are now, and how much it trains."""
        names = [name for name in inspect.signature(type(self)).parameters if name not in ("network", "l2")]
        settings = [f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name)]
        strengths = set(self._l2.values()) or {0.0}
        l2 = strengths.pop() if len(strengths) == 1 else {name: value for name, value in self._l2.items() if value}
        shapes = self.network.parameter_shapes().values()
        return (
            f"{type(self).__name__}({', '.join([*settings, f'l2={l2!r}'])}) "
            f"for {len(shapes)} parameters of {sum(map(prod, shapes)):,} numbers"
        )

    # ----------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return all that a later step depends on, but for the parameters and the settings: copies, on the host.

        Returns
        -------
        dict of str to ndarray
            ``"steps"``, shape (), and arrays named ``"what/parameter"``; ``"steps/parameter"`` where a parameter has
            taken another number of steps.
        """
        copies = {name: np.array(asnumpy(value)) for name, value in self._arrays.items()}
        taken = {name: self.steps_of(name) for name in self.network.parameters}
        fewer = {f"steps/{name}": np.array(count) for name, count in taken.items() if count != self.steps}
        return {"steps": np.array(self.steps), **fewer, **copies}

    def load_state_dict(self, mapping: Mapping[str, Any]) -> Self:
        """Go on from a state that `state_dict` gave, bit for bit.

        Parameters
        ----------
        mapping : mapping of str to ndarray
            The state, of an optimizer with the same settings for a network of the same parameters.

        Raises
        ------
        TypeError
            If `mapping` is not a mapping, or an array has another dtype than its parameter.
        ValueError
            If names or shapes do not fit; nothing is changed then.
        """
        if not isinstance(mapping, Mapping):
            raise TypeError(f"state dict: expected a mapping of names to arrays, got {type(mapping).__name__}")
        for name in mapping:
            if not isinstance(name, str):
                raise TypeError(f"state dict: expected names of arrays, got {name!r}")
        steps = _count("steps", mapping.get("steps"))
        counts = {name: f"steps/{name}" for name in self.network.parameters}
        given = [name for name in mapping if name not in ("steps", *counts.values())]
        shapes = self._shapes(mapping)
        lacking = {*map(_parameter, shapes)}.difference(map(_parameter, given), self.network.trainable)  # took none
        usual = {key: 0 if name in lacking else steps for name, key in counts.items()}
        taken = {name: _count(key, mapping.get(key, usual[key]), steps) for name, key in counts.items()}
        expected = {key: shape for key, shape in shapes.items() if taken.get(_parameter(key), steps)}
        unknown, missing = [n for n in given if n not in expected], [n for n in expected if n not in mapping]
        if unknown or missing:
            raise ValueError(f"state dict of {type(self).__name__}: unknown keys {unknown}, missing keys {missing}")
        self._arrays = {name: self._copied(name, mapping[name], shape) for name, shape in expected.items()}
        self._steps, self._taken = steps, taken
        return self

    def _shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array that a parameter has after its first step; `given` is what shall be loaded."""
        parameters = self.network.parameters
        return {f"{kind}/{name}": value.shape for kind in self.moments for name, value in parameters.items()}

    def _copied(self, name: str, value: Any, shape: tuple[int, ...]) -> Array:
        """Return a copy of an array of the state, beside its parameter."""
        parameter = self.network.parameters[_parameter(name)]
        value = np.asarray(asnumpy(value))
        if value.shape != shape:
            raise ValueError(f"state dict: {name}: expected shape {shape}, got {value.shape}")
        if value.dtype != parameter.dtype:
            raise TypeError(f"state dict: {name}: expected {parameter.dtype}, got {value.dtype}")
        if not all_finite(value):
            raise ValueError(f"state dict: {name}: expected finite numbers, got NaN or infinity")
        return asarray(value.copy(), device_of(parameter))


def _overlap(a: Array, b: Array) -> bool:
    """Return whether two arrays have memory in common; where that is hard to say, whether their bounds overlap."""
    xp = array_module(a)
    if not xp.may_share_memory(a, b):
        return False
    return np.may_share_memory(a, b, 10_000) if xp is np else bool(xp.shares_memory(a, b))  # type: ignore[arg-type]


def _container(name: str, value: Any) -> Container:
    if not isinstance(value, Container):
        raise TypeError(f"{name}: expected a network of layers, got {type(value).__name__}")
    return value


def _parameter(key: str) -> str:
    """Return the name of the parameter of which an array of the state is."""
    return key.partition("/")[2]


def _count(name: str, value: Any, most: int | None = None) -> int:
    """Return a number of steps, after a check."""
    count = np.asarray(value)
    if count.shape != () or count.dtype.kind not in "iu" or count < 0 or (most is not None and count > most):
        limit = "" if most is None else f" of at most {most}"
        raise ValueError(f"state dict: expected {name!r} to be a count{limit}, got {value!r}")
    return int(count)


def _strengths(l2: Any, network: Container) -> dict[str, float]:
    """η of each parameter."""
    names = list(network.parameters)
    if not isinstance(l2, Mapping):
        return dict.fromkeys(names, number("l2", l2, least=0))
    unknown = [name for name in l2 if name not in names]
    if unknown:
        raise ValueError(f"l2: unknown parameters {unknown}; expected some of {names}")
    return {name: number(f"l2[{name!r}]", l2.get(name, 0.0), least=0) for name in names}
