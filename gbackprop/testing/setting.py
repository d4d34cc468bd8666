"""A network with loss and batch, in which quantities are computed again and again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, asarray, asnumpy
from gbackprop.base.checks import is_shipped
from gbackprop.base.errors import TooLargeError, UnsupportedError
from gbackprop.calculus.layer import Layer, leaves_of
from gbackprop.calculus.several import InputPart
from gbackprop.calculus.signals import monte_carlo
from gbackprop.engine.backward import backward
from gbackprop.kronecker import GroupedKronecker, Kronecker, with_factors
from gbackprop.losses import MSELoss
from gbackprop.losses.base import Loss
from gbackprop.network import Container, Sequential
from gbackprop.quantities import Quantity
from gbackprop.quantities.diagonal import Sampled
from gbackprop.quantities.kronecker_error import BlockError
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import MOVED, ROUNDINGS, UNIT, NotGivenError, both, moved, rounding_of
from gbackprop.testing.complex_steps import complex_copy, passes
from gbackprop.testing.differences import derivative
from gbackprop.testing.loss_scale import with_reduction
from gbackprop.testing.oracles import Definition, Dense
from gbackprop.testing.points import BEYOND, is_beyond, largest, size_of
from gbackprop.testing.probe import one_batch, twin_of
from gbackprop.testing.rounded import round_products

SAMPLES = 5
"""The number of samples of a batch that are checked."""

NEARBY = 8
"""The number of points at which it is measured how results are rounded."""

OFF = 1e-3
"""By how much of their size numbers are moved where a layer is at a kink, and its derivative a choice."""

LARGEST_NETWORK = 1000
"""Parameters up to which there is a dense oracle."""

LARGEST_LOSS = 1e100
"""A loss up to which squares of its derivatives are finite."""

MC_SAMPLES = 3
SEED = 0
"""Of the driver's draws: the same in all runs that are compared."""

Values = dict[str, Any]
"""Parameter name -> array, or {"A": …, "B": …}."""


