"""A network with a step of every kind, its batch, and how tests ask which transfers a call takes."""

import re
from pathlib import Path

import numpy as np
from device_ledger import ledger

import gbackprop as gb
from gbackprop import layers, losses

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
LISTED = {
    (way, where) for where, way in re.findall(r"^\| `([\w.]+)` \| (to \w+) \|", PAGE.read_text(), re.MULTILINE)
}
"""The transfers that the page lists."""
X = np.random.default_rng(1).standard_normal((6, 2, 4, 4))
Y = np.array([0, 2, 1, 1, 0, 2])
CE = losses.CrossEntropyLoss()


def simple(**options):
    """A network of every kind of step that the driver has, drawn on the host."""
    chain = [layers.Conv2d(2, 3, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Dropout(0.4)]
    return gb.Sequential(*chain, layers.Flatten(), layers.Linear(12, 3), rng=0, **{"dtype": "float64"} | options)


def there(x, dtype=None):
    return gb.asarray(x, "cuda", dtype if x.dtype.kind == "f" else None)


def transfers(*calls):
    """The transfers that calls take, one after the other."""
    ledger.clear()
    for call in calls:
        call()
    return list(ledger.transfers)
