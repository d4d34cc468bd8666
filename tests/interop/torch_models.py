"""Small torch models of many kinds, as their authors write them, with the shape of a sample of their input."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch_sequences import Doing
from torch_transformers import TRANSFORMERS


class Own(Doing):
    """A module that has parameters and buffers of its own."""

    def __init__(self, doing, parameters=None, buffers=None, **parts):
        super().__init__(doing, **parts)
        for name, value in (parameters or {}).items():
            self.register_parameter(name, nn.Parameter(value))
        for name, value in (buffers or {}).items():
            self.register_buffer(name, value)


class Lora(nn.Linear):
    """A linear layer that is frozen, beside a product of two small matrices."""

    def __init__(self, before, after, rank=2):
        super().__init__(before, after)
        self.weight.requires_grad_(False)
        self.A, self.B = nn.Parameter(torch.randn(rank, before)), nn.Parameter(torch.randn(after, rank))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + 0.5 * (x @ self.A.T @ self.B.T)


class Standardized(nn.Conv2d):
    """A convolution by a weight that is standardized."""

    def forward(self, x):
        w = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        w = w / (w.std(dim=(1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ChannelNorm(nn.LayerNorm):
    """A LayerNorm of channels, which calls torch's function by its own parameters."""

    def forward(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class Activated(nn.BatchNorm2d):
    """A BatchNorm with an activation, which calls torch's function."""

    def forward(self, x):
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, self.momentum, self.eps)
        return F.silu(y)


def tied_language_model():
    def forward(m, x):
        return m.decoder(m.rnn(m.encoder(x))[0])

    module = Doing(forward, encoder=nn.Embedding(7, 4), rnn=nn.LSTM(4, 4, batch_first=True), decoder=nn.Linear(4, 7))
    module.decoder.weight = module.encoder.weight
    return module


def siren():
    def forward(m, x):
        return m.c(torch.sin(3.0 * m.b(torch.sin(3.0 * m.a(x)))))

    return Doing(forward, a=nn.Linear(2, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 1))


def nerf():
    def forward(m, x):
        features = [x, *(f(2.0**i * x) for i in range(2) for f in (torch.sin, torch.cos))]
        h = torch.cat(features, -1)
        return torch.cat([torch.sigmoid(m.colour(F.relu(m.a(h)))), F.relu(m.density(F.relu(m.a(h))))], -1)

    return Doing(forward, a=nn.Linear(15, 6), colour=nn.Linear(6, 3), density=nn.Linear(6, 1))


def point_net():
    def forward(m, x):
        t = torch.max(F.relu(m.a(x)), 2, keepdim=True)[0].view(-1, 4)
        t = (m.b(t) + torch.eye(3, dtype=x.dtype).view(1, 9).repeat(x.size(0), 1)).view(-1, 3, 3)
        x = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
        return F.log_softmax(m.c(torch.max(m.d(x), 2)[0]), dim=1)

    return Doing(forward, a=nn.Conv1d(3, 4, 1), b=nn.Linear(4, 9), c=nn.Linear(4, 3), d=nn.Conv1d(3, 4, 1))


def squeezed():
    def forward(m, x):
        x = m.norm(m.conv(x))
        b, c, _, _ = x.size()
        gate = torch.sigmoid(m.b(F.relu(m.a(x.mean((2, 3)))))).view(b, c, 1, 1)
        return (x * gate.expand_as(x)).mean([2, 3])

    return Doing(forward, conv=nn.Conv2d(2, 4, 3, padding=1), norm=Activated(4), a=nn.Linear(4, 2), b=nn.Linear(2, 4))


def conv_next():
    def forward(m, x):
        y = m.b(F.gelu(m.a(m.norm(m.depthwise(x)).permute(0, 2, 3, 1))))
        return x + (m.gamma * y).permute(0, 3, 1, 2)

    return Own(
        forward, {"gamma": torch.full((4,), 0.1)}, depthwise=nn.Conv2d(4, 4, 3, padding=1, groups=4),
        norm=ChannelNorm(4), a=nn.Linear(4, 8), b=nn.Linear(8, 4),
    )  # fmt: skip


