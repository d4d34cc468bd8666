"""A quantity is a formula over statistics; a statistic is a reduction of parameter Jacobians over a signal.

Statistics that compare equal are computed once and shared: DiagHessian's GGN part is DiagGGN's, Variance's second
moment is SecondMoment's, and all three Kronecker quantities have the same A. Each statistic adds up over columns, and
adds up or lines up over samples, so that blocks of either merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gbackprop.array import Array
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.signals import AVERAGE, Signal


@dataclass(frozen=True)
class Statistic:
    """A reduction of `ParameterJacobian` over a signal.

    Attributes
    ----------
    reduction : str
        Name of the method: "sum", "batch", "square", "batch_square", "moments", "square_norm", "kronecker",
        "input_square".
    signal : Signal or None
        The columns that it reduces; None if it needs none.
    per_sample : bool
        Whether the result has a row for each sample, so that blocks of samples line up rather than add up.
    """

    reduction: str
    signal: Signal | None = None
    per_sample: bool = False

    @property
    def method(self) -> str:
        """The method of `ParameterJacobian` that is really called."""
        return f"average_{self.reduction}" if self.signal == AVERAGE else self.reduction

    def extract(self, jacobian: ParameterJacobian, *arriving: Any) -> Array | None:
        """This statistic's share in a block of samples and columns.

        Parameters
        ----------
        jacobian : ParameterJacobian
        *arriving
            What the signal brings: columns (V, N, *out) and their signs (V, N) or None; for `AVERAGE`, Ḡ (D, D) and
            the output's feature shape; nothing for no signal.
        """
        return getattr(jacobian, self.method)(*arriving)

    def merge(self, parts: list[Any]) -> Any:
        """One result from those of blocks of samples, in order, where they add up."""
        return parts[0] if parts[0] is None else sum(parts[1:], start=parts[0])


@dataclass(frozen=True)
class Scale:
    """What turns statistics into results.

    Attributes
    ----------
    batch : int
        N.
    factor : float
        R: 1/N for reduction "mean", 1 for "sum".
    dtype : str
        Of the results.
    """

    batch: int
    factor: float
    dtype: str


class Quantity:
    """Base class. A subclass names its statistics and turns their values into its result."""

    name: ClassVar[str]
    """Its name in a `Result`."""

    scale: ClassVar[str]
    """The exact formula of what it returns, R and 1/N included, in one line."""

    def statistics(self) -> tuple[Statistic, ...]:
        """What it needs; the same at each call."""
        raise NotImplementedError

    def finish(self, scale: Scale, *values: Any) -> Any:
        """The result for one parameter from the values of its statistics, in their order.

        A statistic of a signal that no layer sent (the residual in a network without curved layers) comes as 0.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
