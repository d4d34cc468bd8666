"""The optimizers of the experiments by the names of the paper's figures."""

from __future__ import annotations

from typing import Literal

from gbackprop import quantities as q

CURVATURES = {
    "DiagGGN": q.DiagGGN, "DiagGGN-MC": q.DiagGGNMC, "DiagHessian": q.DiagHessian,
    "KFAC": q.KFAC, "KFLR": q.KFLR, "KFRA": q.KFRA,
}  # fmt: skip
OPTIMIZERS = ("SGD", "Momentum", "Adam", *CURVATURES)
AVERAGES: dict[str, Literal["mean", "ema"] | None] = {"mean": "mean", "ema": "ema", "none": None}
DEFAULT_MOMENTUM = 0.9
TAKEN_BY = {"damping": tuple(CURVATURES), "average": tuple(CURVATURES), "momentum": ("Momentum",)}
"""The optimizers that a setting is for."""
