"""`trace_loss`: a NumPy function of outputs and targets as a loss."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, all_finite, array_module, asnumpy, bounds, device_of, is_array
from gbackprop.base.checks import kind_of
from gbackprop.base.recording.arrays import Recorded, call, record
from gbackprop.base.recording.refused import MixedSamplesError, NonConvexLossError, TraceError
from gbackprop.base.recording.tape import Tape
from gbackprop.calculus.layer import INPUT, Leaf, Shape, leaves_of
from gbackprop.calculus.residual import DiagonalFactors, Factored
from gbackprop.calculus.several import LARGEST
from gbackprop.calculus.walk import add_below, downwards, upwards, values_upwards
from gbackprop.interop.recording.convexity import indefinite_sample, root_of
from gbackprop.interop.recording.examples import samples, two_and_three
from gbackprop.interop.recording.network import checked_batch, close, compare, compare_sizes, noise_of
from gbackprop.interop.recording.reading import Reading
from gbackprop.interop.recording.table import TABLE
from gbackprop.losses.base import ALL, Loss
from gbackprop.network import Graph

Sampler = Callable[[Array, Array], Array]

MOVES = 4
"""The number of times that all values are moved by a rounding, conditions and choices left as they are."""


def trace_loss(
    function: Callable[[Any, Any], Any],
    output: Any,
    target: Any,
    reduction: Literal["mean", "sum"] = "mean",
    sampler: Sampler | None = None,
) -> Loss:
    """Make a loss of a NumPy function: gradient, Hessian, and the Hessian's root of each sample.

    Parameters
    ----------
    function : callable
        ``function(output, target)`` returns the loss of each sample, shape (N,), of outputs (N, *out); recorded as
        `trace` does. Its derivatives are those in the outputs.
    output : ndarray, shape (N, *out)
        Outputs by which shapes are found, with any N ≥ 1.
    target : ndarray, shape (N, ...)
        Targets of the kind that there will be, floats, integers or booleans; integers may be indices, as in
        ``log_p[np.arange(len(target)), target]``.
    reduction : {"mean", "sum"}
    sampler : callable, optional
        ``sampler(output, uniform)`` returns targets that are drawn from the likelihood of which the function is the
        negative logarithm, from numbers of the outputs' shape, uniform in [0, 1). Without it there are no Monte-Carlo
        quantities.

    Returns
    -------
    Loss

    Raises
    ------
    TraceError
        As `trace`; when a root is asked for, NonConvexLossError where the Hessian has a negative eigenvalue.
    TypeError, ValueError
        If an argument does not fit.

    Examples
    --------
    >>> def cauchy(output, target):
    ...     return np.log1p((output - target) ** 2).sum(1)
    >>> loss = gb.trace_loss(cauchy, output, target)
    """
    if sampler is not None and not callable(sampler):
        raise TypeError(f"sampler: expected a function of outputs and uniform numbers, or None, got {sampler!r}")
    f = checked_batch(output)
    if not is_array(target) or target.dtype.kind not in "fiub" or target.shape[:1] != f.shape[:1]:
        raise TypeError(f"target: expected an array ({len(f)}, …) of numbers, got {kind_of(target)}")
    y = asnumpy(target)
    y = y.astype("float64") if y.dtype.kind == "f" else y  # as the outputs are
    size, rng = prod(f.shape[1:]), np.random.default_rng(0)

    def parts(tape: Tape, flat: Recorded) -> Any:
        n = len(flat)
        of_output = flat[:, :size].reshape(n, *f.shape[1:])
        of_target = flat[:, size:].reshape(n, *y.shape[1:])
        exact = np.rint if y.dtype.kind in "iu" else np.asarray  # integers are floats here, which may be moved
        return function(of_output, call(tape, "labels", lambda each: exact(each).astype(y.dtype), (of_target,), {}))

    def recorded(n: int, beside: int | None) -> tuple[Tape, Any]:
        flat = together(samples(f, n, rng), samples(y, n, rng, beside))
        return record(lambda given: parts(given["input"].tape, given["input"]), {"input": flat})

    two, three, again = two_and_three(recorded, "target", -1)
    reading = Reading(two, three, lambda: again(2)[0], TABLE)
    name = reading.read({"input": None})
    if reading.shapes[name] != ():
        raise MixedSamplesError(f"function: expected one loss for each sample, shape (N,), got rows of "
                                f"{reading.shapes[name]}")  # fmt: skip
    graph = Graph(reading.nodes, name, dtype="float64")
    noise = noise_of(three[0])
    compare(graph, reading, {}, three[0].values[0], noise)
    loss = TracedLoss(graph, (f.shape[1:], y.shape[1:], y.dtype.kind), function, reduction, sampler)
    words = "the function computes otherwise with plain arrays"
    found, last = loss.values(f, y), noise[three[1].number]
    close("output, target", found, function(f, y), TraceError, words, last)
    compare_sizes("output, target", found, lambda rows: function(f[rows], y[rows]), f[0].size, last)
    return loss


def together(output: Array, target: Array) -> Array:
    """Return outputs and targets side by side, (N, D + K), in the outputs' dtype."""
    xp, n, dtype = array_module(output), output.shape[0], output.dtype.name
    if target.dtype.kind != "f" and (most := max(map(abs, bounds(target)))) > LARGEST[dtype]:
        raise ValueError(f"target: expected integers that {dtype} represents, up to {LARGEST[dtype]}, got {most}")
    return xp.concatenate([output.reshape(n, -1), target.reshape(n, -1).astype(dtype)], axis=1)


