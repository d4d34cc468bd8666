"""An estimate of a call's memory from the plan, and the blocks that a memory budget allows.

In addition to the parameters and the batch, a call takes about

    2 · sums + rows + 2 · threads · (sums + 2 · parameters + n · (saved + unfolded + 3 · stack))

bytes, with n the number of samples in a block, `saved` what the forward pass saves for one sample, `unfolded` the
largest unfolded input of a layer, which a statistic may need even if the forward pass does not, `stack` the largest
stack of columns for one sample (there are at most three at a time: at a layer's output, at its input, and a temporary
one; five in float32 below products and quotients, where pairs of columns are in float64), `sums` the statistics that
are added over samples, and `rows` the results that have a row for each sample. Reductions state both sizes.
Of a parameter that is no weight or bias, such as a table of vectors, each column's Jᵀ g is formed sample by sample: as
`stack`, but of the parameter's size.
The 2 before `threads` is for temporary arrays, and for parts that are yet to be added. On a GPU temporary arrays are
larger, see `scratch_bytes`.
"""

from __future__ import annotations

import re
from math import prod
from numbers import Integral
from sys import maxsize
from typing import Any, NamedTuple

import numpy as np

from gbackprop.array import Array, array_module, device_of, is_array
from gbackprop.base.memory import KFRA_COPIES, size
from gbackprop.calculus.gram import Pairs
from gbackprop.calculus.jacobian import Bias, Outer
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.calculus.mixed import jacobians_of_zeros
from gbackprop.calculus.residual import FactoredLayer
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL, SAMPLES
from gbackprop.calculus.walk import values_upwards
from gbackprop.calculus.wrt import InputRows
from gbackprop.engine.costs import LOOP_NUMBERS, SMALL_PRODUCT, SMALL_PRODUCTS, STEP_NUMBERS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Forms, find
from gbackprop.engine.scratch import scratch_bytes
from gbackprop.engine.spans import column_count, loss_column_count, residual_column_count
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Statistic

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


