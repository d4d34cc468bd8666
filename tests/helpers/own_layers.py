"""Layers of a user's own with their definitions alone, affine in their parameters or not."""

import numpy as np

from gbackprop import layers

FUNCTIONS = {  # of the parameter, with their derivatives
    "p": (lambda p: p, np.ones_like),
    "2 p - 1": (lambda p: 2 * p - 1, lambda p: 2 + 0 * p),
    "p²": (lambda p: p**2, lambda p: 2 * p),
    "exp p": (np.exp, np.exp),
    "sin p": (np.sin, np.cos),
    "√p": (np.sqrt, lambda p: 0.5 / np.sqrt(p)),
    "log p": (np.log, lambda p: 1 / p),
    "elu p + 1": (lambda p: np.where(p > 0, p + 1, np.exp(np.minimum(p, 0))), lambda p: np.exp(np.minimum(p, 0))),
    "elu(5 - p)": (  # affine near the parameters that are drawn
        lambda p: np.where(p < 5, 5 - p, np.exp(5 - p) - 1),
        lambda p: np.where(p < 5, -1.0, -np.exp(5 - p)).astype(p.dtype),
    ),
    "√(2 - p)": (lambda p: np.sqrt(2 - p), lambda p: -0.5 / np.sqrt(2 - p)),  # NaN at other values
}
AFFINE = ("p", "2 p - 1")


class Product(layers.ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x


class Times(layers.Layer):
    """y = x f(p)."""

    def __init__(self, function="p", size=3):
        self.function, self.size, (self.value, self.slope) = function, size, FUNCTIONS[function]

    def parameter_shapes(self):
        return {"p": (self.size,)}

    def draw(self, rng):
        return {name: rng.uniform(0.5, 1.5, shape) for name, shape in self.parameter_shapes().items()}

    def output_shape(self, shape):
        return shape

    @property
    def factor(self):
        return self.value(self.parameters["p"])

    def forward(self, x):
        return x * self.factor, x

    def jmp(self, saved, mat):
        return mat * self.factor

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"p": Product(saved * self.slope(self.parameters["p"]))}


class Both(Times):
    """y = x a b: affine in each of two parameters, and not in both."""

    def parameter_shapes(self):
        return {"a": (3,), "b": (3,)}

    @property
    def factor(self):
        return self.parameters["a"] * self.parameters["b"]

    def parameter_jacobians(self, saved):
        return {"a": Product(saved * self.parameters["b"]), "b": Product(saved * self.parameters["a"])}
