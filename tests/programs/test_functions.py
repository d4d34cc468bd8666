"""Equal sections are printed once, as functions; results, costs and what fold=False prints stay as they are."""

import ast
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from test_saved_programs import run

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.layers.norms.affine import Matrix
from gbackprop.plain.programs import functions, module
from gbackprop.plain.programs.sections import Section

CROSS = losses.CrossEntropyLoss()


def chain(*parts, shape=(6,)):
    net = gb.Sequential(*parts, rng=0, dtype="float64")
    return net, np.random.default_rng(0).standard_normal((4, *shape)), np.arange(4) % 3


def deep(blocks, activation=layers.Sigmoid):
    pairs = [layer for _ in range(blocks) for layer in (layers.Linear(6, 6), activation())]
    return chain(*pairs, layers.Linear(6, 3))


def residual(blocks=4):
    nodes, last = {}, "input"
    for i in range(blocks):
        nodes |= {f"{i}.in": (layers.Linear(6, 6), last), f"{i}.act": (layers.Sigmoid(), f"{i}.in"),
                  f"{i}.out": (layers.Linear(6, 6), f"{i}.act"), f"{i}.sum": (layers.Add(), f"{i}.out", last)}  # fmt: skip
        last = f"{i}.sum"
    net = gb.Graph(nodes | {"head": (layers.Linear(6, 3), last)}, rng=0, dtype="float64")
    return net, *chain(layers.Linear(6, 3))[1:]


def convolutional(*kernels):
    kernels = kernels or (layers.Conv2d(2, 2, 3, padding=1) for _ in range(3))
    parts = [layer for kernel in kernels for layer in (kernel, layers.BatchNorm2d(2), layers.ReLU())]
    return chain(*parts, layers.MaxPool2d(2), layers.Flatten(), layers.Linear(8, 3), shape=(2, 4, 4))


def recurrent():
    return chain(gb.LSTM(4, 4), gb.LSTM(4, 4), layers.Flatten(), layers.Linear(12, 3), shape=(3, 4))


def without(monkeypatch, *args, **options):
    """The program in which each section is written out."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "shared", lambda parts, *_: ([], list(parts)))
        return gb.program(*args, **options)


def functions_of(program):
    """The functions of a program by their names, and its own."""
    found = {node.name: node for node in ast.parse(program.source).body if isinstance(node, ast.FunctionDef)}
    found.pop("assigned", None)
    return found, found.pop("program")


def calls_of(program):
    """For each function the titles of the sections that call it, without the layers' paths."""
    found, title, names = defaultdict(list), "", functions_of(program)[0]
    for line in program.source.split("def program(")[1].splitlines():
        if match := re.match(r"    # ((?:Forward|Extract|Carry|Append), )layer [^,]*, ([^:]*)", line):
            title = match[1] + match[2]
        for name in names:
            if re.search(rf"\b{name}\(", line):
                found[name].append(title)
    return found


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    else:
        yield path, value


def run_on(program, x, y):
    """The arrays that a program's function returns, by their paths, with inputs as a saved file has them."""
    groups = {"parameters": {}, "random": {}}
    for name, array in program.inputs(x, y, rng=1).items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = array
    return dict(leaves(program.function(x, y, *groups.values(), program.constants)))


NETWORKS = {
    "deep": lambda: deep(4), "tanh": lambda: deep(8, layers.Tanh), "residual": residual,
    "convolutional": convolutional, "recurrent": recurrent,
}  # fmt: skip
QUANTITIES = {"gradient": [], "diagonals": [q.DiagGGN(), q.BatchGrad(), q.Variance()], "kfac": [q.KFAC()],
              "hessian": [q.DiagHessian()]}  # fmt: skip


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("quantities", QUANTITIES)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_bit_and_count_is_that_of_the_program_written_out(network, quantities, functional, monkeypatch):
    net, x, y = NETWORKS[network]()
    args = net, CROSS, x, y, *QUANTITIES[quantities]
    program, plain = gb.program(*args, functional=functional), without(monkeypatch, *args, functional=functional)
    found, body = functions_of(program)
    assert found
    assert not functions_of(plain)[0]
    got, want = run_on(program, x, y), run_on(plain, x, y)
    assert got.keys() == want.keys()
    assert [path for path in want if got[path].tobytes() != want[path].tobytes()] == []
    assert repr(program.cost()) == repr(plain.cost())
    calls = calls_of(program)
    saved = sum(len(calls[name]) * (len(each.body) - 2) for name, each in found.items())
    assert len(functions_of(plain)[1].body) == len(body.body) + saved
    assert sum(map(bool, program.source.splitlines())) < sum(map(bool, plain.source.splitlines()))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_function_is_of_equal_layers_and_writes_into_its_own_arrays(network):
    net, x, y = NETWORKS[network]()
    program = gb.program(net, CROSS, x, y, q.DiagGGN())
    found, _ = functions_of(program)
    for name, titles in calls_of(program).items():
        times, statements = len(titles), len(found[name].body) - 1
        assert len(set(titles)) == 1
        assert times * statements > times + statements + 4
        made = set()
        for node in found[name].body[:-1]:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            assert not isinstance(target, ast.Subscript) or target.value.id in made
            made |= {target.id} if isinstance(target, ast.Name) else set()


