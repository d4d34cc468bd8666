"""The table of NumPy's functions: how each is read as rows of the table of operations."""

from gbackprop.interop.recording.elementwise import ELEMENTWISE, Reader
from gbackprop.interop.recording.placing import PLACING
from gbackprop.interop.recording.sums import SUMS

TABLE: dict[str, Reader] = {**ELEMENTWISE, **SUMS, **PLACING}
"""The readers by the functions' names: from a `StepReader` and the arguments, the result's node."""