class Largest(NamedTuple):
    """The largest block of samples and columns, and how many of them there are at a time."""

    samples: int
    columns: int | None
    threads: int
    fixed: bool = False  # whether there must be so many samples

    def smaller(self, plan: Plan) -> Largest | None:
        """Return a smaller block: in fewer threads, then of half the samples, then of half the columns."""
        columns = min(self.columns or maxsize, max(1, column_count(plan)))
        if self.threads > 1:
            return self._replace(threads=self.threads - 1)
        if self.samples > 1 and not (self.fixed or whole_batch(plan)):
            return self._replace(samples=-(-self.samples // 2))
        if columns > 1 and not whole_columns(plan):
            return self._replace(columns=-(-columns // 2))
        return None


def fit(plan: Plan, x: Array, largest: Largest, budget: int, forms: Forms) -> Largest:
    """Reduce the threads, then the samples, then the columns, until the estimate is within the budget."""
    saved = saved_bytes(plan, x, forms)
    while (needed := estimate(plan, x, largest, saved)) > budget:
        smaller = largest.smaller(plan)
        if smaller is None:
            raise ValueError(f"memory: at least {size(needed)} ({needed} bytes) are needed, got {size(budget)}")
        largest = smaller
    return largest


def estimate(plan: Plan, x: Array, largest: Largest, saved: int) -> int:
    """Return the bytes that a call takes at its peak, in addition to parameters and batch; see the module's formula."""
    samples, columns, threads, _ = largest
    number, weights = number_bytes(plan), _weights(plan)
    parameters, sums = sum(map(prod, parameter_shapes(plan).values())), _reduced_numbers(plan, per_sample=False)
    results = 2 * sums * number + x.shape[0] * row_bytes(plan) + pair_bytes(plan, x.shape[0])
    if AVERAGE in plan.signals:
        results += KFRA_COPIES * max((prod(leaf.output_shape) for leaf in plan.swept), default=0) ** 2 * number
    unfolded = max((inputs for inputs, _ in weights), default=0) * number if len(plan.statistics) > 1 else 0
    each = (sums + 2 * parameters) * number + samples * (saved + unfolded + _stacks(plan) * stack_bytes(plan, columns))
    if plan.meeting and len(plan.statistics) > 1:  # Jᵀ g of each column, and its square
        carried = min(columns or maxsize, column_count(plan))
        each += 2 * carried * max(map(prod, parameter_shapes(plan).values()), default=0) * number
    if len(plan.statistics) > 1:  # Jᵀ g of each sample, its square, that with a sign; moments are in float64
        carried = max(1, min(columns or maxsize, column_count(plan)))
        copies = 6 if any(statistic.reduction.name == "moments" for statistic in plan.statistics) else 3
        each += copies * samples * carried * _formed_numbers(plan) * number
    if device_of(x) != "cpu":  # a column of one sample, unfolded or as a product of a weight's size
        widest = max(map(max, weights), default=0) * number
        each += scratch_bytes(x, samples * (1 + (columns or column_count(plan))) * widest)
    return results + 2 * threads * each


def _formed_numbers(plan: Plan) -> int:
    """Return the size of the largest parameter of which Jᵀ g is formed sample by sample: no weight, and no bias."""
    own = [leaf for leaf in plan.leaves if leaf.parameters and leaf.sources and not leaf.layer.mixes]
    found = [(leaf, jacobian) for leaf in own for jacobian in jacobians_of_zeros(leaf).items()]
    shapes = [leaf.layer.parameter_shapes()[key] for leaf, (key, each) in found if not isinstance(each, Outer | Bias)]
    return max(map(prod, shapes), default=0)


def whole_batch(plan: Plan) -> bool:
    """Return whether samples cannot be cut into blocks: for KFRA's averages, for pairs of samples, where they meet."""
    return AVERAGE in plan.signals or bool(pairs(plan)) or plan.meeting is not None


def pairs(plan: Plan) -> list[Statistic]:
    """Return the statistics of pairs of samples and of columns."""
    return [statistic for statistic in plan.statistics if isinstance(statistic.reduction, Pairs)]


def whole_columns(plan: Plan) -> bool:
    """Return whether columns cannot be cut into blocks: for pairs of them, but for the gradient's, or for rows."""
    return SAMPLES in plan.signals or any(statistic.signal != GRADIENT for statistic in pairs(plan))


def pair_bytes(plan: Plan, samples: int) -> int:
    """Return the bytes of the Gram matrices of a batch, and of the products Jᵀ g that the largest is made of."""
    numbers, shapes = 0, parameter_shapes(plan)
    # a weight that is applied at one position needs no such products
    vectors = {name for leaf in plan.leaves if len(leaf.output_shape) == 1 for name in leaf.parameters.values()}
    single = {name for name in vectors if len(shapes[name]) == 2 and plan.flow.uses[name] == 1}
    largest = max((prod(shape) for name, shape in shapes.items() if name not in single), default=0)
    for statistic in pairs(plan):
        assert statistic.signal is not None  # what it pairs
        rows = samples * (1 if statistic.signal == GRADIENT else loss_column_count(plan, statistic.signal))
        numbers = max(numbers, rows * largest) + (2 + len(shapes)) * rows**2
    return numbers * number_bytes(plan)


def number_bytes(plan: Plan) -> int:
    """Return the bytes of one number in the dtype in which the call computes: that of the batch may be of integers."""
    return np.dtype(plan.scale.dtype).itemsize


def unfolded_bytes(plan: Plan) -> int:
    """Return the bytes of one sample in the unfolded inputs of all layers together."""
    return sum(unfolded for unfolded, _ in _weights(plan)) * number_bytes(plan)


def parameter_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by name; its first axis is that of the outputs."""
    named = [(name, leaf.layer, key) for leaf in plan.leaves for key, name in leaf.parameters.items()]
    return {name: _shape(layer, key) for name, layer, key in named}


def _shape(layer: Layer, key: str) -> tuple[int, ...]:
    """Return the shape of a layer's parameter with its outputs first, also where a weight has its inputs first."""
    shape = layer.parameter_shapes()[key]
    outputs = getattr(layer, "out_channels", shape[0] if shape else 1)
    return shape if len(shape) < 2 else (outputs, prod(shape[:2]) // outputs, *shape[2:])


def _weights(plan: Plan) -> list[tuple[int, int]]:
    """Return for each weight the number of entries in one sample's unfolded input, and in the weight.

    A transposed convolution unfolds its columns, for which its inputs stand in for outputs, and for A its inputs.
    """
    named = [(leaf, key) for leaf in plan.leaves for key in leaf.parameters if takes(leaf)]
    weights = [(leaf, s) for leaf, key in named for s in {leaf.layer.parameter_shapes()[key], _shape(leaf.layer, key)}]
    weights = [(leaf, s) for leaf, s in weights if len(s) > 1]
    return [(prod(leaf.output_shape) // s[0] * prod(s[1:]) * groups_of(leaf), prod(s)) for leaf, s in weights]


def takes(leaf: Leaf) -> bool:
    """Return whether a layer multiplies its inputs by parameters, if it has some: one that is a node does not."""
    return bool(leaf.sources) and not isinstance(leaf.layer, InputRows)


def multiplications(plan: Plan) -> tuple[int, int]:
    """Return the number of multiplications in products of matrices for one sample, roughly.

    The second number is that of the largest product whose rows are all samples: a linear layer's, not a time step's.
    """
    taking = [leaf for leaf in plan.leaves if takes(leaf)]
    shapes = [(leaf, _shape(leaf.layer, key)) for leaf in taking for key in leaf.layer.parameter_shapes()]
    weights = [(prod(leaf.output_shape) // shape[0], shape) for leaf, shape in shapes if len(shape) > 1]
    whole = [shape for leaf, shape in shapes if len(shape) == 2 and not hasattr(leaf.layer, "step_numbers")]
    rows = max((prod(shape) for shape in whole), default=0)
    carried = sum(positions * prod(shape) for positions, shape in weights)
    several = [leaf for leaf in plan.leaves if len(leaf.input_shapes) > 1]  # products of two inputs, or their sums
    carried += sum(prod(leaf.output_shape) * leaf.input_shapes[0][-1] for leaf in several if leaf.input_shapes[0])
    squares = any(statistic.reduction.name == "input_square" for statistic in plan.statistics)
    factors = sum(positions * prod(shape[1:]) ** 2 for positions, shape in weights) if squares else 0
    return (1 + column_count(plan)) * carried + factors, rows


def small_samples(plan: Plan) -> int:
    """Return the number of samples up to which BLAS computes their products best in one thread."""
    total, rows = multiplications(plan)
    return min(SMALL_PRODUCTS // max(1, total), SMALL_PRODUCT // max(1, rows))


def least_samples(plan: Plan, forms: Forms) -> tuple[int, bool]:
    """Return the number of samples from which on a block has a thread, and whether all time steps are compiled loops.

    Others wait for Python, if few samples take each of them.
    """
    least, loops, some = [1], [], np.empty(0, plan.scale.dtype)
    for leaf in plan.leaves:
        if numbers := getattr(leaf.layer, "step_numbers", 0):
            row = find(forms, leaf.layer)
            loops.append(row is not None and row.loops is not None and bool(row.loops(some)))
            whole, enough = (numbers * leaf.output_shape[0], LOOP_NUMBERS) if loops[-1] else (numbers, STEP_NUMBERS)
            least.append(-(-enough // max(1, whole)))
    return max(least), bool(loops) and all(loops)


def groups_of(leaf: Leaf) -> int:
    """Return the number of groups that a layer's weight is split into: each has inputs of its own."""
    groups = getattr(leaf.layer, "groups", 1)
    return groups if isinstance(groups, int) else 1  # a user's attribute may bear that name


def _reduced_numbers(plan: Plan, per_sample: bool) -> int:
    """Count the entries of the statistics with a row for each sample (for one sample), or of those that are added."""
    groups = {name: groups_of(leaf) for leaf in plan.leaves for name in leaf.parameters.values()}
    sizes = [(name, shape, groups[name]) for name, shape in parameter_shapes(plan).items() if shape]
    return sum(  # each group has an input factor of its own; their output factors are blocks of the bias's
        each.reduction.size(shape) * (number if each.reduction.name == "input_square" else 1)
        for name, shape, number in sizes
        for each in plan.extracted[name]
        if each.per_sample == per_sample and each.only in (None, name)
    )


def row_bytes(plan: Plan) -> int:
    """Return the bytes of one sample in the results with a row for each sample."""
    return _reduced_numbers(plan, per_sample=True) * number_bytes(plan)


def stack_bytes(plan: Plan, column_block: int | None = None) -> int:
    """Return the bytes of one sample in the largest stack of the sweep."""
    columns = sum(loss_column_count(plan, signal) for signal in plan.signals)
    largest = 1
    for leaf in reversed(plan.swept):
        carried = 1 + min(columns, column_block or columns)  # 1 for the gradient
        largest = max(largest, carried * prod(leaf.output_shape))
        columns += residual_column_count(plan, leaf)
    carried = 1 + min(columns, column_block or columns)
    return max(largest, _tied_numbers(plan, carried, column_block)) * number_bytes(plan)


def _stacks(plan: Plan) -> int:
    """Return how many arrays of the size of the stack there are at a time."""
    of_two = [leaf.layer for leaf in plan.leaves if isinstance(leaf.layer, FactoredLayer)]
    pairs = any(layer.bilinear or layer.linear_in for layer in of_two) or any(map(plan.flow.mixed, plan.leaves))
    return 5 if RESIDUAL in plan.signals and pairs and number_bytes(plan) == 4 else 3


def _tied_numbers(plan: Plan, columns: int, column_block: int | None) -> int:
    """Count the numbers of one sample in the columns of a parameter at all its uses, by which its stack is as large.

    Columns with a piece on the parameter are kept up to its last use; then they are squared.
    """
    largest, uses, shapes = 0, plan.flow.uses, parameter_shapes(plan)
    for name in [name for name, number in uses.items() if number > 1]:
        at = [(leaf, key) for leaf in plan.leaves for key, each in leaf.parameters.items() if each == name]
        outputs, own = sum(prod(leaf.output_shape) for leaf, _ in at), prod(shapes[name])
        widths = [plan.flow.mixed(leaf).get(key, 0) if RESIDUAL in plan.signals else 0 for leaf, key in at]
        direct = min(sum(widths), column_block or columns) * (own + outputs)
        largest = max(largest, columns * outputs, 7 * direct // 5)
    return largest


def output_bytes(plan: Plan) -> int:
    """Return the bytes of one sample in the outputs of all layers, most of which the forward pass saves."""
    return sum(prod(leaf.output_shape) for leaf in plan.leaves) * number_bytes(plan)


def saved_bytes(plan: Plan, x: Array, forms: Forms) -> int:
    """Return the bytes that the forward pass saves for one sample, measured on one sample of zeros."""
    at, saved = {INPUT: array_module(x).zeros((1, *x.shape[1:]), dtype=x.dtype)}, []
    context = Context(forms, Allocator())
    with np.errstate(all="ignore"):  # the data may have no zeros
        for leaf, inputs in values_upwards(plan.leaves, at):
            saved.append(context.forward(leaf.layer, *inputs))
            at[leaf.position] = saved[-1][0]
    return sum({id(array): array.nbytes for array in _arrays(saved)}.values())


def _arrays(tree: Any) -> list[Array]:
    """Return all arrays in nested tuples and lists, with views replaced by their bases."""
    if isinstance(tree, tuple | list):
        return [array for part in tree for array in _arrays(part)]
    while getattr(tree, "base", None) is not None and is_array(tree.base):
        tree = tree.base
    return [tree] if is_array(tree) else []


def parse_bytes(memory: str | int) -> int:
    """Parse a number of bytes from "2GiB", "500 MB" or an int."""
    match = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*", memory) if isinstance(memory, str) else None
    number = int(float(match[1]) * UNITS[match[2]]) if match else memory
    if isinstance(number, bool) or not isinstance(number, Integral) or number <= 0:
        raise ValueError(f"memory: expected bytes as an integer, or a number with {', '.join(UNITS)}, got {memory!r}")
    return int(number)
