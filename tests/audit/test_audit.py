"""``python -m gbackprop audit``: all that ships, the terminal, and the example in the docs."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_audit_command import audit

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.layers import AvgPool2d, Elementwise, Layer, Sigmoid, Tanh
from gbackprop.network.container import Container
from gbackprop.testing import cases
from gbackprop.testing.audit import command
from gbackprop.testing.audit.findings import Auditor
from gbackprop.testing.audit.page import page
from gbackprop.testing.audit.summary import error_of, verdict_of
from gbackprop.testing.audit.table import Terminal
from gbackprop.testing.audit.where import place
from gbackprop.testing.runs import SHIPPED

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "audit_a_layer.py"


# --- what ships -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[6, pytest.param(1, marks=pytest.mark.long)])
def shipped(request):
    """The findings on what ships, which the command shows; on one in six of what other tests check, too."""
    apart = (*cases.CONTAINERS, *cases.PARTS, *cases.SEQUENCES)
    rows = [row for row in cases.ALL_LAYERS if row not in apart]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "ALL_LAYERS", [*apart, *rows[:: 2 * request.param]])
        for name in ("LOSSES", "NETWORKS"):
            patch.setattr(command, name, getattr(cases, name)[:: request.param])
        return list(command.shipped(Auditor()))


def test_everything_that_ships_is_sound(shipped):
    assert [row.explain() for finding in shipped for row in finding.report.failures] == []
    assert len(shipped) > 50


def test_errors_against_complex_steps_are_rounding(shipped):
    errors = [float(error_of(finding.report) or 0) for finding in shipped]
    assert max(errors) <= 1e-12
    assert sum(error > 0 for error in errors) > 0.8 * len(errors)


def test_nothing_that_ships_is_left_out():
    def exported(module, base):
        found = {value for name, value in vars(module).items() if name in module.__all__ and isinstance(value, type)}
        return {kind for kind in found if issubclass(kind, base) and kind not in (base, layers.Elementwise)}

    integers = {layers.Embedding}  # cannot be moved by small steps: tests/layers/test_embedding.py
    nodes = {layers.Parameter, layers.Constant}  # take no input: tests/layers/test_nodes.py
    assert exported(layers, Layer) - integers - nodes <= {row.kind for row in cases.ALL_LAYERS}
    assert exported(losses, losses.Loss) == {row.kind for row in cases.LOSSES}
    for row in cases.ALL_LAYERS:  # a function is compared with plain loops unless it is made of others
        assert row.definition is not None or issubclass(row.kind, Container)


def test_each_loss_is_audited_with_both_reductions(shipped):
    titles = [finding.title for finding in shipped if finding.kind == "loss"]
    mean, total = ([t.split(mark) for t in titles if mark in t] for mark in ("('mean'", "('sum'"))
    assert mean == total
    assert len(mean) > 5


def test_rows_are_of_what_they_say():
    """Ignored labels are among the targets, and drawn parameters are not those of a fresh layer."""
    ignoring = [row for row in cases.LOSSES if row.options.get("ignore_index", 0) < 0]
    assert ignoring
    for row in ignoring:
        labels = row.batch()[1]
        assert set(labels.ravel()) > {row.options["ignore_index"]}
    norms = [row for row in cases.ALL_LAYERS if "Norm" in row.kind.__name__]
    assert norms
    for row in norms:
        for name, value in row.layer().parameters.items():
            assert not np.isin(value, (0, 1)).any(), (row, name)


def test_every_quantity_is_judged(shipped):
    rows = [row for finding in shipped if finding.kind == "network" for row in finding.report.rows]
    judged = {row.method for row in rows if row.oracle == "dense Jacobians" and row.verdict == "ok"}
    of_blocks = {"EKFAC", "KroneckerError", "NearestKronecker"}  # functions of whole blocks, of which no oracle has any
    assert {kind.__name__ for kind in SHIPPED.values()} - judged == of_blocks


def test_a_line_for_each_subject(shipped, monkeypatch):
    monkeypatch.setattr(command, "shipped", lambda auditor: iter(shipped))
    status, out = audit()
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["claims", "error", "subject"]
    assert all(line.startswith("ok ") for line in lines[1:-1])
    assert re.fullmatch(r"\d+ claims: \d+ hold, 0 fail, \d+ not judged or not given", lines[-1])


@pytest.fixture
def layers_only(monkeypatch):
    """The rows of what the tests spoil and of their neighbours, and no losses and networks."""
    names = ("AvgPool2d", "Sigmoid", "Tanh", "GRU", "LSTM", "MaxPool2d", "SiLU", "Linear")
    kinds = {row.kind: row for row in cases.ALL_LAYERS if row.kind.__name__ in names}
    rows = [*kinds.values(), *[row for row in cases.ALL_LAYERS if "glu" in str(row)]]
    monkeypatch.setattr(command, "ALL_LAYERS", rows)
    monkeypatch.setattr(command, "LOSSES", [])
    monkeypatch.setattr(command, "NETWORKS", [])


@pytest.mark.long
def test_wrong_derivatives_and_wrong_functions_with_the_right_derivatives_are_found(layers_only, monkeypatch):
    counts = AvgPool2d._counts
    monkeypatch.setattr(AvgPool2d, "_counts", lambda self, spatial: counts(self, spatial) + 1)
    monkeypatch.setattr(Sigmoid, "value", lambda self, x: 0.5 + 0.5 * np.tanh(x))
    monkeypatch.setattr(Sigmoid, "first", lambda self, x, y: 2 * y * (1 - y))
    monkeypatch.setattr(Sigmoid, "second", lambda self, x, y: 4 * y * (1 - y) * (1 - 2 * y))
    monkeypatch.setattr(Tanh, "second", lambda self, x, y: -y * (1 - y * y))
    status, out = audit()
    failed = [re.search(r"layer +(\w+)", line)[1] for line in out.splitlines() if line.startswith("FAILED")]
    assert status == 1
    of_sigmoids = {"GRU", "LSTM", "Graph"}  # the last is the operation "glu" on parts of an input
    assert set(failed) == {"AvgPool2d", "Sigmoid", "Tanh", *of_sigmoids}
    assert out.count("  forward: is the function that it should be: error") == len(failed) - failed.count("Tanh")
    assert out.count("  residual: is Σⱼ (∇² yⱼ) gⱼ: error 5.0e-01") == failed.count("Tanh")


# --- the terminal ---------------------------------------------------------------------------------


class Tty(io.StringIO):
    def isatty(self):
        return True


def test_with_rich_and_without(monkeypatch):
    finding = Auditor().layer(layers.Linear(2, 2, bias=False), np.ones((2, 2)))
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    styled, plain, piped = Tty(), Tty(), io.StringIO()
    Terminal(styled).head()
    Terminal(styled).rows(finding)
    Terminal(piped).rows(finding)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    Terminal(plain).rows(finding)
    assert plain.getvalue() == piped.getvalue()
    assert "\x1b[" in styled.getvalue()
    assert "  claims    error  subject\n" in re.sub("\x1b.*?m", "", styled.getvalue())
    assert "is J[n, *out, *in]" in styled.getvalue()
    assert "\x1b[" not in plain.getvalue()


# --- the example ----------------------------------------------------------------------------------


def masked(text):
    """Without the digits of rounding errors, which differ from one processor to the next."""
    return re.sub(r"\d\.\de[+-]\d\d(?= +\S+  ok$)", "rounding", text, flags=re.MULTILINE)


def test_the_docs_show_the_example_and_what_it_prints():
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- tests/audit/test_audit.py holds .*? -->\n```\w*\n(.*?)\n```", page, re.DOTALL)
    layer, *printed = blocks
    assert len(printed) == 2
    assert layer in EXAMPLE.read_text(encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}, timeout=120, check=True,
    )  # fmt: skip
    assert re.sub("\rgbackprop: Numba compiles .*\n", "", ran.stderr) == ""
    first, second = (f"$ python{part}".strip() for part in masked(ran.stdout).split("$ python")[1:])
    assert masked(printed[0]) == first
    for excerpt in masked(printed[1]).split("\n…\n"):
        assert excerpt in second


class WrongCube(layers.Elementwise):
    """y = x³, with 2x² for its derivative."""

    def value(self, x):
        return x**3

    def first(self, x, y):
        return 2 * x**2

    def second(self, x, y):
        return 4 * x


def test_a_network_with_a_part_that_failed_is_not_judged(capsys):
    net = gb.Sequential(layers.Linear(3, 3), WrongCube(), layers.Linear(3, 2), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 1, 1, 0])
    findings = Auditor(0, pictures=False).network(net, losses.CrossEntropyLoss(), x, y)
    verdicts = [verdict_of(finding.report) for finding in findings]
    assert [verdict for verdict, _ in verdicts] == ["ok", "FAILED", "ok", "not judged"]
    claims = len(findings[-1].report.rows)
    unjudged = sum(row.verdict == "not judged" for row in findings[-1].report.rows)
    assert 0 < unjudged < claims
    said = f"{unjudged} of {claims} claims not judged: they rest on parts that failed"
    assert verdicts[-1][1] == said
    Terminal(sys.stdout).line(findings[-1])
    printed = capsys.readouterr().out
    assert printed.startswith("not judged")
    assert said in printed
    assert f"({said})" in page(findings, "audit")


class OwnJacobian(layers.ParameterJacobian):
    """Of y = x + b, with a wrong square."""

    def per_sample(self, mat):
        return mat

    def square(self, mat, sign=None):
        return 2 * super().square(mat, sign)


class OwnOuter(layers.Outer):
    """A weight's Jacobian with a wrong sum."""

    def sum(self, mat, sign=None):
        return 1.01 * super().sum(mat, sign)


