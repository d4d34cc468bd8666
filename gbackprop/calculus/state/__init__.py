"""Network, loss and quantities of a call, as digests: two calls are of the same ones if these are equal."""

from gbackprop.base.names import listing
from gbackprop.calculus.state.checksums import checksum
from gbackprop.calculus.state.classes import changed_class
from gbackprop.calculus.state.digests import digest
from gbackprop.calculus.state.parts import digests_of, parts_of, settings_of
from gbackprop.calculus.state.watch import Watch

__all__ = ["Watch", "changed_class", "checksum", "digest", "digests_of", "parts_of", "settings_of"]
__dir__ = listing(__all__)
