"""Planted faults in layers, and in the Jacobians of their parameters."""

from dataclasses import replace

import numpy as np
from faults import Fault, after, before, instead, of, on_layer, times

from gbackprop import Sequential
from gbackprop.array import channels_last
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.window import Window, pad
from gbackprop.layers import (
    AvgPool2d,
    Bias,
    Conv2d,
    Dropout,
    Elementwise,
    Flatten,
    Linear,
    MaxPool2d,
    Outer,
    ParameterJacobian,
    ReLU,
    Sigmoid,
    Tanh,
    ZeroPad2d,
)
from gbackprop.layers.windows import conv
from gbackprop.network.container import Container
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.windows import linear

# -------------------------------------------------------------------------------------------------------------- checks

square = of(Linear, (3,), linear, 3, 3)
sequence = of(Linear, (4, 2), linear, 2, 3)
convolution = of(Conv2d, (2, 3, 4), plain.convolution, 2, 2, 2, padding=1)
chain = on_layer(lambda: Sequential(Linear(3, 3), Tanh(), dtype="float64"), (3,))

# ----------------------------------------------------------------------------------------------- longer wrong functions


def without_bias(self, x):
    return x @ self.parameters["weight"].T, x


def forwards(self, saved, mat):
    leaves, kept = saved
    for leaf in leaves:
        mat = leaf.layer.mjp(kept[leaf.position], mat)
    return mat


def third_added(pulled):
    return pulled + pulled[2] if len(pulled) == 3 else pulled


def transposed_weight(drawn):
    return drawn | {"weight": drawn["weight"].T}


def undilated(self, out):
    return replace(self, dilation=(1, 1)), out


def folded_without_stride(self, cols, spatial):
    axes, image = len(spatial), np.zeros((len(cols), *self.padded(spatial), cols.shape[-1]))
    seen = cols.reshape(*cols.shape[: 1 + axes], -1, cols.shape[-1])
    for k, where in enumerate(replace(self, stride=(1, 1)).offsets(self.out(spatial))):
        image[(slice(None), *where)] += seen[..., k, :]
    return image


def by_the_transposed_weight(self, saved, mat):
    return mat @ self.parameters["weight"].T


def as_forward(self, saved, mat):
    return np.stack([self.forward(column)[0] for column in mat])


def by_the_bare_mask(self, saved, mat):
    return mat if saved is None else mat * (saved > 0)


def minus_the_batch_mean(result):
    y, saved = result
    return y - y.mean(0), saved


def with_noise(result):
    y, saved = result
    return y + 1e-3 * np.random.default_rng().standard_normal(y.shape), saved


def kept_on_self(self, x):
    self.kept = self.value(x)
    return self.kept, (x, self.kept)


BUFFERS = {}


def into_a_shared_buffer(self, x):
    y = BUFFERS.setdefault((x.shape, x.dtype), np.empty_like(x))
    y[...] = self.value(x)
    return y, (x, y)


def in_place(self, saved, mat):
    mat *= self.first(*saved)
    return mat


def in_order_of_memory(self, saved, mat):
    return self, saved, mat.ravel("K").reshape(mat.shape)


def of_the_mean(self, saved, curvature, batch, shape):
    return self, [array.mean(0) for array in saved], curvature, 1, shape


def gradient_below(self, saved, grad):
    return self, saved, self.mjp(saved, grad)


def weight_alone(jacobians):
    return {"weight": jacobians["weight"]}


def not_moved(self, weight):
    return weight.reshape(*weight.shape[:-1], 2, 2, 2)


def first_position(self, mat):
    return self.rows(mat)[:, :, 0]


def all_maxima_win(self, saved, mat):
    winners = (seen >= saved[1] for seen in self._views(saved[0]))
    return self._spread(mat, winners, saved[0].shape[2:])


def padded_by_zeros(self, x):
    image = pad(channels_last(x), self.window.fitted(x.shape[2:]))
    return (image[(slice(None), *where)] for where in self.window.offsets(self.window.out(x.shape[2:])))


