"""Equal sections are printed once, as functions; results and costs are those of the program written out."""

import ast
import re
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from common import in_turn
from test_saved_programs import run

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.layers.norms.affine import Matrix
from gbackprop.plain.programs import functions, module
from gbackprop.plain.programs.sections import Section

DIAGONALS = q.DiagGGN(), q.BatchGrad(), q.Variance()


def case(net, *shape):
    return net, losses.CrossEntropyLoss(), np.random.default_rng(0).standard_normal((4, *shape)), np.arange(4) % 3


def chain(*parts, shape=(6,)):
    return case(gb.Sequential(*parts, rng=0, dtype="float64"), *shape)


def deep(blocks, activation=layers.Sigmoid):
    pairs = [layer for _ in range(blocks) for layer in (layers.Linear(6, 6), activation())]
    return chain(*pairs, layers.Linear(6, 3))


def residual():
    nodes, last = {}, "input"
    for i in range(4):
        nodes |= {f"{i}.in": (layers.Linear(6, 6), last), f"{i}.act": (layers.Sigmoid(), f"{i}.in")}
        nodes |= {f"{i}.out": (layers.Linear(6, 6), f"{i}.act"), f"{i}.sum": (layers.Add(), f"{i}.out", last)}
        last = f"{i}.sum"
    return case(gb.Graph(nodes | {"head": (layers.Linear(6, 3), last)}, rng=0, dtype="float64"), 6)


def convolutional(*kernels):
    kernels = kernels or [layers.Conv2d(2, 2, 3, padding=1) for _ in range(3)]
    parts = [layer for kernel in kernels for layer in (kernel, layers.BatchNorm2d(2), layers.ReLU())]
    return chain(*parts, layers.MaxPool2d(2), layers.Flatten(), layers.Linear(8, 3), shape=(2, 4, 4))


def recurrent():
    return chain(gb.LSTM(4, 4), gb.LSTM(4, 4), layers.Flatten(), layers.Linear(12, 3), shape=(3, 4))


def functions_of(program):
    """The functions of a program by their names, and its own."""
    found = {node.name: node for node in ast.parse(program.source).body if isinstance(node, ast.FunctionDef)}
    found.pop("assigned", None)
    return found, found.pop("program")


def calls_of(program):
    """For each function the sections that call it, without paths of layers."""
    found, title, names = defaultdict(list), "", functions_of(program)[0]
    for line in program.source.split("def program(")[1].splitlines():
        if re.match(r"    # \w+, layer", line):
            title = re.sub("layer [^,]*, ", "", line).partition(":")[0]
        for name in names:
            if re.search(rf"\b{name}\(", line):
                found[name].append(title)
    return found


def leaves(value, path=()):
    return {path: value} if not isinstance(value, dict) else {
        name: leaf for key, each in value.items() for name, leaf in leaves(each, (*path, key)).items()}  # fmt: skip


def run_on(program, x, y):
    """All arrays that a program's function returns, by their paths."""
    groups = {"parameters": {}, "random": {}}
    for name, array in program.inputs(x, y, rng=1).items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = array
    return leaves(program.function(x, y, *groups.values(), program.constants))


def compared(monkeypatch, args, *quantities, **options):
    """The program and the calls of its functions, after a comparison with the one in which they are written out."""
    program = gb.program(*args, *quantities, **options)
    with monkeypatch.context() as patch:
        patch.setattr(module, "shared", lambda parts, *_: ([], parts))
        plain = gb.program(*args, *quantities, **options)
    assert functions_of(plain)[0] == {}
    got, want = run_on(program, *args[2:]), run_on(plain, *args[2:])
    assert got.keys() == want.keys()
    assert [path for path in want if got[path].tobytes() != want[path].tobytes()] == []
    assert repr(program.cost()) == repr(plain.cost())
    (found, body), calls = functions_of(program), calls_of(program)
    saved = sum(len(calls[name]) * (len(function.body) - 2) for name, function in found.items())
    assert len(functions_of(plain)[1].body) == len(body.body) + saved
    for name, function in found.items():
        times, statements = len(calls[name]), function.body[:-1]
        assert times * len(statements) > times + len(statements) + 4
        assert len(set(calls[name])) == 1
        targets = [each.targets[0] if isinstance(each, ast.Assign) else each.target for each in statements]
        made = {each.id for each in targets if isinstance(each, ast.Name)}
        assert {each.value.id for each in targets if isinstance(each, ast.Subscript)} <= made
    return program, calls


