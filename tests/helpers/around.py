"""A network around a layer of the table of cases, and what goes with it."""

import sys
from math import prod

from common import one_in

from gbackprop import Sequential, layers, losses
from gbackprop.testing.cases.operations import OperationCase
from gbackprop.testing.kronecker_oracles import ENTRYWISE

THREE_LOSSES = [losses.CrossEntropyLoss("mean"), losses.MSELoss("sum"), losses.BCEWithLogitsLoss("mean")]
"""Losses that go with `around`, in turn."""


def one_of_each_kind(cases):
    """Cases that begin with a row of the table, as parameters: the first of each kind; the others are long."""
    return one_in(sys.maxsize, cases, lambda row, *others: (row.kind, getattr(row.make(), "name", None)))


def around(row):
    """A network with parameters and curvature below and above the layer of a row."""
    layer = row.make()
    below, above = row.shape[-1], prod(layer.output_shape(row.shape))
    positive = [layers.Softplus()] if isinstance(row, OperationCase) else []  # where roots and logarithms are defined
    flat = layers.Operation("reshape", shape=(-1,)) if isinstance(row, OperationCase) else layers.Flatten()
    chain = [layers.Linear(below, below), layers.Tanh(), *positive, layer, layers.Sigmoid(), flat]
    return Sequential(*chain, layers.Linear(above, 2), rng=1, dtype="float64")


def lacking(layer):
    """The reductions of Kronecker factors that a layer lacks, and the names of the quantities that need them."""
    entrywise = isinstance(layer, ENTRYWISE) and layer.parameter_shapes()
    return ({"average_kronecker"}, {"kfra"}) if entrywise else (set(), set())
