"""Attention: `MultiheadAttention` and `TransformerEncoderLayer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.base.checks import number
from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.layers import (
    GELU,
    Add,
    Dropout,
    Flatten,
    LayerNorm,
    Linear,
    MatMul,
    Permute,
    ReLU,
    Select,
    Softmax,
    Unflatten,
)
from gbackprop.layers.elementwise.softmax import CausalSoftmax
from gbackprop.layers.norms.affine import Matrix, Shift, Times
from gbackprop.network.expanded import Expanded


class MultiheadAttention(Expanded):
    """Self-attention: ``[N, T, embed_dim]``, the same shape out, as torch's ``attention(x, x, x)[0]``.

    For each head, softmax(Q Kᵀ/√d) V, with queries Q, keys K and values V (T, d), linear in x, and d = embed_dim /
    num_heads; a linear map of all heads side by side is the output. It expands into simpler layers: docs/derivations,
    recurrent_attention.

    Parameters
    ----------
    embed_dim, num_heads : int
        `embed_dim` must be a multiple of `num_heads`.
    dropout : float
        Probability with which a weight, an entry of the softmax, is set to zero in training mode.
    bias : bool
        Whether both linear maps have a bias.
    add_bias_kv, add_zero_attn, kdim, vdim
        Of torch: must have torch's defaults.
    batch_first : bool
        Must be True, which is the default here.
    is_causal : bool
        Whether position t takes positions up to t alone. In torch an argument of the call.
    rng, dtype
        As for `Sequential`.

    Attributes
    ----------
    parameters
        "in_proj_weight" (3 E, E), "in_proj_bias" (3 E), "out_proj.weight" (E, E), "out_proj.bias" (E), with
        E = embed_dim. Drawn as in torch; biases are 0 at first.

    Raises
    ------
    ValueError
        If a size does not fit.
    UnsupportedError
        If an argument of torch's has a value that does not exist here.

    Source: Vaswani et al. 2017.
    """

    own = frozenset({"in_proj_weight", "in_proj_bias"})
    fixed = frozenset({"embed_dim", "num_heads", "dropout", "bias", "is_causal"})

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = True,
        *,
        is_causal: bool = False,
        rng: Any = None,
        dtype: Any = None,
    ) -> None:
        self.embed_dim = self.features = e = self.size("embed_dim", embed_dim)
        self.num_heads, self.bias = self.size("num_heads", num_heads), self.flag("bias", bias)
        self.is_causal = self.flag("is_causal", is_causal)
        if e % self.num_heads:
            raise ValueError(
                f"{type(self).__name__}, embed_dim: expected a multiple of num_heads = {num_heads}, got {embed_dim}"
            )
        why = "this is self-attention: keys and values are linear in the input, as queries are"
        self.refuse("add_bias_kv", add_bias_kv, False, why)
        self.refuse("add_zero_attn", add_zero_attn, False, why)
        self.refuse("kdim", kdim, None, why)
        self.refuse("vdim", vdim, None, why)
        self.batch_is_first(batch_first)
        self.dropout, self.scale = self.dropout_of(dropout), Times((e // self.num_heads) ** -0.5)
        self.softmax = CausalSoftmax() if self.is_causal else Softmax(-1)
        children: dict[str, Layer] = {"in_proj_weight": Matrix("in_proj_weight", e, 3 * e, (6 / (4 * e)) ** 0.5)}
        if self.bias:
            children["in_proj_bias"] = Shift("in_proj_bias", 3 * e, 0.0)
        super().__init__({**children, "out_proj": OutputLinear(e, e, bias=self.bias)}, rng, dtype)

    def describe(self) -> str:
        given = {"dropout": (self.dropout.p, 0), "bias": (self.bias, True), "is_causal": (self.is_causal, False)}
        return self.arguments(self.embed_dim, self.num_heads, **given)

    def expand(self, nodes: Nodes, name: str, source: int, length: int) -> int:
        def add(label: str, layer: Layer, *sources: int) -> int:
            return nodes.add(inside(name, label), layer, *sources)

        for key in ("in_proj_weight", "in_proj_bias") if self.bias else ("in_proj_weight",):
            source = add(key, self.children[key], source)
        heads = (3, self.num_heads, self.embed_dim // self.num_heads)
        split = add("split", Permute((0, 2, 3, 1, 4)), add("heads", Unflatten(2, heads), source))  # (3, heads, T, d)
        q, k, v = (add(label, Select(1, i), split) for i, label in enumerate(("queries", "keys", "values")))
        transposed = add("transposed_keys", Permute((0, 1, 3, 2)), k)
        scores = add("scores", MatMul(), add("scaled", self.scale, q), transposed)
        weights = dropped(nodes, inside(name, "dropout"), self.dropout, add("weights", self.softmax, scores))
        mixed = add("side_by_side", Permute((0, 2, 1, 3)), add("mixed", MatMul(), weights, v))  # (T, heads, d)
        return add("out_proj", self.children["out_proj"], add("joined", Flatten(2), mixed))


class OutputLinear(Linear):
    """A linear map whose bias is 0 at first, as torch draws it here."""

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {key: value * (key == "weight") for key, value in super().draw(rng).items()}


class TransformerEncoderLayer(Expanded):
    """Self-attention and a feed-forward network at each position, each beside a shortcut and with a LayerNorm.

    ``[N, T, d_model]``, the same shape out: y = norm1(x + a(x)), norm2(y + f(y)), with a = `MultiheadAttention` and
    f = linear2(activation(linear1(·))); with `norm_first`, y = x + a(norm1(x)), y + f(norm2(y)).

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int
    dropout : float
        Of the attention's weights, after the activation and after a and f, in training mode.
    activation : {"relu", "gelu"} or Layer
    layer_norm_eps : float
    batch_first : bool
        Must be True, which is the default here.
    norm_first, bias : bool
    is_causal : bool
        As for `MultiheadAttention`.
    rng, dtype
        As for `Sequential`.

    Attributes
    ----------
    parameters
        "self_attn.…", "linear1.…", "linear2.…", "norm1.…", "norm2.…", in torch's order.

    Raises
    ------
    ValueError
        If an argument does not fit.
    UnsupportedError
        If `batch_first` is False.

    Source: Vaswani et al. 2017; `norm_first`: Xiong et al. 2020.
    """

    fixed = frozenset({"dim_feedforward", "dropout", "norm_first", "bias"})

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Layer = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        norm_first: bool = False,
        bias: bool = True,
        *,
        is_causal: bool = False,
        rng: Any = None,
        dtype: Any = None,
    ) -> None:
        self.features, _ = self.size("d_model", d_model), self.size("nhead", nhead)
        self.dim_feedforward = self.size("dim_feedforward", dim_feedforward)
        if d_model % nhead:
            raise ValueError(f"{type(self).__name__}, d_model: expected a multiple of nhead = {nhead}, got {d_model}")
        self.batch_is_first(batch_first)
        self.norm_first, self.bias = self.flag("norm_first", norm_first), self.flag("bias", bias)
        self.dropout = self.dropout_of(dropout)
        self.attention = MultiheadAttention(d_model, nhead, dropout, self.bias, is_causal=is_causal)
        number(f"{type(self).__name__}, layer_norm_eps", layer_norm_eps, least=0)
        children: dict[str, Layer] = {
            "self_attn": self.attention,
            "linear1": Linear(d_model, dim_feedforward, self.bias),
            "linear2": Linear(dim_feedforward, d_model, self.bias),
            "norm1": LayerNorm(d_model, layer_norm_eps, bias=self.bias),
            "norm2": LayerNorm(d_model, layer_norm_eps, bias=self.bias),
            "activation": self._activation(activation),
        }
        super().__init__(children, rng, dtype)

    def _activation(self, activation: Any) -> Layer:
        known: dict[str, Layer] = {"relu": ReLU(), "gelu": GELU()}
        found = known.get(activation) if isinstance(activation, str) else activation
        if not isinstance(found, Layer):
            words = f"expected one of {list(known)} or a Layer, got {activation!r}"
            raise ValueError(f"{type(self).__name__}, activation: {words}")
        return found

    def describe(self) -> str:
        return self.arguments(
            self.features, self.attention.num_heads, self.dim_feedforward, dropout=(self.dropout.p, None),
            activation=(self.children["activation"], None), norm_first=(self.norm_first, False),
            bias=(self.bias, True), is_causal=(self.attention.is_causal, False),
        )  # fmt: skip

    def expand(self, nodes: Nodes, name: str, source: int, length: int) -> int:
        feed_forward = ("linear1", "activation", "dropout", "linear2", "dropout2")
        for chain, norm, total in ((("self_attn", "dropout1"), "norm1", "sum1"), (feed_forward, "norm2", "sum2")):
            end = self.through(nodes, name, (norm, *chain) if self.norm_first else chain, source)
            source = nodes.add(inside(name, total), Add(), source, end)
            source = source if self.norm_first else self.through(nodes, name, (norm,), source)
        return source

    def through(self, nodes: Nodes, name: str, chain: tuple[str, ...], source: int) -> int:
        """Append children and dropouts one after the other; return the position of the last."""
        for key in chain:
            if key in self.children:
                source = self.children[key].place(nodes, inside(name, key), source)
            else:
                source = dropped(nodes, inside(name, key), self.dropout, source)
        return source


def dropped(nodes: Nodes, name: str, dropout: Dropout, source: int) -> int:
    """Append a dropout, if its probability is not 0; return the position of the output."""
    return nodes.add(name, dropout, source) if dropout.p else source
