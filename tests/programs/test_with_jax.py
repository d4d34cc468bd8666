"""Functional programs run with jax.numpy in place of numpy, and compiled."""

import numpy as np
import pytest
from test_reads_well import convolutional

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _float64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def compare(want, got):
    if isinstance(want, dict):
        assert want.keys() == got.keys()
        for key, value in want.items():
            compare(value, got[key])
    else:
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-12 * np.abs(want).max())


def check(program, *of, compiled=lambda function: function):
    """With jax.numpy a program has the results that it has with NumPy."""
    scope = {}
    exec(program.source.replace("import numpy as np", "import jax.numpy as np"), scope)
    groups = {"parameters": {}, "random": {}}
    for name, value in program.inputs(*of, rng=0).items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = value
    given = (*of, groups["parameters"], groups["random"], program.constants)
    compare(program.function(*given), compiled(scope["program"])(*given))


@pytest.mark.parametrize("compiled", [jax.jit, lambda function: function])
def test_kfac_and_diagonals_of_a_convolutional_network(compiled):
    program = convolutional(q.KFAC(), q.DiagGGN(), q.DiagHessian(), functional=True)
    check(program, np.random.default_rng(1).standard_normal((4, 2, 4, 4)), np.arange(4) % 3, compiled=compiled)


def test_maxima_and_masks_of_arrays_of_numpy():
    net = gb.Sequential(layers.Linear(2, 4), layers.Dropout(0.4), layers.MaxPool1d(2), rng=0, dtype="float64")
    x, y = np.random.default_rng(1).standard_normal((2, 1, 2)), np.ones((2, 1, 2))
    check(gb.program(net, losses.MSELoss(), x, y, training=True, functional=True, fold=False), x, y)
