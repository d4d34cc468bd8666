"""Joins with parameters of their own: no alarm on a right one, and each method's fault is named."""

import numpy as np
import pytest
from faults import after, instead
from own_joins import Bilinear, Gate, GateJacobian, Merge, WeightJacobian

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.base.errors import UnsupportedError
from gbackprop.testing import check_layer, check_network

MAKES = {
    "gate": (lambda: Gate(3), (3, 3), lambda u, v, gate: gate * u + (1 - gate) * v),
    "bilinear": (
        lambda: Bilinear(3, 4, 2), (3, 4), lambda u, v, weight, bias: np.einsum("oij,ni,nj->no", weight, u, v) + bias,
    ),
    "merge": (lambda: Merge(4, 3), (4, 3), lambda u, v, weight, bias: u @ weight.T + v + bias),
}  # fmt: skip


def batch(sizes):
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((3, size)) for size in sizes)


def checked(make, sizes, definition=None):
    layer, ends = make(), np.cumsum(sizes)[:-1]
    layer.dtype = "float64"
    layer.initialize(np.random.default_rng(1))
    reference = None if definition is None else lambda x: definition(*np.split(x, ends, 1), **layer.parameters)
    return check_layer(layer, batch(sizes), reference=reference)


@pytest.mark.parametrize("name", MAKES)
def test_a_right_join_gives_no_alarm_and_all_of_its_parameters_are_judged(name):
    report = checked(*MAKES[name])
    report.assert_ok()
    for parameter in MAKES[name][0]().parameter_shapes():
        rows = {row.method: row for row in report.rows if row.verdict == "ok"}
        assert {f"{parameter}.{each}" for each in ("per_sample", "sum", "batch", "square", "moments")} <= set(rows)


def branches(*joins):
    """Two branches of width 3 of an input of width 4, and joins that take them."""
    nodes = {"a": (L.Linear(4, 3), "input"), "b": (L.Tanh(), "a")}
    left, right = "a", "b"
    for i, join in enumerate(joins):
        nodes[f"join{i}"] = (join, left, right)
        left = f"join{i}"
    return gb.Graph(nodes)


