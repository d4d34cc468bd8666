"""Weights of samples: L = R Σₙ wₙ ℓₙ, in every quantity wₙ ℓₙ in place of ℓₙ."""

import inspect
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.losses.sample_weights import Targets, Weighted
from gbackprop.quantities import Kronecker
from gbackprop.testing.errors import largest_error, relative_error
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.oracles import Dense
from gbackprop.testing.setting import on_host
from gbackprop.testing.strategies import problems, targets

N, C = 5, 3
W = np.array([0.0, 2.0, 0.3, 1.0, 4.5])
X = np.random.default_rng(0).standard_normal((N, 1, 4, 4))
KINDS = [losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss]
EXACT = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN()]
EXACT += [q.DiagHessian(), q.BatchDiagHessian(), q.KFLR(), q.KFRA(), q.GramGradients(), q.GramGGN()]
OTHERS = [q.KFAC(fisher="empirical", sharing="expand"), q.EKFAC(fisher="exact"), q.NearestKronecker("exact")]


class Scaled(losses.Loss):
    """The definition: wₙ ℓₙ for the whole batch, as a loss that the oracles differentiate."""

    def __init__(self, of, w):
        super().__init__(of.reduction)
        self.of, self.w = of, w

    def __getattribute__(self, name):
        own = ("of", "w", "values", "gradients", "hessian_sqrt", "reduction", "unweighted", "weighted")
        if name in own or name[:2] == "__":
            return super().__getattribute__(name)
        return getattr(super().__getattribute__("of"), name)

    weighted = True  # Monte-Carlo columns are weighed by the diagonals of the Hessians, with weights and without

    def unweighted(self):
        return self.of.unweighted()

    def values(self, output, target):
        return self.w * self.of.values(output, target)

    def gradients(self, output, target):
        return np.einsum("n,n...->n...", self.w, self.of.gradients(output, target))

    def hessian_sqrt(self, output, target, columns=slice(None)):
        return np.einsum("n,vn...->vn...", np.sqrt(self.w), self.of.hessian_sqrt(output, target, columns))


def network(dtype="float64"):
    chain = [layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.MaxPool2d(3), layers.Flatten(), layers.Linear(2, C)]
    return gb.Sequential(*chain, rng=0, dtype=dtype)


def arrays(values):
    """All arrays of a quantity, by parameter; approximations by eigenvectors as matrices, as these are not unique.

    Numbers below 1e-17 are the rounding of a zero of numbers of size 1, and are zero.
    """
    found = {}
    for name, value in values.items():
        factors = {"A": value.A, "B": value.B} if isinstance(value, Kronecker) else {"": value}
        found |= {(name, key): getattr(part, "to_dense", lambda part=part: part)() for key, part in factors.items()}
    return {key: np.where(abs(part) < 1e-17, 0, part) for key, part in found.items() if part is not None}


def errors(got, want):
    """The largest relative error of the loss, the gradient and each quantity."""
    found = {"loss": relative_error(got.loss, want.loss), "gradient": largest_error(got.gradient, want.gradient)}
    for (key, mine), values in zip(got.items(), want.values, strict=True):
        found[key] = largest_error(arrays(mine), arrays(values))
    return found


def assert_same(got, want, tolerance=1e-11):
    assert {key: error for key, error in errors(got, want).items() if not error <= tolerance} == {}


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_quantity_is_its_definition_with_each_loss_multiplied_by_its_weight(kind, reduction, call):
    loss, net = kind(reduction), network()
    y = targets(loss, (N, C), 0)
    drawn = loss.draw(net.forward(X)[0], 2, rng=0)
    result = call(net, loss, X, y, *EXACT, q.DiagGGNMC(2, drawn), q.KFAC(2, drawn), sample_weight=W)
    want = Dense(net, Scaled(loss, W), X, y, drawn)
    found = {quantity.name: largest_error(result[quantity], want[quantity.name]) for quantity in result.quantities}
    found["gradient"] = largest_error(result.gradient, want["gradient"])
    found["loss"] = relative_error(result.loss, loss.factor(N, y) * (W * loss.values(result.output, y)).sum())
    assert {key: error for key, error in found.items() if not error <= 1e-10} == {}
    assert (result.scale.batch, result.scale.factor) == (N, loss.factor(N, y))
    assert result.objective is loss


