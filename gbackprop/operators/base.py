"""The base class of operators of a network: the data in pieces, and the sum over these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, all_finite, array_module, device_of, on_device_of
from gbackprop.base.checks import check_flag
from gbackprop.base.errors import NotFiniteWarning, UnsupportedError, warn
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state import Watch
from gbackprop.losses.base import Loss
from gbackprop.operators.batches import Batches
from gbackprop.operators.matrix import OperatorAlgebra, beside
from gbackprop.operators.pieces import Cutter, Piece
from gbackprop.operators.vectors import Layout
from gbackprop.plain.plan import Plan, plan_of
from gbackprop.quantities.base import Quantity


class Operator(OperatorAlgebra):
    """Base of the operators; each derives from this and from the class of SciPy's, or of CuPy's, linear operators."""

    parts: ClassVar[int] = 2
    """Number of arrays in a batch."""

    quantities: tuple[Quantity, ...] = ()
    """Quantities whose random draws an operator takes."""

    wrt: Any = None
    """The names of the parameters that it is over, "x" for the input; None for all that are not frozen."""

    narrow = True

    def __new__(cls, network: Layer, *given: Any, **named: Any) -> Any:
        values = getattr(network, "parameters", None) or {}
        like = next(iter(values.values()), np.zeros(0)) if isinstance(values, Mapping) else np.zeros(0)
        kind = beside(cls, like)
        return super().__new__(cls, network, *given, **named) if kind is cls else kind(network, *given, **named)

    training: bool
    """True if the network is in training mode; of layers that draw numbers there is no operator then."""

    def _prepare(self, network: Layer, loss: Loss, data: Any, rng: Any, executor: Any) -> None:
        """Go through the data once: check everything, and record what each product needs of it."""
        if executor is not None and not isinstance(executor, Executor):
            raise TypeError(f"executor: expected a concurrent.futures.Executor, got {type(executor).__name__}")
        self.network, self.loss, self.executor = network, loss, executor
        self.batches = Batches(data, self.parts, network)
        self.extras: list[Any] = []
        self.count, divisor, plan = 0, 0.0, None
        for i, arrays in self.batches.first():
            try:
                plan = self._plan_for(plan, rng, *arrays)
                self.extras.append(self._extra(plan, *arrays))
            except (TypeError, ValueError) as error:
                if self.batches.single or isinstance(error, UnsupportedError):  # of a layer, not of a batch
                    raise
                raise type(error)(f"batch {i}: {error}") from None
            if i == 0:
                self.cutter = Cutter(replace(plan, needs=[], mc_noise={}), arrays[0], self.batches.single, executor)
            self.count += len(arrays[0])
            divisor += 1 / plan.scale.factor
        assert plan is not None
        self.plan = self.cutter.plan
        self.factor = 1 / divisor if loss.reduction == "mean" else 1.0
        named = [(leaf, key, name) for leaf in self.plan.leaves for key, name in leaf.parameters.items()]
        values = {name: leaf.layer.parameters[key] for leaf, key, name in named if name not in plan.scale.rows}
        zero = array_module(arrays[0]).zeros(1, dtype=arrays[0].dtype)
        rows = {name: (self.count, *leaf.output_shape) for leaf, _, name in named if name in plan.scale.rows}
        values |= {name: array_module(zero).broadcast_to(zero, shape) for name, shape in rows.items()}
        ordered = {name: values[name] for name in self.plan.parameters}
        self.layout = self.columns = Layout(ordered, plan.scale.rows, network)
        self.watch = Watch(network, loss, self.quantities)
        self.like = self.layout.like

    def _plan_for(self, first: Plan | None, rng: Any, x: Array, y: Array) -> Plan:
        """Check a batch; return the plan with its number of samples, its R and its draws."""
        with on_device_of(x):
            check_flag("training", self.training)
            plan = plan_of(self.network, self.loss, x, self.quantities, self.training, self.wrt)
            if plan.meeting and plan.scale.rows:
                raise UnsupportedError(f"{plan.meeting} has no operator over the input: samples meet there")
            if first is None:
                if not plan.parameters:
                    raise ValueError(f"network: expected one with parameters that are not frozen, got {self.network!r}")
            elif plan.leaves[0].input_shapes != first.leaves[0].input_shapes:
                expected, got = (("N", *each.leaves[0].input_shapes[0]) for each in (first, plan))
                raise ValueError(f"x: expected shape {expected} as in batch 0, got {got}")
            made = plan.with_batch(x, y, rng, first=first is None)
            for leaf, noise in zip(made.leaves, made.noise, strict=True):
                if noise is not None:
                    raise UnsupportedError(f"{leaf} draws random numbers in training mode: an operator is one matrix")
            if first is None:
                self._check_layers(plan, x)
            return made

    def _check_layers(self, plan: Plan, x: Array) -> None:
        """Check that each layer has what a product needs, by the first batch."""
        for leaf in plan.swept:
            if not leaf.lowest and type(leaf.layer).jmp is Layer.jmp:
                raise UnsupportedError(f"{leaf} cannot give {type(self).__name__}: it has no jmp")

    def _extra(self, plan: Plan, x: Array, *rest: Array) -> Array | None:
        """Compute what an operator stores of a batch."""
        return None

    # --------------------------------------------------------------------------------------------------------- products

    def _pieces(self) -> Iterator[Piece]:
        """Yield the data in pieces; raise an error if they, or network or loss, have changed."""
        name = self.watch.changed()
        if name is not None:
            raise ValueError(
                f"{name}: expected all parameters and options as they were when the operator was made, got others "
                "(make a new operator: it is one matrix, at one point)"
            )
        before = 0
        for (_, (x, *rest)), extra in zip(self.batches, self.extras, strict=False):
            yield from self.cutter.pieces(x, rest[0] if rest else None, extra, before)
            before += len(x)

    def _warned(self, result: Array) -> Array:
        """Return a result; warn if it is not finite."""
        if device_of(result) == "cpu" and not all_finite(result):
            warn(
                f"NaN or infinity in a product of {type(self).__name__}: numbers are beyond the range of {self.dtype}",
                NotFiniteWarning,
            )
        return result
