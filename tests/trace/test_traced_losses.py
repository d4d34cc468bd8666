"""Losses written as NumPy functions: the kit's checks, losses that exist, draws, and what has no root."""

import numpy as np
import pytest
from common import in_turn

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.recording.refused import MixedSamplesError, NonConvexLossError
from gbackprop.testing import check_loss

RNG = np.random.default_rng(0)
OUTPUT, LABELS = RNG.standard_normal((5, 4)), RNG.integers(4, size=5)


def cross_entropy(f, y):
    z = f - f.max(1, keepdims=True)
    return -(z - np.log(np.exp(z).sum(1, keepdims=True)))[np.arange(len(y)), y]


def unshifted(f, y):
    return np.log(np.exp(f).sum(1)) - f[np.arange(len(y)), y]


def along(f, y):
    z = f - f.max(1)[:, None]
    z = z - np.log(np.exp(z).sum(1))[:, None]
    return -np.take_along_axis(z, y[:, None], axis=1)[:, 0]


def drawn(f, uniform):
    p = np.exp(f - f.max(1, keepdims=True))
    return (np.cumsum(p / p.sum(1, keepdims=True), 1) < uniform[:, :1]).sum(1)


def squares(f, y):
    return ((f - y) ** 2).mean((1, 2))


def cauchy(f, y):
    return np.log1p((f - y) ** 2).sum(1)


def matrix(f, y):
    """Outputs that meet: the squared distance of a product."""
    a, b = f[:, :4].reshape(-1, 2, 2), f[:, 4:].reshape(-1, 2, 2)
    return ((a @ b - y) ** 2).sum((1, 2)) + np.exp(f).prod(1) ** 0.1


CASES = {
    "cross entropy": (cross_entropy, OUTPUT, LABELS, drawn), "along an axis": (along, OUTPUT, LABELS, drawn),
    "squares": (squares, RNG.standard_normal((3, 2, 2)), RNG.standard_normal((3, 2, 2)), None),
    "near its minimum": (cauchy, 0.3 * OUTPUT, np.zeros((5, 4)), None),
}  # fmt: skip


@pytest.mark.parametrize(("name", "reduction"), in_turn([(name,) for name in CASES], ["mean", "sum"]))
def test_by_the_kit(name, reduction):
    function, output, target, sampler = CASES[name]
    loss = gb.trace_loss(function, output[:1], target[:1], reduction=reduction, sampler=sampler)
    if name != "near its minimum":  # there is no root further away, where the kit looks, too
        check_loss(loss, output, target, reference=function).assert_ok()
    assert repr(loss) == f"TracedLoss({reduction!r}, {function.__name__})"


def test_against_a_loss_that_exists():
    network = gb.Sequential(layers.Linear(3, 5), layers.Tanh(), layers.Linear(5, 4), rng=0, dtype="float64")
    x = np.random.default_rng(1).standard_normal((5, 3))
    traced = gb.trace_loss(cross_entropy, network(x), LABELS, sampler=drawn)
    asked = (q.BatchGrad(), q.DiagGGN(), q.DiagHessian(), q.KFLR(), q.KFRA())
    for call in (gb.reference, gb.backward):
        one, two = (call(network, loss, x, LABELS, *asked) for loss in (traced, losses.CrossEntropyLoss()))
        for name in ("batch_grad", "diag_ggn", "diag_hessian"):
            for key in network.parameters:
                np.testing.assert_allclose(one[name][key], two[name][key], rtol=1e-12, atol=1e-15)
    draws = gb.backward(network, traced, x, LABELS, q.DiagGGNMC(mc_samples=1000), rng=0)["diag_ggn_mc"]
    for key, value in draws.items():
        np.testing.assert_allclose(value, one["diag_ggn"][key], rtol=0.3, atol=3e-3)