class WrongDefinition(layers.ParameterJacobian):
    """Its reductions are inherited; what they sum over is wrong."""

    def per_sample(self, mat):
        return 3 * mat


class Shifts(layers.Identity):
    """y = x + b."""

    jacobian = OwnJacobian

    def parameter_shapes(self):
        return {"b": (3,)}

    def draw(self, rng):
        return {"b": rng.standard_normal(3)}

    def forward(self, x):
        return x + self.parameters["b"], None

    def parameter_jacobians(self, saved):
        return {"b": self.jacobian()}


class ShiftsWrongly(Shifts):
    jacobian = WrongDefinition


class OwnLinear(layers.Linear):
    def parameter_jacobians(self, saved):
        jacobians = super().parameter_jacobians(saved)
        jacobians["weight"].__class__ = OwnOuter
        return jacobians


NAMED = [
    (Shifts(), "b.square", OwnJacobian.square, "OwnJacobian.square"),
    (ShiftsWrongly(), "b.per_sample", WrongDefinition.per_sample, "WrongDefinition.per_sample"),
    (OwnLinear(3, 2), "weight.sum", OwnOuter.sum, "OwnOuter.sum"),
]


@pytest.mark.parametrize(("layer", "method", "function", "name"), NAMED, ids=[case[-1] for case in NAMED])
def test_the_line_of_a_users_jacobian_is_named(layer, method, function, name):
    finding = Auditor(0, pictures=False).layer(layer, np.random.default_rng(0).standard_normal((3, 3)))
    line = function.__code__.co_firstlineno
    assert str(finding.places[method]).endswith(f"test_audit.py, line {line}, in {name}")


def test_an_inherited_reduction_names_what_it_sums_over():
    where = place(ShiftsWrongly(), "b.square", {"b": WrongDefinition()})
    line = WrongDefinition.per_sample.__code__.co_firstlineno
    assert f"line {line}, in WrongDefinition.per_sample (square is inherited, and sums over it)" in str(where)


class Root(Elementwise):
    """√x, which is defined for what a Softplus gives, and not for what it takes."""

    def value(self, x):
        return np.sqrt(x)

    def first(self, x, y):
        return 0.5 / y

    def second(self, x, y):
        return -0.25 / y**3


def test_a_layer_of_a_network_is_audited_at_what_the_layers_before_it_give():
    network = gb.Sequential(layers.Softplus(), Root(), rng=0)
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4))
    for finding in Auditor(pictures=True).network(network, losses.MSELoss(), x, y)[:2]:
        finding.report.assert_ok()
        assert finding.pictures
        assert all(np.isfinite(picture.got).all() for picture in finding.pictures)
