"""The same numbers on a device as on the host, with no transfers but those that docs/gpu.md lists.

The device is the strict double, or a GPU with ``--device cuda``; what counts transfers and kernels runs on the double.
"""

from dataclasses import astuple

import numpy as np
import pytest
from around import THREE_LOSSES, around, lacking, one_of_each_kind
from device_ledger import ledger
from device_problems import CE, LISTED, X, Y, simple, there, transfers

import gbackprop as gb
from gbackprop import array, layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.residual import Factored
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import PLAIN, Context
from gbackprop.testing.cases import LAYERS
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED
from gbackprop.testing.errors import relative_error
from gbackprop.testing.runs import every_quantity, fits
from gbackprop.testing.strategies import outputs, targets

TOLERANCES = {"float64": 1e-8, "float32": 1e-4}


def numbers_of(quantity, value):
    """The arrays of one result that are determined."""
    if isinstance(quantity, q.KroneckerError):  # an estimate from few columns may lie below zero, and is NaN then
        return [np.nan_to_num(np.array(astuple(value), np.float64), nan=-1.0)]
    if isinstance(quantity, q.EKFAC | q.NearestKronecker):
        return [value.to_dense()]
    return [part for part in (value.A, value.B) if part is not None] if hasattr(value, "B") else [value]


def rounding(numbers, key):
    """The relative error of a variance by that of its gradients, which may be much larger than they differ by."""
    if key[0] != "Variance()":
        return 0.0
    gradient, variance = np.abs(numbers["None", *key[1:]]).max(), numbers[key].max()
    return 32 * float(np.finfo(gradient.dtype).eps) * gradient / np.sqrt(variance) if variance > 0 else 0.0


def compare(network, loss, x, y, *quantities, tolerance=None, **options):
    """Backward on the host and on the device; gives the transfers that the second took. Arrays stay there."""
    dtype = next(iter(network.parameters.values())).dtype
    x, y = (part.astype(dtype) if part.dtype.kind == "f" else part for part in (x, y))
    host = gb.backward(network, loss, x, y, *quantities, **options)
    batch = there(x), there(y)
    network.to("cuda")
    found = []
    taken = transfers(lambda: found.append(gb.backward(network, loss, *batch, *quantities, **options)))
    sides = []
    for result in (host, *found):
        parts = {("loss", 0): result.loss, ("output", 0): result.output}
        for asked, values in ((None, result.gradient), *zip(quantities, result.values, strict=True)):
            for name, value in values.items():
                parts |= {(repr(asked), name, i): part for i, part in enumerate(numbers_of(asked, value))}
        sides.append(parts)
    want, got = sides
    assert got.keys() == want.keys()
    errors = {key: relative_error(got[key], want[key]) - rounding(want, key) for key in want}
    assert {key: e for key, e in errors.items() if not e <= (tolerance or TOLERANCES[dtype.name])} == {}
    arrays = [part for key, part in got.items() if not key[0].startswith("KroneckerError")]
    assert {array.device_of(part) for part in arrays} == {"cuda:0"}
    assert {part.dtype for part in arrays} == {dtype}
    return set(taken)


CASES = list(zip(LAYERS, THREE_LOSSES * len(LAYERS), list(TOLERANCES) * len(LAYERS)))
"""Each layer with one loss and one precision, which alternate."""


@pytest.mark.parametrize(("row", "loss", "dtype"), one_of_each_kind(CASES), ids=str)
def test_every_quantity_on_every_layer(row, loss, dtype, gpu):
    quantities = [quantity for quantity in every_quantity() if quantity.name not in lacking(row.make())[1]]
    training = not hasattr(row.make(), "buffers")  # batch normalization refuses
    network, y = around(row).astype(dtype), targets(loss, (3, 2), 0)
    assert compare(network, loss, row.x(3), y, *quantities, rng=0, training=training) <= LISTED


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("row", [BRANCHED, ATTENTIVE], ids=["branched", "attentive"])
def test_every_quantity_on_a_graph(row, dtype, gpu):
    network = row.network().astype(dtype)
    quantities = [quantity for quantity in every_quantity() if quantity.name != "kfra"]
    assert compare(network, row.loss, *row.batch(1), *quantities, rng=0) <= LISTED


