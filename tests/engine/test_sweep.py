"""One sweep: how often layers multiply, what is propagated, and what does not change the results."""

from dataclasses import replace

import numpy as np
import pytest
from common import assert_same, batch, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.sums import sum_over
from gbackprop.plain.plan import make_plan
from gbackprop.testing.errors import relative_error

C, N = 3, 5
CE, MSE = losses.CrossEntropyLoss(), losses.MSELoss()


def images():
    """Two layers below the lowest with parameters, and every kind of layer above it."""
    return chain(
        layers.ZeroPad2d(1), layers.Tanh(),
        layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.MaxPool2d(2, 1), layers.Conv2d(2, 2, 2), layers.ReLU(),
        gb.Sequential(layers.Flatten(), layers.Dropout(0.4), layers.Linear(8, 4), layers.Tanh(), layers.Linear(4, C)),
    )  # fmt: skip


X, Y = batch(N, 1, 3, 3, seed=4)
ABOVE = ["7.4", "7.3", "7.2", "7.1", "7.0", "6", "5", "4", "3"]
DIAGONAL = q.DiagGGN, q.DiagGGNMC, q.DiagHessian
TEN = q.BatchGrad, q.BatchL2Grad, q.SecondMoment, q.Variance, *DIAGONAL, q.KFAC, q.KFLR, q.KFRA


# ------------------------------------------------------------------------------------------------------- counting calls


class Noted:
    """A function that is noted; as those of `gb.explain` it counts as gbackprop's, so that no further calls test it."""

    __module__ = "gbackprop.noted"

    def __init__(self, function, note):
        self.function, self.note = function, note

    def __call__(self, *arguments):
        self.note(*arguments)
        return self.function(*arguments)


class Counted:
    """A network that notes which layers multiply by Jᵀ in the sweep itself, outside KFRA's averaged step."""

    def __init__(self, network):
        self.network, self.forwards, self.columns, self.residuals, self.averaging = network, [], [], [], False
        for name, layer in network.named_layers():
            layer.forward = self._noting(name, layer.forward, lambda name, x: self.forwards.append(len(x)))
            layer.mjp = self._noting(name, layer.mjp, self._multiplied)
            layer.residual = self._noting(name, layer.residual, lambda name, saved, grad: self.residuals.append(name))
            layer.average = self._averaged(layer.average)

    def _noting(self, name, method, note):
        return Noted(method, lambda *arguments: note(name, *arguments))

    def _multiplied(self, name, saved, mat):
        if not self.averaging:
            self.columns.append((name, mat.shape[0]))

    def _averaged(self, method):
        def average(*arguments):
            self.averaging = True
            result = method(*arguments)
            self.averaging = False
            return result

        return Noted(average, lambda *arguments: None)


def counted(*quantities, **options):
    counter = Counted(images())
    gb.backward(counter.network, CE, X, Y, *quantities, rng=0, **options)
    return counter


@pytest.mark.parametrize("kinds", [TEN, *[[kind] for kind in TEN]], ids=str)
def test_one_quantity_and_all_ten_take_one_sweep(kinds):
    counter = counted(*(kind() for kind in kinds))
    assert [name for name, _ in counter.columns] == ABOVE
    assert len(counter.forwards) == 12


WIDTHS = [
    ((), 0),
    ((q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance()), 0),
    ((q.KFRA(),), 0),
    ((q.DiagGGN(),), C),
    ((q.DiagGGN(), q.KFLR(), q.BatchDiagGGN(), q.KFRA()), C),
    ((q.DiagGGNMC(2),), 2),
    ((q.DiagGGNMC(2), q.KFAC(2)), 2),
    ((q.DiagGGNMC(2), q.KFAC(3)), 5),
    ((q.KFAC(), q.KFLR()), 1 + C),
    ((q.KFAC(targets=np.zeros((4, N), int)),), 4),
]


@pytest.mark.parametrize(("quantities", "width"), WIDTHS, ids=str)
def test_what_nobody_asked_for_is_not_propagated(quantities, width):
    counter = counted(*quantities)
    assert counter.columns == [(name, 1 + width) for name in ABOVE]
    assert counter.residuals == []


