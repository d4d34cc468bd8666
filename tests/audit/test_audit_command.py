"""``python -m gbackprop audit MODULE:NAME``: what a user names, and why an audit cannot start."""

import io
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from command_line import refused

from gbackprop import UnsupportedError
from gbackprop import quantities as q
from gbackprop.__main__ import main
from gbackprop.testing.audit import users
from gbackprop.testing.cases import NETWORKS

ROOT = Path(__file__).parents[2]
MINE = Path(__file__).with_name("audited.py")
NAMES = count()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Name of a module in the current folder, which nobody imported before."""
    name = f"mine{next(NAMES)}"
    shutil.copy(MINE, tmp_path / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    return name


def line_of(text):
    """Number of the line of the user's module that has a text."""
    return next(i for i, line in enumerate(MINE.read_text().splitlines(), 1) if text in line)


def audit(*arguments):
    """Exit status and output of an audit in this process."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main(["audit", *arguments])
    return status, out.getvalue()


def shows_rows(out):
    """Return whether the rows of each finding are shown, or a line of each."""
    return bool(re.search("^ *method +claim +oracle", out, re.MULTILINE))


# --- what a user names ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Cube", "scaled", "network"])
def test_what_is_sound(mine, name):
    status, out = audit(f"{mine}:{name}", "--input", "4")
    assert status == 0
    assert re.search(r"\n\d+ claims: \d+ hold, 0 fail", out)
    assert shows_rows(out) is (name != "network")


def test_all_rows_and_where_to_look(mine):
    status, out = audit(f"{mine}:Wrong", "--input", "2,3", "--batch", "2")
    assert status == 1
    assert out.splitlines()[1].split() == ["method", "claim", "oracle", "points", "error", "allowed", "verdict"]
    assert re.search(r"\n  mjp +is Jᵀ, .* complex step +72 +\d\.\de-1\d +1e-11  ok\n", out)
    assert re.search(r"\n  residual +is Σⱼ .* complex step of vjp +12 +5.0e-01 +1e-11  FAILED\n", out)
    worst = re.search(r"  residual: .*worst entry \[[\d, ]+\]: got (\S+), expected (\S+)\n", out)
    assert float(worst[1]) == pytest.approx(float(worst[2]) / 2, rel=1e-6)
    assert f"look at {mine}.py, line {line_of('class Wrong') + 1}, in Wrong.second (residual is Elementwise's" in out
    assert "rests on residual, which failed" in out


def test_the_method_itself_is_named_where_the_user_wrote_it(mine):
    status, out = audit(f"{mine}:Flip", "--input", "5")
    assert status == 1
    assert f"{mine}.py, line {line_of('return -np.cumsum') - 1}, in Flip.mjp\n" in out


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("Raises", "forward: gives finite numbers for each sample: raised RuntimeError: too hot today"),
        ("Misshapen", "mjp: is Jᵀ, entries J[n, *out, *in]: expected shape (3, 3, 3), got (3, 3)"),
        ("Spoils", "forward: is a pure function: writes to its input"),
        ("Dice", "forward: is a pure function: gives another result when it is called again"),
        ("Forgetful", "writes to the layer, at .bias"),
    ],
)
def test_what_a_layer_must_not_do_is_a_row(mine, name, finding):
    for page in ([], ["--html", "page.html"]):
        status, out = audit(f"{mine}:{name}", "--input", "3", *page)
        assert status == 1
        assert finding in out


def test_a_layer_that_cannot_present_itself(mine):
    assert audit(f"{mine}:Nameless", "--input", "3")[0] == 0
    status, out = audit(f"{mine}:nameless", "--input", "3")
    assert "layer 0, Nameless\n" in out
    assert status == (1 if "FAILED" in out else 0)


def test_a_network_shows_its_layers(mine):
    status, out = audit(f"{mine}:broken", "--input", "4", "--seed", "3")
    lines = [re.match(r"(ok|FAILED|not judged) .*  (\S.*)", line) for line in out.splitlines()[1:]]
    verdicts = {found[2].partition(" (")[0]: found[1] for found in lines if found}
    assert status == 1
    assert verdicts == {
        "layer 0, Linear(4, 3)": "ok",
        "layer 1, Wrong()": "FAILED",
        "layer 2, Linear(3, 2)": "ok",
        "the network with CrossEntropyLoss('mean')": "not judged",
    }
    assert re.search(r"\(\d+ of \d+ claims not judged: they rest on parts that failed\)", out)
    assert f"{mine}.py, line" in out
    everything = audit(f"{mine}:broken", "--input", "4", "--seed", "3", "--rows")[1]
    assert re.search(r"\n  DiagHessian +is .* rests on layers and loss, .*which failed +not judged\n", everything)


def test_symmetries_of_a_network(mine):
    status, out = audit("--symmetries", f"{mine}:network", "--input", "4", "--html", "page.html")
    assert status == 0
    assert "network  symmetries of Sequential(" in out
    assert not shows_rows(out)
    assert f"audit {mine}:network --symmetries --input 4" in Path("page.html").read_text()
    status, out = audit(f"{mine}:broken", "--symmetries", "--input", "4")
    assert status == 1
    assert "the gradient follows it where all parameters are moved" in out


def test_a_network_whose_layer_raises(mine):
    status, out = audit(f"{mine}:hot", "--input", "4")
    assert status == 1
    assert [line.split()[0] for line in out.splitlines() if "layer " in line] == ["ok", "ok", "FAILED"]
    assert not shows_rows(out)
    assert "raised RuntimeError: too hot today" in out


def test_losses_and_quantities(mine):
    status, out = audit(f"{mine}:Half", "--input", "4")
    assert status == 1
    assert "Half('mean')\n" in out
    assert "Half('sum')\n" in out
    assert out.count("  gradients: are ∇ℓ[n, *out]: error 5.0e-01") == 2
    assert shows_rows(out)
    status, out = audit(f"{mine}:network", "--input", "4", "--loss", f"{mine}:Half")
    assert status == 1
    assert f"{mine}.py, line {line_of('class Half') + 1}, in Half.gradients" in out


@pytest.mark.long
def test_a_shipped_loss_and_a_quantity(mine):
    assert audit(f"{mine}:network", "--input", "4", "--loss", "BCEWithLogitsLoss")[0] == 0
    status, out = audit(f"{mine}:Doubled")
    assert (status, shows_rows(out)) == (1, True)
    assert out.count("  Doubled: float32 stays float32: gives float64 for float32 in 0.weight") >= 3
    assert f"{mine}.py, line {line_of('class Doubled')}, in Doubled" in out


def test_a_quantity_is_judged_on_the_networks_that_can_have_it(monkeypatch):
    monkeypatch.setattr(users, "NETWORKS", (NETWORKS[0], NETWORKS[-1]))  # the last with NLLLoss, which has no draws
    status, out = audit("gbackprop.quantities:KFAC")
    assert (status, out.count("KFAC(mc_samples=1) of ")) == (0, 1)
    assert ", 0 fail" in out
    monkeypatch.setattr(users, "NETWORKS", NETWORKS[-1:])
    status, out = audit("gbackprop.quantities:KFAC")
    assert status == 1
    assert "NLLLoss('mean') has no Monte-Carlo draws" in out


def test_a_refusal_by_a_line_of_the_users_leaves_no_network_out():
    class Refusing(q.DiagGGN):
        def finish(self, scale, *shares):
            raise UnsupportedError("no such layer")

    row = NETWORKS[-1]
    given = row.network(np.random.default_rng(0)), row.loss, *row.batch(0)
    assert [users._is_refused(each, *given) for each in (Refusing(), q.KFAC(), q.DiagGGN())] == [False, True, False]


def test_an_audit_that_judges_nothing_fails(mine):
    status, out = audit(f"{mine}:network", "--input", "4", "--loss", f"{mine}:Undrawn")
    assert status == 1
    assert "forward: takes the batch: not given, but required" in out


def test_same_seed_same_audit(mine):
    first, again, other = (audit(f"{mine}:Wrong", "--input", "4", "--seed", seed)[1] for seed in "001")
    assert first == again
    assert first != other


# --- why an audit cannot start --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{}:Wrnog"], "{} has no 'Wrnog'; did you mean Wrong?"),
        (["{}:Zebra"], "{} has no 'Zebra'; it has Cube, Wrong, Scaled, Flip, Raises"),
        (["{}"], "expected MODULE:NAME, got '{0}'; did you mean {0}:Cube or {0}:Wrong or"),
        (["{}.py:Wrong"], "expected a module's name rather than a file's: {0}:Wrong, got {0}.py:Wrong"),
        (["a b:Wrong"], "expected MODULE:NAME, as in my_layers:Swish, got 'a b:Wrong'"),
        (["x{}:Wrong"], "no module named 'x{0}'; did you mean {0}?"),
        (["zebra:Wrong"], "no module named 'zebra'; there is no zebra.py in "),
        (["{}:Scaled"], "Scaled needs arguments (factor): write an instance into {0}, as in `layer = Scaled(…)`, "
         "and audit {0}:layer"),
        (["{}:sized"], "sized needs arguments (width): write an instance into {0}, as in `made = sized(…)`, "
         "and audit {0}:made"),
        (["{}:NeverMade"], "{}:NeverMade() raised RuntimeError: not today"),
        (["{}:three"], "{}:three: expected a layer, loss, quantity or network: an instance, a class, or a function "),
        (["{}:nothing"], "{}:nothing() returns NoneType: expected a layer, "),
        (["{}:Stranger"], "{}:Stranger: expected a class derived from gbackprop.layers.Layer"),
        (["{}:np"], "{}:np: expected a layer, loss, quantity or network: "),
        (["{}:Wrong", "--input", ""], "expected positive whole numbers, as in --input 3,8,8"),
        (["{}:Wrong", "--input", "3,x"], "expected positive whole numbers, as in --input 3,8,8"),
        (["{}:Wrong", "--input", "3,0"], "expected positive whole numbers, as in --input 3,8,8"),
        (["{}:Flip", "--input", "3,4"], "{}:Flip does not take --input 3,4: expected vectors, got (3, 4)"),
        (["{}:OfVectors", "--input", "3,4"], "{}:OfVectors does not take --input 3,4: "),
        (["{}:network", "--input", "5"], "{}:network does not take --input 5: layer 0, Linear(4, 3): expected "),
        (["{}:network", "--input", "4", "--loss", "MSE"], "no loss named 'MSE'; did you mean MSELoss?"),
        (["{}:Half", "--input", "4", "--loss", "MSELoss"], "--loss goes with a network or a layer, which {}:Half "),
        (["{}:network", "--input", "4", "--loss", "Zebra"], "no loss named 'Zebra'; expected BCELoss, "),
        (["{}:network", "--input", "4", "--loss", "{}:Cube"], "expected a loss, as in --loss my_losses:Huber, got "),
        (["{}:Cube", "--input", "3,4", "--loss", "{}:OfVectors"], "--loss {}:OfVectors does not take the "),
        (["{}:Cube", "--html", "no/where.html"], "--html: no: no such folder to write where.html to"),
        (["{}:Cube", "--html", "."], "--html: .: expected a file to write to, got a folder"),
    ],
)
def test_one_line_says_what_is_wrong(mine, capsys, arguments, expected):
    arguments = [argument.format(mine) for argument in arguments]
    arguments += [] if "--input" in arguments else ["--input", "4"]
    assert refused(capsys, "audit", *arguments).startswith(expected.format(mine))


def test_functions_that_can_be_audited_are_offered(mine, tmp_path, capsys):
    text = """import gbackprop as gb
