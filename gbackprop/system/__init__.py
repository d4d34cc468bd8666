"""What the system may refuse: files that cannot be written or read, and optional packages; and the threads of BLAS."""
