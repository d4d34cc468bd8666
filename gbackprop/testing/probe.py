"""A layer at a batch, with random columns: everything that the protocol can be asked there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, TypeVar

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.base.checks import batch_of
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Layer
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.testing.claims import FoundError
from gbackprop.testing.flat import Flat, dense, size_of_squares

PER_SAMPLE_AXIS = {"per_sample": 1} | {r.name: 0 for r in REDUCTIONS.values() if r.per_sample}
"""Methods of `ParameterJacobian` with a row for each sample, and the axis of the samples."""

COLUMNS = 3
"""V of the random columns."""

LARGEST_AVERAGE = 256
"""The largest D for which KFRA's step is compared with dense Jacobians."""


def one_batch(network: Layer, x: Any) -> Any:
    """Return a batch of several inputs as one array, and any other as it is."""
    return x if getattr(network, "several", None) is None else batch_of(network, x)


L = TypeVar("L", bound=Layer)


def twin_of(layer: L, dtype: Any = np.float64, rng: np.random.Generator | None = None) -> L:
    """Return a copy of a layer that shares nothing, on the host, in a dtype; parameters are drawn if they were not."""
    twin = copy.deepcopy(layer)
    for _, part in twin.named_layers():
        if part.drawn is None and rng is not None:
            part.initialize(rng)
        part.drawn = {name: np.array(asnumpy(value), dtype=dtype) for name, value in part.parameters.items()}
        part.dtype = np.dtype(dtype).name  # that of a constant, too
    return twin


def rows_of_noise(noise: Any, rows: Callable[[np.ndarray], Any]) -> Any:
    """Apply `rows` to each array of what a layer drew: None, an array, or a tuple of these."""
    if isinstance(noise, tuple):
        return tuple(rows_of_noise(part, rows) for part in noise)
    return None if noise is None else rows(noise)


def without_layout(array: np.ndarray) -> np.ndarray:
    """Return the same numbers at strides that no layout has: axes reversed in memory, every other place left out."""
    rest = np.nan if array.dtype.kind == "f" else -1
    wide = np.full((*array.shape[::-1], 2), rest, dtype=array.dtype)
    wide[..., 0] = array.T
    return wide[..., 0].T


