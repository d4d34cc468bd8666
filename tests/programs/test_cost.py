"""The cost of programs: formulas by hand, every function of NumPy that occurs, and memory as it is freed."""

import itertools
import weakref

import numpy as np
import pytest
from common import in_turn, one_in

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.recording.tape import Ref, mapped, refs
from gbackprop.plain.programs.counts import MOVES, RULES, operations
from gbackprop.plain.programs.written import recorded
from gbackprop.testing.cases import ALL_LAYERS, LOSSES, NETWORKS

SIZES = [(2, 3, 4, 3), (7, 5, 6, 4)]
"""Samples, inputs, hidden units, classes."""


def program_of(n, d, h, c, *quantities, **options):
    """The program of the smallest network with a hidden layer."""
    net = gb.Sequential(layers.Linear(d, h), layers.Sigmoid(), layers.Linear(h, c), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((n, d))
    return gb.program(net, losses.CrossEntropyLoss(), x, np.arange(n) % c, *quantities, **options)


def products(cost, section, layer):
    """The operations of products of matrices."""
    at = [row for row in cost.rows if (row.section, row.layer) == (section, layer) and row.name == "matmul"]
    return sum(row.amounts.operations for row in at)


@pytest.mark.parametrize(("n", "d", "h", "c"), SIZES)
def test_the_forward_pass_is_counted_by_hand(n, d, h, c):
    cost = program_of(n, d, h, c).cost()
    first, second, third = (
        [row.amounts for row in cost.rows if (row.section, row.layer) == ("forward", layer)] for layer in "012"
    )
    assert sum(each.operations for each in first) == 2 * n * d * h + n * h  # W x, + b
    assert sum(each.operations for each in second) == 7 * n * h  # m = min(x, 0), 2 m − x, two exponentials, 1 + and /
    assert sum(each.operations for each in third) == 2 * n * h * c + n * c
    assert sum(each.read for each in first) == 8 * (n * d + d * h + n * h + h)
    assert sum(each.written for each in first) == 8 * 2 * n * h
    assert list(cost.by_layer()) == ["0", "1", "2", "(loss)", "(finish)"]


@pytest.mark.parametrize(("n", "d", "h", "c"), SIZES)
@pytest.mark.parametrize(
    ("quantities", "columns"),
    [((), lambda c: 1), ((q.DiagGGN(),), lambda c: 1 + c), ((q.KFAC(mc_samples=2),), lambda c: 3),
     ((q.DiagGGN(), q.KFAC(mc_samples=2)), lambda c: 3 + c)],
)  # fmt: skip
def test_products_are_those_of_the_formulas(n, d, h, c, quantities, columns):
    cost, v = program_of(n, d, h, c, *quantities, fold=False).cost(), columns(c)
    names = [quantity.name for quantity in quantities]
    assert products(cost, "carry", "2") == 2 * v * n * h * c  # Wᵀ g for each column
    each = n * (1 + c * ("diag_ggn" in names))  # g uᵀ for each sample, of the gradient and of each column of DiagGGN
    # A, and B of two draws, for the weight and for the bias
    factors = [2 * n * (a * a + 4 * b * b) * ("kfac" in names) for a, b in ((h, c), (d, h))]
    assert products(cost, "extract", "2") == 2 * each * h * c + factors[0]
    assert products(cost, "extract", "0") == 2 * each * d * h + factors[1]
    assert sum(r.amounts.operations for r in cost.rows if (r.section, r.layer) == ("carry", "1")) == (2 + v) * n * h


def test_amounts_add_up():
    cost = program_of(4, 3, 5, 3, q.DiagGGN(), q.KFAC()).cost()
    for group in (cost.by_section(), cost.by_layer(), cost.by_quantity()):
        for name in ("operations", "read", "written"):
            assert sum(getattr(each, name) for each in group.values()) == getattr(cost, name) > 0
    alone = cost.by_quantity()
    assert list(alone) == ["loss", "output", "gradient", "diag_ggn", "kfac", "shared"]
    assert alone["output"].operations == 0 < alone["kfac"].operations
    with_ggn = program_of(4, 3, 5, 3, q.DiagGGN()).cost()
    assert cost.operations - with_ggn.operations >= alone["kfac"].operations  # and KFAC's columns in shared steps
    assert program_of(4, 3, 5, 3, fold=False).cost().by_quantity().keys() >= {"unused"}


CALLS = [
    (np.matmul, ((2, 3, 4), (4, 5)), 2 * 2 * 3 * 5 * 4), (np.dot, ((3,), (3,)), 6), (np.inner, ((2, 3), (4, 3)), 48),
    (np.outer, ((3,), (4,)), 12), (np.tensordot, ((2, 3, 4), (3, 4, 5), 2), 2 * 2 * 5 * 12),
    (np.tensordot, ((2, 3), (4,), 0), 2 * 24), (np.einsum, ("nab,nbc->nac", (2, 3, 4), (2, 4, 5)), 2 * 2 * 3 * 4 * 5),
    (np.einsum, ("ni,nj->nij", (2, 3), (2, 4)), 24), (np.einsum, ("nij->j", (2, 3, 4)), 24),
    (np.einsum, ("ij->ji", (2, 3)), 0), (np.mean, ((3, 4), 0), 16), (np.var, ((3, 4), 0), 56), (np.std, ((5,),), 23),
    (np.sum, ((3, 4), 0), 12), (np.max, ((3, 4),), 12), (np.exp, ((3, 4),), 12), (np.maximum, ((3, 4), (4,)), 12),
    (np.round, ((3, 4),), 12), (np.sort, ((2, 8),), 48), (np.sort, ((8, 2), 0), 48), (np.transpose, ((2, 3),), 0),
    (np.linalg.inv, ((1, 2, 3, 3),), 108), (np.pad, ((2, 3), 1), 0),
    (np.linalg.eigh, ((1, 2, 3, 3),), 2 * 9 * 27), (np.linalg.solve, ((3, 3), (3, 2)), 54),
    (np.linalg.cholesky, ((3, 3),), 9), (lambda a: np.linalg.svd(a, False), ((2, 3, 5),), 2 * (14 * 45 + 8 * 27)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "count"), CALLS)
def test_rules_are_counted_by_hand(function, arguments, count):
    arrays = [np.eye(*s[-2:]) + np.zeros(s) if type(s) is tuple and len(s) > 1 else
              np.ones(s) if type(s) is tuple else s for s in arguments]  # fmt: skip
    found = function(*arrays)
    name = getattr(function, "__name__", "")
    name, more = ("linalg.svd", (False,)) if name == "<lambda>" else (name, ())
    name = name if name in RULES or not hasattr(np.linalg, name) else f"linalg.{name}"
    out = list(found) if isinstance(found, tuple) else [np.asarray(found)]
    assert operations(name, out, (*arrays, *more), {}) == count


class Inverted(layers.Layer):
    """A layer whose function has no count."""

    parameter_names = ()

    def forward(self, x):
        return np.linalg.pinv(np.eye(3) + 0 * x[:, :, None])[:, 0] + x, None

    def mjp(self, saved, mat):
        return mat


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [("linalg.pinv", (np.eye(3),), {}), ("linalg.norm", (np.eye(3),), {}), ("softmax", (np.eye(3),), {}),
     ("einsum", ("i,i,i->", np.ones(2), np.ones(2), np.ones(2)), {}), ("linalg.svd", (np.ones((3, 2)),), {}),
     ("pad", (np.ones(3), 1, "mean"), {}), ("matmul", (np.eye(3), np.eye(3)), {"axes": [(0, 1), (0, 1), (0, 1)]})],
)  # fmt: skip
def test_a_function_without_a_count_is_an_error(name, arguments, options):
    with pytest.raises(UnsupportedError, match=f"cost: {name} with these arguments has no count"):
        operations(name, [np.ones(3)], arguments, options)


