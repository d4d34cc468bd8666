"""The fast forms of the package's layers, Jacobians and losses: one row for each class, in the file of its family."""

from gbackprop.engine.forms import (
    bias,
    conv,
    elementwise,
    joins,
    linear,
    losses,
    moves,
    norms,
    outer,
    pooling,
    recurrent,
    transposed,
)
from gbackprop.engine.registry import Forms

FAMILIES = (linear, conv, transposed, pooling, moves, elementwise, norms, joins, recurrent, losses, outer, bias)

FORMS: Forms = {row.kind: row for family in FAMILIES for row in family.ROWS}
