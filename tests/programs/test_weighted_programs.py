"""Programs with weights of samples: what the reference computes, for other weights too, with NumPy alone."""

import subprocess
import sys

import numpy as np
import pytest
from common import in_turn

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

X, W = np.random.default_rng(0).standard_normal((5, 4)), np.array([0.5, 2.0, 0.0, 1.0, 3.0])
TARGETS = {losses.CrossEntropyLoss(): np.arange(5) % 3, losses.CrossEntropyLoss(weight=np.array([1.0, 2, 3])):
           np.arange(5) % 3, losses.MSELoss("sum"): X[:, :3].copy()}  # fmt: skip
ASKED = [q.BatchGrad(), q.DiagHessian(), q.KFAC(), q.KFLR(), q.DiagGGNMC(2)]


def network():
    return gb.Sequential(layers.Linear(4, 3), layers.Sigmoid(), layers.Linear(3, 3), rng=0, dtype="float64")


def arrays(value):
    return [value] if isinstance(value, np.ndarray) else [value.B, *([value.A] if value.A is not None else [])]


@pytest.mark.parametrize(("loss", "fold"), in_turn([(loss,) for loss in TARGETS], [True, False]))
def test_equal_the_reference_for_other_weights(loss, fold):
    net, y = network(), TARGETS[loss]
    program = gb.program(net, loss, X, y, *ASKED, sample_weight=W, fold=fold)
    for weight in (W, W[::-1].copy(), np.ones(5)):
        got = program(X, y, 1, weight)
        want = gb.reference(net, loss, X, y, *ASKED, rng=1, sample_weight=weight)
        np.testing.assert_allclose(got.loss, want.loss, rtol=1e-13)
        for name in want.gradient:
            pairs = [(got.gradient[name], want.gradient[name])]
            for quantity in ASKED:
                pairs += zip(*(arrays(each[quantity.name][name]) for each in (got, want)), strict=True)
            for a, b in pairs:
                assert fold or (a == b).all()
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_a_saved_file_takes_weights(tmp_path):
    y = TARGETS[loss := next(iter(TARGETS))]
    program = gb.program(network(), loss, X, y, sample_weight=W)
    program.save(tmp_path / "one.py")
    np.savez(tmp_path / "inputs.npz", **program.inputs(X, y, sample_weight=W))
    for more in ([], ["inputs.npz"]):
        done = subprocess.run([sys.executable, "-I", "one.py", *more], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("rows", "weights", "words"), [
    (3, {"sample_weight": W[:3]}, "x: expected float64[5, 4], for which the program was written, got float64[3, 4]"),
    (5, {}, "sample_weight: expected float64[5], for which the program was written, got None"),
])  # fmt: skip
def test_a_saved_file_refuses_other_arrays(tmp_path, rows, weights, words):
    y = TARGETS[loss := next(iter(TARGETS))]
    gb.program(network(), loss, X, y, sample_weight=W).save(tmp_path / "one.py")
    of = (network(), loss, X[:rows], y[:rows])
    other = gb.program(*of, sample_weight=weights.get("sample_weight")).inputs(*of[2:], **weights)
    np.savez(tmp_path / "inputs.npz", **other)
    command = [sys.executable, "-I", "one.py", "inputs.npz"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (1, words)


def test_the_head_says_whether_samples_have_weights():
    y = TARGETS[loss := next(iter(TARGETS))]
    for options in ({"sample_weight": W}, {}):
        head = " ".join(str(gb.program(network(), loss, X, y, **options)).split())
        assert ("a weight wₙ for each sample, which ℓₙ contains" in head) == bool(options)


def test_errors():
    y = TARGETS[loss := next(iter(TARGETS))]
    net = network()
    program, without = gb.program(net, loss, X, y, sample_weight=W), gb.program(net, loss, X, y)
    with pytest.raises(ValueError, match=r"sample_weight: expected \(5,\) float64, .* got \(\) NoneType"):
        program(X, y)
    with pytest.raises(ValueError, match="sample_weight: expected None, as the program was written without weights"):
        without(X, y, None, W)
    with pytest.raises(ValueError, match="sample_weight"):
        program(X, y, None, -W)
    with pytest.raises(ValueError, match="sample_weight"):
        gb.program(net, loss, X, y, sample_weight=W[:2])
