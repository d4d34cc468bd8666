"""Uses of curvature: data sets, spectra, Laplace posteriors, influence."""
