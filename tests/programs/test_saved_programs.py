"""Saved programs run where there is NumPy alone, and agree with their own check."""

import copy
import runpy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from common import batch
from program_cases import of_layer, of_loss

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.programs.comparison import check_result
from gbackprop.testing.cases import ALL_LAYERS, LOSSES

ALONE = """
import runpy, sys
class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ImportError("forbidden: " + name)
sys.meta_path.insert(0, Forbidden())
for path in sys.argv[1:]:
    with open(path + ".py") as file:
        forbidden = {"gbackprop"} if "from scipy import special" in file.read() else {"gbackprop", "scipy"}
    for given in ([], [path + "_inputs.npz"]):
        sys.argv = [path + ".py", *given]
        try:
            runpy.run_path(path + ".py", run_name="__main__")
        except SystemExit as error:
            if error.code:
                print("FAILED", path, given)
"""


def run(folder, programs):
    """Save programs with inputs, and run all in one process that has NumPy alone."""
    for name, (program, x, y) in programs.items():
        program.save(folder / f"{name}.py")
        np.savez(folder / f"{name}_inputs.npz", **program.inputs(x, y, 5))
    paths = [str(folder / name) for name in programs]
    done = subprocess.run([sys.executable, "-I", "-c", ALONE, *paths], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "FAILED" not in done.stdout, done.stdout
    assert done.stdout.count("relative error") == 2 * len(programs)


def saved(chain, loss, x, y, *quantities, dtype="float64", **options):
    net = gb.Sequential(*chain, rng=0, dtype=dtype)
    x, y = (a.astype(dtype) if a.dtype.kind == "f" else a for a in (x, y))
    return gb.program(net, loss, x, y, *quantities, **options), x, y


def test_saved_files_run_with_numpy_alone(tmp_path):
    x, y = batch(4, 6)
    images = batch(3, 1, 6, 6)
    cross, dense = losses.CrossEntropyLoss(ignore_index=1, label_smoothing=0.1), layers.Linear(6, 3)
    programs = {
        "dense": saved([layers.Linear(6, 6), layers.GELU(), dense], cross, x, y, q.KFAC(), q.DiagHessian()),
        "entries": saved([layers.Linear(6, 6), layers.Tanh(), layers.Linear(6, 3)], cross, x, y, wrt=["x", "0.bias"]),
        "raw": saved([layers.Linear(6, 3)], cross, x, y, q.KFLR(), fold=False),
        "single": saved([layers.Linear(6, 6), layers.Sigmoid(), layers.Linear(6, 3)], cross, x, y, q.DiagGGN(),
                        dtype="float32"),
        "table": saved([layers.Linear(6, 20)], losses.CrossEntropyLoss(weight=np.linspace(1, 2, 20)), x, y, q.KFLR()),
        "image": saved([layers.Conv2d(1, 2, 3), layers.BatchNorm2d(2), layers.ReLU(), layers.MaxPool2d(2),
                        layers.Dropout(0.3), layers.Flatten(), layers.Linear(8, 3)], cross, *images, training=True),
        "functional": saved([gb.LSTM(6, 2), layers.Flatten(), layers.Linear(8, 3)], cross, np.stack([x] * 4, 1), y,
                            functional=True),
    }  # fmt: skip
    parts = gb.Graph({"l": (layers.Linear(4, 3), "input.0"), "r": (layers.Linear(2, 3), "input.1"),
                      "m": (layers.Multiply(), "l", "r")}, inputs=[(4,), (2,)], rng=0, dtype="float64")  # fmt: skip
    pair = x[:, :4], x[:, 4:]
    programs["several"] = gb.program(parts, cross, pair, y, wrt=["x", "l.bias"]), pair, y
    run(tmp_path, programs)
    assert (tmp_path / "table.npz").exists()
    assert not (tmp_path / "raw.npz").exists()
    assert "special.erf" in programs["dense"][0].source


def test_the_check_of_a_saved_file_bites(tmp_path):
    program, _, _ = saved([layers.Linear(6, 3)], losses.CrossEntropyLoss(), *batch(4, 6))
    (path,) = program.save(tmp_path / "wrong.py")
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("'0.bias': "))
    path.write_text(text.replace(line, line.rstrip(",") + " * 1.001,"))
    done = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr


