"""Buffers: the running statistics of batch normalization in state dicts, copies, conversions and moves."""

import copy

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers

NAMES = ["running_mean", "running_var", "num_batches_tracked"]
X = np.random.default_rng(0).standard_normal((3, 2))


def network(dtype="float64"):
    inner = gb.Sequential(layers.BatchNorm1d(4), layers.ReLU())
    return gb.Sequential(layers.Linear(2, 4), inner, layers.BatchNorm1d(4, affine=False), rng=0, dtype=dtype)


def trained():
    """As torch's state dict of such a network has it, in its order."""
    rng = np.random.default_rng(1)
    state = {"0.weight": rng.standard_normal((4, 2)), "0.bias": rng.standard_normal(4)}
    state |= {"1.0.weight": rng.random(4), "1.0.bias": rng.random(4)}
    for path in ("1.0", "2"):
        statistics = [rng.standard_normal(4), rng.random(4) + 0.5, np.array(7)]
        state |= {f"{path}.{name}": value for name, value in zip(NAMES, statistics, strict=True)}
    return state


def by_hand(x, s):
    x = x @ s["0.weight"].T + s["0.bias"]
    x = (x - s["1.0.running_mean"]) / np.sqrt(s["1.0.running_var"] + 1e-5) * s["1.0.weight"] + s["1.0.bias"]
    return (np.maximum(x, 0) - s["2.running_mean"]) / np.sqrt(s["2.running_var"] + 1e-5)


def test_a_state_dict_of_torch_loads_as_it_is_and_comes_back_in_its_order():
    state, net = trained(), network()
    assert net.load_state_dict(state) is net
    np.testing.assert_allclose(net(X), by_hand(X, state), rtol=1e-12)
    found = net.state_dict()
    assert list(found) == list(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name] is not value
    state["1.0.running_mean"] += 1  # the caller's own array
    np.testing.assert_array_equal(net.buffers["1.0.running_mean"], found["1.0.running_mean"])


def test_at_first_they_are_those_of_a_standard_normal():
    buffers = network("float32").buffers
    assert list(buffers) == [f"{path}.{name}" for path in ("1.0", "2") for name in NAMES]
    assert [value.dtype.name for value in buffers.values()] == ["float32", "float32", "int64"] * 2
    assert [np.unique(value).tolist() for value in buffers.values()] == [[0], [1], [0]] * 2
    assert not network().parameters.keys() & buffers.keys()


def test_a_channel_that_never_varied_has_variance_zero():
    state = trained() | {"2.running_var": np.array([0.0, 1.0, 2.0, 3.0])}
    net = network().load_state_dict(state)
    np.testing.assert_allclose(net(X), by_hand(X, state), rtol=1e-12)
    state["2.running_var"][0] = -1e-300
    with pytest.raises(ValueError, match="running_var: expected a variance of at least 0, got -1e-300"):
        network().load_state_dict(state)


def test_an_assignment_changes_the_layer():
    net = network()
    net.buffers["2.running_var"] = np.full(4, 9.0)
    np.testing.assert_array_equal(net[2].buffers["running_var"], np.full(4, 9.0))


def test_a_state_dict_from_before_batches_were_counted_leaves_the_counts():
    state, net = trained(), network()
    net.load_state_dict(state)
    old = {name: 2 * value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    found = net.load_state_dict(old).state_dict()
    assert found["1.0.num_batches_tracked"] == found["2.num_batches_tracked"] == 7
    assert all(np.array_equal(found[name], value) for name, value in old.items())


BROKEN = {
    "missing": (lambda s: s.pop("1.0.running_var"), ValueError, r"missing keys \['1.0.running_var'\]"),
    "unknown": (lambda s: s.update({"0.running_var": np.ones(4)}), ValueError, r"unknown keys \['0.running_var'\]"),
    "shape": (
        lambda s: s.update({"2.running_mean": np.ones(3)}), ValueError,
        r"buffer 2.running_mean: expected shape \(4,\), got \(3,\)",
    ),
    "a count in floats": (
        lambda s: s.update({"2.num_batches_tracked": np.ones(())}), TypeError,
        "buffer 2.num_batches_tracked: expected an array of integers, got float64",
    ),
    "a mean in integers": (
        lambda s: s.update({"2.running_mean": np.ones(4, int)}), TypeError,
        "buffer 2.running_mean: expected an array of floats, got int64",
    ),
    "no array": (lambda s: s.update({"2.running_mean": [0.0] * 4}), TypeError, "buffer 2.running_mean: .* got list"),
    "not finite": (
        lambda s: s.update({"2.running_var": np.full(4, np.inf)}), ValueError,
        "buffer 2.running_var: expected finite numbers, got NaN or infinity",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_state_dict_changes_nothing(change, error, message):
    net, state = network(), trained()
    before = net.state_dict()
    change(state)
    with pytest.raises(error, match=message):
        net.load_state_dict(state)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_copy_has_its_own():
    net = network().load_state_dict(trained())
    twin = copy.deepcopy(net)
    twin.buffers["2.running_mean"] = np.zeros(4)
    assert net.buffers["2.running_mean"].any()


def test_a_conversion_converts_floats_alone_and_names_a_buffer_out_of_range():
    net = network().load_state_dict(trained())
    before = net.state_dict()
    for dtype in ("float32", "float64"):
        net.astype(dtype)
        assert [value.dtype.name for value in net.buffers.values()] == [dtype, dtype, "int64"] * 2
        for name, value in net.buffers.items():
            np.testing.assert_array_equal(value, before[name].astype("float32") if value.ndim else 7)
    largest = {"2.running_var": [1e300] * 4, "2.running_mean": [1e301, -1e302, 0, 1]}
    for name, numbers in largest.items():
        net.buffers[name], got = np.array(numbers), rf"{numbers[1]:.3g}".replace("+", r"\+")
        with pytest.raises(ValueError, match=f"buffer {name}: expected numbers within the range of float32, got {got}"):
            net.astype("float32")
    assert {value.dtype.name for value in net.parameters.values()} == {"float64"}


def test_they_move_with_the_network(gpu):
    net = network().load_state_dict(trained())
    before, state = net(X), net.state_dict()
    net.to(gpu)
    for name, value in net.buffers.items():
        assert gb.asnumpy(value).dtype == state[name].dtype
        assert type(value) is type(net.parameters["0.weight"])
    np.testing.assert_allclose(gb.asnumpy(net(gb.asarray(X, gpu))), before, rtol=1e-12)
    net.load_state_dict(state)  # from the host, to where the network is
    assert type(net.buffers["2.running_mean"]) is type(net.parameters["0.weight"])
    np.testing.assert_array_equal(net.to("cpu")(X), before)


def test_a_negative_variance_is_refused_by_name():
    network = gb.Sequential(layers.BatchNorm1d(2), rng=0)
    words = "buffer 0.running_var: expected a variance of at least 0, got -1"
    with pytest.raises(ValueError, match=words):
        network.load_state_dict(network.state_dict() | {"0.running_var": np.array([1.0, -1.0])})
    with pytest.raises(ValueError, match=words):
        network.buffers["0.running_var"] = np.array([-1.0, 0.0])
    assert (network.buffers["0.running_var"] == 1).all()
