"""Models that call torch's functions on parameters, buffers and each other: outputs, gradients, and curvature."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.interop import from_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_models import MODELS, ChannelNorm, Own  # noqa: E402
from torch_sequences import Doing  # noqa: E402
from torch_versions import needs  # noqa: E402

LATER = {"time first"}
"""Models that an older torch writes down otherwise, and that are refused then."""

WORDS = {"tied language model", "GPT", "masked words", "segments", "mean of words"}


def case(name):
    if name in LATER:
        needs(2, 13)
    torch.manual_seed(3)
    make, shape = MODELS[name]
    module = make().double().eval()
    x = torch.randint(0, 7, (3, *shape)) if name in WORDS else torch.rand(3, *shape, dtype=torch.float64) + 0.1
    return module, x, from_torch(module, x)


def close(ours, theirs, tolerance=1e-9):
    largest = max(np.abs(value).max() for value in theirs.values())
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=tolerance * max(largest, 1e-9), err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_individual_gradients_are_torchs(name):
    module, x, network = case(name)
    expected = module(x)
    y = torch.randn_like(expected).detach()
    np.testing.assert_allclose(network(x.numpy()), expected.detach(), rtol=0, atol=1e-12 * float(expected.abs().max()))
    wanted = {key: value for key, value in module.named_parameters() if value.requires_grad}
    loss = nn.functional.mse_loss(expected, y)
    if not wanted:
        return
    theirs = dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values()), materialize_grads=True), strict=True))
    assert set(network.trainable) <= set(wanted)
    each = q.BatchGrad()
    result = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy(), each)
    close(result.gradient, {key: theirs[key].numpy() for key in result.gradient})
    close({key: value.sum(0) for key, value in result[each].items()}, dict(result.gradient))
    assert all(not theirs[key].any() for key in set(theirs) - set(result.gradient))


CURVED = ["SIREN", "GLU", "mixture density", "radial", "products of parameters", "weight norm", "LoRA", "normalized",
          "splines", "standardized by a batch norm", "tied autoencoder", "tied convolutions", "masked words"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CURVED)
def test_curvature_is_that_of_torchs_function(name, monkeypatch):
    module, x, network = case(name)
    y = torch.randn_like(module(x)).detach()
    ggn, hessian = q.DiagGGN(), q.DiagHessian()
    result = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy(), ggn, hessian)
    values = {key: value.detach() for key, value in module.named_parameters() if value.requires_grad}

    def output(changed):
        return torch.func.functional_call(module, changed, (x,))

    jacobian = torch.func.jacrev(output)(values)
    expected = {
        key: 2 / y.numel() * (value**2).flatten(0, y.ndim - 1).sum(0).numpy() for key, value in jacobian.items()
    }
    close(result[ggn], expected)

    def loss(changed):
        return nn.functional.mse_loss(output(changed), y)

    # torch's own second derivatives of a weight norm are not the derivatives of its first
    monkeypatch.setattr(torch, "_weight_norm", lambda v, g, dim: v * (g / v.norm(dim=1 - dim, keepdim=True)))
    second = torch.func.jacrev(torch.func.jacrev(loss))(values)
    diagonal = {key: second[key][key].reshape(value.numel(), -1).diagonal().reshape(value.shape).numpy()
                for key, value in values.items()}  # fmt: skip
    close(result[hessian], diagonal)


# ------------------------------------------------------------------------------------------------------- what is made


def made(module, x):
    network = from_torch(module, x)
    return {name: repr(layer) for name, layer in network.children.items()}


def test_a_call_on_a_modules_own_parameters_is_its_layer():
    module, x = MODELS["ConvNeXt"][0](), torch.rand(2, 4, 3, 3)
    found = made(module, x)
    assert found["norm"] == repr(layers.LayerNorm(4))
    assert found["gamma"] == "Parameter((4,))"
    without = made(nn.Sequential(ChannelNorm(4, bias=False)), torch.rand(2, 4, 3, 3))
    assert without["0"] == repr(layers.LayerNorm(4, bias=False))
    squeezed = made(MODELS["squeeze and excitation"][0](), torch.rand(2, 2, 4, 4))
    assert squeezed["norm"] == repr(layers.BatchNorm2d(4))


def test_two_calls_on_one_input_are_two_places_of_the_weight():
    x = np.random.default_rng(0).standard_normal((6, 3))
    network = from_torch(Doing(lambda m, x: m.fc(x) * torch.tanh(m.fc(x)), fc=nn.Linear(3, 2)).double(), x)
    factors = gb.backward(network, losses.MSELoss(), x, np.zeros((6, 2)), q.KFLR())["kflr"]
    np.testing.assert_allclose(factors["fc.weight"].A, 2 * x.T @ x / 6, rtol=1e-12)  # 1/N Σₙₜ u uᵀ, T = 2


def test_a_product_of_matrices_is_a_layer_of_two_inputs_only_where_both_belong_to_a_sample():
    x = torch.rand(3, 2, 4, 4)
    assert "MatMul()" in made(Stacked(lambda m, x: x @ (m.weight * x)), x).values()
    assert [*made(Stacked(lambda m, x: x @ m.weight), x).values()] == ["Parameter((2, 4, 4))", "Operation('matmul')"]


class Weighted(torch.nn.Module):
    """A function of x and of a weight, some of which is the same in all samples."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.rand(*shape, dtype=torch.float64))

    def forward(self, x):
        return self.function(self.weight, x)


