"""The demo's networks and how each is trained: so small that two cores afford all ten quantities."""

from dataclasses import dataclass

import numpy as np

import gbackprop as gb
from gbackprop import layers

HIDDEN = 16
SMALL = 16  # images below this many pixels a side are looked at pixel by pixel


@dataclass(frozen=True)
class Plan:
    """The settings with which a network is trained.

    Attributes
    ----------
    epochs : int
        Passes over the training images.
    images : int
        How many of them to use at most.
    batch : int
        Images per step.
    shown : int
        Images in the batch whose quantities are computed and shown.
    learning_rate, momentum : float
        Of stochastic gradient descent.
    """

    epochs: int
    images: int
    shown: int
    learning_rate: float
    batch: int = 64
    momentum: float = 0.9


PLANS = {
    "digits": Plan(epochs=15, images=1438, shown=128, learning_rate=0.2),
    "mnist": Plan(epochs=4, images=20_000, shown=128, learning_rate=0.1),
    "fashion-mnist": Plan(epochs=4, images=20_000, shown=128, learning_rate=0.1),
    "cifar-10": Plan(epochs=8, images=10_000, shown=64, learning_rate=0.1),
    "cifar-100": Plan(epochs=8, images=10_000, shown=64, learning_rate=0.1),
}


def make_network(
    shape: tuple[int, ...], classes: int, rng: np.random.Generator, dtype: str = "float32"
) -> gb.Sequential:
    """Return a network: a convolution, a sigmoid, max pooling, and two linear layers with a tanh between.

    Sigmoid and tanh make the Hessian differ from the Gauss-Newton matrix. Each of their outputs costs one
    column of the sweep, which is why larger images are convolved with a stride.
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
