"""Layers of several inputs with parameters of their own, as a user writes them: a gate, a bilinear form, a merge."""

from functools import partial

import numpy as np

from gbackprop.calculus.residual import FactoredLayer, products, units
from gbackprop.layers import Bias, Layer, Outer, ParameterJacobian


class GateJacobian(ParameterJacobian):
    def __init__(self, difference):
        self.difference = difference

    def per_sample(self, mat):
        return self.difference * mat


class Gate(Layer):
    """y = a ∘ u + (1 − a) ∘ v."""

    kronecker_factors = "a gate for each feature is no matrix"

    def __init__(self, features):
        self.features = features

    def parameter_shapes(self):
        return {"gate": (self.features,)}

    def draw(self, rng):
        return {"gate": rng.uniform(0.2, 0.8, self.features)}

    def output_shape(self, *shapes):
        if shapes != ((self.features,),) * 2:
            raise ValueError(f"expected two inputs of ({self.features},), got {shapes}")
        return shapes[0]

    def forward(self, u, v):
        a = self.parameters["gate"]
        return a * u + (1 - a) * v, u - v

    def jmp(self, saved, of_u, of_v):
        a = self.parameters["gate"]
        return a * of_u + (1 - a) * of_v

    def mjp(self, saved, mat):
        a = self.parameters["gate"]
        return a * mat, (1 - a) * mat

    def parameter_jacobians(self, saved):
        return {"gate": GateJacobian(saved)}


class WeightJacobian(ParameterJacobian):
    def __init__(self, u, v):
        self.u, self.v = u, v

    def per_sample(self, mat):
        return np.einsum("vno,ni,nj->vnoij", mat, self.u, self.v)


class Bilinear(FactoredLayer):
    """y = uᵀ W v + b, with a matrix for each output."""

    kronecker_factors = "a weight of three axes is no matrix"

    def __init__(self, left, right, out):
        self.sizes = left, right, out

    def parameter_shapes(self):
        left, right, out = self.sizes
        return {"weight": (out, left, right), "bias": (out,)}

    def draw(self, rng):
        return {name: rng.standard_normal(shape) for name, shape in self.parameter_shapes().items()}

    def output_shape(self, *shapes):
        left, right, out = self.sizes
        if shapes != ((left,), (right,)):
            raise ValueError(f"expected ({left},) and ({right},), got {shapes}")
        return (out,)

    def forward(self, u, v):
        return np.einsum("oij,ni,nj->no", self.parameters["weight"], u, v) + self.parameters["bias"], (u, v)

    def jmp(self, saved, of_u, of_v):
        (u, v), w = saved, self.parameters["weight"]
        return np.einsum("oij,vni,nj->vno", w, of_u, v) + np.einsum("oij,ni,vnj->vno", w, u, of_v)

    def mjp(self, saved, mat):
        (u, v), w = saved, self.parameters["weight"]
        return np.einsum("oij,nj,vno->vni", w, v, mat), np.einsum("oij,ni,vno->vnj", w, u, mat)

    def residual_width(self, *shapes):
        return 2 * self.sizes[0]

    def residual(self, saved, grad):
        return products(self.sizes[0], partial(self.pairs, grad), grad)

    def pairs(self, grad, k):
        on_v = np.einsum("oij,no->inj", self.parameters["weight"], grad)[k]
        return units(k, len(grad), self.sizes[:1], grad.dtype), on_v

    def parameter_jacobians(self, saved):
        return {"weight": WeightJacobian(*saved), "bias": Bias(lambda mat: mat[:, :, None])}


class Merge(Layer):
    """y = W u + v + b: a weight with Kronecker factors, of the first input alone; `key` is its name."""

    kronecker_factors = True

    def __init__(self, left, right, key="weight"):
        self.left, self.right, self.key = left, right, key

    def parameter_shapes(self):
        return {self.key: (self.right, self.left), "bias": (self.right,)}

    def draw(self, rng):
        return {name: rng.standard_normal(shape) for name, shape in self.parameter_shapes().items()}

    def output_shape(self, *shapes):
        if shapes != ((self.left,), (self.right,)):
            raise ValueError(f"expected ({self.left},) and ({self.right},), got {shapes}")
        return (self.right,)

    def forward(self, u, v):
        return u @ self.parameters[self.key].T + v + self.parameters["bias"], u

    def jmp(self, saved, of_u, of_v):
        return of_u @ self.parameters[self.key].T + of_v

    def mjp(self, saved, mat):
        return mat @ self.parameters[self.key], mat

    def parameter_jacobians(self, saved):
        bias = Bias(lambda mat: mat[:, :, None])
        weight = Outer(lambda: saved[None, :, None], bias, lambda each: each, lambda each: each)
        return {self.key: weight, "bias": bias}
