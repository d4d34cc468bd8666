"""Network, loss and quantities of a call, as digests: two calls are of the same ones if these are equal."""

from gbackprop.state.checksum import checksum
from gbackprop.state.classes import OWN, same_class
from gbackprop.state.digest import digest
from gbackprop.state.parts import digests_of, parts_of, settings_of
from gbackprop.state.watch import Watch
from gbackprop.system.names import listing

__all__ = ["OWN", "Watch", "checksum", "digest", "digests_of", "parts_of", "same_class", "settings_of"]
__dir__ = listing(__all__)
