"""Spectra: estimates for any linear operator, eigenpairs of the GGN, the tangent kernel, and the noise of gradients."""

from gbackprop.spectra.density import SpectralDensity, density
from gbackprop.spectra.diagonal import diagonal
from gbackprop.spectra.eigenpairs import Eigenpairs, ggn_eigenpairs
from gbackprop.spectra.noise import GradientNoise, gradient_noise, signal_to_noise
from gbackprop.spectra.products import Estimate
from gbackprop.spectra.tangent_kernel import ntk
from gbackprop.spectra.trace import trace
from gbackprop.system.names import listing

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
