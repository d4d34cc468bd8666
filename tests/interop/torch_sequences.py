"""Torch modules with attention, recurrent layers and numbers as operands, with the shape of a sample of their input."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Doing(nn.Module):
    """A module of parts that does what a function of itself and its input says."""

    def __init__(self, doing, **parts):
        super().__init__()
        self.doing = doing
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x):
        return self.doing(self, x)


def tagger(kind, **keywords):
    """A recurrent layer's output at every position, unpacked."""

    def forward(m, x):
        out, _ = m.rnn(x)
        return m.fc(out)

    return Doing(forward, rnn=kind(3, 4, batch_first=True, **keywords), fc=nn.Linear(4, 2))


class Classifier(nn.Module):
    """The last state of a recurrent layer, in the ways that it is written; the state starts at zero."""

    def __init__(self, kind, take, **keywords):
        super().__init__()
        self.rnn, self.take = kind(3, 4, batch_first=True, **keywords), take
        self.fc = nn.Linear(8 if self.rnn.bidirectional else 4, 2)

    def forward(self, x):
        if isinstance(self.rnn, nn.LSTM):
            _, (h, _c) = self.rnn(x)
        else:
            _, h = self.rnn(x)
        return self.fc(self.take(h))


class Masked(nn.Module):
    """Attention with a part of a mask that is no part of the state dict."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("mask", torch.ones(9, 9, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x):
        length = x.size(1)
        y, _ = self.attn(x, x, x, attn_mask=self.mask[:length, :length])
        return x + y


class Numbers(nn.Module):
    """Sums, differences, products and quotients of tensors and numbers."""

    def __init__(self):
        super().__init__()
        self.fc, self.factor = nn.Linear(4, 4), torch.tensor(0.7)

    def forward(self, x):
        y = 2 * self.fc(x) / math.sqrt(x.size(-1)) - 1
        y = torch.tanh(1 - y) * x.shape[1] ** -0.5 + 0.25
        y = torch.sub(-y, x, alpha=0.5) - torch.mul(x, 0.3) * self.factor
        y = sum([y, self.fc(y).add(x, alpha=2).add(0.5, alpha=4).div(3)])
        y += 1
        return torch.neg(F.softplus(y)).sub(0.1).mul(1.5)


def scaled_attention():
    """Attention as it is written by hand."""

    def forward(m, x):
        q, k, v = m.q(x), m.k(x), m.v(x)
        return F.softmax(q @ k.transpose(1, 2) / math.sqrt(q.size(-1)), dim=-1) @ v

    return Doing(forward, **{name: nn.Linear(4, 4) for name in "qkv"})


def attending(doing, **keywords):
    return lambda: Doing(doing, attn=nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True, **keywords))


def causal(x):
    return nn.Transformer.generate_square_subsequent_mask(x.size(1), dtype=x.dtype)


def layer(**keywords):
    return nn.TransformerEncoderLayer(4, 2, 5, batch_first=True, **keywords)


def encoder(**keywords):
    return nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False, **keywords)


def words():
    return nn.Sequential(nn.Embedding(7, 4), encoder(norm=nn.LayerNorm(4)), nn.Flatten(), nn.Linear(20, 2))


LAST = {
    "h[-1]": (lambda h: h[-1], {}),
    "h[0]": (lambda h: h[0], {}),
    "h.squeeze(0)": (lambda h: h.squeeze(0), {}),
    "h[-1, :, :]": (lambda h: h[-1, :, :], {"num_layers": 2, "dropout": 0.3, "bias": False}),
    "h[-2] and h[-1]": (lambda h: torch.cat((h[-2], h[-1]), dim=1), {"num_layers": 2, "bidirectional": True}),
}
"""How last states are taken, and keywords of the layer."""

KINDS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}

SEQUENCES = {
    **{f"{name}, output": (lambda kind=kind: tagger(kind), (5, 3)) for name, kind in KINDS.items()},
    **{
        f"{name}, {words}": (lambda kind=kind, take=take, given=given: Classifier(kind, take, **given), (3, 3))
        for name, kind in KINDS.items()
        for words, (take, given) in LAST.items()
    },
    "RNN of ReLU": (lambda: tagger(nn.RNN, nonlinearity="relu", num_layers=2, bias=False), (4, 3)),
    "output and state": (
        lambda: Doing(lambda m, x: (lambda y: y[0][:, 1] * y[1][0][-1])(m.rnn(x)), rnn=nn.LSTM(3, 4, batch_first=True)),
        (4, 3),
    ),
    "two calls": (lambda: Doing(lambda m, x: m.rnn(m.rnn(x)[0])[0], rnn=nn.GRU(3, 3, batch_first=True)), (3, 3)),
    "self-attention": (attending(lambda m, x: m.attn(x, x, x, need_weights=False)[0]), (5, 4)),
    "attention with weights": (attending(lambda m, x: m.attn(query=x, key=x, value=x)[0], bias=False), (5, 4)),
    "attention, causal": (attending(lambda m, x: m.attn(x, x, x, attn_mask=causal(x), is_causal=True)[0]), (5, 4)),
    "attention, no mask": (attending(lambda m, x: m.attn(x, x, x, attn_mask=torch.zeros(5, 5).bool())[0]), (5, 4)),
    "attention, part of a mask": (Masked, (5, 4)),
    "encoder layer": (lambda: Doing(lambda m, x: m.layer(x), layer=layer(dropout=0.3)), (5, 4)),
    "encoder layers in a chain": (
        lambda: nn.Sequential(
            nn.Linear(3, 4),
            layer(activation="gelu", norm_first=True, layer_norm_eps=0.1),
            layer(activation=nn.Softplus(beta=2.0), bias=False),
            layer(activation=torch.tanh),
        ),
        (5, 3),
    ),
    "encoder layer, causal": (lambda: Doing(lambda m, x: m.layer(x, causal(x)), layer=layer()), (5, 4)),
    "encoder": (lambda: Doing(lambda m, x: m.encoder(x) - x, encoder=encoder()), (5, 4)),
    "encoder, causal": (
        lambda: Doing(lambda m, x: m.encoder(x, mask=causal(x), is_causal=True), encoder=encoder()),
        (5, 4),
    ),
    "words and an encoder": (words, (5,)),
    "numbers": (Numbers, (5, 4)),
    "scaled attention": (scaled_attention, (5, 4)),
}
