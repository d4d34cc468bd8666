"""Jacobians beside what they should be, entry by entry, to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

import numpy as np

from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import Loss
from gbackprop.testing.differences import REAL_STEP, Derivative, derivative
from gbackprop.testing.flat import dense
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.parameters import parameter_curve
from gbackprop.testing.points import Point, input_curve, inside, pulled, smooth, some_of, units
from gbackprop.testing.probe import Probe, is_container


@dataclass(frozen=True)
class Axis:
    """The array entries that the rows or the columns of a picture stand for."""

    name: str
    shape: Shape  # of the whole array
    where: np.ndarray  # the entries that are shown, counted flat

    def entry(self, place: int) -> str:
        """Name and index of a row or column."""
        index = np.unravel_index(int(self.where[place]), self.shape) if self.shape else ()
        return f"{self.name}[{', '.join(str(int(i)) for i in index)}]"

    def __str__(self) -> str:
        shown, all_ = len(self.where), prod(self.shape)
        size = f"{all_}" if shown == all_ else f"{shown} of {all_}"
        return f"{self.name}, {size}" + (f" ({'×'.join(map(str, self.shape))})" if len(self.shape) > 1 else "")


@dataclass(frozen=True)
class Picture:
    """A matrix beside what it should be."""

    title: str
    method: str  # which gave it
    rows: Axis
    columns: Axis
    sample: int | None  # with the largest difference
    got: np.ndarray
    want: np.ndarray
    scale: float  # the largest expected entry of all samples; errors are relative to it
    oracle: str
    tolerance: float

    @cached_property
    def difference(self) -> np.ndarray:
        """|got − want|, infinity where it is not a number."""
        difference = np.abs(self.got - self.want)
        return np.where(np.isnan(difference), np.inf, difference)

    @property
    def error(self) -> np.ndarray:
        """`difference` relative to `scale`."""
        return self.difference / self.scale

    @property
    def worst(self) -> tuple[int, int] | None:
        """Row and column of the largest difference, if there is any difference."""
        if not self.difference.any():
            return None
        row, column = np.unravel_index(int(np.argmax(self.difference)), self.difference.shape)
        return int(row), int(column)

    @property
    def tight(self) -> bool:
        """True if the error of every entry is within the tolerance."""
        return bool((self.error <= self.tolerance).all())


def layer_pictures(probe: Probe, point: Point, rng: np.random.Generator) -> Iterator[Picture]:
    """Yield the Jacobian of a layer in its input, its residual, and the Jacobian in each parameter."""
    n, out = len(point.x), point.output_shape
    rows = Axis("y", out, point.outputs)
    got = _pulled(probe.layer.mjp(probe.saved, units(out, n, point.outputs)), (len(rows.where), n, *probe.x.shape[1:]))
    columns = Axis("x", probe.x.shape[1:], point.inputs)
    yield _worst_sample(("∂y/∂x", "mjp"), rows, columns, got[:, :, point.inputs], point.matrix(), point.jacobian)
    if probe.layer.curvature != "zero" and not is_container(probe.layer):
        yield _residual(probe, point)
    for name in probe.parameters:
        shape = probe.layer.parameters[name].shape
        columns = Axis(name, shape, some_of(prod(shape), rng))
        found = derivative(parameter_curve(probe, name, columns.where))
        want = found.values.reshape(len(columns.where), n, -1)[:, :, point.outputs].transpose(1, 2, 0)
        jacobian = probe.jacobian(name)
        got = _pulled(jacobian.per_sample(units(out, n, point.outputs)), (len(rows.where), n, *shape))
        title = (f"∂y/∂{name}", f"{name}.per_sample")
        yield _worst_sample(title, rows, columns, got[:, :, columns.where], want, found)


def _residual(probe: Probe, point: Point) -> Picture:
    """Σⱼ (∇² yⱼ) gⱼ for random g."""
    n, d = len(point.x), prod(point.x.shape[1:])
    vec = probe.columns[0]

    def at_inputs(x: np.ndarray) -> np.ndarray:
        return pulled(probe, vec, x).reshape(len(x), -1)[:, point.inputs]

    want = derivative(input_curve(at_inputs, point.x, point.inputs), REAL_STEP * point.size)
    got = dense(probe.layer.residual(probe.saved, vec))
    if probe.layer.curvature == "diagonal":
        got = _pulled(got[None], (1, *point.x.shape))[0][:, :, None] * np.eye(d)
    got = _pulled(got, (n, d, d)).reshape(n, d, d)[:, point.inputs][:, :, point.inputs]
    axis = Axis("x", point.x.shape[1:], point.inputs)
    title = ("Σⱼ (∇² yⱼ) gⱼ", "residual")
    return _worst_sample(title, axis, axis, got.swapaxes(0, 1), want.values.swapaxes(0, 1), want)


def loss_pictures(loss: Loss, output: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> Iterator[Picture]:
    """Yield the gradients of a loss, a row for each sample, and its Hessian as the square of its root."""
    n, shape = len(output), output.shape[1:]
    where = some_of(prod(shape), rng)
    outputs = Axis("f", shape, where)

    probe = LossProbe(loss, output, target, where)
    output, slope = smooth(probe.values, output, where, rng, partial(inside, loss))
    probe = replace(probe, output=output)
    got = probe.gradients().reshape(n, -1)[:, where]
    samples = Axis("ℓ", (n,), np.arange(n))
    yield _picture(("∇ℓ, a row for each sample", "gradients"), samples, outputs, None, got, slope.values.T, slope)
    hessian, root = probe.hessian(), probe.at(loss.hessian_sqrt(output, target))
    squared = np.einsum("vni,vnj->nij", root, root)
    title = ("∇²ℓ", "hessian_sqrt")
    yield _worst_sample(title, outputs, outputs, squared.transpose(1, 0, 2), hessian.values.swapaxes(0, 1), hessian)


def _pulled(got: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the columns that unit columns were carried to, features flat: ``[L, N, *in] -> [L, N, K]``."""
    if np.shape(got) != shape:
        raise ValueError(f"expected shape {shape}, got {np.shape(got)}")
    return got.reshape(*shape[:2], -1)


def _worst_sample(
    title: tuple[str, str], rows: Axis, columns: Axis, got: np.ndarray, want: np.ndarray, found: Derivative
) -> Picture:
    """Of ``got`` ``[R, N, C]`` and ``want`` ``[N, R, C]``, the sample that differs most."""
    got = got.transpose(1, 0, 2)
    differences = np.abs(got - want).reshape(len(want), -1)
    sample = int(np.argmax(np.nan_to_num(differences, nan=np.inf).max(1, initial=0)))
    return _picture(title, rows, columns, sample, got[sample], want[sample], found, float(np.abs(want).max(initial=0)))


def _picture(
    title: tuple[str, str], rows: Axis, columns: Axis, sample: int | None, got: np.ndarray, want: np.ndarray,
    found: Derivative, largest: float | None = None,
) -> Picture:  # fmt: skip
    largest = float(np.abs(want).max(initial=0)) if largest is None else largest
    return Picture(*title, rows, columns, sample, got, want, largest or 1.0, found.oracle, found.tolerance)
