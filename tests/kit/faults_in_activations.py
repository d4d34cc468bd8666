"""Planted faults in activations, in softmax, and in PReLU's slope."""

import numpy as np
from faults import Fault, after, instead, on_layer, times

from gbackprop import layers as L
from gbackprop.calculus.residual import units
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


def from_every_set(self, p, strength, span):
    n, shape = len(p), p.shape[1:]
    k = np.arange(p[0].size)[span]
    each = strength.reshape(n, -1)[:, k].T
    root = np.sqrt(abs(each)).reshape(len(k), n, *(1,) * len(shape))
    return (root * (units(k, n, shape, p.dtype) - p),), np.sign(each)


class DenseSoftmax(L.Layer):
    """Softmax over the only axis with its residual as a matrix."""

    curvature = "dense"
    softmax = L.Softmax(1)

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


def everywhere(self, mat):
    return (mat * self.x).reshape(*mat.shape[:2], self.count, -1).sum(3)


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(L.LeakyReLU, "value", "a on the other side",
          instead(lambda self, x: np.where(x > 0, self.negative_slope * x, x)), L.LeakyReLU, "forward"),
    Fault(L.LeakyReLU, "first", "0 where x ≤ 0, as ReLU", instead(lambda self, x, y: x.real > 0), L.LeakyReLU, "jmp"),
    Fault(L.Threshold, "value", "0 for the value",
          instead(lambda self, x: np.where(x > self.threshold, x, 0)), L.Threshold, "forward"),
    Fault(L.Threshold, "first", "threshold 0", instead(lambda self, x, y: x.real > 0), L.Threshold, "jmp"),
    Fault(L.Hardtanh, "first", "as if the limits were ±1",
          instead(lambda self, x, y: abs(x.real) < 1), L.Hardtanh, "jmp"),
    Fault(L.ReLU6, "first", "no limit below", instead(lambda self, x, y: x.real < self.max_val), L.ReLU6, "jmp"),
    Fault(L.Hardsigmoid, "first", "missing 1/6", times(6), L.Hardsigmoid, "jmp"),
    Fault(L.Hardswish, "second", "1/6 for 1/3", times(1 / 2), L.Hardswish, "residual"),
    Fault(L.Hardshrink, "_is_small", "one side alone",
          instead(lambda self, x: x.real <= self.lambd), L.Hardshrink, "forward"),
    Fault(L.Softshrink, "value", "not moved by λ", instead(L.Hardshrink.value), L.Softshrink, "forward"),
    Fault(L.ELU, "first", "missing α",
          instead(lambda self, x, y: np.where(x > 0, 1, np.exp(self._exponent(x)))), L.ELU, "jmp"),
    Fault(L.ELU, "second", "wrong sign", times(-1), L.ELU, "residual"),
    Fault(L.SELU, "scale", "λ forgotten", instead(1.0), L.SELU, "forward"),
    Fault(L.CELU, "second", "1/α lost", instead(rate_once), L.CELU, "residual"),
    Fault(L.Softplus, "value", "missing 1/β", times(1.7), L.Softplus, "forward"),
    Fault(L.Softplus, "second", "missing β", times(1 / 1.7), L.Softplus, "residual"),
    Fault(L.LogSigmoid, "first", "σ(x) for σ(−x)", instead(lambda self, x, y: smooth.sigmoid(x)), L.LogSigmoid, "jmp"),
    Fault(L.LogSigmoid, "second", "wrong sign", times(-1), L.LogSigmoid, "residual"),
    Fault(L.Softsign, "second", "no sign of x",
          instead(lambda self, x, y: -2 * self._share(x) ** 3), L.Softsign, "residual"),
    Fault(L.Tanhshrink, "second", "4 for 8", times(1 / 2), L.Tanhshrink, "residual"),
    Fault(L.SiLU, "first", "x lost before σ'", instead(product_rule_forgotten), L.SiLU, "jmp"),
    Fault(L.SiLU, "second", "x σ'' lost", instead(without_the_gate_s_bend), L.SiLU, "residual"),
    Fault(L.Mish, "gate", "t' halved", after(chain_rule_forgotten), L.Mish, "jmp"),
    Fault(L.GELU, "second", "x φ' lost", instead(without_the_gate_s_bend), L.GELU, "residual"),
    Fault(L.GELU, "gate", "z for 2z", after(chain_rule_forgotten), L.GELU, "jmp"),
    Fault(L.Softmax, "_axis", "always the last axis", instead(lambda self, x: -1), L.Softmax, "forward"),
    Fault(L.Softmax, "mjp", "wrong sign", times(-1), L.Softmax, "mjp"),
    Fault(L.Softmax, "columns", "p of every set", instead(from_every_set), L.Softmax, "residual"),
    Fault(DenseSoftmax, "residual", "one entry beside the diagonal", after(one_entry_larger), soft_wide, "residual"),
    Fault(L.LogSoftmax, "mjp", "not transposed",
          instead(lambda self, saved, mat: self.jmp(saved, mat)), L.LogSoftmax, "mjp"),
    Fault(L.LogSoftmax, "strength", "wrong sign", times(-1), L.LogSoftmax, "residual"),
    Fault(L.PReLU, "_slope", "that of the first channel",
          instead(lambda self, x: np.where(x.real > 0, 1, self.parameters["weight"][0])), L.PReLU, "weight.per_sample"),
    Fault(prelu._Slope, "per_sample", "where x > 0, too", instead(everywhere), L.PReLU, "weight.per_sample"),
    Fault(prelu._Slope, "kronecker", "wrong sign", times(-1), L.PReLU, "weight.kronecker"),
]  # fmt: skip
