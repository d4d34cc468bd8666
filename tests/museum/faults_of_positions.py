"""asdl and Opacus: biases and weights that are used at several positions, in layers whose gradients are right."""

import numpy as np
from exhibit import Exhibit, gradient_error, of, times

from gbackprop.calculus.jacobian import Bias, Outer, weigh
from gbackprop.layers import Linear
from gbackprop.testing import check_layer

SEQUENCE = np.random.default_rng(0).standard_normal((3, 5, 4))
POINTS = SEQUENCE[:, :1]
"""The same with one position."""


class WithJacobians(Linear):
    """A linear layer at T positions, with Jacobians of its own."""

    bias_kind, weight_kind = Bias, Outer

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        bias, outer = self.bias_kind(found["bias"].rows), found["weight"]
        weight = self.weight_kind(outer.inputs, found["bias"], outer.to_parameter, outer.from_parameter)
        return {"weight": weight, "bias": bias}


class GhostBias(Bias):
    def square_norm(self, mat, sign=None):
        return weigh((self.rows(mat) ** 2).sum((2, 3)), sign).sum(0)  # Σₜ ‖gₜ‖², where b = Σₜ gₜ


class MeanBias(Bias):
    def per_sample(self, mat):
        return self.rows(mat).mean(2)  # 1/T Σₜ

    def sum(self, mat, sign=None):
        return weigh(self.rows(mat).sum(2), sign).sum((0, 1))


class ScaledCovariance(Outer):
    def input_square(self):
        return super().input_square() / self.u.shape[2]  # 1/T, as for a mean over positions


class PositionsApart(Bias):
    def kronecker(self, mat, sign=None):
        rows = self.rows(mat)
        return np.einsum("vnto,vntp->op", weigh(rows, sign), rows)  # Σₜ g gᵀ, where b bᵀ is due


def linear(**kinds):
    """A layer with one kind of Jacobian replaced."""
    return lambda: type("Replaced", (WithJacobians,), kinds)(4, 3)


def audit(layer):
    return check_layer(layer, SEQUENCE)


SHAPES = "commits 77dc587, aafcf71, fad255f"
SCALES = "scale of covariances, and of individual gradients and biases, for several shapes"
UNSAID = "The list gives three commits for several scales, and not the formulas; planted here is"

EXHIBITS = [
    Exhibit(
        title="The norm of a bias's gradient",
        library="Opacus",
        wrong="norm of the bias gradient under ghost clipping",
        mended="issues 598, 751",
        kind="an axis",
        text="""
Ghost clipping needs ‖∇ℓₙ‖ without the gradients. A bias that is added at T positions has the gradient Σₜ gₜ, and
the norm ‖Σₜ gₜ‖², not Σₜ ‖gₜ‖². Clipping by a wrong norm is no clipping: the guarantee of privacy is lost, and
nothing fails. The issues tell of the norm; planted here is the sum over positions on the wrong side of the square.
""",
        faulty=linear(bias_kind=GhostBias),
        right=linear(),
        lines=GhostBias.square_norm,
        missed="T = 1",
        unseen="features without positions, T = 1; and all gradients are right",
        usual=of(linear(), "bias", "square_norm", POINTS),
        effect=times("bias", "square_norm", SEQUENCE, "for random gradients at T = 5"),
        audit=audit,
        call="check_layer(layer, x)",
        method="bias.square_norm",
        claim="is Σᵥ s ‖Jᵀg‖²",
    ),
    Exhibit(
        title="Individual gradients as means over positions",
        library="asdl",
        wrong=SCALES,
        mended=SHAPES,
        kind="a factor T",
        text=f"""
The gradient of one sample in a bias is Σₜ gₜ, the sum of all individual gradients that of the batch. {UNSAID} the
mean over positions in the individual gradients, while the gradient of the batch has its own formula.
""",
        faulty=linear(bias_kind=MeanBias),
        right=linear(),
        lines=MeanBias.per_sample,
        missed="the batch's gradient",
        unseen="the gradient of the batch, by differences in one direction: it is computed another way",
        usual=lambda layer: gradient_error(layer, SEQUENCE),
        passes=1e-7,
        effect=times("bias", "batch", SEQUENCE, "at T = 5"),
        audit=audit,
        call="check_layer(layer, x)",
        method="bias.per_sample",
        claim="is Jᵀ, entries J[n, *out, *p]",
    ),
    Exhibit(
        title="The covariance of inputs by positions",
        library="asdl",
        wrong=SCALES,
        mended=SHAPES,
        kind="a factor T",
        text=f"""
A is 1/N Σₙₜ u uᵀ beside the B of the bias. {UNSAID} a mean over positions in A alone: B ⊗ A is T times too small,
in convolutions by the number of pixels.
""",
        faulty=linear(weight_kind=ScaledCovariance),
        right=linear(),
        lines=ScaledCovariance.input_square,
        missed="T = 1",
        unseen="features without positions, T = 1; and all gradients are right",
        usual=of(linear(), "weight", "input_square", POINTS),
        effect=times("weight", "input_square", SEQUENCE, "at T = 5"),
        audit=audit,
        call="check_layer(layer, x)",
        method="weight.input_square",
        claim="is Σₙₜ u uᵀ",
    ),
    Exhibit(
        title="The factor of a bias, position by position",
        library="asdl",
        wrong=SCALES,
        mended=SHAPES,
        kind="an axis",
        text=f"""
The curvature of a bias is Σₙ b bᵀ with b = Σₜ gₜ, and is exact. {UNSAID} Σₙₜ g gᵀ, which leaves out the products of
two positions.
""",
        faulty=linear(bias_kind=PositionsApart),
        right=linear(),
        lines=PositionsApart.kronecker,
        missed="T = 1",
        unseen="features without positions, T = 1; and all gradients are right",
        usual=of(linear(), "bias", "kronecker", POINTS),
        effect=times("bias", "kronecker", SEQUENCE, "for random gradients at T = 5"),
        audit=audit,
        call="check_layer(layer, x)",
        method="bias.kronecker",
        claim="is Σᵥₙ s b bᵀ",
    ),
]
