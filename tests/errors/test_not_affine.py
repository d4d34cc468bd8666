"""A user's layer that is not affine in a parameter is refused where the Hessian is asked for, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_layers import AFFINE, FUNCTIONS, Both, Times

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop import quantities as q
from gbackprop.testing import check_layer
from gbackprop.testing.oracles import Dense

LOSS = losses.MSELoss()
X, Y = np.random.default_rng(0).uniform(0.5, 1.5, (2, 12, 3))


def network(layer, kind, dtype="float64"):
    """Return a network with the layer at its start, in a branch, at two places, or after a layer with parameters."""
    linear = layers.Linear(3, 3)
    inner = {
        "chain": (linear, layers.Sigmoid(), layer),
        "lowest": (layer, layers.Sigmoid(), linear),
        "branch": (linear, gb.Residual(layers.Sigmoid(), layer)),
        "twice": (layer, layers.Sigmoid(), layer, linear),
        "twice in branches": (linear, gb.Sum(layer, gb.Sequential(layers.Tanh(), layer))),
    }
    return gb.Sequential(*inner[kind], rng=0, dtype=dtype)


KINDS = ["chain", "lowest", "branch", "twice", "twice in branches"]
HESSIANS = {
    "DiagHessian": lambda net, x, y: gb.backward(net, LOSS, x, y, q.DiagHessian()),
    "BatchDiagHessian": lambda net, x, y: gb.reference(net, LOSS, x, y, q.BatchDiagHessian()),
    "Hessian": lambda net, x, y: ops.Hessian(net, LOSS, (x, y)),
}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(FUNCTIONS)), st.sampled_from(KINDS), st.sampled_from(list(HESSIANS)),
    st.sampled_from(["float32", "float64"]), st.booleans(),
)  # fmt: skip
def test_layers_that_are_not_affine_are_refused_by_the_hessian_alone(function, kind, asked, dtype, zeros):
    net, x, y = network(Times(function), kind, dtype), X.astype(dtype), Y.astype(dtype)
    if zeros and kind == "lowest":
        x = 0 * x  # where the Jacobian is zero for any parameter
    gb.backward(net, LOSS, x, y, q.DiagGGN(), q.BatchGrad())
    if function in AFFINE:
        HESSIANS[asked](net, x, y)
        return
    words = rf"^layer \S+, Times\(\) cannot give {asked}: it is not affine in its parameter p, .* \(DiagGGN, .* none\)"
    for _ in range(2):
        with pytest.raises(gb.UnsupportedError, match=words):
            HESSIANS[asked](net, x, y)
    net.freeze(*[name for name in net.parameters if name.endswith(".p")])
    HESSIANS[asked](net, x, y)
    net.unfreeze()
    with pytest.raises(gb.UnsupportedError, match=words):
        HESSIANS[asked](net, x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_affine_layers_have_the_hessians_diagonal(kind):
    net = network(Times("2 p - 1"), kind)
    found = gb.backward(net, LOSS, X, Y, q.DiagHessian())["diag_hessian"]
    for name, want in Dense(net, LOSS, X, Y)["diag_hessian"].items():
        np.testing.assert_allclose(found[name], want, rtol=1e-10, atol=1e-14)


def test_what_two_parameters_have_together_is_not_on_the_diagonal():
    net = network(Both(), "chain")
    found = gb.backward(net, LOSS, X, Y, q.DiagHessian())["diag_hessian"]
    for name, want in Dense(net, LOSS, X, Y)["diag_hessian"].items():
        np.testing.assert_allclose(found[name], want, rtol=1e-10)
    with pytest.raises(gb.UnsupportedError, match=r"layer 2, Both\(\) .* not affine in its parameters a, b together,"):
        ops.Hessian(net, LOSS, (X, Y))
    net.freeze("2.b")
    diagonal = np.diag(ops.Hessian(net, LOSS, (X, Y)).to_dense())
    np.testing.assert_allclose(diagonal[-3:], found["2.a"], rtol=1e-10)
    net.unfreeze()
    with pytest.raises(gb.UnsupportedError, match="not affine in its parameters a, b together"):
        ops.Hessian(net, LOSS, (X, Y))


CALLS = []


def test_an_affine_layer_is_looked_at_once():
    class Counts(Times):
        def forward(self, x):
            CALLS.append(len(x))
            return super().forward(x)

    net, numbers = network(Counts("p"), "chain"), []
    for _ in range(3):
        before = len(CALLS)
        gb.backward(net, LOSS, X, Y, q.DiagHessian())
        numbers.append(len(CALLS) - before)
        net.parameters["2.p"] = net.parameters["2.p"] + 1.0  # a step of training
    assert numbers[0] > numbers[1] == numbers[2] == 1


class OfMedian(layers.Layer):
    """y = p m, m = x + median(x): affine in p, and in x along each line through 0 alone."""

    def parameter_shapes(self):
        return {"p": (1,)}

    def draw(self, rng):
        return {"p": np.array([1.5])}

    def output_shape(self, shape):
        if len(shape) != 1:
            raise ValueError(f"expected vectors, got {shape}")
        return shape

    def forward(self, x):
        place = np.argsort(x, axis=1)[:, [x.shape[1] // 2]]
        moved = x + np.take_along_axis(x, place, 1)
        return self.parameters["p"] * moved, (moved, place)

    def jmp(self, saved, mat):
        return self.parameters["p"] * (mat + np.take_along_axis(mat, np.stack([saved[1]] * len(mat)), 2))

    def mjp(self, saved, mat):
        found, places = mat.copy(), np.stack([saved[1]] * len(mat))
        at = np.take_along_axis(mat, places, 2) + mat.sum(2, keepdims=True)
        np.put_along_axis(found, places, at, 2)
        return self.parameters["p"] * found

    def parameter_jacobians(self, saved):
        return {"p": OfP(saved[0])}


class OfP(layers.ParameterJacobian):
    def __init__(self, moved):
        self.moved = moved

    def per_sample(self, mat):
        return (mat * self.moved).sum(2, keepdims=True)


@pytest.mark.parametrize("asked", HESSIANS)
def test_a_layer_that_is_affine_on_lines_alone_is_refused(asked):
    layer = OfMedian()
    net = network(layer, "twice")
    assert check_layer(layer, X[:3], rng=1).ok
    with pytest.raises(gb.UnsupportedError, match=r"OfMedian\(\) .* is not affine in its input"):
        HESSIANS[asked](net, X, Y)


class Clipped(Times):
    """y = p clip(x, −limit, limit): affine in x at inputs that are small, or large, alone."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        return self.factor * np.clip(x, -self.limit, self.limit), x

    def jmp(self, saved, mat):
        return mat * self.factor * (abs(saved) < self.limit)

    mjp = jmp

    def parameter_jacobians(self, saved):
        return super().parameter_jacobians(np.clip(saved, -self.limit, self.limit))


