"""Memory: what a call takes, what its budget allows, and what is said when it runs out."""

import re
from functools import partial

import common
import numpy as np
import pytest
from common import in_turn, peak

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.memory import KFRA_COPIES
from gbackprop.engine import kernels
from gbackprop.engine.blocks import Cut, Limits, advice, choose_blocks
from gbackprop.engine.estimate import (
    UNITS,
    Largest,
    estimate,
    multiplications,
    parse_bytes,
    saved_bytes,
    small_samples,
    stack_bytes,
)
from gbackprop.engine.forms import FORMS, conv
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.engine.rewrites import with_whole_sequences
from gbackprop.plain.plan import make_plan

CE = losses.CrossEntropyLoss()
MIB = 2**20


network = partial(common.chain, dtype="float32")
batch = partial(common.batch, classes=10, dtype="float32")


# --------------------------------------------------------------------------------------------------------------- memory


def pooled():
    """Convolutions by tiles: what these do not unfold on the way forward is unfolded on the way back."""
    return network(
        layers.Conv2d(3, 64, 3, padding=1), layers.ReLU(), layers.Conv2d(64, 64, 3, padding=1), layers.ReLU(),
        layers.MaxPool2d(4), layers.Flatten(), layers.Linear(64 * 16, 10),
    )  # fmt: skip


