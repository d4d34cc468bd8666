"""Files of networks, results and blocks."""

from gbackprop.storage.results import load_result, save
from gbackprop.storage.standins import StoredLoss, StoredQuantity

__all__ = ["StoredLoss", "StoredQuantity", "load_result", "save"]
