"""The influence of training samples: what would change if one of them were not there."""

from gbackprop.influence.samples import on_loss, removal
from gbackprop.system.names import listing

__all__ = ["on_loss", "removal"]
__dir__ = listing(__all__)