def test_a_program_with_a_function_without_a_count_is_an_error():
    net = gb.Sequential(layers.Linear(3, 3), Inverted(), rng=0, dtype="float64")
    program = gb.program(net, losses.MSELoss(), np.ones((2, 3)), np.zeros((2, 3)))
    with pytest.raises(UnsupportedError, match=r"linalg\.pinv"):
        program.cost()
    with pytest.raises(ValueError, match="runs: expected an integer of at least 0, got -1"):
        program.cost(-1)


def counted(network, loss, x, y, *quantities):
    """The cost of a program."""
    program = gb.program(network, loss, x, y, *quantities)
    cost = program.cost()
    assert len(cost.rows) == sum(step.function is not None for step in program.steps)
    return cost


KINDS = {str(row).partition("(")[0] + getattr(row.make(), "name", ""): row for row in ALL_LAYERS}


@pytest.mark.parametrize("row", one_in(4, KINDS.values()), ids=str)
def test_every_function_of_the_layers_has_a_count(row):
    net = gb.Sequential(row.layer(), rng=0, dtype="float64")
    quantities = [] if row.kind in (gb.RNN, gb.LSTM, gb.GRU) else [q.DiagHessian()]
    counted(net, losses.MSELoss(), row.x(2), np.zeros((2, *net.output_shape(row.shape))), *quantities)


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: f"{row.loss()}{row.shape}")
def test_every_function_of_the_losses_has_a_count(row):
    (output, y), loss = row.batch(), row.loss()
    drawn = [] if loss.undrawn else [q.DiagGGNMC()]
    cost = counted(gb.Sequential(layers.PReLU(), dtype=output.dtype), loss, output, y, q.DiagHessian(), *drawn)
    assert cost.by_section()["loss"].operations > 0


