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


class SnakeSine(Snake):
    """The slope of sin² taken as 2 sin."""

    def first(self, x, y):
        return 1 + 2 * np.sin(self.a * x)


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


class DiagonalMean(Diagonal):
    def per_sample(self, x, mat):
        return (mat * x).reshape(*mat.shape[:2], -1, self.features).mean(2)


class DiagonalSquared(Diagonal):
    def per_sample(self, x, mat):
        return (mat * x**2).reshape(*mat.shape[:2], -1, self.features).sum(2)


class DiagonalPulled(Diagonal):
    def mjp(self, x, mat):
        return mat / self.parameters["d"]


class DiagonalTyped(Diagonal):
    def forward(self, x):
        return x * self.parameters["d"].astype(np.float64), x


class DiagonalBatched(Diagonal):
    """The sum over columns forgets the signs."""

    def parameter_jacobians(self, x):
        found = super().parameter_jacobians(x)
        found["d"].sum = lambda mat, sign=None: self.per_sample(x, mat).sum((0, 1))
        return found


class DiagonalSumOfSquares(Diagonal):
    """The sum over samples is squared."""

    def parameter_jacobians(self, x):
        found = super().parameter_jacobians(x)

        def square(mat, sign=None):
            each = self.per_sample(x, mat)
            each = each if sign is None else each * sign[..., None]
            return (each**2 if sign is None else each * self.per_sample(x, mat)).sum(1).mean(0)

        found["d"].square = square
        return found


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


class RotatedTransposed(Rotated):
    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = lambda mat: np.einsum("vnit,njt->vnji", mat, x)
        return {"w": jacobian}


class RotatedFirst(Rotated):
    """The Jacobian of the first position for the whole sequence."""

    def parameter_jacobians(self, x):
        jacobian = ParameterJacobian()
        jacobian.per_sample = lambda mat: np.einsum("vni,nj->vnij", mat[..., 0], x[..., 0])
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


class UnitSquare(Unit):
    def jmp(self, saved, mat):
        y, r = saved
        return super().jmp((y, r**2), mat)

    mjp = jmp


class UnitNotProjected(Unit):
    def jmp(self, saved, mat):
        return mat / saved[1]

    mjp = jmp


class UnitOnce(Unit):
    def residual(self, saved, grad):
        return super().residual(saved, grad) * saved[1].reshape(-1, 1, 1)


class UnitOfBatch(Unit):
    def forward(self, x):
        r = np.sqrt((x**2).sum((0,), keepdims=True)) + 0 * x
        return x / r, (x / r, r)


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