class TracedLoss(Loss):
    """A loss whose samples' losses are the outputs of a graph, of outputs and targets side by side.

    Parameters
    ----------
    graph : Graph
    shapes : tuple
        Feature shapes of outputs and targets, and the kind of the targets' dtype.
    function : callable
        The function that was traced.
    reduction : {"mean", "sum"}
    sampler : callable, optional
        See `trace_loss`.
    """

    def __init__(
        self, graph: Graph, shapes: tuple[Shape, Shape, str], function: Any, reduction: Any = "mean",
        sampler: Sampler | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction)
        self.graph, self.function, self.sampler = graph, function, sampler
        self.out, self.wanted, self.kind = shapes
        if sampler is None:
            self.undrawn = "it was traced without a sampler"

    def describe(self) -> list[str]:
        return [getattr(self.function, "__name__", repr(self.function))]

    def leaves(self, output: Array) -> list[Leaf]:
        """Return the graph's layers, with their fixed arrays in the dtype and on the device of the outputs."""
        dtype = output.real.dtype.name
        graph = self.graph
        if dtype != "float64" or device_of(output) != "cpu":
            graph = copy.deepcopy(graph).astype(dtype).to(device_of(output))
        return leaves_of(graph, (prod(self.out) + prod(self.wanted),))

    def passed(self, output: Array, target: Array) -> tuple[list[Leaf], dict[int, Any], list[Any]]:
        """Return the layers, the values at their outputs, and what they saved."""
        leaves = self.leaves(output)
        at: dict[int, Any] = {INPUT: together(output, target)}
        kept = []
        for leaf, inputs in values_upwards(leaves, at):
            at[leaf.position], saved = leaf.layer.forward(*inputs)
            kept.append(saved)
        return leaves, at, kept

    def values(self, output: Array, target: Array) -> Array:
        leaves, at, _ = self.passed(output, target)
        return at[len(leaves) - 1]

    def gradients(self, output: Array, target: Array) -> Array:
        leaves, _, kept = self.passed(output, target)
        return self.swept(output, leaves, kept, lambda leaf, saved, g: None)

    def swept(
        self, output: Array, leaves: list[Leaf], kept: list[Any], visit: Callable[[Leaf, Any, Array], None]
    ) -> Array:
        """Return ∇ℓₙ in the outputs; at each layer that depends on these, call `visit` with the gradient there."""
        fixed = {leaf.position for leaf in leaves if leaf.constant}
        arriving = {len(leaves) - 1: array_module(output).ones((1, len(output)), dtype=output.dtype)}
        for leaf, g in downwards([leaf for leaf in leaves if not leaf.constant], arriving):
            visit(leaf, kept[leaf.position], g[0])
            below = leaf.layer.mjp(kept[leaf.position], g)
            add_below(leaf, below, arriving, lambda total, part, _: total + part, lambda source: source not in fixed)
        return arriving[INPUT][0][:, : prod(self.out)].reshape(output.shape)

    def hessian(self, output: Array, target: Array) -> Array:
        """Σ over layers of Tᵀ R T, with R their residuals and T their inputs' derivatives: ``[N, D, D]``."""
        return self._hessian(output, target)[0].astype(output.dtype)

    def _hessian(
        self, output: Array, target: Array, moved: np.random.Generator | None = None
    ) -> tuple[Array, Array]:
        """Compute the Hessian, and the sum of its terms without signs, in float64, where squares are no overflow."""
        output = output.astype("float64") if output.dtype == np.float32 else output
        xp, n, size = array_module(output), len(output), prod(self.out)
        leaves, at, kept = self.passed(output, target)
        kept = kept if moved is None else saved_nearby(leaves, at, kept, moved)
        width = size + prod(self.wanted)
        unit = xp.eye(size, width, dtype=output.dtype)
        slopes: dict[int, Any] = {INPUT: xp.broadcast_to(unit[:, None], (size, n, width))}
        taken: dict[int, list[Array]] = {}
        for leaf, mats in upwards(leaves, slopes):
            if leaf.constant:
                slopes[leaf.position] = xp.zeros((size, n, *leaf.output_shape), dtype=output.dtype)
            else:
                taken[leaf.position] = mats
                slopes[leaf.position] = leaf.layer.jmp(kept[leaf.position], *mats)
        total, terms = xp.zeros((2, n, size, size), dtype=output.dtype)

        def visit(leaf: Leaf, saved: Any, g: Array) -> None:
            if leaf.layer.curvature != "zero":
                residual, mats = leaf.layer.residual(saved, g), taken[leaf.position]
                total[...] += curved(residual, mats)
                terms[...] += curved(unsigned(residual), [xp.abs(mat) for mat in mats])

        self.swept(output, leaves, kept, visit)
        return (total + total.swapaxes(1, 2)) / 2, (terms + terms.swapaxes(1, 2)) / 2

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        xp = array_module(output)
        hessian, terms = self._hessian(output, target)
        if not all_finite(hessian):  # as the outputs, or what is computed of them: the result says so
            return xp.full((prod(self.out), *output.shape), np.nan, dtype=output.dtype)[columns]
        roots, sound = root_of(hessian)
        if not sound:
            self._check_convex(output, target, hessian, terms)
        return xp.moveaxis(roots, 2, 0)[columns].reshape(-1, *output.shape).astype(output.dtype)

    def _check_convex(self, output: Array, target: Array, hessian: Array, terms: Array) -> None:
        """Check that no eigenvalue is negative beyond rounding."""
        rng = np.random.default_rng(0)
        with np.errstate(all="ignore"):  # what is infinite was said when the Hessian was computed
            moved = [self._hessian(output, target, rng)[0] for _ in range(MOVES)]
        sample = indefinite_sample(hessian, moved, terms)
        if sample is not None:
            least = float(array_module(hessian).linalg.eigvalsh(hessian[sample])[0])
            raise NonConvexLossError(
                f"{self!r}: the Hessian of sample {sample} has the eigenvalue {least:.3g}, and so no real root; "
                "the gradient, BatchGrad and what is made of them do not need one"
            )

    def hessian_sum(self, output: Array, target: Array) -> Array:
        return self.hessian(output, target).sum(0)

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        if self.sampler is None:
            return super().noise(batch_shape, mc_samples, rng)
        return rng.random((mc_samples, *batch_shape))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        assert self.sampler is not None
        drawn = [self.sampler(output, each) for each in noise]
        wanted = (len(output), *self.wanted)
        if not is_array(drawn[0]) or drawn[0].shape != wanted:
            raise ValueError(f"{self!r}, sampler: expected targets of shape {wanted}, got {kind_of(drawn[0])}")
        return array_module(output).stack(drawn)

    def target_shape(self, batch_shape: Shape) -> Shape:
        if tuple(batch_shape[1:]) != self.out:
            raise ValueError(f"expected outputs (N, {', '.join(map(str, self.out))}) as traced, got {batch_shape}")
        return (batch_shape[0], *self.wanted)

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        kinds = {"f": "f"}.get(self.kind, "iub")
        if target.dtype.kind not in kinds:
            raise TypeError(f"{name}: expected {'floats' if kinds == 'f' else 'integers'}, got {target.dtype}")
        if kinds == "f" and not all_finite(target):
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
        if kinds != "f":  # they may be indices, which the graph does not check
            try:
                with np.errstate(all="ignore"):
                    self.function(np.ones(batch_shape), asnumpy(target))
            except IndexError as error:
                raise ValueError(f"{name}: expected indices that the function can take, got {error}") from None


