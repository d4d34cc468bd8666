"""Derivatives that the dtype has not, between slopes that it has: roots, powers, norms, quotients, logarithms."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.layers import Operation

LIMITS = {"float32": (1e-5, 44.0), "float64": (1e-12, 355.0)}
"""A tolerance for each dtype, and the number from whose exponential on squares overflow."""


def curvature(net, x, y):
    """Return the gradient, the diagonal of the Hessian, and the Hessian by the operator, for the sum of squares."""
    loss = losses.MSELoss("sum")
    result = gb.backward(net, loss, x, y, gb.quantities.DiagHessian())
    (gradient,), (diagonal,) = result.gradient.values(), result["diag_hessian"].values()
    return gradient, diagonal, gb.operators.Hessian(net, loss, (x, y)).to_dense()


SHARES = {
    "quotient": lambda e: e / e.sum(1, keepdims=True),
    "reciprocal": lambda e: e * (1 / e.sum(1, keepdims=True)),
    "power": lambda e: e * e.sum(1, keepdims=True) ** -1,
}


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 20), ("float32", 60), ("float32", 80), ("float64", 600)])
def test_shares_of_exponentials_have_the_gradient_of_softmax(name, dtype, size):
    """1/x² of a sum of exponentials is below the dtype's range where it multiplies slopes as large as x."""
    w, x = np.array([[size, size - 1.0, size - 2]], dtype), np.ones((1, 1), dtype)
    net = gb.trace(lambda p, x: SHARES[name](np.exp(x @ p["w"])), {"w": w}, x)
    y = np.array([[0.1, 0.5, 0.2]], dtype)
    result = gb.backward(net, losses.MSELoss("sum"), x, y, gb.quantities.DiagGGN())
    p = np.exp([0.0, -1, -2]) / np.exp([0.0, -1, -2]).sum()
    jacobian, residual = np.diag(p) - np.outer(p, p), p - y[0].astype("float64")
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(result.gradient["w"][0], 2 * jacobian @ residual, rtol=tolerance, atol=tolerance / 10)
    np.testing.assert_allclose(result["diag_ggn"]["w"][0], 2 * (jacobian**2).sum(0), rtol=tolerance)


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 20), ("float32", 42), ("float32", 80), ("float64", 600)])
def test_shares_of_exponentials_have_the_second_derivatives_of_softmax(name, dtype, size):
    """2/x³ of a sum of exponentials is below the dtype's range from 30 (240) on."""
    x, y = np.ones((1, 1), dtype), np.array([[0.1, 0.5, 0.2]], dtype)
    logits = np.array([[0.0, -1, -2]], dtype)

    def at(shift):
        return gb.trace(lambda p, x: SHARES[name](np.exp(x @ p["w"])), {"w": logits + np.array(shift, dtype)}, x)

    got, want = curvature(at(size), x, y), curvature(at(0), x, y)
    for each, right in zip(got, want, strict=True):
        np.testing.assert_allclose(each, right, atol=30 * LIMITS[dtype][0] * abs(want[2]).max())


POWERS = {
    "sqrt": (0.5, {}), "root": (0.5, {}), "rsqrt": (-0.5, {}), "reciprocal": (-1, {}), "square": (2, {}),
    **{f"power {p}": (p, {"exponent": p}) for p in (0.5, -0.5, 1.5, 2, -1, -2, -2.5, 0.1)},
    "power array": (-2, {"exponent": np.array([-2.0])}),
}  # fmt: skip


@pytest.mark.parametrize("name", POWERS)
@pytest.mark.parametrize("share", [0.8, -0.8, 0.5])
@pytest.mark.parametrize("dtype", LIMITS)
def test_powers_of_an_exponential_are_linear_in_their_logarithm(name, share, dtype):
    """log (eᶻ)ᵖ = p z, and so (p w x)² has the second derivative 2 p² x² in w."""
    p, options = POWERS[name]
    size = share * 2 * LIMITS[dtype][1] / max(abs(p), 1)
    row = Operation(name.split()[0], **options)
    net = gb.Sequential(layers.Linear(1, 1, bias=False), Operation("exp"), row, Operation("log")).astype(dtype)
    net.load_state_dict({"0.weight": np.ones((1, 1), dtype)})
    for each in curvature(net, np.array([[size]], dtype), np.zeros((1, 1), dtype)):
        np.testing.assert_allclose(each, 2 * (p * size) ** 2, rtol=10 * LIMITS[dtype][0] * abs(size))