def swin():
    """Attention within shifted windows: these are samples of their own there."""

    def forward(m, x):
        b, h, w, c = x.shape
        x = torch.roll(x, (-1, -1), (1, 2))
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)
        q, k, v = m.qkv(x).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        a = q @ k.transpose(-2, -1) + m.table[m.index.view(-1)].view(4, 4, 2).permute(2, 0, 1).unsqueeze(0)
        x = (a.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c)
        x = m.out(x).view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, c)
        return torch.roll(x, (1, 1), (1, 2))

    table, index = torch.randn(9, 2), torch.arange(16).view(4, 4) % 9
    return Own(forward, {"table": table}, {"index": index}, qkv=nn.Linear(4, 12), out=nn.Linear(4, 4))


def shuffled():
    def forward(m, x):
        a, b = x.chunk(2, dim=1)
        x = torch.cat((a, m.conv(b)), 1)
        n, c, h, w = x.size()
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)

    return Doing(forward, conv=nn.Conv2d(2, 2, 3, padding=1, groups=2))


def resized():
    def forward(m, x):
        low = F.interpolate(m.conv(x), scale_factor=2, mode="bilinear", align_corners=True)
        return F.interpolate(low, size=(3, 5), mode="bicubic") + F.interpolate(x, size=(3, 5)).mean(1, keepdim=True)

    return Doing(forward, conv=nn.Conv2d(2, 2, 1))


def mixture():
    def forward(m, x):
        h = torch.tanh(m.a(x))
        return torch.cat([F.softmax(m.pi(h), -1), m.mu(h), torch.exp(m.sigma(h).clamp(-3, 3))], 1)

    return Doing(forward, a=nn.Linear(4, 5), pi=nn.Linear(5, 2), mu=nn.Linear(5, 2), sigma=nn.Linear(5, 2))


def experts():
    def forward(m, x):
        y = torch.stack([m.a(x), m.b(x)], 1)
        return torch.sum(F.softmax(m.gate(x), 1).unsqueeze(-1) * y, dim=1)

    return Doing(forward, a=nn.Linear(4, 3), b=nn.Linear(4, 3), gate=nn.Linear(4, 2))


def graph_attention():
    def forward(m, x):
        h = m.w(x)
        e = F.leaky_relu(h @ m.a[:3] + (h @ m.a[3:]).transpose(1, 2), 0.2)
        e = torch.where(m.edges, e, torch.tensor(-9e15, dtype=x.dtype))
        return F.elu(torch.softmax(e, -1) @ h)

    edges = torch.eye(4).bool() | torch.ones(4, 4).triu(2).bool()
    return Own(forward, {"a": torch.randn(6, 1)}, {"edges": edges}, w=nn.Linear(3, 3, bias=False))


def radial():
    def forward(m, x):
        d = (x.unsqueeze(1) - m.centres).pow(2).sum(-1)
        return m.out(torch.exp(-d * torch.exp(m.width)))

    return Own(forward, {"centres": torch.randn(4, 3), "width": torch.zeros(4)}, out=nn.Linear(4, 2))


def preallocated():
    def forward(m, x):
        out, h = torch.zeros(x.size(0), 3, 2, dtype=x.dtype), torch.zeros(x.size(0), 2, dtype=x.dtype)
        for t in range(3):
            h = torch.tanh(m.a(x[:, t]) + m.b(h))
            out[:, t] = h
        out[:, 1:] *= 2
        return out

    return Doing(forward, a=nn.Linear(4, 2), b=nn.Linear(2, 2))


def causal_convolutions():
    def forward(m, x):
        for i, conv in enumerate((m.a, m.b)):
            x = F.relu(x + conv(x)[:, :, : -(2**i)].contiguous())
        return x[:, :, -1]

    return Doing(
        forward, **{name: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 3, 2, dilation=d, padding=d))
                    for name, d in (("a", 1), ("b", 2))},
    )  # fmt: skip


