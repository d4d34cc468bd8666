"""Errors, checks, files, optional packages and the threads of BLAS: all that knows nothing of networks."""
