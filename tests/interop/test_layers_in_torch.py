"""Every layer that torch has, with arguments that are not the default ones, there and back."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.interop import from_torch, to_torch

torch = pytest.importorskip("torch")

SEQUENCE, IMAGE, VOLUME = (4, 8), (4, 8, 8), (4, 8, 8, 8)
ARGUMENTS = {
    "CELU": ({"alpha": 0.5}, (4,)),
    "ConstantPad": ({"padding": 1, "value": 0.5}, None),
    "Conv": ({"in_channels": 4, "out_channels": 2, "kernel_size": 2, "stride": 2, "padding": 1, "groups": 2}, None),
    "ConvTranspose": (
        {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2},
        None,
    ),
    "Dropout": ({"p": 0.3}, (4,)),
    "ELU": ({"alpha": 0.5}, (4,)),
    "Embedding": ({"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 1}, (3,)),
    "Flatten": ({"start_dim": 2, "end_dim": 3}, IMAGE),
    "GELU": ({"approximate": "tanh"}, (4,)),
    "GroupNorm": ({"num_groups": 2, "num_channels": 4, "eps": 0.1}, IMAGE),
    "Hardshrink": ({"lambd": 0.3}, (4,)),
    "Hardtanh": ({"min_val": -0.5, "max_val": 0.25}, (4,)),
    "InstanceNorm": ({"num_features": 4, "eps": 0.1, "affine": True}, None),
    "BatchNorm": ({"num_features": 4, "eps": 0.1, "momentum": None, "affine": False}, None),
    "LayerNorm": ({"normalized_shape": (8, 8), "eps": 0.1, "bias": False}, IMAGE),
    "LeakyReLU": ({"negative_slope": 0.3}, (4,)),
    "Linear": ({"in_features": 4, "out_features": 3, "bias": False}, (4,)),
    "LogSoftmax": ({"dim": -1}, SEQUENCE),
    "MaxPool": ({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, None),
    "AvgPool": ({"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, None),
    "AdaptiveAvgPool": ({"output_size": 3}, None),
    "AdaptiveMaxPool": ({"output_size": 3}, None),
    "PReLU": ({"num_parameters": 4, "init": 0.1}, IMAGE),
    "PixelShuffle": ({"upscale_factor": 2}, IMAGE),
    "PixelUnshuffle": ({"downscale_factor": 2}, IMAGE),
    "RMSNorm": ({"normalized_shape": 8, "eps": 0.1}, IMAGE),
    "ReflectionPad": ({"padding": 1}, None),
    "ReplicationPad": ({"padding": 1}, None),
    "CircularPad": ({"padding": 1}, None),
    "ZeroPad": ({"padding": 1}, None),
    "Softmax": ({"dim": 1}, IMAGE),
    "Softplus": ({"beta": 2.0, "threshold": 1.0}, (4,)),
    "Softshrink": ({"lambd": 0.3}, (4,)),
    "Threshold": ({"threshold": 0.1, "value": 0.5}, (4,)),
    "Unflatten": ({"dim": 1, "unflattened_size": (2, 2)}, (4,)),
    "Upsample": ({"scale_factor": (2.0, 1.5)}, IMAGE),
}
"""By class, or its start before the number of axes: arguments, and the shape of a sample."""

NAMES = [name for name in layers.__all__ if hasattr(torch.nn, name) and name != "Parameter"]  # there, a tensor


def case(name):
    """A layer of torch, and a batch."""
    over = {"1d": SEQUENCE, "2d": IMAGE, "3d": VOLUME}.get(name[-2:])
    arguments, shape = ARGUMENTS.get(name.removesuffix(name[-2:]) if over else name, ({}, (4,)))
    torch.manual_seed(0)
    layer = getattr(torch.nn, name)(**arguments).double().eval()
    x = torch.randn(3, *(over or shape), dtype=torch.float64)
    return layer, torch.randint(0, 5, (3, *shape)) if name == "Embedding" else x


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_is_torchs_there_and_back(name):
    layer, x = case(name)
    module = torch.nn.Sequential(layer)
    network = from_torch(module, x)
    assert type(network[0]) is getattr(layers, name)
    back = to_torch(network)
    assert list(back.state_dict()) == list(module.state_dict())
    assert torch.equal(back(x), module(x))
    assert repr(from_torch(back, x)) == repr(network)


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_alone_is_one_with_torchs_names(name):
    module, x = case(name)
    network = from_torch(module, x)
    ((path, layer),) = network.named_layers()
    assert (path, type(layer)) == ("", getattr(layers, name))
    assert list(network.state_dict()) == list(module.state_dict())
    assert list(gb.Sequential(network).state_dict()) == [f"0.{key}" for key in module.state_dict()]
    back = to_torch(network)
    assert type(back) is type(module)
    assert torch.equal(back(x), module(x))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_recurrent_layer_alone_is_its_output(name):
    module, x = getattr(torch.nn, name)(3, 2, batch_first=True), torch.randn(4, 5, 3)
    network = from_torch(module, x, output=0)
    assert type(network) is getattr(gb, name)
    assert list(network.state_dict()) == list(module.state_dict())


def test_a_batch_norm_alone_has_its_training_mode():
    module, x = case("BatchNorm1d")
    network = from_torch(module, x)
    result = gb.backward(network, losses.MSELoss(), x.numpy(), np.zeros(x.shape), training=True, wrt="x")
    output = module.train()(x.requires_grad_())
    (expected,) = torch.autograd.grad(output.square().mean(), x)
    np.testing.assert_allclose(result.output, output.detach(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.gradient["x"], expected, rtol=0, atol=1e-12)


def test_a_convolution_alone_has_kronecker_factors():
    module, x = case("Conv2d")
    network = from_torch(module, x)
    found = gb.backward(network, losses.MSELoss(), x.numpy(), np.zeros_like(network(x.numpy())), q.KFLR())["kflr"]
    assert [block.A is None for block in found.values()] == [False, True]


def test_a_layer_alone_takes_what_torch_takes_as_one_sample():
    x = torch.randn(4, 6, 6)  # whose first axis are channels
    np.testing.assert_array_equal(from_torch(torch.nn.MaxPool2d(2), x)(x.numpy()), torch.nn.MaxPool2d(2)(x))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("factor", [0.5, 0.7, 0.9, 1, 1.1, 1.2, 1.4, 1.5, 1.7, 2, 2.1, 2.3, 2.6])
def test_upsample_by_a_fractional_factor_is_torchs(axes, factor):
    for size in range(2, 7):
        x = np.arange(2.0 * 2 ** (axes - 1) * size).reshape(1, 2, *(2,) * (axes - 1), size)
        scale = (1.0,) * (axes - 1) + (factor,)
        expected = torch.nn.Upsample(scale_factor=scale)(torch.tensor(x)).numpy()
        network = gb.Sequential(layers.Upsample(scale_factor=scale), dtype="float64")
        np.testing.assert_array_equal(network(x), expected)
        network = to_torch(gb.Sequential(layers.Conv2d(1, 1, 1), layers.Upsample(scale_factor=factor), rng=0))
        other = from_torch(network, torch.ones(1, 1, 3, 3))
        image = torch.rand(1, 1, 2, size)
        np.testing.assert_allclose(other(image.numpy()), network(image).detach().numpy(), rtol=1e-6)
