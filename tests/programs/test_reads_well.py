"""Printed programs are short, of narrow lines, in the letters of the pages, and run with NumPy alone."""

import ast
import itertools
import re
import subprocess
import sys

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.programs import module, rules

MOST = [((), 40), ((q.DiagGGN(),), 60), ((q.KFLR(),), 60), ((q.DiagHessian(),), 60)]


def written(n, c, *quantities, inner=None, **options):
    inner = inner or [layers.Linear(5, 4), layers.Sigmoid(), layers.Linear(4, c)]
    net = gb.Sequential(*inner, rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((n, 5)), np.arange(n) % c
    return gb.program(net, losses.CrossEntropyLoss(), x, y, *quantities, **options)


def convolutional(*quantities, **options):
    net = gb.Sequential(
        layers.Conv2d(2, 3, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Flatten(),
        layers.Linear(12, 3), rng=0, dtype="float64",
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((4, 2, 4, 4))
    return gb.program(net, losses.CrossEntropyLoss(), x, np.arange(4) % 3, *quantities, **options)


def statements(program):
    (function,) = (node for node in ast.parse(program.source).body if getattr(node, "name", "") == "program")
    return function.body


@pytest.mark.parametrize(("quantities", "most"), MOST, ids=["gradient", "DiagGGN", "KFLR", "DiagHessian"])
def test_a_page_of_statements_at_every_size(quantities, most):
    counts = {len(statements(written(n, c, *quantities))) for n, c in [(2, 3), (6, 3), (3, 2), (7, 20), (150, 90)]}
    assert len(counts) == 1
    assert counts.pop() <= most


EVERYTHING = (q.BatchGrad(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(2), q.KFAC(), q.KFRA(), q.DiagHessian())


@pytest.mark.parametrize("options", [{}, {"fold": False}, {"functional": True}], ids=str)
def test_lines_are_narrow(options):
    for program in (written(6, 3, *EVERYTHING, **options), convolutional(*EVERYTHING, **options)):
        wide = [line for line in program.source.splitlines() if len(line) > 100]
        assert wide == []


@pytest.mark.parametrize("size", range(1, 12))
def test_a_line_goes_on_as_long_as_the_next_word_has_room(size):
    lines = module._statement(f"y = f({', '.join(['a' * size] * 60)})", "")
    assert len(lines) > 2
    for line, after in itertools.pairwise(lines):
        assert len(line) <= module.WIDTH - 8 < len(line) + 1 + len(after.split()[0])


def operations(node):
    arithmetic = ast.BinOp | ast.UnaryOp | ast.Compare | ast.Call
    found = [each for each in ast.walk(node) if isinstance(each, arithmetic)]
    names = [each.func.attr if isinstance(each, ast.Call) else "" for each in found]
    literal = [isinstance(each, ast.UnaryOp) and isinstance(each.operand, ast.Constant) for each in found]
    moves = ("reshape", "transpose", "swapaxes", "arange", "zeros", "ones", "full", "array", "eye", "copy")
    factors = [isinstance(each, ast.BinOp) and ast.unparse(each).startswith("R **") for each in found]
    return sum(name not in moves for name, a, b in zip(names, literal, factors, strict=True) if not a and not b)


def test_a_line_has_three_operations_at_most():
    for program in (written(6, 3, *EVERYTHING), convolutional(*EVERYTHING)):
        many = [ast.unparse(each) for each in statements(program) if operations(each) > 3]
        assert many == []


def test_letters_are_those_of_the_pages():
    source = written(6, 3, q.DiagHessian(), q.KFAC()).source
    wanted = ["W_0", "b_2", "z_0", "z_2", "p", "grad", "g_2", "S_2", "S_mc_2", "r_1", "P_0", "sign_0", "grad_W_0"]
    wanted += ["A_2", "square_S_W_0", "square_P_W_0", "B_0", "diag_hessian_W_0", "d_1", "L", "columns_1", "carried_1"]
    assert [name for name in wanted if not re.search(rf"^    {name} = ", source, re.MULTILINE)] == []
    wanted, moments = ["low_1", "total", "K_0", "Q_0", "Q_2"], written(6, 3, q.Variance()).source
    assert [name for name in wanted if not re.search(rf"^    {name} = ", moments, re.MULTILINE)] == []
    assert "R = 1 / 6" in source
    assert "square_S_W_0 + square_P_W_0" in source


def test_each_statement_says_what_it_is():
    program = written(6, 3, *EVERYTHING)
    lines = program.source.split("def program")[1].splitlines()[1:]
    unnamed = [i for i, line in enumerate(lines) if re.match(r"    t\d+ = ", line)]
    assert unnamed
    assert [lines[i] for i in unnamed if ", for " not in lines[i] + lines[i - 1] and "= np.copy" not in lines[i]] == []
    titles = [line for line in lines if re.match(r"    # [A-Z]", line)]
    for words in ("Forward, layer 1, Sigmoid(): y = σ(x)", "Loss, exact: √R Sₙ", "Columns at the output of layer 2",
                  "Extract, layer 0, Linear(5, 4)", "Carry, layer 2, Linear(4, 3): each column g becomes Jᵀ g = Wᵀ g",
                  "Append, layer 1, Sigmoid()", "Finish diag_hessian: diag(∇²L)"):  # fmt: skip
        assert any(words in title for title in titles), words


def test_each_entry_of_the_result_is_four_columns_to_the_right_of_what_it_belongs_to():
    result = statements(written(6, 3, q.KFAC()))[-1].value
    waiting = [(8, result)]
    for column, mapping in waiting:
        assert {key.col_offset for key in mapping.keys} == {column}
        waiting += [(column + 4, value) for value in mapping.values if isinstance(value, ast.Dict)]
    assert waiting[-1][0] == 16  # a parameter's factors


def test_moves_fold_and_nothing_is_done_twice():
    body = written(6, 3, q.DiagGGN(), q.KFAC()).source.split("def program")[1]
    assert not re.search(r"\.T\.T|moveaxis|np\.absolute|\.reshape\([^()]*\)\.reshape|\[None\]\[|np\.stack", body)
    right = [line.split(" = ", 1)[1].split("  #")[0] for line in body.splitlines() if re.match(r"    \w+ = ", line)]
    right = [each for each in right if not each.startswith(("np.zeros", "np.copy", "("))]
    assert len(right) == len(set(right))


@pytest.mark.parametrize("groups", [1, 2])
def test_no_axis_of_size_one_is_carried_along_to_be_taken_off_again(groups):
    net = gb.Sequential(layers.Conv2d(2, 4, 2, groups=groups), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((3, 2, 3, 4))
    source = gb.program(net, losses.MSELoss(), x, np.zeros((3, 4, 2, 3))).source
    assert re.findall(r"\[[:, ]*: 0\]|\[(?::, )+0\]", source) == []


def test_axes_that_are_one_in_memory_count_as_one_in_the_order_of_axes():
    split = np.zeros((4, 6), np.int8).reshape(2, 2, 6).transpose(2, 0, 1)
    assert rules._order(split, (4, 6)) == (1, 0)
    assert rules._order(split[::-1], (4, 6)) is None


def test_what_is_folded_is_recorded_too():
    first, second = written(6, 3, *EVERYTHING), written(6, 3, *EVERYTHING, fold=False)
    assert len(statements(first)) < 0.4 * len(statements(second))


NAMES = ["lambda", "0", "a b", "np", "x", "class", "program", "t1", "R", "p", "S_2", "c.b", "c_b", "z_c_b"]
NAMES += ["parameters"]


@pytest.mark.parametrize("fold", [True, False])
def test_layers_with_odd_names(fold):
    before = ["input", *NAMES]
    nodes = {name: (layers.Linear(3, 3), last) for name, last in zip(NAMES, before, strict=False)}
    net = gb.Graph(nodes, rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((4, 3)), np.arange(4) % 3
    program = gb.program(net, losses.CrossEntropyLoss(), x, y, q.DiagGGN(), fold=fold)
    want = gb.reference(net, losses.CrossEntropyLoss(), x, y, q.DiagGGN())
    for name, value in want["diag_ggn"].items():
        np.testing.assert_allclose(program(x, y)["diag_ggn"][name], value, rtol=1e-12)


def test_a_saved_file_runs_with_numpy_alone(tmp_path):
    program = convolutional(q.KFAC(), q.DiagHessian())
    program.save(tmp_path / "one.py")
    x, y = np.random.default_rng(1).standard_normal((4, 2, 4, 4)), np.arange(4) % 3
    np.savez(tmp_path / "inputs.npz", **program.inputs(x, y, rng=0))
    only = "import sys, runpy; sys.modules.update(scipy=None, gbackprop=None); sys.argv = sys.argv[1:]; "
    only += "runpy.run_path(sys.argv[0], run_name='__main__')"
    for more in ([], [str(tmp_path / "inputs.npz")]):
        command = [sys.executable, "-I", "-c", only, str(tmp_path / "one.py"), *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "relative error" in done.stdout


def test_an_input_keeps_its_name_where_a_layer_gives_it_a_letter():
    net = gb.Sequential(layers.RMSNorm(4), layers.Linear(4, 3), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((5, 4))
    program = gb.program(net, losses.CrossEntropyLoss(), x, np.arange(5) % 3)
    want = gb.reference(net, losses.CrossEntropyLoss(), x, np.arange(5) % 3)
    np.testing.assert_allclose(program(x, np.arange(5) % 3).loss, want.loss, rtol=1e-13)


def linear(loss, y, *asked, dtype="float64"):
    net = gb.Sequential(layers.Linear(5, 3), rng=0, dtype=dtype)
    return gb.program(net, loss, np.ones((len(y), 5), dtype), y, *asked)


def test_only_r_has_its_name():
    """With N = 4, √R = 1/2 stands in the formula of the loss, too."""
    text = linear(losses.HuberLoss(), np.ones((4, 3)), q.Variance(), q.DiagGGN()).source
    assert "R = 1 / 4  # of L = R Σₙ ℓₙ, N = 4" in text
    assert re.search(r"t\d+ = 0\.5 \* t\d+ \*\* 2", text)
    assert re.findall(r"R \*\* [\d.]+", text) == ["R ** 0.5", "R ** 2", "R ** 2"]


def test_r_that_follows_from_the_targets():
    text = linear(losses.CrossEntropyLoss(weight=np.array([1.0, 2, 3])), np.arange(4) % 3).source
    assert "# Loss, factor: R_y, which is R of L = R Σₙ ℓₙ for these targets; N = 4" in text
    assert re.search(r"\n    L = t\d+ \* R_y ", text)
    assert "    R = " not in text
    assert "# Constants" not in text


def test_r_changes_no_dtype():
    single, double = (linear(losses.MSELoss(), np.ones((4, 3), kind), dtype=kind) for kind in ("float32", "float64"))
    assert "g_0 = grad * R " in single.source
    assert {value.dtype.name for value in single.recording.tape.values} == {"float32"}
    assert 2 * single.cost().written == double.cost().written


@pytest.mark.parametrize("asked", [(q.DiagGGN(), q.BatchGrad(coupled=True)), (q.BatchGrad(coupled=True), q.DiagGGN())])
def test_the_columns_of_each_signal_are_computed_below_its_formula(asked):
    """Also those of single samples, where samples meet."""
    inner = [layers.Linear(5, 4), layers.BatchNorm1d(4), layers.Linear(4, 3)]
    lines = written(3, 3, *asked, inner=inner, training=True).source.splitlines()
    titles = {"g_2": "gradient", "S_2": "exact", "g_each_2": "samples"}
    for letter, signal in titles.items():
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"    {letter} = "))
        title = next(line for line in reversed(lines[:at]) if re.match(r"    # [A-Z]\w+, ", line))
        assert title.startswith(f"    # Loss, {signal}: ")


def test_sums_of_what_several_layers_carry_are_not_appended():
    nodes = {"a": (layers.Linear(5, 4), "input"), "b": (layers.Tanh(), "a"), "sum": (layers.Add(), "a", "b")}
    net = gb.Graph(nodes | {"y": (layers.Linear(4, 3), "sum")}, rng=0, dtype="float64")
    text = gb.program(net, losses.CrossEntropyLoss(), np.ones((4, 5)), np.arange(4) % 3, q.DiagGGN()).source
    assert "# Append" not in text
    assert re.search(r"# Columns at the output of layer a\n    columns_a = \w+ \+ ", text)


@pytest.mark.parametrize(("quantity", "there"), [(q.KFRA(), True), (q.KFLR(), False)], ids=["KFRA", "KFLR"])
def test_the_formula_of_averages_is_said_where_they_are_carried_alone(quantity, there):
    blocks = re.findall(r"(?:^ *# .*\n)+", written(6, 3, quantity).source, re.MULTILINE)
    titles = [re.sub(r"\s*#\s*", " ", block) for block in blocks]
    carried = [title for title in titles if "Carry, layer" in title]
    assert len(carried) == 2
    assert [title for title in titles if "Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ" in title] == carried * there
