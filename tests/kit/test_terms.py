"""Named arrays and sizes of a diagnosis: functions of entries, the axes that an array fits, sizes of arguments."""

from types import SimpleNamespace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop.testing.claims import Compared
from gbackprop.testing.diagnosis.screening import screened
from gbackprop.testing.diagnosis.terms import FUNCTIONS, _reductions, arrays_of, library, scalars_of, sizes_of
from gbackprop.testing.diagnosis.trials import Evaluation, Trial, _parts
from gbackprop.testing.flat import Flat
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.points import CANCELLED, sizes_of_terms
from gbackprop.testing.probe import Probe

RNG = np.random.default_rng(0)
AT = (0.5, -2.0)
VALUES = {
    "{}²": (0.25, 4), "(1 + {})": (1.5, -1), "(1 − {})": (0.5, 3), "(1 − 2{})": (0, 5), "(1 − {}²)": (0.75, -3),
    "(1 + {}²)": (1.25, 5), "|{}|": (0.5, 2), "sign {}": (1, -1), "(1 + |{}|)": (1.5, 3), "[{} > 0]": (1, 0),
    "√|{}|": (0.707107, 1.414214), "1/{}": (2, -0.5), "exp {}": (1.648721, 0.135335), "σ({})": (0.622459, 0.119203),
    "[|{}| < 1]": (1, 0), "[|{}| > 1]": (0, 1), "clipped {}": (0.5, -1), "σ′({})": (0.235004, 0.104994),
    "σ″({})": (-0.057557, 0.079963), "σ(−{})": (0.377541, 0.880797), "tanh {}": (0.462117, -0.964028),
    "(1 − tanh² {})": (0.786448, 0.070651), "φ({})": (0.352065, 0.053991), "Φ({})": (0.691462, 0.022750),
    "sin {}": (0.479426, -0.909297), "cos {}": (0.877583, -0.416147), "exp(−{}²)": (0.778801, 0.018316),
    "log |{}|": (-0.693147, 0.693147), "softmax {}": (0.5, -2), "tanh² {}": (0.213552, 0.929349),
    "√(1 + {}²)": (1.118034, 2.236068),
}  # fmt: skip


def test_functions_of_entries_are_what_their_names_say():
    assert set(FUNCTIONS) == set(VALUES)
    for name, function in FUNCTIONS.items():
        np.testing.assert_allclose(function(np.array(AT)), VALUES[name], atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(FUNCTIONS["1/{}"](np.zeros(1)), 0)
    np.testing.assert_array_equal(FUNCTIONS["[{} > 0]"](np.zeros(1)), 0)
    for name in ("[|{}| < 1]", "[|{}| > 1]"):
        np.testing.assert_array_equal(FUNCTIONS[name](np.ones(1)), 0)
    np.testing.assert_allclose(FUNCTIONS["softmax {}"](np.log([[1.0, 3.0], [1, 1]])), [[0.25, 0.75], [0.5, 0.5]])


def test_an_array_stands_along_the_axes_that_fit_it():
    square, row = np.arange(16.0).reshape(4, 4), np.arange(4.0)
    views = library({"w": square, "v": row, "other": np.ones(7)}, (4, 3, 4))
    assert views["1"].shape == (1, 1, 1)
    np.testing.assert_array_equal(views["w along 0, 2"], square[:, None])
    np.testing.assert_array_equal(views["wᵀ along 0, 2"], square.T[:, None])
    np.testing.assert_array_equal(views["v"], row[:, None, None])
    np.testing.assert_array_equal(views["v along 2"], row[None, None])
    np.testing.assert_array_equal(views["v² along 2"], row[None, None] ** 2)
    assert not any("other" in name for name in views)
    cube = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(library({"x": cube}, (2,))["Σ x"], cube.sum((1, 2)))
    np.testing.assert_array_equal(library({"x": cube}, (2, 12))["x (flat)"], cube.reshape(2, 12))


def test_sizes_and_options_are_named():
    probe = Probe.at(L.Unflatten(1, (2, 3)), np.zeros((5, 6)), None, False, RNG)
    found = sizes_of((probe,))
    wanted = {"N": 5, "N − 1": 4, "input features": 6, "input features − 1": 5, "output features": 6, "V": 3}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["output axis 1"], found["output axis 2"], found["output positions"]) == (2, 3, 3)
    assert "input positions" not in found
    loss = losses.MSELoss()
    assert sizes_of((LossProbe(loss, np.zeros((5, 4)), np.zeros((5, 4)), np.arange(4)),))["c"] == 0.25
    convolution = scalars_of(L.Conv2d(2, 4, (3, 1), stride=2, padding=(1, 0)))
    sizes = {"in_channels": 2, "out_channels": 4, "groups": 1, "kernel[0]": 3, "kernel[1]": 1, "Π kernel": 3,
             "stride[1]": 2, "Π stride": 4, "Π dilation": 1}  # fmt: skip
    assert {name: convolution[name] for name in sizes} == sizes
    assert scalars_of(L.LeakyReLU(-0.25)) == {"|negative_slope|": 0.25, "1 − |negative_slope|": 0.75}


