"""Update rules: first-order ones, and one preconditioned by any curvature."""

from gbackprop.base.names import listing
from gbackprop.optim.adam import Adam
from gbackprop.optim.base import Optimizer
from gbackprop.optim.preconditioned import Preconditioned
from gbackprop.optim.sgd import SGD

__all__ = ["SGD", "Adam", "Optimizer", "Preconditioned"]
__dir__ = listing(__all__)
