"""`gb.save` and `gb.load`: what is written is read, and what cannot be read is named with its file."""

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers
from gbackprop.base.files import OutputError

safetensors = pytest.importorskip("safetensors.numpy")


def network(seed=0, dtype="float32", features=3):
    net = gb.Sequential(
        gb.Residual(layers.Linear(features, features), layers.BatchNorm1d(features)), rng=seed, dtype=dtype
    )
    net.buffers["0.1.running_mean"] = np.full(features, seed + 0.5)
    return net


def same(one, other):
    return [np.array_equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def test_parameters_and_buffers_are_those_that_were_saved(path):
    saved, loaded = network(seed=1), network(seed=2)
    gb.save(saved, path)
    assert gb.load(loaded, path) is loaded
    assert list(loaded.state_dict()) == list(saved.state_dict())
    assert all(same(saved.state_dict(), loaded.state_dict()))


def test_the_file_has_the_names_of_the_state_dict(path):
    gb.save(network(), path)
    values = safetensors.load_file(path)
    assert set(values) == set(network().state_dict())
    assert all(same(values, network().state_dict()))


def test_arrays_that_are_not_contiguous_are_saved_as_they_are(path):
    net = network()
    net.children["0"].children["0"].parameters["weight"] = np.arange(9, dtype="float32").reshape(3, 3).T
    gb.save(net, path)
    np.testing.assert_array_equal(safetensors.load_file(path)["0.0.weight"], [[0, 3, 6], [1, 4, 7], [2, 5, 8]])


def test_the_numbers_become_of_the_networks_dtype(path):
    gb.save(network(), path)
    loaded = gb.load(network(seed=1, dtype="float64"), path)
    assert loaded.parameters["0.0.weight"].dtype == "float64"
    np.testing.assert_array_equal(loaded.parameters["0.0.weight"], network().parameters["0.0.weight"])


def test_a_network_on_a_gpu_is_saved_from_there_and_loaded_there(path, gpu):
    gb.save(network().to(gpu), path)
    loaded = gb.load(network(seed=1).to(gpu), path)
    values = {name: gb.asnumpy(value) for name, value in loaded.state_dict().items()}
    assert all(same(values, network().state_dict()))


BAD = {
    "other names": (lambda: {"0.0.weight": np.zeros((3, 3))}, "state dict: unknown keys [], missing keys ['0.0.bias'"),
    "another shape": (network(features=2).state_dict, "parameter 0.0.weight: expected shape (3, 3), got (2, 2)"),
    "not finite": (
        lambda: {**network().state_dict(), "0.0.bias": np.full(3, np.nan)},
        "parameter 0.0.bias: expected finite numbers",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_misfit_is_named_with_the_file_and_nothing_is_loaded(path, case):
    values, words = BAD[case]
    safetensors.save_file(values(), path)
    net = network()
    refuse(ValueError, [f"{path}: {words}"], lambda: gb.load(net, path))
    assert all(same(net.state_dict(), network().state_dict()))


def test_integers_for_floats_are_named_with_the_file(path):
    safetensors.save_file({**network().state_dict(), "0.0.bias": np.zeros(3, int)}, path)
    words = f"{path}: parameter 0.0.bias: expected an array of floats, got int64"
    refuse(TypeError, [words], lambda: gb.load(network(), path))


def test_another_kind_of_file_is_named(path):
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(ValueError, match=r"net\.npy: not a safetensors file, or damaged"):
        gb.load(network(), path.with_suffix(".npy"))


def test_a_dtype_that_numpy_lacks_is_named_with_the_file(path):
    header = b'{"0.0.weight":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(TypeError, match=r"net\.safetensors: .*BF16"):
        gb.load(network(), path)


def test_a_file_that_is_missing_is_named(path):
    with pytest.raises(FileNotFoundError, match=r"net\.safetensors"):
        gb.load(network(), path)


def test_a_folder_that_is_missing_is_named_and_nothing_is_drawn(path):
    net = gb.Sequential(layers.Linear(2, 2))
    words = f"{path.parent / 'no'}: no such folder to write net.safetensors to"
    refuse(OutputError, [words], lambda: gb.save(net, path.parent / "no" / path.name))
    assert net[0].drawn is None


@pytest.mark.parametrize("call", [gb.network.save, gb.load])
def test_what_is_no_network_is_refused(path, call):
    refuse(TypeError, ["network: expected a network such as gb.Sequential, got dict"], lambda: call({}, path))
