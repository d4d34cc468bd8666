"""Cross-entropies of classes that are almost certain: what is left of 1 − p, to the last digits of the dtype."""

import math
from fractions import Fraction

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

MARGINS = [1, 8, 16, 17, 20, 36, 38, 80]
KINDS = {
    "labels": (losses.CrossEntropyLoss("sum"), lambda y: y),
    "weights": (losses.CrossEntropyLoss("sum", weight=np.array([2.0, 1.0, 1.0])), lambda y: y),
    "probabilities": (losses.CrossEntropyLoss("sum"), lambda y: np.eye(3)[y]),
    "an ignored label": (losses.CrossEntropyLoss("sum", ignore_index=7), lambda y: y),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_values_and_gradients(name, dtype, place):
    """With t = Σ e^(f[j] − f[y]) over the others ℓ = log(1 + t), and ∂ℓ/∂f[y] = −t / (1 + t)."""
    loss, targets = KINDS[name]
    f = np.zeros((len(MARGINS), 3))
    f[:, place] = MARGINS
    f[:, (place + 1) % 3] = 0.5
    f, y = f.astype(dtype), np.full(len(MARGINS), place)
    target = targets(y).astype(dtype if name == "probabilities" else int)
    others = np.exp(np.delete(f.astype(float), place, 1) - f[:, [place]])
    t, w = others.sum(1), 2.0 if name == "weights" and place == 0 else 1.0
    rounding = 40 * np.finfo(dtype).eps  # e^z has z's
    np.testing.assert_allclose(loss.values(f, target), w * np.log1p(t), rtol=rounding)
    gradient = loss.gradients(f, target)
    np.testing.assert_allclose(gradient[:, place], -w * t / (1 + t), rtol=rounding)
    np.testing.assert_allclose(np.delete(gradient, place, 1), w * others / (1 + t)[:, None], rtol=rounding)


@pytest.mark.parametrize(("dtype", "gap", "weight", "smoothing", "q"), [
    ("float32", 30, None, 1e-8, None), ("float32", 30, None, 0, [1 - 1.2e-7, 1e-7, 2e-8]),
    ("float32", 30, [1e8, 1, 1], 0, [0.5, 0.25, 0.25]), ("float32", 30, [1, 1, 1e8], 0, [0.5, 0.5, 0]),
    ("float64", 40, [1e16, 1, 1], 0, [0.5, 0.25, 0.25]), ("float64", 40, None, 1e-17, None),
], ids=str)  # fmt: skip
def test_shares_of_other_classes_that_are_small(dtype, gap, weight, smoothing, q):
    """∂ℓ/∂f[y] = a[y] (p[y] − 1) + p[y] (the others' shares), ∂ℓ/∂f[v] = p[v] (others) − a[v] (1 − p[v])."""
    target = np.array([0]) if q is None else np.array([q], dtype)
    w = np.ones(3, dtype) if weight is None else np.array(weight, dtype)
    loss = losses.CrossEntropyLoss("sum", weight=None if weight is None else w, label_smoothing=smoothing)
    a = [Fraction(float(v)) for v in w * ([1, 0, 0] if q is None else target[0])]
    if smoothing:
        a = [(1 - Fraction(smoothing)) * v + Fraction(smoothing) / 3 for v in a]
    e = [Fraction(1), Fraction(math.exp(-gap)), Fraction(math.exp(-gap))]
    want = [float((v * sum(a) - share * sum(e)) / sum(e)) for v, share in zip(e, a, strict=True)]
    found = loss.gradients(np.array([[gap, 0, 0]], dtype), target)
    np.testing.assert_allclose(found, [want], rtol=100 * np.finfo(dtype).eps)


def test_positions_and_a_wrong_class():
    f = np.array([[40.0, 0, 0], [0, 40, 40], [1, 2, 3]])[:, :, None].repeat(2, 2)
    y = np.array([[0, 1], [1, 2], [2, 0]])
    tail = np.exp(-40.0)
    want = [np.log1p(2 * tail) + 40 + np.log1p(2 * tail), 2 * (np.log(2) + np.log1p(tail / 2))]
    found = losses.CrossEntropyLoss("sum").values(f, y)
    np.testing.assert_allclose(found[:2], want, rtol=1e-15)
    gradient = losses.CrossEntropyLoss("sum").gradients(f, y)[0, :, 0]
    np.testing.assert_allclose(gradient, [-2 * tail, tail, tail], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_of_single_gradients(dtype):
    network = gb.Sequential(layers.Linear(1, 2), rng=0, dtype=dtype)
    for margin in MARGINS:
        network.parameters.load({"0.weight": np.array([[margin], [0]], dtype), "0.bias": np.zeros(2, dtype)})
        found = gb.backward(network, losses.CrossEntropyLoss("sum"), np.ones((1, 1), dtype), np.array([0]),
                            q.BatchL2Grad(), q.DiagGGN())  # fmt: skip
        t = np.exp(-float(margin))
        if t > 1e-15:  # its square is no number of float32 below
            np.testing.assert_allclose(found["batch_l2_grad"]["0.bias"], 2 * (t / (1 + t)) ** 2, rtol=1e-5)
        np.testing.assert_allclose(found.gradient["0.bias"], np.array([-1, 1]) * t / (1 + t), rtol=1e-5)
        np.testing.assert_allclose(found["diag_ggn"]["0.bias"], np.full(2, t / (1 + t) ** 2), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_the_hessian(dtype):
    """∇²ℓ v = p ∘ (v − pᵀv): for v = e_y and a sure class it is t (1, −shares of the others)."""
    network = gb.Sequential(layers.Linear(1, 3, bias=False), rng=0, dtype=dtype)
    for margin in MARGINS[:-1]:
        f = np.array([margin, 0.5, 0])
        network.parameters.load({"0.weight": f[:, None].astype(dtype)})
        ggn = gb.operators.GGN(network, losses.CrossEntropyLoss("sum"), (np.ones((1, 1), dtype), np.array([0])))
        e = np.exp(f - margin)
        p, t = e / e.sum(), e[1:].sum()
        for v, want in (([1, 0, 0], [p[0] * t / (1 + t), -p[0] * p[1], -p[0] * p[2]]),
                        ([1, 1, 0], [p[0] * p[2], p[1] * p[2], -p[2] * (p[0] + p[1])])):  # fmt: skip
            np.testing.assert_allclose(ggn @ np.array(v, dtype), want, rtol=2e-5 if dtype == "float32" else 1e-13)