OPTIONS = [{"sample_block": 2}, {"column_block": 2}, {"workers": 2}, {"memory": "64MiB"}]
OPTIONS += [{"sample_block": 1, "column_block": 3, "workers": 3}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_blocks_and_threads(gpu, options):
    quantities = [quantity for quantity in every_quantity() if fits(quantity, options)]
    assert compare(simple(), CE, X, Y, *quantities, rng=3, training=True, **options) <= LISTED


def compare_conventions():
    """Conventions, EKFAC, the nearest product and errors, of weights with and without groups; the transfers."""
    seen = set()
    joint = {"fisher": "exact", "joint_bias": True}
    asked = [q.KFAC(fisher="exact", sharing=sharing) for sharing in ("expand", "reduce")]
    asked += [q.KFAC(fisher="forward-only"), q.KFAC(fisher="empirical"), q.DiagGGN(), q.EKFAC(fisher="exact")]
    asked += [q.NearestKronecker(), q.KFAC(**joint), q.EKFAC(**joint), q.NearestKronecker(joint_bias=True)]
    for groups in (1, 2):
        conv = layers.Conv1d(2, 4, 2, groups=groups), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3)
        net = gb.Sequential(*conv, rng=0, dtype="float64")
        some = [each for each in asked if groups == 1 or not getattr(getattr(each, "convention", 0), "joint_bias", 0)]
        some += [q.KroneckerError(each, **options) for each in some for options in ({}, {"columns": 5, "rng": 0})]
        x, y = np.random.default_rng(0).standard_normal((20, 2, 3)), np.arange(20) % 3
        seen |= compare(net, CE, x, y, *some, tolerance=1e-9)
    return seen


def test_other_conventions_and_errors(gpu):
    assert compare_conventions() <= LISTED


# ---------------------------------------------------------------------------------------------------------- transfers


def test_every_transfer_that_is_listed_is_made(double):
    """A row of the page that nothing asks for would stand there unchecked."""
    seen = compare_conventions()
    for loss in THREE_LOSSES:
        pool = layers.AvgPool2d(2, 2, padding=1, count_include_pad=False)
        chain = pool, layers.Dropout(0.4), layers.Flatten(), layers.Linear(18, 2)
        network, y = gb.Sequential(*chain, rng=0, dtype="float64"), targets(loss, (6, 2), 0)
        seen |= compare(network, loss, X, y, *every_quantity(), rng=0, training=True)
    output, counts, weight = there(np.zeros((3, 2))), there(np.ones((3, 2))), there(np.ones(2))
    labels, variances, x, y = there(np.array([0, 1, 1])), there(np.ones((3, 2, 2))), there(X), there(Y)
    block, v = q.Kronecker(there(np.eye(2)), there(np.eye(3))), there(np.ones(6))
    embedding = gb.Sequential(layers.Embedding(5, 2), layers.Flatten(), layers.Linear(6, 3), rng=0).to("cuda")
    indices = there(np.arange(12).reshape(4, 3) % 5)
    for call in (
        lambda: CE.draw(output, rng=0),
        lambda: losses.PoissonNLLLoss()(output, counts),
        lambda: losses.GaussianNLLLoss()(output, variances),
        lambda: losses.BCELoss()(output, counts),
        lambda: losses.PoissonNLLLoss().draw(output, rng=0),
        lambda: losses.CrossEntropyLoss(weight=weight)(output, counts / 2),
        lambda: losses.CrossEntropyLoss(weight=weight)(output, labels),
        lambda: block.solve(v, 0.1),
        lambda: block.solve(v, 0.1, cap=1e8),
        lambda: block.inverse(0.1),
        lambda: gb.backward(embedding, CE, indices, y[:4], q.DiagGGN()),
        lambda: list(gb.data.batches(x, y, 2, rng=0)),
    ):
        seen |= set(transfers(call))
    network = simple().to("cuda")
    result, state, optimizer = gb.backward(network, CE, x, y), network.state_dict(), gb.optim.Adam(network)
    changes = lambda: optimizer.step(result), lambda: network.load_state_dict(state), lambda: network.astype("float32")
    for call in changes:
        taken = transfers(call)
        assert len(taken) == 1
        seen |= set(taken)
    assert seen == LISTED


def test_given_pseudo_targets_take_one_look(double):
    network, draws = simple().to("cuda"), there(np.tile(Y, (5, 1)))
    x, y = there(X), there(Y)
    for some in (draws[:1], draws):
        asked = q.DiagGGNMC(targets=some)
        taken = transfers(lambda asked=asked: gb.backward(network, CE, x, y, asked))
        assert len(taken) == 3  # x with the parameters, y, and all pseudo-targets


# -------------------------------------------------------------------------------------------------- layers and losses


def pieces(residual):
    """The residual, or the columns and signs of one that the layer factors."""
    if not isinstance(residual, Factored):
        return [residual]
    (columns,), sign = residual.columns(slice(None))
    return [columns, sign]


