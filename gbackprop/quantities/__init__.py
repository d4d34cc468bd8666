"""Quantities: what `gbackprop.backward` can compute in addition to the gradient."""

from gbackprop.base.names import listing
from gbackprop.calculus.jacobian import Reduction
from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.diagonal import BatchDiagGGN, BatchDiagHessian, DiagGGN, DiagGGNMC, DiagHessian
from gbackprop.quantities.ekfac import EKFAC
from gbackprop.quantities.first_order import BatchGrad, BatchL2Grad, SecondMoment, Variance
from gbackprop.quantities.gram import GramGGN, GramGradients
from gbackprop.quantities.kronecker import KFAC, KFLR, KFRA
from gbackprop.quantities.kronecker_error import KroneckerError
from gbackprop.quantities.nearest import NearestKronecker

__all__ = [
    "EKFAC",
    "KFAC",
    "KFLR",
    "KFRA",
    "BatchDiagGGN",
    "BatchDiagHessian",
    "BatchGrad",
    "BatchL2Grad",
    "DiagGGN",
    "DiagGGNMC",
    "DiagHessian",
    "GramGGN",
    "GramGradients",
    "GroupedKronecker",
    "Kronecker",
    "KroneckerError",
    "NearestKronecker",
    "Quantity",
    "Reduction",
    "Scale",
    "SecondMoment",
    "Statistic",
    "Variance",
]
__dir__ = listing(__all__)
