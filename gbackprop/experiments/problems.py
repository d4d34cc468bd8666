"""The four problems of the paper's experiments: network, initial values, data and regularization of each.

`problem` finds one by its name, `load_problem` reads its images, `batches` serves them to a training epoch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import gbackprop as gb
from gbackprop.base.checks import generator
from gbackprop.base.names import near_miss
from gbackprop.calculus.state import digest
from gbackprop.experiments import architectures, data
from gbackprop.experiments.augmentation import augment
from gbackprop.experiments.initialization import (
    Initializer,
    constant,
    truncated_normal,
    xavier_normal,
    xavier_uniform,
)
from gbackprop.layers import Layer

HELD_OUT = 10_000
"""The number of the published training images that are set apart for validation."""


@dataclass(frozen=True)
class Benchmark:
    """A network, the data it is trained on, and its L2 term; the loss is the mean cross-entropy."""

    name: str  # as DeepOBS calls it
    data: str  # the image set, see `data.NAMES`
    batch: int  # images per step, and in evaluations; the last partial batch is dropped
    epochs: int  # how long the paper trained
    l2: float  # η: reported losses include ½ η Σ‖W‖² over weights, not biases
    shape: tuple[int, ...]  # of one input: (C, H, W), or (pixels,) for logistic regression
    layers: Callable[[], list[Layer]]  # makes the layers
    convolution: Initializer  # initial values of the weights of convolutions
    linear: Initializer  # of linear layers
    bias: Initializer  # of all biases
    augmented: bool  # training images are changed at random, and all normalised by channel

    def network(self, rng: int | np.random.Generator | None, dtype: str = "float32") -> gb.Sequential:
        """Return the network with its initial values."""
        network, source = gb.Sequential(*self.layers(), dtype=dtype), generator(rng)
        shapes = network.parameter_shapes().items()
        drawn = {name: self._initializer(name, shape)(source, shape) for name, shape in shapes}
        return network.load_state_dict(drawn | dict(network.buffers))

    def _initializer(self, name: str, shape: tuple[int, ...]) -> Initializer:
        if not _is_weight(name):
            return self.bias
        return self.convolution if len(shape) > 2 else self.linear


_NORMAL = partial(truncated_normal, deviation=0.05)

_TABLE = (
    Benchmark("mnist_logreg", "mnist", 128, 50, 0.0, (784,), architectures.logreg,
              constant, constant, constant, augmented=False),
    Benchmark("fmnist_2c2d", "fashion-mnist", 128, 100, 0.0, (1, 28, 28), architectures.net_2c2d,
              _NORMAL, _NORMAL, partial(constant, value=0.05), augmented=False),
    Benchmark("cifar10_3c3d", "cifar-10", 128, 100, 0.002, (3, 32, 32), architectures.net_3c3d,
              xavier_normal, xavier_uniform, constant, augmented=True),
    Benchmark("cifar100_allcnnc", "cifar-100", 256, 350, 5e-4, (3, 32, 32), architectures.net_allcnnc,
              xavier_normal, xavier_uniform, partial(constant, value=0.1), augmented=True),
)  # fmt: skip
PROBLEMS = {entry.name: entry for entry in _TABLE}


def problem(name: str) -> Benchmark:
    """Find a problem by its name."""
    if isinstance(name, str) and name in PROBLEMS:
        return PROBLEMS[name]
    raise ValueError(f"problem: expected one of {', '.join(PROBLEMS)}, got {name!r}{near_miss(name, PROBLEMS)}")


def regularization(network: gb.Sequential, l2: float) -> float:
    """½ η Σ‖W‖² over the parameters named weight."""
    if not l2:
        return 0.0
    weights = (value for name, value in network.parameters.items() if _is_weight(name))
    return 0.5 * l2 * sum(float((weight.astype("float64") ** 2).sum()) for weight in weights)


def _is_weight(name: str) -> bool:
    return name.rpartition(".")[2] == "weight"


@dataclass(frozen=True)
class Split:
    """The images and labels of a run: on the host, normalised as the problem wants."""

    train_x: np.ndarray  # float32, shape (N, C, H, W), or (N, pixels) for logistic regression
    train_y: np.ndarray  # int64, shape (N,)
    valid_x: np.ndarray  # to choose hyperparameters by
    valid_y: np.ndarray
    test_x: np.ndarray  # to report
    test_y: np.ndarray
    note: str = ""  # on the data, for readers of a result; empty where they are complete
    mean: np.ndarray | None = None  # of the raw images from 0 to 1, shape (C, 1, 1); None: not normalised
    deviation: np.ndarray | None = None
    digest: str = ""  # of the images as they were read: normalised, they may differ between machines in the last bit


def load_problem(problem: Benchmark, data_dir: str | Path | None) -> Split:
    """Read a problem's images, hold some out for validation, and normalise."""
    images = data.load(problem.data, data_dir)
    whole = data.PUBLISHED[problem.data]
    if images.train_x.shape[1:] != whole.shape:
        raise ValueError(
            f"{data_dir}: expected {problem.data} images of shape {whole.shape}, got {images.train_x.shape[1:]}"
        )
    read = digest(images.train_x, images.train_y, images.test_x, images.test_y)
    kept = len(images.train_x) - len(images.train_x) * HELD_OUT // whole.train
    mean, deviation = data.channel_statistics(images) if problem.augmented else (None, None)
    parts = [images.train_x[:kept], images.train_x[kept:], images.test_x]
    for name, part in zip(("train on", "validate on", "test on"), parts, strict=True):
        if len(part) < problem.batch:
            raise ValueError(
                f"{data_dir}: too few images of {problem.data}: expected at least a batch of {problem.batch} to "
                f"{name}, got {len(part)} ({len(images.train_x)} training and {len(images.test_x)} test images in all)"
            )
        if mean is not None:
            part -= mean
            part /= deviation
    train_x, valid_x, test_x = (part.reshape(-1, *problem.shape) for part in parts)
    labels = images.train_y[:kept], images.train_y[kept:], images.test_y
    note = _note(images, len(train_x), len(valid_x))
    return Split(train_x, labels[0], valid_x, labels[1], test_x, labels[2], note, mean, deviation, read)


def _note(images: data.Dataset, train: int, valid: int) -> str:
    """Return the data set's note and the sizes that differ from the published set's; empty if there are none."""
    whole = data.PUBLISHED[images.name]
    notes = [images.note] if images.note else []
    if train + valid != whole.train:
        notes.append(
            f"trained on {train} and validated on {valid} images, of {train + valid} training images "
            f"where the published set has {whole.train}"
        )
    if not images.note and len(images.test_x) != whole.test:
        notes.append(f"tested on {len(images.test_x)} images where the published set has {whole.test}")
    return "; ".join(notes)


def batches(split: Split, problem: Benchmark, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield an epoch of training batches: shuffled, augmented where the problem says so, without a partial one."""
    for x, y in gb.data.batches(split.train_x, split.train_y, problem.batch, rng, drop_last=True):
        if problem.augmented:
            # Changes are defined on raw images. The way back there rounds, far below a grey level.
            x = (augment(x * split.deviation + split.mean, rng) - split.mean) / split.deviation
        yield x, y
