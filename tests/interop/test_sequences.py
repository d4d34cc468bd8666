"""Attention, recurrent layers and numbers of torch's modules: what is made of them, there and back, what is refused."""

import math

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import UnsupportedError, layers
from gbackprop.interop import from_torch, to_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_sequences import Doing, Masked, causal  # noqa: E402
from torch_versions import needs  # noqa: E402


def taken(module, *shape):
    torch.manual_seed(0)
    return from_torch(module, torch.randn(3, *shape))


# --------------------------------------------------------------------------------------------------------- what is made


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_layer_is_one_node_and_its_last_state_is_the_last_position(kind):
    def last(m, x):
        h = m.rnn(x)[1]
        return m.fc((h[0] if kind is nn.LSTM else h)[-1])

    network = taken(Doing(last, rnn=kind(3, 4, batch_first=True), fc=nn.Linear(4, 2)), 5, 3)
    expected = gb.Graph(
        {
            "rnn": (getattr(gb, kind.__name__)(3, 4), "input"),
            "select": (layers.Select(1, -1), "rnn"),
            "fc": (layers.Linear(4, 2), "select"),
        }
    )
    assert repr(network) == repr(expected)


def test_dropout_between_layers_and_after_attention_is_taken():
    lstm = nn.LSTM(3, 4, 2, dropout=0.3, bidirectional=True, batch_first=True)
    assert taken(Doing(lambda m, x: m.rnn(x)[0], rnn=lstm), 5, 3).children["rnn"].dropout.p == 0.3
    attention = Doing(lambda m, x: m.attn(x, x, x)[0], attn=nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True))
    assert taken(attention, 5, 4).children["attn"].dropout.p == 0.2


@pytest.mark.parametrize(
    "mask",
    [
        lambda x: torch.full((5, 5), -torch.inf).triu(1),
        lambda x: torch.ones(5, 5).triu(1).bool(),
        causal,
        lambda x: torch.ones((x.size(1), x.size(1))).triu(1) == 1,
    ],
)
def test_a_causal_mask_is_the_layers_argument(mask):
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    module = Doing(lambda m, x: m.attn(x, x, x, attn_mask=mask(x))[0], attn=attention)
    assert repr(taken(module, 5, 4).children["attn"]) == "MultiheadAttention(4, 2, is_causal=True)"


def test_a_mask_by_the_length_of_sequences_fits_other_lengths():
    module = Masked()
    network = taken(module, 5, 4)
    x = torch.randn(2, 8, 4)
    np.testing.assert_allclose(network(x.numpy()), module.eval()(x).detach(), rtol=0, atol=1e-6)


def test_the_tracer_leaves_no_tensors_in_the_module():
    module = Doing(lambda m, x: m.fc(x) * torch.tensor(2.0), fc=nn.Linear(4, 4))
    before = set(vars(module))
    taken(module, 4)
    assert set(vars(module)) == before


def test_a_number_that_is_neutral_makes_no_layer():
    assert list(taken(Doing(lambda m, x: 1 * m.fc(x) + 0, fc=nn.Linear(4, 4)), 4).inputs) == ["fc"]


# ------------------------------------------------------------------------------------------------------- networks, back

NETWORKS = {
    "RNN": gb.RNN(4, 3, 2, "relu", bias=False),
    "LSTM": gb.LSTM(4, 3, 2, bidirectional=True),
    "GRU": gb.GRU(4, 3),
    "attention": gb.MultiheadAttention(4, 2, bias=False),
    "causal attention": gb.MultiheadAttention(4, 2, dropout=0.2, is_causal=True),
    "encoder": gb.TransformerEncoderLayer(4, 2, 5, layer_norm_eps=0.1, norm_first=True),
    "encoder with a layer": gb.TransformerEncoderLayer(4, 2, 5, activation=layers.Softplus(2.0), bias=False),
    "causal encoder": gb.TransformerEncoderLayer(4, 2, 5, activation="gelu", is_causal=True),
    "encoder of another GELU": gb.TransformerEncoderLayer(4, 2, 5, activation=layers.GELU("tanh")),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_sequences_is_a_module_and_that_the_network(name):
    network = gb.Sequential(layers.Linear(4, 4), NETWORKS[name]).astype("float64")
    network.initialize(np.random.default_rng(0))
    module, x = to_torch(network), np.random.default_rng(1).standard_normal((3, 5, 4))
    assert list(module.state_dict()) == list(network.state_dict())
    assert isinstance(module[1], getattr(nn, type(network[1]).__name__))
    with torch.no_grad():  # in which torch has another way to compute encoder layers
        torch.testing.assert_close(module(torch.from_numpy(x)).numpy(), network(x), rtol=1e-11, atol=1e-12)
    again = from_torch(module, x)
    assert repr(again) == repr(network)
    for key, value in network.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[key], value)


def test_a_container_alone_is_a_module():
    network = gb.LSTM(4, 3, rng=0)
    assert list(to_torch(network).state_dict()) == list(network.state_dict())


