"""Spectra: estimates for any linear operator, eigenpairs of the GGN, the tangent kernel, and the noise of gradients."""

from gbackprop.base.names import listing
from gbackprop.curvature.spectra.diagonals import diagonal
from gbackprop.curvature.spectra.eigenpairs import Eigenpairs, ggn_eigenpairs
from gbackprop.curvature.spectra.lanczos import SpectralDensity, density
from gbackprop.curvature.spectra.noise import GradientNoise, gradient_noise, signal_to_noise
from gbackprop.curvature.spectra.products import Estimate
from gbackprop.curvature.spectra.tangent_kernel import ntk
from gbackprop.curvature.spectra.traces import trace

__all__ = [
    "Eigenpairs",
    "Estimate",
    "GradientNoise",
    "SpectralDensity",
    "density",
    "diagonal",
    "ggn_eigenpairs",
    "gradient_noise",
    "ntk",
    "signal_to_noise",
    "trace",
]
__dir__ = listing(__all__)
