"""Operators on a GPU, or its strict double: the numbers of the host, in CuPy's class of linear operators."""

import sys

import numpy as np
import pytest
from around import around
from common import one_in

import gbackprop as gb
from gbackprop import array, layers, losses
from gbackprop import operators as ops
from gbackprop.curvature.spectra import ntk
from gbackprop.testing.cases import LAYERS
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED


def named(value):
    return getattr(value, "__name__", str(value))


def fisher(*given):
    return ops.Fisher(*given, rng=3)


KINDS = [ops.GGN, ops.EmpiricalFisher, fisher]


def check(network, x, y, loss, kinds):
    rng, kinds = np.random.default_rng(0), [ops.Hessian, *kinds]
    host = [kind(network, loss, (x, y)) for kind in kinds] + [ops.Jacobian(network, x)]
    v = rng.standard_normal((host[0].shape[0], 2))
    w = rng.standard_normal((host[-1].shape[0], 2))
    want = [operator @ v for operator in host] + [host[-1].T @ w]
    network.to("cuda")
    x, y, v, w = (gb.asarray(part, "cuda") for part in (x, y, v, w))
    there = [kind(network, loss, (x, y)) for kind in kinds] + [ops.Jacobian(network, x)]
    found = [operator @ v for operator in there] + [there[-1].T @ w]
    assert all(isinstance(each, sys.modules["cupyx.scipy.sparse.linalg"].LinearOperator) for each in there)
    for one, other in zip(found, want, strict=True):
        assert array.device_of(one) == "cuda:0"
        assert np.abs(gb.asnumpy(one) - other).max(initial=0) <= 1e-9 * np.abs(other).max(initial=0) + 1e-13
    single = there[0] @ there[0].layout.split(v.T)
    assert np.abs(gb.asnumpy(there[0].layout.join(single).T) - want[0]).max() <= 1e-9 * np.abs(want[0]).max() + 1e-13


@pytest.mark.parametrize(("row", "kind"), one_in(4, zip(LAYERS, KINDS * len(LAYERS))), ids=named)
def test_every_layer(row, kind, gpu):
    """The Hessian, the Jacobian and one kind of the others, which take products with the Jacobian alone."""
    network = around(row)
    out = network.output_shape(row.x(3).shape[1:])
    check(network, row.x(3), np.random.default_rng(0).standard_normal((3, *out)), losses.MSELoss(), [kind])


@pytest.mark.parametrize("row", [BRANCHED, ATTENTIVE], ids=["branched", "attentive"])
def test_graphs(row, gpu):
    check(row.network(), *row.batch(1), row.loss, KINDS)


def made_of(network, x, y, v, w):
    """Products of what is made of operators, as arrays."""
    ggn, jacobian = ops.GGN(network, losses.CrossEntropyLoss(), (x, y)), ops.Jacobian(network, x)
    names = ["2.weight", "0.bias"]
    damped, part = ggn.damped(0.5), ggn.submatrix(names, names)
    inverses = [
        ggn.inverse(damping=0.5, rtol=1e-12), part.inverse("lsmr", damping=0.5, rtol=1e-12),
        ggn.inverse("neumann", damping=0.5, rtol=1e-12, scale=0.3, maxiter=500),
    ]  # fmt: skip
    found = [damped @ v, part @ v[:12], ggn.submatrix([3, 20], None) @ v, jacobian.submatrix([1], names).T @ w[:1]]
    found += [inverse @ v[: inverse.shape[1]] for inverse in inverses]
    found += [jacobian.inverse("lsmr", damping=0.1, rtol=1e-12) @ w, *jacobian.to_arrays().values()]
    return [*found, ntk(network, x), ntk(network, x[:1], x), damped @ (v > 0)]


def test_what_is_made_of_operators(gpu):
    network = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, v, w = (rng.standard_normal(shape) for shape in ((4, 3), (26, 2), (8, 2)))
    given = x, np.array([0, 1, 1, 0]), v, w
    want = made_of(network, *given)
    found = made_of(network.to("cuda"), *(gb.asarray(each, "cuda") for each in given))
    for one, other in zip(found, want, strict=True):
        assert array.device_of(one) == "cuda:0"
        np.testing.assert_allclose(gb.asnumpy(one), other, rtol=1e-8, atol=1e-9)