QUANTITIES = [
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(), q.DiagHessian(),
    q.BatchDiagGGN(), q.BatchDiagHessian(), q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.GramGGN(), q.GramGradients(),
]  # fmt: skip


@pytest.mark.parametrize("quantity", QUANTITIES, ids=repr)
def test_every_function_of_the_quantities_has_a_count(quantity):
    row = NETWORKS[2]
    cost = counted(row.network(), row.loss, *row.batch(), quantity)
    written = cost.by_quantity()[quantity.name].written
    assert written == 0 if quantity.name == "batch_grad" else written > 0  # the plain gradient is the sum of these


def owner(a):
    return owner(a.base) if isinstance(a.base, np.ndarray) else a


def freed(program):
    """The bytes in use during each step, of a run that frees what no later step needs and writes in place."""
    tape, live, values, alive, found = program.recording.tape, [0], {}, {}, []

    def keep(number, value):
        values[number], whole = value, owner(value)
        if id(whole) not in alive:
            alive[id(whole)] = size = value.nbytes if number in given else whole.nbytes
            live[0] += size
            weakref.finalize(whole, ended, id(whole))

    def ended(key):
        live[0] -= alive.pop(key)

    def lowered(value):
        return values[value.number] if isinstance(value, Ref) else mapped(lowered, value)

    given = {step.results[0] for step in program.steps if step.function is None}
    wanted = {program.same.get(number, number) for number in program.paths}
    arrays = {id(tape.values[number]): tape.values[number].copy("K") for number in given}  # a shared layer's are one
    for number in given:
        keep(number, arrays[id(tape.values[number])])
    steps = [step for step in program.steps if step.function is not None]
    last = {n: at for at, step in enumerate(steps) for n in (*step.results, *refs((step.args, step.kwargs)))}
    for at, step in enumerate(steps):
        base = step.args[0].number if step.name == "setitem" else None
        if base is None:
            with np.errstate(all="ignore"):
                made = step.function(*lowered(step.args), **lowered(step.kwargs))
        else:
            fixed = any(owner(values[n]) is owner(values[base]) for n in given)
            made = np.copy(values[base]) if fixed or step.results[0] in program.copied else values[base]
            made = made.astype(tape.values[step.results[0]].dtype, copy=False)
            made[lowered(step.args[1])] = lowered(step.args[2])
        made = made if isinstance(made, tuple | list) else [made]
        for number in step.results:
            keep(number, np.asarray(made[step.results.index(number)]))
        del made
        found.append(live[0])
        for number in [n for n in values if last.get(n, -1) <= at and n not in given and n not in wanted]:
            del values[number]
    x, y = (tape.values[program.recording.inputs[name]] for name in ("x", "y"))
    want = recorded(program.plan, x, y).tape.values
    for number in program.paths:  # written in place, they are right
        got = values[program.same.get(number, number)]
        np.testing.assert_allclose(got, want[number], rtol=1e-10, atol=1e-12)
    return found


ASKED = [(quantity, fold) for quantity in (q.DiagHessian(), q.KFLR(), q.BatchL2Grad()) for fold in (True, False)]


