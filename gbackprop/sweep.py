"""The backward sweep over one block of samples."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.errors import naming
from gbackprop.holding import hold, selects
from gbackprop.layers.base import Layer, Leaf
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.layers.outer import writes_rows
from gbackprop.plan import Plan, rows_of, targets_of
from gbackprop.quantities.base import Statistic
from gbackprop.rows import Rows
from gbackprop.signals import (
    AVERAGE,
    EXACT,
    GRADIENT,
    RESIDUAL,
    Columns,
    MonteCarlo,
    Signal,
    Signals,
    Stack,
    residual_columns,
)

OUTPUT = "output"
"""Where `Rows` keeps the network's outputs."""

Jacobians = Mapping[str, ParameterJacobian]
"""A layer's, by the parameter's name in it."""

Todo = list[tuple[str, Statistic]]
"""Statistics to extract, each with the parameter's name in its layer."""

Arriving = dict[Signal | None, tuple[Any, ...]]
"""What each signal brings to a reduction."""

Found = dict[tuple[Statistic, str], Any]
"""Values of statistics, by statistic and parameter name."""


@dataclass(frozen=True)
class Block:
    """Some samples of a batch.

    Attributes
    ----------
    rows : slice
        Which.
    kept : Rows
        Where results with a row for each sample go.
    """

    rows: slice
    kept: Rows

    @staticmethod
    def whole(batch: int) -> Block:
        """All samples of a batch of N."""
        return Block(slice(0, batch), Rows(batch))

    def __len__(self) -> int:
        return self.rows.stop - self.rows.start


@dataclass
class Part:
    """What a block of samples gives: Σ ℓₙ, and its share in each statistic."""

    loss: Array
    found: Found

    def add(self, other: Part) -> None:
        """Take in the next block's part."""
        self.loss = self.loss + other.loss
        for key, value in other.found.items():
            if not key[0].per_sample:  # those are kept elsewhere
                self.found[key] = key[0].merge([self.found[key], value])


def sweep(
    plan: Plan,
    x: Array,
    y: Array,
    block: Block,
    column_block: int | None = None,
    passes: type[Pass] | None = None,
) -> Part:
    """Forward once, then back once for each block of columns.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    y : ndarray, shape (N, ...)
        The whole batch.
    block : Block
        Which samples to take, and where results with a row for each sample go.
    column_block : int, optional
        How many columns each pass takes beside the gradient.
    passes : subclass of Pass, optional
        What to do on the way: one that watches, for instance.
    """
    with on_device_of(x):  # a thread of its own starts on another
        return _sweep(plan, x, y, block, column_block, passes or Pass)


def _sweep(plan: Plan, x: Array, y: Array, block: Block, column_block: int | None, passes: type[Pass]) -> Part:
    rows = block.rows
    with naming(lambda: f"forward pass of {len(block)} samples"):
        if plan.training:
            output, saved = plan.network.forward_training(x[rows], rows_of(plan.noise, rows))
        else:
            output, saved = plan.network.forward(x[rows])
    target = y[rows]
    found: Found = {}
    for window in plan.windows(column_block):
        one = passes(plan, block, window, found)
        with naming(lambda: f"columns of {plan.loss!r} for {len(block)} samples"):
            start = one.start(output, target)
        if plan.lowest < len(plan.leaves):
            plan.network.sweep(saved, start, one.visit)
    block.kept.put(OUTPUT, rows, output)
    return Part(plan.loss.values(output, target).sum(), found)


