"""Planted faults in the fast forms of layers and Jacobians: the method that a form replaces must be named."""

from dataclasses import replace

import numpy as np
from faults import Fault, after, before, instead, of, on_layer, on_network, times
from faults_in_layers import not_centered

from gbackprop.array import channels_last
from gbackprop.calculus import jacobian
from gbackprop.calculus.jacobian import Outer
from gbackprop.calculus.moments import Moments
from gbackprop.engine.forms import bias, conv, elementwise, moments, moves, outer, pooling, transposed
from gbackprop.engine.forms import linear as linear_forms
from gbackprop.engine.registry import Context
from gbackprop.layers import AvgPool2d, Conv2d, ConvTranspose2d, Linear, MaxPool2d, Sigmoid, Slice, Tanh, ZeroPad2d
from gbackprop.testing.cases.windows import linear

# -------------------------------------------------------------------------------------------------------------- checks

doubled = on_layer(lambda: ConvTranspose2d(2, 2, 2, stride=2, padding=1), (2, 3, 3))
pairs = of(Linear, (2, 24), linear, 24, 3)  # many columns go by pairs of positions

# ----------------------------------------------------------------------------------------------- longer wrong functions


def overwritten(layer, saved, mat, place):
    place[(slice(None), *layer._where(len(saved)))] = mat


def with_larger_u(jacobian):
    u = jacobian.u
    jacobian.__dict__["u"] = 1.01 * u
    return jacobian


def with_another_u(layer, x, context):
    y, (seen, u) = conv_forward(layer, x, context)
    return y, (seen, u * 1.01)


conv_forward = conv.forward


def nowhere_zero(route):
    return None if route is None else replace(route, slope=np.ones_like(route.slope))


def of_the_first(layer, saved, curvature, *rest):
    return layer, [np.repeat(array[:1], len(array), 0) for array in saved], curvature, *rest


def every_other_output(b, groups):
    return np.stack([b[group::groups, group::groups] for group in range(groups)])


def sign_twice(jacobian, mat, sign, context):
    return jacobian, mat, None if sign is None else sign * sign, context


def squares_of_each_position(jacobian, mat, sign, context):
    g, u = jacobian.split(mat) ** 2, jacobian.u**2
    weighted = g if sign is None else g * sign[..., None, None]
    return jacobian.joined(weighted.sum(1).swapaxes(-1, -2) @ u)


def norms_of_each_position(jacobian, mat, sign, context):
    norms = (jacobian.split(mat) ** 2).sum(-1) * (jacobian.u[:, None] ** 2).sum(-1)
    return (norms if sign is None else norms * sign[..., None]).sum((0, 1, 3))


def of_earlier_columns(sound):
    def sums(jacobian, mat, context):
        same = [known for bias, _, known in context.sums if bias is jacobian and len(known) == len(mat)]
        return same[0] if same else sound(jacobian, mat, context)

    return sums


