"""The operating system and the installation: files, optional packages, and the threads of BLAS."""
