"""Losses, named as in torch.nn."""

from gbackprop.base.names import listing
from gbackprop.losses.absolute import L1Loss
from gbackprop.losses.base import Loss
from gbackprop.losses.bce import BCEWithLogitsLoss
from gbackprop.losses.cross_entropy import CrossEntropyLoss
from gbackprop.losses.gaussian import GaussianNLLLoss
from gbackprop.losses.huber import HuberLoss, SmoothL1Loss
from gbackprop.losses.mse import MSELoss
from gbackprop.losses.nll import NLLLoss
from gbackprop.losses.poisson import PoissonNLLLoss
from gbackprop.losses.probabilities import BCELoss

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "L1Loss",
    "Loss",
    "MSELoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
]
__dir__ = listing(__all__)
