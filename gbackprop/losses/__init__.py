"""Losses, named as in torch.nn."""

from gbackprop.losses.base import Loss
from gbackprop.losses.bce import BCEWithLogitsLoss
from gbackprop.losses.cross_entropy import CrossEntropyLoss
from gbackprop.losses.mse import MSELoss

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "Loss", "MSELoss"]
