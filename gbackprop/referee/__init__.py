"""Judge another library's numbers: golden-like problems, identities and symmetries, NumPy in and NumPy out.

An adapter is a mapping from names of `DEFINITIONS` to functions of a `Problem`, which has the network, the loss and the
batch as plain data. It returns arrays in the shapes of `DEFINITIONS`, and may do so for any of the names.

>>> from gbackprop import referee
>>> for finding in referee.judge({"gradient": my_gradient}):
...     print(finding)
"""

from gbackprop.base.names import listing
from gbackprop.referee.definitions import DEFINITIONS, Definition
from gbackprop.referee.judging import judge
from gbackprop.referee.problems import Problem, problems
from gbackprop.referee.verdicts import VERDICTS, Finding

__all__ = ["DEFINITIONS", "VERDICTS", "Definition", "Finding", "Problem", "judge", "problems"]
__dir__ = listing(__all__)
