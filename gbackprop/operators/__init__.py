"""Curvature matrices and the Jacobian as linear operators: multiplied by vectors, never formed."""

from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.operators.curvature import GGN, EmpiricalFisher, Fisher, Hessian
from gbackprop.operators.jacobian import Jacobian
from gbackprop.system.names import listing

__all__ = ["GGN", "EmpiricalFisher", "Fisher", "GroupedKronecker", "Hessian", "Jacobian", "Kronecker"]
__dir__ = listing(__all__)
