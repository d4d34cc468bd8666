"""What all update rules share: which parameters, which step size, which state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any, Self

import numpy as np

from gbackprop.array import Array, asarray, asnumpy, beside, device_of
from gbackprop.checks import check_same
from gbackprop.network import Sequential
from gbackprop.quantities import Quantity
from gbackprop.result import Result


class Optimizer(ABC):
    """An update rule for the parameters of a network.

    A step has two halves, and the sweep between them is the user's, who may ask it for more::

        result = gb.backward(net, loss, x, y, *optimizer.quantities, rng=rng, training=True)
        optimizer.step(result)

    Parameters
    ----------
    network : Sequential
        Its parameters are changed in place.
    lr : float
        Step size α, above 0. It may be assigned to between steps.
    l2 : float or mapping of str to float
        Strength η ≥ 0 of ½ η ‖θ‖², which the step adds to the objective: for all parameters, or by name (0 for
        those not named).

    Attributes
    ----------
    quantities : tuple of Quantity
        What `step` needs besides the gradient.
    steps : int
        Steps taken so far.

    Raises
    ------
    TypeError
        If `network` is not a Sequential.
    ValueError
        If a number is out of range, or `l2` names a parameter that does not exist.
    """

    quantities: tuple[Quantity, ...] = ()

    def __init__(self, network: Sequential, lr: float, l2: float | Mapping[str, float] = 0.0) -> None:
        if not isinstance(network, Sequential):
            raise TypeError(f"network: expected a Sequential, got {type(network).__name__}")
        self.network = network
        self.lr = number("lr", lr, above=0)
        self._l2 = _strengths(l2, network)
        self.steps = 0

    @abstractmethod
    def _update(self, name: str, gradient: Array, result: Result) -> Array:
        """The direction of one parameter, shape (*p): θ ← θ − α · this. Called once a step, `steps` counting it."""

    @abstractmethod
    def _state(self) -> dict[str, Array]:
        """The arrays of the state by name, as they are, not copied."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Array]) -> None:
        """Take over arrays that `_state` named; they have been copied."""

    @beside(lambda self: next(iter(self.network.parameters.values()), None))
    def step(self, result: Result) -> None:
        """Change the parameters, in place, by one step.

        Parameters
        ----------
        result : Result
            Of `gb.backward` for the network as it is, with `quantities`.

        Raises
        ------
        KeyError
            If the result lacks one of `quantities`; nothing is changed then.
        TypeError, ValueError
            If its gradient is of another network, on another device or of another dtype; nothing is changed then.
        """
        parameters = self.network.parameters
        self._check(result)
        self.steps += 1
        for name, value in parameters.items():
            gradient, l2 = result.gradient[name], self._l2[name]
            direction = self._update(name, gradient + l2 * value if l2 else gradient, result)
            value -= self.lr * direction

    def _check(self, result: Result) -> None:
        missing = [quantity for quantity in self.quantities if quantity not in result]
        if missing:
            raise KeyError(
                f"step: the result holds {list(result.quantities)}, not {missing}: "
                "pass *optimizer.quantities to gb.backward"
            )
        parameters = self.network.parameters
        if set(result.gradient) != set(parameters):
            raise ValueError(f"step: expected gradients of {list(parameters)}, got {list(result.gradient)}")
        for name, value in parameters.items():
            gradient = result.gradient[name]
            if gradient.shape != value.shape:
                raise ValueError(f"step: gradient {name}: expected shape {value.shape}, got {gradient.shape}")
            check_same(f"step: gradient {name}", gradient, f"parameter {name}", value)

    # ----------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that a later step depends on, but for the parameters and the settings: copies, on the host.

        Returns
        -------
        dict of str to ndarray
            ``"steps"``, shape (), and arrays named ``"what/parameter"``.
        """
        copies = {name: np.array(asnumpy(value)) for name, value in self._state().items()}
        return {"steps": np.array(self.steps), **copies}

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
        steps = np.asarray(mapping.get("steps", -1))
        if steps.shape != () or steps.dtype.kind not in "iu" or steps < 0:
            raise ValueError(f"state dict: expected 'steps' to be a count, got {mapping.get('steps')!r}")
        expected = self._shapes(mapping) if steps else {}
        given = [name for name in mapping if name != "steps"]
        unknown, missing = [n for n in given if n not in expected], [n for n in expected if n not in mapping]
        if unknown or missing:
            raise ValueError(f"state dict of {type(self).__name__}: unknown keys {unknown}, missing keys {missing}")
        state = {name: self._moved(name, mapping[name], shape) for name, shape in expected.items()}
        self.steps = int(steps)
        self._restore(state)
        return self

    @abstractmethod
    def _shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Name and shape of each array that a state after the first step has; `given` is what shall be loaded."""

    def _moved(self, name: str, value: Any, shape: tuple[int, ...]) -> Array:
        """A copy of an array of the state, beside its parameter."""
        parameter = self.network.parameters[name.split("/")[1]]
        value = np.asarray(asnumpy(value))
        if value.shape != shape:
            raise ValueError(f"state dict: {name}: expected shape {shape}, got {value.shape}")
        if value.dtype != parameter.dtype:
            raise TypeError(f"state dict: {name}: expected {parameter.dtype}, got {value.dtype}")
        return asarray(value.copy(), device_of(parameter))


def number(name: str, value: Any, least: float = 0.0, above: float | None = None, below: float | None = None) -> float:
    """`value` as a finite float within bounds.

    Raises
    ------
    ValueError
        Otherwise; the message names the argument.
    """
    real = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    if real and (value > above if above is not None else value >= least) and (below is None or value < below):
        return float(value)
    bounds = f"above {above:g}" if above is not None else f"of at least {least:g}"
    raise ValueError(
        f"{name}: expected a finite number {bounds}{'' if below is None else f' and below {below:g}'}, got {value!r}"
    )


def _strengths(l2: Any, network: Sequential) -> dict[str, float]:
    """η of each parameter."""
    names = list(network.parameters)
    if not isinstance(l2, Mapping):
        return dict.fromkeys(names, number("l2", l2))
    unknown = [name for name in l2 if name not in names]
    if unknown:
        raise ValueError(f"l2: unknown parameters {unknown}; expected some of {names}")
    return {name: number(f"l2[{name!r}]", l2.get(name, 0.0)) for name in names}
