"""Planted faults in activations, in softmax, and in PReLU's slope."""

import numpy as np
from faults import Fault, after, instead, on_layer, times

from gbackprop.calculus.residual import units
from gbackprop.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    Layer,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU6,
    SiLU,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Tanhshrink,
    Threshold,
)
from gbackprop.layers.elementwise import prelu, smooth
from gbackprop.testing.flat import dense

# -------------------------------------------------------------------------------------------------------------- checks

soft_wide = on_layer(lambda: DenseSoftmax(), (200,))

# ----------------------------------------------------------------------------------------------- longer wrong functions


def rate_once(self, x, y):
    return np.where(x >= 0, 0, self.alpha * self.rate * np.exp(self.rate * np.minimum(x, 0)))


def without_the_gate_s_bend(self, x, y):
    return 2 * self.gate(x)[1]


def product_rule_forgotten(self, x, y):
    p, slope, _ = self.gate(x)
    return p + slope


def chain_rule_forgotten(parts):
    p, slope, bend = parts
    return p, slope / 2, bend


def of_the_last_axis(self, x):
    return -1


def from_every_set(self, p, strength, span):
    n, shape = len(p), p.shape[1:]
    k = np.arange(p[0].size)[span]
    each = strength.reshape(n, -1)[:, k].T
    root = np.sqrt(abs(each)).reshape(len(k), n, *(1,) * len(shape))
    return (root * (units(k, n, shape, p.dtype) - p),), np.sign(each)


class DenseSoftmax(Layer):
    """Softmax over the only axis with its residual as a matrix."""

    curvature = "dense"
    softmax = Softmax(1)

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.softmax.forward(x)

    def jmp(self, saved, mat):
        return self.softmax.jmp(saved, mat)

    mjp = jmp

    def residual(self, saved, grad):
        return dense(self.softmax.residual(saved, grad))


def one_entry_larger(residual):
    """In a row of which the kit, which looks at 160 of 200, sees no difference but that to the transpose."""
    residual[:, 197, 0] *= 2
    return residual


def transposed(self, saved, mat):
    return self.jmp(saved, mat)


def of_the_first_channel(self, x):
    return np.where(x.real > 0, 1, self.parameters["weight"][0])


def everywhere(self, mat):
    return (mat * self.x).reshape(*mat.shape[:2], self.count, -1).sum(3)


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(
        LeakyReLU, "value", "a on the other side",
        instead(lambda self, x: np.where(x > 0, self.negative_slope * x, x)), LeakyReLU, "forward",
    ),
    Fault(LeakyReLU, "first", "0 where x ≤ 0, as ReLU", instead(lambda self, x, y: x.real > 0), LeakyReLU, "jmp"),
    Fault(
        Threshold, "value", "0 for the value",
        instead(lambda self, x: np.where(x > self.threshold, x, 0)), Threshold, "forward",
    ),
    Fault(Threshold, "first", "threshold 0", instead(lambda self, x, y: x.real > 0), Threshold, "jmp"),
    Fault(Hardtanh, "first", "as if the limits were ±1", instead(lambda self, x, y: abs(x.real) < 1), Hardtanh, "jmp"),
    Fault(ReLU6, "first", "no limit below", instead(lambda self, x, y: x.real < self.max_val), ReLU6, "jmp"),
    Fault(Hardsigmoid, "first", "missing 1/6", times(6), Hardsigmoid, "jmp"),
    Fault(Hardswish, "second", "1/6 for 1/3", times(1 / 2), Hardswish, "residual"),
    Fault(
        Hardshrink, "_is_small", "one side alone",
        instead(lambda self, x: x.real <= self.lambd), Hardshrink, "forward",
    ),
    Fault(Softshrink, "value", "not moved by λ", instead(Hardshrink.value), Softshrink, "forward"),
    Fault(
        ELU, "first", "missing α",
        instead(lambda self, x, y: np.where(x > 0, 1, np.exp(self._exponent(x)))), ELU, "jmp",
    ),
    Fault(ELU, "second", "wrong sign", times(-1), ELU, "residual"),
    Fault(SELU, "scale", "λ forgotten", instead(1.0), SELU, "forward"),
    Fault(CELU, "second", "1/α lost", instead(rate_once), CELU, "residual"),
    Fault(Softplus, "value", "missing 1/β", times(1.7), Softplus, "forward"),
    Fault(Softplus, "second", "missing β", times(1 / 1.7), Softplus, "residual"),
    Fault(LogSigmoid, "first", "σ(x) for σ(−x)", instead(lambda self, x, y: smooth.sigmoid(x)), LogSigmoid, "jmp"),
    Fault(LogSigmoid, "second", "wrong sign", times(-1), LogSigmoid, "residual"),
    Fault(
        Softsign, "second", "no sign of x",
        instead(lambda self, x, y: -2 * self._share(x) ** 3), Softsign, "residual",
    ),
    Fault(Tanhshrink, "second", "4 for 8", times(1 / 2), Tanhshrink, "residual"),
    Fault(SiLU, "first", "x lost before σ'", instead(product_rule_forgotten), SiLU, "jmp"),
    Fault(SiLU, "second", "x σ'' lost", instead(without_the_gate_s_bend), SiLU, "residual"),
    Fault(Mish, "gate", "t' halved", after(chain_rule_forgotten), Mish, "jmp"),
    Fault(GELU, "second", "x φ' lost", instead(without_the_gate_s_bend), GELU, "residual"),
    Fault(GELU, "gate", "z for 2z", after(chain_rule_forgotten), GELU, "jmp"),
    Fault(Softmax, "_axis", "always the last axis", instead(of_the_last_axis), Softmax, "forward"),
    Fault(Softmax, "mjp", "wrong sign", times(-1), Softmax, "mjp"),
    Fault(Softmax, "columns", "p of every set", instead(from_every_set), Softmax, "residual"),
    Fault(DenseSoftmax, "residual", "one entry beside the diagonal", after(one_entry_larger), soft_wide, "residual"),
    Fault(LogSoftmax, "mjp", "not transposed", instead(transposed), LogSoftmax, "mjp"),
    Fault(LogSoftmax, "strength", "wrong sign", times(-1), LogSoftmax, "residual"),
    Fault(PReLU, "_slope", "that of the first channel", instead(of_the_first_channel), PReLU, "weight.per_sample"),
    Fault(prelu._Slope, "per_sample", "where x > 0, too", instead(everywhere), PReLU, "weight.per_sample"),
    Fault(prelu._Slope, "kronecker", "wrong sign", times(-1), PReLU, "weight.kronecker"),
]  # fmt: skip
