"""Planted faults in activations, in softmax, and in PReLU's slope."""

import definitions as plain
import numpy as np
from faults import Fault, after, instead, on_layer, times
from scipy import special

from gbackprop import layers as L
from gbackprop.calculus.residual import units
from gbackprop.layers.elementwise import prelu, smooth
from gbackprop.testing.flat import dense

# -------------------------------------------------------------------------------------------------------------- checks

leaky = on_layer(lambda: L.LeakyReLU(0.2), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 0.2 * x)))
threshold = on_layer(lambda: L.Threshold(0.2, -3.0), (4,), plain.elementwise(lambda x: np.where(x > 0.2, x, -3)))
hard_tanh = on_layer(lambda: L.Hardtanh(-0.2, 0.8), (5,), plain.elementwise(lambda x: np.clip(x, -0.2, 0.8)))
relu6 = on_layer(L.ReLU6, (5,), plain.elementwise(lambda x: np.clip(x, 0, 6)))
hard_sigmoid = on_layer(L.Hardsigmoid, (4,), plain.elementwise(lambda x: np.clip(x / 6 + 1 / 2, 0, 1)))
hard_swish = on_layer(L.Hardswish, (4,), plain.elementwise(lambda x: x * np.clip(x / 6 + 1 / 2, 0, 1)))
hard_shrink = on_layer(L.Hardshrink, (5,), plain.elementwise(lambda x: np.where(abs(x) > 0.5, x, 0)))
soft_shrink = on_layer(L.Softshrink, (5,), plain.elementwise(lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)))
elu = on_layer(lambda: L.ELU(1.3), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 1.3 * (np.exp(x) - 1))))
selu = on_layer(
    L.SELU,
    (4,),
    plain.elementwise(lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1))),
)
celu = on_layer(lambda: L.CELU(0.4), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 0.4 * (np.exp(x / 0.4) - 1))))
softplus = on_layer(lambda: L.Softplus(1.7), (4,), plain.elementwise(lambda x: np.log(1 + np.exp(1.7 * x)) / 1.7))
log_sigmoid = on_layer(L.LogSigmoid, (4,), plain.elementwise(lambda x: np.log(1 / (1 + np.exp(-x)))))
soft_sign = on_layer(L.Softsign, (4,), plain.elementwise(lambda x: x / (1 + abs(x))))
tanh_shrink = on_layer(L.Tanhshrink, (4,), plain.elementwise(lambda x: x - np.tanh(x)))
silu = on_layer(L.SiLU, (4,), plain.elementwise(lambda x: x / (1 + np.exp(-x))))
mish = on_layer(L.Mish, (4,), plain.elementwise(lambda x: x * np.tanh(np.log(1 + np.exp(x)))))
gelu = on_layer(L.GELU, (4,), plain.elementwise(lambda x: x * special.ndtr(x)))
gelu_tanh = on_layer(
    lambda: L.GELU("tanh"),
    (4,),
    plain.elementwise(lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
)
soft = on_layer(lambda: L.Softmax(1), (3, 2), plain.softmax(1))
soft_last = on_layer(lambda: L.Softmax(-1), (4,), plain.softmax(1))
soft_wide = on_layer(lambda: DenseSoftmax(), (200,))
log_soft = on_layer(lambda: L.LogSoftmax(2), (2, 3), plain.log_softmax(2))
slopes = on_layer(lambda: L.PReLU(2, -0.4), (2, 3), plain.prelu())

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
          instead(lambda self, x: np.where(x > 0, self.negative_slope * x, x)), leaky, "forward"),
    Fault(L.LeakyReLU, "first", "0 where x ≤ 0, as ReLU", instead(lambda self, x, y: x.real > 0), leaky, "jmp"),
    Fault(L.Threshold, "value", "0 for the value",
          instead(lambda self, x: np.where(x > self.threshold, x, 0)), threshold, "forward"),
    Fault(L.Threshold, "first", "threshold 0", instead(lambda self, x, y: x.real > 0), threshold, "jmp"),
    Fault(L.Hardtanh, "first", "as if the limits were ±1",
          instead(lambda self, x, y: abs(x.real) < 1), hard_tanh, "jmp"),
    Fault(L.ReLU6, "first", "no limit below", instead(lambda self, x, y: x.real < self.max_val), relu6, "jmp"),
    Fault(L.Hardsigmoid, "first", "missing 1/6", times(6), hard_sigmoid, "jmp"),
    Fault(L.Hardswish, "second", "1/6 for 1/3", times(1 / 2), hard_swish, "residual"),
    Fault(L.Hardshrink, "_is_small", "one side alone",
          instead(lambda self, x: x.real <= self.lambd), hard_shrink, "forward"),
    Fault(L.Softshrink, "value", "not moved by λ", instead(L.Hardshrink.value), soft_shrink, "forward"),
    Fault(L.ELU, "first", "missing α",
          instead(lambda self, x, y: np.where(x > 0, 1, np.exp(self._exponent(x)))), elu, "jmp"),
    Fault(L.ELU, "second", "wrong sign", times(-1), elu, "residual"),
    Fault(L.SELU, "scale", "λ forgotten", instead(1.0), selu, "forward"),
    Fault(L.CELU, "second", "1/α lost", instead(rate_once), celu, "residual"),
    Fault(L.Softplus, "value", "missing 1/β", times(1.7), softplus, "forward"),
    Fault(L.Softplus, "second", "missing β", times(1 / 1.7), softplus, "residual"),
    Fault(L.LogSigmoid, "first", "σ(x) for σ(−x)", instead(lambda self, x, y: smooth.sigmoid(x)), log_sigmoid, "jmp"),
    Fault(L.LogSigmoid, "second", "wrong sign", times(-1), log_sigmoid, "residual"),
    Fault(L.Softsign, "second", "no sign of x",
          instead(lambda self, x, y: -2 * self._share(x) ** 3), soft_sign, "residual"),
    Fault(L.Tanhshrink, "second", "4 for 8", times(1 / 2), tanh_shrink, "residual"),
    Fault(L.SiLU, "first", "x lost before σ'", instead(product_rule_forgotten), silu, "jmp"),
    Fault(L.SiLU, "second", "x σ'' lost", instead(without_the_gate_s_bend), silu, "residual"),
    Fault(L.Mish, "gate", "t' halved", after(chain_rule_forgotten), mish, "jmp"),
    Fault(L.GELU, "second", "x φ' lost", instead(without_the_gate_s_bend), gelu, "residual"),
    Fault(L.GELU, "gate", "z for 2z", after(chain_rule_forgotten), gelu_tanh, "jmp"),
    Fault(L.Softmax, "_axis", "always the last axis", instead(lambda self, x: -1), soft, "forward"),
    Fault(L.Softmax, "mjp", "wrong sign", times(-1), soft_last, "mjp"),
    Fault(L.Softmax, "columns", "p of every set", instead(from_every_set), soft, "residual"),
    Fault(DenseSoftmax, "residual", "one entry beside the diagonal", after(one_entry_larger), soft_wide, "residual"),
    Fault(L.LogSoftmax, "mjp", "not transposed",
          instead(lambda self, saved, mat: self.jmp(saved, mat)), log_soft, "mjp"),
    Fault(L.LogSoftmax, "strength", "wrong sign", times(-1), log_soft, "residual"),
    Fault(L.PReLU, "_slope", "that of the first channel",
          instead(lambda self, x: np.where(x.real > 0, 1, self.parameters["weight"][0])), slopes, "weight.per_sample"),
    Fault(prelu._Slope, "per_sample", "where x > 0, too", instead(everywhere), slopes, "weight.per_sample"),
    Fault(prelu._Slope, "kronecker", "wrong sign", times(-1), slopes, "weight.kronecker"),
]  # fmt: skip
