"""Modules of torch as networks and back: names, outputs, gradients and individual gradients; and what is refused."""

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import UnsupportedError, layers, losses
from gbackprop import quantities as q
from gbackprop.interop import from_torch, to_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_modules import MODULES, gated  # noqa: E402


def case(name, dtype="float32"):
    """A module with drawn parameters and buffers in training mode, and a batch."""
    torch.manual_seed(3)
    make, shape = MODULES[name]
    module = make().to(getattr(torch, dtype))
    for key, value in module.state_dict().items():
        if value.is_floating_point():
            value += 0.1 * torch.rand_like(value) if "running" in key else 0.1 * torch.randn_like(value)
    if name.startswith("words"):
        return module, torch.randint(0, 7, (3, *shape))
    return module, torch.randn(3, *shape, dtype=getattr(torch, dtype))


def first_names(module):
    """The names of a state dict, those of a layer with two names once."""
    known = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    return {name for name in module.state_dict() if name in known}


def gradients(module, x, y):
    """The gradient of the mean square error, and those of its samples' shares."""
    wanted = {name: value for name, value in module.named_parameters() if value.requires_grad}
    each = [F.mse_loss(module(x[i : i + 1]), y[i : i + 1]) / len(x) for i in range(len(x))]
    samples = [torch.autograd.grad(loss, list(wanted.values())) for loss in each]
    whole = torch.autograd.grad(F.mse_loss(module(x), y), list(wanted.values()))
    stacked = [torch.stack(values) for values in zip(*samples, strict=True)]
    return [{name: value.numpy() for name, value in zip(wanted, values, strict=True)} for values in (whole, stacked)]


def assert_close(ours, theirs, tolerance):
    """Every difference is within the tolerance of the largest number of all parameters."""
    assert set(ours) == set(theirs)
    largest = max(np.abs(value).max() for value in theirs.values())
    assert largest > 0
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=tolerance * largest, err_msg=name)


# ---------------------------------------------------------------------------------------------------- there, and back


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("name", MODULES)
def test_names_and_gradients_are_torchs_and_those_of_the_module_that_the_network_becomes(name, dtype, tolerance):
    module, x = case(name, dtype)
    network = from_torch(module, x)
    assert set(network.state_dict()) == first_names(module)
    back = to_torch(network)
    assert list(back.state_dict()) == list(network.state_dict()) or set(back.state_dict()) == first_names(module)
    assert {name for name, value in back.named_parameters() if value.requires_grad} == set(network.trainable)
    module.eval()
    expected = module(x).detach()
    for output in (network(x.numpy()), back(x).detach()):
        np.testing.assert_allclose(output, expected, rtol=0, atol=10 * tolerance * expected.abs().max())
    y, each = torch.randn_like(expected), q.BatchGrad()
    result = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy(), each)
    gradient, samples = gradients(module, x, y)
    assert_close(result.gradient, gradient, tolerance)
    assert_close(result[each], samples, tolerance)


def test_the_names_of_a_state_dict_are_exactly_torchs():
    module, x = case("residual")
    network = from_torch(module, x)
    assert set(network.state_dict()) == set(module.state_dict())
    other = MODULES["residual"][0]()
    np.testing.assert_array_equal(
        network.load_state_dict(other.state_dict()).state_dict()["layer2.0.downsample.1.weight"],
        other.state_dict()["layer2.0.downsample.1.weight"],
    )


def test_a_chain_stays_one():
    module, x = case("nested chain")
    network = from_torch(module, x)
    assert type(network) is gb.Sequential
    assert [type(part).__name__ for part in network] == ["Sequential", "Sequential", "Flatten", "Linear"]
    assert type(to_torch(network)[0]) is nn.Sequential


def test_a_module_at_several_places_is_one_layer():
    module, x = case("shared chain")
    network = from_torch(module, x)
    assert network[0] is network[2]
    assert network[1] is network[3]


def tied(module, *names):
    """A module of which these parameters are the first of them."""
    for path, _, last in (name.rpartition(".") for name in names[1:]):
        setattr(module.get_submodule(path), last, module.get_parameter(names[0]))
    return module


