"""A layer with one wrong line: audit it, read which line, mend it.

Run it from the top of the repository, ``python examples/audit_a_layer.py``, or audit the two layers by hand, in this
folder: ``python -m gbackprop audit audit_a_layer:Swish --input 4``.
"""

import sys
from pathlib import Path

import numpy as np

from gbackprop.__main__ import main
from gbackprop.layers import Elementwise


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Swish(Elementwise):
    """A smooth ReLU."""

    formulas = {
        "forward": "y = x σ(x)",
        "mjp": "(σ + x σ (1 − σ)) g",
        "residual": "σ (1 − σ) (2 + x (1 − 2σ)) g",
    }

    def value(self, x):
        return x * sigmoid(x)

    def first(self, x, y):
        s = sigmoid(x)
        return s + x * s * (1 - s)

    def second(self, x, y):
        s = sigmoid(x)
        return s * (1 - s) * (1 + x * (1 - 2 * s))


class Mended(Swish):
    """The same, but the product rule gives two terms s (1 − s), and `second` forgot one of them."""

    def second(self, x, y):
        s = sigmoid(x)
        return s * (1 - s) * (2 + x * (1 - 2 * s))


def audit(target):
    """Run ``python -m gbackprop audit`` in this process."""
    arguments = ["audit", target, "--input", "4"]
    print("$ python -m gbackprop", *arguments)
    print("exit status", main(arguments), end="\n\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    audit("audit_a_layer:Swish")
    audit("audit_a_layer:Mended")
