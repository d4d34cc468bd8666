"""Networks of one layer or loss of the table of cases, with two batches, and their dtypes."""

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.testing.cases.loss_rows import targets

BEFORE = {"BCELoss": layers.Sigmoid, "NLLLoss": lambda: layers.LogSoftmax(1)}


def cast(arrays, dtype):
    return tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays)


def of_layer(row, dtype):
    """A network, its loss, and two batches."""
    layer, (x, other) = row.layer(), cast([row.x(3, seed) for seed in (0, 9)], dtype)
    chain = [layer] if layer.parameters else [layers.Scale(init=0.7), layer]
    if "'divide'" in str(row):  # of a scale alone its derivatives are 0, and what is computed is rounding
        chain.insert(1, layers.Softplus())
    if not layer.output_shape(row.shape):  # losses take numbers along an axis
        chain.append(layers.Operation("reshape", shape=(1,)))
    net = gb.Sequential(*chain, rng=0, dtype="float64").astype(dtype)
    y = np.random.default_rng(1).standard_normal(net(x).shape).astype(dtype)
    return net, losses.MSELoss(), (x, y), (other, y + 1)


def of_loss(row, reduction, dtype):
    """A network, its loss, and two batches."""
    loss, shape = row.loss(reduction), (3, *row.shape)
    last = layers.Softplus if getattr(loss, "log_input", True) is False else BEFORE.get(row.kind.__name__)
    chain = [layers.Linear(shape[-1], shape[-1]), *([last()] if last else [])]
    net, rng = gb.Sequential(*chain, rng=0, dtype=dtype), np.random.default_rng(0)
    batches = [cast((rng.standard_normal(shape), targets(loss, shape, seed, row.soft)), dtype) for seed in (1, 7)]
    return net, loss, *batches
