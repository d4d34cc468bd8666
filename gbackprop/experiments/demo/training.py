"""The demo's networks, so small that two cores afford all ten quantities, and their training."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.array import device_of
from gbackprop.optim import SGD

HIDDEN = 16
SMALL = 16  # images below this many pixels a side are looked at pixel by pixel


@dataclass(frozen=True)
class Schedule:
    """The settings with which a network is trained by stochastic gradient descent, and shown."""

    epochs: int
    images: int  # to train on, at most
    shown: int  # images in the batch whose quantities are computed
    learning_rate: float
    batch: int = 64
    momentum: float = 0.9


_GREY = Schedule(epochs=4, images=20_000, shown=128, learning_rate=0.1)
_COLORED = Schedule(epochs=8, images=10_000, shown=64, learning_rate=0.1)
SCHEDULES = {
    "digits": Schedule(epochs=15, images=1438, shown=128, learning_rate=0.2),
    "mnist": _GREY,
    "fashion-mnist": _GREY,
    "cifar-10": _COLORED,
    "cifar-100": _COLORED,
}


def make_network(
    shape: tuple[int, ...], classes: int, rng: np.random.Generator, dtype: str = "float32"
) -> gb.Sequential:
    """Return a network: a convolution, a sigmoid, max pooling, and two linear layers with a tanh between.

    Sigmoid and tanh make the Hessian differ from the Gauss-Newton matrix. Each of their outputs costs one column of
    the sweep, which is why larger images are convolved with a stride.
    """
    channels, *pixels = shape
    if min(pixels) < SMALL:
        convolution = layers.Conv2d(channels, 6, 3, padding=1)
    else:
        convolution = layers.Conv2d(channels, 8, 5, stride=3)
    features = gb.Sequential(convolution, layers.Sigmoid(), layers.MaxPool2d(2), layers.Flatten())
    (width,) = features.output_shape(shape)
    head = layers.Linear(width, HIDDEN), layers.Tanh(), layers.Linear(HIDDEN, classes)
    return gb.Sequential(*features, *head, rng=rng, dtype=dtype)


def train(
    net: gb.Sequential, loss: losses.Loss, images: tuple[np.ndarray, np.ndarray], schedule: Schedule,
    rng: np.random.Generator,
) -> Iterator[float]:  # fmt: skip
    """Train a network in place on images and labels, and yield the loss of each step."""
    device = device_on(net)
    optimizer = SGD(net, schedule.learning_rate, schedule.momentum)
    for _ in range(schedule.epochs):
        for x, y in gb.data.batches(*images, schedule.batch, rng):
            result = gb.backward(net, loss, gb.asarray(x, device=device), gb.asarray(y, device=device))
            optimizer.step(result)
            yield float(result.loss)


def predict(net: gb.Sequential, x: np.ndarray, batch: int = 1024) -> np.ndarray:
    """Return the most likely class of each image."""
    blocks = (gb.asarray(x[start : start + batch], device=device_on(net)) for start in range(0, len(x), batch))
    return np.concatenate([gb.asnumpy(net(block).argmax(1)) for block in blocks])


def device_on(net: gb.Sequential) -> str:
    """Return the device of a network's parameters, as `gb.asarray` names it."""
    return device_of(next(iter(net.parameters.values())))
