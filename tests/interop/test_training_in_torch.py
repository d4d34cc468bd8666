"""Ten steps of a network with batch normalization, here and in torch: parameters and running statistics agree."""

import random

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import UnsupportedError, losses, optim
from gbackprop.interop import from_torch, to_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402
from torch_sequences import Doing  # noqa: E402


@pytest.mark.parametrize("momentum", [0.1, None])
def test_ten_steps_are_those_of_torch(momentum):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, momentum=momentum), nn.ReLU(), nn.Flatten(),
        nn.Linear(48, 5), nn.BatchNorm1d(5, momentum=momentum), nn.Tanh(), nn.Linear(5, 2)
    ).double()  # fmt: skip
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((6, 1, 6, 6)) + i, rng.integers(0, 2, 6)) for i in range(10)]
    network = from_torch(module.eval(), batches[0][0])
    ours, theirs = optim.SGD(network, lr=0.1, momentum=0.9), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module.train()
    for x, y in batches:
        ours.step(gb.backward(network, losses.CrossEntropyLoss(), x, y, training=True))
        theirs.zero_grad()
        nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
        theirs.step()
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(network.state_dict()[name], value.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    x = batches[0][0]
    np.testing.assert_allclose(network(x), module.eval()(torch.tensor(x)).detach().numpy(), rtol=1e-9)


class Frozen(nn.Sequential):
    """A chain of which the first layer stays in evaluation mode."""

    def train(self, mode=True):
        super().train(mode)
        self[0].eval()
        return self


class Refusing(nn.Module):
    """A module that asks for targets in training mode."""

    def forward(self, x, targets=None):
        if self.training and targets is None:
            raise ValueError("targets are needed")
        return x * 2


class OfRunningStatistics(nn.BatchNorm1d):
    """A batch norm that takes no statistics of a batch."""

    def forward(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


class Kept(nn.Module):
    """A batch norm with statistics under names of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("middle", torch.ones(4))
        self.register_buffer("width", torch.ones(4) * 2)

    def forward(self, x):
        return F.batch_norm(x.mT, self.middle, self.width, training=self.training).mT


def attention(dropout):
    return nn.MultiheadAttention(4, 2, dropout=dropout, batch_first=True)


def noisy(m, x):
    return x + torch.randn_like(x) if m.training else x


def with_state(m, x):
    return m.rnn(x, x.new_zeros(2, x.shape[0], 4))[0]


def of_dropped_weights(m, x):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5 if m.training else 0.0)


class Deleting(nn.Module):
    """It has no longer its buffer in training mode."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("b", torch.arange(4.0))

    def forward(self, x):
        y = x * self.b
        if self.training:
            self.b = None
        return y


APART = {
    "attention to others": (lambda: Doing(lambda m, x: m.a(x, x.flip(1), x.flip(1))[0], a=attention(0.5)),
                            "module a, MultiheadAttention: draws random numbers"),
    "attention below a mask": (lambda: Doing(lambda m, x: m.a(x, x, x, attn_mask=torch.eye(5).bool())[0],
                                             a=attention(0.5)), "module a, MultiheadAttention: draws random numbers"),
    "attention as a function": (lambda: Doing(of_dropped_weights), "draws random numbers"),
    "given state": (lambda: Doing(with_state, rnn=nn.GRU(4, 4, 2, dropout=0.9, batch_first=True)),
                    "module rnn, GRU: draws random numbers"),
    "whole channels": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout1d(0.5)), "module 1, Dropout1d: draws"),
    "alpha": (lambda: nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.5)), "module 1, AlphaDropout: draws"),
    "Python's noise": (lambda: Doing(lambda m, x: x * random.random() if m.training else x),
                       "draws random numbers of Python or NumPy in training mode alone"),
    "NumPy's noise": (lambda: Doing(lambda m, x: x * np.random.rand() if m.training else x),  # noqa: NPY002
                      "draws random numbers of Python or NumPy in training mode alone"),
    "noise": (lambda: Doing(noisy), "draws random numbers (randn_like) in training mode alone"),
    "other p": (lambda: Doing(lambda m, x: F.dropout(x, 0.25 if m.training else 0.5, m.training)),
                "drops numbers with p = 0.25 in training mode alone"),
    "never drops": (lambda: Doing(lambda m, x: F.dropout(x, 0.5, False)), "p = 0.5 in evaluation mode alone"),
    "never its own mean": (lambda: nn.Sequential(OfRunningStatistics(5)),
                           "module 0, OfRunningStatistics: normalizes as a batch norm in evaluation mode alone"),
    "statistics of no layer": (Kept, "a batch norm has running statistics that are no layer's"),
    "other code": (lambda: Doing(lambda m, x: x * 2 if m.training else x), "the module computes something else"),
    "frozen layer": (lambda: Frozen(nn.BatchNorm1d(5), Doing(lambda m, x: x * x)),
                     "module 0, BatchNorm1d: is left in evaluation mode by the module's own train()"),
    "targets": (Refusing, "the module raises an error: targets are needed"),
    "buffer deleted": (lambda: Deleting(5), "Deleting: changes its buffer b in training mode, which is not taken"),
    "power iteration": (lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4), n_power_iterations=50)),
                        "_SpectralNorm: changes its buffer _u in training mode, which is not taken"),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_a_module_does_in_training_mode_alone_is_refused_there(name):
    make, words = APART[name]
    torch.manual_seed(0)
    module, x = make().double().eval(), torch.randn(6, 5, 4, dtype=torch.float64)
    state = torch.random.get_rng_state()
    network = from_torch(module, x)
    assert torch.equal(torch.random.get_rng_state(), state)
    y = np.zeros((6, 5, 4))
    np.testing.assert_allclose(network(x.numpy()), module(x).detach(), rtol=1e-9, atol=1e-12)
    gb.backward(network, losses.MSELoss(), x.numpy(), y)
    for call in (gb.backward, gb.reference):
        with pytest.raises(UnsupportedError) as caught:
            call(network, losses.MSELoss(), x.numpy(), y, training=True, rng=0)
        assert str(caught.value).startswith("training=True is not supported: ")
        assert words in str(caught.value)
    assert not module.training


