"""Drawn blocks in Kronecker form, with the dense matrices that their definitions give."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from gbackprop.kronecker import EigenKronecker, GroupedKronecker, Kronecker

SIZES = st.integers(1, 4)


@dataclass(frozen=True)
class Case:
    """The parts of a block; `block` and `dense` make it in two ways."""

    kind: str  # "plain", "grouped", "eigen", "grouped eigen"
    groups: int
    outputs: int
    channels: int
    places: int
    bias: bool
    first: bool  # the channels come before the outputs
    dtype: str
    seed: int
    rank: int | None = None  # of B, where it is singular

    def factors(self):
        """A (None for a bias) and B of each group: symmetric, with eigenvalues in [1/2, 2], or 0 beyond the rank."""
        rng, inputs = np.random.default_rng(self.seed), self.channels * self.places
        a = [spd(rng, inputs) for _ in range(self.groups)]
        b = [spd(rng, self.outputs, self.rank) for _ in range(self.groups)]
        return (None if self.bias else np.stack(a)), np.stack(b)

    def block(self):
        a, b = self.factors()
        channels = self.channels if self.first else None
        if self.kind in ("plain", "grouped"):
            a, b = (None if part is None else part.astype(self.dtype) for part in (a, b))
            grouped = self.kind == "grouped"
            make = GroupedKronecker if grouped else Kronecker
            return make(a if grouped or a is None else a[0], b if grouped else b[0], channels)
        qa, qb, values = (None if part is None else part.astype(self.dtype) for part in self.eigen())
        parts = (qa, qb, values) if self.kind == "grouped eigen" else (None if qa is None else qa[0], qb[0], values[0])
        return EigenKronecker(*parts, channels)

    def eigen(self):
        """QA, QB and eigenvalues (no product of two vectors) of each group."""
        a, b = self.factors()
        qb = np.stack([np.linalg.eigh(part)[1] for part in b])
        qa = None if a is None else np.stack([np.linalg.eigh(part)[1] for part in a])
        inputs = () if a is None else (a.shape[-1],)
        values = np.random.default_rng(self.seed + 1).uniform(0.5, 2, (self.groups, self.outputs, *inputs))
        if self.rank is not None:
            values[:, self.rank :] = 0
        return qa, qb, values

    def dense(self):
        """The matrix in the parameter's order, in float64, entry by entry of its definition."""
        return self.in_order(self.group_matrices())

    def group_matrices(self):
        if self.kind in ("plain", "grouped"):
            a, b = self.factors()
            return [part if a is None else np.kron(part, a[g]) for g, part in enumerate(b)]
        qa, qb, values = self.eigen()
        vectors = [part if qa is None else np.kron(part, qa[g]) for g, part in enumerate(qb)]
        return [q @ np.diag(e.ravel()) @ q.T for q, e in zip(vectors, values)]

    def in_order(self, matrices):
        """Matrices of groups, as of a weight (O, C, places), as one matrix of the parameter."""
        size = len(matrices[0])
        order = np.arange(size)
        if self.first:
            order = order.reshape(self.outputs, self.channels, -1).swapaxes(0, 1).ravel()
        dense = np.zeros((self.groups, size, self.groups, size))
        for g, matrix in enumerate(matrices):
            dense[g, :, g] = matrix[np.ix_(order, order)]
        return dense.reshape(self.groups * size, -1)

    @property
    def shape(self):
        """The parameter's."""
        if self.bias:
            return (self.outputs,)
        lead = (self.channels, self.outputs) if self.first else (self.outputs, self.channels)
        return (self.groups * lead[0], lead[1], self.places)

    @property
    def tolerance(self):
        return 1e-9 if self.dtype == "float64" else 2e-4


def spd(rng, size, rank=None):
    vectors = np.linalg.qr(rng.standard_normal((size, size)))[0]
    values = rng.uniform(0.5, 2, size)
    values[size if rank is None else rank :] = 0
    return (vectors * values) @ vectors.T


@st.composite
def cases(draw, kinds=("plain", "grouped", "eigen", "grouped eigen"), singular=False, dtypes=("float64", "float32")):
    kind = draw(st.sampled_from(kinds))
    grouped = kind.startswith("grouped")
    bias = not grouped and draw(st.booleans())
    outputs = draw(SIZES)
    return Case(
        kind=kind,
        groups=draw(st.integers(1, 3)) if grouped else 1,
        outputs=outputs,
        channels=1 if bias else draw(st.integers(1, 3)),
        places=1 if bias else draw(st.integers(1, 3)),
        bias=bias,
        first=not bias and draw(st.booleans()),
        dtype=draw(st.sampled_from(dtypes)),
        seed=draw(st.integers(0, 2**16)),
        rank=draw(st.integers(0, outputs - 1)) if singular else None,
    )
