"""Wrong lines of users' layers, losses, quantities and graphs, unlike those of the table: for the diagnosis alone.

Each is a check of a class with one wrong line, and a part of the words that the first proposal must have.
"""

from functools import partial

import numpy as np
from scipy import special

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop.calculus.signals import EXACT, GRADIENT
from gbackprop.layers import Layer, ParameterJacobian
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.network import Graph
from gbackprop.quantities import Quantity, Statistic
from gbackprop.testing import check_layer, check_loss, check_network, check_quantity


def batch(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def wrong(kind, **methods):
    """Return a class with other methods."""
    return type(f"Wrong{kind.__name__}", (kind,), methods)


def jacobian(name, kind, rule, key="per_sample"):
    """Return a class of which one rule of a parameter's Jacobian is another, a function of layer, input and columns."""

    def parameter_jacobians(self, x):
        found = kind.parameter_jacobians(self, x)
        setattr(found[name], key, lambda *given, **named: rule(self, x, *given, **named))
        return found

    return wrong(kind, parameter_jacobians=parameter_jacobians)


# ------------------------------------------------------------------------------------------------------- activations


class Snake(L.Elementwise):
    """x + sin²(a x) / a."""

    def __init__(self, a=1.5):
        self.a = a

    def value(self, x):
        return x + np.sin(self.a * x) ** 2 / self.a

    def first(self, x, y):
        return 1 + np.sin(2 * self.a * x)

    def second(self, x, y):
        return 2 * self.a * np.cos(2 * self.a * x)


class SnakeWithoutA(Snake):
    def second(self, x, y):
        return 2 * np.cos(2 * self.a * x)


class Gauss(L.Elementwise):
    """exp(−x²)."""

    def value(self, x):
        return np.exp(-x * x)

    def first(self, x, y):
        return -2 * x * y

    def second(self, x, y):
        return -2 * y  # 4x² − 2


class Square(L.Elementwise):
    """x |x|."""

    def value(self, x):
        return x * np.where(x.real > 0, x, -x)

    def first(self, x, y):
        return 2 * x  # of |x|

    def second(self, x, y):
        return 2 * np.sign(x.real)


class Cubed(L.Elementwise):
    """x³ / 3, of which the function lacks its 1/3."""

    def value(self, x):
        return x**3

    def first(self, x, y):
        return 3 * x**2

    def second(self, x, y):
        return 6 * x


# ------------------------------------------------------------------------------------------------------------- layers


class Diagonal(Layer):
    """y = d ∘ x, one factor for each feature."""

    def __init__(self, features):
        self.features = features

    def parameter_shapes(self):
        return {"d": (self.features,)}

    def draw(self, rng):
        return {"d": rng.standard_normal(self.features)}

    def output_shape(self, shape):
        if shape[-1] != self.features:
            raise ValueError(f"expected {self.features} features, got {shape}")
        return shape

    def forward(self, x):
        return x * self.parameters["d"], x

    def mjp(self, x, mat):
        return mat * self.parameters["d"]

    jmp = mjp

    def per_sample(self, x, mat):
        return (mat * x).reshape(*mat.shape[:2], -1, self.features).sum(2)

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = partial(self.per_sample, x)
        return {"d": jacobian}


class Rotated(Layer):
    """The matrix (C, C) of each sample, by the rows of a square weight: y = W x."""

    def parameter_shapes(self):
        return {"w": (3, 3)}

    def draw(self, rng):
        return {"w": rng.standard_normal((3, 3))}

    def output_shape(self, shape):
        if shape[:1] != (3,) or len(shape) != 2:
            raise ValueError(f"expected (3, T), got {shape}")
        return shape

    def forward(self, x):
        return np.einsum("ij,njt->nit", self.parameters["w"], x), x

    def jmp(self, x, mat):
        return np.einsum("ij,vnjt->vnit", self.parameters["w"], mat)

    def mjp(self, x, mat):
        return np.einsum("ij,vnit->vnjt", self.parameters["w"], mat)

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = lambda mat: np.einsum("vnit,njt->vnij", mat, x)
        return {"w": jacobian}


class Unit(Layer):
    """y = x / ‖x‖."""

    curvature = "dense"

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        r = np.sqrt((x.reshape(len(x), -1) ** 2).sum(1)).reshape(-1, *(1,) * (x.ndim - 1))
        return x / r, (x / r, r)

    def jmp(self, saved, mat):
        y, r = saved
        inner = (mat * y).reshape(*mat.shape[:2], -1).sum(2).reshape(*mat.shape[:2], *(1,) * (y.ndim - 1))
        return (mat - y * inner) / r

    mjp = jmp

    def residual(self, saved, grad):
        y, r = (part.reshape(len(part), -1) for part in saved)
        g = grad.reshape(len(y), -1)
        inner, eye = (g * y).sum(1)[:, None, None], np.eye(y.shape[1])
        outer = y[:, :, None] * g[:, None]
        found = 3 * inner * y[:, :, None] * y[:, None] - outer - outer.swapaxes(1, 2) - inner * eye
        return found / r[:, :, None] ** 2


class Smoothed(Layer):
    """y[t] = w[0] x[t] + w[1] x[t + 1] + w[2] x[t + 2]."""

    def parameter_shapes(self):
        return {"w": (3,)}

    def draw(self, rng):
        return {"w": rng.standard_normal(3)}

    def output_shape(self, shape):
        if len(shape) != 1 or shape[0] < 3:
            raise ValueError(f"expected at least 3 features, got {shape}")
        return (shape[0] - 2,)

    def forward(self, x):
        return self.jmp(x, x[None])[0], x

    def jmp(self, x, mat):
        return sum(w * mat[..., k : mat.shape[-1] - 2 + k] for k, w in enumerate(self.parameters["w"]))

    def mjp(self, x, mat):
        found = np.zeros((*mat.shape[:2], x.shape[1]), mat.dtype)
        for t in range(mat.shape[2]):
            found[..., t : t + 3] += mat[..., t, None] * self.parameters["w"]
        return found

    def per_sample(self, x, mat):
        return np.stack([(mat * x[:, k : x.shape[1] - 2 + k]).sum(2) for k in range(3)], 2)

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = partial(self.per_sample, x)
        return {"w": jacobian}


class RowSums(Layer):
    """y = x ∘ W 1."""

    TABLE = 1 + np.arange(4.0)

    def parameter_shapes(self):
        return {"w": (4, 4)}

    def draw(self, rng):
        return {"w": rng.standard_normal((4, 4))}

    def output_shape(self, shape):
        if shape != (4,):
            raise ValueError(f"expected (4,), got {shape}")
        return shape

    def forward(self, x):
        return x * self.parameters["w"].sum(1), x

    def jmp(self, x, mat):
        return mat * self.parameters["w"].sum(1)

    mjp = jmp

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = lambda mat: np.repeat((mat * x)[..., None], 4, -1)
        return {"w": jacobian}


class Normed(Layer):
    """y = x / √(Σ x² / K + ε), of which the function has K − 1 for K."""

    curvature, eps = "dense", 1e-5

    def output_shape(self, shape):
        if len(shape) != 1:
            raise ValueError(f"expected (K,), got {shape}")
        return shape

    def forward(self, x):
        return x / np.sqrt((x**2).sum(1, keepdims=True) / (x.shape[1] - 1) + self.eps), x

    def jmp(self, x, mat):
        r = np.sqrt((x**2).mean(1, keepdims=True) + self.eps)
        return (mat - x * (x * mat).mean(2, keepdims=True) / r**2) / r

    mjp = jmp


class Cached(Snake):
    """Its derivative is that of the first batch, if the second has its shape."""

    slope = None

    def first(self, x, y):
        if self.slope is None or self.slope.shape != x.shape:
            self.slope = super().first(x, y)
        return self.slope


class Gated(Layer):
    """y = a σ(b)."""

    curvature = "dense"

    def output_shape(self, a, b):
        if a != b:
            raise ValueError(f"expected equal shapes, got {a} and {b}")
        return a

    def forward(self, a, b):
        return a * sigmoid(b), (a, sigmoid(b))

    def jmp(self, saved, mat, other):
        a, s = saved
        return mat * s + other * a * s * (1 - s)

    def mjp(self, saved, mat):
        a, s = saved
        return mat * s, mat * a * s * (1 - s)


class Shifted(Layer):
    """y[t] = x[t] − x[t − 1]."""

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x - np.roll(x, 1, -1), None

    def jmp(self, saved, mat):
        return mat - np.roll(mat, 1, -1)

    def mjp(self, saved, mat):
        return mat - np.roll(mat, 1, -1)  # −1


class Halves(Layer):
    """The product of both halves of the features."""

    curvature = "dense"

    def output_shape(self, shape):
        return (*shape[:-1], shape[-1] // 2 + 1)

    def forward(self, x):
        k = x.shape[-1] // 2
        return x[..., :k] * x[..., k:], (x[..., :k], x[..., k:])

    def jmp(self, saved, mat):
        a, b = saved
        k = a.shape[-1]
        return mat[..., :k] * b + mat[..., k:] * a

    def mjp(self, saved, mat):
        a, b = saved
        return np.concatenate([mat * b, mat * a], -1)


class SquaredDistance(Layer):
    """y = (u − v)², of two inputs."""

    curvature = "dense"

    def output_shape(self, u, v):
        return u

    def forward(self, u, v):
        return (u - v) ** 2, u - v

    def jmp(self, d, u, v):
        return 2 * d * (u - v)

    def mjp(self, d, mat):
        return 2 * d * mat, 2 * d * mat  # −2 of v


# ------------------------------------------------------------------------------------------------------------- losses


class Expectile(ElementwiseLoss):
    """ℓₙ = c Σⱼ w (fₙⱼ − yₙⱼ)², w = τ where f > y, else 1 − τ."""

    def __init__(self, reduction="mean", tau=0.7):
        super().__init__(reduction)
        self.tau = tau

    def weights(self, d):
        return np.where(d.real > 0, self.tau, 1 - self.tau).astype(d.real.dtype)

    def values(self, output, target):
        d = output - target
        return self.summed(self.weights(d) * d * d)

    def gradients(self, output, target):
        d = output - target
        return 2 * self.weights(d) * d * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 2 * self.weights(output - target)


class LogCosh(ElementwiseLoss):
    def values(self, output, target):
        d = output - target
        d = np.where(d.real < 0, -d, d)
        return self.summed(d + np.log1p(np.exp(-2 * d)) - np.log(2))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 - np.tanh(output - target) ** 2


LogCoshPerBatch = wrong(LogCosh, gradients=lambda self, f, y: LogCosh.gradients(self, f, y) / len(f))


class PseudoHuberWithoutRoot(ElementwiseLoss):
    """c Σ √(1 + d²) − 1, d = f − y, of which the derivative is d / √(1 + d²)."""

    def values(self, output, target):
        return self.summed((1 + (output - target) ** 2) ** 0.5 - 1)

    def gradients(self, output, target):
        return (output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return (1 + (output - target) ** 2) ** -1.5


class Quartic(ElementwiseLoss):
    """c Σ (f − y)⁴."""

    def values(self, output, target):
        return self.summed((output - target) ** 4)

    def gradients(self, output, target):
        return 4 * (output - target) ** 3 * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 4 * (output - target) ** 2


# --------------------------------------------------------------------------------------------------------- quantities


# ------------------------------------------------------------------------------------------------------------- graphs


def layer(make, *shape, reference=None):
    return lambda: check_layer(make(), batch(3, *shape), reference=reference)


def loss(kind, *shape, labels=False, reference=None):
    target = np.array([0, 2, 1]) if labels else batch(3, *shape, seed=2)
    return lambda: check_loss(kind(), batch(3, *shape, seed=1), target, reference=reference)


def quantity(kind):
    def check():
        network = gb.Sequential(L.Linear(3, 4), L.Tanh(), L.Linear(4, 2), rng=0, dtype="float64")
        return check_quantity(kind(), network, losses.CrossEntropyLoss(), batch(5, 3), np.array([0, 1, 1, 0, 1]))

    return check


def graph(nodes, plain, *shape):
    return layer(lambda: Graph(nodes), *shape, reference=plain)


GATES = {
    "a": (L.Tanh(), "input"),
    "b": (L.Sigmoid(), "input"),
    "c": (L.Multiply(), "a", "b"),
    "d": (L.Add(), "c", "input"),
}


def gates(x):
    return np.tanh(x) * (1 - sigmoid(x)) + x


def sums(x):
    return np.tanh(x) + sigmoid(x) + x


def deeper(x):
    return np.tanh(x) * sigmoid(np.tanh(x)) + x


def without(x):
    return np.tanh(x) * sigmoid(x)


def weighted(output, target):
    return WEIGHT[target] * -special.log_softmax(output, 1)[np.arange(len(target)), target]


def log_cosh(output, target):
    return np.log(np.cosh(output - target)).sum(1) / output.shape[1]


def whole():
    """A network with a layer of a wrong residual."""
    network = gb.Sequential(L.Linear(3, 4), SnakeWithoutA(), L.Linear(4, 2), rng=0, dtype="float64")
    return check_network(network, losses.MSELoss(), batch(5, 3), batch(5, 2, seed=4))


def stretched():
    """A network with a loss whose gradients are of the whole batch."""
    network = gb.Sequential(L.Linear(3, 4), L.Tanh(), L.Linear(4, 2), rng=0, dtype="float64")
    return check_network(network, LogCoshPerBatch(), batch(5, 3), batch(5, 2, seed=4))


def join(**methods):
    return lambda: check_layer(wrong(Gated, **methods)(), (batch(3, 4), batch(3, 4, seed=1)))


def taps(self, x, mat):
    found = np.zeros((*mat.shape[:2], x.shape[1]), mat.dtype)
    for k, w in enumerate(self.parameters["w"]):
        found[..., k : k + mat.shape[2]] = mat * w
    return found


def assigned(self, x, mat):
    found = np.zeros((*mat.shape[:2], x.shape[1]), mat.dtype)
    for t in range(mat.shape[2]):
        found[..., t : t + 3] = mat[..., t, None] * self.parameters["w"]
    return found


def last_column(self, x, mat, sign=None):
    return self.per_sample(x, mat)[-1] * (1 if sign is None else sign[-1, :, None])


def squared_sum(self, x, mat, sign=None):
    each = self.per_sample(x, mat)
    return ((each if sign is None else each * sign[..., None]).sum(1) ** 2).sum(0)


def crossed(self, saved, g):
    """Both cross terms of a σ(b) are doubled."""
    a, s = saved
    k, slope = a.shape[1], s * (1 - s)
    found, i = np.zeros((len(a), 2 * k, 2 * k), a.dtype), np.arange(k)
    found[:, i, k + i] = found[:, k + i, i] = 2 * g * slope
    found[:, k + i, k + i] = g * a * slope * (1 - 2 * s)
    return found


def own(power, rule, definition, finish=lambda self, scale, value: value, signal=GRADIENT, c=2):
    """Return a quantity with a definition."""
    return wrong(Quantity, name="own", powers=(power, c), needs=(Statistic(rule, signal),), finish=finish,
                 definition=lambda self, p: definition(p))  # fmt: skip


def unsigned(self, x, mat, sign=None):
    return self.per_sample(x, mat).sum((0, 1))


def sum_of_squares(self, x, mat, sign=None):
    """The sum over samples is squared, and a mean over columns."""
    each = self.per_sample(x, mat)
    signed = each if sign is None else each * sign[..., None]
    return (signed * each).sum(1).mean(0)


def apart(self, x, mat, sign=None):
    """The squared norm of each position, summed."""
    total = (np.einsum("vnit,njt->vntij", mat, x) ** 2).sum((2, 3, 4))
    return (total if sign is None else total * sign).sum(0)


def of_batch(self, x):
    r = np.sqrt((x**2).sum((0,), keepdims=True)) + 0 * x
    return x / r, (x / r, r)


def swapped(self, saved, mat):
    a, b = saved
    return np.concatenate([mat * a, mat * b], -1)


def even(self, shape):
    if shape[-1] % 2:
        raise ValueError("odd")
    return (*shape[:-1], shape[-1] // 2)


def diagonal(**methods):
    return layer(lambda: wrong(Diagonal, **methods)(3), 3)


def unit(rule):
    return layer(wrong(Unit, jmp=rule, mjp=rule), 4)


def rotated(rule, key="per_sample"):
    return layer(jacobian("w", Rotated, rule, key), 3, 4)


def log_cosh_with(reference=None, **methods):
    return loss(wrong(LogCosh, **methods), 4, reference=reference)


def cross_entropy(reference=None, weight=None, **methods):
    return loss(lambda: wrong(losses.CrossEntropyLoss, **methods)(weight=weight), 4, labels=True, reference=reference)


WEIGHT = np.array([1.1, 3.7, 0.2, 5])
GGN = lambda p: p.factor * np.einsum("nc...,ncd,nd...->...", p.jacobians, p.hessians, p.jacobians)  # noqa: E731
USERS = {
    "activation: second derivative lacks a": (layer(SnakeWithoutA, 4), "a = 1.5"),
    "activation: 2 sin for sin 2": (layer(wrong(Snake, first=lambda s, x, y: 1 + 2 * np.sin(s.a * x)), 4), None),
    "activation: 4x² lost": (layer(Gauss, 4), "y · g · x² were added"),
    "activation: x for |x|": (layer(Square, 4), "its absolute value"),
    "activation: sides exchanged": (
        layer(wrong(L.LeakyReLU, first=lambda s, x, y: np.where(x > 0, s.negative_slope, 1)), 5),
        "divided by negative_slope = 0.01 where [x > 0], and multiplied by negative_slope = 0.01 elsewhere",
    ),
    "activation: function lacks 1/3": (layer(Cubed, 4, reference=lambda x: x**3 / 3), "3"),
    "layer: mean over positions": (
        layer(lambda: wrong(Diagonal, per_sample=lambda s, x, mat: (mat * x).mean(2))(2), 4, 2), "4",
    ),
    "layer: factor forgotten": (
        layer(lambda: wrong(Diagonal, forward=lambda s, x: (x, x), jmp=lambda s, x, mat: mat,
                            mjp=lambda s, x, mat: mat)(3), 3), "parameter d has no effect on forward",
    ),
    "layer: x squared": (diagonal(per_sample=lambda s, x, mat: mat * x**2), "without this: squared"),
    "layer: divided by d": (diagonal(mjp=lambda s, x, mat: mat / s.parameters["d"]), "with this: its reciprocal"),
    "layer: float64": (diagonal(forward=lambda s, x: (x * s.parameters["d"].astype(np.float64), x)), "cast"),
    "layer: signs forgotten": (
        layer(lambda: jacobian("d", Diagonal, unsigned, "sum")(3), 3), "signs",
    ),
    "layer: mean over columns": (
        layer(lambda: jacobian("d", Diagonal, sum_of_squares, "square")(3), 3), "multiplied by V = 3",
    ),
    "layer: clipped": (
        diagonal(mjp=lambda s, x, mat: np.clip(mat * s.parameters["d"], -1, 1)), "of what it gives: clipped to ±1",
    ),
    "layer: columns without signs": (
        diagonal(per_sample=lambda s, x, mat: np.abs(mat) * x), "of the columns: its absolute value",
    ),
    "layer: parameter transposed": (rotated(lambda s, x, mat: np.einsum("vnit,njt->vnji", mat, x)), "exchanged"),
    "layer: positions apart": (rotated(apart, "square_norm"), "of each position alone, and summed"),
    "layer: first position": (rotated(lambda s, x, mat: np.einsum("vni,nj->vnij", mat[..., 0], x[..., 0])), "first"),
    "layer: norm squared": (unit(lambda s, saved, mat: Unit.jmp(s, (saved[0], saved[1] ** 2), mat)),
                            "multiplied by saved[1]"),
    "layer: not projected": (unit(lambda s, saved, mat: mat / saved[1]), "were added"),
    "layer: one norm too few": (
        layer(wrong(Unit, residual=lambda s, saved, g: Unit.residual(s, saved, g) * saved[1].reshape(-1, 1, 1)), 4),
        "divided by saved[1]",
    ),
    "layer: norm of the batch": (layer(wrong(Unit, forward=of_batch), 4), "the inherited one"),
    "layer: shift not transposed": (layer(Shifted, 5), "exchanged"),
    "layer: one feature too many": (layer(Halves, 4), "axis 0 of its result were smaller by 1"),
    "layer: halves swapped": (
        layer(wrong(Halves, output_shape=even, mjp=swapped), 4), "the reverse order of blocks",
    ),
    "layer: sign of the second input": (
        lambda: check_layer(SquaredDistance(), (batch(3, 4), batch(3, 4, seed=1))),
        "it had the other sign, in input 1",
    ),
    "layer: = for +=, of positions": (
        layer(wrong(Smoothed, mjp=assigned), 7), "along axis 1 the last term in place of the sum (= for +=)",
    ),
    "layer: = for +=, of taps": (
        layer(wrong(Smoothed, mjp=taps), 7), "along axis 1 the first term in place of the sum (= for +=)",
    ),
    "layer: the last term by column": (
        layer(jacobian("w", Smoothed, last_column, "batch"), 7),
        "what is got would be right if it were of the last column alone (= for +=)",
    ),
    "layer: square of a sum over samples": (
        layer(jacobian("w", Smoothed, squared_sum, "square"), 7), "would be right if it were Σᵥ (Σₙ s Jᵀg)²",
    ),
    "layer: sums of the other axis": (
        layer(wrong(RowSums, mjp=lambda s, x, mat: mat * s.parameters["w"].sum(0)), 4),
        "multiplied by mean w along 1 and divided by mean w over axis 0 along 1",
    ),
    "layer: a table of its class": (
        layer(wrong(RowSums, mjp=lambda s, x, mat: mat * s.TABLE), 4), "divided by TABLE along 1",
    ),
    "layer: K − 1 for K beside ε": (
        layer(Normed, 5), "with eps = 0, right if divided by √(input features/(input features − 1)) = 1.11803",
    ),
    "layer: derivative of an earlier call": (layer(Cached, 4), "it wrote nothing into its owner"),
    "layer: mean over samples": (
        layer(wrong(RowSums, mjp=lambda s, x, mat: RowSums.jmp(s, x, mat - mat.mean(1, keepdims=True))), 4),
        "the mean over axis 1 were not subtracted",
    ),
    "join: inputs exchanged": (
        join(mjp=lambda s, saved, mat: Gated.mjp(s, saved, mat)[::-1]), "right if input 0 and input 1 were exchanged",
    ),
    "join: σ for a": (
        join(mjp=lambda s, saved, mat: (mat * saved[1], mat * saved[1] ** 2 * (1 - saved[1]))),
        "multiplied by input 0 and divided by saved[1], in input 1",
    ),
    "join: cross terms twice": (join(residual=crossed), "divided by 2, in input 0 and 1, input 1 and 0"),
    "loss: weights of the sides exchanged": (
        loss(wrong(Expectile, gradients=lambda s, f, y: Expectile(s.reduction, tau=1 - s.tau).gradients(f, y)), 4),
        "divided by (1 − tau) · 1/tau where [(f − target) > 0], and divided by tau · 1/(1 − tau) elsewhere",
    ),
    "loss: weight of one side lost": (
        loss(wrong(Expectile, second=lambda s, f, y: 2 * np.where(f > y, s.tau, 1)), 4),
        "multiplied by (1 − tau) = 0.3 except where [(f − target) > 0]",
    ),
    "loss: missing c": (
        log_cosh_with(gradients=lambda s, f, y: np.tanh(f - y)), "multiplied by c = 0.25",
    ),
    "loss: wrong sign": (log_cosh_with(gradients=lambda s, f, y: -LogCosh.gradients(s, f, y)), "sign"),
    "loss: square lost": (log_cosh_with(second=lambda s, f, y: 1 - np.tanh(f - y)), "tanh"),
    "loss: at the output": (log_cosh_with(second=lambda s, f, y: 1 - np.tanh(f) ** 2), "target"),
    "loss: root lost": (loss(PseudoHuberWithoutRoot, 4), "divided by √(1 + (f − target)²)"),
    "loss: over N": (loss(LogCoshPerBatch, 4), "N"),
    "loss: log 2 added": (
        log_cosh_with(log_cosh, values=lambda s, f, y: LogCosh.values(s, f, y) + np.log(2)), "-0.69314718 were added",
    ),
    "loss: 4 for 12": (loss(Quartic, 4), "3"),
    "loss: overflow": (
        cross_entropy(values=lambda s, f, y: np.log(np.exp(f).sum(1)) - np.take_along_axis(f, y[:, None], 1)[:, 0]),
        "the largest of each sample were subtracted",
    ),
    "loss: weights forgotten": (
        cross_entropy(weighted, WEIGHT, values=lambda s, f, y: losses.CrossEntropyLoss().values(f, y)),
        "right if multiplied by weight[target]",
    ),
    "loss: without the target": (cross_entropy(gradients=lambda s, f, y: special.softmax(f, axis=1)), "one-hot"),
    "quantity: square of a sum": (
        quantity(own(2, "sum", lambda p: p.factor**2 * (p.gradients**2).sum(0), lambda q, s, total: total**2)), "Σₙ",
    ),
    "quantity: one R": (
        quantity(own(0, "square", lambda p: (p.gradients**2).sum(0), lambda q, s, square: square / s.factor)),
        "right if divided by R = 0.2",
    ),
    "quantity: root": (quantity(own(1, "square", GGN, lambda q, s, square: np.sqrt(square), EXACT, 1)), "squared"),
    "quantity: N for N − 1": (
        quantity(own(0, "moments", lambda p: p.gradients.var(0, ddof=1),
                     lambda q, s, moments: moments.centered / s.batch / s.factor**2)), "N − 1",
    ),
    "quantity: not rooted": (
        quantity(own(1, "square_norm", lambda p: p.factor * np.sqrt((p.gradients.reshape(p.batch, -1) ** 2).sum(1)),
                     c=1)), "without this: squared",
    ),
    "quantity: squares for fourth powers": (
        quantity(own(0, "batch", lambda p: (p.gradients**4).sum(0), lambda q, s, g: ((g / s.factor) ** 2).sum(0))),
        "right if it were Σₙ ∇ℓ⁴: it is Σₙ ∇ℓ²",
    ),
    "quantity: absolute value of the sum": (
        quantity(own(0, "batch", lambda p: abs(p.gradients).sum(0), lambda q, s, g: abs((g / s.factor).sum(0)))),
        "right if it were Σₙ |∇ℓ|: it is |Σₙ ∇ℓ|",
    ),
    "quantity: not centered": (
        quantity(own(0, "batch", lambda p: p.gradients.var(0), lambda q, s, g: ((g / s.factor) ** 2).mean(0))),
        "right if it were variance: it is second_moment",
    ),
    "graph: 1 − σ": (graph(GATES, gates, 3), "the input had the other sign"),
    "graph: product for sum": (graph(GATES, sums, 3), "Add"),
    "graph: a node too early": (graph(GATES, deeper, 3), "b"),
    "graph: a term too many": (graph(GATES, without, 3), "output of a · output of b: it is x + output of c"),
    "network: a layer's residual": (whole, "a = 1.5"),
}  # fmt: skip
"""What is wrong -> a check that fails, and words of the first proposal; None if nothing of the grammar fits."""
