"""Further wrong lines of users: terms of several factors, and edits of a method's parts."""

import numpy as np
from faults_of_users import Gated, Smoothed, batch, jacobian, layer, loss, own, quantity, wrong
from scipy import special

from gbackprop import layers as L
from gbackprop.calculus.signals import EXACT, GRADIENT, RESIDUAL
from gbackprop.layers import Layer, ParameterJacobian
from gbackprop.losses.base import Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.quantities import Statistic
from gbackprop.testing import check_layer, check_loss


class Softmaxes(Layer):
    """Softmax over the last axis of (T, K) at a temperature, the sum of the Jacobian over the axis before."""

    curvature = "dense"

    def __init__(self):
        self.buffers = {"beta": np.array([1.3])}

    def output_shape(self, shape):
        if len(shape) != 2:
            raise ValueError(f"expected (T, K), got {shape}")
        return shape

    def forward(self, x):
        e = np.exp(self.buffers["beta"].astype(x.real.dtype) * (x - x.real.max(-1, keepdims=True)))
        return e / e.sum(-1, keepdims=True), e / e.sum(-1, keepdims=True)

    def product(self, y, mat, axis):
        return y * (mat - (y * mat).sum(axis, keepdims=True))

    def jmp(self, y, mat):
        return self.buffers["beta"].astype(y.dtype) * self.product(y, mat, -1)

    def mjp(self, y, mat):
        return self.buffers["beta"].astype(y.dtype) * self.product(y, mat, -2)


class WithoutBeta(Softmaxes):
    def mjp(self, y, mat):
        return self.product(y, mat, -1)


class Steered(Layer):
    """y = (x·q) (x − q): the factor x·q is taken for a constant."""

    curvature = "dense"

    def __init__(self):
        self.q = np.array([0.6, -1.1, 0.4, 0.9])

    def forward(self, x):
        return (x @ self.q.astype(x.real.dtype))[:, None] * (x - self.q.astype(x.real.dtype)), x

    def jmp(self, x, mat):
        q = self.q.astype(x.dtype)
        return (mat @ q)[..., None] * (x - q) + (x @ q)[:, None] * mat

    def mjp(self, x, mat):
        return (x @ self.q.astype(x.dtype))[:, None] * mat


class Quadratic(L.Elementwise):
    """y = p₀ + p₁ x + p₂ x²."""

    curvature = "diagonal"

    def parameter_shapes(self):
        return {"p": (3,)}

    def draw(self, rng):
        return {"p": rng.uniform(1, 2, 3)}

    def forward(self, x):
        p = self.parameters["p"]
        return p[0] + p[1] * x + p[2] * x * x, x

    def jmp(self, x, mat):
        return mat * (self.parameters["p"][1] + self.parameters["p"][2] * x)

    def mjp(self, x, mat):
        return mat * (self.parameters["p"][1] + 2 * self.parameters["p"][2] * x)

    def residual(self, x, grad):
        return 2 * self.parameters["p"][2] * grad

    def parameter_jacobians(self, x):
        return {"p": Powers(x)}


