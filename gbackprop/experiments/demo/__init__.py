"""The demonstration: a small network trained on real images, and one backward sweep asked for everything.

Needs rich and matplotlib, of the extra ``experiments``.
"""

from gbackprop.base.extras import needed

with needed("rich", "the demo"), needed("matplotlib", "the demo"):
    from gbackprop.experiments.demo.command import Setup, demonstrate, prepare, run

__all__ = ["Setup", "demonstrate", "prepare", "run"]