def seq_first():
    """Time as the first axis, and cells as output."""

    def forward(m, x):
        y, (h, c) = m.rnn(x.transpose(0, 1))
        return m.out(h[-1] + c[-1] + y.mean(0))

    return Doing(forward, rnn=nn.LSTM(3, 4, 2), out=nn.Linear(4, 2))


def given_state():
    def forward(m, x):
        return m.rnn(x, m.start.expand(-1, x.size(0), -1).contiguous())[0]

    return Own(forward, {"start": torch.randn(1, 1, 3)}, rnn=nn.GRU(4, 3, batch_first=True))


def words_masked():
    """Positions and a mask that are computed of the numbers of words, as in RoBERTa."""

    def forward(m, x):
        known = x.ne(1).int()
        h = m.words(x) + m.places((torch.cumsum(known, 1).type_as(known) * known).long() + 1)
        h = h + m.kinds[(x > 3).long()] + m.words(torch.roll(x, 1, 1))
        scores = (h @ h.mT).masked_fill(~known.bool()[:, None] | (x == 2)[:, None], -1e9)
        return F.scaled_dot_product_attention(scores.softmax(-1) @ h, h, h, attn_mask=(x != 1)[:, None])

    parts = {"words": nn.Embedding(7, 4, padding_idx=1), "places": nn.Embedding(9, 4, padding_idx=1)}
    return Own(forward, {"kinds": torch.randn(2, 4)}, **parts)


def splines():
    """Basis functions of degree 2 by Cox and de Boor, as in Kolmogorov-Arnold networks."""

    def forward(m, x):
        x, g = x[..., None], m.grid
        bases = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
        for k in (1, 2):
            left = (x - g[: -k - 1]) / (g[k:-1] - g[: -k - 1])
            right = (g[k + 1 :] - x) / (g[k + 1 :] - g[1:-k])
            bases = left * bases[..., :-1] + right * bases[..., 1:]
        return torch.einsum("nik,oik,oi->no", bases, m.w, m.scale)

    return Own(forward, {"w": torch.randn(2, 4, 5), "scale": torch.rand(2, 4)}, {"grid": torch.arange(-2.0, 6) / 3})


def standardized_by_batch_norm():
    def forward(m, x):
        w = F.batch_norm(m.w.reshape(1, 4, -1), None, None, weight=m.gain, training=True, eps=0.01)
        return F.conv2d(x, w.reshape_as(m.w)).add_(m.gain[:, None, None])

    return Own(forward, {"w": torch.randn(4, 2, 3, 3), "gain": torch.rand(4)})


def parametrized(wrap):
    return lambda: nn.Sequential(wrap(nn.Linear(4, 3)), nn.Tanh(), wrap(nn.Linear(3, 2)))


def doing(function, **parameters):
    return lambda: Own(function, {name: torch.rand(shape) + 0.5 for name, shape in parameters.items()})


