"""Arrays of other libraries in state dicts, by the DLPack protocol."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers


class Foreign:
    """An array of another library, which shows nothing but the protocol."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Half(Foreign):
    """One that is of a dtype that NumPy lacks."""

    dtype, device = "bfloat16", "cpu"

    def __dlpack__(self, **options):
        raise BufferError("no such dtype")


VALUES = {"0.weight": np.arange(6.0).reshape(3, 2).T, "0.bias": np.array([1.0, 2.0]), "1.running_var": np.ones(2)}
VALUES |= {"1.running_mean": np.zeros(2), "1.num_batches_tracked": np.array(7)}
FOREIGN = {name: Foreign(value) for name, value in VALUES.items()}


def network():
    return gb.Sequential(layers.Linear(3, 2), layers.BatchNorm1d(2, affine=False), rng=0)


def test_a_state_dict_of_another_library_is_loaded():
    loaded = network().load_state_dict(FOREIGN).state_dict()
    for name, value in VALUES.items():
        np.testing.assert_array_equal(loaded[name], value)
    assert loaded["0.weight"].dtype == "float32"


def test_the_network_has_copies():
    foreign = Foreign(np.ones(2, "float32"))
    net = network().load_state_dict({**FOREIGN, "0.bias": foreign})
    foreign.values[:] = 5
    np.testing.assert_array_equal(net.parameters["0.bias"], 1)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (Foreign(np.ones(3)), ValueError, r"^parameter 0\.bias: expected shape \(2,\), got \(3,\)$"),
        (Foreign(np.ones(2, int)), TypeError, r"^parameter 0\.bias: expected an array of floats, got int64$"),
        (
            Half(np.ones(2)),
            TypeError,
            r"^parameter 0\.bias: expected an array that NumPy can read, "
            r"got Half of dtype bfloat16 on device cpu: no such dtype$",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(value, error, words):
    net = network()
    before = net.state_dict()
    with pytest.raises(error, match=words):
        net.load_state_dict({**FOREIGN, "0.bias": value})
    assert all(np.array_equal(before[name], value) for name, value in net.state_dict().items())


def test_a_tensor_that_is_negated_as_it_is_read_is_loaded_as_it_is_read():
    torch = pytest.importorskip("torch")
    value, net = torch.complex(torch.zeros(2), torch.tensor([1.0, 2.0])).conj().imag, network()
    assert value.is_neg()
    net.parameters["0.bias"] = value
    np.testing.assert_array_equal(net.parameters["0.bias"], [-1, -2])
    loaded = network().load_state_dict({**FOREIGN, "0.bias": value})
    np.testing.assert_array_equal(loaded.parameters["0.bias"], [-1, -2])
