"""The influence of training samples: changes of parameters and losses when one of them is removed."""

from gbackprop.influence.samples import on_loss, removal
from gbackprop.system.names import listing

__all__ = ["on_loss", "removal"]
__dir__ = listing(__all__)
