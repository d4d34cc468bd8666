"""The Laplace approximation: a Gaussian posterior over parameters from the curvature where training has ended."""

from gbackprop.base.names import listing
from gbackprop.curvature.laplace.approximation import Laplace
from gbackprop.curvature.laplace.likelihoods import Normal

__all__ = ["Laplace", "Normal"]
__dir__ = listing(__all__)
