"""What the tests of results over data sets compare with."""

import pytest
from accumulating import once


@pytest.fixture(scope="session")
def serial():
    """The result over the data set on one thread."""
    return once(executor="serial")
