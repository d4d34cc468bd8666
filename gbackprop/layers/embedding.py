"""Embedding: rows of a table, looked up by integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, bounds, device_of
from gbackprop.base.checks import positive
from gbackprop.calculus.jacobian import ParameterJacobian, weigh
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.several import LARGEST
from gbackprop.layers.moves.reshape import Identity


class Embedding(Layer):
    """A layer that replaces each index by a row of its weight: ``[N, *S] -> [N, *S, embedding_dim]``.

    The input is an array of integers, so there is no derivative with respect to it: an embedding is the first layer.

    Parameters
    ----------
    num_embeddings : int
        Number of rows; indices are 0 … num_embeddings − 1.
    embedding_dim : int
        Length of a row.
    padding_idx : int, optional
        A row whose derivative is zero; it starts as zeros. Negative numbers count from the end.

    Attributes
    ----------
    parameters : dict
        "weight" (num_embeddings, embedding_dim); drawn from N(0, 1).

    Notes
    -----
    `forward` computes; a call of a network or of `gb.backward` checks the indices before.
    """

    takes = "integers"
    kronecker_factors = "each index has a row of the weight for itself, and a Kronecker product would mix the rows"
    formulas = {"forward": "y[t] = W[x[t]]", "mjp": "none: x is an index"}

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        self.num_embeddings = positive("num_embeddings", num_embeddings)
        self.embedding_dim = positive("embedding_dim", embedding_dim)
        self.padding_idx = None if padding_idx is None else positive("padding_idx", padding_idx, -num_embeddings)
        if self.padding_idx is not None:
            if self.padding_idx >= num_embeddings:
                raise ValueError(f"padding_idx: expected a number below {num_embeddings}, got {padding_idx!r}")
            self.padding_idx %= num_embeddings

    def describe(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.num_embeddings, self.embedding_dim)}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        weight = rng.standard_normal((self.num_embeddings, self.embedding_dim))
        if self.padding_idx is not None:
            weight[self.padding_idx] = 0
        return {"weight": weight}

    @property
    def without_derivative(self) -> dict[str, Any]:  # type: ignore[override]
        """The row of the padding."""
        return {} if self.padding_idx is None else {"weight": self.padding_idx}

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape, self.embedding_dim)

    def check_indices(self, name: str, x: Array) -> None:
        """Check that integers are indices of the weight's rows; the error begins with `name`."""
        least, most = bounds(x) if x.size else (0, 0)
        if least < 0 or most >= self.num_embeddings:
            worst = least if least < 0 else most
            raise ValueError(f"{name}: expected indices from 0 to {self.num_embeddings - 1}, got {worst}")

    def forward(self, x: Array) -> tuple[Array, Any]:
        x = _indices(self, x)
        return self.parameters["weight"][x], x

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {"weight": _Rows(self, saved)}


class _Rows(ParameterJacobian):
    """The Jacobian of the rows: row i of Jᵀ g[v, n] is Σ g[v, n, t] over the t with x[n, t] = i."""

    def __init__(self, layer: Embedding, x: Array) -> None:
        self.layer, self.x = layer, x

    def per_sample(self, mat: Array) -> Array:
        return self._chosen(mat) @ mat.reshape(*mat.shape[:2], -1, self.layer.embedding_dim)

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        total = weigh(mat, sign).sum(0).reshape(len(self.x), -1, self.layer.embedding_dim)
        return array_module(mat).tensordot(self._chosen(mat), total, axes=((0, 2), (0, 1)))

    def _chosen(self, like: Array) -> Array:
        """Return 1 where x[n, t] = i, and i is not the padding, else 0: shape (N, rows, T)."""
        rows = array_module(like).arange(self.layer.num_embeddings)
        index = self.x.reshape(len(self.x), 1, -1)
        chosen = index == rows[:, None]
        if self.layer.padding_idx is not None:
            chosen &= index != self.layer.padding_idx
        return chosen.astype(like.dtype)


class OneHot(Layer):
    """A layer that replaces each index by a row of the identity, for a weight that is a node: ``[N, *S, num]``."""

    takes = "integers"
    formulas = {"forward": "y[t] = e_x[t]", "mjp": "none: x is an index"}
    shown = ("num_embeddings",)
    check_indices: Any = Embedding.check_indices

    def __init__(self, num_embeddings: int) -> None:
        self.num_embeddings = positive("num_embeddings", num_embeddings)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape, self.num_embeddings)

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, x = array_module(x), _indices(self, x)
        return (x[..., None] == xp.arange(self.num_embeddings)).astype(self.dtype or "float32"), x


class Floats(Layer):
    """A layer that converts integers to floats, for operations that compute masks and other indices of them."""

    takes = "integers"
    formulas = {"forward": "y = x", "mjp": "none: x is an index"}

    def check_indices(self, name: str, x: Array) -> None:
        """Check that the integers are floats, too, without rounding; the error begins with `name`."""
        dtype = self.dtype or "float32"
        if x.size and max(map(abs, bounds(x))) > LARGEST[dtype]:
            words = f"integers of at most {LARGEST[dtype]}, which {dtype} has"
            raise ValueError(f"{name}: expected {words}, got {max(map(abs, bounds(x)))}")

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x.astype(self.dtype or "float32"), None


class Exact(Identity):
    """A layer that checks that integers, computed in floats, are what torch computes: y = x, of sums before them.

    On a GPU, where the host would have to wait, what is not exact becomes NaN.

    Parameters
    ----------
    what : str
        The node that computes the integers, for messages.
    most : int
        The largest that torch's dtype has.
    axes : tuple of int, optional
        Those over which they are summed next; partial sums have to be exact, too.
    """

    takes = "floats"
    shown = ("what", "most")

    def __init__(self, what: str, most: int, axes: tuple[int, ...] | None = None) -> None:
        self.what, self.most, self.axes = what, most, axes

    def forward(self, x: Array) -> tuple[Array, Any]:
        size = abs(x) if self.axes is None else abs(x).sum(self.axes, keepdims=True)
        most = min(self.most, LARGEST[x.real.dtype.name] - 1)  # the next may be a number that was rounded
        if device_of(x) != "cpu":
            return array_module(x).where(size <= most, x, float("nan")), None
        if size.size and not (largest := bounds(size)[1]) <= most:
            words = f"integers of at most {most}, which {x.dtype} and torch have"
            raise ValueError(f"{self.what}: expected {words}, got {largest:.0f}")
        return x, None


def _indices(layer: Embedding | OneHot, x: Array) -> Array:
    """Return indices; those that were computed of others are floats, and are checked here."""
    if x.dtype.kind != "f":
        return x
    found = x.astype("int64")
    layer.check_indices(f"indices of {layer!r}", found)
    return found
