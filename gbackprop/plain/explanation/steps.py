"""The parts of a recorded sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

STARTS = {
    "gradient": "R ∇ℓₙ",
    "exact": "√R Sₙ, where Sₙ Sₙᵀ = ∇²ℓₙ",
    "mc": "√(R/(c M)) ∇ℓ(fₙ, ŷₙₘ)",
    "average": "Ḡ = R Σₙ ∇²ℓₙ",
    "residual": "√|r|, signs of r",
    "samples": "R ∇ℓₙ, a column for each n",
}
"""The formula of each signal where it starts."""

DENSE = "√|λ| q, signs of λ: r q = λ q"
"""The formula of the residual's columns where r is a matrix for each sample."""

FACTORED = "v and their signs, Σᵥ ± v vᵀ = r"
"""The formula of the residual's columns where the layer factors it."""

PAIRED = "u and w in pairs, Σ (u wᵀ + w uᵀ) = r, carried apart"
"""The same where it is linear in each of two inputs: u begins at one and w at the other."""

MIXED = "∂² (gᵀ y) / ∂p ∂x of a parameter p, on which the input x depends too"
"""The residual of a parameter and its layer's input together."""

AVERAGES = "Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ"
"""The formula that carries the averaged curvature."""


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
    arriving, appended : list of Carried
        Signals at the output, and those that start here and are appended at the input.
    extracted : list of Extracted
    shared : list of str
        What is said of parameters with several uses: where their statistics are extracted, and over which uses.
    carries : str
        The formula that carries the columns to the input; "" where the sweep ends.
    forward : str
        The formula of the layer's output.
    leaving_shapes : list of tuple of int
        Shape of the carried stack at each input, without what is appended; empty where the sweep ends.
    sources : tuple of str
        Where the inputs come from; empty if there is one input, the output of the layer before.
    average_shape : tuple of int, or None
        Shape of the averaged curvature at the input, if there is one.
    residual : str
        The formula of the residual's columns; "" where none are appended.
    """

    name: str
    layer: str
    arriving: list[Carried] = field(default_factory=list)
    appended: list[Carried] = field(default_factory=list)
    extracted: list[Extracted] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    carries: str = ""
    forward: str = ""
    leaving_shapes: list[tuple[int, ...]] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    average_shape: tuple[int, ...] | None = None
    residual: str = ""


@dataclass(frozen=True)
class Finished:
    """The last step of a quantity: its result from its statistics.

    Attributes
    ----------
    name : str
        The quantity's; "gradient" is one.
    formula : str
        What is done with the statistics.
    scale : str
        The formula of the result.
    """

    name: str
    formula: str
    scale: str