class Pass:
    """One way from the loss to the lowest layer with parameters, with a window of the columns.

    All columns but the gradient's are numbered in the order in which the sweep meets them, first those that start at
    the loss. `seen` counts them; what lies in the window is appended to the stack.
    """

    holds: ClassVar[bool] = True
    """Whether layers may be held back while only few of their numbers are needed; to watch all columns, not."""

    def __init__(self, plan: Plan, block: Block, window: slice, found: Found) -> None:
        self.plan, self.block, self.window, self.found = plan, block, window, found
        self.first = window.start == 0  # what depends on no column but the gradient's is extracted in this pass
        self.seen = 0
        self.lent = False  # whether others may have a view of the stack
        self.above = {leaf.name: leaf for leaf in plan.leaves[plan.lowest :]}
        self.end = plan.leaves[plan.lowest].name if plan.lowest < len(plan.leaves) else None

    def take(self, width: int) -> slice:
        """Which of the next `width` columns are in the window."""
        start, self.seen = self.seen, self.seen + width
        low = min(max(self.window.start - start, 0), width)
        return slice(low, max(low, min(self.window.stop - start, width)))

    def start(self, output: Array, target: Array) -> Signals:
        """The signals at the loss; R enters here."""
        loss, factor = self.plan.loss, self.plan.scale.factor
        parts = [(GRADIENT, Columns(loss.gradients(output, target)[None] * factor))]
        for signal in self.plan.signals:
            some = self.take(self.plan.loss_columns(signal))
            if some.start < some.stop:
                values = self._loss_columns(signal, output, target, some)
                parts.append((signal, Columns(values * factor**0.5)))
        average = None
        if AVERAGE in self.plan.signals and self.first:
            average = loss.hessian_sum(output, target) * factor
        return Signals(Stack.of(parts), average)

    def _loss_columns(self, signal: Signal, output: Array, target: Array, some: slice) -> Array:
        if signal == EXACT:
            return self.plan.loss.hessian_sqrt(output, target, some)
        assert isinstance(signal, MonteCarlo)
        targets = targets_of(self.plan, signal, output, self.block.rows)
        share = ((some.stop - some.start) / targets.shape[0]) ** 0.5  # the root of 1/M is of all M, not of some
        return self.plan.loss.hessian_sqrt_mc(output, targets[some]) * share

    def visit(self, name: str, layer: Layer, saved: Any, signals: Signals) -> Signals:
        """Extract what the layer's parameters give, then carry the signals to its input."""
        leaf = self.above.get(name)
        if leaf is None:  # below the lowest layer with parameters nobody needs anything
            return signals
        with naming(functools.partial(self._at, leaf, signals.stack)):
            return self._visit(leaf, saved, signals)

    def _visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        held = hold(self.plan, leaf, saved, signals) if self.holds else None
        if held is not None:
            return replace(signals, held=held)
        layer = leaf.layer
        jacobians = layer.parameter_jacobians(saved) if layer.parameter_shapes() else {}
        todo = [(key, statistic) for key in jacobians for statistic in self.plan.statistics]
        if signals.held is not None:
            todo = self._extract_selected(leaf, jacobians, todo, signals)
            signals = self._caught_up(leaf, todo, signals)
        self._extract_all(leaf, jacobians, todo, self._arguments(leaf, signals))
        if leaf.name == self.end:
            return signals
        stack = signals.stack.moved(self._moved(leaf, saved, signals.stack.values))
        stack = self._with_residual(leaf, saved, signals, stack)
        average = signals.average
        if average is not None:
            average = layer.average(saved, average, len(self.block), leaf.output_shape)
        return Signals(stack, average)

    def _moved(self, leaf: Leaf, saved: Any, mat: Array) -> Array:
        """Jᵀ mat, written over `mat` where the layer can do that and nobody needs `mat` any longer."""
        layer = leaf.layer
        lent = self.lent or bool(layer.parameter_shapes())  # what was extracted may be a view of the columns
        wanted = lent or self.plan.residual_columns(leaf) > 0  # for the residual comes from the gradient in it
        back = layer.mjp(saved, mat) if wanted else layer.mjp_in_place(saved, mat)
        # A layer that makes new columns sets the old ones free; but one of a user's may keep what it gave or got.
        ours = getattr(layer.mjp, "__module__", "").startswith("gbackprop.layers.")
        self.lent = not ours or (lent and array_module(mat).may_share_memory(back, mat))
        return back

    def _with_residual(self, leaf: Leaf, saved: Any, signals: Signals, stack: Stack) -> Stack:
        some = self.take(self.plan.residual_columns(leaf))
        if some.start == some.stop:
            return stack
        return stack.append(RESIDUAL, self.residual(leaf, saved, signals, some))

    def residual(self, leaf: Leaf, saved: Any, signals: Signals, window: slice) -> Columns:
        """The columns of the residual that start at a layer."""
        residual = leaf.layer.residual(saved, signals.gradient)
        return residual_columns(residual, leaf.input_shape, window)

    def _extract_selected(self, leaf: Leaf, jacobians: Jacobians, todo: Todo, signals: Signals) -> Todo:
        """Extract what is had quicker from the columns as they are held; gives what remains to be done."""
        assert signals.held is not None
        arriving = self._arguments(leaf, signals)

        def pays(statistic: Statistic) -> bool:
            columns = arriving[statistic.signal][0]
            return selects(leaf, len(columns), columns.shape[2:])

        squares = [(key, s) for key, s in todo if s.method == "square" and s.signal in arriving and pays(s)]
        quick = leaf.layer.selected_jacobians(jacobians, signals.held.selection) if squares else {}
        done = [(key, statistic) for key, statistic in squares if key in quick]
        self._extract_all(leaf, quick, done, arriving)
        return [each for each in todo if each not in done]

    def _caught_up(self, leaf: Leaf, todo: Todo, signals: Signals) -> Signals:
        """The columns at the layer's output: all, or at the end those of which something remains to be extracted."""
        assert signals.held is not None
        stack, layers = signals.stack, signals.held.layers
        if leaf.name == self.end:
            wanted = {statistic.signal for _, statistic in todo} & self._arguments(leaf, signals).keys()
            stack, layers = (stack.only(wanted), layers) if wanted else (stack, ())
        for held, saved in layers:
            with naming(functools.partial(self._at, held, stack)):
                stack = stack.moved(self._moved(held, saved, stack.values))
        return replace(signals, stack=stack, held=None)

    def _at(self, leaf: Leaf, stack: Stack) -> str:
        """Where the sweep is, in an error's words."""
        return f"{leaf}, with {len(stack.values)} columns of {len(self.block)} samples"

    def _extract_all(self, leaf: Leaf, jacobians: Jacobians, todo: Todo, arriving: Arriving) -> None:
        for key, statistic in todo:
            if statistic.signal in arriving:
                name = leaf.parameter(key)
                self._add(statistic, name, self.extract(statistic, name, jacobians[key], arriving[statistic.signal]))

    def _add(self, statistic: Statistic, name: str, value: Any) -> None:
        """Add to what earlier passes found; with a row for each sample, in the batch's array."""
        before = self.found.get((statistic, name))
        if before is not None and statistic.per_sample:
            before += value  # where the rows are kept
        elif before is not None:
            self.found[statistic, name] = before + value
        else:
            self.found[statistic, name] = value

    def extract(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        """A statistic's share in a parameter; with a row for each sample, where the batch's rows are kept."""
        if not statistic.per_sample or (statistic, name) in self.found:
            return statistic.extract(jacobian, *arriving)
        key, kept = (statistic, name), self.block.kept
        if statistic.reduction == "batch" and writes_rows(jacobian):
            mat, sign = arriving
            return jacobian.batch_rows(mat, sign, lambda like: kept.room(key, self.block.rows, like))
        return kept.put(key, self.block.rows, statistic.extract(jacobian, *arriving))

    def _arguments(self, leaf: Leaf, signals: Signals) -> Arriving:
        """What each signal brings to a reduction; a later pass brings its own columns alone."""
        arriving: Arriving = {signal: (columns.values, columns.sign) for signal, columns in signals.stack}
        if not self.first:
            arriving.pop(GRADIENT, None)
            return arriving
        if signals.average is not None:
            arriving[AVERAGE] = (signals.average, leaf.output_shape)
        return arriving | {None: ()}


class Plain(Pass):
    """A pass in which every layer multiplies all columns as they come to it."""

    holds = False
