"""Planted faults in layers, and in the Jacobians of their parameters."""

from dataclasses import replace

import numpy as np
from faults import Fault, after, before, instead, of, on_layer, times

from gbackprop import Sequential
from gbackprop import layers as L
from gbackprop.array import channels_last
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.window import Window, pad
from gbackprop.layers.windows import conv
from gbackprop.network.container import Container
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.windows import linear

# -------------------------------------------------------------------------------------------------------------- checks

square = of(L.Linear, (3,), linear, 3, 3)
sequence = of(L.Linear, (4, 2), linear, 2, 3)
convolution = of(L.Conv2d, (2, 3, 4), plain.convolution, 2, 2, 2, padding=1)
chain = on_layer(lambda: Sequential(L.Linear(3, 3), L.Tanh(), dtype="float64"), (3,))

# ----------------------------------------------------------------------------------------------- longer wrong functions


def forwards(self, saved, mat):
    leaves, kept = saved
    for leaf in leaves:
        mat = leaf.layer.mjp(kept[leaf.position], mat)
    return mat


def folded_without_stride(self, cols, spatial):
    axes, image = len(spatial), np.zeros((len(cols), *self.padded(spatial), cols.shape[-1]))
    seen = cols.reshape(*cols.shape[: 1 + axes], -1, cols.shape[-1])
    for k, where in enumerate(replace(self, stride=(1, 1)).offsets(self.out(spatial))):
        image[(slice(None), *where)] += seen[..., k, :]
    return image


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


def of_the_mean(self, saved, curvature, batch, shape):
    return self, [array.mean(0) for array in saved], curvature, 1, shape


def all_maxima_win(self, saved, mat):
    winners = (seen >= saved[1] for seen in self._views(saved[0]))
    return self._spread(mat, winners, saved[0].shape[2:])