def stored(module, name, persistent):
    """A module of which a parameter is a buffer."""
    path, _, last = name.rpartition(".")
    part, value = module.get_submodule(path), module.get_parameter(name).data
    delattr(part, last)
    part.register_buffer(last, value, persistent)
    return module


def frozen(module, name):
    module.get_parameter(name).requires_grad_(False)
    return module


def pair(first, second):
    return nn.Sequential(first, nn.Tanh(), second)


def linear():
    return pair(nn.Linear(3, 3), nn.Linear(3, 3))


def encoder_layer():
    return nn.TransformerEncoderLayer(2, 1, 2, batch_first=True)


def repeated():
    encoder = nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False)
    encoder.layers[1] = encoder.layers[0]
    return encoder


TIED = {
    "weights": (lambda: tied(linear(), "0.weight", "2.weight"), (3,)),
    "biases": (lambda: tied(linear(), "0.bias", "2.bias"), (3,)),
    "frozen weights": (lambda: frozen(tied(linear(), "0.weight", "2.weight"), "2.weight"), (3,)),
    "chain in chain": (lambda: tied(pair(linear(), nn.Linear(3, 3)), "0.0.weight", "2.weight"), (3,)),
    "words and output": (lambda: tied(pair(nn.Embedding(5, 2), nn.Linear(2, 5)), "0.weight", "2.weight"), None),
    "kernels": (lambda: tied(pair(nn.Conv1d(2, 2, 2), nn.ConvTranspose1d(2, 2, 2)), "0.weight", "2.weight"), (2, 3)),
    "norms": (lambda: tied(pair(nn.LayerNorm(3), nn.RMSNorm(3)), "0.weight", "2.weight"), (3,)),
    "in a norm": (lambda: tied(pair(nn.Linear(3, 3), nn.LayerNorm(3)), "2.weight", "2.bias"), (3,)),
    "a norm": (lambda: tied(nn.LayerNorm(3), "weight", "bias"), (3,)),
    "an encoder layer": (lambda: tied(encoder_layer(), "linear1.weight", "linear2.weight"), (2, 2)),
    "attention": (lambda: tied(encoder_layer(), "self_attn.out_proj.weight", "linear1.weight"), (2, 2)),
    "a layer twice": (repeated, (2, 2)),
    "a layer twice in a chain": (lambda: pair(nn.Linear(2, 2), repeated()), (2, 2)),
    "an RNN": (lambda: tied(nn.RNN(2, 2, batch_first=True), "weight_ih_l0", "weight_hh_l0"), (2, 2)),
    "an LSTM": (lambda: tied(nn.LSTM(1, 1, batch_first=True), "bias_ih_l0", "bias_hh_l0"), (2, 1)),
}
BUFFERS = {
    "weight": (linear, "0.weight", (3,)),
    "alone": (lambda: nn.Linear(3, 2), "weight", (3,)),
    "kernel": (lambda: pair(nn.Conv1d(2, 2, 2), nn.Conv1d(2, 1, 1)), "0.weight", (2, 3)),
    "words": (lambda: pair(nn.Embedding(5, 2), nn.Linear(2, 2)), "0.weight", None),
    "shift": (lambda: pair(nn.Linear(3, 2), nn.BatchNorm1d(2)), "2.bias", (3,)),
    "encoder layer": (encoder_layer, "linear1.weight", (2, 2)),
}


def assert_derivatives_are_torchs(module, shape):
    """The names, the gradient and the Hessian are those of torch's autograd."""
    torch.manual_seed(3)
    module = module.double().eval()
    x = torch.randint(0, 5, (2, 2)) if shape is None else torch.randn(2, *shape, dtype=torch.float64)
    recurrent = isinstance(module, nn.RNN | nn.LSTM)
    network = from_torch(module, x, output=0 if recurrent else None)
    y = torch.randn(network(x.numpy()).shape, dtype=torch.float64)
    own = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
    gradient = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy()).gradient
    assert set(gradient) == set(own)

    def loss(vector):
        parts = vector.split([value.size for value in gradient.values()])
        given = {name: part.view_as(own[name]) for name, part in zip(gradient, parts, strict=True)}
        with sdpa_kernel(SDPBackend.MATH):  # others have no second derivatives
            output = torch.func.functional_call(module, given, x)
        return F.mse_loss(output[0] if recurrent else output, y)

    at = torch.cat([own[name].flatten() for name in gradient])
    found = np.concatenate([value.ravel() for value in gradient.values()])
    np.testing.assert_allclose(found, torch.func.grad(loss)(at), rtol=0, atol=1e-13)
    hessian = gb.operators.Hessian(network, losses.MSELoss(), (x.numpy(), y.numpy())).to_dense()
    np.testing.assert_allclose(hessian, torch.autograd.functional.hessian(loss, at), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TIED)
