"""One sweep: how often layers multiply, what is propagated, and what does not change the results."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.errors import relative_error

C, N = 3, 5
CE, MSE = losses.CrossEntropyLoss(), losses.MSELoss()


def images(dtype="float64"):
    """Two layers below the lowest with parameters, and every kind of layer above it."""
    return gb.Sequential(
        layers.ZeroPad2d(1), layers.Tanh(),
        layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.MaxPool2d(2, 1), layers.Conv2d(2, 2, 2), layers.ReLU(),
        gb.Sequential(layers.Flatten(), layers.Dropout(0.4), layers.Linear(8, 4), layers.Tanh(), layers.Linear(4, C)),
        rng=0, dtype=dtype,
    )  # fmt: skip


RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((N, 1, 3, 3)), RNG.integers(0, C, N)
ABOVE = ["7.4", "7.3", "7.2", "7.1", "7.0", "6", "5", "4", "3"]
DIAGONAL = q.DiagGGN, q.DiagGGNMC, q.DiagHessian
TEN = q.BatchGrad, q.BatchL2Grad, q.SecondMoment, q.Variance, *DIAGONAL, q.KFAC, q.KFLR, q.KFRA


def flat(values):
    """Arrays of a quantity by name, Kronecker factors one by one."""
    arrays = {}
    for name, value in values.items():
        parts = {"/A": value.A, "/B": value.B} if isinstance(value, q.Kronecker) else {"": value}
        arrays |= {name + suffix: part for suffix, part in parts.items() if part is not None}
    return arrays


def assert_same(one, other, tolerance=1e-12):
    """Two results of the same quantities agree to rounding in everything."""
    pairs = [({"loss": one.loss, "output": one.output}, {"loss": other.loss, "output": other.output})]
    pairs += [(one.gradient, other.gradient), *zip(map(flat, one.values), map(flat, other.values), strict=True)]
    for got, want in pairs:
        assert set(got) == set(want)
        wrong = {name: relative_error(got[name], want[name]) for name in want}
        assert {name: error for name, error in wrong.items() if not error <= tolerance} == {}


# ------------------------------------------------------------------------------------------------------- counting calls


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
        def noted(*arguments):
            note(name, *arguments)
            return method(*arguments)

        return noted

    def _multiplied(self, name, saved, mat):
        if not self.averaging:
            self.columns.append((name, mat.shape[0]))

    def _averaged(self, method):
        def average(*arguments):
            self.averaging = True
            result = method(*arguments)
            self.averaging = False
            return result

        return average


def counted(*quantities, **options):
    counter = Counted(images())
    gb.backward(counter.network, CE, X, Y, *quantities, rng=0, **options)
    return counter


def test_all_ten_quantities_take_one_sweep():
    counter = counted(*(kind() for kind in TEN))
    assert [name for name, _ in counter.columns] == ABOVE
    assert len(counter.forwards) == 12


@pytest.mark.parametrize("kind", TEN)
def test_each_quantity_takes_one_sweep(kind):
    assert [name for name, _ in counted(kind()).columns] == ABOVE


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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("training", [False, True])
def test_packed_is_separate(dtype, training):
    network, x = images(dtype), X.astype(dtype)
    packed = gb.backward(network, CE, x, Y, *(kind() for kind in TEN), rng=6, training=training)
    for kind, values in zip(TEN, packed.values, strict=True):
        alone = gb.backward(network, CE, x, Y, kind(), rng=6, training=training)
        assert relative_error(alone.output, packed.output) == 0
        assert {name: value.dtype.name for name, value in flat(values).items()} == dict.fromkeys(flat(values), dtype)
        for name, value in flat(alone.values[0]).items():
            assert relative_error(flat(values)[name], value) <= (1e-12 if dtype == "float64" else 1e-5), (kind, name)


def test_the_order_of_the_quantities_does_not_matter():
    asked = [kind() for kind in TEN]
    forth, back = gb.backward(images(), CE, X, Y, *asked, rng=1), gb.backward(images(), CE, X, Y, *asked[::-1], rng=1)
    for quantity in asked:
        for name, value in flat(forth[quantity]).items():
            assert relative_error(flat(back[quantity])[name], value) <= 1e-12


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


# --------------------------------------------------------------------------------------------------------------- blocks

SAMPLES = [{"sample_block": n} for n in (1, 2, N, 99)]
COLUMNS = [{"column_block": v} for v in (1, 2, 7, 999)]
THREADS = [{"workers": w} for w in (1, 2, 99)]
MIXED = [{"sample_block": 2, "column_block": 3, "workers": 2}]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", SAMPLES + COLUMNS + THREADS + MIXED, ids=str)
def test_blocks_change_nothing(options, training):
    asked = [kind() for kind in TEN if kind is not q.KFRA] + [q.BatchDiagGGN(), q.BatchDiagHessian(), q.KFAC(4)]
    if "column_block" in options and len(options) == 1:
        asked.append(q.KFRA())
    network = images()
    whole, cut = (gb.backward(network, CE, X, Y, *asked, rng=3, training=training, **some) for some in ({}, options))
    assert_same(cut, whole)


@pytest.mark.parametrize("loss", [MSE, losses.BCEWithLogitsLoss("sum")], ids=repr)
def test_blocks_do_not_change_the_draws_of_other_losses(loss):
    y = RNG.random((N, C))
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
    """What dropout makes of ones."""
    ones = np.ones((n, features))
    return gb.backward(layers.Dropout(p), MSE, ones, ones, rng=seed, training=True).output


def test_dropout_in_training_is_a_fixed_mask():
    linear = [layers.Linear(3, 4), layers.Linear(4, C)]
    network = gb.Sequential(linear[0], layers.Dropout(0.4), layers.Sigmoid(), linear[1], rng=0, dtype="float64")
    x = RNG.standard_normal((N, 3))
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
    x = RNG.standard_normal((N, 4))
    for options in ({}, {"rng": 1}):
        np.testing.assert_array_equal(gb.backward(layers.Dropout(0.9), MSE, x, x, **options).output, x)


def test_two_dropouts_draw_different_masks():
    network = gb.Sequential(layers.Dropout(0.5), layers.Dropout(0.5))
    ones = np.ones((50, 20))
    once = gb.backward(gb.Sequential(layers.Dropout(0.5)), MSE, ones, ones, rng=0, training=True).output
    twice = gb.backward(network, MSE, ones, ones, rng=0, training=True).output
    assert (set(np.unique(once)), set(np.unique(twice))) == ({0, 2}, {0, 4})
    assert 0.15 < (twice > 0).mean() < 0.35
