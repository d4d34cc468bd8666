"""Torch models with attention as their authors write them, with the shape of a sample of their input."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch_sequences import Doing, causal


class Block(nn.Module):
    """A block of a small GPT: a mask that is a buffer, a product for queries, keys and values."""

    def __init__(self, size=4, heads=2, most=8):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attn, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU("tanh"), nn.Linear(2 * size, size))
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(most, most)).view(1, 1, most, most))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.attn(self.ln1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = F.softmax(weights.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    """A language model that has one weight for the embedding and for the output."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.block = nn.Embedding(7, 4), nn.Embedding(8, 4), Block()
        self.ln, self.head = nn.LayerNorm(4), nn.Linear(4, 7, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx):
        position = torch.arange(0, idx.size(1), dtype=torch.long)
        return self.head(self.ln(self.block(self.wte(idx) + self.wpe(position))))


class Vit(nn.Module):
    """Patches, a token for the class, positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 4, 2, 2)
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(1, 5, 4))
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=True, activation="gelu")
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.layer(x)[:, 0])


def rotary():
    def forward(m, x):
        t = torch.arange(x.shape[1], dtype=x.dtype)
        angle = torch.cat((torch.outer(t, torch.tensor([1.0, 0.1], dtype=x.dtype)),) * 2, -1)

        def turned(y):
            return y * angle.cos() + torch.cat((-y[..., 2:], y[..., :2]), -1) * angle.sin()

        q, k, v = turned(m.q(x)), turned(m.k(x)), m.v(x)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]

    return Doing(forward, q=nn.Linear(4, 4), k=nn.Linear(4, 4), v=nn.Linear(4, 4))


def gated_norm():
    """The feed-forward part of a Llama."""

    def forward(m, x):
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * m.scale.weight[:, 0]
        return x + m.down(F.silu(m.gate(h)) * m.up(h))

    return Doing(forward, scale=nn.Embedding(4, 1), gate=nn.Linear(4, 6), up=nn.Linear(4, 6), down=nn.Linear(6, 4))


def biased():
    """Attention with a fixed bias for each head, and a mask."""

    def forward(m, x):
        n, t, c = x.shape
        q, k, v = m.qkv(x).reshape(n, t, 3, 2, 2).permute(2, 0, 3, 1, 4)
        far = (torch.arange(t)[None] - torch.arange(t)[:, None]).to(x.dtype)
        bias = torch.tensor([0.5, 0.25], dtype=x.dtype)[:, None, None] * far
        mask = bias + torch.full((t, t), float("-inf"), dtype=x.dtype).triu(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(n, t, c)

    return Doing(forward, qkv=nn.Linear(4, 12))


def written_by_einsum():
    def forward(m, x):
        q, k, v = (part(x).view(x.shape[0], 3, 2, 2) for part in (m.q, m.k, m.v))
        weights = (torch.einsum("bihd,bjhd->bhij", q, k) / 2**0.5).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)

    return Doing(forward, q=nn.Linear(4, 4), k=nn.Linear(4, 4), v=nn.Linear(4, 4))


def attention(doing, **keywords):
    return lambda: Doing(doing, attn=nn.MultiheadAttention(4, 2, **{"batch_first": True, **keywords}))


def whole(x):
    return {"tgt": x[:, :2] * 0.5, "tgt_mask": causal(x[:, :2])}


def transformer():
    part = nn.Transformer(4, 2, 1, 1, 6, batch_first=True)
    return Doing(lambda m, x: m.t(x, **whole(x)), t=part)


def half(x):
    return torch.ones(3, 3, dtype=torch.bool).tril(-2)


TRANSFORMERS = {
    "GPT": (Gpt, (5,)),
    "ViT": (Vit, (1, 4, 4)),
    "rotary positions": (rotary, (3, 4)),
    "gated norm": (gated_norm, (3, 4)),
    "attention with a bias": (biased, (3, 4)),
    "attention by einsum": (written_by_einsum, (3, 4)),
    "transformer": (transformer, (3, 4)),
    "attention, another key": (attention(lambda m, x: m.attn(x, -x, x)[0]), (3, 4)),
    "attention, weights": (attention(lambda m, x: m.attn(x, x, x)[1]), (3, 4)),
    "attention, any mask": (attention(lambda m, x: m.attn(x, x, x, attn_mask=half(x))[0]), (3, 4)),
    "attention, two masks": (
        attention(lambda m, x: m.attn(x, x, x)[0] + m.attn(x, x, x, attn_mask=causal(x))[0]), (3, 4)
    ),
    "attention, time first": (
        attention(lambda m, x: m.attn(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1), batch_first=False), (3, 4)
    ),
    "attention, more keys": (attention(lambda m, x: m.attn(x, x, x)[0], add_bias_kv=True), (3, 4)),
}  # fmt: skip
