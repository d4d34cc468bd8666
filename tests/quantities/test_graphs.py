"""Networks that are no chains: every quantity against brute force, the fast engine against the plain one."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.oracles import Dense

L, T, S = layers.Linear, layers.Tanh, layers.Sigmoid


def shared():
    """One layer object, to be put at several places."""
    return L(3, 3)


def twice_slopes(make):
    return make(layers.PReLU(3))


def twice(make):
    tied = shared()
    return make(tied)


NETWORKS = {
    "residual": lambda: [gb.Residual(L(3, 3), T()), L(3, 2), T()],
    "residual with a shortcut": lambda: [gb.Residual(L(3, 4), T(), shortcut=L(3, 4)), S(), L(4, 2)],
    "gate": lambda: [gb.Product(S(), gb.Sequential(L(3, 3), T())), L(3, 2), T()],
    "product of three": lambda: [L(3, 3), gb.Product(T(), S(), L(3, 3)), L(3, 2)],
    "square": lambda: [L(3, 3), gb.Product(T(), T()), L(3, 2), T()],
    "concatenation": lambda: [gb.Concatenate(L(3, 2), layers.Identity(), T()), S(), L(8, 2)],
    "nested": lambda: [gb.Sum(gb.Residual(L(3, 3), gb.Product(S(), T())), gb.Sequential(T(), L(3, 3))), T(), L(3, 2)],
    "tied in a row": lambda: twice(lambda t: [t, T(), t, S(), t, L(3, 2), T()]),
    "tied side by side": lambda: twice(lambda t: [gb.Product(gb.Sequential(S(), t), gb.Sequential(t, T())), L(3, 2)]),
    "tied slopes": lambda: twice_slopes(lambda t: [L(3, 3), t, L(3, 3), t, gb.Residual(t, T()), L(3, 2)]),
    "tied norm": lambda: (lambda n: [n, L(3, 3), n, T(), gb.Residual(n, S()), L(3, 2)])(layers.LayerNorm(3)),
    "tied norm of channels": lambda: (lambda n: [L(3, 4), n, L(4, 4), n, T(), L(4, 2)])(layers.GroupNorm(2, 4)),
    "tied in a residual": lambda: twice(lambda t: [gb.Residual(t, T(), gb.Residual(t, S())), L(3, 2)]),
    "matrix product": lambda: [
        gb.Graph(
            {
                "rows": (L(3, 4), "input"),
                "keys": (L(3, 4), "input"),
                "turned": (Transposed(), "keys"),
                "scores": (layers.MatMul(), "rows", "turned"),
                "weights": (T(), "scores"),
                "mixed": (layers.MatMul(), "weights", "input"),
            }
        ),
        layers.Flatten(),
        L(9, 2),
    ],
}


class Transposed(layers.Layer):
    constant_jacobian = True

    def output_shape(self, shape):
        return shape[::-1]

    def forward(self, x):
        return x.swapaxes(-1, -2), None

    def mjp(self, saved, mat):
        return mat.swapaxes(-1, -2)


ASKED = [
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN(), q.DiagHessian(),
    q.BatchDiagHessian(), q.KFLR(),
]  # fmt: skip


def made(name, seed=0):
    rng = np.random.default_rng(seed)
    net = gb.Sequential(*NETWORKS[name](), rng=rng, dtype="float64")
    x = rng.standard_normal((4, 3, 3) if name == "matrix product" else (4, 3))
    return net, x, rng


def arrays(value):
    """A and B of Kronecker factors, or the array alone."""
    if isinstance(value, tuple | np.ndarray):
        return value if isinstance(value, tuple) else (value,)
    return value.A, value.B


def equal(got, want, tolerance, label):
    for name, value in want.items():
        for one, other in zip(arrays(got[name]), arrays(value), strict=True):
            if other is None:
                assert one is None
            else:
                scale = max(np.abs(other).max(), 1e-3)
                np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale, err_msg=f"{label} {name}")


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.MSELoss("sum")], ids=repr)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_quantity_is_its_definition(name, loss):
    net, x, rng = made(name)
    y = rng.integers(0, 2, 4) if isinstance(loss, losses.CrossEntropyLoss) else rng.standard_normal((4, 2))
    result = gb.reference(net, loss, x, y, *ASKED)
    oracle = Dense(net, loss, x, y)
    equal(result.gradient, oracle["gradient"], 1e-11, "gradient")
    for quantity in ASKED:
        equal(result[quantity], oracle[quantity.name], 1e-11, quantity.name)


OPTIONS = [{}, {"sample_block": 2, "workers": 2}, {"column_block": 3}, {"column_block": 1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_backward_gives_what_reference_gives(name, options):
    net, x, rng = made(name)
    y = rng.integers(0, 2, 4)
    asked = [*ASKED, q.KFAC(mc_samples=3), q.DiagGGNMC(mc_samples=2)]
    plain = gb.reference(net, losses.CrossEntropyLoss(), x, y, *asked, rng=0)
    fast = gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked, rng=0, **options)
    equal(fast.gradient, plain.gradient, 1e-12, "gradient")
    for quantity in asked:
        equal(fast[quantity], plain[quantity], 1e-12, quantity.name)


def test_a_shared_layer_may_be_affine_in_its_input():
    """Batch normalization subtracts a running mean."""
    shared, rng = layers.BatchNorm1d(3), np.random.default_rng(0)
    shared.buffers |= {"running_mean": np.array([0.5, -1.0, 2.0]), "running_var": np.array([0.5, 2.0, 1.5])}
    net = gb.Sequential(L(3, 3), shared, T(), shared, L(3, 2), rng=0, dtype="float64")
    x, y, loss = rng.standard_normal((4, 3)), np.array([0, 1, 1, 0]), losses.CrossEntropyLoss()
    result, oracle = gb.reference(net, loss, x, y, q.DiagHessian()), Dense(net, loss, x, y)
    equal(result["diag_hessian"], oracle["diag_hessian"], 1e-11, "diag_hessian")