@dataclass(frozen=True)
class CheckedNetwork:
    """A network with loss and batch, in which quantities are computed again and again.

    All of it lies on the host. Backward calls compute on `device`; their results are copied back.
    """

    network: Container
    loss: Loss
    x: np.ndarray
    y: np.ndarray
    targets: np.ndarray | None
    device: str = "cpu"

    @staticmethod
    def of(
        network: Layer, loss: Loss, x: Any, y: Any, rng: np.random.Generator, device: str = "cpu",
        fresh: Callable[..., tuple[np.ndarray, ...]] = lambda *arrays: arrays,
    ) -> CheckedNetwork:  # fmt: skip
        """Return the setting in float64, of a few samples or of `fresh` ones made from these."""
        chain, x = network if isinstance(network, Container) else Sequential(network), one_batch(network, x)
        twin, x, y = twin_of(chain, rng=rng), np.array(asnumpy(x)[:SAMPLES]), np.array(asnumpy(y)[:SAMPLES])
        x, y = fresh(*(a.astype(float) if a.dtype.kind == "f" else a for a in (x, y)))
        return CheckedNetwork(twin, loss, x, y, _draw(loss, twin.forward(x)[0], rng), device)

    def run(self, *asked: Quantity, call: Callable[..., Result] = backward, **options: Any) -> Result:
        """Run a backward call; where it is refused as outputs are beyond the loss's range, nothing is given."""
        network, x, y = (self.network, self.x, self.y) if self.device == "cpu" else self._there
        try:
            result = call(network, self.loss, x, y, *asked, **{"rng": SEED} | options)
        except UnsupportedError:
            raise
        except ValueError as error:
            if is_beyond(self.loss, self.network.forward(self.x)[0]):
                raise NotGivenError(f"{BEYOND}: {error}") from error
            raise
        return result if self.device == "cpu" else on_host(result)

    @cached_property
    def _there(self) -> tuple[Container, Any, Any]:
        """Network and batch on the device."""
        network = copy.deepcopy(self.network).to(self.device)
        return network, asarray(self.x, self.device), asarray(self.y, self.device)

    def values(self, *asked: Quantity, **options: Any) -> list[Values]:
        """Compute the values of each quantity; of the Monte-Carlo ones at the setting's targets."""
        targets = None if self.targets is None else asarray(self.targets, self.device)
        return values(self.run(*(at_targets(quantity, targets) for quantity in asked), **options))

    def supported(self, asked: Sequence[Quantity]) -> list[Quantity]:
        """Return the quantities for which every layer can give what they need, in few runs if that is most of them."""
        try:
            self.run(*asked)
        except (NotImplementedError, TooLargeError, NotGivenError):
            half = len(asked) // 2
            return self.supported(asked[:half]) + self.supported(asked[half:]) if half else []
        return list(asked)

    def permuted(self, order: np.ndarray) -> CheckedNetwork:
        """Return the setting with the samples in another order."""
        targets = None if self.targets is None else self.targets[:, order]
        return replace(self, x=self.x[order], y=self.y[order], targets=targets)

    def reduced(self, reduction: Literal["mean", "sum"]) -> CheckedNetwork:
        """Return the setting with another reduction of the loss."""
        return replace(self, loss=with_reduction(self.loss, reduction))

    def of_squares(self) -> CheckedNetwork:
        """Return the setting with squared error, and other targets."""
        rng, output, loss = np.random.default_rng(SEED), self.network.forward(self.x)[0], MSELoss()
        return replace(self, loss=loss, y=output + rng.standard_normal(output.shape), targets=_draw(loss, output, rng))

    def cast(self, dtype: Any) -> CheckedNetwork:
        """Return the setting in another dtype."""
        given: dict[str, Any] = {"x": self.x, "y": self.y, "targets": self.targets}
        floats = {name: a.astype(dtype) for name, a in given.items() if a is not None and a.dtype.kind == "f"}
        return replace(self, network=twin_of(self.network, dtype), **floats)

    def expect_finite(self) -> None:
        """Raise the error that nothing can be judged where the loss, or the square of a derivative, is infinite."""
        output = self.network.forward(self.x)[0]
        if is_beyond(self.loss, output) and not largest(self.loss.values(output, self.y)) < LARGEST_LOSS:
            raise NotGivenError(f"{BEYOND}: it is {LARGEST_LOSS:.0e} or more at outputs of up to {largest(output):.3g}")

    def spread(self, of: Callable[[CheckedNetwork], Values]) -> dict[str, Any]:
        """Return the errors by rounding of what is computed, by name: it moves where parameters and inputs do."""
        rng = np.random.default_rng(SEED)
        return _spread(of(self), (of(self._near(rng)) for _ in range(NEARBY)))

    def _near(self, rng: np.random.Generator) -> CheckedNetwork:
        """Return the setting, a few roundings away."""
        near = self._changed(lambda array: moved(array, rng))
        unit = float(np.finfo(near.x.dtype).eps) / 2 if near.x.dtype.kind == "f" else UNIT
        round_products((leaf.layer for leaf in leaves_of(near.network, near.x.shape[1:])), rng, unit)
        return near

    def errors(self, of: Callable[[CheckedNetwork], Values]) -> dict[str, Any]:
        """Return the errors by rounding of what is computed, by name, where float32 shows them, too."""
        return both(rounding_of(of(self.cast(np.float32)), of(self)), self.spread(of))

    def off_kinks(self) -> CheckedNetwork:
        """Return the setting, with numbers moved by a thousandth of their size where a layer may be at a kink."""
        rng = np.random.default_rng(SEED)
        with suppress(Exception):  # of a wrong layer: what is at fault is another claim's finding
            if self.kinked or any(_bends(layer, x) for layer, x in self._inputs):
                return self._changed(lambda array: array + OFF * size_of(array) * rng.standard_normal(array.shape))
        return self

    def _changed(self, change: Callable[[np.ndarray], np.ndarray]) -> CheckedNetwork:
        """Return the setting with other parameters, and another input, but for what is of integers."""
        dtype = next((value.dtype for value in self.network.parameters.values()), self.x.dtype)
        twin = twin_of(self.network, dtype)
        for value in twin.parameters.values():
            value[...] = change(value)
        x = change(self.x) if self.x.dtype.kind == "f" else self.x
        for leaf in leaves_of(twin, x.shape[1:]):
            if isinstance(part := leaf.layer, InputPart) and part.kind == "integers":
                columns = slice(part.start, part.start + prod(part.shape))
                x[:, columns] = self.x[:, columns]
        return replace(self, network=twin, x=x)

    @cached_property
    def oracle(self) -> Dense:
        """Quantities from their definitions."""
        size = sum(prod(shape) for shape in self.network.parameter_shapes().values())
        if size > LARGEST_NETWORK:
            raise NotGivenError(f"{size} parameters are too many for dense Jacobians")
        if not self.analytic:
            raise NotGivenError("network or loss does not take complex numbers, and dense Jacobians are complex steps")
        return Dense(self.network, self.loss, self.x, self.y, self.targets)

    def defined(self, definition: Definition) -> Values:
        """Return what a definition gives for each parameter, Kronecker factors by name."""
        return _by_name(self.oracle.values(definition))

    def rounding(self, definition: Definition, unit: float = UNIT) -> dict[str, Any]:
        """Return the errors by rounding of what a definition gives, none where there are no dense Jacobians."""
        try:
            if unit not in self._nearby:
                rng = np.random.default_rng(SEED)
                self._nearby[unit] = [self.oracle.near(rng, unit) for _ in range(NEARBY)]
            near = (_by_name(dense.values(definition)) for dense in self._nearby[unit])
            return _spread(self.defined(definition), near)
        except (NotGivenError, KeyError):  # no Kronecker factors of a weight by another name
            return {}

    @cached_property
    def _nearby(self) -> dict[float, list[Dense]]:
        """The oracle at points that are a few roundings of a unit away, once they are asked for."""
        return {}

    @cached_property
    def analytic(self) -> bool:
        """True if complex steps through the network, and of a user's loss at its outputs, are derivatives."""
        twin, rng = complex_copy(self.network), np.random.default_rng(SEED)
        tangent = rng.standard_normal(self.x.shape)
        values = {name: value.real for name, value in twin.parameters.items()}
        tangents = {name: rng.standard_normal(value.shape) for name, value in values.items()}

        def curve(t: complex) -> np.ndarray:
            for name, value in values.items():
                twin.parameters.put(name, np.asarray(value + t * tangents[name]))  # complex where t is
            return twin.forward(self.x + t * tangent if self.x.dtype.kind == "f" else self.x)[0]

        output = self.network.forward(self.x)[0]
        off = rng.standard_normal(output.shape)
        of_loss = () if is_shipped(self.loss) else (self.loss.values, self.loss.gradients)
        curves = [lambda t, f=f: f(output + t * off, self.y) + 0 * t for f in of_loss]  # of complex numbers in any case
        return derivative(curve, 1e-4 * size_of(self.x)).analytic and all(
            derivative(each, 1e-4 * size_of(output)).analytic for each in curves)  # fmt: skip

    @cached_property
    def kinked(self) -> bool:
        """True if a layer is at a kink, where its Jacobian is a choice: at a tie in max pooling, for instance."""
        return any(_at_kink(layer, x) for layer, x in self._inputs)

    @property
    def _inputs(self) -> Iterator[tuple[Layer, np.ndarray]]:
        """Each layer of a single input, with that; joins have no kinks."""
        for leaf, inputs, _, _ in passes(leaves_of(self.network, self.x.shape[1:]), self.x):
            if len(inputs) == 1 and inputs[0].dtype.kind == "f":
                yield leaf.layer, inputs[0]


