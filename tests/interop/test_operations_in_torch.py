"""Rows of the table of operations at ties and kinks: the derivatives are those of torch, as each row states."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.layers import Operation, Parameter
from gbackprop.layers.operations.operation import ROWS

torch = pytest.importorskip("torch")
F = torch.nn.functional

AT = {
    "sqrt": (lambda x: x.sqrt(), {}, [[0.0, 1.0]]),
    "root": (lambda x: torch.where(x == 0, 0.0, torch.where(x == 0, 1.0, x).sqrt()), {}, [[0.0, 4.0]]),
    "power": (lambda x: x**1, {"exponent": 1}, [[0.0, 2.0]]),
    "absolute": (torch.abs, {}, [[0.0, -0.0, 2.0, -2.0]]),
    "sign": (torch.sign, {}, [[0.0, 1.0, -2.0]]),
    "clip": (lambda x: torch.clamp(x, 0.0, 1.0), {"least": 0.0, "most": 1.0}, [[0.0, 1.0, 0.5, 2.0, -1.0]]),
    "max": (lambda x: torch.amax(x, 1), {"axis": 1}, [[2.0, 2.0, 1.0, 2.0]]),
    "min": (lambda x: torch.amin(x, 1), {"axis": 1}, [[2.0, 1.0, 1.0, 2.0]]),
    "maximum": (torch.maximum, {}, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]]),
    "minimum": (torch.minimum, {}, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]]),
    "where": (lambda c, a, b: torch.where(c != 0, a, b), {}, [[0.0, 1.0], [1.0, 2.0], [3.0, 4.0]]),
    "pow": (torch.pow, {}, [[2.0, 1.0], [3.0, -1.0]]),
    "std": (lambda x: x.std(1, correction=0), {"axis": 1}, [[2.0, 2.0, 2.0]]),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), {"axis": 1}, [[0.0, 0.0]]),
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, 1), {"axis": 1}, [[3.0, 4.0], [1.0, -2.0]]),
    **{name: (getattr(torch, name), {}, [[1.0, 2.0], [1.0, 3.0]])
       for name in ("greater", "greater_equal", "less", "less_equal")},
    "equal": (torch.eq, {}, [[1.0, 2.0], [1.0, 3.0]]),
    "not_equal": (torch.ne, {}, [[1.0, 2.0], [1.0, 3.0]]),
}  # fmt: skip
"""Torch's function, the options, and inputs at which derivatives could be others, for each row that states `ties`."""


def test_each_row_that_states_ties_is_compared():
    assert {name for name, row in ROWS.items() if not row.ties.startswith("none")} == AT.keys()


def derivatives(name):
    """The output, and the gradient at each input where that at all outputs is 1."""
    _, options, inputs = AT[name]
    nodes = {f"x{i}": (Parameter((len(each),), initial=np.array(each)),) for i, each in enumerate(inputs)}
    nodes["y"] = (Operation(name, **options), *nodes)
    nodes |= {"zero": (Operation("affine", factor=0), "input"), "z": (Operation("add"), "y", "zero")}
    network, x = gb.Graph(nodes, rng=0, dtype="float64"), np.zeros((1, 1))
    y = network(x)
    gradient = gb.backward(network, losses.MSELoss("sum"), x, y - 0.5).gradient
    return y, [gradient[f"x{i}"][None] for i in range(len(inputs))]


@pytest.mark.filterwarnings("ignore::gbackprop.base.errors.NotFiniteWarning")
@pytest.mark.parametrize("name", AT)
def test_derivatives_at_ties_and_kinks(name):
    function, _, inputs = AT[name]
    leaves = [torch.tensor([each], dtype=torch.float64, requires_grad=True) for each in inputs]
    value = 1.0 * function(*leaves)
    grads = [None] * len(leaves)
    if value.requires_grad:
        grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
    with np.errstate(divide="ignore"):
        y, found = derivatives(name)
    np.testing.assert_allclose(np.ravel(y), value.detach().numpy().ravel(), rtol=1e-12)
    for got, leaf, want in zip(found, leaves, grads, strict=True):
        np.testing.assert_allclose(got, torch.zeros_like(leaf) if want is None else want, rtol=1e-12)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [(7, 3), (2, 6), (4, 5)])
def test_interpolations_are_torchs(size, mode, corners):
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    if mode == "nearest" and corners:
        pytest.skip("there is none")
    named = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    options = {} if mode == "nearest" else {"align_corners": corners}
    wanted = torch.nn.functional.interpolate(x, size, mode=named, **options)
    found = gb.Sequential(Operation("interpolate", size=size, mode=mode, corners=corners))(x.numpy())
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("mode", "named"), [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")])
def test_interpolations_by_factors_are_torchs(mode, named):
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    wanted = torch.nn.functional.interpolate(x, scale_factor=(1.7, 0.6), mode=named)
    found = gb.Sequential(Operation("interpolate", size=wanted.shape[2:], mode=mode, factors=(1.7, 0.6)))(x.numpy())
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
