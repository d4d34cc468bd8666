"""Losses, named as in torch.nn."""

from gbackprop.losses.base import Loss
from gbackprop.losses.bce import BCEWithLogitsLoss
from gbackprop.losses.cross_entropy import CrossEntropyLoss
from gbackprop.losses.huber import HuberLoss, SmoothL1Loss
from gbackprop.losses.mse import MSELoss
from gbackprop.losses.poisson import PoissonNLLLoss
from gbackprop.system.names import listing

__all__ = [
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "Loss",
    "MSELoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
]
__dir__ = listing(__all__)
