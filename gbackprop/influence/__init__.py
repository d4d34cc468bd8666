"""The influence of training samples: what would change if one of them were not there."""

from gbackprop.influence.samples import on_loss, removal

__all__ = ["on_loss", "removal"]
