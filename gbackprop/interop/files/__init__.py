"""Files of networks, results and blocks."""

from gbackprop.base.names import listing
from gbackprop.interop.files.results import load_result, save
from gbackprop.interop.files.standins import StoredLoss, StoredQuantity

__all__ = ["StoredLoss", "StoredQuantity", "load_result", "save"]
__dir__ = listing(__all__)
