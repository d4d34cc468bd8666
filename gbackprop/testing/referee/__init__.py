"""Judge the numbers of another library: problems as plain data, NumPy arrays back, a verdict for each claim.

An adapter is a mapping from names of `DEFINITIONS` to functions of a `Problem`; docs/testing.md shows one.
"""

from gbackprop.base.names import listing
from gbackprop.testing.referee.formulas import DEFINITIONS, Brute, Definition
from gbackprop.testing.referee.judging import judge
from gbackprop.testing.referee.posed import Problem, problems
from gbackprop.testing.referee.verdicts import VERDICTS, Verdict

__all__ = ["DEFINITIONS", "VERDICTS", "Brute", "Definition", "Problem", "Verdict", "judge", "problems"]
__dir__ = listing(__all__)
