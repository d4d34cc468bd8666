"""The same numbers on a device as on the host, with no transfers but those that docs/gpu.md lists.

The device is the strict double, or a GPU with ``--device cuda``; what counts transfers and kernels runs on the double.
"""

import re
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from around import THREE_LOSSES, around, lacking
from device_ledger import ledger

import gbackprop as gb
from gbackprop import array, layers, losses, optim
from gbackprop import quantities as q
from gbackprop.calculus.residual import Factored
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import PLAIN, Context
from gbackprop.testing.cases import LAYERS
from gbackprop.testing.cases.network_rows import ATTENTIVE, BRANCHED
from gbackprop.testing.errors import largest_error, relative_error
from gbackprop.testing.runs import every_quantity, fits
from gbackprop.testing.strategies import outputs, targets

TOLERANCES = {"float64": 1e-8, "float32": 1e-4}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCES)
PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
LISTED = {
    (way, where) for where, way in re.findall(r"^\| `([\w.]+)` \| (to \w+) \|", PAGE.read_text(), re.MULTILINE)
}
"""The transfers that the page lists."""


def there(x, dtype=None):
    return gb.asarray(x, "cuda", dtype if x.dtype.kind == "f" else None)


def on_host(values):
    """A quantity's values as `largest_error` wants what is expected."""
    return {n: (v.A, v.B) if hasattr(v, "B") else v for n, v in values.items()}


def arrays_of(values):
    parts = [part for v in values.values() for part in ((v.A, v.B) if hasattr(v, "B") else (v,))]
    return [part for part in parts if part is not None]


def compare(network, loss, x, y, *quantities, dtype="float64", **options):
    """Backward on the host and on the device; gives the transfers that the second took. Arrays stay there."""
    x, y = (part.astype(dtype) if part.dtype.kind == "f" else part for part in (x, y))
    host = gb.backward(network, loss, x, y, *quantities, **options)
    batch = there(x, dtype), there(y, dtype)
    network.to("cuda")
    ledger.clear()
    found = gb.backward(network, loss, *batch, *quantities, **options)
    transfers = set(ledger.transfers)
    errors = {"loss": relative_error(found.loss, host.loss), "output": relative_error(found.output, host.output)}
    errors["gradient"] = largest_error(found.gradient, host.gradient)
    arrays = [found.loss, found.output, *found.gradient.values()]
    for quantity in quantities:
        errors[repr(quantity)] = largest_error(found[quantity], on_host(host[quantity]))
        arrays += arrays_of(found[quantity])
    assert {name: error for name, error in errors.items() if not error <= TOLERANCES[dtype]} == {}
    assert {array.device_of(part) for part in arrays} == {"cuda:0"}
    assert {part.dtype for part in arrays} == {np.dtype(dtype)}
    return transfers


def applicable(layer):
    return [quantity for quantity in every_quantity() if quantity.name not in lacking(layer)[1]]


def trains(row):
    """Whether the layer has a training mode: batch normalization refuses."""
    return not hasattr(row.make(), "buffers")


CASES = list(zip(LAYERS, THREE_LOSSES * len(LAYERS)))


@PRECISIONS
@pytest.mark.parametrize(("row", "loss"), CASES, ids=str)
def test_every_quantity_on_every_layer(row, loss, dtype, gpu):
    network, y = around(row), targets(loss, (3, 2), 0)
    for _, layer in network.named_layers():
        layer.drawn = {key: value.astype(dtype) for key, value in layer.parameters.items()}
    quantities = applicable(row.make())
    found = compare(network, loss, row.x(3), y, *quantities, dtype=dtype, rng=0, training=trains(row))
    assert found <= LISTED


@PRECISIONS
@pytest.mark.parametrize("row", [BRANCHED, ATTENTIVE], ids=["branched", "attentive"])
def test_every_quantity_on_a_graph(row, dtype, gpu):
    network = row.network().astype(dtype)
    quantities = [quantity for quantity in every_quantity() if quantity.name != "kfra"]
    found = compare(network, row.loss, *row.batch(1), *quantities, dtype=dtype, rng=0)
    assert found <= LISTED


def _compared():
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
        host = gb.backward(net, losses.CrossEntropyLoss(), x, y, *some)
        net.to("cuda")
        there_x, there_y = there(x), there(y)
        ledger.clear()
        found = gb.backward(net, losses.CrossEntropyLoss(), there_x, there_y, *some)
        seen |= set(ledger.transfers)
        for quantity, value in zip(some, found.values, strict=True):
            for name, one in value.items():
                other = host[quantity][name]
                if isinstance(quantity, q.KroneckerError):
                    # An estimate from few columns may lie below zero; its error is NaN then, on both machines.
                    numbers = (np.array(astuple(error), np.float64) for error in (one, other))
                    np.testing.assert_allclose(*numbers, rtol=1e-9, atol=1e-9)
                    continue
                one = one.to_dense() if hasattr(one, "to_dense") else one
                assert array.device_of(one) == "cuda:0"
                other = other.to_dense() if hasattr(other, "to_dense") else other
                np.testing.assert_allclose(gb.asnumpy(one), other, rtol=0, atol=1e-9 * np.abs(other).max())
    return seen


