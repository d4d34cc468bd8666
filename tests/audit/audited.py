"""A user's module, as tests copy it into a folder: sound and broken layers, losses, quantities and networks."""

import numpy as np

import gbackprop as gb
from gbackprop import losses, quantities
from gbackprop.layers import Elementwise, Layer, Linear


class Cube(Elementwise):
    """x³."""

    def value(self, x):
        return x * x * x

    def first(self, x, y):
        return 3 * x * x

    def second(self, x, y):
        return 6 * x


class Wrong(Cube):
    def second(self, x, y):
        return 3 * x


class Scaled(Cube):
    def __init__(self, factor, offset=0):
        self.factor = factor


class Flip(Layer):
    def forward(self, x):
        return np.cumsum(x, axis=1), None

    def output_shape(self, shape):
        if len(shape) != 1:
            raise ValueError(f"expected vectors, got {shape}")
        return shape

    def mjp(self, saved, mat):
        return -np.cumsum(mat[..., ::-1], axis=2)[..., ::-1]


class Raises(Layer):
    def forward(self, x):
        raise RuntimeError("too hot\ntoday")

    def mjp(self, saved, mat):
        return mat


class Square(Linear):
    def __init__(self):
        super().__init__(3, 3)


class Misshapen(Square):
    def mjp(self, saved, mat):
        return super().mjp(saved, mat)[0]


class Forgetful(Square):
    def forward(self, x):
        self.bias = not self.bias
        return super().forward(x)


class Spoils(Cube):
    def forward(self, x):
        x += 1
        return super().forward(x)


class Dice(Cube):
    def value(self, x):
        return x + np.random.default_rng().random()


class Nameless(Cube):
    def __repr__(self):
        raise RuntimeError("no name")


class NeverMade(Cube):
    def __init__(self):
        raise RuntimeError("not today")


class Half(losses.MSELoss):
    def gradients(self, output, target):
        return super().gradients(output, target) / 2


class OfVectors(losses.MSELoss):
    def target_shape(self, batch_shape):
        if len(batch_shape) != 2:
            raise ValueError("expected vectors")
        return batch_shape


class Undrawn(losses.Loss):
    def target_shape(self, batch_shape):
        return batch_shape

    def check_values(self, name, target, batch_shape, output):
        pass

    def values(self, output, target):
        return ((output - target) ** 2).sum(1)

    def gradients(self, output, target):
        return 2 * (output - target)

    def pseudo_targets(self, output, noise):
        return output[None]


class Doubled(quantities.DiagGGN):
    def finish(self, scale, *values):
        return super().finish(scale, *values).astype("float64")


class Stranger:
    pass


def network():
    return gb.Sequential(Linear(4, 3), Cube(), Linear(3, 2))


def sized(width, depth=2):
    return gb.Sequential(Linear(width, 2))


def nothing():
    return None


scaled = Scaled(2.0)
broken = gb.Sequential(Linear(4, 3), Wrong(), Linear(3, 2))
hot = gb.Sequential(Linear(4, 3), Linear(3, 2), Raises(), Linear(2, 2))
nameless = gb.Sequential(Nameless(), Linear(3, 2))
three = 3
