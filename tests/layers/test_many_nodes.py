"""Graphs of many nodes: work that grows as their number does, and no recursion."""

import copy
import sys

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses, operators
from gbackprop import quantities as q
from gbackprop.layers import Operation, Parameter
from gbackprop.network.patterns import replaced

X = np.random.default_rng(0).standard_normal((2, 2))


def nodes(steps):
    """Return 3 `steps` + 1 nodes, one after the other, of which each third is a parameter."""
    found, last = {"p": (Parameter((2,)),)}, "input"
    for i in range(steps):
        found |= {f"w{i}": (Parameter((2, 2)),), f"m{i}": (Operation("matmul"), last, f"w{i}"),
                  f"s{i}": (Operation("sin"), f"m{i}")}  # fmt: skip
        last = f"s{i}"
    return found | {"y": (Operation("add"), last, "p")}


def build(graph):
    return gb.Graph(graph, rng=0, dtype="float64")


def hessian_product(network):
    matrix = operators.Hessian(network, losses.MSELoss(), [(X, X)])
    return matrix @ np.ones(matrix.shape[1])


USES = {
    "building": lambda graph, network: build(graph),
    "patterns": lambda graph, network: build(replaced(graph)),
    "forward": lambda graph, network: network(X),
    "backward": lambda graph, network: gb.backward(network, losses.MSELoss(), X, X, q.BatchGrad(), q.DiagGGN()),
    "reference": lambda graph, network: gb.reference(network, losses.MSELoss(), X, X, wrt="x"),
    "operators": lambda graph, network: hessian_product(network),
    "parameters": lambda graph, network: copy.deepcopy(network).load_state_dict(network.state_dict()).freeze("p"),
}


def calls(use, steps):
    """Return the number of calls of functions."""
    graph = nodes(steps)
    network, count = build(graph), 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    use(graph, network)  # what is made once
    network = build(graph)
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        use(graph, network)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", USES)
def test_calls_grow_as_nodes_do(name):
    few, many = (calls(USES[name], steps) for steps in (20, 80))
    assert many < 4.5 * few
    assert many < 3000 * 3 * 80


def test_more_nodes_than_the_limit_of_recursion():
    graph = nodes(400)
    network = build(graph)
    assert len(graph) > sys.getrecursionlimit()
    for name in ("patterns", "forward", "backward", "reference", "operators", "parameters"):
        USES[name](graph, network)
    gb.backward(gb.Sequential(build(nodes(400)), dtype="float64"), losses.MSELoss(), X, X)
