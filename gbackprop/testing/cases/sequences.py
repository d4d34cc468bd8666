"""Attention and recurrent layers, and the layers that they are made of: rows of the table of cases."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from scipy import special

from gbackprop import layers as L
from gbackprop.calculus.layer import Layer
from gbackprop.layers.elementwise.softmax import CausalSoftmax
from gbackprop.layers.norms.affine import Matrix, Plus, Shift, Times, Zeros
from gbackprop.layers.operations.weights import Weight
from gbackprop.network import GRU, LSTM, RNN, MultiheadAttention, TransformerEncoderLayer
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import LayerRow


def causal_softmax(x: np.ndarray) -> np.ndarray:
    """Return each row's softmax over the entries up to the diagonal."""
    y = np.zeros_like(x)
    for index in np.ndindex(x.shape[:-1]):
        row = np.exp(x[index][: index[-1] + 1])
        y[index][: len(row)] = row / sum(row)
    return y


def attention(x: np.ndarray, *, heads: int, causal: bool = False, **parameters: np.ndarray) -> np.ndarray:
    """Compute attention position by position and head by head, with torch's parameters."""
    y, d = np.empty_like(x), x.shape[2] // heads
    for n, sample in enumerate(x):
        projected = sample @ parameters["in_proj_weight"].T + parameters.get("in_proj_bias", 0)
        queries, keys, values = np.split(projected, 3, axis=1)
        mixed = np.zeros_like(sample)
        for t in range(len(sample)):
            for head in range(heads):
                own = slice(head * d, (head + 1) * d)
                seen = range(t + 1 if causal else len(sample))
                scores = [np.exp(queries[t, own] @ keys[s, own] / sqrt(d)) for s in seen]
                mixed[t, own] = sum(score * values[s, own] for score, s in zip(scores, seen)) / sum(scores)
        y[n] = mixed @ parameters["out_proj.weight"].T + parameters.get("out_proj.bias", 0)
    return y


def encoder(
    x: np.ndarray, *, heads: int, eps: float = 1e-5, norm_first: bool = False, **parameters: np.ndarray
) -> np.ndarray:
    """Compute an encoder layer with tanh as its activation, with torch's parameters."""

    def norm(z: np.ndarray, name: str) -> np.ndarray:
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return plain.over_last(z, weight, bias, normalized_shape=x.shape[2], eps=eps)

    own: dict[str, Any] = {name.removeprefix("self_attn."): value for name, value in parameters.items()}

    def feed_forward(z: np.ndarray) -> np.ndarray:
        hidden = np.tanh(z @ parameters["linear1.weight"].T + parameters["linear1.bias"])
        return hidden @ parameters["linear2.weight"].T + parameters["linear2.bias"]

    if norm_first:
        y = x + attention(norm(x, "norm1"), heads=heads, **own)
        return y + feed_forward(norm(y, "norm2"))
    y = norm(x + attention(x, heads=heads, **own), "norm1")
    return norm(y + feed_forward(y), "norm2")


def rnn_step(a: np.ndarray, b: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the next state of an RNN."""
    return np.tanh(a + b), c


def lstm_step(a: np.ndarray, b: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the next state of an LSTM, and its cell."""
    i, f, g, o = np.split(a + b, 4)
    c = special.expit(f) * c + special.expit(i) * np.tanh(g)
    return special.expit(o) * np.tanh(c), c


def gru_step(a: np.ndarray, b: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the next state of a GRU."""
    (a_r, a_z, a_n), (b_r, b_z, b_n) = np.split(a, 3), np.split(b, 3)
    r, z = special.expit(a_r + b_r), special.expit(a_z + b_z)
    return (1 - z) * np.tanh(a_n + r * b_n) + z * h, c


def recurrent(x: np.ndarray, *, step: Any, **parameters: np.ndarray) -> np.ndarray:
    """Compute a recurrent layer sample by sample and step by step, with torch's parameters."""
    number = 0
    while f"weight_ih_l{number}" in parameters:
        ends = [end for end in (f"l{number}", f"l{number}_reverse") if f"weight_ih_{end}" in parameters]
        x = np.concatenate([one_direction(x, step, end, parameters) for end in ends], axis=2)
        number += 1
    return x


def one_direction(x: np.ndarray, step: Any, end: str, parameters: dict[str, np.ndarray]) -> np.ndarray:
    """Compute one layer in one direction."""
    inputs, hidden = parameters[f"weight_ih_{end}"], parameters[f"weight_hh_{end}"]
    y = np.zeros((*x.shape[:2], hidden.shape[1]))
    for n in range(len(x)):
        h = c = np.zeros(hidden.shape[1])
        for t in reversed(range(x.shape[1])) if end.endswith("reverse") else range(x.shape[1]):
            a = inputs @ x[n, t] + parameters.get(f"bias_ih_{end}", 0)
            b = hidden @ h + parameters.get(f"bias_hh_{end}", 0)
            h, c = step(a, b, h, c)
            y[n, t] = h
    return y


PARTS = (
    LayerRow(
        lambda: Matrix("weight_ih_l0", 3, 2, 1.0), (2, 3),
        lambda x, weight_ih_l0: np.einsum("oi,nti->nto", weight_ih_l0, x),
    ),
    LayerRow(lambda: Shift("bias_ih_l0", 2, 1.0), (3, 2), lambda x, bias_ih_l0: x + bias_ih_l0),
    LayerRow(lambda: Weight(3, 2), (2, 3), lambda x, weight, bias: np.einsum("io,nti->nto", weight, x) + bias),
    LayerRow(lambda: Times(-0.3), (2, 3), lambda x: -0.3 * x),
    LayerRow(lambda: Zeros(2), (2, 3), lambda x: np.zeros((len(x), 2))),
    LayerRow(CausalSoftmax, (2, 3, 3), causal_softmax),
    LayerRow(lambda: Plus(0.7), (2, 3), lambda x: x + 0.7),
)
"""Layers inside attention and recurrent layers, that stand for numbers in torch's modules, or for operations."""


def encoder_of(**options: Any) -> TransformerEncoderLayer:
    """Return a small encoder layer."""
    return TransformerEncoderLayer(4, 2, 3, activation=L.Tanh(), **options)


SEQUENCES = (
    LayerRow(lambda: MultiheadAttention(4, 2), (3, 4), partial(attention, heads=2)),
    LayerRow(
        lambda: MultiheadAttention(4, 1, bias=False, is_causal=True), (3, 4), partial(attention, heads=1, causal=True)
    ),
    LayerRow(encoder_of, (2, 4), partial(encoder, heads=2)),
    LayerRow(
        lambda: encoder_of(layer_norm_eps=0.1, norm_first=True), (2, 4),
        partial(encoder, heads=2, eps=0.1, norm_first=True),
    ),
    LayerRow(lambda: RNN(2, 3), (3, 2), partial(recurrent, step=rnn_step)),
    LayerRow(lambda: LSTM(2, 2, 2, bidirectional=True), (3, 2), partial(recurrent, step=lstm_step)),
    LayerRow(lambda: GRU(2, 2, bidirectional=True, bias=False), (3, 2), partial(recurrent, step=gru_step)),
)
"""Attention and recurrent layers."""


def attentive() -> list[Layer]:
    """Return a network of causal attention and an LSTM."""
    return [MultiheadAttention(2, 1, is_causal=True), LSTM(2, 2), L.Flatten(), L.Linear(6, 3)]