@pytest.mark.parametrize("forms", [PLAIN, FORMS], ids=["plain", "fast"])
@pytest.mark.parametrize("row", one_of_each_kind(LAYERS), ids=str)
def test_the_methods_of_every_layer_and_their_fast_forms(row, forms, gpu):
    layer, x, context = row.layer(), row.x(), Context(forms, Allocator())
    rng = np.random.default_rng(2)
    y, saved = layer.forward(x)
    columns, rows = rng.standard_normal((2, *x.shape)), rng.standard_normal((2, *y.shape))
    want = [y, layer.jmp(saved, columns), layer.mjp(saved, rows)]
    d = y[0].size
    ggn = rng.standard_normal((d, d))
    want.append(layer.average(saved, ggn, len(x), y.shape[1:]))
    if layer.curvature != "zero":
        want += pieces(layer.residual(saved, rows[0]))
    layer.drawn = {name: there(value) for name, value in layer.parameters.items()}
    y, saved = context.forward(layer, there(x))
    got = [y, layer.jmp(saved, there(columns)), context.mjp(layer, saved, there(rows))]
    got.append(context.average(layer, saved, there(ggn), len(x), y.shape[1:]))
    if layer.curvature != "zero":
        got += pieces(layer.residual(saved, there(rows[0])))
    assert max(relative_error(a, b) for a, b in zip(got, want, strict=True)) < 1e-12


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", [kind for kind in losses.__all__ if kind != "Loss"])
def test_every_loss(kind, reduction, gpu):
    loss = getattr(losses, kind)(reduction)
    output = outputs(loss, (4, 3), 0)
    target = targets(loss, output.shape, 0)
    f, y = there(output), there(target)
    for method in ("value", "values", "gradients", "hessian_sqrt", "hessian_sum"):
        got, want = getattr(loss, method)(f, y), getattr(loss, method)(output, target)
        assert relative_error(got, want) < 1e-12, method
    if loss.undrawn:
        return
    draws = [loss.draw(part, 3, rng=5) for part in (f, output)]
    np.testing.assert_allclose(gb.asnumpy(draws[0]), draws[1], rtol=1e-12)
    got, want = loss.hessian_sqrt_mc(f, draws[0], y), loss.hessian_sqrt_mc(output, draws[1], target)
    assert relative_error(got, want) < 1e-12


WITH_OPTIONS = [
    (losses.CrossEntropyLoss, {"weight": np.array([0.5, 2.0, 1.0]), "label_smoothing": 0.2, "ignore_index": 1}),
    (losses.BCEWithLogitsLoss, {"weight": np.array([0.5, 2.0, 1.0]), "pos_weight": np.array([3.0])}),
]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("kind", "options"), WITH_OPTIONS)
def test_weights_are_on_the_device_of_the_outputs(kind, options, dtype, gpu):
    moved = {name: there(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    host, away = kind(**options), kind(**moved)
    network = gb.Sequential(layers.Linear(4, 3), rng=0, dtype=dtype)
    x, y = np.ones((5, 4), dtype), targets(host, (5, 3), 0)
    y = y.astype(dtype) if y.dtype.kind == "f" else y
    want = gb.backward(network, host, x, y, q.DiagGGN(), q.DiagGGNMC(), rng=0)
    network.to("cuda")
    got = gb.backward(network, away, there(x), there(y), q.DiagGGN(), q.DiagGGNMC(), rng=0)
    for ours, theirs in zip(got.values, want.values, strict=True):
        for name, value in ours.items():
            assert relative_error(value, theirs[name]) <= TOLERANCES[dtype]
            assert value.dtype == dtype
    with pytest.raises(TypeError, match=r"weight of .*: expected an array on cuda:0 as x is"):
        gb.backward(network, host, there(x), there(y))


# -------------------------------------------------------------------------------------------------------- few kernels


def operations(network, x, y, quantity):
    batch = there(x), there(y)
    ledger.clear()
    gb.backward(network, CE, *batch, *([quantity] if quantity else []), rng=0)
    return ledger.operations


def pixels(size, window=2):
    chain = [layers.Conv2d(1, 2, window + 1), layers.ReLU(), layers.MaxPool2d(window)]
    chain += [layers.AvgPool2d(window, 2, padding=1), layers.Flatten()]
    features = gb.Sequential(*chain).output_shape((1, size, size))[0]
    return gb.Sequential(*chain, layers.Linear(features, 3), rng=0, dtype="float64").to("cuda")


@pytest.mark.parametrize("quantity", [None, *every_quantity()], ids=repr)
def test_the_number_of_kernels_does_not_depend_on_samples_pixels_or_windows(double, quantity):
    rng = np.random.default_rng(0)
    network = pixels(6)
    counts = {n: operations(network, rng.standard_normal((n, 1, 6, 6)), np.arange(n) % 3, quantity) for n in (2, 8)}
    assert counts[2] == counts[8]
    for size, window in ((10, 2), (10, 3)):
        x = rng.standard_normal((2, 1, size, size))
        wide = operations(pixels(size, window), x, np.arange(2) % 3, quantity)
        assert wide <= counts[2] + 3  # a reduction may choose another formula
    assert counts[2] < 150