class HalvesSwapped(Halves):
    def output_shape(self, shape):
        if shape[-1] % 2:
            raise ValueError("odd")
        return (*shape[:-1], shape[-1] // 2)

    def mjp(self, saved, mat):
        a, b = saved
        return np.concatenate([mat * a, mat * b], -1)


# ------------------------------------------------------------------------------------------------------------- losses


class LogCosh(ElementwiseLoss):
    def values(self, output, target):
        d = output - target
        d = np.where(d.real < 0, -d, d)
        return self.summed(d + np.log1p(np.exp(-2 * d)) - np.log(2))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 - np.tanh(output - target) ** 2


class LogCoshUnweighted(LogCosh):
    def gradients(self, output, target):
        return np.tanh(output - target)


class LogCoshBackwards(LogCosh):
    def gradients(self, output, target):
        return np.tanh(target - output) * self.summed_weight(output.shape[1:])


class LogCoshOne(LogCosh):
    def second(self, output, target):
        return 1 - np.tanh(output - target)


class LogCoshOfOutput(LogCosh):
    def second(self, output, target):
        return 1 - np.tanh(output) ** 2


class LogCoshPerBatch(LogCosh):
    def gradients(self, output, target):
        return super().gradients(output, target) / len(output)


class LogCoshNoLog2(LogCosh):
    def values(self, output, target):
        return super().values(output, target) + np.log(2)


class Quartic(ElementwiseLoss):
    """c Σ (f − y)⁴."""

    def values(self, output, target):
        return self.summed((output - target) ** 4)

    def gradients(self, output, target):
        return 4 * (output - target) ** 3 * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 4 * (output - target) ** 2


class Likelihood(losses.CrossEntropyLoss):
    """Gradients without the target."""

    def gradients(self, output, target):
        return special.softmax(output, axis=1)


# --------------------------------------------------------------------------------------------------------- quantities


class Own(Quantity):
    powers = (1, 1)


class MeanGradient(Own):
    """1/N Σₙ ∇ℓₙ, with R instead of 1/N."""

    name = "mean_gradient"
    needs = (Statistic("sum", GRADIENT),)

    def definition(self, p):
        return p.gradients.mean(0)


class GradSquared(Own):
    """Σₙ (R ∇ℓₙ)², as the square of the sum."""

    name, powers = "grad_squared", (2, 2)
    needs = (Statistic("sum", GRADIENT),)

    def finish(self, scale, total):
        return total**2

    def definition(self, p):
        return p.factor**2 * (p.gradients**2).sum(0)


class Fisher(Own):
    """Σₙ (∇ℓₙ)², with one R left."""

    name, powers = "fisher", (0, 2)
    needs = (Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square / scale.factor

    def definition(self, p):
        return (p.gradients**2).sum(0)


class GGNTrace(Own):
    """The trace of the GGN, of which the root of each entry is taken."""

    name = "ggn_root"
    needs = (Statistic("square", EXACT),)

    def finish(self, scale, square):
        return np.sqrt(square)

    def definition(self, p):
        return p.factor * np.einsum("nc...,ncd,nd...->...", p.jacobians, p.hessians, p.jacobians)


class Noise(Own):
    """The variance of gradients times N/(N − 1), without it."""

    name, powers = "noise", (0, 2)
    needs = (Statistic("moments", GRADIENT),)

    def finish(self, scale, moments):
        return moments.centered / scale.batch / scale.factor**2

    def definition(self, p):
        return p.gradients.var(0, ddof=1)


class Norms(Own):
    """The norm of each sample's gradient, without its root."""

    name, powers = "norms", (1, 1)
    needs = (Statistic("square_norm", GRADIENT),)

    def definition(self, p):
        return p.factor * np.sqrt((p.gradients.reshape(p.batch, -1) ** 2).sum(1))


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


USERS = {
    "activation: second derivative lacks a": (layer(SnakeWithoutA, 4), "a = 1.5"),
    "activation: 2 sin for sin 2": (layer(SnakeSine, 4), ""),
    "activation: 4x² lost": (layer(Gauss, 4), "x²"),
    "activation: x for |x|": (layer(Square, 4), ""),
    "activation: function lacks 1/3": (layer(Cubed, 4, reference=lambda x: x**3 / 3), "3"),
    "layer: mean over positions": (layer(lambda: DiagonalMean(2), 4, 2), "4"),
    "layer: x squared": (layer(lambda: DiagonalSquared(3), 3), "x"),
    "layer: divided by d": (layer(lambda: DiagonalPulled(3), 3), "d"),
    "layer: float64": (layer(lambda: DiagonalTyped(3), 3), "cast"),
    "layer: signs forgotten": (layer(lambda: DiagonalBatched(3), 3), "signs"),
    "layer: mean over columns": (layer(lambda: DiagonalSumOfSquares(3), 3), ""),
    "layer: parameter transposed": (layer(RotatedTransposed, 3, 4), "exchanged"),
    "layer: first position": (layer(RotatedFirst, 3, 4), "first"),
    "layer: norm squared": (layer(UnitSquare, 4), ""),
    "layer: not projected": (layer(UnitNotProjected, 4), ""),
    "layer: one norm too few": (layer(UnitOnce, 4), ""),
    "layer: norm of the batch": (layer(UnitOfBatch, 4), ""),
    "layer: shift not transposed": (layer(Shifted, 5), "exchanged"),
    "layer: one feature too many": (layer(Halves, 4), ""),
    "layer: halves swapped": (layer(HalvesSwapped, 4), ""),
    "loss: missing c": (loss(LogCoshUnweighted, 4), ""),
    "loss: wrong sign": (loss(LogCoshBackwards, 4), "sign"),
    "loss: square lost": (loss(LogCoshOne, 4), "tanh"),
    "loss: at the output": (loss(LogCoshOfOutput, 4), "target"),
    "loss: over N": (loss(LogCoshPerBatch, 4), "N"),
    "loss: log 2 added": (loss(LogCoshNoLog2, 4, reference=log_cosh), ""),
    "loss: 4 for 12": (loss(Quartic, 4), "3"),
    "loss: without the target": (loss(Likelihood, 4, labels=True), "one-hot"),
    "quantity: 1/N twice": (quantity(MeanGradient), ""),
    "quantity: square of a sum": (quantity(GradSquared), "Σₙ"),
    "quantity: one R": (quantity(Fisher), "R"),
    "quantity: root": (quantity(GGNTrace), "squared"),
    "quantity: N for N − 1": (quantity(Noise), "N − 1"),
    "quantity: not rooted": (quantity(Norms), "root"),
    "graph: 1 − σ": (graph(GATES, gates, 3), ""),
    "graph: product for sum": (graph(GATES, sums, 3), "Add"),
    "graph: a node too early": (graph(GATES, deeper, 3), "b"),
    "graph: a term too many": (graph(GATES, without, 3), ""),
    "network: a layer's residual": (whole, "a = 1.5"),
}
"""What is wrong -> a check that fails, and words of the first proposal."""
