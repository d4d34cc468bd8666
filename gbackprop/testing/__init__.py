"""Independent oracles and checks, for our tests and for users' own.

>>> from gbackprop.testing import check_layer
>>> check_layer(MyLayer(), x).assert_ok()

Each check returns a `Report`: a row for each claim, with the method that it judges, the largest error, and the worst
entry. `gbackprop.testing.strategies`, which needs Hypothesis, draws what to check.
"""

from gbackprop.base.names import listing
from gbackprop.testing.certificate.certify import certify
from gbackprop.testing.certificate.proofs import Certificate, Proof
from gbackprop.testing.gradients import check_gradient
from gbackprop.testing.layers import check_layer
from gbackprop.testing.losses import check_loss
from gbackprop.testing.networks import check_network
from gbackprop.testing.operators import check_operator, check_quadrature
from gbackprop.testing.optimizers import check_optimizer
from gbackprop.testing.oracles import Parts
from gbackprop.testing.quantities import check_quantity
from gbackprop.testing.report import Report, Row
from gbackprop.testing.samples import check_samples
from gbackprop.testing.symmetries import check_symmetries

__all__ = [
    "Certificate", "Parts", "Proof", "Report", "Row", "certify", "check_gradient", "check_layer", "check_loss",
    "check_network", "check_operator", "check_optimizer", "check_quadrature", "check_quantity", "check_samples",
    "check_symmetries",
]  # fmt: skip
__dir__ = listing(__all__)
