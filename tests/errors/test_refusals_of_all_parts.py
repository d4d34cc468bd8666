"""What each part refuses, with the words that name it."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.base.files import OutputError, check_output
from gbackprop.calculus.columns import _no_formula
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.state.checksums import checksum
from gbackprop.curvature.data.checkpoint import _packed
from gbackprop.curvature.data.merging import Merged
from gbackprop.plain.contract import _check_mjp

ONE = np.ones((1, 2))
NET = gb.Sequential(L.Linear(2, 2), rng=0, dtype="float64")
POISSON = losses.PoissonNLLLoss()
REFUSED = {
    "normalized_shape": (lambda: L.LayerNorm(()), ValueError, "normalized_shape: expected at least one size"),
    "groups": (lambda: L.GroupNorm(3, 4), ValueError, "num_channels: expected a multiple of num_groups = 3, got 4"),
    "statistics": (
        lambda: L.InstanceNorm1d(2, track_running_stats=True), gb.UnsupportedError, "track_running_stats: expected",
    ),
    "no places to pool": (
        lambda: L.AdaptiveAvgPool1d(2).output_shape((2, 0)), ValueError, "at least one place along each axis",
    ),
    "no places to pad": (
        lambda: L.ReflectionPad1d(1).output_shape((2, 0)), ValueError, "at least one place along each axis",
    ),
    "more places than there are": (
        lambda: L.CircularPad1d(3).output_shape((1, 2)), ValueError, "at most 2 places of circular padding along",
    ),
    "other features": (
        lambda: L.BatchNorm1d(4).output_shape((3,)), ValueError, r"expected features of shape \(4,\) or \(4, W\), got",
    ),
    "no sizes": (lambda: L.Upsample(size=()), ValueError, "size, scale_factor: expected a number for each axis"),
    "one factor": (lambda: L.MatMul().output_shape((2, 3)), ValueError, "expected two inputs, got 1"),
    "no classes": (lambda: losses.CrossEntropyLoss().target_shape((3,)), ValueError, r"outputs of shape \(N, C"),
    "no features": (lambda: losses.MSELoss().target_shape(()), ValueError, r"expected outputs of shape \(N, …\)"),
    "large rates": (lambda: POISSON.pseudo_targets(69 * ONE, 0.5 * ONE), ValueError, "rates up to 68 in float64"),
    "signs of moments": (
        lambda: REDUCTIONS["moments"].formula(ONE[None], ONE), gb.UnsupportedError, "moments are of columns without",
    ),
    "signs of pairs": (lambda: GRAM.formula(ONE[None], ONE), gb.UnsupportedError, "Gram matrices are of columns"),
    "stored": (lambda: _no_formula(ONE, None), NotImplementedError, "columns are stored as what they are made of"),
    "factors": (lambda: ParameterJacobian().kronecker(ONE), gb.UnsupportedError, "has no Kronecker factors"),
    "average": (lambda: ParameterJacobian().average_kronecker(ONE, (2,)), gb.UnsupportedError, "no Kronecker factors"),
    "a sum": (lambda: _packed({"a": 1}), gb.UnsupportedError, "checkpoint: expected sums that are arrays, got dict"),
    "a parameter": (lambda: NET.parameters["w"], KeyError, r"parameter 'w': expected one of \['0.weight', '0.bias'\]"),
    "a buffer": (lambda: NET.buffers["0.weight"], KeyError, r"buffer '0\.weight': expected one of \[\]"),
    "merged": (
        lambda: Merged(SimpleNamespace(objective=None, scale=None)), ValueError, "result 0: expected a result of gb",
    ),
    "merged, no scale": (lambda: Merged(SimpleNamespace(objective=1, scale=None)), ValueError, "result 0: expected"),
    "merged, nothing": (lambda: gb.data.merge(None), TypeError, "expected an iterable of Results, got NoneType"),
    "samples to remove": (
        lambda: gb.influence.removal(NET, losses.MSELoss(), (ONE, ONE), 2), TypeError, "samples: expected a sequence",
    ),
    "a step of nothing": (lambda: gb.optim.Adam(NET).step(None), TypeError, "step: expected a Result of gb.backward"),
    "a state by number": (
        lambda: gb.optim.Adam(NET).load_state_dict({3: 1, "steps": 1}), TypeError, "expected names of arrays, got 3",
    ),
    "a cap": (lambda: gb.kronecker.Kronecker(None, np.eye(2)).solve(np.ones(2), 0.1, "a"), TypeError, "cap: expected"),
    "a list of methods": (lambda: gb.spectra.trace(np.eye(2), ["xtrace"]), ValueError, "method: expected one of"),
    "a list of libraries": (
        lambda: gb.backward(NET, losses.MSELoss(), ONE, ONE, q.KFLR()).scaled("kflr", ["backpack"]), ValueError,
        "scaled, library: expected one of",
    ),
    "parts below": (lambda: _check_mjp("0: Add", ONE, (ONE, ONE)), TypeError, "0: Add, mjp: expected a tuple of 2"),
    "too few parts": (lambda: _check_mjp("0: Add", (ONE,), (ONE, ONE)), TypeError, "expected a tuple of 2 arrays"),
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_it_is_refused_with_its_name(call):
    refused, error, words = REFUSED[call]
    with pytest.raises(error, match=words):
        refused()


def test_the_limits_themselves_are_taken():
    assert L.GroupNorm(2, 4).num_groups == 2
    assert L.AdaptiveAvgPool1d(2).output_shape((2, 1)) == (2, 2)
    assert L.ConstantPad1d(0, 1.0).output_shape((2, 1)) == (2, 1)
    assert losses.MSELoss().target_shape((3, 1)) == (3, 1)
    assert POISSON.pseudo_targets(np.zeros((1, 2)), 0.5 * ONE).shape == (1, 2)
    assert checksum(np.array([None])) == 0
    assert checksum(np.arange(3)) == checksum(np.arange(6)[::2] // 2) != checksum(np.arange(1, 4))


def test_a_file_that_may_not_be_written_is_left(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *given: False)
    with pytest.raises(OutputError, match="cannot be written over: permission denied"):
        check_output(path)