def assert_taken_over(module, x):
    found = from_torch(module, x)(x.numpy())
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-13)


@pytest.mark.parametrize("shape", [(2,), (2, 2), (4, 2, 2)])
@pytest.mark.parametrize("first", [True, False], ids=["samples first", "samples second"])
def test_products_with_a_vector_on_either_side_are_taken_over(shape, first):
    x = torch.rand(3, *shape, dtype=torch.float64)
    sides = [lambda w, x: x @ w, lambda w, x: w @ x]
    for function in sides if len(shape) > 1 else sides[not first :][:1]:

        def applied(w, x, function=function):
            y = function(w, x if first else x.transpose(0, 1))
            return y if first or y.ndim == 1 else y.transpose(0, 1)

        if first or shape != (2, 2) or function is sides[0]:  # else it would be a sum over the samples
            assert_taken_over(Weighted(applied, 2), x)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_norms_of_a_weight_over_all_axes_but_one_are_taken_over(dim):
    """The axis −1 stands for none: the norm over all, which is torch's."""

    def weighted(w, x):
        return x * (w / torch.norm_except_dim(w, 2, dim))[1, 2] + torch.norm_except_dim(w, 2, dim).sum()

    assert_taken_over(Weighted(weighted, 3, 4, 2), torch.rand(3, 2, dtype=torch.float64))


def test_a_module_is_tried_with_one_sample_more_whose_numbers_have_another_order():
    seen, x = [], torch.arange(1.0, 9.0).reshape(2, 4)

    def noted(w, x):
        if not isinstance(x, torch._subclasses.FakeTensor):
            seen.append(x.clone())
        return x * w

    from_torch(Weighted(noted, 4).float(), x)
    (larger,) = (each for each in seen if len(each) == 3)
    assert {len(each) for each in seen} == {1, 2, 3}
    assert sorted(map(tuple, larger.argsort(1).tolist())) == [(0, 1, 2, 3), (0, 1, 2, 3), (3, 2, 1, 0)]


class Stacked(torch.nn.Module):
    """A function of x and of a stack of two matrices."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.rand(2, 4, 4))

    def forward(self, x):
        return self.function(self, x)


def test_a_parameter_with_two_uses_is_a_node_of_one_name():
    network = from_torch(MODELS["tied language model"][0](), torch.zeros(2, 5, dtype=torch.int64))
    names = ["encoder.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0"]
    assert set(network.state_dict()) == {*names, "decoder.bias"}


def test_fixed_arrays_are_computed_by_torch_and_no_part_of_the_state_dict():
    module = Own(lambda m, x: x * torch.cumsum(m.steps, 0) + torch.arange(4), None, {"steps": torch.ones(4)})
    network = from_torch(nn.Sequential(nn.Linear(4, 4), module), torch.rand(2, 4))
    assert list(network.state_dict()) == ["0.weight", "0.bias"]
    assert [repr(layer) for layer in network.children.values()].count("Constant(array of shape (4,))") == 2


SLICED = [
    (lambda x: x[:, 1], [layers.Select(1, 1)]), (lambda x: x[:, 1:3], [layers.Slice(1, 1, 3)]),
    (lambda x: x[:, :, 0:4:2], [layers.Slice(2, 0, 4, 2)]), (lambda x: x.flatten(1), [layers.Flatten(1, -1)]),
    (lambda x: x.view(-1, 3, 2, 2), [layers.Unflatten(2, (2, 2))]), (lambda x: x.view(x.shape), []),
    (lambda x: x.transpose(1, 2), [layers.Permute((0, 2, 1))]), (lambda x: 1 * x + 0, []),
    (lambda x: x.view(-1, 1, 3, 4), [layers.Unflatten(1, (1, 3))]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "expected"), SLICED)
def test_moves_are_layers(function, expected):
    found = made(Doing(lambda m, x: function(torch.tanh(x))), torch.rand(2, 3, 4))
    assert list(found.values()) == ["Tanh()", *map(repr, expected)]


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return {"first": self.a(x), "second": (self.b(x), self.a(x))}


def test_one_of_several_outputs_is_chosen():
    module, x = Several(), torch.rand(3, 4)
    network = from_torch(module, x, output="first")
    np.testing.assert_allclose(network(x.numpy()), module.a(x).detach(), atol=1e-6)
    assert set(network.state_dict()) == {"a.weight", "a.bias"}
    for output, words in ((None, r"output= with its key or number, got dict \['first', 'second'\]"), ("no", "'no'")):
        with pytest.raises(gb.UnsupportedError, match=words):
            from_torch(module, x, output=output)


def test_all_refusals_are_in_one_message_with_their_lines():
    def forward(m, x):
        return torch.sort(x, 1)[0] + torch.linalg.inv(x[:, :, None] * x[:, None] + torch.eye(3))[:, 0]

    with pytest.raises(gb.UnsupportedError) as caught:
        from_torch(Doing(forward), torch.rand(2, 3))
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all("(test_models_of_torch.py, line" in line for line in lines)