SIZES = [("float32", 1e-16), ("float32", 1e16), ("float64", 1e-130), ("float64", 1e140)]

NORMS = {"norm": lambda f: np.linalg.norm(f, axis=1, keepdims=True), "std": lambda f: f.std(1, keepdims=True)}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(("dtype", "size"), SIZES)
def test_the_logarithm_of_a_norm_has_the_second_derivatives_of_a_vector_of_ordinary_size(name, dtype, size):
    x, y = np.array([[1.0, 0.5, -1], [0.3, 1, 0.7]], dtype), np.full((2, 1), 0.2, dtype)

    def at(size, y):
        net = gb.trace(lambda p, x: np.log(NORMS[name](size * x * p["w"])), {"w": np.array([1, 2, 2], dtype)}, x)
        return curvature(net, x, y)

    got, want = at(size, y + np.array(np.log(size), dtype)), at(1.0, y)
    for each, right in zip(got, want, strict=True):
        np.testing.assert_allclose(each, right, atol=100 * LIMITS[dtype][0] * abs(want[2]).max())


@pytest.mark.parametrize("output", [[[340.0, 339]], [[360.0, 0]], [[360.0, -300]], [[700.0, 699]], [[-700.0, -701]]])
def test_the_loss_of_exponentials_without_a_shift_has_the_curvature_of_cross_entropy(output):
    output, label = np.array(output), np.array([0])
    loss = gb.trace_loss(lambda f, y: np.log(np.exp(f).sum(1)) - f[np.arange(len(y)), y], output, label)
    root = losses.CrossEntropyLoss().hessian_sqrt(output, label)[:, 0]
    np.testing.assert_allclose(loss.hessian(output, label)[0], root.T @ root, atol=1e-15, rtol=1e-6)


@pytest.mark.parametrize("function", [np.log, lambda x: np.log1p(x - 1)])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_logarithm_of_a_sum_of_exponentials_has_its_curvature(function, device, double):
    """1/x² overflows from 44 on, 88 is the largest exponent."""

    def found(w):
        x = np.ones((1, 1), w.dtype)
        net = gb.trace(lambda p, x: function(np.exp(x @ p["w"]).sum(1, keepdims=True)), {"w": w}, x).to(device)
        batch = [gb.asarray(each, device) for each in (x, np.zeros_like(x))]
        result = gb.backward(net, losses.MSELoss(), *batch, gb.quantities.DiagHessian())
        return gb.asnumpy(result["diag_hessian"]["w"])

    for size in (43, 46, 80):
        w = np.array([[size, size - 1.0]])
        np.testing.assert_allclose(found(w.astype("float32")), found(w), rtol=3e-5)


@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_the_operator_of_a_product_has_its_digits_where_factors_differ_in_size(size):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    given = {name: rng.standard_normal(shape) for name, shape in {"w": (3, 4), "u": (3, 4), "v": (4, 2)}.items()}
    given["w"] *= size

    def dense(dtype):
        parameters, batch = {name: value.astype(dtype) for name, value in given.items()}, x.astype(dtype)
        net = gb.trace(lambda p, x: ((x @ p["w"]) * (x @ p["u"])) @ p["v"], parameters, batch)
        return gb.operators.Hessian(net, losses.MSELoss(), (batch, y.astype(dtype))).to_dense()

    want = dense("float64")
    np.testing.assert_allclose(dense("float32"), want, atol=2e-6 * abs(want).max())


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e10), ("float32", 1e12), ("float64", 1e80)])
def test_the_second_derivative_of_arctan_where_its_denominator_is_beyond_the_range(dtype, size):
    """Of arctan(w x)², at w = 1 and a large x, it is −2π/x, where (1 + x²)² is beyond the dtype."""
    x = np.array([[size]], dtype)
    net = gb.trace(lambda p, x: np.arctan(x * p["w"]), {"w": np.ones(1, dtype)}, np.ones((1, 1), dtype))
    gradient, *second = curvature(net, x, np.zeros((1, 1), dtype))
    for each, right in ((gradient, np.pi / size), *[(each, -2 * np.pi / size) for each in second]):
        np.testing.assert_allclose(each.ravel(), right, rtol=10 * LIMITS[dtype][0])