def sized(width): return gb.Sequential()
def rule(network): return gb.optim.SGD(network, lr=1.0)
def _own(): return gb.Sequential()
def model(): return gb.Sequential()
"""
    (tmp_path / f"{mine}_functions.py").write_text(text)
    assert refused(capsys, "audit", f"{mine}_functions:zebra").endswith("has no 'zebra'; it has rule, model")


OF_LAYERS = "--input and --batch go with a layer or a loss, which gbackprop.quantities:DiagGGN is not"


def test_input_is_needed_and_needs_a_target(mine, capsys):
    expected = f"{mine}:Wrong: give the shape of its input, as in --input 3,8,8"
    assert refused(capsys, "audit", f"{mine}:Wrong").startswith(expected)
    assert refused(capsys, "audit", f"{mine}:Half").startswith(f"{mine}:Half: give the shape")
    for option in ("--input", "--batch"):
        assert refused(capsys, "audit", option, "4").startswith("--input, --loss and --batch go with a target")
        assert refused(capsys, "audit", option, "4", "gbackprop.quantities:DiagGGN").startswith(OF_LAYERS)
        refusal = refused(capsys, "audit", "--certificate", "gbackprop.layers:Tanh", option, "4")
        assert refusal.startswith("--certificate goes without --input, --loss, --batch, --rows and --symmetries")
    assert refused(capsys, "audit", "--symmetries").startswith("--symmetries goes with a target")
    assert refused(capsys, "audit", f"{mine}:Cube", "--device", "cuda").startswith("--device goes with --symmetries")
    refusal = refused(capsys, "audit", "--symmetries", f"{mine}:Half", "--input", "3")
    assert refusal.startswith(f"{mine}:Half: --symmetries takes a network or layer, got ")
    on = refused(capsys, "audit", "--symmetries", f"{mine}:network", "--input", "4", "--device", "tpu")
    assert on.startswith("device: expected 'cpu', 'cuda'")
    assert refused(capsys, "audit", f"{mine}:Cube", "--input", "9999999999999999").startswith("Unable to allocate")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
    ],
)
def test_a_module_that_does_not_import(tmp_path, monkeypatch, capsys, source, expected):
    name = f"bad{next(NAMES)}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, "audit", f"{name}:X", "--input", "3").startswith(f"importing {name} raised {expected}")


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--seed", "-1"], ["--colour"]])
def test_options_that_make_no_sense(arguments):
    with pytest.raises(SystemExit) as stop:
        main(["audit", *arguments])
    assert stop.value.code == 2


# --- as a process ---------------------------------------------------------------------------------


def run(*arguments, cwd):
    """A command of its own process, without rich."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['rich', 'matplotlib', 'hypothesis'])); "
    code = f"{blocked}import runpy; sys.argv[0] = 'gbackprop'; runpy.run_module('gbackprop', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, encoding="utf-8",
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PATH": ""}, timeout=120, check=False,
    )  # fmt: skip


def test_as_a_process_with_numpy_and_scipy_alone(mine, tmp_path):
    sound = run("audit", f"{mine}:Cube", "--input", "3", cwd=tmp_path)
    assert (sound.returncode, sound.stderr) == (0, "")
    wrong = run("audit", f"{mine}:Wrong", "--input", "3", "--html", "page.html", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (1, "page: page.html\n")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    missing = run("audit", f"{mine}:Zebra", "--input", "3", cwd=tmp_path)
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