@pytest.mark.parametrize("asked", HESSIANS)
@pytest.mark.parametrize("limit", [4e-3, 0.1, 4.0, 30.0])
def test_a_layer_that_is_clipped_is_refused(limit, asked):
    with pytest.raises(gb.UnsupportedError, match=r"Clipped\(\) .* is not affine in its input"):
        HESSIANS[asked](network(Clipped(limit), "twice"), X, Y)


@pytest.mark.parametrize("asked", HESSIANS)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e5])
def test_a_layer_that_is_clipped_at_the_inputs_of_the_call_alone_is_refused(size, asked):
    layer = Clipped(1e5)
    net = gb.Sequential(layer, layer, layers.Linear(3, 3), rng=0, dtype="float64")
    if size < 1e5:
        HESSIANS[asked](net, size * X, Y)
    else:
        with pytest.raises(gb.UnsupportedError, match=r"Clipped\(\) .* is not affine in its input"):
            HESSIANS[asked](net, size * X, Y)


class Power(Times):
    """y = x pᵏ."""

    k = 1

    def __init__(self):
        super().__init__()
        self.value = lambda p: p**self.k
        self.slope = lambda p: self.k * p ** (self.k - 1)


@pytest.mark.parametrize("asked", HESSIANS)
@pytest.mark.parametrize("where", ["instance", "class"])
def test_a_layer_with_other_attributes_is_looked_at_again(asked, where, monkeypatch):
    layer = Power()
    net = network(layer, "chain")
    HESSIANS[asked](net, X, Y)
    monkeypatch.setattr(layer if where == "instance" else Power, "k", 2)
    with pytest.raises(gb.UnsupportedError, match="not affine in its parameter p"):
        HESSIANS[asked](net, X, Y)
    monkeypatch.undo()
    HESSIANS[asked](net, X, Y)


class Wrong(Power):
    """As `Power`, with a forward pass that is wrong for other k."""

    def forward(self, x):
        y, saved = super().forward(x)
        return (y if self.k == 1 else np.full_like(y, np.nan)), saved


def test_the_contract_is_checked_again_for_other_attributes():
    net = network(layer := Wrong(), "chain")
    gb.backward(net, LOSS, X, Y)
    layer.k = 2
    with pytest.raises(ValueError, match="Wrong"):
        gb.backward(net, LOSS, X, Y)


class Mixed(Times):
    """y = x p, but x p² in the last entry."""

    def __init__(self):
        super().__init__()
        self.value = lambda p: p ** np.array([1, 1, 2], p.dtype)
        self.slope = lambda p: np.array([1, 1, 2], p.dtype) * p ** np.array([0, 0, 1], p.dtype)


@pytest.mark.parametrize("asked", HESSIANS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [(1e5, 1, 1), (1e10, 1, 1e-5), (1, 1, 0)])
def test_an_entry_beside_large_ones_is_seen(asked, dtype, factor):
    x = (X * factor).astype(dtype)
    with pytest.raises(gb.UnsupportedError, match="not affine in its parameter p"):
        HESSIANS[asked](network(Mixed(), "lowest", dtype), x, Y.astype(dtype))
    HESSIANS[asked](network(Times("2 p - 1"), "lowest", dtype), x, Y.astype(dtype))


def test_infinite_jacobians_elsewhere_are_no_affinity():
    net = network(Times("exp p"), "lowest", "float32")
    net.parameters["0.p"] = np.full(3, 80.0)
    with pytest.raises(gb.UnsupportedError, match="not affine in its parameter p"):
        HESSIANS["DiagHessian"](net, (X * 1e-30).astype("float32"), Y.astype("float32"))


def test_an_affine_parameter_that_may_not_be_negative_is_affine():
    class Checked(Times):
        """y = x p, with an error of its own."""

        def forward(self, x):
            if (self.parameters["p"] < 0).any():
                raise ValueError("p: expected numbers from 0 on")
            return super().forward(x)

        @property
        def factor(self):
            assert (self.parameters["p"] >= 0).all()
            return super().factor

    found = [gb.backward(network(layer, "chain"), LOSS, X, Y, q.DiagHessian())["diag_hessian"]
             for layer in (Checked(), Times())]  # fmt: skip
    for name, value in found[1].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-12)