@pytest.mark.parametrize(("blocks", "names", "most"), [
    (4, {"sigmoid_forward", "linear_extract"}, 183), (8, {"sigmoid_forward", "sigmoid_carry", "linear_extract"}, 280),
    (16, {"sigmoid_forward", "sigmoid_carry", "linear_extract"}, 464)])  # fmt: skip
def test_functions_of_a_deep_chain(blocks, names, most):
    program = gb.program(*chain_with(deep(blocks)), q.DiagGGN())
    found, _ = functions_of(program)
    assert found.keys() == names
    assert program.source.count("\n") <= most
    times = {"sigmoid_forward": blocks, "sigmoid_carry": blocks, "linear_extract": blocks}
    assert {name: len(titles) for name, titles in calls_of(program).items()} == {name: times[name] for name in names}
    assert ast.unparse(found["sigmoid_forward"].args) == "x"
    assert ast.unparse(found["linear_extract"].args) == "columns, x"
    assert ast.unparse(found["linear_extract"].body[-1]) == "return (grad_W, square_S_W, grad_b, square_S_b)"


def chain_with(case):
    net, x, y = case
    return net, CROSS, x, y


def test_short_programs_and_recorded_ones_have_no_functions():
    small = chain(layers.Linear(6, 6), layers.Sigmoid(), layers.Linear(6, 6), layers.Sigmoid(), layers.Linear(6, 3))
    for program in (gb.program(*chain_with(small), q.DiagGGN()), gb.program(*chain_with(deep(16)), fold=False)):
        assert functions_of(program)[0] == {}


def slopes():
    kinds = [layers.LeakyReLU(slope) for slope in (0.1, 0.2)] * 8
    return chain(*(each for kind in kinds for each in (layers.Linear(6, 6), kind)), layers.Linear(6, 3))


def widths():
    parts = [each for i in [5, 4] * 4 for each in (layers.Linear(9 - i, i), layers.Sigmoid())]
    return chain(layers.Linear(6, 4), *parts, layers.Linear(4, 3))


def dilations():
    kinds = [{"padding": 1}, {"padding": 2, "dilation": 2}] * 3
    return convolutional(*(layers.Conv2d(2, 2, 3, **options) for options in kinds))


@pytest.mark.parametrize(("case", "names", "times"), [(slopes, "leakyrelu_carry", 8), (widths, "sigmoid_forward", 4),
                                                      (dilations, "conv2d_forward", 3)])  # fmt: skip
def test_layers_that_differ_in_an_option_or_in_a_shape_have_a_function_each(case, names, times, monkeypatch):
    net, x, y = case()
    program = gb.program(net, CROSS, x, y, q.DiagGGN())
    calls = calls_of(program)
    assert [len(calls[name]) for name in (names, f"{names}2")] == [times, times]
    assert all(len(set(titles)) == 1 for titles in calls.values())
    for name, (title, *_) in calls.items():  # a layer has the same number in all sections
        forward = re.sub("_[a-z]+", "_forward", name)
        assert forward not in calls or title.split(", ", 1)[1] == calls[forward][0].split(", ", 1)[1]
    want = run_on(without(monkeypatch, net, CROSS, x, y, q.DiagGGN()), x, y)
    got = run_on(program, x, y)
    assert [path for path in want if got[path].tobytes() != want[path].tobytes()] == []


ODD = ["sigmoid", "forward", "x", "columns", "a b", "z", "t1", "lambda", "R", "np", "c.b", "c_b"]