def test_quantities_of_several_sweeps_have_the_weights_in_each():
    loss, net = losses.MSELoss(), network()
    y = targets(loss, (N, C), 0)
    result = gb.backward(net, loss, X, y, *OTHERS, sample_weight=W)
    assert_same(result, gb.backward(net, Scaled(loss, W), X, y, *OTHERS))
    assert_same(result, gb.reference(net, loss, X, y, *OTHERS, sample_weight=W))
    assert not errors(result, gb.backward(net, loss, X, y, *OTHERS))["ekfac"] < 0.1


def test_weighted_labels_and_smoothing_keep_their_r_of_the_batch():
    loss = losses.CrossEntropyLoss(weight=np.array([0.5, 2.0, 3.0]), label_smoothing=0.1)
    net, y = network(), np.array([0, 1, 2, 2, 1])
    result = gb.backward(net, loss, X, y, *EXACT, q.KFAC(2), sample_weight=W, rng=0)
    assert result.scale.factor == pytest.approx(1 / 10.5)
    assert_same(result, gb.reference(net, loss, X, y, *EXACT, q.KFAC(2), sample_weight=W, rng=0))
    want = Dense(net, Scaled(loss, W), X, y)
    assert largest_error(result["diag_hessian"], want["diag_hessian"]) < 1e-10