class Powers(ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return np.stack([(mat * self.x**k).sum(2) for k in range(3)], -1)


class Bands(Layer):
    """Each factor of a few for a band of neighbouring features, in the order of a comb."""

    def __init__(self):
        self.gain = np.array([0.5, 1.5, -2.0])

    def output_shape(self, shape):
        if shape != (6,):
            raise ValueError(f"expected 6 features, got {shape}")
        return shape

    def forward(self, x):
        return x * np.repeat(self.gain, 2).astype(x.real.dtype), None

    def jmp(self, saved, mat):
        return mat * np.repeat(self.gain, 2).astype(mat.dtype)

    def mjp(self, saved, mat):
        return mat * np.tile(self.gain, 2).astype(mat.dtype)


def late(self, x, mat):
    """Jᵀg of the taps, from inputs one step late."""
    moved = np.pad(x, ((0, 0), (0, 1)))[:, 1:]
    return np.stack([(mat * moved[:, k : k + mat.shape[2]]).sum(2) for k in range(3)], -1)


def apart(self, x, mat, sign=None):
    """Squares of each position's share, summed."""
    each = np.stack([mat * x[:, k : k + mat.shape[2]] for k in range(3)], -1) ** 2
    return (each if sign is None else each * sign[..., None, None]).sum((0, 1, 2))


class Alike(Loss):
    """A loss of targets that have the shape of the outputs."""

    def target_shape(self, shape):
        return shape

    def check_values(self, name, target, shape, output):
        if target.dtype.kind != "f":
            raise TypeError(f"{name}: expected floats, got {target.dtype}")


class Correlated(Alike):
    """½ (f − y)ᵀ L Lᵀ (f − y), with the rows of L as columns."""

    FACTOR = np.array([[1.2, 0, 0], [0.5, 0.9, 0], [-0.4, 0.3, 0.7]])

    def product(self, f, y):
        return (f - y) @ (self.FACTOR @ self.FACTOR.T).astype(f.real.dtype)

    def values(self, f, y):
        return 0.5 * (self.product(f, y) * (f - y)).sum(1)

    def gradients(self, f, y):
        return self.product(f, y)

    def hessian_sqrt(self, f, y, columns=slice(None)):
        rows = self.FACTOR.astype(f.dtype)[columns]
        return np.repeat(rows[:, None], len(f), 1)


class Counts(Alike):
    """The multinomial's: m log Σ e^f − y f, m = Σ y, which the gradient lacks."""

    def values(self, f, y):
        return y.sum(1) * np.log(np.exp(f).sum(1)) - (y * f).sum(1)

    def gradients(self, f, y):
        return special.softmax(f, axis=1) - y


class Wide(Alike):
    """(f − y)² / (2 s²) over s = 0.4, whose draws have the variance s."""

    s = 0.4

    def values(self, f, y):
        return ((f - y) ** 2).sum(1) / (2 * self.s**2)

    def gradients(self, f, y):
        return (f - y) / f.real.dtype.type(self.s**2)

    def hessian_sqrt(self, f, y, columns=slice(None)):
        return np.repeat(np.eye(f.shape[1], dtype=f.dtype)[columns][:, None] / f.dtype.type(self.s), len(f), 1)

    def noise(self, shape, mc_samples, rng):
        return rng.standard_normal((mc_samples, *shape))

    def pseudo_targets(self, f, noise):
        return f + self.s**0.5 * noise.astype(f.dtype)


class Forms(Layer):
    """y[o] = aᵀ W[o] x, by W[o]ᵀ on the way back."""

    def __init__(self):
        self.a = np.array([0.7, -1.2, 0.4])

    def parameter_shapes(self):
        return {"w": (2, 3, 3)}

    def draw(self, rng):
        return {"w": rng.standard_normal((2, 3, 3))}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected 3 features, got {shape}")
        return (2,)

    def forward(self, x):
        return np.einsum("oij,i,nj->no", self.parameters["w"], self.a.astype(x.real.dtype), x), x

    def jmp(self, x, mat):
        return np.einsum("oij,i,vnj->vno", self.parameters["w"], self.a.astype(x.dtype), mat)

    def mjp(self, x, mat):
        return np.einsum("vno,oji,i->vnj", mat, self.parameters["w"], self.a.astype(x.dtype))

    def parameter_jacobians(self, x):
        return {"w": Outer3(self.a.astype(x.dtype), x)}


class Outer3(ParameterJacobian):
    def __init__(self, a, x):
        self.a, self.x = a, x

    def per_sample(self, mat):
        return np.einsum("vno,i,nj->vnoij", mat, self.a, self.x)


class Damped(Gated):
    """y = a + 0.3 b, without 0.3 on the way back."""

    alpha, curvature = 0.3, "zero"

    def forward(self, a, b):
        return a + a.dtype.type(self.alpha) * b, None

    def jmp(self, saved, of_a, of_b):
        return of_a + of_a.dtype.type(self.alpha) * of_b

    def mjp(self, saved, mat):
        return mat, mat


class Shifted(Layer):
    """y = (1 + c) x."""

    gain = np.array([0.4, -0.3, 0.8, 1.7])

    def forward(self, x):
        return x * (1 + self.gain).astype(x.real.dtype), None

    def jmp(self, saved, mat):
        return self.forward(mat)[0]

    mjp = jmp


class Lorentz(ElementwiseLoss):
    """½ log(w² + (f − y)²), whose gradient is not divided."""

    def __init__(self, reduction="mean", width=0.7):
        super().__init__(reduction)
        self.width = width

    def values(self, output, target):
        return self.summed(0.5 * np.log(self.width**2 + (output - target) ** 2))

    def gradients(self, output, target):
        return (output - target) * self.summed_weight(output.shape[1:])


# The mean of ½ (f − y)² over 3 outputs, whose gradient is that of (f − y)²; there is no sum.
Alone = wrong(
    ElementwiseLoss, __init__=lambda self: ElementwiseLoss.__init__(self, "mean"),
    values=lambda self, f, y: self.summed(0.5 * (f - y) ** 2), gradients=lambda self, f, y: 2 * (f - y) / 3,
)  # fmt: skip


def kept(power, statistics, finish, definition, c=2):
    return quantity(wrong(own(power, "batch", definition, finish, c=c), needs=statistics))


FURTHER = {
    "layer: softmax over the other axis": (layer(Softmaxes, 3, 4), "(I along 1, 3 − I along 2, 4) were added"),
    "layer: a number in a buffer": (layer(WithoutBeta, 3, 4), "multiplied by beta = 1.3"),
    "layer: a factor that is no constant": (layer(Steered, 4), "right if q along 2 · (x − q along 1) were added"),
    "layer: 2 for a coefficient": (layer(Quadratic, 4), "p[2]"),
    "layer: a comb for bands": (layer(Bands, 6), "by gain repeated along 1 and divided by gain tiled along 1"),
    "layer: taps one step late": (layer(jacobian("w", Smoothed, late), 7), "moved on by one"),
    "layer: squares of positions": (layer(jacobian("w", Smoothed, apart, "square"), 7), "it were the inherited one"),
    "layer: three axes, two exchanged": (layer(Forms, 3), "if w were transposed in its last two axes"),
    "loss: rows for columns": (loss(Correlated, 3), "right if its columns and the outputs were exchanged"),
    "loss: total lost": (
        lambda: check_loss(Counts(), batch(3, 4, seed=1), np.random.default_rng(0).integers(0, 4, (3, 4)) * 1.0),
        "softmax f · (1 − (output features) · mean target) were added",
    ),
    "loss: variance s for s²": (loss(Wide, 3), "draws were √s times as far from the output"),
    "quantity: third moment without its middle term": (
        quantity(own(0, "batch", lambda p: ((p.gradients - p.gradients.mean(0)) ** 3).mean(0),
                     lambda q, s, g: ((g / s.factor) ** 3).mean(0) - (g / s.factor).mean(0) ** 3, c=3)),
        "right if -3 · mean ∇ℓ · variance were added",
    ),
    "quantity: residual subtracted": (
        kept(1, (Statistic("square", EXACT), Statistic("square", RESIDUAL)),
             lambda q, s, one, other: (one - other).sum(),
             lambda p: p.factor * p.dense.hessian_diagonals[p.name].sum(), c=1),
        "right if its statistic 1, square of residual, had the other sign",
    ),
    "quantity: not normalized": (
        kept(0, (Statistic("batch", GRADIENT),),
             lambda q, s, g: (g * g.mean(0)).reshape(len(g), -1).sum(1) / s.factor**2,
             lambda p: ((p.gradients * p.gradients.mean(0)).reshape(p.batch, -1).sum(1)
                        / np.sqrt((p.gradients.mean(0) ** 2).sum()))),
        "right if divided by ‖mean ∇ℓ‖",
    ),
    "join: an option forgotten": (
        lambda: check_layer(Damped(), (batch(3, 4), batch(3, 4, seed=1))), "multiplied by alpha = 0.3, in input 1",
    ),
    "loss: squares of an option": (loss(Lorentz, 3), "divided by (width² + (f − target)²)"),
    "layer: 1 lost": (
        layer(lambda: wrong(Shifted, mjp=lambda s, x, mat: mat * s.gain.astype(mat.dtype))(), 2, 4),
        "right if 1 were added where it is not 0",
    ),
}  # fmt: skip
"""What is wrong -> a check that fails, and words of the first proposal."""
