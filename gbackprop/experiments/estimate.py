"""The expected time of a study: the cost of runs so far, and a guess for problems and optimizers without any yet."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gbackprop.experiments.spec import RunSpec

# Seconds of an epoch over those of SGD's, roughly: they order the work, and give the cost of an optimizer by another's
# until it has run itself.
COSTS = {
    "SGD": 1.0, "Momentum": 1.0, "Adam": 1.2,
    "DiagGGN-MC": 2.0, "DiagGGN": 4.0, "DiagHessian": 5.0,
    "KFAC": 20.0, "KFLR": 22.0, "KFRA": 24.0,
}  # fmt: skip


def weight(spec: RunSpec) -> float:
    """Return the relative cost of a run among those of its problem; the longest is started first."""
    return (spec.epochs or 0) * COSTS.get(spec.optimizer, 1.0)


@dataclass
class Forecast:
    """Epochs and seconds so far, by problem and optimizer."""

    seen: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def learn(self, spec: RunSpec, epochs: float, seconds: float) -> None:
        """Add the seconds that some epochs of a run took."""
        total = self.seen.setdefault((spec.problem, spec.optimizer), [0.0, 0.0])
        total[0] += epochs
        total[1] += seconds

    def seconds(self, spec: RunSpec) -> float | None:
        """Return the estimated seconds of an epoch of a run."""
        epochs, seconds = self.seen.get((spec.problem, spec.optimizer), (0.0, 0.0))
        if epochs:
            return seconds / epochs
        units = [
            seconds / epochs / COSTS.get(name, 1.0)
            for (problem, name), (epochs, seconds) in self.seen.items()
            if problem == spec.problem and epochs
        ]
        return sum(units) / len(units) * COSTS.get(spec.optimizer, 1.0) if units else None

    def left(self, work: Iterable[tuple[RunSpec, float]], slots: int) -> float | None:
        """Return the estimated seconds until all runs are done."""
        times = []
        for spec, epochs in work:
            seconds = self.seconds(spec)
            if seconds is None:
                return None
            times.append(seconds * epochs)
        # No shorter than the longest, nor than all shared out evenly.
        return max([*times, sum(times) / slots]) if times else 0.0


def duration(seconds: float | None) -> str:
    """Return seconds as text: ``"1 h 05 min"``, ``"3 min"``, ``"20 s"``; ``"unknown"`` for None."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
