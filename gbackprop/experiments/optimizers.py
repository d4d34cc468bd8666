"""The optimizers of the experiments by the names of the paper's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import gbackprop as gb
from gbackprop import optim
from gbackprop import quantities as q

if TYPE_CHECKING:
    from gbackprop.experiments.runs import RunSpec

CURVATURES = {
    "DiagGGN": q.DiagGGN,
    "DiagGGN-MC": q.DiagGGNMC,
    "DiagHessian": q.DiagHessian,
    "KFAC": q.KFAC,
    "KFLR": q.KFLR,
    "KFRA": q.KFRA,
}
OPTIMIZERS = ("SGD", "Momentum", "Adam", *CURVATURES)
AVERAGES: dict[str, Literal["mean", "ema"] | None] = {"mean": "mean", "ema": "ema", "none": None}
DEFAULT_MOMENTUM = 0.9


def make_optimizer(network: gb.Sequential, l2: float, spec: RunSpec) -> optim.Optimizer:
    """Return the optimizer of a run.

    Parameters
    ----------
    network : Sequential
        What it changes.
    l2 : float
        η. First-order optimizers minimise the loss that is reported, where it acts on weights alone; the paper's
        preconditioned rule has it for all parameters.
    spec : RunSpec
        Which optimizer, and its settings.

    Returns
    -------
    Optimizer
    """
    weights = {name: l2 for name in network.parameters if name.endswith("weight")}
    if spec.optimizer == "Adam":
        return optim.Adam(network, spec.lr, l2=weights)
    if spec.optimizer in ("SGD", "Momentum"):
        return optim.SGD(network, spec.lr, spec.momentum or 0.0, l2=weights)
    quantity = CURVATURES[spec.optimizer]()
    average = AVERAGES[spec.average or "none"]
    return optim.Preconditioned(network, quantity, spec.lr, spec.damping or 0.0, l2, average)
