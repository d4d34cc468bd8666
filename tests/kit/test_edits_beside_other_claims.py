"""The first proposal is what was meant, where an edit that makes one claim hold breaks another, or leaves it wrong."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers as L
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.signals import GRADIENT
from gbackprop.losses import CrossEntropyLoss
from gbackprop.losses.base import ALL, Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.quantities import Quantity, Statistic
from gbackprop.testing import check_layer, check_loss, check_quantity
from gbackprop.testing.diagnosis import search


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 60)


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape)


def first_words(report):
    """Return the first proposal for the first claim that fails."""
    return report.failures[0].diagnosis[0].words


class Precise(Loss):
    """½ rᵀ P r, of which the root's columns should be those of a Cholesky factor."""

    def precision(self, output):
        return (np.diag([0.5, 1.0, 2.0]) + 0.3).astype(output.real.dtype)

    def target_shape(self, batch_shape):
        if batch_shape[1:] != (3,):
            raise ValueError(f"expected outputs (N, 3), got {batch_shape}")
        return batch_shape

    def check_values(self, name, target, batch_shape, output):
        if target.dtype != output.dtype:
            raise TypeError(f"{name}: expected {output.dtype}, got {target.dtype}")

    def values(self, output, target):
        return (((output - target) @ self.precision(output)) * (output - target)).sum(1) / 2

    def gradients(self, output, target):
        return (output - target) @ self.precision(output)

    def hessian_sqrt(self, output, target, columns=ALL):
        root = np.linalg.cholesky(self.precision(output))
        return np.repeat(root.T[columns][:, None], len(output), axis=1)

    def noise(self, batch_shape, mc_samples, rng):
        return rng.standard_normal((mc_samples, *batch_shape))

    def pseudo_targets(self, output, noise):
        root = np.linalg.cholesky(np.linalg.inv(self.precision(output)))
        return output + noise.astype(output.dtype) @ root.T


class RowsOfTheRoot(Precise):
    def hessian_sqrt(self, output, target, columns=ALL):
        root = np.linalg.cholesky(self.precision(output))
        return np.repeat(root[columns][:, None], len(output), axis=1)


class CovarianceTransposed(Precise):
    def pseudo_targets(self, output, noise):
        root = np.linalg.cholesky(np.linalg.inv(self.precision(output)))
        return output + noise.astype(output.dtype) @ root


def test_an_edit_that_forgets_the_slice_of_columns_is_not_the_first():
    check_loss(Precise(), drawn(4, 3), drawn(4, 3, seed=2)).assert_ok()
    report = check_loss(RowsOfTheRoot(), drawn(4, 3), drawn(4, 3, seed=2))
    said = [row.diagnosis[0].words for row in report.failures if row.method == "hessian_sum"]
    assert said == ["right if `return np.repeat(root[columns][:, None], len(output), axis=1)` were "
                    "`return np.repeat(root.T[columns][:, None], len(output), axis=1)`, in hessian_sqrt"]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_draws_of_a_covariance_that_is_nearly_right_are_noticed(seed):
    """Its entries are off by a tenth: 4096 draws leave that in doubt."""
    report = check_loss(CovarianceTransposed(), drawn(4, 3, seed=seed), drawn(4, 3, seed=2), seed)
    assert [row.method for row in report.failures] == ["hessian_sqrt_mc"]
    check_loss(Precise(), drawn(4, 3, seed=seed), drawn(4, 3, seed=2), seed).assert_ok()


def test_draws_of_a_wrong_covariance_are_edited():
    report = check_loss(CovarianceTransposed(), drawn(4, 3, seed=3), drawn(4, 3, seed=2), 3)
    assert first_words(report) == ("right if `return output + noise.astype(output.dtype) @ root` were "
                                   "`return output + noise.astype(output.dtype) @ root.T`, in pseudo_targets")


class Running(L.Layer):
    """h[t] = a (h[t − 1] + x[t]) of sequences (T, D), forward and back; meant is a h[t − 1] + x[t]."""

    constant_jacobian = True

    def __init__(self):
        self.decay = np.array([0.4, 0.8])

    def output_shape(self, shape):
        if len(shape) != 2 or shape[1] != 2:
            raise ValueError(f"expected (T, 2), got {shape}")
        return shape

    def run(self, x):
        states, h, decay = [], 0 * x[..., 0, :], self.decay.astype(x.real.dtype)
        for t in range(x.shape[-2]):
            h = decay * (h + x[..., t, :])
            states.append(h)
        return np.stack(states, axis=-2)

    def forward(self, x):
        h = self.run(x)
        return h, None

    def jmp(self, saved, mat):
        return self.run(mat)

    def mjp(self, saved, mat):
        return self.run(mat[..., ::-1, :])[..., ::-1, :]


