"""Twelve torch models that are written as ONNX files: what each is, and the shape of a sample."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


class Model(nn.Module):
    """Layers and parameters, and a function of the module and a batch."""

    def __init__(self, call, **parts):
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, x):
        return self.call(self, x)


def recurrent(m, x):
    h, outs = torch.zeros(x.shape[0], 4, dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = torch.tanh(m.inner(x[:, t]) + m.hidden(h))
        outs.append(h)
    return m.out(torch.stack(outs, 1))


def attention(m, x):
    n, t, d = x.shape
    q, k, v = m.qkv(m.norm(x + m.position)).reshape(n, t, 3, 2, 2).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-2, -1) / 2).masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -float("inf"))
    return x + m.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))


def mixture(m, x):
    h = torch.tanh(m.hidden(x))
    scale = F.softplus(m.scales(h)) + 0.25
    each = -0.5 * ((0.5 - m.means(h)) / scale) ** 2 - torch.log(scale)
    return torch.logsumexp(F.log_softmax(m.logits(h), -1) + each, -1, keepdim=True)


def physics(m, x):
    t, s = x[:, :1], x[:, 1:]
    h = torch.tanh(m.a(torch.cat([torch.sin(s * m.lift), torch.cos(s * m.lift)], -1)))
    h = h + torch.tanh(m.b(h)) * F.silu(h)
    return torch.exp(-t) * torch.sin(math.pi * s) + t * s * (1 - s) * m.c(h)


def kernel(m, x):
    d = (x[:, None, :] - m.z) / m.log_scale.exp()
    return torch.exp(-0.5 * d.pow(2).sum(-1)) @ m.w


def graph(m, x):
    return (m.adjacency @ m.b(F.leaky_relu(m.adjacency @ m.a(x), 0.1))).mean(1)


def low_rank(m, x):
    return m.last(F.gelu(m.base(x) + 0.5 * (x @ m.a.T @ m.b.T), approximate="tanh"))


def deep_set(m, x):
    h = m.phi(x)
    return m.rho(torch.cat([h.sum(1), h.amax(1)], -1))


def siren(m, x):
    return m.c(torch.sin(8 * m.b(torch.sin(8 * m.a(x)))))


L, P = nn.Linear, torch.randn

TWELVE = {
    "MLP": (lambda: nn.Sequential(L(3, 4), nn.Tanh(), L(4, 4), nn.ReLU(), L(4, 2)), (3,)),
    "convolutions": (lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3, stride=2, bias=False),
        nn.BatchNorm2d(4), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), L(4, 3)), (2, 8, 8)),
    "RNN": (lambda: Model(recurrent, inner=L(3, 4), hidden=L(4, 4, bias=False), out=L(4, 2)), (4, 3)),
    "attention": (lambda: Model(attention, qkv=L(4, 12), out=L(4, 4), norm=nn.LayerNorm(4), position=P(3, 4)), (3, 4)),
    "mixture density": (lambda: Model(mixture, hidden=L(2, 5), logits=L(5, 3), means=L(5, 3), scales=L(5, 3)), (2,)),
    "SIREN": (lambda: Model(siren, a=L(2, 5), b=L(5, 5), c=L(5, 1)), (2,)),
    "PINN": (lambda: Model(physics, lift=P(3), a=L(6, 5), b=L(5, 5), c=L(5, 1)), (2,)),
    "kernel": (lambda: Model(kernel, z=P(5, 3), log_scale=0.1 * P(3), w=P(5, 2)), (3,)),
    "graph": (lambda: Model(graph, adjacency=P(4, 4), a=L(3, 5), b=L(5, 2)), (4, 3)),
    "LoRA": (lambda: Model(low_rank, base=L(4, 3), a=P(2, 4), b=P(3, 2), last=L(3, 2)), (4,)),
    "weight norm": (lambda: nn.Sequential(weight_norm(L(3, 4)), nn.ELU(), weight_norm(L(4, 2))), (3,)),
    "DeepSet": (lambda: Model(deep_set, phi=nn.Sequential(L(2, 5), nn.SiLU(), L(5, 4)),
                              rho=nn.Sequential(L(8, 5), nn.Hardswish(), L(5, 2))), (4, 2)),
}  # fmt: skip
"""For each name a function that makes the model, and the shape of a sample."""