def test_other_conventions_and_errors(gpu):
    assert _compared() <= LISTED


def test_every_transfer_that_is_listed_is_made(double):
    """What the page lists and nothing asks for would be a list that nobody holds."""
    seen = set()
    for row, loss in CASES:
        y = targets(loss, (3, 2), 0)
        seen |= compare(around(row), loss, row.x(3), y, *applicable(row.make()), rng=0, training=trains(row))
    seen |= _drawn() | _counted() | _solved() | _stepped() | _converted() | _shuffled() | _embedded() | _compared()
    assert seen == LISTED


def _drawn():
    output = there(np.zeros((3, 2)))
    ledger.clear()
    losses.CrossEntropyLoss().draw(output, rng=0)
    return set(ledger.transfers)


def _counted():
    """A draw of counts, class probabilities, and losses with weights."""
    output, counts, weight = there(np.zeros((3, 2))), there(np.ones((3, 2))), there(np.ones(2))
    labels, variances = there(np.array([0, 1, 1])), there(np.ones((3, 2, 2)))
    ledger.clear()
    losses.PoissonNLLLoss()(output, counts)
    losses.GaussianNLLLoss()(output, variances)
    losses.BCELoss()(output, counts)
    losses.PoissonNLLLoss().draw(output, rng=0)
    cross = losses.CrossEntropyLoss(weight=weight)
    cross(output, counts / 2)
    cross(output, labels)
    return set(ledger.transfers)


def _solved():
    block, v = q.Kronecker(there(np.eye(2)), there(np.eye(3))), there(np.ones(6))
    ledger.clear()
    block.solve(v, 0.1)
    block.solve(v, 0.1, cap=1e8)
    block.inverse(0.1)
    return set(ledger.transfers)


def test_blocks_of_groups_compute_on_the_device(gpu):
    rng, conv = np.random.default_rng(0), layers.Conv2d(4, 4, 2, groups=2)
    network = gb.Sequential(conv, layers.Flatten(), layers.Linear(16, 2), rng=0, dtype="float64")
    x, y = rng.standard_normal((3, 4, 3, 3)), np.array([0, 1, 1])
    block = gb.backward(network, CE, x, y, q.KFLR())["kflr"]["0.weight"]
    network.to("cuda")
    found = gb.backward(network, CE, there(x), there(y), q.KFLR())["kflr"]["0.weight"]
    v = rng.standard_normal(block.shape[0])
    moved = there(v)
    ledger.clear()
    pairs = [(found @ moved, block @ v), (found.trace(), block.trace()), (found.to_dense(), block.to_dense())]
    assert ledger.transfers == []
    pairs += [(found.solve(moved, 0.1, cap), block.solve(v, 0.1, cap)) for cap in (None, 1e8)]
    assert set(ledger.transfers) <= LISTED
    for got, want in pairs:
        assert array.device_of(got) == "cuda:0"
        assert relative_error(got, want) < 1e-10


def _stepped():
    network = simple().to("cuda")
    result = gb.backward(network, CE, there(X), there(Y))
    ledger.clear()
    optim.Adam(network).step(result)
    assert len(ledger.transfers) == 1
    return set(ledger.transfers)


def _converted():
    network = simple().to("cuda")
    state = network.state_dict()
    ledger.clear()
    network.load_state_dict(state)
    network.astype("float32")
    assert len(ledger.transfers) == 2
    return set(ledger.transfers)


def _embedded():
    network = gb.Sequential(layers.Embedding(5, 2), layers.Flatten(), layers.Linear(6, 3), rng=0).to("cuda")
    x, y = there(np.arange(12).reshape(4, 3) % 5), there(Y[:4])
    ledger.clear()
    gb.backward(network, CE, x, y, q.DiagGGN())
    return set(ledger.transfers)


def _shuffled():
    x, y = there(X), there(Y)
    ledger.clear()
    list(gb.data.batches(x, y, 2, rng=0))
    return set(ledger.transfers)