NETWORKS = {
    "gate and bilinear": lambda: branches(Gate(3), Bilinear(3, 3, 2)),
    "merge at the input": lambda: gb.Graph({"b": (L.Linear(4, 3), "input"), "join": (Merge(4, 3), "input", "b")}),
    "a weight of another name": lambda: branches(Merge(3, 3), Merge(3, 3, "w")),
    "merge twice": lambda: branches(*[Merge(3, 3)] * 2),
    "gate twice": lambda: branches(*[Gate(3)] * 2),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_with_right_joins_gives_no_alarm(name, apart):
    network, rng = NETWORKS[name](), np.random.default_rng(0)
    x, out = rng.standard_normal((3, 4)), network.output_shape((4,))
    report = check_network(network, losses.MSELoss(), x, rng.standard_normal((3, *out)))
    report.assert_ok()
    judged = {row.method for row in report.rows if row.verdict == "ok" and row.claim.startswith("is ")}
    assert {"DiagGGN", "BatchGrad", "Variance", "GramGGN"} <= judged
    assert {"KFAC", "KFLR"} <= judged or "merge" not in name


def test_the_hessian_of_a_join_that_stands_twice_is_refused_in_words():
    network, x = NETWORKS["gate twice"](), np.ones((2, 4), np.float32)
    with pytest.raises(UnsupportedError, match="no mixed residual of several inputs"):
        gb.backward(network, losses.MSELoss(), x, np.ones((2, 3), np.float32), q.DiagHessian())


FAULTS = [
    (Gate, "draw", instead(lambda self, rng: {"gate": rng.random(self.features + 1)}), "gate", "parameter_shapes"),
    (Gate, "forward", after(lambda pair: (pair[0] + pair[1], pair[1])), "gate", "forward"),
    (Gate, "output_shape", after(lambda shape: (*shape, 1)), "gate", "output_shape"),
    (Gate, "jmp", instead(lambda self, saved, a, b: self.parameters["gate"] * a + b), "gate", "jmp"),
    (Gate, "mjp", after(lambda parts: parts[::-1]), "gate", "mjp"),
    (Gate, "mjp", after(lambda parts: parts[:1]), "gate", "mjp"),
    (Gate, "parameter_jacobians", instead(lambda self, saved: {}), "gate", "parameter_jacobians"),
    (GateJacobian, "per_sample", instead(lambda self, mat: mat), "gate", "gate.per_sample"),
    (GateJacobian, "per_sample", after(lambda each: -each), "gate", "gate.per_sample"),
    (GateJacobian, "square", lambda sound: lambda self, *given: 2 * sound(self, *given), "gate", "gate.square"),
    (Gate, "curvature", instead("diagonal"), "gate", "curvature"),
    (Bilinear, "mjp", after(lambda parts: (parts[0], 2 * parts[1])), "bilinear", "mjp"),
    (Bilinear, "jmp", instead(lambda self, s, a, b: self.forward(a[0], s[1])[0][None] * np.ones((len(a), 1, 1))),
     "bilinear", "jmp"),
    (Bilinear, "pairs", after(lambda pair: (pair[0], pair[1] / 2)), "bilinear", "residual"),
    (Bilinear, "curvature", instead("zero"), "bilinear", "curvature"),
    (WeightJacobian, "per_sample",
     instead(lambda self, mat: np.einsum("vno,ni,nj->vnoij", mat, self.u, self.v[::-1])),
     "bilinear", "weight.per_sample"),
    (Merge, "mjp", after(lambda parts: (parts[0], 0 * parts[1])), "merge", "mjp"),
    (L.Outer, "input_square", after(lambda a: 2 * a), "merge", "weight.input_square"),
    (L.Bias, "kronecker", after(lambda b: b / 3), "merge", "weight.kronecker"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "attribute", "wrong", "name", "method"), FAULTS)
def test_a_fault_is_caught_and_named(monkeypatch, owner, attribute, wrong, name, method):
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    report = checked(*MAKES[name])
    assert report.failures, report
    assert report.failures[0].method == method, report.failures[0].explain()


def test_a_part_of_another_shape_with_as_many_numbers_is_found(monkeypatch):
    monkeypatch.setattr(L.MatMul, "mjp", after(lambda parts: (parts[0].swapaxes(-1, -2), parts[1]))(L.MatMul.mjp))
    x = np.random.default_rng(0).standard_normal((3, 2, 3)), np.random.default_rng(1).standard_normal((3, 3, 2))
    report = check_layer(L.MatMul(), x)
    assert report.failures[0].method == "mjp"
    assert "for each input" in report.failures[0].problem


def test_the_own_jacobian_of_a_product_of_parameters_is_refused_where_it_is_not_affine(monkeypatch):
    monkeypatch.setattr(Gate, "forward", lambda self, u, v: (self.parameters["gate"] ** 2 * u + v, u))
    report = check_layer(Gate(3), batch((3, 3)))
    assert "gate" in {row.method for row in report.failures}


class Bent(Gate):
    """y = a² u + v, not affine in a."""

    def forward(self, u, v):
        return self.parameters["gate"] ** 2 * u + v, u

    def jmp(self, saved, of_u, of_v):
        return self.parameters["gate"] ** 2 * of_u + of_v

    def mjp(self, saved, mat):
        return self.parameters["gate"] ** 2 * mat, mat

    def parameter_jacobians(self, saved):
        return {"gate": GateJacobian(2 * self.parameters["gate"] * saved)}


def test_a_join_that_is_not_affine_in_a_parameter_passes_if_its_jacobian_says_so():
    report = checked(lambda: Bent(3), (3, 3))
    report.assert_ok()
    (row,) = (row for row in report.rows if row.method == "gate")
    assert (row.verdict, row.problem[:45]) == ("not given", "it is not affine in its parameter gate, and h")


class Reversed(Gate):
    def mjp(self, saved, mat):
        return super().mjp(saved, mat)[::-1]


def test_what_a_join_inherits_rests_on_what_it_defines():
    """Its vjp is that of every layer, by mjp: the fault is told of mjp alone."""
    rows = {row.method: row for row in checked(lambda: Reversed(3), (3, 3)).rows if row.claim.startswith("is Jᵀ")}
    assert (rows["mjp"].verdict, rows["vjp"].verdict) == ("FAILED", "not judged")


def test_rows_of_a_graph_bear_the_names_of_its_own_layers():
    nodes = {"low": (L.Linear(3, 4), "input"), "sum": (L.Add(), "low", "low")}
    network = gb.Graph(nodes, rng=0, dtype="float64")
    report = check_network(network, losses.MSELoss(), np.ones((2, 3)), np.ones((2, 4)))
    report.assert_ok()
    paths = {row.method.partition(".")[0] for row in report.rows if "." in row.method}
    assert paths == {"low", "sum"}
    network.freeze(next(row.method for row in report.rows if row.method.startswith("low.weight")).rpartition(".")[0])