@pytest.mark.parametrize(("row", "asked"), in_turn([(row,) for row in NETWORKS], ASKED))
def test_memory_is_that_of_a_run_that_frees(row, asked):
    quantity, fold = asked
    program = gb.program(row.network(), row.loss, *row.batch(), quantity, fold=fold)
    cost, found = program.cost(), freed(program)
    assert [each.live for each in cost.rows] == found
    assert cost.largest == max(found)


def test_assignments_of_functional_programs_copy():
    plain, functional = (program_of(4, 3, 5, 3, q.KFLR(), functional=each) for each in (False, True))
    writes = sum(step.name == "setitem" for step in functional.steps)
    assert len(plain.copied) < writes == len(functional.copied)
    assert functional.cost().written > plain.cost().written


@pytest.mark.parametrize("functional", [False, True])
def test_an_assignment_reads_what_it_assigns_and_what_it_copies(functional):
    program = program_of(4, 3, 5, 3, q.KFLR(), functional=functional)
    steps, values = [step for step in program.steps if step.function is not None], program.recording.tape.values
    writes = [(step, row) for step, row in zip(steps, program.cost().rows, strict=True) if step.name == "setitem"]
    for step, row in writes:
        base, *others = dict.fromkeys(refs(step.args))
        copied = values[base].nbytes if step.results[0] in program.copied else 0
        assert row.amounts.read == copied + sum(values[number].nbytes for number in others)
    assert {step.results[0] in program.copied for step, _ in writes} == {functional}


def test_times_are_of_steps_and_in_parts_of_what_the_machine_reaches():
    program = program_of(40, 30, 50, 3, q.DiagGGN())
    before = [np.copy(value) for value in program.recording.tape.values]
    cost, without = program.cost(runs=2), program.cost()
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, program.recording.tape.values))
    assert without.rates is None
    assert all(row.amounts.seconds > 0 for row in cost.rows)
    assert all(row.amounts.seconds == 0 for row in without.rows)
    assert [row.amounts[:3] for row in cost.rows] == [row.amounts[:3] for row in without.rows]
    lines, rate = repr(cost).splitlines(), cost.by_section()["carry"]
    (line,) = [line for line in lines if line.startswith("carry")]
    assert f"{rate.operations / rate.seconds / cost.rates[0]:.1%}" in line
    assert f"{(rate.read + rate.written) / rate.seconds / cost.rates[1]:.1%}" in line
    assert "µs" not in repr(without)


def test_rates_are_what_is_done_in_a_second(monkeypatch):
    ends = itertools.count()
    monkeypatch.setattr("gbackprop.plain.programs.cost.perf_counter", lambda: next(ends))  # each call takes a second
    a, x = np.ones((512, 512)), np.ones(2**22)
    cost = program_of(4, 3, 5, 3).cost(runs=1)
    assert cost.rates == (operations("matmul", [a], (a, a), {}), x.nbytes + x.nbytes)  # x is read, and written


def test_the_table_begins_with_what_was_asked():
    first = repr(program_of(4, 3, 5, 3, q.DiagGGN()).cost()).splitlines()[0]
    assert first.startswith("The gradient, DiagGGN() of Sequential with CrossEntropyLoss('mean')")


def test_a_long_title_stays_within_the_figure():
    pytest.importorskip("matplotlib")
    asked = q.DiagGGN(), q.DiagHessian(), q.KFLR(), q.Variance(), q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment()
    figure = program_of(4, 3, 5, 3, *asked).cost().figure()
    figure.canvas.draw()
    title, page = figure._suptitle.get_window_extent(), figure.bbox
    assert page.x0 <= title.x0 < title.x1 <= page.x1


@pytest.mark.parametrize("runs", [0, 1])
def test_the_figure_has_a_bar_for_each_layer_and_section(runs):
    pytest.importorskip("matplotlib")
    cost = program_of(4, 3, 5, 3, q.DiagHessian()).cost(runs)
    figure = cost.figure()
    figure.canvas.draw()
    assert [axes.get_title() for axes in figure.axes] == ["operations", "bytes read and written", "seconds"][: 2 + runs]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(cost.by_section())
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == cost.operations
    assert len(bars) == len(cost.by_layer()) * len(cost.by_section())


def test_no_elementwise_function_is_said_to_move():
    assert not any(isinstance(getattr(np, name, None), np.ufunc) for name in MOVES)