def test_the_number_of_columns_is_a_size_of_reductions_alone():
    """Other methods know no number of columns, which no factor of theirs can be."""
    probe = Probe.at(L.Linear(3, 4), RNG.standard_normal((5, 3)), None, False, RNG)
    of = lambda *arguments: Trial(Evaluation(lambda *given: "", arguments), 5, 0, 5).sizes  # noqa: E731
    assert "V" not in of(probe)
    assert of(probe, "weight", "square") == of(probe) | {"V": len(probe.columns)}


def test_derivatives_of_a_join_are_those_in_each_input():
    probe = Probe.at(Flat(L.Multiply(), [(3,), (3,)]), RNG.standard_normal((5, 6)), None, False, RNG)
    jacobian, hessian = RNG.standard_normal((5, 3, 6)), RNG.standard_normal((5, 6, 6))
    for whole, wanted in (
        (jacobian, {f"input {i}": jacobian[..., 3 * i : 3 * i + 3] for i in (0, 1)}),
        (hessian, {f"input {i} and {j}": hessian[:, 3 * j :, 3 * i :][:, :3, :3] for i in (0, 1) for j in (0, 1)}),
    ):
        trial = Trial(Evaluation(lambda *given, whole=whole: Compared(whole, 2 * whole, ""), (probe,)), 5, 0, 5)
        assert trial.parts.keys() == wanted.keys()
        for name, part in wanted.items():
            np.testing.assert_array_equal(trial.parts[name], (part, 2 * part))


@pytest.mark.parametrize("count", [6, 200])
def test_products_of_three_terms_are_found_times_1_and_of_few_terms_times_both_sides(count):
    rng = np.random.default_rng(0)
    terms = {"1": np.ones((9, 8)), **{f"t{i}": rng.standard_normal((9, 8)) for i in range(count)}}
    product, one = terms["t0"] * terms["t1"] * terms["t2"], rng.standard_normal((9, 8))
    pairs = [(one, one + product), (one, one + one * product), (one + one * product, one)]
    found = [screened(pair, terms, SimpleNamespace(passed=False)) for pair in pairs]
    sides = [[(side, names) for side, names, _ in each] for each in found]
    assert sides[0] == [(0, ["t0", "t1", "t2"])]
    assert sides[1:] == ([[(1, ["t0", "t1", "t2"])], [(2, ["t0", "t1", "t2"])]] if count < 150 else [[], []])


def test_means_and_sums_of_public_arrays_are_named():
    subject = L.ReLU()
    subject.shares, subject._cache = np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 4.0])
    found = scalars_of(subject)
    assert (found["mean of shares"], found["Σ shares"], found["shares[2]"]) == (3.0, 9.0, 6.0)
    assert not [name for name in found if "_cache" in name]