def columns_first(self, saved, mat):
    return mat.reshape(*mat.shape[:2], *saved[::-1]).swapaxes(2, 3)


def without_sign(self, mat, sign=None):
    return self, mat


def sign_twice(self, mat, sign=None):
    return self, mat, None if sign is None else sign * sign


def not_centered(moments):
    return replace(moments, centered=moments.centered + moments.count * moments.mean**2)


def divided_by_n_minus_one(x):
    x = x.astype(np.float64)
    return Moments(len(x), x.mean(0), ((x - x.mean(0)) ** 2).sum(0) * len(x) / (len(x) - 1))


def diagonal_blocks(self, average, shape):
    t, o = shape
    return np.einsum("tatb->ab", average.reshape(t, o, t, o))


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    # the function
    Fault(Linear, "forward", "no bias", instead(without_bias), Linear, "forward"),
    Fault(Window, "offsets", "dilation forgotten", before(undilated), Conv2d, "forward"),
    Fault(conv, "_padding", "'same' uneven in front", after(lambda p: tuple(q[::-1] for q in p)), Conv2d, "forward"),
    Fault(Conv2d, "_unfolded", "groups swapped", after(lambda u: u[::-1]), Conv2d, "forward"),
    Fault(MaxPool2d, "_views", "zeros in the padding", instead(padded_by_zeros), MaxPool2d, "forward"),
    Fault(AvgPool2d, "_counts", "padding counted", after(lambda n: np.full_like(n, 4)), AvgPool2d, "forward"),
    Fault(Linear, "draw", "weight transposed", after(transposed_weight), Linear, "parameter_shapes"),
    Fault(Linear, "output_shape", "the input's", instead(lambda self, shape: shape), Linear, "output_shape"),
    # its Jacobian
    Fault(Linear, "mjp", "weight transposed", instead(by_the_transposed_weight), square, "mjp"),
    Fault(Linear, "mjp", "wrong sign", times(-1), Linear, "mjp"),
    Fault(Linear, "mjp", "clipped", after(lambda y: np.clip(y, -1, 1)), Linear, "mjp"),
    Fault(Linear, "mjp", "third column added", after(third_added), Linear, "mjp"),
    Fault(Tanh, "mjp", "right for N = 3", after(lambda y: y * y.shape[1] / 3), Tanh, "mjp"),
    Fault(Linear, "mjp", "one part in ten million", times(1 + 1e-7), Linear, "mjp"),
    Fault(Linear, "mjp", "columns reversed", after(lambda y: y[::-1]), Linear, "mjp"),
    Fault(Linear, "vjp", "factor N", times(3), Linear, "vjp"),
    Fault(Linear, "jmp", "bias added", after(lambda y: y + 1e-6), Linear, "jmp"),
    Fault(Conv2d, "jmp", "bias added", instead(as_forward), Conv2d, "jmp"),
    Fault(Window, "fold", "off by one", after(lambda y: np.roll(y, 1, 1)), Conv2d, "mjp"),
    Fault(Window, "fold", "stride forgotten", instead(folded_without_stride), Conv2d, "mjp"),
    Fault(MaxPool2d, "_places", "one place late", after(lambda places: (places + 1) % 4), MaxPool2d, "jmp"),
    Fault(MaxPool2d, "mjp", "all equal maxima win", instead(all_maxima_win), MaxPool2d, "mjp"),
    Fault(AvgPool2d, "mjp", "sum instead of mean", times(4), AvgPool2d, "mjp"),
    Fault(AvgPool2d, "mjp", "off by one", after(lambda y: np.roll(y, 1, -1)), AvgPool2d, "mjp"),
    Fault(Sigmoid, "first", "1 + y for 1 − y", instead(lambda self, x, y: y * (1 + y)), Sigmoid, "jmp"),
    Fault(Tanh, "first", "at y instead of x", instead(lambda self, x, y: 1 - np.tanh(y) ** 2), Tanh, "jmp"),
    Fault(ReLU, "first", "step at 1", instead(lambda self, x, y: x > 1), ReLU, "jmp"),
    Fault(Dropout, "mjp", "mask not scaled", instead(by_the_bare_mask), Dropout, "mjp"),
    Fault(ZeroPad2d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -2)), ZeroPad2d, "mjp"),
    Fault(Flatten, "mjp", "last axis first", instead(columns_first), Flatten, "mjp"),
    Fault(Container, "mjp", "input to output", instead(forwards), chain, "mjp"),
    Fault(Tanh, "constant_jacobian", "declared", instead(True), Tanh, "constant_jacobian"),
    # its second derivative
    Fault(Tanh, "curvature", "not declared", instead("zero"), Tanh, "curvature"),
    Fault(Tanh, "second", "wrong sign", times(-1), Tanh, "residual"),
    Fault(Sigmoid, "second", "a factor lost", instead(lambda self, x, y: y * (1 - y) * (1 - y)), Sigmoid, "residual"),
    Fault(Sigmoid, "residual", "no gradient", instead(lambda self, s, g: self.second(*s)), Sigmoid, "residual"),
    Fault(Sigmoid, "residual", "gradient of the input", before(gradient_below), Sigmoid, "residual"),
    Fault(Elementwise, "average", "sum instead of mean", times(3), Tanh, "average"),
    Fault(Elementwise, "average", "mean before the product", before(of_the_mean), Tanh, "average"),
    # Jacobians in parameters
    Fault(Linear, "parameter_jacobians", "no bias", after(weight_alone), Linear, "parameter_jacobians"),
    Fault(Outer, "per_sample", "factor 2", times(2), Linear, "weight.per_sample"),
    Fault(Conv2d, "_to_parameter", "axes not moved", instead(not_moved), convolution, "weight.per_sample"),
    Fault(Bias, "per_sample", "first position alone", instead(first_position), Linear, "bias.per_sample"),
    Fault(ParameterJacobian, "sum", "mean instead of sum", times(1 / 3), Linear, "weight.sum"),
    Fault(ParameterJacobian, "batch", "sign forgotten", before(without_sign), Linear, "weight.batch"),
    Fault(ParameterJacobian, "square", "sign squared", before(sign_twice), Linear, "weight.square"),
    Fault(ParameterJacobian, "square_norm", "not squared", after(np.sqrt), Linear, "weight.square_norm"),
    Fault(ParameterJacobian, "moments", "not centered", after(not_centered), Linear, "weight.moments"),
    Fault(Moments, "of", "divided by n − 1", instead(staticmethod(divided_by_n_minus_one)), Linear, "weight.moments"),
    Fault(Outer, "input_square", "divided by positions", times(1 / 4), Linear, "weight.input_square"),
    Fault(Bias, "kronecker", "sign squared", before(sign_twice), Linear, "weight.kronecker"),
    Fault(Bias, "average_kronecker", "one position", instead(diagonal_blocks), sequence, "weight.average_kronecker"),
    # conduct
    Fault(Linear, "forward", "samples interact", after(minus_the_batch_mean), Linear, "forward"),
    Fault(Tanh, "forward", "another result each time", after(with_noise), Tanh, "forward"),
    Fault(Sigmoid, "forward", "keeps an attribute", instead(kept_on_self), Sigmoid, "forward"),
    Fault(Sigmoid, "forward", "into a shared buffer", instead(into_a_shared_buffer), Sigmoid, "forward"),
    Fault(Tanh, "mjp", "multiplies in place", instead(in_place), Tanh, "mjp"),
    Fault(Linear, "mjp", "float64 for float32", after(lambda y: y.astype(np.float64)), Linear, "mjp"),
    Fault(Tanh, "second", "float64 for float32", after(lambda y: y.astype(np.float64)), Tanh, "residual"),
    Fault(Linear, "jmp", "assumes a layout", before(in_order_of_memory), Linear, "jmp"),
]
