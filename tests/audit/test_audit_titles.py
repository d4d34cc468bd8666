"""What the audit of all that ships asks for: each layer and loss at its own shapes, named by them."""

import numpy as np

from gbackprop.testing.audit.command import shipped
from gbackprop.testing.cases import ALL_LAYERS, LOSSES, NETWORKS


class Recorder:
    """Takes what is audited, and audits nothing."""

    seed = 0

    def rng(self, *key):
        return np.random.default_rng(key)

    def layer(self, layer, x, reference, title):
        return "layer", title, layer, x

    def loss(self, loss, output, target, definition, title):
        return "loss", title, loss, output

    def whole(self, network, loss, x, y):
        return "network", "", network, x


def test_everything_is_audited_at_its_shapes():
    found = list(shipped(Recorder()))
    kinds = [kind for kind, *_ in found]
    assert kinds == ["layer"] * len(ALL_LAYERS) + ["loss"] * 2 * len(LOSSES) + ["network"] * len(NETWORKS)
    for row, (_, title, layer, x) in zip(ALL_LAYERS, found, strict=False):
        assert x.shape[1:] == row.shape
        assert title == f"{layer!r} of [{', '.join(map(str, row.shape))}]"
    losses = [each for each in found if each[0] == "loss"]
    assert [loss.reduction for _, _, loss, _ in losses] == ["mean", "sum"] * len(LOSSES)
    for _, title, loss, output in losses:
        assert title == f"{loss!r} of [{', '.join(map(str, output.shape[1:]))}]"