def test_the_residual_starts_at_curved_layers_and_is_shared():
    for asked in ((q.DiagHessian(),), (q.DiagHessian(), q.BatchDiagHessian(), q.DiagGGN(), q.KFLR())):
        counter = counted(*asked)
        assert counter.residuals == ["7.3", "3"]  # not the tanh below the lowest layer with parameters
        widths = dict(counter.columns)
        assert (widths["7.3"], widths["7.2"], widths["3"]) == (1 + C, 1 + C + 4, 1 + C + 4)


def test_blocks_of_columns_repeat_the_sweep_but_not_the_forward_pass():
    counter = counted(q.DiagGGN(), column_block=2)
    assert counter.columns == [(name, width) for width in (3, 2) for name in ABOVE]
    assert len(counter.forwards) == 12


BOUNDED = [({"sample_block": 2}, [2, 2, 1]), ({"workers": 2}, [3, 2]), ({"sample_block": 4, "workers": 2}, [4, 1])]


@pytest.mark.parametrize(("options", "sizes"), BOUNDED, ids=str)
def test_blocks_of_samples_are_no_larger_than_asked_for(options, sizes):
    assert sorted(counted(q.DiagGGN(), **options).forwards) == sorted(sizes * 12)


# ------------------------------------------------------------------------------------------------------ asking for more


@pytest.mark.parametrize("training", [False, True])
def test_packed_is_separate_in_any_order(training):
    network, asked, options = images(), [kind() for kind in TEN], {"rng": 6, "training": training}
    packed, back = (gb.backward(network, CE, X, Y, *some, **options) for some in (asked, asked[::-1]))
    for quantity in asked:
        alone = gb.backward(network, CE, X, Y, quantity, **options)
        for other in (packed, back):
            assert_same(alone, replace(other, quantities=alone.quantities, values=(other[quantity],)))


def test_quantities_of_equal_m_share_their_draw():
    diag, kfac, other = q.DiagGGNMC(2), q.KFAC(2), q.KFAC(3)
    result = gb.backward(images(), CE, X, Y, diag, kfac, other, rng=0)
    np.testing.assert_allclose(result[kfac]["2.bias"].B.diagonal(), result[diag]["2.bias"], rtol=1e-12)
    assert not np.allclose(result[other]["2.bias"].B.diagonal(), result[diag]["2.bias"], rtol=1e-3)


def test_given_targets_replace_the_draw():
    network = images()
    targets = CE.draw(network(X), 3, rng=9)
    given = [gb.backward(network, CE, X, Y, q.KFAC(targets=targets), rng=seed) for seed in (0, 1)]
    drawn = gb.backward(network, CE, X, Y, q.KFAC(3), rng=0)
    assert_same(*given, tolerance=0)
    assert relative_error(drawn["kfac"]["2.bias"].B, given[0]["kfac"]["2.bias"].B) > 1e-3


@pytest.mark.parametrize("loss", [MSE, losses.BCEWithLogitsLoss("sum")], ids=repr)
def test_blocks_do_not_change_draws(loss):
    y = np.random.default_rng(1).random((N, C))
    asked = q.KFAC(2), q.DiagGGNMC(1)
    whole = gb.backward(images(), loss, X, y, *asked, rng=3)
    assert_same(gb.backward(images(), loss, X, y, *asked, rng=3, sample_block=2), whole)
    assert_same(gb.backward(images(), loss, X, y, *asked, rng=3, column_block=1), whole)


# ----------------------------------------------------------------------------------------------------------- randomness


def test_rng_is_a_seed_or_a_generator_that_goes_on():
    def variable(rng):
        return gb.backward(images(), CE, X, Y, q.DiagGGNMC(), rng=rng, training=True)["diag_ggn_mc"]["2.weight"]

    generator = np.random.default_rng(5)
    np.testing.assert_array_equal(variable(5), variable(generator))
    assert not np.array_equal(variable(5), variable(generator))
    assert not np.array_equal(variable(None), variable(None))