def test_names_that_collide(monkeypatch):
    """A parameter is called sigmoid_forward, and layers as values and functions are."""
    nodes, last = {}, "input"
    for name in ODD:
        new = Matrix("sigmoid", 6, 6, 1.0) if name == "forward" else layers.Linear(6, 6)
        last, before = f"z-{name}", last
        nodes |= {name: (new, before), last: (layers.Sigmoid(), name)}
    net = gb.Graph(nodes | {"head": (layers.Linear(6, 3), last)}, rng=0, dtype="float64")
    _, x, y = chain(layers.Linear(6, 3))
    args = net, CROSS, x, y, q.DiagGGN()
    program = gb.program(*args)
    assert "sigmoid_forward = parameters['forward.sigmoid']" in program.source
    assert "def sigmoid_forward2(x):" in program.source
    want = run_on(without(monkeypatch, *args), x, y)
    got = run_on(program, x, y)
    assert [path for path in want if got[path].tobytes() != want[path].tobytes()] == []


def test_saved_files_with_functions_run(tmp_path):
    cases = {"deep": (deep(4), {}), "functional": (convolutional(), {"functional": True}), "residual": (residual(), {})}
    programs = {name: (gb.program(*chain_with(case), q.DiagGGN(), **options), *case[1:])
                for name, (case, options) in cases.items()}  # fmt: skip
    assert all("_extract(" in program.source for program, *_ in programs.values())
    run(tmp_path, programs)


class Fixed(np.ndarray):
    """An array as those of JAX are: nothing is assigned to a part of it."""

    def __setitem__(self, index, value):
        raise TypeError("an array that does not change")

    @property
    def at(self):
        return Place(self)


class Place:
    def __init__(self, array, index=None):
        self.array, self.index = array, index

    def __getitem__(self, index):
        return Place(self.array, index)

    def set(self, value):
        new = np.array(self.array)
        new[self.index] = value
        return new.view(Fixed)


@pytest.mark.parametrize("network", ["convolutional", "residual"])
def test_functional_programs_with_functions_assign_to_nothing(network):
    net, x, y = NETWORKS[network]()
    program = gb.program(net, CROSS, x, y, q.DiagGGN(), q.DiagHessian(), functional=True)
    found, body = functions_of(program)
    names = ("zeros", "stack", "concatenate", "copy")
    fixed = {name: (lambda make: lambda *args, **kw: make(*args, **kw).view(Fixed))(getattr(np, name)) for name in names}
    stand_in = type("Numbers", (), {"__getattr__": lambda _, name: fixed.get(name) or getattr(np, name)})()
    scope = {"np": stand_in}
    exec(program.source.replace("import numpy as np", ""), scope)
    want, program.function = run_on(program, x, y), scope["program"]
    got = run_on(program, x, y)
    assert [path for path in want if not np.allclose(got[path], want[path], rtol=1e-12)] == []
    for function in (*found.values(), body):
        targets = [each for node in ast.walk(function) if isinstance(node, ast.Assign) for each in node.targets]
        assert not any(isinstance(each, ast.Subscript) for each in targets)


def part(layer, *texts):
    return functions.Part(f"Carry, layer {layer}, Own(): a", Section("carry", layer), [(text, "") for text in texts])


def shared(parts, dtypes=None):
    names = Counter(re.findall(r"\b[a-z]+_\d\b", repr(parts)))
    kinds = {name: ((2,), (dtypes or {}).get(name, "float64")) for name in names}
    return functions.shared(parts, kinds, {"c_0", "c_1"}, {"0": layers.Sigmoid(), "1": layers.Sigmoid()})


def test_what_is_equal_and_what_is_not():
    def two(*lines):
        return [part(i, *(line.replace("#", i) for line in lines)) for i in "01"]

    steps = ["b_# = a_# + 1", *["b_#[0] = 2"] * 7, "c_# = b_# * 3"]
    found, parts = shared(two(*steps))
    assert [each.statements for each in parts] == [[(f"c_{i} = sigmoid_carry(a_{i})", "(2,)")] for i in "01"]
    assert [text for text, _ in found[0].statements][-2:] == ["c = b * 3", "return c"]
    assert not shared(two(*["a_#[0] = 2"] * 8, "c_# = a_# * 3"))[0], "writes into what it did not make"
    assert not shared(two(*steps), {"a_1": "float32"})[0], "another dtype"
    assert not shared([*two(*steps)[:1], *two(*steps[:-1], "c_# = b_# * 4")[1:]])[0], "another constant"
    assert not shared([*two(*steps), part("1", "d_0 = b_0")])[0], "one of them has a result more"
