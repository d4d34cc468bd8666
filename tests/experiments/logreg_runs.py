"""Runs of a logistic regression on a few made-up images, which need no files, and what they come to."""

import dataclasses

import numpy as np

from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.problems import Split
from gbackprop.experiments.runs import RunSpec

CURVED = [name for name in OPTIMIZERS if name not in ("SGD", "Momentum", "Adam")]


def make_split(images=3 * 128 + 40, held_out=128 + 5):
    """Images of 784 pixels whose class can be learnt, in sizes that leave partial batches."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((10, 784)).astype("float32")

    def draw(count):
        y = rng.integers(0, 10, count)
        return centres[y] * 0.1 + 0.3 * rng.standard_normal((count, 784)).astype("float32"), y

    return Split(*draw(images), *draw(held_out), *draw(held_out))


SPLIT = make_split()


def spec(optimizer="SGD", **settings):
    if optimizer in CURVED:
        settings = {"damping": 0.1} | settings
    return RunSpec("mnist_logreg", optimizer, **({"lr": 0.1, "epochs": 3} | settings))


def numbers(outcome):
    """All of an outcome but the times."""
    return outcome.status, [dataclasses.replace(row, seconds=0) for row in outcome.rows]