@pytest.mark.parametrize("function", [cauchy, matrix])
def test_derivatives_where_it_is_not_convex(function):
    rng, shapes = np.random.default_rng(2), ((3, 8), (3, 2, 2)) if function is matrix else ((3, 4), (3, 4))
    f, y = (2 * rng.standard_normal(shape) for shape in shapes)
    loss = gb.trace_loss(function, f, y)
    step, unit = 1e-6, np.eye(f.shape[1])
    slope = [(function(f + step * e, y) - function(f - step * e, y)) / (2 * step) for e in unit]
    bend = [(loss.gradients(f + step * e, y) - loss.gradients(f - step * e, y)) / (2 * step) for e in unit]
    np.testing.assert_allclose(loss.gradients(f, y), np.stack(slope, 1), atol=1e-7, rtol=1e-7)
    np.testing.assert_allclose(loss.hessian(f, y), np.stack(bend, 1), atol=1e-7, rtol=1e-7)
    np.testing.assert_allclose(loss.hessian_sum(f, y), loss.hessian(f, y).sum(0))
    with pytest.raises(NonConvexLossError, match=r"the Hessian of sample \d has the eigenvalue -\d"):
        loss.hessian_sqrt(f, y)
    network = gb.Sequential(layers.Linear(2, f.shape[1]), rng=0, dtype="float64")
    assert gb.backward(network, loss, f[:, :2], y, q.BatchGrad()).gradient["0.weight"].any()
    with pytest.raises(NonConvexLossError, match="no real root"):
        gb.backward(network, gb.trace_loss(function, f, y), 9 * f[:, :2], y, q.DiagGGN())


def test_without_a_sampler_there_are_no_draws():
    network = gb.Sequential(layers.Linear(3, 4), rng=0, dtype="float64")
    loss = gb.trace_loss(cross_entropy, OUTPUT, LABELS)
    with pytest.raises(gb.UnsupportedError, match=r"no Monte-Carlo draws .* it was traced without a sampler"):
        gb.backward(network, loss, OUTPUT[:, :3], LABELS, q.DiagGGNMC(), rng=0)


@pytest.mark.parametrize("wrong", [lambda f, uniform: uniform, lambda f, uniform: drawn(f, uniform).tolist()])
def test_targets_that_a_sampler_draws_have_the_shape_of_targets(wrong):
    network = gb.Sequential(layers.Linear(3, 4), rng=0, dtype="float64")
    loss = gb.trace_loss(cross_entropy, OUTPUT, LABELS, sampler=wrong)
    with pytest.raises(ValueError, match=r"sampler: expected targets of shape \(5,\), got "):
        gb.backward(network, loss, OUTPUT[:, :3], LABELS, q.DiagGGNMC(mc_samples=1), rng=0)


@pytest.mark.parametrize(("function", "output", "target", "kind", "words"), [
    (lambda f, y: ((f - y) ** 2).mean(), OUTPUT, OUTPUT, MixedSamplesError, "np.mean gives shape"),
    (lambda f, y: (f - y) ** 2, OUTPUT, OUTPUT, MixedSamplesError, r"expected one loss for each sample, shape \(N,\)"),
    (cross_entropy, OUTPUT, LABELS[:3], TypeError, r"target: expected an array \(5, …\)"),
])  # fmt: skip
def test_what_is_no_loss_of_each_sample(function, output, target, kind, words):
    with pytest.raises(kind, match=words):
        gb.trace_loss(function, output, target)


def test_targets_and_outputs_are_checked():
    loss = gb.trace_loss(cross_entropy, OUTPUT, LABELS)
    with pytest.raises(TypeError, match="expected integers, got float64"):
        loss(OUTPUT, LABELS.astype(float))
    for wrong in (4, -5):
        with pytest.raises(ValueError, match=f"target of TracedLoss.*got index {wrong} is out of bounds"):
            loss(OUTPUT, np.array([0, 1, wrong, 2, 3]))
    with pytest.raises(ValueError, match=r"expected outputs \(N, 4\) as traced"):
        loss(OUTPUT[:, :2], LABELS)
    assert loss(OUTPUT.astype("float32"), LABELS).dtype == "float32"


def test_targets_of_int32_may_be_computed_with():
    output, target = np.random.default_rng(0).standard_normal((4, 3)), np.array([1, 3, 2, 1], np.int32)
    loss = gb.trace_loss(lambda f, y: f[np.arange(len(y)), y - 1] ** 2, output, target)
    np.testing.assert_allclose(loss(output, target), (output[np.arange(4), target - 1] ** 2).mean())


