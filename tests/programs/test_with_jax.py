"""Functional programs run with jax.numpy in place of numpy, and compiled."""

import numpy as np
import pytest
from test_reads_well import convolutional

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


def test_kfac_and_diagonals_of_a_convolutional_network():
    program = convolutional(q.KFAC(), q.DiagGGN(), q.DiagHessian(), functional=True)
    scope = {}
    exec(program.source.replace("import numpy as np", "import jax.numpy as np"), scope)
    x, y = np.random.default_rng(1).standard_normal((4, 2, 4, 4)), np.arange(4) % 3
    groups = {"parameters": {}, "random": {}}
    for name, value in program.inputs(x, y, rng=0).items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = value
    given = (x, y, groups["parameters"], groups["random"], program.constants)
    want = program.function(*given)
    compare(want, scope["program"](*given))
    compare(want, jax.jit(scope["program"])(*given))
