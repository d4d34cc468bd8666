"""The parts of a recorded sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

STARTS = {
    "gradient": "R ∇ℓₙ",
    "exact": "√R Sₙ, S Sᵀ = ∇²ℓₙ",
    "mc": "√(R/(c M)) ∇ℓ(fₙ, ŷₙₘ)",
    "average": "R Σₙ ∇²ℓₙ",
    "residual": "√|r|, signs of r",
}
"""The formula of each signal where it starts."""


@dataclass(frozen=True)
class Carried:
    """A signal at one step of the sweep.

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
    """A reduction computed at a layer.

    Attributes
    ----------
    parameter : str
    reduction, formula : str
        Its name and its formula.
    signal : str or None
    wanted_by : tuple of str
        Names of the quantities that use it; "gradient" is one.
    shape : tuple of int
    """

    parameter: str
    reduction: str
    formula: str
    signal: str | None
    wanted_by: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass
class Step:
    """A step of the sweep: the loss, or a layer.

    Attributes
    ----------
    name : str
        Path of the layer, or "loss".
    layer : str
        The layer, or the loss, as text.
    number : int
        Number of the pass, from 0; with `column_block` there are several.
    arriving, appended : list of Carried
        Signals at the output, and those that start here and are appended at the input.
    extracted : list of Extracted
    carries : str
        The formula that carries the columns to the input; "" where the sweep ends.
    forward : str
        The formula of the layer's output.
    leaving_shape : tuple of int, or None
        Shape of the carried stack at the input, without what is appended.
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