def test_rounding_of_large_curvatures_is_no_negative_one():
    """The Hessian of a convex loss has eigenvalues of −1e-12 beside those of 1e4."""
    loss = gb.trace_loss(lambda f, y: 1e4 * cross_entropy(f, y), OUTPUT[:1], LABELS[:1])
    root = loss.hessian_sqrt(OUTPUT, LABELS)
    want = 1e4 * np.einsum("vni,vnj->nij", *[losses.CrossEntropyLoss().hessian_sqrt(OUTPUT, LABELS)] * 2)
    np.testing.assert_allclose(np.einsum("vni,vnj->nij", root, root), want, atol=1e-9)


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float64", "float32"), ("float32", "float64")], ids=" ".join
)
@pytest.mark.parametrize("size", [1.0, 400.0])
def test_outputs_and_targets_may_be_of_float32(dtypes, size):
    f, y = (size * RNG.standard_normal((3, 4)).astype(dtype) for dtype in dtypes)
    loss = gb.trace_loss(cauchy, f, y)
    want = cauchy(f.astype("float64"), y.astype("float64"))
    np.testing.assert_allclose(loss.values(f.astype("float64"), y.astype("float64")), want, rtol=1e-12)
    np.testing.assert_allclose(loss.values(f, y.astype(f.dtype)), want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weight", [1.0, 1e-6])
def test_small_curvature_below_zero_has_no_root_either(dtype, weight):
    """The Hessian is diag 2 (1 − r²) / (s (1 + r²))², r = (f − y) / s: −6e-6 at its least for s = 200."""
    loss = gb.trace_loss(lambda f, y: weight * cauchy(f / 200, y / 200), OUTPUT, OUTPUT)
    f, y = (400 * RNG.standard_normal((2, 3, 4))).astype(dtype)
    assert ((f - y) ** 2).max() > 2 * 200**2
    assert abs(loss.hessian(f, y)).max() < 1e-4 * weight
    with pytest.raises(NonConvexLossError, match="no real root"):
        loss.hessian_sqrt(f, y)
    near = y + np.float32(0.1) * (f - y)
    root = loss.hessian_sqrt(near.astype(dtype), y)
    got, want = np.einsum("vni,vnj->nij", root, root), loss.hessian(near.astype(dtype), y)
    np.testing.assert_allclose(got, want, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weight", [1.0, 1e4, 1e-12])
def test_rounding_of_sure_classes_is_no_curvature_below_zero(dtype, weight):
    loss = gb.trace_loss(lambda f, y: weight * cross_entropy(f, y), OUTPUT, LABELS)
    for size in (5, 15, 20, 30, 50, 80):
        for _ in range(10):
            root = loss.hessian_sqrt((size * RNG.standard_normal((5, 4))).astype(dtype), LABELS)
            assert np.isfinite(root).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [cross_entropy, unshifted, lambda f, y: np.log(np.cosh(f - y[:, None])).sum(1)])
@pytest.mark.parametrize("size", [10, 20, 30])
def test_rounding_is_no_curvature_below_zero_in_large_batches_either(function, size, dtype):
    loss, rng = gb.trace_loss(function, OUTPUT, LABELS), np.random.default_rng(0)
    for _ in range(40):
        output = (size * rng.standard_normal((64, 4))).astype(dtype)
        root = loss.hessian_sqrt(output, rng.integers(0, 4, 64))
        assert np.isfinite(root).all()


@pytest.mark.parametrize("label", range(4))
def test_labels_are_not_moved_where_rounding_is_measured(label):
    labels = np.full(5, label)
    concave = gb.trace_loss(lambda f, y: -(f[np.arange(len(y)), y] ** 2), OUTPUT, np.array([0, 1, 2, 3, 0]))
    with pytest.raises(NonConvexLossError, match="sample 0 has the eigenvalue -2"):
        concave.hessian_sqrt(OUTPUT, labels)


@pytest.mark.parametrize(("dtype", "epsilon"), [("float32", 1e-5), ("float64", 1e-9)])
def test_little_curvature_below_zero_is_no_rounding(dtype, epsilon):
    """The Hessian is [[1, 1 + ε], [1 + ε, 1]], with the eigenvalue −ε."""
    loss = gb.trace_loss(lambda f, y: (f**2).sum(1) / 2 + (1 + epsilon) * f[:, 0] * f[:, 1], OUTPUT[:, :2], LABELS)
    with pytest.raises(NonConvexLossError, match=f"eigenvalue -{epsilon:.0e}"):
        loss.hessian_sqrt(OUTPUT[:, :2].astype(dtype), LABELS)


@pytest.mark.parametrize("output", [np.array([[45, 44]], "float32"), np.array([[45, 0]], "float32"), [[340.0, 339]]])
def test_exponentials_whose_squares_overflow_have_the_right_curvature(output):
    output, label = np.asarray(output), np.array([0])
    loss, want = gb.trace_loss(unshifted, OUTPUT[:, :2], LABELS // 2), losses.CrossEntropyLoss()
    root = want.hessian_sqrt(output.astype("float64"), label)
    np.testing.assert_allclose(loss.hessian(output, label)[0], (root[:, 0].T @ root[:, 0]), atol=1e-15, rtol=1e-6)
    assert loss.hessian(output, label).dtype == output.dtype


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e-6), ("float32", 1e-4), ("float64", 1e-2)])
def test_curvature_of_one_sample_or_output_hides_no_other_below_zero(dtype, scale):
    """The curvature of the one is 2 / scale², of the other −0.16."""

    def scaled(f, y):
        return np.log1p(((f - y[..., 0]) / y[..., 1]) ** 2).sum(1)

    near, far = [0.0, scale], [3.0, 1.0]
    for f, y in ((np.zeros((2, 1)), [[near], [far]]), (np.zeros((1, 2)), [[near, far]])):
        loss = gb.trace_loss(scaled, f, np.ones((*f.shape, 2)))
        with pytest.raises(NonConvexLossError, match=r"eigenvalue -0\.16"):
            loss.hessian_sqrt(f.astype(dtype), np.array(y, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("of_square", [0, 1])
def test_a_product_of_outputs_has_no_root_whatever_its_size(dtype, size, of_square):
    """The Hessian is [[2 c a, c], [c, 0]]."""

    def product(f, y):
        return size * (f[:, 0] * f[:, 1] + of_square * f[:, 0] ** 2) * y

    loss = gb.trace_loss(product, OUTPUT[:, :2], OUTPUT[:, 0])
    assert loss.hessian(OUTPUT[:, :2].astype(dtype), np.ones(5, dtype)).any()
    with pytest.raises(NonConvexLossError, match="no real root"):
        loss.hessian_sqrt(OUTPUT[:, :2].astype(dtype), np.ones(5, dtype))


def test_a_steep_term_hides_no_curvature_below_zero():
    loss = gb.trace_loss(lambda f, y: 1e14 * np.exp(f[:, 0]) + np.cos(f[:, 1]) * y, np.full((1, 2), -40.0), np.ones(1))
    with pytest.raises(NonConvexLossError, match="eigenvalue -1"):
        loss.hessian_sqrt(np.array([[-40.0, 0.0]]), np.ones(1))


def below_zero(condition):
    """−2 in the Hessian's diagonal where the condition holds, 4 elsewhere, and 0.5 everywhere."""
    return lambda f, y: (np.where(condition(f), -(f**2), 2 * f**2) + (f - y) ** 2 / 4).sum(1)


@pytest.mark.parametrize("condition", [
    lambda f: f == f.max(1, keepdims=True), lambda f: f >= f.max(1, keepdims=True),
    lambda f: ~(f < f.max(1, keepdims=True)), lambda f: np.exp(f) == np.exp(f).max(1)[:, None],
    lambda f: f == np.clip(f, -1, 1), lambda f: f / 3 == np.minimum(f / 3, f[:, :1] / 3),
    lambda f: np.linalg.norm(f[..., None] - np.clip(f, -1, 1)[..., None], axis=2) == 0,
])  # fmt: skip
def test_conditions_on_equal_numbers_hide_no_curvature_below_zero(condition):
    """They hold, or do not, where rounding is measured as they do in the function."""
    loss = gb.trace_loss(below_zero(condition), OUTPUT, OUTPUT)
    holds = condition(OUTPUT)
    assert 0 < holds.sum() < holds.size
    want = np.where(holds, -1.5, 4.5)[..., None] * np.eye(4)
    np.testing.assert_allclose(loss.hessian(OUTPUT, OUTPUT), want, atol=1e-14)
    network = gb.Sequential(layers.Linear(4, 4), rng=0, dtype="float64")
    network.parameters.load({"0.weight": np.eye(4), "0.bias": np.zeros(4)})
    for quantity in (q.DiagHessian(), q.DiagGGN(), q.KFLR()):
        with pytest.raises(NonConvexLossError, match=r"eigenvalue -1\.5"):
            gb.backward(network, loss, OUTPUT, OUTPUT, quantity)


def test_shares_of_equal_numbers_hide_no_curvature_below_zero():
    loss = gb.trace_loss(lambda f, y: f[:, 0] ** 2 - np.exp(f).max(1) ** 2, OUTPUT[:, :2], OUTPUT)
    output, e = np.full((1, 2), 0.3), np.exp(0.6)  # each number has half of the largest's derivative
    want = [[2 - 1.5 * e, -0.5 * e], [-0.5 * e, -1.5 * e]]
    np.testing.assert_allclose(loss.hessian(output, OUTPUT[:1])[0], want, atol=1e-14)
    with pytest.raises(NonConvexLossError, match="no real root"):
        loss.hessian_sqrt(output, OUTPUT[:1])


@pytest.mark.parametrize(("function", "output", "hessian"), [
    (lambda f, y: f.max(1) ** 2, [[0.3, 0.3]], [[0.5, 0.5], [0.5, 0.5]]),
    (lambda f, y: (np.maximum(0, 1 - f) ** 2).sum(1), [[1.0, 0.5]], [[0, 0], [0, 2]]),
    (lambda f, y: np.abs(f - y).sum(1) + (f * f).sum(1), [[0.7, -1.0]], [[2, 0], [0, 2]]),
    (lambda f, y: np.where(f == f.max(1)[:, None], f**2, 3 * f**2).sum(1), [[0.7, -1.0]], [[2, 0], [0, 6]]),
    (lambda f, y: np.log(np.exp(f - f.max(1)[:, None]).sum(1)) + f.max(1), [[50.0, 50.0]],
     [[0.25, -0.25], [-0.25, 0.25]]),
])  # fmt: skip
def test_convex_losses_with_ties_have_their_roots(function, output, hessian):
    loss, target = gb.trace_loss(function, OUTPUT[:, :2], OUTPUT[:, :2]), np.array([[0.7, 2.0]])
    root = loss.hessian_sqrt(np.array(output), target)
    np.testing.assert_allclose(np.einsum("vni,vnj->ij", root, root), hessian, atol=1e-12)


@pytest.mark.parametrize("choose", [
    lambda log_p, y: log_p[np.arange(len(y)), y], lambda log_p, y: np.take_along_axis(log_p, y[:, None], 1)[:, 0],
])  # fmt: skip
def test_a_class_of_probability_zero_leaves_the_loss_of_another_as_it_is(choose):
    def function(f, y):
        p = np.exp(f - f.max(1, keepdims=True))
        return -choose(np.log(p / p.sum(1, keepdims=True)), y)

    loss = gb.trace_loss(function, OUTPUT, LABELS)
    output, label = np.array([[0.0, -800, 1, 2], [800, 0, 0, 0]]), np.array([3, 0])
    with np.errstate(divide="ignore"):
        want = function(output, label)
        assert np.isfinite(want).all()
        np.testing.assert_allclose(loss.values(output, label), want, rtol=1e-14)
        assert loss.values(output, label[::-1]).tolist()[1] == np.inf