ALIKE = {
    "dropout": lambda: Doing(lambda m, x: F.dropout(m.drop(x), 0.5, m.training), drop=nn.Dropout(0.1)),
    "no dropout": lambda: Doing(lambda m, x: m.a(x, x.flip(1), x.flip(1))[0], a=attention(0.0)),
    "self-attention": lambda: Doing(lambda m, x: m.a(x, x, x)[0], a=attention(0.5)),
    "recurrent": lambda: Doing(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)),
    "batch norm": lambda: Doing(lambda m, x: m.n(x) + x, n=nn.BatchNorm1d(5)),
    "encoder": lambda: Doing(lambda m, x: m.e(x) + x, e=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_dropout_and_batch_norms_of_layers_are_those_of_training_mode(name):
    torch.manual_seed(0)
    module, x = ALIKE[name]().double(), torch.randn(6, 5, 4, dtype=torch.float64)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    network = from_torch(module, x)
    assert network.evaluation_only == ""
    losses_found = [gb.backward(network, losses.MSELoss(), x.numpy(), np.zeros((6, 5, 4)), training=True, rng=rng).loss
                    for rng in range(3)]  # fmt: skip
    assert len(set(losses_found)) == (1 if name in ("no dropout", "batch norm") else 3)
    assert module.training
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


TWICE = {
    "dropout": lambda: Doing(lambda m, x: m.d(x) - m.d(x), d=nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))),
    "dropout of a function": lambda: Doing(lambda m, x: F.dropout(x, 0.5, m.training) - F.dropout(x, 0.5, m.training)),
    "states and outputs": lambda: Doing(lambda m, x: m.rnn(x)[1][-1][:, None] - m.rnn(x)[0][:, -1:],
                                        rnn=nn.GRU(4, 4, 2, dropout=0.5, batch_first=True)),
    "encoder": lambda: Doing(lambda m, x: m.e(x) - m.e(x), e=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_two_calls_on_one_input_drop_other_numbers_in_training_mode(name):
    torch.manual_seed(0)
    module, x = TWICE[name]().double(), torch.randn(6, 5, 4, dtype=torch.float64)
    network = from_torch(module, x)
    outputs = [gb.backward(network, losses.MSELoss(), x.numpy(), network(x.numpy()), training=training, rng=0).output
               for training in (False, True)]  # fmt: skip
    assert abs(outputs[0]).max() < 1e-12
    assert abs(outputs[1]).max() > 0.1


def test_a_batch_norm_that_is_called_twice_on_one_input_takes_its_statistics_twice():
    x = np.random.default_rng(0).standard_normal((6, 3)) + 2
    module = Doing(lambda m, x: m.n(x) * torch.tanh(m.n(x)), n=nn.BatchNorm1d(3)).double()
    networks = from_torch(module, x), from_torch(to_torch(from_torch(module, x)), x)
    module.train()(torch.tensor(x))
    for network in networks:
        gb.backward(network, losses.MSELoss(), x, np.zeros((6, 3)), training=True)
        for name, value in module.state_dict().items():
            np.testing.assert_allclose(network.state_dict()[name], value.numpy(), rtol=1e-12, err_msg=name)


class Decaying(nn.Module):
    """A module that changes a parameter, a tensor and a number in training mode."""

    def __init__(self):
        super().__init__()
        self.fc, self.mean, self.calls = nn.Linear(4, 4), torch.ones(4), 0

    def forward(self, x):
        if self.training:
            self.fc.weight.data = self.fc.weight / 2
            self.mean += 1
            self.calls += 1
        return self.fc(x) + self.mean


def test_a_module_is_not_changed_by_its_training_mode():
    torch.manual_seed(0)
    module, x = Decaying().eval(), torch.randn(5, 4)
    with torch.no_grad():
        before = module(x)
    network = from_torch(module, x)
    assert "training mode" in network.evaluation_only
    assert module.calls == 0
    assert torch.equal(module(x), before)
