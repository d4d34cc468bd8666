"""The audit of all that ships: every row of the table of cases."""

from __future__ import annotations

from collections.abc import Iterator

from gbackprop.calculus.layer import Shape
from gbackprop.testing.audit.findings import Auditor, Finding
from gbackprop.testing.cases import ALL_LAYERS, LOSSES, NETWORKS


def shipped(auditor: Auditor) -> Iterator[Finding]:
    """Audit each layer in several configurations, each loss with both reductions, and all quantities on networks."""
    for i, row in enumerate(ALL_LAYERS):
        layer, x = row.layer(auditor.rng(0, i)), row.x(rng=auditor.rng(1, i))
        yield auditor.layer(layer, x, row.reference(layer), f"{layer!r} of {_size(row.shape)}")
    for each in LOSSES:
        output, target = each.batch(auditor.seed)
        for loss in (each.loss("mean"), each.loss("sum")):
            title = f"{loss!r} of {_size(output.shape[1:])}"
            yield auditor.loss(loss, output, target, each.definition(loss), title)
    for network in NETWORKS:
        yield auditor.whole(network.network(auditor.rng(3)), network.loss, *network.batch(auditor.seed))


def _size(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