def test_numpys_global_state_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    gb.backward(images(), CE, X, Y, q.KFAC(), training=True)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_nothing_is_written_into_the_arguments():
    network, x, y, targets = images(), X.copy(), Y.copy(), np.zeros((1, N), int)
    for array in (x, y, targets, *network.parameters.values()):
        array.flags.writeable = False
    gb.backward(network, CE, x, y, *(kind() for kind in TEN), q.KFAC(targets=targets), training=True)


@pytest.mark.parametrize("rng", ["seed", 1.5, -1])
def test_rng_is_checked_where_nothing_is_drawn(rng):
    with pytest.raises((TypeError, ValueError), match="rng"):
        gb.backward(images(), CE, X, Y, rng=rng)


def test_a_generator_moves_on_by_as_much_whatever_is_asked_for():
    states = []
    for asked, training in ([], False), ([q.KFAC()], False), ([q.DiagGGN()], True):
        rng = np.random.default_rng(0)
        gb.backward(images(), CE, X, Y, *asked, rng=rng, training=training)
        states.append(rng.random())
    assert len(set(states)) == 1


def test_noise_of_layers_and_of_draws_are_apart():
    class Noisy(layers.Dropout):
        def noise(self, shape, rng):
            return rng.standard_normal(shape)

    net, x = chain(layers.Linear(3, 3), Noisy()), X[:4, 0, 0]
    asked = [q.DiagGGNMC(mc_samples=m) for m in (1, 2)]
    plan = make_plan(net, MSE, x, x, asked, 0, training=True)
    drawn = [plan.noise[1], *(noise[0] for noise in plan.mc_noise.values())]
    for i, one in enumerate(drawn):
        assert not any(np.isclose(one, other).any() for other in drawn[:i])


def test_targets_that_are_given_need_no_draw():
    class Silent(losses.CrossEntropyLoss):
        def noise(self, batch_shape, mc_samples, rng):
            raise AssertionError

    gb.backward(images(), Silent(), X, Y, q.KFAC(targets=Y[None]))


# -------------------------------------------------------------------------------------------------------------- dropout


class Mask(layers.Layer):
    """Multiply by fixed numbers."""

    def __init__(self, mask):
        self.mask = mask

    def forward(self, x):
        return x * self.mask, None

    def output_shape(self, shape):
        return shape

    def mjp(self, saved, mat):
        return mat * self.mask


def dropped(p, features=4, seed=8, n=N):
    """Return what dropout makes of ones."""
    ones = np.ones((n, features))
    return gb.backward(layers.Dropout(p), MSE, ones, ones, rng=seed, training=True).output


def test_dropout_in_training_is_a_fixed_mask():
    linear = [layers.Linear(3, 4), layers.Linear(4, C)]
    network = chain(linear[0], layers.Dropout(0.4), layers.Sigmoid(), linear[1])
    x = X[:, 0, 0]
    # The only draw of the pass is the mask, so a lone dropout draws the same.
    fixed = gb.Sequential(linear[0], Mask(dropped(0.4)), layers.Sigmoid(), linear[1])
    asked = [kind() for kind in TEN if kind not in (q.KFAC, q.DiagGGNMC)]
    training = gb.backward(network, CE, x, Y, *asked, rng=8, training=True)
    assert_same(training, gb.backward(fixed, CE, x, Y, *asked))
    evaluation = gb.backward(network, CE, x, Y, *asked, rng=8)
    assert relative_error(evaluation.output, training.output) > 1e-3


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 0.9])
def test_dropout_keeps_the_mean(p):
    mask = dropped(p, features=100, n=100)
    assert set(np.round(mask.ravel(), 12)) == {round(value, 12) for value in ({1.0} if p == 0 else {0.0, 1 / (1 - p)})}
    assert abs(mask.mean() - 1) < 5 * (p / (1 - p) / mask.size) ** 0.5 + 1e-12
    assert p == 0 or not np.array_equal(mask[0], mask[1])  # each sample has its own


def test_dropout_of_everything_and_of_nothing():
    np.testing.assert_array_equal(dropped(1.0), 0)
    x = batch(N, 4)[0]
    for options in ({}, {"rng": 1}):
        np.testing.assert_array_equal(gb.backward(layers.Dropout(0.9), MSE, x, x, **options).output, x)


