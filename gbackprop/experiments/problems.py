"""The demo's networks and how each is trained: small enough that all ten quantities are affordable on two cores."""

from dataclasses import dataclass

import numpy as np

import gbackprop as gb
from gbackprop import layers

SMALL = 16  # images below this many pixels a side are looked at pixel by pixel


@dataclass(frozen=True)
class Plan:
    """How a network is trained.

    Attributes
    ----------
    epochs : int
        Passes over the training images.
    images : int
        How many of them to use at most.
    batch : int
        Images per step, and in the batch whose quantities are computed.
    learning_rate, momentum : float
        Of stochastic gradient descent.
    """

    epochs: int
    images: int
    batch: int
    learning_rate: float
    momentum: float = 0.9


PLANS = {
    "digits": Plan(epochs=15, images=1438, batch=64, learning_rate=0.2),
    "mnist": Plan(epochs=3, images=10_000, batch=64, learning_rate=0.1),
    "fashion-mnist": Plan(epochs=3, images=10_000, batch=64, learning_rate=0.1),
    "cifar-10": Plan(epochs=4, images=10_000, batch=64, learning_rate=0.05),
}


def make_network(
    shape: tuple[int, ...], classes: int, rng: np.random.Generator, dtype: str = "float32"
) -> gb.Sequential:
    """A convolution, a sigmoid, max pooling, and a linear layer.

    The sigmoid is what makes the Hessian differ from the Gauss-Newton matrix; each of its outputs costs the sweep
    one column, so that larger images are convolved with a stride.

    Parameters
    ----------
    shape : tuple of int
        Of one image, (C, H, W).
    classes : int
        Number of outputs.
    rng : Generator
        Draws the initial parameters.
    dtype : {"float32", "float64"}
        Of the parameters.

    Returns
    -------
    Sequential
        The network.
    """
    channels, *pixels = shape
    if min(pixels) < SMALL:
        convolution, size = layers.Conv2d(channels, 6, 3, padding=1), pixels
    else:
        convolution, size = layers.Conv2d(channels, 8, 5, stride=3), [(side - 5) // 3 + 1 for side in pixels]
    features = convolution.out_channels * (size[0] // 2) * (size[1] // 2)
    return gb.Sequential(
        convolution,
        layers.Sigmoid(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        layers.Linear(features, classes),
        rng=rng,
        dtype=dtype,
    )
