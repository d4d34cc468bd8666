"""The Laplace approximation: a Gaussian posterior over parameters from the curvature where training has ended."""

from gbackprop.laplace.laplace import Laplace
from gbackprop.laplace.likelihoods import Normal
from gbackprop.system.names import listing

__all__ = ["Laplace", "Normal"]
__dir__ = listing(__all__)