def saved_nearby(leaves: list[Leaf], at: dict[int, Any], kept: list[Any], rng: np.random.Generator) -> list[Any]:
    """Return what layers save where each value is moved by a rounding; conditions and choices are those of `at`.

    Layers without curvature are affine in pieces. Copies of numbers have no rounding, nor have integers, as labels are.
    """
    near, found = {INPUT: at[INPUT]}, []
    for leaf, inputs in values_upwards(leaves, near):
        value, saved = at[leaf.position], kept[leaf.position]
        if not leaf.constant:
            xp, eps = array_module(value), float(np.finfo(value.dtype).eps)
            if leaf.layer.curvature == "zero":
                steps = [xp.where(x == at[i], 0, x - at[i]) for x, i in zip(inputs, leaf.sources, strict=True)]
                wide = [xp.broadcast_to(step, (len(value), *step.shape[1:]))[None] for step in steps]
                value = value + leaf.layer.jmp(saved, *wide)[0]
            else:
                value, saved = leaf.layer.forward(*inputs)
            exact = (value == xp.rint(value)) | xp.isin(abs(value), xp.concatenate([abs(x).ravel() for x in inputs]))
            value = xp.where(exact, value, value * (1 + eps * xp.asarray(rng.choice([-1, 1], value.shape))))
        near[leaf.position] = value
        found.append(saved)
    return found


