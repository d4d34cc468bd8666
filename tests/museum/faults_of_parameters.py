"""BackPACK, curvlinops: Jacobians in a parameter whose gradient is right."""

from functools import partial

import numpy as np
from exhibit import Exhibit, difference, gradient_error, of, reduced, times

from gbackprop.calculus.jacobian import weigh
from gbackprop.layers import Layer, ParameterJacobian
from gbackprop.testing import check_layer

SEQUENCE = np.random.default_rng(0).standard_normal((3, 5, 4))


class Grouped(Layer):
    """y[g] = W[g] x[g] at T positions: ``[N, T, G, I] -> [N, T, G, O]``."""

    kronecker_factors = "none are written"

    def __init__(self, groups, inputs, outputs):
        self.groups, self.inputs, self.outputs = groups, inputs, outputs

    def parameter_shapes(self):
        return {"weight": (self.groups, self.outputs, self.inputs)}

    def draw(self, rng):
        return {"weight": rng.standard_normal((self.groups, self.outputs, self.inputs))}

    def output_shape(self, shape):
        if len(shape) != 3 or shape[1:] != (self.groups, self.inputs):
            raise ValueError(f"expected features of shape (T, {self.groups}, {self.inputs}), got {shape}")
        return (*shape[:2], self.outputs)

    def forward(self, x):
        return np.einsum("goi,ntgi->ntgo", self.parameters["weight"], x), x

    def jmp(self, saved, mat):
        return np.einsum("goi,vntgi->vntgo", self.parameters["weight"], mat)

    def mjp(self, saved, mat):
        return np.einsum("goi,vntgo->vntgi", self.parameters["weight"], mat)

    def parameter_jacobians(self, saved):
        return {"weight": GroupsApart(saved)}


class GroupsApart(ParameterJacobian):
    """Jᵀ g = Σₜ g uᵀ of each group; norms by products of positions, without forming it."""

    def __init__(self, u):
        self.u = u

    def per_sample(self, mat):
        return np.einsum("vntgo,ntgi->vngoi", mat, self.u)

    def square_norm(self, mat, sign=None):
        products = np.einsum("vntgo,vnsgo,ntgi,nsgi->vn", mat, mat, self.u, self.u, optimize=True)
        return weigh(products, sign).sum(0)


class GroupsTogether(GroupsApart):
    def square_norm(self, mat, sign=None):
        g, u = np.einsum("vntgo,vnsgo->vnts", mat, mat), np.einsum("ntgi,nsgi->nts", self.u, self.u)
        return weigh((g * u).sum((2, 3)), sign).sum(0)  # each group's g with all groups' u


class GroupedTogether(Grouped):
    def parameter_jacobians(self, saved):
        return {"weight": GroupsTogether(saved)}


class Twice(Layer):
    """y = W a + W b, one weight for two inputs: ``[N, 2, I] -> [N, O]``."""

    kronecker_factors = "none are written"
    jacobian = None

    def parameter_shapes(self):
        return {"weight": (3, 4)}

    def draw(self, rng):
        return {"weight": rng.standard_normal((3, 4))}

    def output_shape(self, shape):
        if shape != (2, 4):
            raise ValueError(f"expected features of shape (2, 4), got {shape}")
        return (3,)

    def forward(self, x):
        return x.sum(1) @ self.parameters["weight"].T, x

    def jmp(self, saved, mat):
        return mat.sum(2) @ self.parameters["weight"].T

    def mjp(self, saved, mat):
        return np.repeat((mat @ self.parameters["weight"])[:, :, None], 2, axis=2)

    def parameter_jacobians(self, saved):
        return {"weight": self.jacobian(saved)}


class OneParameter(ParameterJacobian):
    def __init__(self, u):
        self.u = u

    def per_sample(self, mat):
        return np.einsum("vno,nti->vnoi", mat, self.u)


class OneForEachUse(OneParameter):
    def square(self, mat, sign=None):
        uses = np.einsum("vno,nti->vntoi", mat, self.u)
        return weigh(uses**2, sign).sum((0, 1, 2))  # Σ of squares, where the square is of the sum


class Tied(Twice):
    jacobian = OneParameter


class Untied(Twice):
    jacobian = OneForEachUse


TWO_GROUPS = np.random.default_rng(2).standard_normal((3, 4, 2, 3))
ONE_GROUP = partial(Grouped, 1, 3, 2)

EXHIBITS = [
    Exhibit(
        title="Individual gradient norms of groups",
        library="BackPACK 1.7.1",
        wrong="individual gradient norms of grouped convolutions",
        mended="found by the reference values of this project",
        kind="a shape that no test had",
        text="""
The norm of Σₜ gₜ uₜᵀ needs no matrix: it is Σₜₛ (gₜ·gₛ) (uₜ·uₛ). With groups there is such a sum for each group,
with its own g and its own u. The sums over all groups, multiplied, are the norm of one large matrix, whose blocks
off the diagonal are no parameters: never too small. The norms of BackPACK's 1, 2 and 3-dimensional convolutions are
these to 10⁻¹⁵, 1.2 to 16 times too large with 2, 3 and 4 groups, and with one of each channel. Planted here in groups
of linear maps.
""",
        faulty=lambda: GroupedTogether(2, 3, 2),
        right=lambda: Grouped(2, 3, 2),
        lines=GroupsTogether.square_norm,
        missed="one group",
        unseen="one group, compared with the norm of the gradient of each sample",
        usual=lambda layer: of(ONE_GROUP, "weight", "square_norm", TWO_GROUPS[:, :, :1])(type(layer)(1, 3, 2)),
        effect=times("weight", "square_norm", TWO_GROUPS, "with two groups"),
        audit=lambda layer: check_layer(layer, TWO_GROUPS),
        call="check_layer(layer, x)",
        method="weight.square_norm",
        claim="is Σᵥ s ‖Jᵀg‖²",
    ),
    Exhibit(
        title="Tied weights, each use by itself",
        library="curvlinops",
        wrong="tied weights: each use as if it were a parameter of its own",
        mended="docstring of its Kronecker operator; a test asserts it",
        kind="a square",
        text="""
A weight that is used twice has the Jacobian J₁ + J₂, and curvature (J₁ + J₂)ᵀ H (J₁ + J₂). Each use by itself gives
J₁ᵀHJ₁ + J₂ᵀHJ₂: the products of two uses are missing. There it is a stated convention of Kronecker factors; planted
here in the squares of a diagonal, whose
definition leaves no choice.
""",
        faulty=Untied,
        right=Tied,
        lines=OneForEachUse.square,
        missed="first order",
        unseen="the gradient, by differences in one direction of the weight: it is the sum over the uses, and right",
        usual=lambda layer: gradient_error(layer, SEQUENCE[:, :2]),
        passes=1e-7,
        effect=lambda faulty, right: "an entry of the diagonal is off by {:.0%} of the largest".format(
            difference(*(reduced(each, SEQUENCE[:, :2], "weight", "square") for each in (faulty, right)))
        ),
        audit=lambda layer: check_layer(layer, SEQUENCE[:, :2]),
        call="check_layer(layer, x)",
        method="weight.square",
        claim="is Σᵥₙ s (Jᵀg)²",
    ),
]
