"""Normalization over the entries of one sample: LayerNorm, RMSNorm, GroupNorm, InstanceNorm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from gbackprop.array import Array, channels_last
from gbackprop.base.checks import check_flag, number, positive
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Spatial, channels_and_axes
from gbackprop.layers.norms.normalization import Norm


class LayerNorm(Norm):
    """Normalization over the last axes: ``[N, …, *normalized_shape]``, the same shape out.

    Parameters
    ----------
    normalized_shape : int or sequence of int
    eps : float
        ε.
    elementwise_affine : bool
        Whether there are γ and β, of shape `normalized_shape`.
    bias : bool
        Whether there is β.

    Attributes
    ----------
    parameters : dict
        "weight" and "bias" (*normalized_shape); 1 and 0 at first.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(eps, elementwise_affine, bias, "elementwise_affine")
        given = tuple(normalized_shape) if isinstance(normalized_shape, Iterable) else (normalized_shape,)
        if not given:
            raise ValueError("normalized_shape: expected at least one size, got ()")
        self.normalized_shape = tuple(positive("normalized_shape", size) for size in given)

    def describe(self) -> str:
        shape = self.normalized_shape
        words = [str(shape[0] if len(shape) == 1 else shape), *self._eps()]
        words += [] if self.affine else ["elementwise_affine=False"]
        words += ["bias=False"] if self.affine and not self.bias else []
        return ", ".join(words)

    def parameter_shape(self) -> Shape:
        return self.normalized_shape

    def output_shape(self, shape: Shape) -> Shape:
        if shape[-len(self.normalized_shape) :] != self.normalized_shape:
            expected = ", ".join(map(str, self.normalized_shape))
            raise ValueError(f"expected features of shape (…, {expected}), got {shape}")
        return shape

    def sets(self, shape: Shape) -> tuple[int, int]:
        size = prod(self.normalized_shape)
        return prod(shape) // size, size

    def rows(self, mat: Array) -> Array:
        return mat.reshape(*mat.shape[:2], -1, prod(self.normalized_shape))

    def spread(self, parameter: Array, dims: int) -> Array:
        lead = parameter.shape[: parameter.ndim - len(self.normalized_shape)]
        ones = (1,) * (dims - len(self.normalized_shape))
        return parameter.reshape(*lead, *ones, *self.normalized_shape)


class RMSNorm(LayerNorm):
    """Normalization by the root of the mean square over the last axes, without subtracting a mean.

    Parameters
    ----------
    normalized_shape : int or sequence of int
    eps : float, optional
        ε; by default the spacing of the dtype at 1.
    elementwise_affine : bool
        Whether there is γ.

    Attributes
    ----------
    parameters : dict
        "weight" (*normalized_shape); 1 at first.

    Source: Zhang, Sennrich 2019.
    """

    centered = False
    formulas = {
        "forward": "y = γ x̂, x̂ = x/σ, σ² = mean x² + ε",
        "mjp": "(h − m x̂)/σ, h = γ g, m = mean(h x̂)",
        "residual": "−(m 1 + (a x̂ᵀ + x̂ aᵀ)/K)/σ², a = h − 3/2 m x̂",
    }

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        super().__init__(normalized_shape, 0.0, elementwise_affine, bias=False)
        self.eps = None if eps is None else number("eps", eps, least=0)

    def _eps(self) -> list[str]:
        return [] if self.eps is None else [f"eps={self.eps}"]

    def describe(self) -> str:
        return super().describe().replace(", bias=False", "")


class _ChannelNorm(Norm):
    """A normalization of ``[N, C, *S]`` with γ and β for each channel."""

    num_channels: int

    def parameter_shape(self) -> Shape:
        return (self.num_channels,)

    def output_shape(self, shape: Shape) -> Shape:
        if not shape or shape[0] != self.num_channels:
            raise ValueError(f"expected features of shape ({self.num_channels}, …), got {shape}")
        return shape

    def rows(self, mat: Array) -> Array:
        return channels_last(mat, 2).reshape(*mat.shape[:2], -1, self.num_channels)

    def spread(self, parameter: Array, dims: int) -> Array:
        return parameter.reshape(*parameter.shape, *(1,) * (dims - 1))


class GroupNorm(_ChannelNorm):
    """Normalization over groups of channels: ``[N, C, *S]``, the same shape out.

    Parameters
    ----------
    num_groups : int
    num_channels : int
        C, a multiple of `num_groups`.
    eps : float
        ε.
    affine : bool
        Whether there are γ and β, of shape (C,).

    Attributes
    ----------
    parameters : dict
        "weight" and "bias" (C,); 1 and 0 at first.

    Source: Wu, He 2018.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(eps, affine, bias=True)
        self.num_groups, self.num_channels = positive("num_groups", num_groups), positive("num_channels", num_channels)
        if self.num_channels % self.num_groups:
            raise ValueError(f"num_channels: expected a multiple of num_groups = {num_groups}, got {num_channels}")

    def describe(self) -> str:
        words = [f"{self.num_groups}, {self.num_channels}", *self._eps()]
        return ", ".join(words + ([] if self.affine else ["affine=False"]))

    def sets(self, shape: Shape) -> tuple[int, int]:
        return self.num_groups, prod(shape) // self.num_groups


class _InstanceNorm(Spatial, _ChannelNorm):
    """Base class of normalization of each channel by itself.

    Parameters
    ----------
    num_features : int
        C.
    eps : float
        ε.
    momentum : float
        Of torch's running statistics; it changes nothing here.
    affine : bool
        Whether there are γ and β, of shape (C,).
    track_running_stats : bool
        Must be false.

    Attributes
    ----------
    parameters : dict
        "weight" and "bias" (C,), 1 and 0 at first, if `affine` is true.

    Raises
    ------
    UnsupportedError
        If `track_running_stats` is true.

    Source: Ulyanov, Vedaldi, Lempitsky 2016.
    """

    fixed = Norm.fixed | {"num_features"}

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
    ) -> None:
        super().__init__(eps, affine, bias=True)
        if check_flag("track_running_stats", track_running_stats):
            raise UnsupportedError("track_running_stats: expected False: each sample is normalized by itself")
        self.num_channels = self.num_features = positive("num_features", num_features)
        self.momentum = number("momentum", momentum)

    def describe(self) -> str:
        return ", ".join([str(self.num_features), *self._eps(), *(["affine=True"] if self.affine else [])])

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims, self.num_features)
        if prod(shape[1:]) < 2:
            raise ValueError(f"expected channels of at least two numbers, which a mean can be taken of, got {shape}")
        return shape

    def sets(self, shape: Shape) -> tuple[int, int]:
        return self.num_channels, prod(shape) // self.num_channels


class InstanceNorm1d(_InstanceNorm, dims=1):
    """Normalization of each channel of each sample: ``[N, C, L]``, the same shape out."""


class InstanceNorm2d(_InstanceNorm, dims=2):
    """Normalization of each channel of each sample: ``[N, C, H, W]``, the same shape out."""


class InstanceNorm3d(_InstanceNorm, dims=3):
    """Normalization of each channel of each sample: ``[N, C, D, H, W]``, the same shape out."""
