"""The Laplace approximation: a Gaussian posterior over parameters from the curvature where training has ended."""

from gbackprop.laplace.laplace import Laplace
from gbackprop.laplace.likelihoods import Normal

__all__ = ["Laplace", "Normal"]
