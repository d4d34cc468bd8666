"""BackPACK, Opacus and the tutorial on K-FAC: layers whose gradients are right, or are those of another function."""

import numpy as np
from exhibit import Exhibit, difference, gradient_error

from gbackprop.array import array_module
from gbackprop.layers import Elementwise, Layer
from gbackprop.testing import check_layer


class PairMax(Layer):
    """The larger of two neighbours: ``[N, 2 D] -> [N, D]``."""

    def forward(self, x):
        pairs = x.reshape(len(x), -1, 2)
        first = (pairs[..., 0].real >= pairs[..., 1].real)[..., None]
        chosen = np.concatenate([first, ~first], axis=2)
        return (pairs * chosen).sum(2), chosen

    def output_shape(self, shape):
        if len(shape) != 1 or shape[0] % 2:
            raise ValueError(f"expected an even number of features, got shape {shape}")
        return (shape[0] // 2,)

    def jmp(self, saved, mat):
        return (mat.reshape(*mat.shape[:2], -1, 2) * saved).sum(3)

    def mjp(self, saved, mat):
        return (mat[..., None] * saved).reshape(*mat.shape[:2], -1)


class MeanJacobian(PairMax):
    def average(self, saved, curvature, batch, shape):
        units = np.eye(shape[0], dtype=curvature.dtype)[:, None] * np.ones((batch, 1), curvature.dtype)
        jacobian = self.mjp(saved, units).mean(1)  # E[J], where the mean is of JᵀḠJ
        return jacobian.T @ curvature @ jacobian


def average_of(layer, x):
    """KFRA's step by the layer, and by its definition."""
    curvature = np.array([[2.0, 0.3], [0.3, 1.0]])
    saved = layer.forward(x)[1]
    each = layer.mjp(saved, np.repeat(np.eye(2)[:, None], len(x), 1))
    want = np.einsum("ani,ab,bnj->ij", each, curvature, each) / len(x)
    return layer.average(saved, curvature, len(x), (2,)), want


BATCH = np.random.default_rng(0).standard_normal((6, 4))


class ELU(Elementwise):
    """x where x > 0, α (eˣ − 1) elsewhere, times λ: SELU with other numbers."""

    def __init__(self, alpha=1.0, scale=1.0):
        self.alpha, self.scale = alpha, scale

    def value(self, x):
        xp = array_module(x)
        return self.scale * xp.where(x.real > 0, x, self.alpha * xp.expm1(xp.where(x.real > 0, 0, x)))

    def first(self, x, y):
        xp = array_module(x)
        return self.scale * xp.where(x.real > 0, 1, self.alpha * xp.exp(xp.where(x.real > 0, 0, x))).astype(x.dtype)

    def second(self, x, y):
        xp = array_module(x)
        return (self.scale * self.alpha * xp.exp(xp.where(x.real > 0, 0, x)) * (x.real <= 0)).astype(x.dtype)


class WithoutAlpha(ELU):
    def second(self, x, y):
        xp = array_module(x)
        return (xp.exp(xp.where(x.real > 0, 0, x)) * (x.real <= 0)).astype(x.dtype)  # α is missing


class WithoutScale(ELU):
    def second(self, x, y):
        xp = array_module(x)
        return (self.alpha * xp.exp(xp.where(x.real > 0, 0, x)) * (x.real <= 0)).astype(x.dtype)  # λ is missing


SELU = {"alpha": 1.6732632423543772, "scale": 1.0507009873554805}


class Composed(Elementwise):
    """f(g(x)), f = tanh and g = x + x³/3."""

    def value(self, x):
        return array_module(x).tanh(x + x**3 / 3)

    def first(self, x, y):
        return (1 - y**2) * (1 + x**2)

    def second(self, x, y):
        return -2 * y * (1 - y**2) * (1 + x**2) ** 2 + (1 - y**2) * 2 * x


class NotSquared(Composed):
    def second(self, x, y):
        return -2 * y * (1 - y**2) * (1 + x**2) + (1 - y**2) * 2 * x  # f''(g) g', where g' is to be squared


class Attention(Layer):
    """yₜ = Σₛ pₜₛ xₛ with weights by distance alone, p = softmax(−|t − s|): ``[N, T, I] -> [N, T, I]``."""

    def weights(self, length, dtype):
        places = np.arange(length)
        p = np.exp(-np.abs(places[:, None] - places))
        return (p / p.sum(1, keepdims=True)).astype(dtype)

    def output_shape(self, shape):
        if len(shape) != 2:
            raise ValueError(f"expected features of shape (T, I), got {shape}")
        return shape

    def mixed(self, x, transposed=False):
        p = self.weights(x.shape[-2], x.real.dtype)
        return (p.T if transposed else p) @ x

    def forward(self, x):
        return self.mixed(x), x.shape

    def jmp(self, saved, mat):
        return self.mixed(mat)

    def mjp(self, saved, mat):
        return self.mixed(mat, True)


class FirstAxis(Attention):
    def mixed(self, x, transposed=False):
        p = self.weights(x.shape[-3], x.real.dtype)  # as if it were [T, N, I]
        return np.einsum("st,...tni->...sni", p.T if transposed else p, x)


def another_sample_changed(layer):
    x = np.random.default_rng(0).standard_normal((4, 3, 2))
    moved = x.copy()
    moved[1] += 1
    return np.abs(layer.forward(moved)[0][0] - layer.forward(x)[0][0]).max()


def worst_second(faulty, right, x):
    y = right.value(x)
    got, want = faulty.second(x, y), right.second(x, y)
    i = np.argmax(np.abs(got - want))
    return f"φ''({x[i]:.2g}) = {got[i]:.4g} instead of {want[i]:.4g}"


CURVE = np.linspace(-2, 2, 41)

EXHIBITS = [
    Exhibit(
        title="KFRA through max pooling",
        library="BackPACK",
        wrong="KFRA through convolution and pooling",
        mended="PR#53",
        kind="a square",
        text="""
KFRA carries Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ from layer to layer. Where J is the same for all samples, as in linear layers and
in average pooling, the mean of the Jacobian may be taken before the product; max pooling chooses other inputs in
each sample. The list says through which layers KFRA was wrong, and not by what; planted here is the product of
means in a maximum of pairs.
""",
        faulty=MeanJacobian,
        right=PairMax,
        lines=MeanJacobian.average,
        missed="one sample, first order",
        unseen="one sample, compared with Jᵀ Ḡ J; gradients are not touched, and fully connected networks are right",
        usual=lambda layer: difference(*average_of(layer, BATCH[:1])),
        effect=lambda faulty, right: f"the trace of Ḡ is {np.trace(average_of(faulty, BATCH)[0]):.3g} instead of "
        f"{np.trace(average_of(right, BATCH)[0]):.3g} at N = 6",
        audit=lambda layer: check_layer(layer, BATCH),
        call="check_layer(layer, x)",
        method="average",
        claim="is 1/N Σₙ Jₙᵀ Ḡ Jₙ",
    ),
    Exhibit(
        title="The second derivative of ELU",
        library="BackPACK",
        wrong="second derivatives of ELU and SELU",
        mended="PR#168",
        kind="a factor",
        text="""
ELU is α (eˣ − 1) below 0, and so is φ'' = α eˣ. The list says that the second derivatives were wrong, and not by
what; planted here is the α, which is 1 by default.
""",
        faulty=lambda: WithoutAlpha(0.7),
        right=lambda: ELU(0.7),
        lines=WithoutAlpha.second,
        missed="first order, α = 1",
        unseen="the gradient, by differences in one direction: φ' is right (and φ'', too, at the default of α, 1)",
        usual=lambda layer: gradient_error(layer, BATCH),
        passes=1e-7,
        effect=lambda faulty, right: f"{worst_second(faulty, right, CURVE)} at α = 0.7",
        audit=lambda layer: check_layer(layer, BATCH),
        call="check_layer(layer, x)",
        method="residual",
        claim="is Σⱼ (∇² yⱼ) gⱼ",
    ),
    Exhibit(
        title="The second derivative of SELU",
        library="BackPACK",
        wrong="second derivatives of ELU and SELU",
        mended="PR#168",
        kind="a factor",
        text="""
SELU is λ times ELU with λ = 1.0507 and α = 1.6733. The list says that its second derivative was wrong, and not by
what; planted here is the λ: five
percent.
""",
        faulty=lambda: WithoutScale(**SELU),
        right=lambda: ELU(**SELU),
        lines=WithoutScale.second,
        missed="first order",
        unseen="the gradient, by differences in one direction",
        usual=lambda layer: gradient_error(layer, BATCH),
        passes=1e-7,
        effect=lambda faulty, right: worst_second(faulty, right, CURVE),
        audit=lambda layer: check_layer(layer, BATCH),
        call="check_layer(layer, x)",
        method="residual",
        claim="is Σⱼ (∇² yⱼ) gⱼ",
    ),
    Exhibit(
        title="f'' of a composition",
        library="the K-FAC tutorial (2025)",
        wrong="f'' of a composition",
        mended="commit 01059f6",
        kind="a square",
        text="""
(f ∘ g)'' = f''(g) g'² + f'(g) g'': the first term is what a Gauss-Newton matrix takes, the second what it leaves
out. The list says that the formula was wrong, and not by what; planted here is g' for g'², in a tanh of x + x³/3.
""",
        faulty=NotSquared,
        right=Composed,
        lines=NotSquared.second,
        missed="first order",
        unseen="the gradient, by differences in one direction; an affine g with slope 1 would be right altogether",
        usual=lambda layer: gradient_error(layer, BATCH),
        passes=1e-7,
        effect=lambda faulty, right: worst_second(faulty, right, CURVE),
        audit=lambda layer: check_layer(layer, BATCH),
        call="check_layer(layer, x)",
        method="residual",
        claim="is Σⱼ (∇² yⱼ) gⱼ",
    ),
    Exhibit(
        title="Attention over the batch",
        library="Opacus",
        wrong="attention that mixed batch and sequence axes with batch_first",
        mended="issue 650",
        kind="an axis",
        text="""
Attention takes means over positions, yₜ = Σₛ pₜₛ xₛ. Given [N, T, I] for [T, N, I] it takes them over samples:
shapes stay, losses fall, and each sample's output depends on the others, so that there is no gradient of one sample
any more. Planted here with weights by distance alone: which axis they run over is all that matters.
""",
        faulty=FirstAxis,
        right=Attention,
        lines=FirstAxis.mixed,
        missed="one direction",
        unseen="the gradient, by differences in one direction: it is the right gradient of the wrong function",
        usual=lambda layer: gradient_error(layer, np.random.default_rng(0).standard_normal((4, 3, 2))),
        passes=1e-7,
        effect=lambda faulty, right: f"1 added to sample 1 moves the output of sample 0 by "
        f"{another_sample_changed(faulty):.3g} instead of {another_sample_changed(right):.3g}",
        audit=lambda layer: check_layer(layer, np.random.default_rng(0).standard_normal((3, 4, 2))),
        call="check_layer(layer, x)",
        method="forward",
        claim="samples do not interact",
    ),
]