def simple(**options):
    """A network of every kind of step that the driver has, drawn on the host."""
    chain = [layers.Conv2d(2, 3, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Dropout(0.4)]
    return gb.Sequential(*chain, layers.Flatten(), layers.Linear(12, 3), rng=0, **{"dtype": "float64"} | options)


X = np.random.default_rng(1).standard_normal((6, 2, 4, 4))
Y = np.array([0, 2, 1, 1, 0, 2])
CE = losses.CrossEntropyLoss()


@pytest.mark.parametrize(
    "options",
    [
        {"sample_block": 2},
        {"column_block": 2},
        {"workers": 2},
        {"sample_block": 1, "column_block": 3, "workers": 3},
        {"memory": "64MiB"},
    ],
    ids=str,
)
def test_blocks_and_threads(gpu, options):
    quantities = [quantity for quantity in every_quantity() if fits(quantity, options)]
    assert compare(simple(), CE, X, Y, *quantities, rng=3, training=True, **options) <= LISTED


def test_given_pseudo_targets_take_one_look(double):
    network, draws = simple().to("cuda"), there(np.tile(Y, (5, 1)))
    x, y = there(X), there(Y)
    counts = []
    for some in (draws[:1], draws):
        ledger.clear()
        gb.backward(network, CE, x, y, q.DiagGGNMC(targets=some))
        counts.append(len(ledger.transfers))
    assert counts == [3, 3]  # x with the parameters, y, and all pseudo-targets


def pieces(residual):
    """The residual, or the columns and signs of one that the layer factors."""
    if not isinstance(residual, Factored):
        return [residual]
    (columns,), sign = residual.columns(slice(None))
    return [columns, sign]


@pytest.mark.parametrize("forms", [PLAIN, FORMS], ids=["plain", "fast"])
@pytest.mark.parametrize("row", LAYERS, ids=str)
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
    got = gb.backward(network, away, there(x, dtype), there(y, dtype), q.DiagGGN(), q.DiagGGNMC(), rng=0)
    for name in ("diag_ggn", "diag_ggn_mc"):
        assert largest_error(got[name], on_host(want[name])) <= TOLERANCES[dtype]
        assert {value.dtype for value in got[name].values()} == {np.dtype(dtype)}
    with pytest.raises(TypeError, match=r"weight of .*: expected an array on cuda:0 as x is"):
        gb.backward(network, host, there(x, dtype), there(y, dtype))


# ----------------------------------------------------------------------------------------------------------- optimizers

OPTIMIZERS = {
    "SGD": [
        lambda net: optim.SGD(net, 0.1),
        lambda net: optim.SGD(net, 0.1, momentum=0.9, nesterov=True, l2=0.01),
    ],
    "Adam": [lambda net: optim.Adam(net, l2=0.01)],
    "Preconditioned": [
        lambda net, quantity=quantity, average=average: optim.Preconditioned(
            net, quantity, 0.1, 0.01, l2=0.001, average=average
        )
        for quantity in (q.DiagGGN(), q.DiagGGNMC(), q.DiagHessian(), q.KFAC(), q.KFLR(), q.KFRA())
        for average in (None, "ema")
    ],
}


def test_no_optimizer_is_missing():
    assert set(OPTIMIZERS) == set(optim.__all__) - {"Optimizer"}


@pytest.mark.parametrize("make", [make for several in OPTIMIZERS.values() for make in several])
def test_every_optimizer(make, gpu):
    """Three steps in training mode, the state taken home and back after the second."""
    ends = []
    for device in ("cpu", "cuda"):
        network = simple().to(device)
        x, y, optimizer = gb.asarray(X, device), gb.asarray(Y, device), make(network)
        for step in range(3):
            if step == 2:
                optimizer = make(network).load_state_dict(optimizer.state_dict())
            result = gb.backward(network, CE, x, y, *optimizer.quantities, rng=step, training=True)
            ledger.clear()
            optimizer.step(result)
            assert set(ledger.transfers) <= LISTED
        ends.append({name: gb.asnumpy(value) for name, value in network.parameters.items()})
    assert largest_error(ends[1], ends[0]) < 1e-8


# ------------------------------------------------------------------------------------------------------- the same run


def test_one_seed_gives_the_same_weights_masks_and_draws(gpu):
    host, moved = simple(), simple().to("cuda")
    for name, value in host.parameters.items():
        np.testing.assert_array_equal(gb.asnumpy(moved.parameters[name]), value)
    lone = layers.Dropout(0.4)
    noise = lone.noise((5, 7), np.random.default_rng(0))
    ones = np.ones((5, 7))
    want, got = lone.forward_training(ones, noise)[0], lone.forward_training(there(ones), noise)[0]
    np.testing.assert_array_equal(gb.asnumpy(got), want)
    for dtype in TOLERANCES:
        logits = np.random.default_rng(1).standard_normal((200, 4)).astype(dtype)
        np.testing.assert_array_equal(gb.asnumpy(CE.draw(there(logits), 20, rng=3)), CE.draw(logits, 20, rng=3))


def test_parameters_and_states_go_there_and_back(gpu):
    network = simple()
    before = {name: value.copy() for name, value in network.parameters.items()}
    state = network.to("cuda").state_dict()
    assert {array.device_of(value) for value in state.values()} == {"cuda:0"}
    network.parameters["5.bias"] = np.zeros(3)  # comes from the host and is moved
    assert array.device_of(network.parameters["5.bias"]) == "cuda:0"
    network.load_state_dict(state).to("cpu")
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(value, before[name])


def test_a_network_is_converted_where_it_is(gpu):
    network = simple().to("cuda")
    before = {name: gb.asnumpy(value) for name, value in network.parameters.items()}
    for name, value in network.astype("float32").parameters.items():
        assert (value.dtype, array.device_of(value)) == (np.float32, "cuda:0")
        np.testing.assert_array_equal(gb.asnumpy(value), before[name].astype("float32"))
    network.parameters["0.bias"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"0.bias: expected numbers within the range of float32, got 1e\+300"):
        network.parameters["0.bias"] = there(np.full(3, 1e300))
    assert not gb.asnumpy(network.parameters["0.bias"]).any()


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