def test_a_recurrent_layer_at_two_places_is_one_module():
    network = gb.Sequential(gb.Sequential(shared := gb.GRU(4, 4)), layers.Tanh(), shared, rng=0)
    module, x = to_torch(network), np.random.default_rng(1).standard_normal((3, 5, 4), dtype="float32")
    assert list(module.state_dict()) == list(network.state_dict())
    torch.testing.assert_close(module(torch.from_numpy(x)).detach().numpy(), network(x))


class Own(gb.GRU):
    """A recurrent layer of the user's."""


def test_a_container_of_the_users_is_named():
    words = "layer 0, Own(2, 3): torch has no module for it"
    refuse(UnsupportedError, [words], lambda: to_torch(gb.Sequential(Own(2, 3))))


# ------------------------------------------------------------------------------------------------------------- refusals


def lstm(doing, *sizes, **keywords):
    return lambda: Doing(doing, rnn=nn.LSTM(4, *(sizes or (4,)), **{"batch_first": True, **keywords}))


def gru(doing, **keywords):
    return lambda: Doing(doing, rnn=nn.GRU(4, 4, batch_first=True, **keywords), fc=nn.Linear(4, 2))


def attention(doing, heads=2, **keywords):
    return lambda: Doing(doing, attn=nn.MultiheadAttention(4, heads, **{"batch_first": True, **keywords}))


def encoding(doing, change=lambda part: None, **keywords):
    part = nn.TransformerEncoderLayer(4, 2, 5, **{"batch_first": True, **keywords})
    change(part)
    return lambda: Doing(doing, part=part)


class Saved(Masked):
    """A mask in the state dict."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", self.mask)


TAKEN = {
    "projection": lstm(lambda m, x: m.rnn(x)[0], 4, proj_size=2),
    "cell": lstm(lambda m, x: m.rnn(x)[1][1][-1]),
    "initial state": gru(lambda m, x: m.rnn(x, torch.zeros((1, x.size(0), 4)))[0]),
    "mean of states": gru(lambda m, x: m.rnn(x)[1].mean(0)),
    "lower layer": gru(lambda m, x: m.rnn(x)[1][0], num_layers=2),
    "another value": attention(lambda m, x: m.attn(x, x, value=-x)[0]),
    "a key of zeros": attention(lambda m, x: m.attn(x, x, x)[0], add_zero_attn=True),
    "finite mask": attention(lambda m, x: m.attn(x, x, x, attn_mask=torch.full((5, 5), -1e3).triu(1))[0]),
    "saved mask": Saved,
    "layer, dropouts": encoding(lambda m, x: m.part(x), lambda part: setattr(part.dropout2, "p", 0.5)),
    "layer, activation": encoding(lambda m, x: m.part(x), activation=lambda x: x * x),
    "decoder layer": lambda: Doing(
        lambda m, x: m.part(x, x), part=nn.TransformerDecoderLayer(4, 2, 5, batch_first=True)
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", TAKEN)
def test_modules_that_are_called_otherwise_than_layers_are_taken_by_their_functions(name):
    if name == "cell":
        needs(2, 13)
    torch.manual_seed(0)
    module, x = TAKEN[name]().eval(), torch.randn(3, 5, 4)
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=0, atol=1e-5)


PLACES = "expected that each sample is mapped by itself"
OUTPUT = "module (the whole), Doing: expected the samples alone as axis 0 of its output"
REFUSED = {
    "batch not first": (lstm(lambda m, x: m.rnn(x)[0], batch_first=False), "expected code for any number of samples"),
    "states of one number of samples": (
        lstm(lambda m, x: m.rnn(x, (torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)))[0]),
        "expected code for any number of samples",
    ),
    "states as output": (gru(lambda m, x: m.rnn(x)[1]), OUTPUT),
    "attention among samples": (
        attention(lambda m, x: m.attn(x, x, x)[0], batch_first=False),
        "module attn, MultiheadAttention: MultiheadAttention, batch_first: expected True, got False",
    ),
    "a function's attention among samples": (
        lambda: Doing(lambda m, x: nn.functional.scaled_dot_product_attention(*3 * [m.fc(x[:, 0])[None]])[0],
                      fc=nn.Linear(4, 4)), "got attention among samples"),
    "no input": (lambda: Doing(lambda m, x: torch.ones(3, 2)), "module (the whole), Doing: its output does not depend"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_of_a_sequence_is_named(name):
    make, words = REFUSED[name]
    torch.manual_seed(0)
    refuse(UnsupportedError, [words], lambda: from_torch(make(), torch.randn(3, 5, 4)))


def test_numbers_of_the_data_are_refused():
    module = Doing(lambda m, x: m.fc(x) * math.sqrt(torch.sigmoid(m.fc(x).detach())), fc=nn.Linear(1, 1))
    with pytest.raises((UnsupportedError, ValueError)):
        from_torch(module, torch.ones(1, 1))