def test_a_function_that_others_call_is_edited_where_an_edit_beside_it_breaks_them():
    def plain(x):
        h, found = 0 * x[:, 0], []
        for t in range(x.shape[1]):
            h = np.array([0.4, 0.8]) * h + x[:, t]
            found.append(h)
        return np.stack(found, 1)

    check_layer(Running(), drawn(3, 4, 2)).assert_ok()
    assert first_words(check_layer(Running(), drawn(3, 4, 2), reference=plain)) == (
        "right if `h = decay * (h + x[..., t, :])` were `h = decay * h + x[..., t, :]`, in run"
    )


class TwoNumbers(L.Layer):
    """α sin(x) + β cos(x), whose Jacobians are exchanged."""

    curvature = "diagonal"
    kronecker_factors = "numbers"

    def parameter_shapes(self):
        return {"alpha": (3,), "beta": (3,)}

    def draw(self, rng):
        return {"alpha": rng.normal(size=3), "beta": rng.normal(size=3)}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected (3,), got {shape}")
        return shape

    def forward(self, x):
        return self.parameters["alpha"] * np.sin(x) + self.parameters["beta"] * np.cos(x), x

    def jmp(self, x, mat):
        return (self.parameters["alpha"] * np.cos(x) - self.parameters["beta"] * np.sin(x)) * mat

    mjp = jmp

    def residual(self, x, grad):
        return -(self.parameters["alpha"] * np.sin(x) + self.parameters["beta"] * np.cos(x)) * grad

    def parameter_jacobians(self, x):
        return {"alpha": Times(np.cos(x)), "beta": Times(np.sin(x))}


class Times(ParameterJacobian):
    def __init__(self, factor):
        self.factor = factor

    def per_sample(self, mat):
        return mat * self.factor


def test_an_edit_that_mends_both_jacobians_comes_before_one_that_mends_one():
    report = check_layer(TwoNumbers(), drawn(3, 3))
    assert {row.method for row in report.failures} >= {"alpha.per_sample", "beta.per_sample"}
    assert first_words(report) == (
        "right if `return {'alpha': Times(np.cos(x)), 'beta': Times(np.sin(x))}` were "
        "`return {'alpha': Times(np.sin(x)), 'beta': Times(np.cos(x))}`, in parameter_jacobians"
    )


class Unit(L.Layer):
    """y = x / ‖x‖, whose derivative has the part along x computed, and not subtracted."""

    curvature = "dense"

    def output_shape(self, shape):
        if len(shape) != 1:
            raise ValueError(f"expected (I,), got {shape}")
        return shape

    def forward(self, x):
        norm = np.sqrt((x * x).sum(1, keepdims=True))
        return x / norm, (x / norm, norm)

    def jmp(self, saved, mat):
        y, norm = saved
        return (mat - y * (y * mat).sum(-1, keepdims=True)) / norm

    def mjp(self, saved, mat):
        y, norm = saved
        along = (y * mat).sum(-1, keepdims=True)  # noqa: F841 — the fault
        return mat / norm


def test_what_is_computed_and_never_read_is_a_term_that_may_be_missing():
    row = next(row for row in check_layer(Unit(), drawn(3, 4)).failures if row.method == "mjp")
    assert row.diagnosis[0].words == "right if `return mat / norm` were `return (mat - along * y) / norm`"


class Swapped(Quantity):
    name, scale = "swapped", "diag(R Jₙᵀ Hₙ Jₙ), summed over the parameter"
    merging = gb.data.Rows()
    needs = (Statistic("batch_square", GRADIENT),)

    def finish(self, scale, squares):
        return squares.reshape(len(squares), -1).sum(1)

    def definition(self, parts):
        j = parts.jacobians.reshape(*parts.jacobians.shape[:2], -1)
        return parts.factor * np.einsum("ncp,ncd,ndp->n", j, parts.hessians, j)


