"""What a recorded sweep consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

STARTS = {
    "gradient": "R ∇ℓₙ",
    "exact": "√R Sₙ, S Sᵀ = ∇²ℓₙ",
    "mc": "√(R/M) ∇ℓ(fₙ, ŷₙₘ)",
    "average": "R Σₙ ∇²ℓₙ",
    "residual": "√|r|, signs of r",
}
"""What each signal is where it starts."""


@dataclass(frozen=True)
class Carried:
    """A signal at one place of the sweep.

    Attributes
    ----------
    signal : str
    shape : tuple of int
        (V, N, *features), or (D, D) for "average".
    nbytes : int
    """

    signal: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Extracted:
    """A reduction taken at a layer.

    Attributes
    ----------
    parameter : str
    reduction : str
        The method of `ParameterJacobian`.
    signal : str or None
    wanted_by : tuple of str
        Names of the quantities that use it; "gradient" is one.
    shape : tuple of int
    """

    parameter: str
    reduction: str
    signal: str | None
    wanted_by: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass
class Step:
    """A stop of the sweep: the loss, or a layer.

    Attributes
    ----------
    name : str
        Path of the layer, or "loss".
    layer : str
        How it presents itself.
    number : int
        Which pass this is, from 0; with `column_block` there are several.
    arriving, appended : list of Carried
        At the output, and what starts here and joins at the input.
    extracted : list of Extracted
    carries : str
        The formula that takes the columns to the input; "" where the sweep ends.
    forward : str
        The formula of the layer's output.
    leaving_shape : tuple of int, or None
        Of the whole stack at the input.
    """

    name: str
    layer: str
    number: int
    arriving: list[Carried] = field(default_factory=list)
    appended: list[Carried] = field(default_factory=list)
    extracted: list[Extracted] = field(default_factory=list)
    carries: str = ""
    forward: str = ""
    leaving_shape: tuple[int, ...] | None = None
