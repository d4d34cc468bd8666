"""The versions of torch that a test needs."""

import pytest
import torch


def needs(*least):
    """Skip a test with a torch older than a version, of which `torch.export` writes less down."""
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    if version < least:
        pytest.skip(f"torch {'.'.join(map(str, least))} or newer is needed, this is {torch.__version__}")
