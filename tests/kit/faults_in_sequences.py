"""Planted faults in attention and recurrent layers, and in the layers that they are made of."""

import copy
from functools import partial

import numpy as np
from faults import Fault, after, before, check_rows, instead, on_graph, times

from gbackprop import layers
from gbackprop.calculus.layer import Nodes
from gbackprop.engine.forms import recurrent as short
from gbackprop.layers.elementwise.softmax import CausalSoftmax
from gbackprop.layers.norms.affine import Matrix, Plus, Shift, Times, Zeros
from gbackprop.layers.recurrent import GRUSteps, Steps
from gbackprop.network import GRU, LSTM, TransformerEncoderLayer, attention
from gbackprop.network.recurrent import Recurrent
from gbackprop.plain.flow import Flow
from gbackprop.testing.cases.sequences import SEQUENCES

# -------------------------------------------------------------------------------------------------------------- checks

heads, masked, encoder, norm_first, rnn, lstm, gru = (partial(check_rows, (row,)) for row in SEQUENCES)
unrolled = on_graph(
    lambda: [layers.Linear(2, 3), layers.Unflatten(1, (3, 1)), LSTM(1, 2), layers.Select(1, 2), layers.Linear(2, 2)]
)
whole_gru, whole_lstm = (
    on_graph(
        lambda kind=kind, sides=sides: [
            layers.Linear(2, 2), layers.Unflatten(1, (2, 1)), kind(1, 2, bidirectional=sides == 2), layers.Flatten(),
            layers.Linear(4 * sides, 2),
        ]
    )
    for kind, sides in ((GRU, 2), (LSTM, 1))
)  # fmt: skip

# ----------------------------------------------------------------------------------------------- longer wrong functions


class Forwards(str):
    """The end of names of the reverse direction, which does not say so."""

    def endswith(self, *given):
        return False


def in_the_same_direction(self, nodes, name, suffix, source, length):
    return self, nodes, name, Forwards(suffix), source, length


def turned(sound):
    """The other triangle."""

    def forward(self, x):
        y = sound(self, x[..., ::-1, ::-1])[0][..., ::-1, ::-1]
        return y, y

    return forward


def without(start):
    """Parameters whose names start so are not added."""
    return lambda sound: lambda self, x: (x, None) if self.key.startswith(start) else sound(self, x)


def each_step_by_itself(sound):
    """A copy of the layer at each later step, with parameters of its own."""
    return lambda self, name, layer, *sources: sound(
        self, name, copy.copy(layer) if "_step" in name else layer, *sources
    )


def without_the_sign(z):
    z[...] = 1 / (1 + np.exp(z))


def with_another_forget_gate(slopes):
    *others, f = slopes
    return *others, np.roll(f, 1, axis=0)


def of_the_bias(self, saved):
    jacobian, shape = layers.ParameterJacobian(), self.parameter_shapes()[self.key]
    jacobian.per_sample = lambda mat: np.broadcast_to(self.rows(mat).sum(2)[..., None], (*mat.shape[:2], *shape))
    return {self.key: jacobian}


def without_norms(self, nodes, name, chain, source):
    return self, nodes, name, tuple(key for key in chain if not key.startswith("norm")), source


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(Matrix, "forward", "factor 2", after(lambda pair: (2 * pair[0], pair[1])), Matrix, "forward"),
    Fault(Matrix, "mjp", "wrong sign", times(-1), Matrix, "mjp"),
    Fault(Matrix, "parameter_jacobians", "without the input", instead(of_the_bias), Matrix, "weight_ih_l0.per_sample"),
    Fault(Shift, "parameter_jacobians", "none", instead(lambda self, saved: {}), Shift, "parameter_jacobians"),
    Fault(Times, "jmp", "no factor", instead(lambda self, saved, mat: mat), Times, "jmp"),
    Fault(Plus, "forward", "wrong sign", instead(lambda self, x: (x - self.number, None)), Plus, "forward"),
    Fault(Plus, "mjp", "not passed on", after(lambda mat: 0 * mat), Plus, "mjp"),
    Fault(Zeros, "mjp", "ones", after(lambda mat: mat + 1), Zeros, "mjp"),
    Fault(CausalSoftmax, "forward", "the other triangle", turned, CausalSoftmax, "forward"),
    Fault(CausalSoftmax, "forward", "no mask", instead(layers.Softmax.forward), masked, "forward"),
    Fault(attention, "Times", "no 1/√d", instead(lambda factor: Times(1.0)), heads, "forward"),
    Fault(attention, "Times", "1/d for 1/√d", instead(lambda factor: Times(factor**2)), heads, "forward"),
    Fault(attention, "Select", "values for keys",
          instead(lambda dim, i: layers.Select(dim, (0, 2, 1)[i])), heads, "forward"),
    Fault(attention, "Permute", "heads interleaved",
          instead(lambda dims: layers.Permute((0, 2, 3, 1) if dims == (0, 2, 1, 3) else dims)), heads, "forward"),
    Fault(attention, "Add", "product for sum", instead(layers.Multiply), encoder, "forward"),
    Fault(TransformerEncoderLayer, "through", "norms left out", before(without_norms), norm_first, "forward"),
    Fault(Recurrent, "gate", "gates in another order",
          before(lambda self, i, count=1: (self, {1: 2, 2: 1}.get(i, i), count)), lstm, "forward"),
    Fault(Recurrent, "direction", "not reversed", before(in_the_same_direction), lstm, "forward"),
    Fault(Recurrent, "suffixes", "directions exchanged", after(lambda ends: ends[::-1]), lstm, "forward"),
    Fault(LSTM, "step", "cell forgotten",
          before(lambda self, add, x, hidden, state: (self, add, x, hidden, state[:1])), lstm, "forward"),
    Fault(GRU, "minus", "h + n for h − n", instead(Times(1.0)), gru, "forward"),
    Fault(Shift, "forward", "b_hh lost", without("bias_hh"), rnn, "forward"),
    Fault(Shift, "forward", "b_ih lost", without("bias_ih"), rnn, "forward"),
    Fault(Nodes, "add", "tie between steps lost", each_step_by_itself, unrolled, "backward"),
    Fault(Steps, "back", "nothing from the step above", after(lambda mat: 0 * mat), whole_gru, "backward"),
    Fault(GRUSteps, "at_hidden", "r lost", instead(lambda self, saved, delta: delta), whole_gru, "backward"),
    Fault(Steps, "restored", "not reversed", after(lambda view: view[..., ::-1, :]), whole_gru, "backward"),
    Fault(short, "_slopes", "f of the step above", after(with_another_forget_gate), whole_lstm, "backward"),
    Fault(short, "_sigmoid", "e^z for e^-z", instead(without_the_sign), whole_lstm, "backward"),
    Fault(Flow, "mixed", "no step depends on another", instead(lambda self, leaf: {}), unrolled, "BatchDiagHessian"),
]  # fmt: skip
