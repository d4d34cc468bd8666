"""Files of networks, results and blocks."""

from gbackprop.storage.results import load_result, save
from gbackprop.storage.standins import StoredLoss, StoredQuantity
from gbackprop.system.names import listing

__all__ = ["StoredLoss", "StoredQuantity", "load_result", "save"]
__dir__ = listing(__all__)
