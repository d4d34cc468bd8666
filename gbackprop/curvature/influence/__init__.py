"""The influence of training samples: changes of parameters and losses when one of them is removed."""

from gbackprop.base.names import listing
from gbackprop.curvature.influence.samples import on_loss, removal

__all__ = ["on_loss", "removal"]
__dir__ = listing(__all__)
