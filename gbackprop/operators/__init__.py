"""Curvature matrices and the Jacobian as linear operators: multiplied by vectors, never formed."""

from gbackprop.base.names import listing
from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.operators.curvature import GGN, EmpiricalFisher, Fisher, Hessian
from gbackprop.operators.jacobian import Jacobian

__all__ = ["GGN", "EmpiricalFisher", "Fisher", "GroupedKronecker", "Hessian", "Jacobian", "Kronecker"]
__dir__ = listing(__all__)
