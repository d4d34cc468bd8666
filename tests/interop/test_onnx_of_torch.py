"""ONNX files that torch writes: outputs and gradients are torch's, quantities those of brute force."""

import io
import warnings

import numpy as np
import pytest
from against_dense import compare_with_dense

import gbackprop as gb
from gbackprop import losses
from gbackprop.interop import from_onnx

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
from onnx_models import TWELVE, Model  # noqa: E402

CURRENT, OLDER = "torch.export", "tracing"


def written(module, x, exporter):
    """The file of a module, as bytes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == CURRENT:
            shapes = ({0: torch.export.Dim("n")},)
            torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False).save(file)
        else:
            axes = {"x": {0: "n"}}
            torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    return file.getvalue()


def case(name, dtype):
    torch.manual_seed(0)
    make, shape = TWELVE[name]
    module = make().to(dtype).eval()
    for value in module.parameters():
        value.data += 0.1 * torch.randn_like(value)  # a weight is not what it is normalized from
    return module, torch.randn(3, *shape, dtype=dtype)


def compare_gradients(network, module, x, tolerance):
    """Every parameter that torch has, as it is or transposed, has torch's gradient."""
    y = torch.randn_like(module(x))
    torch.nn.functional.mse_loss(module(x), y).backward()
    gradient = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy()).gradient
    largest = max(p.grad.abs().max().item() for p in module.parameters())
    found = 0
    for value in module.parameters():
        for turn in (lambda v: v, lambda v: v.permute(*range(v.ndim)[::-1])):
            mine = [k for k, p in network.parameters.items() if np.array_equal(p, turn(value.detach()).numpy())]
            if mine:
                found += 1
                np.testing.assert_allclose(
                    gradient[mine[0]], turn(value.grad).numpy(), rtol=0, atol=tolerance * largest
                )
                break
    return found / len(list(module.parameters()))


@pytest.mark.parametrize(("dtype", "exporter", "tolerance"), [
    (torch.float32, CURRENT, 1e-6), (torch.float32, OLDER, 1e-6), (torch.float64, OLDER, 1e-10),
])  # fmt: skip
@pytest.mark.parametrize("name", TWELVE)
def test_outputs_and_gradients_are_torchs(name, dtype, exporter, tolerance):
    module, x = case(name, dtype)
    network = from_onnx(written(module, x, exporter))
    expected = module(x).detach()
    np.testing.assert_allclose(network(x.numpy()), expected, rtol=0, atol=tolerance * expected.abs().max().item())
    share = compare_gradients(network, module, x, 10 * tolerance)
    folded = {"convolutions": 0.5, "weight norm": 0.3, "kernel": 0.6}.get(name, 1)
    assert share >= folded


@pytest.mark.parametrize("name", ["attention", "kernel", "weight norm", "LoRA", "graph"])
def test_quantities_are_those_of_brute_force(name):
    module, x = case(name, torch.float64)
    network = from_onnx(written(module, x, OLDER))
    compare_with_dense(network, x.numpy())


def test_a_file_with_a_fixed_batch_has_any_size_afterwards():
    module, x = case("attention", torch.float64)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"])
    more = torch.randn(5, 3, 4, dtype=torch.float64)
    np.testing.assert_allclose(from_onnx(file.getvalue())(more.numpy()), module(more).detach(), rtol=1e-10)


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_in_a_file_of_one_sample_is_that_of_any_number(heads):
    torch.manual_seed(0)
    attention, file = torch.nn.MultiheadAttention(4, heads, batch_first=True).double().eval(), io.BytesIO()
    module = Model(lambda m, x: m.attention(x, x, x)[0], attention=attention).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.randn(1, 3, 4).double(),), file, dynamo=False, input_names=["x"])
    more = torch.randn(5, 3, 4, dtype=torch.float64)
    np.testing.assert_allclose(from_onnx(file.getvalue())(more.numpy()), module(more).detach(), rtol=0, atol=1e-10)


def test_attention_and_encoders_of_torch():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    network = from_onnx(written(module, x, OLDER))
    np.testing.assert_allclose(network(x.numpy()), module(x).detach(), rtol=0, atol=1e-10)