def padded_by_zeros(self, x):
    image = pad(channels_last(x), self.window.fitted(x.shape[2:]))
    return (image[(slice(None), *where)] for where in self.window.offsets(self.window.out(x.shape[2:])))


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
    Fault(L.Linear, "forward", "no bias",
          instead(lambda self, x: (x @ self.parameters["weight"].T, x)), L.Linear, "forward"),
    Fault(Window, "offsets", "dilation forgotten",
          before(lambda self, out: (replace(self, dilation=(1, 1)), out)), L.Conv2d, "forward"),
    Fault(conv, "_padding", "'same' uneven in front", after(lambda p: tuple(q[::-1] for q in p)), L.Conv2d, "forward"),
    Fault(L.Conv2d, "_unfolded", "groups swapped", after(lambda u: u[::-1]), L.Conv2d, "forward"),
    Fault(L.MaxPool2d, "_views", "zeros in the padding", instead(padded_by_zeros), L.MaxPool2d, "forward"),
    Fault(L.AvgPool2d, "_counts", "padding counted", after(lambda n: np.full_like(n, 4)), L.AvgPool2d, "forward"),
    Fault(L.Linear, "draw", "weight transposed",
          after(lambda drawn: drawn | {"weight": drawn["weight"].T}), L.Linear, "parameter_shapes"),
    Fault(L.Linear, "output_shape", "the input's", instead(lambda self, shape: shape), L.Linear, "output_shape"),
    # its Jacobian
    Fault(L.Linear, "mjp", "weight transposed",
          instead(lambda self, saved, mat: mat @ self.parameters["weight"].T), square, "mjp"),
    Fault(L.Linear, "mjp", "wrong sign", times(-1), L.Linear, "mjp"),
    Fault(L.Linear, "mjp", "clipped", after(lambda y: np.clip(y, -1, 1)), L.Linear, "mjp"),
    Fault(L.Linear, "mjp", "third column added",
          after(lambda pulled: pulled + pulled[2] if len(pulled) == 3 else pulled), L.Linear, "mjp"),
    Fault(L.Tanh, "mjp", "right for N = 3", after(lambda y: y * y.shape[1] / 3), L.Tanh, "mjp"),
    Fault(L.Linear, "mjp", "one part in ten million", times(1 + 1e-7), L.Linear, "mjp"),
    Fault(L.Linear, "mjp", "columns reversed", after(lambda y: y[::-1]), L.Linear, "mjp"),
    Fault(L.Linear, "vjp", "factor N", times(3), L.Linear, "vjp"),
    Fault(L.Linear, "jmp", "bias added", after(lambda y: y + 1e-6), L.Linear, "jmp"),
    Fault(L.Conv2d, "jmp", "bias added",
          instead(lambda self, saved, mat: np.stack([self.forward(column)[0] for column in mat])), L.Conv2d, "jmp"),
    Fault(Window, "fold", "off by one", after(lambda y: np.roll(y, 1, 1)), L.Conv2d, "mjp"),
    Fault(Window, "fold", "stride forgotten", instead(folded_without_stride), L.Conv2d, "mjp"),
    Fault(L.MaxPool2d, "_places", "one place late", after(lambda places: (places + 1) % 4), L.MaxPool2d, "jmp"),
    Fault(L.MaxPool2d, "mjp", "all equal maxima win", instead(all_maxima_win), L.MaxPool2d, "mjp"),
    Fault(L.AvgPool2d, "mjp", "sum instead of mean", times(4), L.AvgPool2d, "mjp"),
    Fault(L.AvgPool2d, "mjp", "off by one", after(lambda y: np.roll(y, 1, -1)), L.AvgPool2d, "mjp"),
    Fault(L.Sigmoid, "first", "1 + y for 1 − y", instead(lambda self, x, y: y * (1 + y)), L.Sigmoid, "jmp"),
    Fault(L.Tanh, "first", "at y instead of x", instead(lambda self, x, y: 1 - np.tanh(y) ** 2), L.Tanh, "jmp"),
    Fault(L.ReLU, "first", "step at 1", instead(lambda self, x, y: x > 1), L.ReLU, "jmp"),
    Fault(L.Dropout, "mjp", "mask not scaled",
          instead(lambda self, saved, mat: mat if saved is None else mat * (saved > 0)), L.Dropout, "mjp"),
    Fault(L.ZeroPad2d, "mjp", "crops the other side", after(lambda y: np.roll(y, 1, -2)), L.ZeroPad2d, "mjp"),
    Fault(L.Flatten, "mjp", "last axis first",
          instead(lambda self, saved, mat: mat.reshape(*mat.shape[:2], *saved[::-1]).swapaxes(2, 3)), L.Flatten, "mjp"),
    Fault(Container, "mjp", "input to output", instead(forwards), chain, "mjp"),
    Fault(L.Tanh, "constant_jacobian", "declared", instead(True), L.Tanh, "constant_jacobian"),
    # its second derivative
    Fault(L.Tanh, "curvature", "not declared", instead("zero"), L.Tanh, "curvature"),
    Fault(L.Tanh, "second", "wrong sign", times(-1), L.Tanh, "residual"),
    Fault(L.Sigmoid, "second", "a factor lost",
          instead(lambda self, x, y: y * (1 - y) * (1 - y)), L.Sigmoid, "residual"),
    Fault(L.Sigmoid, "residual", "no gradient", instead(lambda self, s, g: self.second(*s)), L.Sigmoid, "residual"),
    Fault(L.Sigmoid, "residual", "gradient of the input",
          before(lambda self, saved, grad: (self, saved, self.mjp(saved, grad))), L.Sigmoid, "residual"),
    Fault(L.Elementwise, "average", "sum instead of mean", times(3), L.Tanh, "average"),
    Fault(L.Elementwise, "average", "mean before the product", before(of_the_mean), L.Tanh, "average"),
    # Jacobians in parameters
    Fault(L.Linear, "parameter_jacobians", "no bias",
          after(lambda jacobians: {"weight": jacobians["weight"]}), L.Linear, "parameter_jacobians"),
    Fault(L.Outer, "per_sample", "factor 2", times(2), L.Linear, "weight.per_sample"),
    Fault(L.Conv2d, "_to_parameter", "axes not moved",
          instead(lambda self, weight: weight.reshape(*weight.shape[:-1], 2, 2, 2)), convolution, "weight.per_sample"),
    Fault(L.Bias, "per_sample", "first position alone",
          instead(lambda self, mat: self.rows(mat)[:, :, 0]), L.Linear, "bias.per_sample"),
    Fault(L.ParameterJacobian, "sum", "mean instead of sum", times(1 / 3), L.Linear, "weight.sum"),
    Fault(L.ParameterJacobian, "batch", "sign forgotten",
          before(lambda self, mat, sign=None: (self, mat)), L.Linear, "weight.batch"),
    Fault(L.ParameterJacobian, "square", "sign squared", before(sign_twice), L.Linear, "weight.square"),
    Fault(L.ParameterJacobian, "square_norm", "not squared", after(np.sqrt), L.Linear, "weight.square_norm"),
    Fault(L.ParameterJacobian, "moments", "not centered", after(not_centered), L.Linear, "weight.moments"),
    Fault(Moments, "of", "divided by n − 1", instead(staticmethod(divided_by_n_minus_one)), L.Linear, "weight.moments"),
    Fault(L.Outer, "input_square", "divided by positions", times(1 / 4), L.Linear, "weight.input_square"),
    Fault(L.Bias, "kronecker", "sign squared", before(sign_twice), L.Linear, "weight.kronecker"),
    Fault(L.Bias, "average_kronecker", "one position", instead(diagonal_blocks), sequence, "weight.average_kronecker"),
    # conduct
    Fault(L.Linear, "forward", "samples interact", after(minus_the_batch_mean), L.Linear, "forward"),
    Fault(L.Tanh, "forward", "another result each time", after(with_noise), L.Tanh, "forward"),
    Fault(L.Sigmoid, "forward", "keeps an attribute", instead(kept_on_self), L.Sigmoid, "forward"),
    Fault(L.Sigmoid, "forward", "into a shared buffer", instead(into_a_shared_buffer), L.Sigmoid, "forward"),
    Fault(L.Tanh, "mjp", "multiplies in place", instead(in_place), L.Tanh, "mjp"),
    Fault(L.Linear, "mjp", "float64 for float32", after(lambda y: y.astype(np.float64)), L.Linear, "mjp"),
    Fault(L.Tanh, "second", "float64 for float32", after(lambda y: y.astype(np.float64)), L.Tanh, "residual"),
    Fault(L.Linear, "jmp", "assumes a layout",
          before(lambda self, saved, mat: (self, saved, mat.ravel("K").reshape(mat.shape))), L.Linear, "jmp"),
]  # fmt: skip