def test_arrays_of_a_probe_are_named_once():
    net = gb.Sequential(L.Linear(3, 4), L.Tanh(), rng=0, dtype="float64")
    probe = Probe.at(net, RNG.standard_normal((5, 3)), None, False, RNG)
    found = arrays_of((probe,))
    np.testing.assert_array_equal(found["y"], probe.output)
    np.testing.assert_array_equal(np.tanh(found["output of 0"]), probe.output)
    np.testing.assert_array_equal(found["g"], probe.columns[0])
    np.testing.assert_array_equal(found["u"], probe.tangents[0])
    assert len({array.tobytes() for array in found.values()}) == len(found)
    output, target = RNG.standard_normal((2, 3)), np.array([2, 0])
    weighted = losses.CrossEntropyLoss(weight=np.array([1.0, 2.0, 0.5]))
    given = arrays_of((LossProbe(weighted, output, target, np.arange(3)),))
    np.testing.assert_array_equal(given["one-hot target"], [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(given["weight[target]"], [0.5, 1])
    between = arrays_of((LossProbe(losses.MSELoss(), output, 2 * output, np.arange(3)),))
    np.testing.assert_array_equal(between["(f − target)"], -output)


def test_what_is_multiplied_by_an_option_is_named():
    x = RNG.standard_normal((3, 2))
    found = arrays_of((Probe.at(L.LeakyReLU(0.25), x, None, False, RNG),))
    np.testing.assert_array_equal(found["(negative_slope x)"], x / 4)


def test_sums_over_samples_and_outputs_are_what_their_names_say():
    j = RNG.standard_normal((2, 3, 4))
    found, sums = dict(_reductions("J", j)), {"‖Σₙ J‖²": (j.sum(0) ** 2).sum(), "var J": j.var(0)}
    for name, a in (("J", j), ("J²", j**2), ("J³", j**3), ("J⁴", j**4), ("|J|", abs(j))):
        sums |= {name: a, f"Σₙ {name}": a[0] + a[1], f"maxₙ {name}": np.maximum(a[0], a[1]), f"Σ {name}": a.sum(),
                 f"{name} of the first sample": a[0], f"{name} of the last sample": a[1],
                 f"Σ {name} of each sample": [a[0].sum(), a[1].sum()], f"(Σₙ {name})²": (a[0] + a[1]) ** 2,
                 f"|Σₙ {name}|": abs(a[0] + a[1]), f"(Σ {name} of each sample)²": [a[0].sum() ** 2, a[1].sum() ** 2],
                 f"Σ {name} {name} of each two samples": [[(b * c).sum() for b in a] for c in a],
                 f"‖{name}‖ of each sample": [np.linalg.norm(a[0]), np.linalg.norm(a[1])],
                 f"Σ {name} over outputs": a.sum(1), f"Σₙ Σ {name} over outputs": a.sum(1).sum(0),
                 f"Σₙ (Σ {name} over outputs)²": (a.sum(1) ** 2).sum(0)}  # fmt: skip
    assert set(found) == set(sums)
    for name, want in sums.items():
        np.testing.assert_allclose(found[name], want, err_msg=name)


def test_terms_that_cancel_are_measured_by_the_powers_of_the_output_over_the_input():
    probe = Probe.at(L.LeakyReLU(5.0), np.full((3, 2), -4.0), None, False, RNG)
    bend, slope = CANCELLED * 20 / 4**2, CANCELLED * 20 / 4
    average = slope**2 * abs(probe.curvature).max()
    want = {"jmp": slope, "mjp": slope, "vjp": slope, "residual": bend, "average": average}
    assert sizes_of_terms(probe) == pytest.approx(want)


def test_the_identity_is_a_term_along_axes_of_equal_size_alone():
    names = [name for name in library({}, (2, 3, 3)) if name.startswith("I")]
    assert names == ["I"]
    np.testing.assert_array_equal(np.broadcast_to(library({}, (2, 3, 3))["I"], (2, 3, 3)), [np.eye(3)] * 2)
    assert not any(name.startswith("I") for name in [*library({}, (3, 3)), *library({}, (3, 3, 2))])
    wide = library({}, (2, 4, 3, 4))
    assert [name for name in wide if name.startswith("I")] == ["I along 1, 3"]
    np.testing.assert_array_equal(np.broadcast_to(wide["I along 1, 3"], (2, 4, 3, 4))[1, :, 2], np.eye(4))


def test_what_is_no_number_is_no_part_of_both_sides():
    numbers, words = np.array([1.0, 2.0]), np.array(["a", "b"])
    for got, want in ((numbers, words), (words, numbers), (words, words)):
        assert list(_parts(got, want, "")) == []
    ((name, sides),) = _parts({"a": [1, 2]}, {"a": numbers, "b": numbers}, "")
    assert name == "a"
    np.testing.assert_array_equal(sides, [numbers, numbers])