class OfTheMeanAlone(Quantity):
    """Right where R is 1/N."""

    name, scale = "of_the_mean_alone", "Σₙ (∇ℓₙ)²"
    merging = "rows are needed"
    needs = (Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square * scale.batch**2

    def definition(self, parts):
        return (parts.gradients**2).sum(0)


class Powered(Quantity):
    name, scale = "powered", "(Σₙ (R ∇ℓₙ)² + λ)^p"
    merging = "a power"
    p, damping = 0.25, 0.1
    needs = (Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square**self.p + self.damping

    def definition(self, parts):
        return (((parts.factor * parts.gradients) ** 2).sum(0) + 0.1) ** 0.25


@pytest.mark.parametrize(("quantity", "words"), [
    (Swapped, "right if the statistic 'batch_square' of gradient were 'batch_square' of exact"),
    (OfTheMeanAlone, "right if divided by N² · R²"),
    (Powered, "right if `return square ** self.p + self.damping` were `return (square + self.damping) ** self.p`"),
], ids=["statistic", "reduction", "power"])  # fmt: skip
def test_a_quantity_has_what_is_meant_first(quantity, words):
    network = gb.Sequential(L.Linear(3, 4), L.Tanh(), L.Linear(4, 2), rng=1, dtype="float64")
    report = check_quantity(quantity(), network, CrossEntropyLoss(), drawn(5, 3), np.array([0, 1, 1, 0, 1]), 3)
    assert first_words(report) == words


class Weighted(ElementwiseLoss):
    """Σ w (f − y)², with a weight for each output."""

    def __init__(self, reduction="mean", weights=(0.5, 1.0, 3.0)):
        super().__init__(reduction)
        self.weights = np.asarray(weights)

    def w(self, output):
        return self.weights.astype(output.real.dtype)

    def values(self, output, target):
        return self.summed(self.w(output) * (output - target) ** 2)

    def gradients(self, output, target):
        return 2 * self.w(output) * (output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 2 * self.w(output) + 0 * output


class SquareOfSum(Weighted):
    def values(self, output, target):
        return self.summed(self.w(output) * (output - target)) ** 2


def test_an_option_that_has_its_default_in_an_array_is_not_said_to_have_no_effect():
    report = check_loss(SquareOfSum(), drawn(4, 3), drawn(4, 3, seed=2), reference=Weighted().values)
    assert first_words(report) == ("right if `return self.summed(self.w(output) * (output - target)) ** 2` were "
                                   "`return self.summed(self.w(output) * (output - target) ** 2)`")


class Shifted(L.Layer):
    """An option says how large a parameter is, and forward asks the input."""

    def __init__(self, features):
        self.features = features

    def parameter_shapes(self):
        return {"shift": (self.features,)}

    def draw(self, rng):
        return {"shift": rng.normal(size=self.features)}

    def forward(self, x):
        return x + self.parameters["shift"] ** 3, None

    def jmp(self, saved, mat):
        return mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"shift": Times(3 * self.parameters["shift"] ** 2)}


def test_an_option_that_says_how_large_parameters_are_is_not_said_to_have_no_effect():
    report = check_layer(Shifted(3), drawn(4, 3), reference=lambda x: np.floor(x) + np.cos(7 * x[:, ::-1]))
    assert [each.words for each in report.failures[0].diagnosis if "features has no effect" in each.words] == []


class Flipped(L.Layer):
    """A kernel of three numbers along a sequence, padded by one, and read from the other end in mjp."""

    constant_jacobian = True

    def output_shape(self, shape):
        if len(shape) != 1 or shape[0] < 2:
            raise ValueError(f"expected (T,), got {shape}")
        return shape

    def kernel(self, x):
        return np.array([0.3, 1.0, -0.6], dtype=x.real.dtype)

    def forward(self, x):
        return self.jmp(None, x), None

    def jmp(self, saved, mat):
        padded, weight = np.pad(mat, [(0, 0)] * (mat.ndim - 1) + [(1, 1)]), self.kernel(mat)
        return sum(weight[k] * padded[..., k : k + mat.shape[-1]] for k in range(3))

    def mjp(self, saved, mat):
        weight, size = self.kernel(mat), mat.shape[-1]
        full = np.zeros((*mat.shape[:-1], size + 2), dtype=mat.dtype)
        for k in range(3):
            full[..., k : k + size] += mat * weight[2 - k]
        return full[..., 1:-1]


def test_an_index_of_a_kernel_is_named_where_axes_exchanged_would_do():
    report = check_layer(Flipped(), drawn(3, 5))
    assert first_words(report) == ("right if `full[..., k:k + size] += mat * weight[2 - k]` were "
                                   "`full[..., k:k + size] += mat * weight[k]`")


class Wave(L.Elementwise):
    """sin(x)."""

    def value(self, x):
        return np.sin(x)

    def first(self, x, y):
        return np.cos(x)

    def second(self, x, y):
        return -y


@pytest.mark.parametrize("size", [1, 100, 1000])
def test_no_alarm_where_a_smooth_function_bends_over_the_usual_step(size):
    check_layer(Wave(), size * drawn(3, 4)).assert_ok()


class Told(L.Elementwise):
    """sin²(x) + eˣ, of a class that keeps a table of its subclasses; the second derivative lacks a 2."""

    known = {}

    def __init_subclass__(cls):
        if Told.known.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"{cls.__name__} is known")

    def value(self, x):
        return np.sin(x) ** 2 + np.exp(x)

    def first(self, x, y):
        return np.sin(2 * x) + np.exp(x)


class ToldOfTwo(Told):
    def second(self, x, y):
        return np.cos(2 * x) + np.exp(x)


class ToldOfThree(Told):
    @property
    def __class__(self):
        return type(self)

    def second(self, x, y):
        return np.cos(2 * x) + np.exp(x)


@pytest.mark.parametrize("kind", [ToldOfTwo, ToldOfThree])
def test_a_class_is_edited_whose_subclasses_are_kept_in_a_table_or_refused(kind):
    rows = check_layer(kind(), drawn(3, 4)).failures
    assert "`return np.cos(2 * x) + np.exp(x)` were `return 2 * np.cos(2 * x) + np.exp(x)`" in str(rows[0].diagnosis)
    assert Told.known == {"ToldOfTwo": ToldOfTwo, "ToldOfThree": ToldOfThree}
