"""The table of cases: every layer, loss and small network that tests and the audit check, each with its definition.

A new layer or loss is one more row in the file of its family, and gets every check.
"""

from gbackprop.base.names import listing
from gbackprop.testing.cases.activations import ACTIVATIONS
from gbackprop.testing.cases.branches import CONTAINERS, JOINS
from gbackprop.testing.cases.loss_rows import LOSSES
from gbackprop.testing.cases.moves import MOVES, PADDINGS
from gbackprop.testing.cases.network_rows import NETWORKS
from gbackprop.testing.cases.norms import NORMS
from gbackprop.testing.cases.operations import OPERATIONS
from gbackprop.testing.cases.rows import LayerRow
from gbackprop.testing.cases.sequences import PARTS, SEQUENCES
from gbackprop.testing.cases.windows import CONVOLUTIONS, LINEARS, POOLS

LAYERS: tuple[LayerRow, ...] = (*LINEARS, *CONVOLUTIONS, *POOLS, *PADDINGS, *MOVES, *ACTIVATIONS, *NORMS)
"""The layers of one input, but for `Embedding`, which takes integers."""

ALL_LAYERS: tuple[LayerRow, ...] = (*LAYERS, *JOINS, *CONTAINERS, *PARTS, *SEQUENCES, *OPERATIONS)
"""With layers of several inputs, containers, attention and recurrent layers."""

__all__ = ["ALL_LAYERS", "LAYERS", "LOSSES", "NETWORKS"]
__dir__ = listing(__all__)
