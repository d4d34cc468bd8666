"""Saved programs run where there is NumPy alone, and agree with the reference and with their own check."""

import subprocess
import sys

import numpy as np
import pytest
from common import batch

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.cases import ALL_LAYERS, LOSSES
from gbackprop.testing.cases.loss_rows import targets

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
    import numpy as np
    beside = path + ".npz"
    function = runpy.run_path(path + ".py")["program"]
    inputs = dict(np.load(path + "_inputs.npz"))
    import os
    constants = dict(np.load(beside)) if os.path.exists(beside) else {}
    groups = {"parameters": {}, "random": {}}
    for name, array in inputs.items():
        if "/" in name:
            groups[name.partition("/")[0]][name.partition("/")[2]] = array
    result = function(inputs["x"], inputs["y"], *groups.values(), constants)
    np.savez(path + "_result.npz", loss=result["loss"], output=result["output"], **result["gradient"])
"""


def run(folder, programs):
    """Save programs with inputs, run all in one process that has NumPy alone, and compare with the reference."""
    for name, (program, x, y) in programs.items():
        program.save(folder / f"{name}.py")
        np.savez(folder / f"{name}_inputs.npz", **program.inputs(x, y, 5))
    paths = [str(folder / name) for name in programs]
    done = subprocess.run([sys.executable, "-I", "-c", ALONE, *paths], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "FAILED" not in done.stdout, done.stdout
    assert done.stdout.count("relative error") == 2 * len(programs)
    for name, (program, x, y) in programs.items():
        want = program(x, y, 5)
        with np.load(folder / f"{name}_result.npz") as got:
            for key, value in {"loss": want.loss, "output": want.output, **want.gradient}.items():
                np.testing.assert_array_equal(got[key], value, err_msg=f"{name} {key}")


class Mixed(layers.Layer):
    """A product with numbers of its own, too many to be written out."""

    def __init__(self):
        self.table = np.random.default_rng(0).uniform(-1, 1, (6, 6))

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x @ self.table.astype(x.dtype), None

    def mjp(self, saved, mat):
        return mat @ self.table.T.astype(mat.dtype)


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
        "raw": saved([layers.Linear(6, 3)], cross, x, y, q.KFLR(), fold=False),
        "single": saved([layers.Linear(6, 6), layers.Sigmoid(), layers.Linear(6, 3)], cross, x, y, q.DiagGGN(),
                        dtype="float32"),
        "table": saved([layers.Linear(6, 6), Mixed(), layers.Linear(6, 3)], cross, x, y, q.Variance()),
        "image": saved([layers.Conv2d(1, 2, 3), layers.BatchNorm2d(2), layers.ReLU(), layers.MaxPool2d(2),
                        layers.Dropout(0.3), layers.Flatten(), layers.Linear(8, 3)], cross, *images, training=True),
        "functional": saved([gb.LSTM(6, 2), layers.Flatten(), layers.Linear(8, 3)], cross, np.stack([x] * 4, 1), y,
                            functional=True),
    }  # fmt: skip
    run(tmp_path, programs)
    assert (tmp_path / "table.npz").exists()
    assert not (tmp_path / "raw.npz").exists()
    assert "special.erf" in programs["dense"][0].source or "scipy" in programs["dense"][0].source


def test_the_check_of_a_saved_file_bites(tmp_path):
    program, _, _ = saved([layers.Linear(6, 3)], losses.CrossEntropyLoss(), *batch(4, 6))
    (path,) = program.save(tmp_path / "wrong.py")
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("'0.bias': "))
    path.write_text(text.replace(line, line.rstrip(",") + " * 1.001,"))
    done = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr


GROUPS = 12


@pytest.mark.long
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_layer_and_loss(tmp_path, group):
    programs = {}
    for i, row in enumerate(ALL_LAYERS[group::GROUPS]):
        layer, x = row.layer(), row.x(3, 0)
        parts = [layer] if layer.parameters else [layers.Scale(init=0.7), layer]
        parts += [] if layer.output_shape(row.shape) else [layers.Operation("reshape", shape=(1,))]
        y = np.random.default_rng(1).standard_normal(gb.Sequential(*parts, rng=0, dtype="float64")(x).shape)
        programs[f"layer{i}"] = saved(parts, losses.MSELoss(), x, y, dtype=("float64", "float32")[i % 5 == 4])
    for i, row in enumerate(LOSSES[group::GROUPS]):
        loss, shape = row.loss(), (3, *row.shape)
        last = {"BCELoss": layers.Sigmoid(), "NLLLoss": layers.LogSoftmax(1)}.get(row.kind.__name__)
        last = layers.Softplus() if getattr(loss, "log_input", True) is False else last
        parts = [layers.Linear(shape[-1], shape[-1]), *([last] if last else [])]
        x = np.random.default_rng(0).standard_normal(shape)
        programs[f"loss{i}"] = saved(parts, loss, x, targets(loss, shape, 1, row.soft), q.DiagGGN())
    run(tmp_path, programs)
