"""The claims that are made of some networks: of which methods each holds, and where and why one is not given.

``python tests/kit/claims_table.py`` prints tests/kit/claims.txt.
"""

from collections.abc import Iterator
from itertools import chain, groupby

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.testing import Report, check_network, check_symmetries


def networks():
    """Return networks with a loss, inputs and targets, by name."""
    rng = np.random.default_rng(0)
    vectors = layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 3)
    images = layers.Conv2d(2, 3, 2), layers.BatchNorm2d(3), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(3, 2)
    shared = layers.Linear(3, 3)
    nodes = {"0": (shared, "input"), "1": (layers.Sigmoid(), "0"), "2": (shared, "1"), "3": (layers.Add(), "2", "0")}
    return {
        "chain, classes": (
            gb.Sequential(*vectors, rng=0, dtype="float64"), losses.CrossEntropyLoss(), rng.standard_normal((4, 3)),
            np.array([0, 2, 1, 1])),
        "images, squares": (
            gb.Sequential(*images, rng=0, dtype="float64"), losses.MSELoss("sum"), rng.standard_normal((3, 2, 3, 3)),
            rng.standard_normal((3, 2))),
        "graph, a layer twice, bits": (
            gb.Graph(nodes, output="3", rng=0, dtype="float64"), losses.BCEWithLogitsLoss(),
            rng.standard_normal((3, 3)), rng.integers(0, 2, (3, 3)).astype(float)),
    }  # fmt: skip


def rows(report: Report) -> Iterator[str]:
    """Yield a line for each claim of a report and its verdict, with the methods, and why it is not given."""
    key = lambda row: (row.claim, row.verdict, row.problem)  # noqa: E731
    for (*words, problem), some in groupby(sorted(report.rows, key=key), key):
        yield " | ".join([*words, " ".join(row.method for row in some), *[problem] * bool(problem)])


def table(name: str) -> Iterator[str]:
    """Yield the lines of the file that are about a network."""
    for check in (check_network, check_symmetries):
        yield f"--- {check.__name__}, {name}"
        yield from rows(check(*networks()[name]))


if __name__ == "__main__":
    print(*chain.from_iterable(map(table, networks())), sep="\n")
