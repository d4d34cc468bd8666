"""Ten steps of a network with batch normalization, here and in torch: parameters and running statistics agree."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses, optim
from gbackprop.interop import from_torch

torch = pytest.importorskip("torch")
nn = torch.nn


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
