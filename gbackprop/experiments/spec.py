"""The settings of a training run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gbackprop import optim
from gbackprop.base.checks import number, positive
from gbackprop.base.names import near_miss
from gbackprop.experiments.optimizers import AVERAGES, CURVATURES, DEFAULT_MOMENTUM, OPTIMIZERS, TAKEN_BY
from gbackprop.experiments.problems import problem
from gbackprop.network import Sequential

LARGEST = 2**63 - 1
"""The largest integer of a column in SQLite or Parquet."""


@dataclass(frozen=True)
class RunSpec:
    """All that decides the numbers of a run; a setting that cannot be is a `ValueError`."""

    problem: str  # one of `problems.PROBLEMS`
    optimizer: str  # one of `optimizers.OPTIMIZERS`
    lr: float  # step size α
    damping: float | None = None  # λ: needed by optimizers with a curvature, and by no other
    seed: int = 42  # of initial values, order of the images, augmentation, dropout and Monte-Carlo samples
    epochs: int | None = None  # the problem's own by default, which is what is then put in
    momentum: float | None = None  # of "Momentum" alone; 0.9 by default
    average: str | None = None  # of the curvature over steps: "mean" (by default), "ema" or "none"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            names, near = ", ".join(OPTIMIZERS), near_miss(self.optimizer, OPTIMIZERS)
            raise ValueError(f"optimizer: expected one of {names}, got {self.optimizer!r}{near}")
        usual = problem(self.problem).epochs
        self._put("lr", number("lr", self.lr, above=0))
        self._put("seed", positive("seed", self.seed, 0))
        self._put("epochs", positive("epochs", usual if self.epochs is None else self.epochs, 1))
        for name in ("seed", "epochs"):
            if getattr(self, name) > LARGEST:
                raise ValueError(f"{name}: expected an integer of at most {LARGEST}, got {getattr(self, name)}")
        for name, takers in TAKEN_BY.items():
            if self.optimizer not in takers and getattr(self, name) is not None:
                raise ValueError(f"{name}: {self.optimizer} has none, got {getattr(self, name)!r}")
        if self.optimizer in CURVATURES:
            if self.damping is None:
                raise ValueError(f"damping: {self.optimizer} needs one")
            self._put("damping", number("damping", self.damping, least=0))
            self._put("average", "mean" if self.average is None else self.average)
            if not isinstance(self.average, str) or self.average not in AVERAGES:
                raise ValueError(f"average: expected one of {', '.join(AVERAGES)}, got {self.average!r}")
        if self.optimizer == "Momentum":
            momentum = DEFAULT_MOMENTUM if self.momentum is None else self.momentum
            self._put("momentum", number("momentum", momentum, least=0, below=1))

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def key(self) -> str:
        """Return the settings as canonical text, JSON with sorted keys: equal for equal runs, and for no others."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> RunSpec:
        """Return the run of settings by name."""
        names = [field.name for field in fields(cls)]
        for name in mapping:
            if name not in names:
                near = near_miss(name, names)
                raise ValueError(f"{name}: no such setting of a run{near}; there are {', '.join(names)}")
        missing = [name for name in ("problem", "optimizer", "lr") if name not in mapping]
        if missing:
            raise ValueError(f"a run needs {', '.join(missing)}")
        return cls(**mapping)


def make_optimizer(network: Sequential, l2: float, spec: RunSpec) -> optim.Optimizer:
    """Return the optimizer of a run."""
    weights = {name: l2 for name in network.parameters if name.endswith("weight")}
    if spec.optimizer == "Adam":
        return optim.Adam(network, spec.lr, l2=weights)
    if spec.optimizer in ("SGD", "Momentum"):
        return optim.SGD(network, spec.lr, spec.momentum or 0.0, l2=weights)
    quantity = CURVATURES[spec.optimizer]()
    average = AVERAGES[spec.average or "none"]
    return optim.Preconditioned(network, quantity, spec.lr, spec.damping or 0.0, l2, average)