def small():
    return network(
        layers.Conv2d(3, 8, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Conv2d(8, 16, 3),
        layers.ReLU(), layers.Flatten(), layers.Linear(16 * 36, 10),
    )  # fmt: skip


SMALL = [q.DiagGGN, q.KFLR, q.KFAC, q.Variance, q.DiagHessian, q.BatchL2Grad]
TILED = [q.DiagGGN, q.KFLR, q.Variance, q.BatchL2Grad]
BUDGETS = in_turn([(small, kind) for kind in SMALL], ["40 MiB", "80 MiB", "160 MiB"])
BUDGETS += in_turn([(pooled, kind) for kind in TILED], ["28 MiB", "50 MiB"])


@pytest.mark.parametrize(("make", "quantity", "memory"), BUDGETS)
def test_a_call_stays_within_its_budget(make, quantity, memory):
    net, (x, y), asked = make(), batch(48, 3, 16, 16), quantity()
    assert peak(lambda: gb.backward(net, CE, x, y, asked, memory=memory)) <= parse_bytes(memory)


def weight_at_four_places():
    linear = layers.Linear(32, 32)
    return network(linear, layers.Tanh(), linear, layers.Tanh(), linear, layers.Tanh(), linear, layers.Linear(32, 10))


def kernel_at_two_places():
    conv = layers.Conv2d(4, 4, 3, padding=1)
    return network(conv, layers.Tanh(), conv, layers.Tanh(), layers.Flatten(), layers.Linear(144, 10))


def recurrent():
    return network(gb.GRU(8, 8), layers.Flatten(), layers.Linear(48, 10))


def products_of_convolutions():
    both = gb.Product(layers.Conv2d(4, 8, 3), layers.Conv2d(4, 8, 3))
    return network(both, layers.Flatten(), layers.Linear(128, 10))


def products_of_features():
    wide = (layers.Linear(4, 256), layers.Linear(4, 256))
    return network(gb.Product(*wide), layers.Linear(256, 10))


PAIRS = [(products_of_convolutions, (4, 6, 6)), (products_of_features, (4,))]
SHARED = [(weight_at_four_places, (32,)), (kernel_at_two_places, (4, 6, 6)), (recurrent, (6, 8))]


@pytest.mark.parametrize("memory", ["8 MiB", "32 MiB"])
@pytest.mark.parametrize(("make", "shape"), SHARED + PAIRS)
@pytest.mark.parametrize("quantity", [q.DiagHessian, q.BatchDiagHessian])
def test_columns_of_products_and_at_all_uses_of_a_parameter_are_within_the_budget(make, shape, quantity, memory):
    """Pairs are in float64; if a parameter's input depends on it, some columns have a piece as large as itself."""
    net, (x, y), asked = make(), batch(48, *shape), quantity()
    assert peak(lambda: gb.backward(net, CE, x, y, asked, memory=memory)) <= parse_bytes(memory)


def least_budget(call):
    """The bytes that a call says are needed at least."""
    with pytest.raises(ValueError, match="are needed") as caught:
        call(memory=1)
    return int(re.search(r"\((\d+) bytes\)", str(caught.value))[1])


def table_of_vectors(norm):
    return network(layers.Embedding(4000, 4), layers.Flatten(), norm, layers.Linear(8, 10))


TABLES = [(layers.LayerNorm, kind) for kind in (q.DiagGGN, q.DiagHessian, q.Variance, q.DiagGGNMC)]
TABLES += [(layers.BatchNorm1d, kind) for kind in (q.DiagGGN, q.DiagHessian)]


@pytest.mark.parametrize("more", [1, 2, 16])
@pytest.mark.parametrize(("norm", "quantity"), TABLES)
def test_a_table_of_vectors_times_samples_and_columns_is_within_the_budget(norm, quantity, more):
    """Jᵀ g has the table's size for each sample and column, most of it zeros."""
    net, rng, asked = table_of_vectors(norm(8)), np.random.default_rng(0), quantity()
    x, y = rng.integers(0, 4000, (12, 2)), rng.integers(0, 10, 12)
    call = partial(gb.backward, net, CE, x, y, asked, rng=0, training=True)
    memory = more * least_budget(call)
    assert peak(lambda: call(memory=memory)) <= memory


@pytest.mark.parametrize("memory", ["4 MiB", "8 MiB"])
@pytest.mark.parametrize("quantity", [q.DiagGGN, q.DiagHessian])
def test_columns_of_parameters_below_samples_that_meet_are_within_the_budget(quantity, memory):
    norm = layers.BatchNorm2d(48)
    net = network(layers.Conv2d(48, 48, 3), norm, layers.Flatten(), layers.Linear(192, 10))
    (x, y), asked = batch(6, 48, 4, 4), quantity()
    assert peak(lambda: gb.backward(net, CE, x, y, asked, training=True, memory=memory)) <= parse_bytes(memory)


@pytest.mark.parametrize("layer", [layers.LayerNorm(1500), layers.Softmax(1)], ids=repr)
def test_a_few_columns_of_a_residual_take_no_square_of_the_features(layer):
    net, (x, y) = network(layers.Linear(4, 1500), layer, layers.Linear(1500, 10)), batch(2, 4)
    asked = q.DiagHessian()
    assert peak(lambda: gb.backward(net, CE, x, y, asked, column_block=100)) < 4 * 1500**2


def test_columns_at_all_branches_that_share_a_weight_are_within_the_budget():
    linear = layers.Linear(4, 256)
    curves = (layers.Tanh(), layers.Sigmoid(), layers.ReLU(), layers.ELU(), layers.SiLU(), layers.GELU())
    net = network(gb.Sum(*[gb.Sequential(curve, linear) for curve in curves]), layers.Linear(256, 10))
    x, y = batch(256, 4)
    assert peak(lambda: gb.backward(net, CE, x, y, q.DiagGGN(), memory="4 MiB")) <= 4 * MIB


def test_the_budget_changes_no_result():
    net = network(layers.Conv2d(1, 4, 3), layers.Tanh(), layers.Flatten(), layers.Linear(144, 10))
    x, y = batch(32, 1, 8, 8)
    asked = q.DiagHessian()
    free, bound = (gb.backward(net, CE, x, y, asked, memory=memory)[asked] for memory in (None, "3MiB"))
    for name, value in free.items():
        np.testing.assert_allclose(bound[name], value, rtol=1e-4, atol=1e-7)


def test_a_budget_too_small_says_what_is_needed():
    x, y = batch(4, 100)
    net = network(layers.Linear(100, 100), layers.Linear(100, 10))
    for given, got in (("1B", "1 B$"), ("90 KiB", "90.0 KiB$")):
        message = rf"memory: at least [1-9]\d\d\.\d KiB \([1-9]\d{{5}} bytes\) are needed, got {got}"
        with pytest.raises(ValueError, match=message) as caught:
            gb.backward(net, CE, x, y, memory=given)
    gb.backward(net, CE, x, y, memory=int(re.search(r"\((\d+) bytes\) are needed", str(caught.value))[1]))


@pytest.mark.parametrize(
    ("text", "number"), [("2GiB", 2**31), (" 1.5 MiB ", 3 * 2**19), ("500 MB", 500_000_000), (7, 7), (np.int64(9), 9)]
)
def test_budgets_are_read(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["2", "GiB", "-1GiB", "2 GiBs", 0, -1, True, 1.5, None])
def test_budgets_that_are_none(text):
    with pytest.raises(ValueError, match="memory: expected"):
        parse_bytes(text)


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_of_blocks_are_added_up_as_they_come(workers):
    net, (x, y) = network(layers.Linear(500, 500), layers.Linear(500, 10)), batch(256, 500)
    # a part is 1 MiB: three may wait, two are in the making, one takes them up; not all 256
    assert peak(lambda: gb.backward(net, CE, x, y, sample_block=1, workers=workers)) < 10 * MIB


def test_the_factors_of_wide_inputs_are_part_of_the_estimate():
    net, (x, y) = network(layers.Linear(2000, 10)), batch(4, 2000)
    gb.backward(net, CE, x, y, q.DiagGGN(), memory="20MiB")
    with pytest.raises(ValueError, match=r"are needed, got 20.0 MiB"):  # A alone is 15 MiB, and its sum another
        gb.backward(net, CE, x, y, q.KFLR(), memory="20MiB")


def test_the_factors_of_each_group_are_part_of_the_estimate():
    x, y = batch(2, 256, 3, 3)
    grouped = network(layers.Conv2d(256, 8, 3, groups=2), layers.Flatten(), layers.Linear(8, 10))
    asked = q.KFLR()
    parts = (layers.Conv2d(128, 8, 3), layers.Flatten(), layers.Linear(8, 10))
    needed = []
    for net, given in ((grouped, x), (network(*parts), x[:, :128])):
        with pytest.raises(ValueError, match="are needed") as caught:
            gb.backward(net, CE, given, y, asked, memory=1)
        needed.append(int(re.search(r"\((\d+) bytes\)", str(caught.value))[1]))
    a = 4 * (128 * 9) ** 2
    assert needed[0] - needed[1] > 4 * a  # one more A: counted twice, and twice in its thread
    gb.backward(grouped, CE, x, y, asked, memory=needed[0])
    assert peak(lambda: gb.backward(grouped, CE, x, y, asked, memory=needed[0])) <= needed[0]


@pytest.mark.parametrize(("channels", "stride"), [((64, 2), 1), ((2, 16), 1), ((16, 8), 2)])
def test_the_factors_of_a_transposed_convolution_are_part_of_the_estimate(channels, stride):
    up = layers.ConvTranspose2d(*channels, 3, stride)
    x, y = batch(8, channels[0], 4, 4)
    net = network(up, layers.Flatten(), layers.Linear(int(np.prod(up.output_shape(x.shape[1:]))), 10))
    for quantity in (q.KFLR(), q.DiagGGN()):
        plan = make_plan(net, CE, x, y, [quantity], 0)
        budget = estimate(plan, x, Largest(8, None, 1), saved_bytes(plan, x, FORMS))
        assert peak(lambda asked=quantity: gb.backward(net, CE, x, y, asked, workers=1)) <= budget


def test_no_more_samples_are_taken_off_a_block_than_the_budget_asks_for():
    net, (x, y) = network(layers.Linear(100, 1000), layers.ReLU(), layers.Linear(1000, 10)), batch(256, 100)
    plan = make_plan(net, CE, x, y, [q.DiagGGN()], 0)
    saved = saved_bytes(plan, x, FORMS)
    budget = estimate(plan, x, Largest(64, 10, 1), saved)
    cut = choose_blocks(plan, x, Limits(workers=1, memory=budget), FORMS)
    assert (cut.samples[0].stop, cut.spans) == (64, [slice(0, 10)])


def test_columns_of_every_residual_above_are_part_of_the_estimate():
    net, (x, y) = network(layers.Linear(5, 4), layers.Tanh(), layers.Linear(4, 3)), batch(8, 5, classes=3)
    plan = make_plan(net, CE, x, y, [q.DiagHessian()], 0)
    # at the first layer: the gradient, three columns of the loss and four of the tanh, with four numbers each
    assert stack_bytes(plan) == 4 * (1 + 3 + 4) * 4
    assert stack_bytes(plan, column_block=2) == 4 * (1 + 2) * 4


def test_columns_at_both_uses_of_a_shared_layer_are_part_of_the_estimate():
    shared, (x, y) = layers.Linear(4, 4), batch(8, 4, classes=4)
    plan = make_plan(network(shared, layers.Tanh(), shared), CE, x, y, [q.DiagGGN()], 0)
    # the gradient and four columns of the loss, with four numbers at each use
    assert stack_bytes(plan) == 4 * (1 + 4) * (4 + 4)


@pytest.mark.parametrize("columns", [10, 1])
def test_a_budget_may_be_that_of_the_smallest_block(columns):
    net, (x, y) = network(layers.Linear(100, 1000), layers.ReLU(), layers.Linear(1000, 10)), batch(4, 100)
    plan = make_plan(net, CE, x, y, [q.DiagGGN()], 0)
    budget = estimate(plan, x, Largest(1, columns, 1), saved_bytes(plan, x, FORMS))
    cut = choose_blocks(plan, x, Limits(workers=1, memory=budget), FORMS)
    assert (len(cut.samples), cut.spans[0]) == (4, slice(0, columns))


AVERAGED = [
    (layers.Linear(800, 800), (800,)),
    (layers.Linear(40, 40), (20, 40)),
    (layers.Conv2d(2, 2, 3, padding=1), (2, 20, 20)),
    (layers.AvgPool2d(3, 1, 1), (2, 20, 20)),
    (layers.MaxPool2d(3, 1, 1), (2, 20, 20)),
    (layers.ZeroPad2d((1, 0, 1, 0)), (2, 19, 19)),
    (layers.Sigmoid(), (2, 20, 20)),
    (layers.Dropout(), (800,)),
]


def copies(layer, shape):
    """Return the number of matrices of the largest size at the peak of KFRA's step, the given one among them."""
    rng, x, context = np.random.default_rng(0), batch(3, *shape)[0], Context(FORMS, Allocator())
    y, saved = layer.forward_training(x, layer.noise(x.shape, rng))
    curvature = np.ones((np.prod(y.shape[1:]),) * 2, np.float32)
    largest = 4 * max(np.prod(y.shape[1:]), np.prod(shape)) ** 2
    return 1 + peak(lambda: context.average(layer, saved, curvature, len(x), y.shape[1:])) / largest


def test_the_averaged_curvature_takes_what_it_is_checked_for():
    most = max(copies(layer, shape) for layer, shape in AVERAGED)
    assert KFRA_COPIES - 1 < most <= KFRA_COPIES


# -------------------------------------------------------------------------------------- what to try when memory ran out


@pytest.mark.parametrize(
    ("quantities", "samples", "columns", "threads", "said"),
    [
        ((), 8, None, 1, "sample_block=4 would fit"),
        ((), 1, None, 1, "there is no smaller block"),
        ((), 1, None, 2, "sample_block=1, workers=1 would fit"),
        ((q.DiagGGN(),), 8, None, 2, "sample_block=4, workers=1 would fit"),
        ((q.DiagGGN(),), 1, None, 1, "sample_block=1, column_block=5 would fit"),
        ((q.DiagGGN(),), 1, 100, 1, "sample_block=1, column_block=5 would fit"),
        ((q.DiagGGN(),), 1, 1, 1, "there is no smaller block"),
        ((q.KFRA(),), 8, None, 1, "there is no smaller block"),
        ((q.KFRA(), q.KFLR()), 8, None, 1, "column_block=5 would fit"),
    ],
)
def test_advice_is_smaller_than_what_failed(quantities, samples, columns, threads, said):
    net = network(layers.Linear(4, 10))
    x, y = batch(8, 4)
    cut = Cut([slice(start, start + samples) for start in range(0, 8, samples)], columns, [], threads)
    assert advice(make_plan(net, CE, x, y, quantities, 0), x, cut).startswith(said)


def test_advice_says_how_much_memory_is_free(monkeypatch):
    monkeypatch.setattr("gbackprop.engine.blocks.available_memory", lambda device: 5 * MIB)
    plan = make_plan(network(layers.Linear(4, 10)), CE, *batch(8, 4), [q.DiagGGN()], 0)
    assert advice(plan, np.zeros((8, 4), np.float32), Cut([slice(0, 8)], None, [], 1)) == (
        "sample_block=4 would fit into the 5.0 MiB that are free, by an estimate"
    )


ESTIMATED = [  # sums and rows in numbers, unfolded ones and columns for one sample; the network has 39 parameters
    ([], 39, 0, 0, 0, 0),
    ([q.BatchGrad()], 39, 39, 5, 0, 0),
    ([q.BatchL2Grad()], 39, 4, 5, 0, 0),
    ([q.GramGradients()], 39, 4 + (4 + 2) * 8, 5, 0, 0),  # of each sample Jᵀ g of a bias, and rows of 4 + 2 matrices
    ([q.Variance()], 39 + 4 * 39, 0, 5, 0, 0),
    ([q.DiagGGN()], 39 + 39, 0, 5, 3, 0),
    ([q.KFLR()], 39 + 2 * 16 + 2 * 9 + 25 + 16, 0, 5, 3, 0),
    ([q.KFRA()], 39 + 2 * 16 + 2 * 9 + 25 + 16, 0, 5, 0, KFRA_COPIES * 16),
]


@pytest.mark.parametrize(("asked", "sums", "rows", "unfolded", "columns", "averaged"), ESTIMATED)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_estimate_is_the_formula(asked, sums, rows, unfolded, columns, averaged, threads):
    net, (x, y) = network(layers.Linear(5, 4), layers.ReLU(), layers.Linear(4, 3)), batch(8, 5, classes=3)
    stack, saved = 4 * (1 + columns), 1000
    each = sums + 2 * 39 + 2 * (saved // 4 + unfolded + 3 * stack)
    numbers = 2 * sums + 8 * rows + averaged + 2 * threads * each
    assert estimate(make_plan(net, CE, x, y, asked, 0), x, Largest(2, None, threads), saved) == 4 * numbers


def test_multiplications_of_one_sample_are_the_formula():
    net = network(layers.Conv2d(2, 5, (2, 3)), layers.Flatten(), layers.Linear(5 * 3 * 2, 7))
    x, y = batch(4, 2, 4, 4, classes=7)
    weights = 6 * 5 * 12 + 30 * 7  # at 6 positions a weight of (5, 2, 2, 3), at one of (7, 30)
    for asked, columns, factors in (
        ([], 0, 0), ([q.DiagGGN()], 7, 0), ([q.KFLR()], 7, 6 * 12**2 + 30**2), ([q.KFAC()], 1, 6 * 12**2 + 30**2),
    ):  # fmt: skip
        plan = make_plan(net, CE, x, y, asked, 0)
        assert multiplications(plan) == ((1 + columns) * weights + factors, 30 * 7)


def test_a_layer_of_several_inputs_counts_as_a_product_of_two():
    joined = gb.Product(layers.Linear(5, 4), layers.Linear(5, 4))
    plan = make_plan(network(joined, layers.Linear(4, 3)), CE, *batch(2, 5, classes=3), [], 0)
    assert multiplications(plan) == (2 * 20 + 4 * 4 + 12, 20)


def test_blas_has_one_thread_up_to_a_product_of_all_samples_or_a_total():
    dense, conv = network(layers.Linear(784, 128)), network(layers.Conv2d(3, 8, 3), layers.Flatten())
    for net, shape, expected in ((dense, (784,), 2**22 // (784 * 128)), (conv, (3, 34, 34), 2**24 // (27 * 8 * 32**2))):
        x, y = batch(1, *shape, classes=7)
        assert small_samples(make_plan(net, CE, x, y, [], 0)) == expected
    steps, (x, y) = network(gb.LSTM(10, 300), layers.Flatten()), batch(1, 2, 10, classes=7)
    assert multiplications(with_whole_sequences(make_plan(steps, CE, x, y, [], 0), x))[1] == 10 * 1200  # no step's


def test_what_is_saved_counts_once_and_views_as_what_they_are_of():
    class Keeps(layers.ReLU):
        def forward(self, x):
            large = np.zeros((1000,), x.dtype)
            return x, (large[:1], [large[5:7]])

    net, (x, y) = network(layers.Linear(5, 3), Keeps()), batch(4, 5, classes=3)
    plain = network(layers.Linear(5, 3), layers.Flatten())
    more, less = (saved_bytes(make_plan(n, CE, x, y, [], 0), x, FORMS) for n in (net, plain))
    assert 4000 <= more - less < 4100


def test_what_is_saved_is_measured_without_errors_that_the_data_does_not_give():
    net = gb.trace(lambda p, x: np.log(x * np.exp(p["w"])), {"w": np.ones(3)}, np.ones((3, 3)))
    x, loss = np.ones((4, 3)), losses.MSELoss()
    with np.errstate(all="raise"):
        gb.backward(net, loss, x, x, memory="1GiB")
        gb.operators.Hessian(net, loss, (x, x)) @ np.ones(3)
        with pytest.raises(FloatingPointError):
            gb.backward(net, loss, 0 * x, x, memory="1GiB")


def test_all_units():
    found = {unit: parse_bytes(f"3 {unit}") for unit in UNITS}
    assert found == {
        "B": 3, "KiB": 3 * 2**10, "MiB": 3 * 2**20, "GiB": 3 * 2**30, "kB": 3000, "MB": 3 * 10**6, "GB": 3 * 10**9,
    }  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
def test_tiles_are_made_for_few_samples_at_a_time(compiled, monkeypatch):
    if compiled:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(kernels, "numba_kernels", lambda: None)
    layer = layers.Conv2d(32, 32, 3, padding=1)
    x, g = batch(64, 32, 32, 32)[0], batch(64, 32, 32, 32)[0]
    tiles, weight = conv.tiles(layer, (32, 32), x, Allocator(), len(x)), layer.parameters["weight"]
    x, g = (np.ascontiguousarray(part.transpose(0, 2, 3, 1)) for part in (x, g))
    for call in (lambda: tiles.forward(x, weight), lambda: tiles.backward(g, weight)):
        assert peak(call) < x.nbytes + 8 * 2**20  # all tiles together are 32 MiB, twice
    assert peak(lambda: tiles.weight_sum(x, g)) < 8 * 2**20
