"""Programs: the plain sweep written down as a straight function of NumPy calls."""

from gbackprop.base.names import listing
from gbackprop.plain.programs.written import Program, program

__all__ = ["Program", "program"]
__dir__ = listing(__all__)
