"""Transposed convolution: each position of the input adds a window to the output, y = fold(Wᵀ x[t]) + b."""

from __future__ import annotations

from math import prod
from typing import Any

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.calculus.jacobian import Bias, ParameterJacobian, group_blocks
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.views import Seen
from gbackprop.calculus.window import channels_and_axes, pad, per_axis
from gbackprop.layers.windows.conv import _ConvBase


class _ConvTranspose(_ConvBase):
    """A transposed convolution over `dims` spatial axes.

    The windows stand on the *full* image, of (S − 1) stride + reach places along an axis of S inputs. The output is the
    full image without `padding` places on each side, and with `output_padding` further ones at its end.

    Parameters
    ----------
    in_channels, out_channels : int
        C and O.
    kernel_size, stride, dilation : int or (int, …)
    padding : int or (int, …)
        Places that are cut off on each side.
    output_padding : int or (int, …)
        Further places at the end; less than the stride or the dilation.
    groups : int
        Number of groups of channels, each with weights, and Kronecker factors, of its own.
    bias : bool

    Attributes
    ----------
    parameters : dict
        "weight" (C, O / groups, *kernel), and "bias" (O,); drawn from U(−1/√I, 1/√I), I = O ∏ kernel / groups.
    """

    fixed = _ConvBase.fixed | {"padding", "output_padding"}
    weight_order = "IO"
    formulas = {"forward": "y = fold(Wᵀ x[t]) + b", "mjp": "W u[t], u = unfold(g)"}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
    ) -> None:
        self._set_channels(in_channels, out_channels, groups, bias)
        self._set_window(kernel_size, stride, dilation)
        self.padding = per_axis("padding", padding, self.dims, least=0)
        self.output_padding = per_axis("output_padding", output_padding, self.dims, least=0)
        strides, steps = self.window.stride, self.window.dilation
        if any(more >= max(s, d) for more, s, d in zip(self.output_padding, strides, steps)):
            raise ValueError(
                f"output_padding: expected less than stride {strides} or dilation {steps}, got {output_padding!r}"
            )

    def describe(self) -> str:
        window = self.window
        words = [f"{self.in_channels}, {self.out_channels}, kernel_size={window.kernel}"]
        words += [f"stride={window.stride}"] if set(window.stride) != {1} else []
        words += [f"padding={self.padding}"] if any(self.padding) else []
        words += [f"output_padding={self.output_padding}"] if any(self.output_padding) else []
        words += [f"groups={self.groups}"] if self.groups > 1 else []
        words += [] if self.bias else ["bias=False"]
        return ", ".join(words + ([f"dilation={window.dilation}"] if set(window.dilation) != {1} else []))

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.in_channels, self.out_channels // self.groups, *self.window.kernel)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims, self.in_channels)
        full = self._full(shape[1:])
        out = tuple(f - 2 * p + more for f, p, more in zip(full, self.padding, self.output_padding))
        if min((*out, *shape)) < 1:
            raise ValueError(f"expected an output of at least one place along each axis, got {out} from {shape}")
        return (self.out_channels, *out)

    def _full(self, spatial: Shape) -> Shape:
        """Return the size of the full image."""
        window = self.window
        return tuple((s - 1) * step + reach for s, step, reach in zip(spatial, window.stride, window.reach))

    def _sides(self) -> tuple[tuple[int, int], ...]:
        """Return what the output lacks of the full image, before and after, for each axis."""
        return tuple((p, p - more) for p, more in zip(self.padding, self.output_padding))

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = self._folded(x)
        return y + self.parameters["bias"].reshape(-1, *(1,) * self.dims) if self.bias else y, x

    def _folded(self, x: Array) -> Array:
        """Compute fold(Wᵀ x[t]): ``[L, I, *S] -> [L, O, *out]``."""
        xp, spatial, kernel = array_module(x), x.shape[2:], self.window.kernel
        by_place = (self._rows(x) @ self._matrix()[:, None]).reshape(self.groups, len(x), *spatial, *kernel, -1)
        seen = xp.moveaxis(by_place, 0, -2).reshape(*by_place.shape[1:-1], self.out_channels)
        image = self.window.fold(seen, self._full(spatial))
        return channels_first(self._cut(image))

    def _cut(self, image: Array) -> Array:
        """Return what the output has of full images: ``[L, *full, C] -> [L, *out, C]``."""
        return pad(image, tuple((-before, -after) for before, after in self._sides()))

    def _rows(self, x: Array) -> Array:
        """Return the inputs by group and position: ``[L, I, *S] -> [G, L, T, I / G]``."""
        rows = channels_last(x).reshape(len(x), prod(x.shape[2:]), self.groups, -1)
        return array_module(x).moveaxis(rows, 2, 0)

    def _matrix(self) -> Array:
        """Return the weight as ``[G, I / G, (*kernel, O / G)]``."""
        weight = channels_last(self.parameters["weight"])
        return weight.reshape(self.groups, self.in_channels // self.groups, -1)

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        y = self._folded(mat.reshape(-1, *mat.shape[2:]))
        return y.reshape(*mat.shape[:2], *y.shape[1:])

    def mjp(self, saved: Any, mat: Array) -> Array:
        products = self.unfolded(mat) @ self._matrix().swapaxes(1, 2)[:, None, None]  # [G, V, N, T, I / G]
        rows = array_module(mat).moveaxis(products, 0, 3)
        return channels_first(rows.reshape(*mat.shape[:2], *saved.shape[2:], self.in_channels), 2)

    def unfolded(self, mat: Array) -> Array:
        """Compute what each window sees of columns: ``[V, N, O, *out] -> [G, V, N, T, (*kernel, O / G)]``."""
        image = pad(channels_last(mat.reshape(-1, *mat.shape[2:])), self._sides())
        kernel, share = prod(self.window.kernel), self.out_channels // self.groups
        split = self.window.unfold(image).reshape(*mat.shape[:2], -1, kernel, self.groups, share)
        by_group = array_module(mat).moveaxis(split, 4, 0)
        return by_group.reshape(*by_group.shape[:4], -1)

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        bias = Bias(lambda mat: channels_last(mat, 2).reshape(*mat.shape[:2], -1, self.out_channels))
        jacobians: dict[str, ParameterJacobian] = {"weight": _Weight(self, saved, bias)}
        return jacobians | {"bias": bias} if self.bias else jacobians

    def seen(self, x: Array) -> Array:
        """Compute what the weight multiplies at each position of the output: ``[N, I, *S] -> [G, N, T', I / G, K]``.

        K is ∏ kernel. A place of the kernel at which no input adds to the position has a zero.
        """
        xp, rows, places = array_module(x), channels_last(x), prod(self.window.kernel)
        full = xp.zeros((places, len(x), *self._full(x.shape[2:]), self.in_channels), dtype=x.dtype)
        for image, where in zip(full, self.window.offsets(x.shape[2:]), strict=True):
            image[(slice(None), *where)] = rows
        shown = self._cut(full.reshape(-1, *full.shape[2:]))
        return shown.reshape(places, len(x), -1, self.groups, self.in_channels // self.groups).transpose(3, 1, 2, 4, 0)


class _Weight(ParameterJacobian):
    """The Jacobian of a transposed convolution's weight: Jᵀ g[v, n] = Σₜ x[n, t] u[v, n, t]ᵀ, u the unfolded g.

    Its Kronecker factors are those of a convolution, y[t'] = W x̃[t'] at the output's positions t' with x̃ as `seen`.
    """

    def __init__(self, layer: _ConvTranspose, x: Array, bias: Bias) -> None:
        self.layer, self.x, self.bias = layer, x, bias

    def per_sample(self, mat: Array) -> Array:
        rows = self.layer._rows(self.x)[:, None]
        each = rows.swapaxes(-1, -2) @ self.layer.unfolded(mat)  # [G, V, N, I / G, (*kernel, O / G)]
        layer, by_input = self.layer, array_module(mat).moveaxis(each, 0, 2)
        split = by_input.reshape(*mat.shape[:2], layer.in_channels, *layer.window.kernel, -1)
        return channels_first(split, 3)

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        return group_blocks(self.bias.kronecker(mat, sign), self.layer.groups)

    def average_kronecker(self, average: Array, shape: Shape) -> Array:
        return group_blocks(self.bias.average_kronecker(average, shape), self.layer.groups)

    def input_square(self) -> Array | None:
        return self.outer.input_square()

    @property
    def outer(self) -> Seen:
        """The Jacobian of the weight of that convolution."""
        layer = self.layer

        def inputs() -> Array:
            seen = layer.seen(self.x)
            return seen.reshape(*seen.shape[:3], -1)

        axes = (layer.in_channels // layer.groups, prod(layer.window.kernel))
        return Seen(inputs, self.bias, axes, layer.groups)


class ConvTranspose1d(_ConvTranspose, dims=1):
    """A transposed convolution of sequences: ``[N, C, L] -> [N, O, L']``."""


class ConvTranspose2d(_ConvTranspose, dims=2):
    """A transposed convolution of images: ``[N, C, H, W] -> [N, O, H', W']``."""


class ConvTranspose3d(_ConvTranspose, dims=3):
    """A transposed convolution of volumes: ``[N, C, D, H, W] -> [N, O, D', H', W']``."""
