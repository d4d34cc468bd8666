"""Planted faults by symmetries alone."""

from math import inf, prod
from unittest import mock

import faults
import numpy as np
import pytest

from gbackprop import Graph, Sequential, layers, losses
from gbackprop.testing import check_symmetries


def around(layer, x, rng=0, reference=None):
    """`check_symmetries` of a layer, or a join of several inputs, between linear layers."""
    several = isinstance(x, tuple)
    inputs = [part.shape[1:] for part in x] if several else [x.shape[1:]]
    sizes = [prod(shape) for shape in inputs]
    nodes, ends = {"below": (layers.Linear(sum(sizes), sum(sizes)), "input")}, np.cumsum([0, *sizes])
    for i, shape in enumerate(inputs):
        part = Sequential(layers.Slice(1, int(ends[i]), int(ends[i + 1])), layers.Unflatten(1, shape))
        nodes[f"part{i}"] = (part, "below")
    nodes["layer"] = (layer, *[f"part{i}" for i in range(len(inputs))])
    if several:
        out = layer.output_shape(*inputs)
        nodes["above"] = (Sequential(layers.Flatten(), layers.Linear(prod(out), 2)), "layer")
        network = Graph(nodes, rng=3, dtype="float64")
    else:
        out = layer.output_shape(inputs[0])
        chain = [layers.Linear(sizes[0], sizes[0]), layers.Unflatten(1, inputs[0])]
        network = Sequential(*chain, layer, layers.Flatten(), layers.Linear(prod(out), 2), rng=3, dtype="float64")
    source = np.random.default_rng(4)
    count = len(x[0] if several else x)
    return check_symmetries(network, losses.MSELoss(), source.standard_normal((count, sum(sizes))),
                            source.standard_normal((count, 2)))


def of_loss(loss, output, target, reference=None):
    """`check_symmetries` of a loss of a linear layer's outputs, which are brought into its domain."""
    shape, (low, high) = output.shape[1:], loss.domain
    into = layers.Identity() if low == -inf else layers.Sigmoid() if high < inf else layers.Softplus()
    chain = [layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, prod(shape)), layers.Unflatten(1, shape), into]
    network = Sequential(*chain, rng=3, dtype="float64")
    return check_symmetries(network, loss, np.random.default_rng(4).standard_normal((len(output), 3)), target)


def by_symmetries(fault):
    """Return the report of a fault by symmetries, on small networks that have what the fault is in."""
    instead = {"check_layer": around, "check_loss": of_loss, "check_network": check_symmetries}
    with pytest.MonkeyPatch.context() as patch, mock.patch.multiple(faults, **instead):
        faults.plant(patch, fault)
        return fault.check()