MODELS = {
    "tied language model": (tied_language_model, (5,)),
    "SIREN": (siren, (2,)),
    "NeRF": (nerf, (3,)),
    "PointNet": (point_net, (3, 5)),
    "DeepSet": (lambda: Doing(lambda m, x: m.b(F.elu(m.a(x)).sum(1)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)), (5, 3)),
    "GLU": (lambda: Doing(lambda m, x: F.glu(m.a(x)), a=nn.Linear(4, 6)), (4,)),
    "squeeze and excitation": (squeezed, (2, 4, 4)),
    "ConvNeXt": (conv_next, (4, 3, 3)),
    "Swin": (swin, (4, 4, 4)),
    "ShuffleNet": (shuffled, (4, 3, 3)),
    "resized": (resized, (2, 3, 4)),
    "mixture density": (mixture, (4,)),
    "experts": (experts, (4,)),
    "graph attention": (graph_attention, (4, 3)),
    "radial": (radial, (3,)),
    "preallocated": (preallocated, (3, 4)),
    "causal convolutions": (causal_convolutions, (3, 6)),
    "standardized weights": (lambda: nn.Sequential(Standardized(3, 4, 3, stride=2, padding=1, groups=1)), (3, 4, 4)),
    "LoRA": (lambda: Doing(lambda m, x: m.b(torch.tanh(m.a(x))), a=Lora(4, 3), b=nn.Linear(3, 2)), (4,)),
    "weight norm": (parametrized(nn.utils.parametrizations.weight_norm), (4,)),
    "spectral norm": (parametrized(nn.utils.parametrizations.spectral_norm), (4,)),
    "a layer alone": (lambda: nn.Linear(4, 3), (4,)),
    "time first": (seq_first, (3, 3)),
    "given state": (given_state, (3, 4)),
    "cells": (lambda: Doing(lambda m, x: m.c(x[:, 1], m.c(x[:, 0])), c=nn.GRUCell(4, 3)), (2, 4)),
    "windows": (
        lambda: Doing(lambda m, x: F.fold(F.unfold(m.c(x), 2).softmax(1), (3, 3), 2), c=nn.Conv2d(1, 2, 1)), (1, 3, 3)
    ),
    "bilinear product": (doing(lambda m, x: torch.einsum("ni,kio->nko", x, m.w).mean(1) ** 2, w=(3, 4, 2)), (4,)),
    "products of parameters": (doing(lambda m, x: F.linear(x, m.b @ m.a, m.c), a=(2, 4), b=(3, 2), c=(3,)), (4,)),
    "normalized": (doing(lambda m, x: F.linear(F.normalize(x), F.normalize(m.w)) / m.t, w=(3, 4), t=()), (4,)),
    "curves": (
        doing(lambda m, x: torch.log1p(x.square()) * torch.rsqrt(m.w + x.abs()) - torch.erf(x) / (1 + torch.expm1(x)),
              w=(4,)), (4,)),
    "reductions": (
        doing(lambda m, x: torch.stack([(m.w * x).std(-1), x.var(1), x.amax(1), x.norm(dim=1), x.logsumexp(1),
                                        x.prod(1), x.min(1)[0], x.cumsum(1)[:, 2]], 1), w=(4,)), (4,)),
    "moves": (
        doing(lambda m, x: torch.flip(F.pad(x * m.w, (1, 2), mode="reflect"), (1,)).unfold(1, 3, 2)[:, [2, 0]].mT,
              w=(6,)), (6,)),
    "conditions": (
        doing(lambda m, x: torch.where(x > m.w, x, 2 * x).masked_fill(m.w < 0, 1.0) + torch.maximum(x, m.w)
              + (x >= 0.3).to(x.dtype) * x, w=(4,)), (4,)),
    "numbers of the batch's size": (
        doing(lambda m, x: m.w.expand(x.size(0), -1) + x.new_zeros(x.size(0), 4) + x.view(-1, 2).view(-1, 4), w=(1, 4)),
        (4,)),
    "masked words": (words_masked, (5,)),
    "segments": (lambda: Doing(lambda m, x: m.a(torch.zeros_like(x)) + m.a(x), a=nn.Embedding(7, 3)), (5,)),
    "mean of words": (lambda: Doing(lambda m, x: F.avg_pool2d(m.a(x), (5, 1)).squeeze(1), a=nn.Embedding(7, 3)), (5,)),
    "splines": (splines, (4,)),
    "standardized by a batch norm": (standardized_by_batch_norm, (2, 4, 4)),
    "tied autoencoder": (
        lambda: Doing(lambda m, x: F.linear(torch.sigmoid(m.a(x)), m.a.weight.t(), x.new_ones(4)), a=nn.Linear(4, 3)),
        (4,)),
    "tied convolutions": (
        doing(lambda m, x: F.conv_transpose2d(torch.tanh(F.conv2d(x, m.w)), m.w, stride=2), w=(3, 2, 2, 2)), (2, 3, 3)),
    "distances": (doing(lambda m, x: torch.exp(-torch.cdist(x, m.c) ** 2), c=(3, 4)), (4,)),
    "length of the batch": (doing(lambda m, x: m.w.expand(len(x), -1) * x.reshape(len(x), -1), w=(1, 4)), (4,)),
    "constants": (lambda: Own(lambda m, x: math.pi * x @ m.b + torch.arange(3), None, {"b": torch.rand(4, 3)}), (4,)),
    **TRANSFORMERS,
}  # fmt: skip