@dataclass(frozen=True)
class Probe:
    """A layer, a batch, and what to multiply its Jacobians with."""

    layer: Layer
    x: np.ndarray  # [N, *in]
    noise: Any = None  # what the layer drew for training mode
    training: bool = False
    tangents: Any = None  # [V, N, *in]
    columns: Any = None  # [V, N, *out]
    signs: Any = None  # [V, N], −1, 0 or 1
    curvature: Any = None  # Ḡ at the output, [D, D], unless D is too large

    @staticmethod
    def at(layer: Layer, x: np.ndarray, noise: Any, training: bool, rng: np.random.Generator) -> Probe:
        """Return a probe with random columns."""
        bare = Probe(layer, x, noise, training)
        out, lead = bare.output.shape[1:], (COLUMNS, len(x))
        d = prod(out)
        root = rng.standard_normal((d, d)) if d <= LARGEST_AVERAGE else None
        return replace(
            bare,
            tangents=rng.standard_normal((*lead, *x.shape[1:])),
            columns=rng.standard_normal((*lead, *out)),
            signs=rng.permutation(np.resize([-1.0, 0.0, 1.0], prod(lead))).reshape(lead).astype(x.dtype),  # has each
            curvature=None if root is None else root @ root.T,
        )

    # ------------------------------------------------------------------------------------------------------ variants

    def cast(self, dtype: Any) -> Probe:
        """Return the probe in another dtype."""
        arrays = {name: _maybe(lambda a: a.astype(dtype), getattr(self, name)) for name in ("x", *_COLUMNS)}
        return replace(self, layer=twin_of(self.layer, dtype), **arrays)

    def scattered(self) -> Probe:
        """Return the same numbers, in no layout."""
        return replace(self, **{name: _maybe(without_layout, getattr(self, name)) for name in ("x", *_COLUMNS)})

    def sample(self, n: int) -> Probe:
        """Return one sample of the batch."""
        rows = slice(n, n + 1)
        some = {name: _maybe(lambda a: a[:, rows], getattr(self, name)) for name in ("tangents", "columns", "signs")}
        return replace(self, x=self.x[rows], noise=rows_of_noise(self.noise, lambda a: a[rows]), **some)

    # --------------------------------------------------------------------------------------------------------- calls

    def run(self, x: np.ndarray, layer: Layer | None = None) -> tuple[np.ndarray, Any]:
        """Run the forward pass for a multiple of the batch, in the order [repeat, sample]."""
        layer, repeats = layer or self.layer, len(x) // len(self.x)
        if self.training:
            made = layer.forward_training(x, rows_of_noise(self.noise, lambda a: np.concatenate([a] * repeats)))
        else:
            made = layer.forward(x)
        if not isinstance(made, tuple) or len(made) != 2:
            raise FoundError(f"expected (y, saved), got {type(made).__name__}")
        return made

    @cached_property
    def _forward(self) -> tuple[np.ndarray, Any]:
        return self.run(self.x)

    @property
    def output(self) -> np.ndarray:
        """y, shape (N, *out)."""
        return self._forward[0]

    @property
    def saved(self) -> Any:
        """The arrays that the forward pass saved."""
        return self._forward[1]

    @property
    def parameters(self) -> list[str]:
        """Names of the layer's own parameters; a container has none."""
        return [] if is_container(self.layer) else list(self.layer.parameter_shapes())

    @cached_property
    def context(self) -> Context:
        """The forms that `gbackprop.backward` would use."""
        return Context(FORMS, Allocator())

    @cached_property
    def unsupported(self) -> dict[str, str]:
        """Reductions that the layer's parameters lack, each with the reason."""
        own = [reduction.name for reduction in REDUCTIONS.values() if reduction.formula is None]
        if isinstance(self.layer.kronecker_factors, str):
            return dict.fromkeys(own, self.layer.kronecker_factors)
        jacobians = self.layer.parameter_jacobians(self.saved) if self.parameters else {}
        return {
            method: f"the Jacobian of its {name} has no {method.replace('_', ' ')}"
            for name in self.parameters
            for method in own
            if name in jacobians  # others fail by themselves
            and getattr(type(jacobians[name]), method) is getattr(ParameterJacobian, method)
        }

    def jacobian(self, name: str) -> ParameterJacobian:
        """Return the Jacobian in a parameter."""
        return self.layer.parameter_jacobians(self.saved)[name]

    def reduce(self, name: str, method: str, *arriving: Any) -> Any:
        """Compute a reduction as `gbackprop.backward` would."""
        jacobian = self.context.jacobians(self.layer, self.saved)[name]
        self.context.sums.clear()
        return self.context.reduce(jacobian, REDUCTIONS[method], *arriving)

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return every method that can be asked here, by the name that rows give it."""
        layer = self.layer
        calls: dict[str, Callable[[], Any]] = {
            "forward": lambda: self.run(self.x)[0],
            "jmp": lambda: layer.jmp(self.saved, self.tangents),
            "mjp": lambda: layer.mjp(self.saved, self.columns),
            "vjp": lambda: layer.vjp(self.saved, self.columns[0]),
        }
        if layer.curvature != "zero" and not is_container(layer):
            calls["residual"] = self.residual
        if self.curvature is not None:
            calls["average"] = self._average
        for name in self.parameters:
            for method in ("per_sample", *REDUCTIONS):
                if method not in self.unsupported and (method != "average_kronecker" or self.curvature is not None):
                    calls[f"{name}.{method}"] = partial(self._reduce, name, method)
        return calls

    def residual(self) -> np.ndarray:
        """Return the residual for the first column as gradient; as a matrix if the layer factors it."""
        return dense(self.layer.residual(self.saved, self.columns[0]))

    def size_of_residual(self) -> float:
        """Return the size of the squares that cancel in the residual, 0 of a layer that does not factor it."""
        return size_of_squares(self.own.residual(self.saved, self.columns[0]))

    @property
    def own(self) -> Layer:
        """The layer itself, also where it is checked as one of a single input."""
        return self.layer.layer if isinstance(self.layer, Flat) else self.layer

    def _average(self) -> np.ndarray:
        return self.layer.average(self.saved, self.curvature, len(self.x), self.output.shape[1:])

    def _reduce(self, name: str, method: str) -> Any:
        if method == "per_sample":
            return self.jacobian(name).per_sample(self.columns)
        if method == "input_square":
            return self.reduce(name, method)
        if method == "average_kronecker":
            return self.reduce(name, method, self.curvature, self.output.shape[1:])
        if method == "moments":
            found = self.reduce(name, method, self.columns, None)
            return np.stack([found.mean, found.centered])
        return self.reduce(name, method, self.columns, self.signs)


_COLUMNS = ("tangents", "columns", "signs", "curvature")


def is_container(layer: Layer) -> bool:
    """Return whether a sweep goes through a layer's children rather than the layer."""
    return any(part is not layer for _, part in layer.named_layers())


def _maybe(change: Callable[[np.ndarray], np.ndarray], array: np.ndarray | None) -> Any:
    return None if array is None else change(array)
