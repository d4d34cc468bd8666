"""Operators of drawn networks and graphs against matrices by complex steps."""

import dense_matrices
import numpy as np
from hypothesis import assume, given

from gbackprop import operators as ops
from gbackprop.curvature.spectra import ntk
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.oracles import _mc_curvature
from gbackprop.testing.strategies import problems

TOLERANCE = 1e-10


def assert_near(got, want, size):
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= TOLERANCE * size + 1e-14


def check(problem):
    net, loss, x, y = problem.network, problem.loss, problem.x, problem.y
    assume(net.parameters)
    rng = np.random.default_rng(problem.seed)
    for values in net.parameters.values():  # norms begin with β = 0, which may be where the next layer has its kink
        values += 0.1 * rng.standard_normal(values.shape)
    assume(np.abs(net(x)).max() < 20)
    jacobian, gradients, hessians, factor = dense_matrices.jacobian(net, loss, x, y)
    assume(gradients.shape[1] <= 150)
    ggn = factor * np.einsum("nci,ncd,ndj->ij", jacobian, hessians, jacobian, optimize=True)
    fisher = factor * gradients.T @ gradients
    hessian = dense_matrices.hessian(net, loss, x, y)
    size = np.abs(ggn).max() + np.abs(hessian).max()
    rows = jacobian.reshape(-1, jacobian.shape[2])
    assert_near(ops.GGN(net, loss, (x, y)).to_dense(), ggn, size)
    assert_near(ops.Hessian(net, loss, (x, y)).to_dense(), hessian, size)
    assert_near(ops.EmpiricalFisher(net, loss, (x, y)).to_dense(), fisher, np.abs(fisher).max())
    if not loss.undrawn:
        fisher = ops.Fisher(net, loss, (x, y), mc_samples=2, rng=problem.seed)
        drawn = _mc_curvature(loss, net(x), fisher.extras[0], y)
        want = factor * np.einsum("nci,ncd,ndj->ij", jacobian, drawn, jacobian, optimize=True)
        assert_near(fisher.to_dense(), want, np.abs(want).max())
    operator = ops.Jacobian(net, x)
    assert_near(operator.to_dense(), rows, np.abs(rows).max())
    assert_near(operator @ np.eye(rows.shape[1]), rows, np.abs(rows).max())
    assert_near(operator.T @ np.eye(len(rows)), rows.T, np.abs(rows).max())
    start = 0
    for name, each in operator.to_arrays().items():
        value = net.parameters[name]
        assert each.shape == (*jacobian.shape[:2], *value.shape)
        part = jacobian[:, :, start : start + value.size]
        assert_near(each.reshape(part.shape), part, np.abs(rows).max())
        start += value.size
    kernel = np.einsum("ncd,mkd->ncmk", jacobian, jacobian)
    assert_near(ntk(net, x), kernel, np.abs(kernel).max())
    if len(x) > 1:
        assert_near(ntk(net, x[:1], x[1:]), kernel[:1, :, 1:], np.abs(kernel).max())


test_chains, test_graphs = given(problems())(check), given(graph_problems())(check)