def test_two_dropouts_draw_different_masks():
    network = gb.Sequential(layers.Dropout(0.5), layers.Dropout(0.5))
    ones = np.ones((50, 20))
    once = gb.backward(gb.Sequential(layers.Dropout(0.5)), MSE, ones, ones, rng=0, training=True).output
    twice = gb.backward(network, MSE, ones, ones, rng=0, training=True).output
    assert (set(np.unique(once)), set(np.unique(twice))) == ({0, 2}, {0, 4})
    assert 0.15 < (twice > 0).mean() < 0.35


@pytest.mark.parametrize(("make", "shape", "name"), [
    (lambda: layers.Linear(1, 2), (50_001, 1), "bias"), (lambda: layers.Linear(1, 2), (2, 25_001, 1), "bias"),
    (lambda: layers.LayerNorm(2), (50_001, 2), "weight"), (lambda: layers.LayerNorm(2), (2, 25_001, 2), "bias"),
    (lambda: layers.PReLU(2), (50_001, 2), "weight"),
], ids=["Linear", "Linear, positions", "LayerNorm", "LayerNorm, positions", "PReLU"])  # fmt: skip
def test_sums_over_many_samples_or_positions_keep_their_digits(make, shape, name):
    """The mean over samples and positions that are all alike is that of one, in float64."""
    network = gb.Sequential(make(), rng=0)
    single, exact = gb.Sequential(make(), rng=0).astype("float64"), np.array([-1.0, -2.5])[: shape[-1]]
    x, one = np.broadcast_to(exact.astype("float32"), shape).copy(), exact.reshape((1,) * len(shape[1:]) + (-1,))
    asked = [q.DiagGGN()] if len(shape) == 2 else []
    found, want = (run(net, MSE, some, np.zeros_like(net(some)), *asked)
                   for run, net, some in ((gb.backward, network, x), (gb.reference, single, one)))  # fmt: skip
    np.testing.assert_allclose(found.gradient["0." + name], want.gradient["0." + name], rtol=1e-5)
    for key in ["diag_ggn"][: len(asked)]:
        np.testing.assert_allclose(found[key]["0." + name], want[key]["0." + name], rtol=2e-5)


@pytest.mark.parametrize("make", [lambda: layers.Scale(2), lambda: layers.BatchNorm1d(2)], ids=["Scale", "BatchNorm"])
def test_second_derivatives_in_factors_of_few_channels_keep_their_digits(make):
    """A product with the mean Hessian over samples that are all alike is that with the Hessian of one, in float64."""

    def product(samples, dtype):
        network = gb.Sequential(layers.Linear(1, 2), make(), rng=0, dtype=dtype)
        network.load_state_dict({name: np.full_like(value, 0.7) for name, value in network.state_dict().items()})
        data = np.full((samples, 1), 1.3, dtype), np.zeros((samples, 2), dtype)
        direction = {name: np.ones_like(value) for name, value in network.parameters.items()}
        return gb.operators.Hessian(network, MSE, data) @ direction

    np.testing.assert_allclose(product(50_001, "float32")["1.weight"], product(1, "float64")["1.weight"], rtol=1e-5)


@pytest.mark.parametrize("shape", [(2049, 3), (2, 2300, 5), (2, 3, 1100, 4), (70_000, 2), (3000, 600), (4096, 1)])
def test_sums_of_many_rows_are_numpys_in_more_digits(shape):
    rows = np.random.default_rng(0).random(shape)
    axes = tuple(range(max(0, len(shape) - 3), len(shape) - 1))
    for some in (rows, rows[..., ::-1], rows.swapaxes(-1, -2).copy().swapaxes(-1, -2)):
        np.testing.assert_allclose(sum_over(some, *axes), some.sum(axes), rtol=1e-12)
    few = rows[..., : 2048 // (shape[-3] if len(axes) == 2 else 1), :].astype("float32")
    np.testing.assert_array_equal(sum_over(few, *axes), few.sum(axes))