def curved(residual: Any, slopes: list[Array]) -> Array:
    """Compute Tᵀ R T for each sample, R diagonal, dense or factored: ``[N, D, D]``."""
    if isinstance(residual, Factored):
        xp = array_module(slopes[0])
        pieces, sign = residual.columns(ALL)
        n = sign.shape[1]
        along = 0
        for piece, mat in zip(pieces, slopes, strict=True):
            along = along + xp.einsum("vni,dni->vnd", piece.reshape(len(piece), n, -1), mat.reshape(len(mat), n, -1))
        return xp.einsum("vn,vnd,vne->nde", sign, along, along)
    (mat,) = slopes
    xp, n = array_module(mat), mat.shape[1]
    if isinstance(residual, DiagonalFactors):
        rooted = (mat * residual.root()).reshape(len(mat), n, -1)
        sign = xp.broadcast_to(residual.sign(), mat.shape[1:]).reshape(n, -1)
        return xp.einsum("dni,ni,eni->nde", rooted, sign, rooted)
    flat = mat.reshape(len(mat), n, -1)
    if residual.shape == mat.shape[1:]:
        return xp.einsum("dni,ni,eni->nde", flat, residual.reshape(n, -1), flat)
    return xp.einsum("dni,nij,enj->nde", flat, residual, flat)


def unsigned(residual: Any) -> Any:
    """Return a residual with the absolute values of its entries, or of those of its columns."""
    if isinstance(residual, DiagonalFactors):
        return DiagonalFactors(tuple(map(abs, residual.factors)))
    if not isinstance(residual, Factored):
        return abs(residual)

    def columns(span: slice) -> Any:
        pieces, sign = residual.columns(span)
        return tuple(map(abs, pieces)), abs(sign)

    return Factored(residual.width, columns)
