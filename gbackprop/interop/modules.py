"""Torch modules for attention and recurrent layers: of what torch's return, the first entry alone."""

from __future__ import annotations

from typing import Any

import torch


class _Output:
    """Base class of torch's recurrent modules that return their output, without the last states."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]  # type: ignore[misc]


class OutputOfRNN(_Output, torch.nn.RNN):
    """The output of an RNN."""


class OutputOfLSTM(_Output, torch.nn.LSTM):
    """The output of an LSTM."""


class OutputOfGRU(_Output, torch.nn.GRU):
    """The output of a GRU."""


class SelfAttention(torch.nn.MultiheadAttention):
    """torch's module as self-attention that returns its output, without the weights."""

    def __init__(self, *args: Any, is_causal: bool = False, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = causal_mask(x) if self.is_causal else None
        return super().forward(x, x, x, need_weights=False, attn_mask=mask)[0]


class CausalTransformerEncoderLayer(torch.nn.TransformerEncoderLayer):
    """torch's module with a causal mask."""

    is_causal = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x, src_mask=causal_mask(x))


def causal_mask(x: torch.Tensor) -> torch.Tensor:
    """Return the mask of a batch (N, T, features), (T, T): True where attention is not allowed."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)


def encoder_layer(layer: Any, activation: torch.nn.Module) -> torch.nn.Module:
    """Return the torch module that is a `TransformerEncoderLayer`, without its weights."""
    attention, norm = layer.attention, layer.children["norm1"]
    kind = CausalTransformerEncoderLayer if attention.is_causal else torch.nn.TransformerEncoderLayer
    made = kind(
        layer.features, attention.num_heads, layer.dim_feedforward, layer.dropout.p, activation, norm.eps,
        batch_first=True, norm_first=layer.norm_first, bias=layer.bias,
    )  # fmt: skip
    if getattr(activation, "approximate", "none") != "none":
        made.activation_relu_or_gelu = 0  # without gradients torch would compute GELU() in its place
    return made