def _spread(own: Values, nearby: Iterable[Values]) -> dict[str, Any]:
    """Return the largest errors to allow, by name: by how much results move where all else does by MOVED roundings."""
    return reduce(partial(both, join=max), (rounding_of(each, own, ROUNDINGS / MOVED) for each in nearby))


def _by_name(found: Values) -> Values:
    """Return Kronecker factors (A, B) of an oracle by name."""
    return {n: dict(zip("AB", each, strict=True)) if isinstance(each, tuple) else each for n, each in found.items()}


def _at_kink(layer: Layer, x: np.ndarray) -> bool:
    return _has_kink(lambda moved: layer.forward(moved)[0], x)


def _bends(layer: Layer, x: np.ndarray) -> bool:
    """Return whether a layer's slope has a kink, which only inputs that are 0 are asked for."""
    if layer.curvature == "zero" or x.all():
        return False
    y, _ = layer.forward(x)
    g = np.random.default_rng(SEED).standard_normal(y.shape)
    return _has_kink(lambda moved: layer.vjp(layer.forward(moved)[1], g), x)


def _has_kink(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> bool:
    """Return whether a function has a kink along a drawn line through a point."""
    direction = np.random.default_rng(SEED).standard_normal(x.shape)
    curve = lambda t: function(x + t * direction)  # noqa: E731
    return bool(derivative(curve, 1e-6 * size_of(x)).kinks.any())


def on_host(result: Result) -> Result:
    """Copy all arrays of a result to the host."""

    def moved(value: Any) -> Any:
        if isinstance(value, BlockError):
            return value
        if not isinstance(value, Kronecker | GroupedKronecker):
            return asnumpy(value.to_dense() if hasattr(value, "to_dense") else value)
        return with_factors(value, None if value.A is None else asnumpy(value.A), asnumpy(value.B))

    values = [{name: moved(value) for name, value in found.items()} for found in result.values]
    gradient = {name: asnumpy(value) for name, value in result.gradient.items()}
    return Result(asnumpy(result.loss), asnumpy(result.output), gradient, result.quantities, values)


def _draw(loss: Loss, output: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Draw pseudo-targets; return None if the loss says that it has none, or is infinite there."""
    try:
        return loss.draw(output, MC_SAMPLES, rng)
    except UnsupportedError:
        return None
    except ValueError:
        if is_beyond(loss, output):
            return None
        raise


def at_targets(quantity: Quantity, targets: Array | None) -> Quantity:
    """Return a Monte-Carlo quantity at given targets, if there are any; any other as it is."""
    if targets is None or not isinstance(quantity, Sampled):
        return quantity
    fixed = copy.copy(quantity)
    signal = monte_carlo(len(targets), targets)
    vars(fixed).update(mc_samples=len(targets), targets=targets, signal=signal)
    return fixed


def values(result: Result) -> list[Values]:
    """Return the values of each quantity, with Kronecker factors taken apart, and other objects as arrays."""
    return [{name: _arrays(value) for name, value in found.items()} for found in result.values]


def _arrays(value: Any) -> Any:
    if isinstance(value, Kronecker | GroupedKronecker):
        return {"A": value.A, "B": value.B}
    if isinstance(value, BlockError):
        return np.array([value.relative, value.best_scale, value.norm, value.approximation_norm, value.inner])
    return value.to_dense() if hasattr(value, "to_dense") else value