CASES = [(lambda: deep(4), ()), (lambda: deep(8, layers.Tanh), (q.KFAC(), q.KFRA())), (residual, (q.DiagHessian(),)),
         (convolutional, (*DIAGONALS, q.KFAC())), (recurrent, DIAGONALS)]  # fmt: skip


@pytest.mark.parametrize(("args", "quantities", "functional"), in_turn(CASES, [False, True]))
def test_every_bit_and_count_is_that_of_the_program_written_out(args, quantities, functional, monkeypatch):
    assert compared(monkeypatch, args(), *quantities, functional=functional)[1]


@pytest.mark.parametrize(("blocks", "names", "lines"), [(4, ["sigmoid_forward", "linear_extract"], 163),
    (8, ["sigmoid_forward", "sigmoid_carry", "linear_extract"], 252),
    (16, ["sigmoid_forward", "sigmoid_carry", "linear_extract"], 420)])  # fmt: skip
def test_functions_of_a_deep_chain(blocks, names, lines, monkeypatch):
    program, calls = compared(monkeypatch, deep(blocks), q.DiagGGN())
    found, _ = functions_of(program)
    assert list(found) == names
    assert program.source.partition("\ndef ")[2].count("\n") <= lines
    assert [len(calls[name]) for name in names] == [blocks] * len(names)
    assert ast.unparse(found["sigmoid_forward"].args) == "x"
    assert ast.unparse(found["linear_extract"].args) == "columns, x"
    assert ast.unparse(found["linear_extract"].body[-1]) == "return (grad_W, square_S_W, grad_b, square_S_b)"


def test_letters_of_functions_are_those_of_the_formulas():
    images = convolutional(*(layers.Conv2d(2, 2, 3, padding=1) for _ in range(4)))
    found = functions_of(gb.program(*images, q.DiagGGN()))[0] | functions_of(gb.program(*deep(8)))[0]
    heads = {name: (ast.unparse(each.args), ast.unparse(each.body[-1])) for name, each in found.items()}
    assert heads["batchnorm2d_forward"] == ("x, running_var, running_mean, W, b", "return (y, t1, t2)")
    assert heads["conv2d_carry"] == ("columns, W", "return carried")
    assert heads["sigmoid_carry"] == ("y, g", "return carried")


def test_short_programs_and_recorded_ones_have_no_functions():
    for program in (gb.program(*deep(2), q.DiagGGN()), gb.program(*deep(16), fold=False)):
        assert functions_of(program)[0] == {}


def test_lengths_of_names_make_no_difference():
    parts = [each for _ in range(7) for each in (layers.Conv2d(2, 2, 3, padding=1), layers.ReLU())]
    images = chain(*parts, layers.Flatten(), layers.Linear(18, 3), shape=(2, 3, 3))
    calls = calls_of(gb.program(*images, q.DiagHessian(), q.KFAC(), q.BatchL2Grad()))
    assert "conv2d_extract2" not in calls
    assert len(calls["conv2d_extract"]) == 7


def slopes():
    kinds = [layers.LeakyReLU(slope) for slope in (0.1, 0.2)] * 8
    return chain(*(each for kind in kinds for each in (layers.Linear(6, 6), kind)), layers.Linear(6, 3))


def widths():
    parts = [each for i in [5, 4] * 4 for each in (layers.Linear(9 - i, i), layers.Sigmoid())]
    return chain(layers.Linear(6, 4), *parts, layers.Linear(4, 3))


def paddings():
    kinds = [{"padding": 1}, {"padding": 2, "dilation": 2}] * 3
    return convolutional(*(layers.Conv2d(2, 2, 3, **options) for options in kinds))


@pytest.mark.parametrize(("args", "name", "times"), [(slopes, "leakyrelu_carry", 8), (widths, "sigmoid_forward", 4),
                                                     (paddings, "conv2d_forward", 3)])  # fmt: skip
def test_layers_that_differ_in_an_option_or_in_a_shape_have_a_function_each(args, name, times, monkeypatch):
    _, calls = compared(monkeypatch, args(), q.DiagGGN())
    assert [len(calls[each]) for each in (name, f"{name}2")] == [times, times]
    layer_of = {each: titles[0].split(", ", 1)[1] for each, titles in calls.items()}
    for each, layer in layer_of.items():  # a layer has the same number in all sections
        assert layer_of.get(re.sub("_[a-z]+", "_forward", each), layer) == layer