def test_made_up_labels_are_all_that_occur(tmp_path):
    """One of three labels counts: of labels drawn one by one often none would."""
    x, y = batch(3, 6)
    y[:] = -1, 2, -1
    program, *_ = saved([layers.Linear(6, 3)], losses.CrossEntropyLoss(ignore_index=-1), x, y)
    program.save(tmp_path / "program.py")
    made_up = runpy.run_path(tmp_path / "program.py")["made_up"]
    assert all(set(made_up(np.random.default_rng(seed))["y"]) == {-1, 2} for seed in range(10))


GROUPS = 12


@pytest.mark.long
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_layer_and_loss(tmp_path, group):
    cases = [of_layer(row, ("float64", "float32")[i % 5 == 4]) for i, row in enumerate(ALL_LAYERS[group::GROUPS])]
    cases += [of_loss(row, "mean", "float64") for row in LOSSES[group::GROUPS]]
    run(tmp_path, {f"case{i}": (gb.program(*case[:2], *case[2]), *case[2]) for i, case in enumerate(cases)})


@pytest.mark.parametrize("y", [np.random.default_rng(0).dirichlet(np.ones(3), 3), np.eye(3)], ids=["drawn", "labels"])
def test_made_up_probabilities_add_up_to_one(y, tmp_path):
    x, _ = batch(3, 6)
    program, *_ = saved([layers.Linear(6, 3)], losses.CrossEntropyLoss(), x, y)
    program.save(tmp_path / "program.py")
    found = runpy.run_path(tmp_path / "program.py")["made_up"](np.random.default_rng(0))["y"]
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-14)


@pytest.mark.parametrize(("dtype", "off"), [("float32", 0.003), ("float64", 3e-9)])
def test_a_program_of_other_results_is_refused(dtype, off):
    net = gb.Sequential(layers.Linear(6, 3), rng=0, dtype=dtype)
    result = gb.reference(net, losses.CrossEntropyLoss(), *(part for part in batch(4, 6, dtype=dtype)))
    check_result(result, result, False)
    other = replace(result, gradient={name: value * (1 + off) for name, value in result.gradient.items()})
    with pytest.raises(gb.UnsupportedError, match=r"program: gradient.*computes another one"):
        check_result(other, result, False)


@pytest.mark.parametrize("part", ["A", "B"])
def test_a_program_of_another_kronecker_factor_is_refused(part):
    net = gb.Sequential(layers.Linear(6, 3), rng=0, dtype="float64")
    result = gb.reference(net, losses.CrossEntropyLoss(), *batch(4, 6, dtype="float64"), q.KFLR())
    other = copy.deepcopy(result)
    factor = getattr(other.values[0]["0.weight"], part)
    factor[0, 0] *= 1 + 1e-6
    with pytest.raises(gb.UnsupportedError, match=rf"kflr.*0\.weight, {part}: .*computes another one"):
        check_result(other, result, False)


@pytest.mark.parametrize("more", ["got", "expected"])
def test_a_result_that_only_one_of_both_has_is_named(more):
    net = gb.Sequential(layers.Linear(6, 3), rng=0, dtype="float64")
    result = gb.reference(net, losses.CrossEntropyLoss(), *batch(3, 6))
    larger = replace(result, gradient={**result.gradient, "spare": np.zeros(2)})
    pair = (larger, result) if more == "got" else (result, larger)
    with pytest.raises(gb.UnsupportedError, match="program: gradient, spare: the program computes another one"):
        check_result(*pair, False)
