"""A quantity is a formula over statistics; a statistic is a reduction of parameter Jacobians over a signal.

Statistics that compare equal are computed once and shared: DiagHessian's GGN part is DiagGGN's, Variance's second
moment is SecondMoment's, and all three Kronecker quantities have the same A. Each statistic is added over columns, and
added or concatenated over samples, so that blocks of either can be merged.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from gbackprop.base.checks import Constructed, is_original, is_shipped
from gbackprop.calculus.jacobian import REDUCTIONS, Reduction
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.signals import AVERAGE, Signal


@dataclass(frozen=True)
class Statistic:
    """A reduction of a parameter's Jacobian over a signal.

    Parameters
    ----------
    reduction : str or Reduction
        One of `gbackprop.calculus.jacobian.REDUCTIONS` by its name ("sum", "batch", "square", "batch_square",
        "moments", "square_norm", "kronecker", "average_kronecker", "input_square"), or a new one.
    signal : Signal or None
        The columns that it reduces; None if it needs none.
    per_sample : bool, optional
        Whether the result has a row for each sample; it must agree with the reduction.
    only : str, optional
        The name of the only parameter of which it is computed; all by default.
    mean : bool
        Whether the sum over samples is divided by N at the end.

    Raises
    ------
    ValueError
        If there is no reduction of that name, `per_sample` contradicts it, or `mean` is of what is no sum over samples.
    """

    reduction: Reduction
    signal: Signal | None
    per_sample: bool
    only: str | None
    mean: bool

    def __init__(
        self, reduction: str | Reduction, signal: Any = None, per_sample: bool | None = None, only: str | None = None,
        mean: bool = False,
    ) -> None:  # fmt: skip
        if (reduction, signal) == ("kronecker", AVERAGE):
            reduction = "average_kronecker"
        known = reduction if isinstance(reduction, Reduction) else REDUCTIONS.get(reduction)
        if known is None:
            raise ValueError(f"statistic: expected a reduction, one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        if (known.formula is not None and signal in (None, AVERAGE)) or (known.name == "input_square" and signal):
            raise ValueError(f"statistic {known.name!r}: expected a signal that it can reduce, got {signal}")
        if per_sample not in (None, known.per_sample):
            has = "has a row for each sample" if known.per_sample else "adds up over samples"
            raise ValueError(f"statistic {known.name!r}: {has}, got per_sample={per_sample!r}")
        if mean and (known.per_sample or known.name == "moments"):
            raise ValueError(f"statistic {known.name!r}: expected mean=False, as it is no sum over samples")
        self.__dict__.update(reduction=known, signal=signal, per_sample=known.per_sample, only=only, mean=mean)
        self.__dict__["hashed"] = hash((known, signal, only, mean))

    def __hash__(self) -> int:
        return self.hashed  # type: ignore[attr-defined]  # it is part of a key at every layer

    def __reduce__(self) -> Any:
        return Statistic, (self.reduction, self.signal, None, self.only, self.mean)  # each process has its own hashes

    def merge(self, parts: list[Any]) -> Any:
        """Add the results of blocks of samples, in order."""
        if isinstance(parts[0], Moments):  # in place: they are large, and nothing else refers to them
            return functools.reduce(Moments.merge, parts)
        return parts[0] if parts[0] is None else sum(parts[1:], start=parts[0])


@dataclass(frozen=True)
class Scale:
    """The factors that turn statistics into results.

    Attributes
    ----------
    batch : int
        N.
    factor : float
        R: 1/N for reduction "mean" (targets with weights: see `Loss.factor`), 1 for "sum".
    dtype : str
        dtype of the results.
    rows : frozenset of str
        The names of what each sample has a row of its own: that of the input, if the derivatives are in its entries.
    meets : bool
        Whether samples met in the network, so that results of batches do not determine that of all samples.
    """

    batch: int
    factor: float
    dtype: str
    rows: frozenset[str] = frozenset()
    meets: bool = False


class Quantity(Constructed):
    """Base class of quantities. A subclass names its statistics and turns their values into its result."""

    remade = True

    name: ClassVar[str]
    """Its name in a `Result`."""

    scale: str
    """The exact formula of what it returns, R and 1/N included, in one line."""

    finishes: str = ""
    """Optional: the formula of `finish` as text, for `gb.explain`; not needed where it returns what it gets."""

    merging: ClassVar[Any] = None
    """The rule by which `gbackprop.data.merge` merges results of batches, or as text the reason why it cannot."""

    definition: ClassVar[Any] = None
    """For checks: a method ``definition(parts)`` that computes the result for one parameter by brute force.

    `gbackprop.testing.Parts` has what it may use; those of shipped quantities are in `gbackprop.testing.oracles`."""

    powers: ClassVar[tuple[int, int] | None] = None
    """For checks: the powers of R and of the loss's weight c in it; of Kronecker factors B has them, A has none."""

    estimates: ClassVar[type[Quantity] | None] = None
    """For checks: the quantity that is its expectation, if it is a Monte-Carlo estimate."""

    of_batch: ClassVar[tuple[str, ...]] = ()
    """Optional: attributes that belong to a batch, so that they may differ between results that are merged."""

    together: Any = None
    """Optional: a function of (quantity, scale, found) that computes the results of all parameters at once.

    `found` has the values of the statistics, in their order, by parameter name; what it returns, results by parameter
    name. If its statistics depend on values of others, it returns the quantity of a further sweep, with its results."""

    needs: ClassVar[tuple[Statistic, ...]] = ()
    """Its statistics, where they are the same for all arguments: see `statistics`."""

    def statistics(self) -> tuple[Statistic, ...]:
        """Return the statistics that it needs, the same at each call."""
        if not self.needs:
            raise NotImplementedError(f"{type(self).__name__} has no statistics: define `statistics`, or `needs`")
        return self.needs

    def finish(self, scale: Scale, *values: Any) -> Any:
        """Compute the result for one parameter from the values of its statistics, in their order.

        By default it is the only value, as it is. The value is 0 for the statistic of a signal that no layer starts
        (the residual without curved layers).
        """
        if len(values) != 1:
            raise NotImplementedError(f"{type(self).__name__} has no finish, and {len(values)} statistics")
        return values[0]

    def stated(self, name: str) -> Any:
        """Return an attribute; None where a shipped class has it, and a user's class or method may have changed it."""
        own = name in vars(self) or not is_shipped(next(kind for kind in type(self).__mro__ if name in vars(kind)))
        return getattr(self, name) if own or is_original(self) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
