"""Tensors of torch, told by their class's module, without importing torch: each message says what to give instead."""

import subprocess
import sys

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q


class Tensor:
    """What the checks see of a tensor."""

    shape, dtype = (4, 3), "torch.float64"

    def detach(self):
        return self


Tensor.__module__ = "torch"
CE = losses.CrossEntropyLoss()
NET = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
X, Y = np.zeros((4, 3)), np.zeros(4, int)
CALLS = {
    "x": lambda: gb.backward(NET, CE, Tensor(), Y),
    "x of a call": lambda: NET(Tensor()),
    "y": lambda: gb.backward(NET, CE, X, Tensor()),
    "pseudo-targets": lambda: q.KFAC(targets=Tensor()),
    "a parameter": lambda: NET.parameters.update({"0.bias": Tensor()}),
    "a state dict": lambda: NET.load_state_dict({"0.weight": np.zeros((2, 3)), "0.bias": Tensor()}),
    "a vector": lambda: q.Kronecker(None, np.eye(2)).solve(Tensor()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_tensor_of_torch_is_told_what_to_give(call):
    refuse(TypeError, ["got Tensor of torch (give tensor.detach().cpu().numpy())"], call)


def test_torch_is_not_imported():
    code = "import sys, gbackprop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
