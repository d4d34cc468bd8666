"""How the tests of bad input ask: the right error, with the right words, before anything is computed."""

from contextlib import contextmanager
from unittest.mock import patch

import pytest
from common import in_module_of

from gbackprop import layers


@contextmanager
def watched_forwards():
    """Gives a list that fills with the layers that are run forward meanwhile."""
    calls = []

    def watched(original):
        def forward(self, x):
            calls.append(self)
            return original(self, x)

        return in_module_of(original, forward)

    kinds = [kind for kind in vars(layers).values() if isinstance(kind, type) and issubclass(kind, layers.Layer)]
    originals = {kind: kind.forward for kind in kinds if kind not in (layers.Layer, layers.Elementwise)}
    patches = [patch.object(kind, "forward", watched(original)) for kind, original in originals.items()]
    for change in patches:
        change.start()
    try:
        yield calls
    finally:
        for change in patches:
            change.stop()


def refuse(error, words, call, in_time=True):
    """`call` raises `error` with all `words` in its message and, if `in_time`, before a layer is run forward."""
    with watched_forwards() as calls, pytest.raises(error) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert not (in_time and calls)