def test_a_parameter_of_several_names_is_one(name):
    make, shape = TIED[name]
    assert_derivatives_are_torchs(make(), shape)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("name", BUFFERS)
def test_a_weight_that_is_a_buffer_is_fixed(name, persistent):
    make, weight, shape = BUFFERS[name]
    assert_derivatives_are_torchs(stored(make(), weight, persistent), shape)


def test_the_module_is_as_it_was():
    module, x = case("residual")
    module.layer1.eval()
    modes = [part.training for part in module.modules()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = from_torch(module, x)
    network.parameters["fc.bias"][:] = 7
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


class Counted(nn.Module):
    """A linear layer that counts its calls in buffers, of which one is another tensor after each."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("others", torch.ones(1))

    def forward(self, x):
        self.calls += 1
        self.others = self.others + 1
        return self.fc(x)


def test_buffers_that_a_forward_changes_are_restored():
    module = Counted()
    calls, others = module.calls, module.others
    from_torch(module, torch.randn(3, 4))
    assert module.calls is calls
    assert module.others is others
    assert (float(calls), float(others)) == (0, 1)


def test_a_buffer_of_one_memory_for_many_numbers_is_taken():
    module = nn.Sequential(nn.Linear(3, 3))
    module.register_buffer("ones", torch.ones(1).expand(3))
    module[0].register_buffer("twos", 2 * torch.ones(1, 1).expand(2, 3))
    x = torch.randn(2, 3)
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=1e-5, atol=1e-6)


def test_the_modes_are_restored_after_an_error():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    module[0].eval()
    with pytest.raises(ValueError, match="example"):
        from_torch(module, np.zeros((2, 3), "float32"))
    assert [part.training for part in module.modules()] == [True, False, True]


def test_parameters_that_require_no_gradient_are_frozen():
    module, x = case("frozen")
    assert list(from_torch(module, x).trainable) == ["2.weight", "2.bias"]


def test_dropout_drops_in_training():
    module, x = case("dropout")
    kept = [layer.p for _, layer in from_torch(module, x).named_layers() if isinstance(layer, layers.Dropout)]
    assert kept == [0.4, 0.3]


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
@pytest.mark.parametrize("change", [
    lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: np.broadcast_to(x[:1], x.shape),
])  # fmt: skip
def test_the_example_may_be_an_array_in_any_memory(change):
    """torch takes no axis in reverse, and warns of arrays that are read-only."""
    module, x = nn.Linear(4, 2), change(np.arange(12, dtype="float32").reshape(3, 4))
    expected = module(torch.tensor(x.tolist())).detach()
    for given in (x, (x,), {"input": x}):
        np.testing.assert_allclose(from_torch(module, given)(given), expected, rtol=1e-5, atol=1e-6)


def test_the_example_may_be_an_array_of_another_dtype():
    module, x = case("gate")
    assert from_torch(module, x.numpy().astype("float64")).parameters["gate.bias"].dtype == "float32"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_module_without_parameters_takes_the_dtype_of_the_example(dtype):
    network = from_torch(nn.Sequential(nn.Tanh(), nn.Flatten()), torch.ones(2, 3, dtype=getattr(torch, dtype)))
    assert {layer.dtype for _, layer in network.named_layers()} == {dtype}


def test_a_layer_that_is_called_again_has_a_path_of_its_own():
    module, x = case("residual")
    names = [name for name in from_torch(module, x).inputs if name.startswith("layer1.0.")]
    assert names[-2:] == ["layer1.0.add", "layer1.0.relu_1"]


# -------------------------------------------------------------------------------------------------- networks to torch

NETWORKS = {
    "residual": (gb.Residual(layers.Linear(4, 4), layers.Tanh(), shortcut=layers.Linear(4, 4)), (4,)),
    "sum": (gb.Sequential(gb.Sum(layers.Linear(4, 3), layers.Linear(4, 3), layers.Linear(4, 3)), layers.ReLU()), (4,)),
    "product": (gb.Product(layers.Linear(4, 4), layers.Linear(4, 4), layers.Sigmoid(), layers.Identity()), (4,)),
    "concatenate": (gb.Sequential(gb.Concatenate(layers.Linear(4, 3), gb.Residual(layers.Scale(4)))), (4,)),
    "graph": (
        gb.Graph(
            {
                "a": (gb.Sequential(layers.Linear(4, 4), layers.Tanh()), "input"),
                "t": (layers.Permute((0, 2, 1)), "a"),
                "m": (layers.MatMul(), "a", "t"),
                "s": (layers.Slice(1, 0, 3, 2), "m"),
                "o": (layers.Select(-1, 2), "s"),
            }
        ),
        (3, 4),
    ),
    "shared": (gb.Sequential(layer := layers.Linear(4, 4), layers.GELU(), gb.Sequential(layer, layer)), (4,)),
    "convolutions": (
        gb.Sequential(
            layers.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 2), dilation=(1, 2), groups=2, padding_mode="reflect"),
            layers.GroupNorm(2, 4, eps=0.1),
            layers.PReLU(4),
            layers.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1, bias=False),
            layers.Upsample(scale_factor=2),
            layers.ConstantPad2d((1, 0, 2, 1), 0.5),
            layers.AvgPool2d(3, 2, padding=1, count_include_pad=False, divisor_override=5),
            layers.InstanceNorm2d(2, eps=0.2, affine=True),
            layers.Flatten(2),
            layers.LayerNorm(238, eps=0.3, bias=False),
            layers.RMSNorm(238, eps=0.4),
            layers.AdaptiveAvgPool1d(5),
            layers.Softmax(-1),
        ),
        (2, 9, 12),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_a_module_of_the_same_names_and_outputs(name):
    network, shape = NETWORKS[name]
    network.astype("float64").initialize(np.random.default_rng(0))
    module, x = to_torch(network), np.random.default_rng(1).standard_normal((3, *shape))
    assert list(module.state_dict()) == list(network.state_dict())
    torch.testing.assert_close(module(torch.from_numpy(x)).detach().numpy(), network(x), rtol=1e-11, atol=1e-12)
    assert not module.training


def test_the_module_has_copies():
    network = gb.Sequential(layers.Linear(2, 2), rng=0)
    before = network.parameters["0.bias"].copy()
    to_torch(network)[0].bias.data.fill_(7)
    np.testing.assert_array_equal(network.parameters["0.bias"], before)


class Own(layers.Tanh):
    """A layer of the user's."""


class CELU(layers.Tanh):
    """A layer of the user's that has the name of another one of torch's."""


@pytest.mark.parametrize(
    ("network", "error", "words"),
    [
        (gb.Sequential(gb.Residual(Own())), UnsupportedError, "layer 0.0, Own(): torch has no module for it"),
        (gb.Sequential(CELU()), UnsupportedError, "layer 0, CELU(): torch has no module for it"),
        (gb.Graph({"forward": (layers.Tanh(), "input")}), UnsupportedError, "layer (the network): torch: attribute"),
        (gb.Sequential(gb.Graph({"forward": (layers.Tanh(), "input")})), UnsupportedError, "layer 0: torch: attribute"),
        (
            gb.Graph({"p": (layers.Parameter(4),), "y": (layers.Operation("add"), "input", "p")}),
            UnsupportedError,
            "layer p, Parameter((4,)): torch has no module for it",
        ),
        (
            gb.Graph({"c": (layers.Constant([1.0]),), "y": (layers.Operation("add"), "input", "c")}),
            UnsupportedError,
            "layer c, Constant(array of shape (1,)): torch has no module for it",
        ),
        (
            gb.Sequential(layers.Operation("exp")),
            UnsupportedError,
            "layer 0, Operation('exp'): torch has no module for it",
        ),
        (
            gb.Graph({"e": (layers.Tanh(), "input"), "y": (layers.Operation("softmax"), "e")}),
            UnsupportedError,
            "layer y, Operation('softmax'): torch has no module for it",
        ),
        (
            gb.trace(lambda p, x: np.exp(x @ p["w"] + p["b"]), {"w": np.eye(3), "b": np.ones(3)}, np.ones((1, 3))),
            UnsupportedError,
            "layer add1, Weight(3, 3): torch's module would have other names for w, b",
        ),
        (layers.Tanh(), TypeError, "network: expected a network such as gb.Sequential, got Tanh"),
    ],
)
def test_what_torch_lacks_is_named(network, error, words):
    refuse(error, [words], lambda: to_torch(network))


# ------------------------------------------------------------------------------------------------------------ refusals


class Doing(nn.Module):
    """A module that does one thing between two layers."""

    def __init__(self, doing):
        super().__init__()
        self.fc, self.inner = nn.Linear(4, 4), Inner(doing)

    def forward(self, x):
        return self.fc(self.inner(x))


class Inner(nn.Module):
    def __init__(self, doing):
        super().__init__()
        self.weight, self.doing = nn.Parameter(torch.ones(4)), doing

    def forward(self, x):
        return self.doing(self, x)


def doing(function):
    return lambda: Doing(function)


INNER = "module inner, Inner: "
REFUSED = {
    "condition": (
        doing(lambda m, x: x if x.sum() > 0 else -x),
        f"{INNER}torch.export: expected no condition or number that depends on the data",
    ),
    "infinity": (doing(lambda m, x: x * torch.inf), f"{INNER}mul: expected tensors or finite numbers, got inf"),
    "no quotient": (doing(lambda m, x: x / 0), f"{INNER}div: expected a number other than 0 as the divisor"),
    "rounding": (
        doing(lambda m, x: torch.div(x, 2, rounding_mode="floor")),
        f"{INNER}div: rounding_mode='floor' is not supported: it has no derivative (test_torch.py, line",
    ),
    "function": (doing(lambda m, x: torch.sort(x, 1)[0]), f"{INNER}sort: there is no layer and no row of the table"),
    "integers of the data": (
        doing(lambda m, x: x.gather(1, x.argmax(1, keepdim=True).expand(-1, 4))),
        f"{INNER}argmax: there is no layer and no row",
    ),
    "over the batch": (doing(lambda m, x: F.softmax(x, 0)), f"{INNER}softmax: dim: expected that each sample is map"),
    "joined samples": (doing(lambda m, x: torch.cat([x, x])), f"{INNER}cat: dim: expected that each sample is mapped"),
    "sum of samples": (doing(lambda m, x: x - x.mean(0)), f"{INNER}mean: expected that each sample is mapped by its"),
    "products of samples": (doing(lambda m, x: x @ x.T @ x), f"{INNER}matmul: expected that each sample is mapped by"),
    "a sum over samples": (
        doing(lambda m, x: torch.einsum("bi,cj->bij", x, x).sum(2)),
        f"{INNER}einsum: expected that each sample is mapped by itself, with its numbers in one place, got a sum over",
    ),
    "one tensor": (
        doing(lambda m, x: torch.einsum("bi->bi", x)), f"{INNER}einsum: expected two tensors and 'a,b->c', or more than"
    ),
    "samples": (doing(lambda m, x: x[:2]), f"{INNER}slice: expected that each sample is mapped by itself"),
    "all samples but one": (doing(lambda m, x: x[1:]), f"{INNER}slice: expected that each sample is mapped by itself"),
    "some samples replaced": (
        doing(lambda m, x: torch.slice_scatter(x, x * m.weight, 0, 0, 200)),
        f"{INNER}slice_scatter: expected that each sample is mapped by itself",
    ),
    "one sample replaced": (
        doing(lambda m, x: torch.select_scatter(x * m.weight, m.weight, 0, 0) + x),
        f"{INNER}select_scatter: expected that each sample is mapped by itself",
    ),
    "a norm over samples": (
        doing(lambda m, x: F.layer_norm(x.T, (len(x),)).T),
        f"{INNER}layer_norm: expected numbers that do not follow from the number of samples",
    ),
    "a number that few samples change": (
        doing(lambda m, x: x + torch.ones_like(x[:, 0]).cumsum(0).clamp(max=3).max()),
        f"{INNER}add: expected numbers that do not follow from the number of samples",
    ),
    "a norm over as many samples as are given": (
        doing(lambda m, x: F.rms_norm(x.T, (3,)).T), "expected code for any number of samples, got code for one"
    ),
    "a sum in half": (
        doing(lambda m, x: x.sum(1, keepdim=True, dtype=torch.half).float() + x), f"{INNER}sum: dtype: expected torch."
    ),
    "a softmax in half": (
        doing(lambda m, x: x.softmax(1, dtype=torch.half).float() + x), f"{INNER}softmax: dtype: expected torch.float32"
    ),
    "another norm of weights": (
        doing(lambda m, x: x * torch.norm_except_dim(m.weight, 1, 0)[0]), f"{INNER}norm_except_dim: pow=1 is not supp"
    ),
    "distances of another norm": (
        doing(lambda m, x: torch.cdist(x[:, :, None], m.weight[:, None], p=1.0).sum(2)),
        f"{INNER}cdist: p=1.0 is not supported, expected 2",
    ),
    "always drops": (doing(lambda m, x: F.dropout(x)), f"{INNER}native_dropout: there is no layer and no row"),
    "random": (doing(lambda m, x: x + torch.randn_like(x)), f"{INNER}randn_like: there is no layer and no row"),
    "random numbers of no data": (doing(lambda m, x: x + torch.randn(4)), f"{INNER}randn: random numbers cannot be"),
    "random numbers that are mostly the same": (
        doing(lambda m, x: x * torch.bernoulli(torch.tensor([1 - 1e-6]))), f"{INNER}bernoulli: random numbers cannot be"
    ),
    "random numbers of a generator": (
        doing(lambda m, x: x + torch.randn(4, generator=torch.Generator())),
        "expected tensors as constants, got a Generator",
    ),
    "random numbers for each sample": (
        doing(lambda m, x: F.gumbel_softmax(x)), f"{INNER}exponential: random numbers cannot be taken over"
    ),
    "indices": (
        lambda: nn.Sequential(nn.AdaptiveMaxPool1d(2, return_indices=True)),
        "expected one tensor as its output, or output= with its key or number, got tuple",
    ),
    "statistics of a batch": (
        lambda: nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)),
        "module 0, BatchNorm1d: ",
    ),
    "two inputs": (lambda: nn.Bilinear(4, 4, 4), "module (the whole), Bilinear: expected one input, got ['input1', '"),
    "a number of a parameter": (
        doing(lambda m, x: x * m.weight[0].item()), f"{INNER}item: expected tensors, got a number of one (leave out it"
    ),
    "TorchScript": (
        lambda: nn.Sequential(torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))),
        "module 0, TopLevelTracedModule: expected a module of Python, got TorchScript (give what it was made of)",
    ),
    "TorchScript as the whole": (
        lambda: torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4)),
        "module (the whole), TopLevelTracedModule: expected a module of Python, got TorchScript",
    ),
    "half": (lambda: nn.Sequential(nn.Linear(4, 4)).half(), "expected parameters of float32 or float64 on cpu, got fl"),
}


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_named_with_its_module(name):
    make, words = REFUSED[name]
    module = make()
    refuse(UnsupportedError, [words], lambda: from_torch(module, torch.rand(3, 4)))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda: nn.Embedding(5, 4, max_norm=1.0), "module 0, Embedding: max_norm=1.0 is not supported, expected None"),
        (
            lambda: nn.Embedding(5, 4, scale_grad_by_freq=True),
            "module 0, Embedding: scale_grad_by_freq=True is not sup",
        ),
        (lambda: Inner(lambda m, x: m.weight[0] * x.gather(1, x)), "module 0, Inner: gather: index: expected fixed"),
    ],
)
def test_a_keyword_that_a_layer_lacks_is_named(part, words):
    module = nn.Sequential(part())
    refuse(UnsupportedError, [words], lambda: from_torch(module, torch.ones(3, 2, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        (lambda m, x: x.to(torch.uint8) * m.weight, "to: expected a cast to integers that have all of torch.int6"),
        (lambda m, x: x.short().long() * m.weight, "to: expected a cast to integers that have all of torch.int64"),
        (lambda m, x: (x > 1).int().cumsum(1).to(torch.int8) * m.weight, None),
        (lambda m, x: (x > 1).repeat(1, 70).int().cumsum(1).to(torch.int8)[:, :4] * m.weight, "to: expected a "),
        (lambda m, x: x.int() * m.weight, None),
        (lambda m, x: (x * x + x**2) * m.weight, None),
        (lambda m, x: (x > 1).to(torch.uint8).long() * x * m.weight**2, None),
    ],
)
def test_casts_of_integers_to_narrow_ones_are_refused_by_name(doing, words):
    module, x = nn.Sequential(Inner(doing)).double(), torch.randint(0, 5, (3, 4))
    if words:
        return refuse(UnsupportedError, [f"module 0, Inner: {words}"], lambda: from_torch(module, x))
    far = 1000 * x
    np.testing.assert_array_equal(from_torch(module, x)(far.numpy()), module(far).detach())


@pytest.mark.parametrize(
    ("module", "example", "error", "words"),
    [
        (dict, torch.ones(2, 4), TypeError, "module: expected a torch.nn.Module, got dict"),
        (gated, [[1.0] * 5], TypeError, "example: expected an array or a tensor of at least one sample, got list"),
        (
            gated,
            torch.ones(0, 5),
            TypeError,
            "example: expected an array or a tensor of at least one sample, got torch",
        ),
        (gated, torch.ones(2, 4), ValueError, "example: the module cannot compute it: mat1 and mat2 shapes"),
    ],
)
def test_an_example_that_is_none_is_named(module, example, error, words):
    refuse(error, [words], lambda: from_torch(module(), example))


class Counting(nn.Tanh):
    """A function that changes from call to call."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1.0 if self.calls > 1 else 1.5)


def test_outputs_that_differ_are_told_by_the_first_layer_that_does():
    module = nn.Sequential(nn.Linear(4, 4), Counting(), nn.Linear(4, 4))
    with pytest.raises(
        ValueError, match=r"^layer 1\.tanh, Tanh\(\): expected torch's output|^output: expected torch's"
    ):
        from_torch(module, torch.rand(3, 4))


def test_a_layer_is_named_whose_values_differ_but_none_of_a_chain_that_torch_has_not_followed(monkeypatch):
    monkeypatch.setattr(layers.Tanh, "value", lambda self, x: 1.01 * x)
    chain, words = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), r"expected torch's output, of at most \d"
    with pytest.raises(ValueError, match=rf"^output: {words}"):
        from_torch(chain, torch.rand(3, 4))
    with pytest.raises(ValueError, match=rf"^layer inner_tanh, Tanh\(\): {words}"):
        from_torch(Doing(lambda m, x: torch.tanh(x) + x), torch.rand(3, 4))


class OfParameters(nn.Module):
    """What is computed of parameters alone is added to what depends on the samples."""

    def __init__(self):
        super().__init__()
        self.body, self.prior, self.end = nn.Linear(4, 4), nn.Linear(4, 4), Counting()
        self.rows = nn.Parameter(torch.rand(3, 4))

    def forward(self, x):
        return self.end(self.body(x) + self.prior(self.rows).sum(0))


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_outputs_that_differ_are_told_where_layers_have_no_samples(samples):
    with pytest.raises(ValueError, match=r"^(layer end, .*|output): expected torch's output, of at most \d"):
        from_torch(OfParameters(), torch.rand(samples, 4))


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 1 + 1e-4), ("float64", 1 + 1e-8)])
def test_small_differences_are_told_in_the_precision_of_the_module(dtype, factor):
    class Drifting(Counting):
        def forward(self, x):
            self.calls += 1
            return torch.tanh(x) * (1.0 if self.calls > 1 else factor)

    kind = getattr(torch, dtype)
    module = nn.Sequential(nn.Linear(4, 4), Drifting()).to(kind)
    with pytest.raises(ValueError, match=r"expected torch's output, of at most \d"):
        from_torch(module, torch.rand(3, 4, dtype=kind))


def test_hooks_and_changes_in_place_are_taken_as_they_are():
    module, x = case("residual")
    module.layer1[0].bn1.register_forward_hook(lambda part, given, output: output * 1.5)
    module.eval()
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=0, atol=1e-5)
    module, x = Doing(lambda m, x: F.relu(x, inplace=True) + x), torch.randn(3, 4)
    before = x.clone()
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x.clone()).detach(), rtol=0, atol=1e-6)
    assert torch.equal(x, before)


@pytest.mark.parametrize("path", ["", "0", "0.fc", "1", "3.linear1", "chain", "chain.0", "chain.1"])
def test_a_forward_of_an_instance_is_called_as_it_is(path):
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    module = nn.Sequential(Doing(lambda m, x: x), nn.Linear(4, 4), nn.Tanh(), encoder).eval()
    if path.startswith("chain"):
        module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))
    part, x = module.get_submodule(path.removeprefix("chain").removeprefix(".")), torch.randn(3, 2, 4)
    part.forward = lambda x, before=part.forward: 2 * before(x.clamp(-1, 1))
    network, far = from_torch(module, x), 30 * x
    assert part.forward.__name__ == "<lambda>"
    np.testing.assert_allclose(network(far.numpy()), module(far).detach(), rtol=0, atol=1e-5)


# --------------------------------------------------------------------------------------------------------- state dicts


def test_state_dicts_of_torch_load_as_they_are():
    module, x = case("nested chain", "float64")
    network = from_torch(module, x).astype("float32")
    other = case("nested chain")[0].double()
    other[3].weight.data += 1
    loaded = network.load_state_dict(other.state_dict()).state_dict()
    np.testing.assert_array_equal(loaded["3.weight"], other[3].weight.detach().float())
    assert loaded["0.1.num_batches_tracked"] == 0


def without_counts(version):
    """A module and its network that have counted 7 batches, and a state dict that lacks the count."""
    module, x = case("nested chain")
    module[0][1].num_batches_tracked += 7
    network, state = from_torch(module, x), module.state_dict()
    del state["0.1.num_batches_tracked"]
    state["3.bias"] = state["3.bias"] + 1
    state._metadata["0.1"]["version"] = version
    return module, network, state


@pytest.mark.parametrize("version", [None, 1])
def test_a_state_dict_of_a_version_without_counts_of_batches_loads_as_in_torch(version):
    module, network, state = without_counts(version)
    for given in (dict(state), state):
        module.load_state_dict(given)
        found = network.load_state_dict(given).state_dict()
        assert all(np.array_equal(found[name], value) for name, value in module.state_dict().items())
        assert found["0.1.num_batches_tracked"] == 7


def test_a_count_of_batches_that_is_lost_is_missed_as_in_torch():
    module, network, state = without_counts(2)
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.1\.num_batches_tracked"):
        module.load_state_dict(state)
    refuse(ValueError, ["missing keys ['0.1.num_batches_tracked']"], lambda: network.load_state_dict(state))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value.bfloat16(), "Tensor of dtype torch.bfloat16 on device cpu: "),
        (
            lambda value: nn.Parameter(value),
            "Parameter of dtype torch.float32 on device cpu: Can't export tensors that",
        ),
        (lambda value: value.to("meta"), "Tensor of dtype torch.float32 on device meta: "),
    ],
)
def test_tensors_that_numpy_cannot_read_are_named(change, words):
    values = nn.Sequential(nn.Linear(4, 2)).state_dict()
    values["0.bias"] = change(values["0.bias"])
    network = gb.Sequential(layers.Linear(4, 2))
    words = f"parameter 0.bias: expected an array that NumPy can read, got {words}"
    refuse(TypeError, [words], lambda: network.load_state_dict(values))


def test_files_are_those_of_torch(tmp_path):
    files = pytest.importorskip("safetensors.torch")
    module, x = case("residual")
    network, path = from_torch(module, x), tmp_path / "net.safetensors"
    gb.save(network, path)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in files.load_file(path).items())
    files.save_file(MODULES["residual"][0]().state_dict(), path)
    assert not np.array_equal(gb.load(network, path).state_dict()["fc.weight"], module.fc.weight.detach())