ODD = ["sigmoid", "forward", "x", "columns", "a b", "z", "t1", "lambda", "R", "np", "c.b", "c_b"]


def test_names_that_collide(monkeypatch):
    nodes, last = {}, "input"
    for name in ODD:
        new = Matrix("sigmoid", 6, 6, 1.0) if name == "forward" else layers.Linear(6, 6)
        last, before = f"z-{name}", last
        nodes |= {name: (new, before), last: (layers.Sigmoid(), name)}
    args = case(gb.Graph(nodes | {"head": (layers.Linear(6, 3), last)}, rng=0, dtype="float64"), 6)
    program, calls = compared(monkeypatch, args, q.DiagGGN())
    assert "sigmoid_forward = parameters['forward.sigmoid']" in program.source
    assert len(calls["sigmoid_forward2"]) == len(ODD)


def test_saved_files_with_functions_run(tmp_path):
    cases = {"deep": (deep(4), {}), "functional": (convolutional(), {"functional": True}), "residual": (residual(), {})}
    programs = {name: (gb.program(*args, q.DiagGGN(), **options), *args[2:]) for name, (args, options) in cases.items()}
    assert all("_extract(" in program.source for program, *_ in programs.values())
    run(tmp_path, programs)


class Fixed(np.ndarray):
    """An array as those of JAX are: nothing is assigned to a part of it; at[index].set(value) returns another."""

    def __setitem__(self, index, value):
        raise TypeError("an array that does not change")

    @property
    def at(self):
        return At(self)


class At:
    def __init__(self, array):
        self.array = array

    def __getitem__(self, index):
        return SimpleNamespace(set=lambda value: self.copied(index, value))

    def copied(self, index, value):
        new = np.array(self.array)
        new[index] = value
        return new.view(Fixed)


def fixed(make):
    return lambda *args, **options: make(*args, **options).view(Fixed)


@pytest.mark.parametrize("args", [convolutional, residual])
def test_functional_programs_with_functions_assign_to_nothing(args):
    net, loss, x, y = args()
    program = gb.program(net, loss, x, y, q.DiagGGN(), q.DiagHessian(), functional=True)
    made = {name: fixed(getattr(np, name)) for name in ("zeros", "stack", "concatenate", "copy")}
    scope = {"np": SimpleNamespace(**{**vars(np), **made})}
    exec(program.source.replace("import numpy as np", ""), scope)
    want, program.function = run_on(program, x, y), scope["program"]
    got = run_on(program, x, y)
    assert [path for path in want if not np.allclose(got[path], want[path], rtol=1e-12)] == []


STEPS = ["b_# = a_# + 1", *["b_#[0] = 2"] * 7, "c_# = b_# * 3"]
OUTSIDE = ["a_#[0] = 2"] * 8


@pytest.mark.parametrize(("first", "second", "dtype", "more", "made"), [
    (STEPS, STEPS, "float64", [], 1), (STEPS, STEPS, "float32", [], 0), (STEPS, STEPS, "float64", ["d_0 = b_0"], 0),
    (STEPS, [*STEPS[:-1], "c_# = b_# * 4"], "float64", [], 0), (OUTSIDE, OUTSIDE, "float64", [], 0),
    ], ids=["equal", "another dtype", "a result more", "another constant", "writes into another array"])  # fmt: skip
def test_sections_that_are_equal_and_that_are_not(first, second, dtype, more, made):
    texts = {"0": first, "1": second, "2": more}
    lines = {i: [(each.replace("#", i), f"for c_{2 * int(i)}") for each in steps] for i, steps in texts.items()}
    parts = [functions.ProgramPart(f"Carry, layer {i}, Own()", Section("carry", i), lines[i]) for i in lines]
    kinds = {f"{letter}_{i}": ((2,), dtype if i else "float64") for letter in "abcd" for i in (0, 1)}
    found, after = functions.shared(parts, kinds, {"c_0", "c_1"}, dict.fromkeys(texts, layers.Sigmoid()))
    assert len(found) == made
    if made:
        assert [part.statements for part in after[:2]] == [[(f"c_{i} = sigmoid_carry(a_{i})", "(2,)")] for i in (0, 1)]
        assert found[0].statements[-2:] == [("c = b * 3", "for c"), ("return c", "")]
    else:
        assert after == parts