def padded_by_zeros(layer, x, memory):
    return moves.padded(channels_last(x), layer.window.fitted(x.shape[2:]), memory)


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(linear_forms, "forward", "no bias",
          instead(lambda layer, x, context: (x @ layer.parameters["weight"].T, x)), Linear, "forward"),
    Fault(linear_forms, "carry", "wrong sign", times(-1), Linear, "mjp"),
    Fault(linear_forms, "gradients", "mean over samples",
          after(lambda sums: {name: value / 3 for name, value in sums.items()}), Linear, "parameter_jacobians"),
    Fault(moves, "add_to", "overwrites", instead(overwritten), Slice, "mjp"),
    Fault(transposed, "forward", "no bias",
          instead(lambda layer, x, context: (layer._folded(x), x)), ConvTranspose2d, "forward"),
    Fault(transposed, "carry", "wrong sign", times(-1), ConvTranspose2d, "mjp"),
    Fault(transposed, "swapped", "u one percent too large", after(with_larger_u), doubled, "weight.batch"),
    Fault(conv, "forward", "saves another u", instead(with_another_u), Conv2d, "forward"),
    Fault(conv, "unfolded", "groups swapped", after(lambda u: u[::-1]), Conv2d, "forward"),
    Fault(conv, "_folded", "off by one", after(lambda y: np.roll(y, 1, 1)), Conv2d, "mjp"),
    Fault(conv, "carry", "one part in ten million", times(1 + 1e-7), Conv2d, "mjp"),
    Fault(pooling, "_image", "zeros in the padding", instead(padded_by_zeros), MaxPool2d, "forward"),
    Fault(pooling, "places", "one place late", after(lambda places: (places + 1) % 4), MaxPool2d, "mjp"),
    Fault(pooling, "max_average", "always the first sample", before(of_the_first), MaxPool2d, "average"),
    Fault(pooling, "mean_carry", "sum instead of mean", times(4), AvgPool2d, "mjp"),
    Fault(moves, "pad_carry", "crops the other side", after(lambda y: np.roll(y, 1, -2)), ZeroPad2d, "mjp"),
    Fault(elementwise, "_slope", "wrong sign", times(-1), Tanh, "mjp"),
    Fault(elementwise, "in_place", "twice", after(lambda y: None if y is None else 2 * y), Sigmoid, "mjp"),
    Fault(pooling, "through_max_pool", "twice", after(lambda r: replace(r, slope=2 * r.slope)), MaxPool2d, "mjp"),
    Fault(moves, "through_padding", "padding is not zero", after(nowhere_zero), ZeroPad2d, "mjp"),
    Fault(outer, "sum_", "mean instead of sum", times(1 / 3), Linear, "weight.sum"),
    Fault(outer, "batch", "sign forgotten",
          before(lambda jacobian, mat, sign, context: (jacobian, mat, None, context)), Linear, "weight.batch"),
    Fault(outer, "square", "sign squared", before(sign_twice), Linear, "weight.square"),
    Fault(outer, "square_by_positions", "of many columns", times(1.1), pairs, "weight.square"),
    Fault(outer, "batch_square", "positions apart", instead(squares_of_each_position), Linear, "weight.batch_square"),
    Fault(outer, "square_norm", "positions apart", instead(norms_of_each_position), Conv2d, "weight.square_norm"),
    Fault(outer, "square_norm", "not squared", after(lambda y: abs(y) ** 0.5), Linear, "weight.square_norm"),
    Fault(outer, "square_norm", "right for N = 3", after(lambda y: y * len(y) / 3), Linear, "weight.square_norm"),
    Fault(moments, "moments", "not centered", after(not_centered), Linear, "weight.moments"),
    Fault(moments, "_moments_of_sums", "twice", after(lambda m: replace(m, mean=2 * m.mean)), Linear, "weight.moments"),
    Fault(Moments, "about", "K forgotten",
          after(lambda moments: replace(moments, mean=0 * moments.mean)), Linear, "weight.moments"),
    Fault(outer, "input_square", "divided by positions", times(1 / 4), Linear, "weight.input_square"),
    Fault(outer, "input_square", "one A for all groups",
          after(lambda squares: np.broadcast_to(squares.mean(0), squares.shape)), Conv2d, "weight.input_square"),
    Fault(outer, "kronecker", "groups reversed", after(lambda b: b[::-1]), Conv2d, "weight.kronecker"),
    Fault(jacobian, "group_blocks", "every other output", instead(every_other_output), Conv2d, "weight.kronecker"),
    Fault(Outer, "average_kronecker", "first group alone",
          after(lambda b: np.broadcast_to(b[0], b.shape)), Conv2d, "weight.average_kronecker"),
    Fault(Outer, "by_entries", "in the order of u", instead(lambda self, a: a), Conv2d, "weight.input_square"),
    Fault(bias, "position_sums", "first position alone",
          instead(lambda jacobian, mat, context: jacobian.rows(mat)[:, :, 0]), Linear, "weight.kronecker"),
    Fault(bias, "position_sums", "of earlier columns", of_earlier_columns, on_network(), "backward"),
    Fault(Context, "average", "twice", after(lambda average: 2 * average), MaxPool2d, "average"),
]  # fmt: skip
