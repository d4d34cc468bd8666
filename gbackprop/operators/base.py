"""What all operators share: vectors as arrays or dictionaries, the data in pieces, and their sum."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, all_finite, array_module, device_of, is_array, on_device_of, scipy_module
from gbackprop.checks import Constructed
from gbackprop.errors import NotFiniteWarning, UnsupportedError
from gbackprop.layers.base import Layer
from gbackprop.losses.base import Loss
from gbackprop.operators.batches import Batches
from gbackprop.operators.pieces import Cutter, Piece, Product
from gbackprop.operators.vectors import Layout, check_numbers
from gbackprop.plan import Plan
from gbackprop.plan.plan import plan_of
from gbackprop.quantities.base import Quantity
from gbackprop.state import Watch


class Operator(Constructed):
    """Base of the operators; each derives from this and from the class of SciPy's, or of CuPy's, linear operators."""

    parts: ClassVar[int] = 2
    """Number of arrays in a batch."""

    quantities: tuple[Quantity, ...] = ()
    """Quantities whose random draws an operator takes."""

    dtype: np.dtype
    shape: tuple[int, int]

    def __new__(cls, network: Layer, *given: Any, **named: Any) -> Any:
        # On a GPU, an operator is one of CuPy's, so that sums and products of operators are computed there.
        values = getattr(network, "parameters", None) or {}
        like = next(iter(values.values()), np.zeros(0)) if isinstance(values, Mapping) else np.zeros(0)
        kind = scipy_module(like, "sparse.linalg").LinearOperator
        if issubclass(cls, kind):
            return super().__new__(cls, network, *given, **named)
        bases = tuple(base for base in cls.__bases__ if issubclass(base, Operator))
        twin = type(cls.__name__, (*bases, kind), {"__doc__": cls.__doc__, "__module__": cls.__module__})
        return twin(network, *given, **named)

    def _prepare(self, network: Layer, loss: Loss, data: Any, rng: Any, executor: Any) -> None:
        """Go through the data once: check everything, and record what each product needs of it."""
        if executor is not None and not isinstance(executor, Executor):
            raise TypeError(f"executor: expected a concurrent.futures.Executor, got {type(executor).__name__}")
        self.network, self.loss, self.executor = network, loss, executor
        self.batches = Batches(data, self.parts)
        self.extras: list[Any] = []
        self.count, divisor, plan = 0, 0.0, None
        for i, arrays in self.batches.first():
            try:
                plan = self._plan_for(plan, rng, *arrays)
                self.extras.append(self._extra(plan, *arrays))
            except (TypeError, ValueError) as error:
                if self.batches.single or isinstance(error, UnsupportedError):  # of a layer, not of a batch
                    raise
                raise type(error)(f"batch {i}: {error}") from None
            if i == 0:
                self.cutter = Cutter(replace(plan, needs=[], mc_noise={}), arrays[0], self.batches.single, executor)
            self.count += len(arrays[0])
            divisor += 1 / plan.scale.factor
        assert plan is not None
        self.plan = self.cutter.plan
        self.factor = 1 / divisor if loss.reduction == "mean" else 1.0
        self.layout = Layout(self._values())
        self.watch = Watch(network, loss, self.quantities)
        self.dtype = np.dtype(self.layout.like.dtype)

    def _plan_for(self, first: Plan | None, rng: Any, x: Array, y: Array) -> Plan:
        """Check a batch; return the plan with its number of samples, its R and its draws."""
        with on_device_of(x):
            plan = plan_of(self.network, self.loss, x, self.quantities, False)
            if first is None:
                if not plan.parameters:
                    raise ValueError(f"network: expected one with parameters that are not frozen, got {self.network!r}")
                self._check_layers(plan)
            elif plan.leaves[0].input_shapes != first.leaves[0].input_shapes:
                expected, got = (("N", *each.leaves[0].input_shapes[0]) for each in (first, plan))
                raise ValueError(f"x: expected shape {expected} as in batch 0, got {got}")
            return plan.with_batch(x, y, rng, first=first is None)

    def _check_layers(self, plan: Plan) -> None:
        """Check that each layer has what a product needs."""
        for leaf in plan.swept:
            if not leaf.lowest and type(leaf.layer).jmp is Layer.jmp:
                raise UnsupportedError(f"{leaf} cannot give {type(self).__name__}: it has no jmp")

    def _extra(self, plan: Plan, x: Array, *rest: Array) -> Array | None:
        """Compute what an operator stores of a batch."""
        return None

    def _values(self) -> dict[str, Array]:
        named = ((leaf, key, name) for leaf in self.plan.leaves for key, name in leaf.parameters.items())
        values = {name: leaf.layer.parameters[key] for leaf, key, name in named}
        return {name: values[name] for name in self.plan.parameters}

    # --------------------------------------------------------------------------------------------------------- products

    def _pieces(self) -> Iterator[Piece]:
        """Yield the data in pieces; an error tells if they, or network or loss, have changed."""
        self._check_state()
        for (_, (x, *rest)), extra in zip(self.batches, self.extras, strict=False):
            yield from self.cutter.pieces(x, rest[0] if rest else None, extra)

    def _results(self, product: Product, tasks: Iterable[tuple[Piece, Array]], count: int) -> Iterator[Array]:
        """Yield the product of each piece with its K = `count` vectors, in the order of the data."""
        return self.cutter.results(product, tasks, self.layout, count)

    def _check_state(self) -> None:
        """Check that parameters and options of layers, loss and quantities are as they were."""
        name = self.watch.changed()
        if name is not None:
            raise ValueError(
                f"{name}: expected all parameters and options as they were when the operator was made, got others "
                "(make a new operator: it is one matrix, at one point)"
            )

    def _warned(self, result: Array) -> Array:
        """Return a result; warn if it is not finite."""
        if device_of(result) == "cpu" and not all_finite(result):
            warnings.warn(
                f"NaN or infinity in a product of {type(self).__name__}: numbers are beyond the range of {self.dtype}",
                NotFiniteWarning,
                stacklevel=6,
            )
        return result

    # ---------------------------------------------------------------------------------------------------- SciPy's names

    def matvec(self, x: Array) -> Array:
        """Multiply by a vector, shape (D,) or (D, 1)."""
        self._check("v", x, self.shape[1], (1, 2), 1)
        return super().matvec(x)  # type: ignore[misc]

    def matmat(self, X: Array) -> Array:
        """Multiply by each column of a matrix, shape (D, K)."""
        self._check("V", X, self.shape[1], (2,))
        return super().matmat(X)  # type: ignore[misc]

    def rmatvec(self, x: Array) -> Array:
        """Multiply the transpose by a vector."""
        self._check("v", x, self.shape[0], (1, 2), 1)
        return super().rmatvec(x)  # type: ignore[misc]

    def rmatmat(self, X: Array) -> Array:
        """Multiply the transpose by each column of a matrix."""
        self._check("V", X, self.shape[0], (2,))
        return super().rmatmat(X)  # type: ignore[misc]

    def dot(self, x: Any) -> Any:
        """Multiply by a vector, a matrix, a dictionary of parameters' directions, a number, or another operator.

        Parameters
        ----------
        x : ndarray, shape (D,) or (D, K); or dict {parameter: ndarray, shape (*p) or (K, *p)}

        Returns
        -------
        ndarray or dict
            Of the structure of `x`.

        Raises
        ------
        TypeError
            If `x` is not of real floats on the operator's device.
        ValueError
            If a shape or a parameter's name is wrong, a number is not finite, or data or parameters have changed since
            the operator was made.
        """
        if isinstance(x, Mapping):
            packed = self.pack(x)
            return self._answer(self._matvec(packed) if packed.ndim == 1 else self._matmat(packed))
        if is_array(x) and x.ndim not in (1, 2):
            self._check("v", x, self.shape[1], (1, 2))
        return super().dot(x)  # type: ignore[misc]

    def _answer(self, product: Array) -> Any:
        """Return the product with a dictionary in its structure."""
        return self.unpack(product)

    def pack(self, parts: Mapping[str, Array]) -> Array:
        """Return arrays of all parameters as one: ``{name: (*p)} -> (D,)``, ``{name: (K, *p)} -> (D, K)``.

        Raises
        ------
        TypeError, ValueError
            If a name, a shape, a dtype or a number is wrong.
        """
        with on_device_of(self.layout.like):
            rows, single = self.layout.read("v", parts)
            return rows[0] if single else rows.T

    def unpack(self, v: Array) -> dict[str, Array]:
        """Return what `pack` takes, from what it returns."""
        check_numbers("v", v, self.layout.like, finite=False)
        if v.ndim not in (1, 2) or len(v) != self.layout.size:
            raise ValueError(f"v: expected shape ({self.layout.size},) or ({self.layout.size}, K), got {v.shape}")
        parts = self.layout.split(v.T if v.ndim == 2 else v[None])
        return {name: value[0] for name, value in parts.items()} if v.ndim == 1 else parts

    def _check(self, name: str, value: Any, length: int, dims: tuple[int, ...], columns: int | None = None) -> None:
        check_numbers(name, value, self.layout.like)
        fits = value.ndim in dims and value.shape[0] == length
        if not fits or (columns and value.ndim == 2 and value.shape[1] != columns):
            shapes = {1: f"({length},)", 2: f"({length}, {columns or 'K'})"}
            raise ValueError(f"{name}: expected shape {' or '.join(shapes[d] for d in dims)}, got {value.shape}")

    def _matvec(self, x: Array) -> Array:
        return self._matmat(x.reshape(-1, 1))[:, 0]

    def _matmat(self, V: Array) -> Array:
        raise NotImplementedError

    def to_dense(self) -> Array:
        """Return the matrix: as many products as it has columns, so for small networks alone."""
        with on_device_of(self.layout.like):
            xp = array_module(self.layout.like)
            return self._matmat(xp.eye(self.shape[1], dtype=self.dtype))