@given(problem=problems() | graph_problems(), data=st.data())
@settings(max_examples=10)
def test_any_weights_scale_each_sample_s_loss(problem, data):
    n = len(problem.x)
    w = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 1e3), min_size=n, max_size=n)))
    asked = [q.BatchGrad(), q.Variance(), q.DiagHessian(), *([] if problem.loss.undrawn else [q.DiagGGNMC(2)])]
    given = (problem.network, problem.loss, problem.x, problem.y)
    options = {"sample_block": data.draw(st.integers(1, 3)), "column_block": data.draw(st.none() | st.integers(1, 3))}
    got = gb.backward(*given, *asked, rng=0, sample_weight=w, **options)
    plain = gb.reference(*given, *asked, rng=0)
    for name, each in got["batch_grad"].items():
        want = np.einsum("n,n...->n...", w, plain["batch_grad"][name])
        np.testing.assert_allclose(each, want, rtol=1e-9, atol=1e-12 * max(1.0, np.abs(want).max()))
    assert_same(got, gb.reference(*given, *asked, rng=0, sample_weight=w), 1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_whole_weights_repeat_samples(reduction):
    loss, net, times = losses.CrossEntropyLoss(reduction), network(), np.array([2, 0, 1, 3, 1])
    y = targets(loss, (N, C), 0)
    many = np.repeat(np.arange(N), times)
    asked = [q.DiagGGN(), q.DiagHessian()]
    got = gb.backward(net, loss, X, y, *asked, sample_weight=times.astype(float))
    want = gb.backward(net, loss, X[many], y[many], *asked)
    ratio = got.scale.factor / want.scale.factor  # 1/N is of the samples, repeated or not
    assert relative_error(got.loss, want.loss * ratio) < 1e-13
    for mine, theirs in zip([got.gradient, *got.values], [want.gradient, *want.values], strict=True):
        assert largest_error(mine, {name: value * ratio for name, value in theirs.items()}) < 1e-12


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_one_change_no_bit(kind, dtype):
    loss, net, x = kind(), network(dtype), X.astype(dtype)
    y = targets(loss, (N, C), 0)
    y = y.astype(dtype) if y.dtype.kind == "f" else y
    asked = [*EXACT, q.KFAC(2), q.DiagGGNMC()]
    for call in (gb.backward, gb.reference):
        plain = call(net, loss, x, y, *asked, rng=0)
        got = call(net, loss, x, y, *asked, rng=0, sample_weight=np.ones(N, dtype))
        for mine, theirs in zip([got.gradient, *got.values], [plain.gradient, *plain.values], strict=True):
            for name, value in arrays(theirs).items():
                np.testing.assert_array_equal(arrays(mine)[name], value, strict=True)
        assert got.loss == plain.loss
        assert got.output.dtype == dtype


CUTS = [{"sample_block": 1}, {"sample_block": 2, "workers": 2}, {"column_block": 2}]


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_blocks_and_threads_have_their_rows_of_the_weights(options):
    loss, net = losses.CrossEntropyLoss(), network()
    y = targets(loss, (N, C), 0)
    asked = [each for each in EXACT if not isinstance(each, q.KFRA | q.GramGGN | q.GramGradients)] + [q.KFAC(2)]
    got = gb.backward(net, loss, X, y, *asked, rng=0, sample_weight=W, **options)
    assert_same(got, gb.reference(net, loss, X, y, *asked, rng=0, sample_weight=W))


def test_prepared_calls_serve_with_weights_and_without(monkeypatch):
    loss, net = losses.CrossEntropyLoss(), network()
    y, call = targets(loss, (N, C), 0), gb.prepare(net, loss, q.DiagGGN())
    for w in (W, None, 2 * W):
        given = {} if w is None else {"sample_weight": w}
        got = call(X, y, **given)
        want = gb.reference(net, loss, X, y, q.DiagGGN(), **given)
        assert_same(got, want, 1e-13)
        # none but the first makes a plan
        monkeypatch.setattr(sys.modules["gbackprop.engine.backward"], "make_plan", None)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_merged_batches_of_different_sizes_are_one_call(reduction):
    loss, net = losses.CrossEntropyLoss(reduction), network()
    y = targets(loss, (N, C), 0)
    asked = [each for each in EXACT if not isinstance(each, q.KFRA | q.GramGGN | q.GramGradients)]
    parts = [slice(0, 1), slice(1, 2), slice(2, 5)]  # the first has weight 0 alone
    whole = gb.backward(net, loss, X, y, *asked, sample_weight=W)
    results = (gb.backward(net, loss, X[rows], y[rows], *asked, sample_weight=W[rows]) for rows in parts)
    assert_same(gb.data.merge(results), whole)
    batches = [(X[rows], y[rows], W[rows]) for rows in parts]
    assert_same(gb.accumulate(net, loss, batches, *asked, workers=2), whole)


def test_a_checkpoint_knows_the_weights(tmp_path):
    loss, net = losses.CrossEntropyLoss(), network()
    y = targets(loss, (N, C), 0)
    path = tmp_path / "state.npz"
    first = gb.accumulate(net, loss, [(X, y, W)], executor="serial", checkpoint=path)
    assert_same(gb.accumulate(net, loss, [(X, y, W)], executor="serial", checkpoint=path), first, 0)
    with pytest.raises(ValueError, match="the checkpoint is of other data: batch 0 differs"):
        gb.accumulate(net, loss, [(X, y, 2 * W)], executor="serial", checkpoint=path)


def test_a_sample_of_weight_0_counts_0_also_where_its_loss_is_infinite():
    net = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float32")
    net.parameters["0.weight"] = np.array([[1e6, 1e6]], "float32")
    x, y = np.array([[1e15, 1e15], [1.0, 2.0]], "float32"), np.zeros((2, 1), "float32")
    asked, w = [q.DiagGGN(), q.BatchGrad()], np.array([0.0, 3.0], "float32")
    with np.errstate(over="ignore", invalid="ignore"):
        assert gb.backward(net, losses.MSELoss("sum"), x, y).loss == np.inf
        got = gb.backward(net, losses.MSELoss("sum"), x, y, *asked, sample_weight=w)
    assert np.isfinite(got["diag_ggn"]["0.weight"]).all()
    alone = gb.backward(net, losses.MSELoss("sum"), x[1:], y[1:], *asked)
    assert got.loss == pytest.approx(3 * alone.loss, rel=1e-6)
    np.testing.assert_allclose(got["diag_ggn"]["0.weight"], 3 * alone["diag_ggn"]["0.weight"], rtol=1e-6)
    np.testing.assert_array_equal(got["batch_grad"]["0.weight"][0], 0)


def test_two_calls_clip_each_sample_s_gradient():
    """Differential privacy: norms, then weights min(1, c/‖∇ℓₙ‖), against gradients that are clipped one by one."""
    loss, net, bound = losses.CrossEntropyLoss("sum"), network(), 1.3
    y = targets(loss, (N, C), 0)
    first = gb.backward(net, loss, X, y, q.BatchL2Grad(), q.BatchGrad())
    norms = np.sqrt(sum(first["batch_l2_grad"].values()))
    clipped = gb.backward(net, loss, X, y, sample_weight=np.minimum(1, bound / norms))
    assert norms.min() < bound < norms.max()
    total = dict.fromkeys(first.gradient, 0.0)
    for n in range(N):
        own = {name: each[n] for name, each in first["batch_grad"].items()}
        norm = np.sqrt(sum((each**2).sum() for each in own.values()))
        total = {name: value + own[name] * min(1, bound / norm) for name, value in total.items()}
    assert largest_error(clipped.gradient, total) < 1e-13


@pytest.mark.parametrize(
    ("w", "error", "message"),
    [
        ([1.0] * N, TypeError, "expected a NumPy or CuPy array, got list"),
        (W.astype("float32"), TypeError, "expected float64 as x is, got float32"),
        (W > 1, TypeError, "expected float64 as x is, got bool"),
        (W[:3], ValueError, r"expected shape \(5,\), a number for each sample, got \(3,\)"),
        (W[:, None], ValueError, r"expected shape \(5,\), .* got \(5, 1\)"),
        (-W, ValueError, "expected finite numbers of at least 0, got -4.5"),
        (W * np.nan, ValueError, "expected finite numbers of at least 0, got nan"),
        (W + np.inf, ValueError, "expected finite numbers of at least 0, got inf"),
        (np.where(np.arange(len(W)) == 0, np.inf, 0.5), ValueError, "expected finite numbers of at least 0, got inf"),
    ],
)
def test_wrong_weights_are_told_before_anything_is_computed(w, error, message, monkeypatch):
    monkeypatch.setattr(layers.Conv2d, "forward", None)
    y = np.zeros(N, int)
    for call in (gb.backward, gb.reference, gb.backward):
        with pytest.raises(error, match=f"^sample_weight: {message}"):
            call(network(), losses.CrossEntropyLoss(), X, y, sample_weight=w)


def test_on_a_device_the_numbers_are_those_of_the_host(gpu):
    loss, net = losses.CrossEntropyLoss(), network()
    y = targets(loss, (N, C), 0)
    asked = [q.DiagHessian(), q.KFAC(2), q.BatchL2Grad(), q.KFRA()]
    here = gb.backward(net, loss, X, y, *asked, rng=0, sample_weight=W)
    net.to("cuda")
    x, labels, w = (gb.asarray(part, "cuda") for part in (X, y, W))
    assert_same(on_host(gb.backward(net, loss, x, labels, *asked, rng=0, sample_weight=w)), here)
    with pytest.raises(TypeError, match=r"^sample_weight: expected an array on cuda:0 as x is, got one on cpu"):
        gb.backward(net, loss, x, labels, sample_weight=W)


def test_wrong_losses_and_targets_are_told_as_without_weights():
    with pytest.raises(TypeError, match=r"^loss: expected a Loss, got 3"):
        gb.backward(network(), 3, X, np.zeros(N, int), sample_weight=W)
    with pytest.raises(TypeError, match=r"^y of CrossEntropyLoss\('mean'\): expected a NumPy or CuPy array, got list"):
        gb.backward(network(), losses.CrossEntropyLoss(), X, [0] * N, sample_weight=W)
    given = q.KFAC(targets=np.full((1, N), 9))
    with pytest.raises(ValueError, match=r"^targets of KFAC\[0\] of CrossEntropyLoss\('mean'\): expected .*got 9"):
        gb.backward(network(), losses.CrossEntropyLoss(), X, np.zeros(N, int), given, sample_weight=W)


def test_all_that_has_targets_has_weights():
    """A method of `Loss` with targets as an argument must be one of `Weighted`, or it would get no plain targets."""
    methods = {name: value for name, value in vars(losses.Loss).items() if inspect.isfunction(value)}
    taking = {name for name, value in methods.items() if "target" in inspect.signature(value).parameters}
    assert taking - {"check_values"} <= set(vars(Weighted))


def test_a_weight_multiplies_the_curvature_of_its_sample():
    f, y, weight = np.ones((3, 2)), np.array([[0.0, 1], [1, 1], [0, 0]]), np.array([2.0, 0.5, 3])
    loss = losses.BCEWithLogitsLoss(weight=np.array([1.0, 4]), pos_weight=np.array([2.0, 1]))
    found = Weighted(loss).curvature_weights(f, Targets(y, weight))
    np.testing.assert_allclose(found, loss.curvature_weights(f, y) * weight[:, None])
    assert losses.Loss.curvature_weights(loss, f, y) == losses.Loss.summed_weight(loss, (2,)) == 1
