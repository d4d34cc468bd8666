"""The Hessian's product through every layer that ships, beside complex steps of the gradient, and every short form."""

import dense_matrices
import numpy as np
import pytest
from around import around, one_of_each_kind

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop.engine.forms import FORMS
from gbackprop.engine.registry import PLAIN
from gbackprop.operators.linearized import Linearized
from gbackprop.operators.second import SecondOrder
from gbackprop.operators.vectors import Layout
from gbackprop.testing.cases import ALL_LAYERS


@pytest.fixture(params=one_of_each_kind(ALL_LAYERS), ids=lambda row: f"{row}"[:60])
def problem(request):
    row, rng = request.param, np.random.default_rng(ALL_LAYERS.index(request.param))
    net, x, y = around(row), row.x(3, rng), rng.integers(0, 2, 3)
    for values in net.parameters.values():  # norms would begin with γ = 1 and β = 0
        values += 0.1 * rng.standard_normal(values.shape)
    return net, losses.CrossEntropyLoss(), x, y


def test_the_hessians_product(problem):
    net, loss, x, y = problem
    operator = ops.Hessian(net, loss, (x, y))
    v = np.random.default_rng(0).standard_normal((operator.shape[0], 3))
    want = dense_matrices.hessian_times(net, loss, x, y, v)
    assert np.abs(operator @ v - want).max() <= 1e-10 * np.abs(want).max()
    assert np.abs(operator @ v[:, 0] - want[:, 0]).max() <= 1e-10 * np.abs(want).max()


@pytest.mark.parametrize("features", [2, 1])
def test_the_hessians_product_of_a_quotient(features):
    """Of two layers, with one divisor for each number or for both; of a scale alone it would be 0."""
    parts = {"a": (layers.Linear(3, 2), "input"), "b": (layers.Linear(3, features), "input")}
    parts |= {"above": (layers.Softplus(), "b"), "y": (layers.Operation("divide"), "a", "above")}
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    test_the_hessians_product((gb.Graph(parts, rng=0, dtype="float64"), losses.MSELoss(), x, y))


def test_the_hessians_product_where_samples_are_single_numbers():
    """A number has no channel: one factor, and one slope, is that of the number."""
    rng = np.random.default_rng(1)
    net = gb.Sequential(layers.PReLU(), layers.Scale(), layers.Tanh(), layers.Scale(), rng=0, dtype="float64")
    test_the_hessians_product((net, losses.MSELoss(), rng.standard_normal(5), rng.standard_normal(5)))


def test_with_an_empty_registry_products_are_the_same(problem):
    net, loss, x, y = problem
    operator = ops.Hessian(net, loss, (x, y))
    layout, found = operator.layout, []
    directions = layout.split(np.random.default_rng(0).standard_normal((2, layout.size)))
    for forms in (FORMS, PLAIN):
        at = Linearized(operator.plan, x, y, forms)
        tangents = at.tangents(directions)
        second = SecondOrder(at, directions, tangents)
        ends = tangents[len(at.saved) - 1]
        found.append([layout.join(at.pull(at.curve(ends), set(layout.shapes), more)) for more in (None, second)])
        found[-1].append(ends)
    for fast, plain in zip(*found, strict=True):  # of the GGN, of the Hessian, and of the Jacobian
        assert np.abs(fast - plain).max() <= 1e-10 * np.abs(fast).max()


def test_the_jacobian_of_each_parameter(problem):
    net, _, x, _ = problem
    operator = ops.Jacobian(net, x)
    rng = np.random.default_rng(0)
    v, w = rng.standard_normal((operator.shape[1], 2)), rng.standard_normal((operator.shape[0], 2))
    forward, back = w.T @ (operator @ v), (operator.T @ w).T @ v
    assert np.abs(forward - back).max() <= 1e-11 * np.abs(forward).max()
    assert Layout(net.parameters).size == operator.shape[1]


def test_short_forms_where_a_kink_is_met_exactly():
    chain = [layers.Linear(2, 2, bias=False), layers.PReLU(2), layers.Tanh(), layers.Linear(2, 2)]
    net = gb.Sequential(*chain, rng=0, dtype="float64")
    net.parameters["0.weight"][:] = [[1, -1], [1, 1]]
    x, y = np.full((1, 2), 0.5), np.zeros(1, int)  # PReLU gets 0 and 1
    operator = ops.Hessian(net, losses.CrossEntropyLoss(), (x, y))
    directions, found = operator.layout.split(np.eye(operator.shape[0])), []
    for forms in (FORMS, PLAIN):
        at = Linearized(operator.plan, x, y, forms)
        tangents = at.tangents(directions)
        second = SecondOrder(at, directions, tangents)
        found.append(operator.layout.join(at.pull(at.curve(tangents[3]), set(operator.layout.shapes), second)))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-14)
