"""Bad hyperparameters, state dicts and devices: errors that name them, in time."""

import sys
import weakref

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.base import errors

X = np.random.default_rng(1).standard_normal((4, 3))


def mlp():
    return gb.Sequential(layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 2), rng=0, dtype="float64")


# ------------------------------------------------------------------------------------------------------ hyperparameters

L, NAN = layers, float("nan")
HYPERPARAMETERS = [
    (lambda: L.Linear(0, 1), ["in_features", "0"]),
    (lambda: L.Linear(2.0, 1), ["in_features", "2.0"]),
    (lambda: L.Linear(2, -1), ["out_features", "-1"]),
    (lambda: L.Conv2d(0, 1, 1), ["in_channels", "0"]),
    (lambda: L.Conv2d(1, True, 1), ["out_channels", "True"]),
    (lambda: L.Conv2d(1, 1, 0), ["kernel_size", "0"]),
    (lambda: L.Conv2d(1, 1, (1, 2, 3)), ["kernel_size", "2 of them", "(1, 2, 3)"]),
    (lambda: L.Conv2d(1, 1, 1.5), ["kernel_size", "1.5"]),
    (lambda: L.Conv2d(1, 1, np.array(3)), ["kernel_size", "array(3)"]),
    (lambda: L.Conv2d(1, 1, 1, stride=0), ["stride", "0"]),
    (lambda: L.Conv2d(1, 1, 1, padding=-1), ["padding", "-1"]),
    (lambda: L.Conv2d(1, 1, 1, padding="full"), ["padding", "'valid' or 'same'", "'full'"]),
    (lambda: L.Conv2d(1, 1, 3, stride=2, padding="same"), ["padding", "'same'", "stride"]),
    (lambda: L.Conv2d(1, 1, 1, dilation=(1, 0)), ["dilation", "0"]),
    (lambda: L.Conv2d(3, 4, 1, groups=2), ["groups", "3 and 4", "2"]),
    (lambda: L.Conv2d(2, 2, 1, groups=0), ["groups", "0"]),
    (lambda: L.Conv1d(1, 1, 1, padding_mode="mirror"), ["padding_mode", "'zeros'", "reflect", "'mirror'"]),
    (lambda: L.Conv1d(1, 1, (1, 2)), ["kernel_size", "1 of them", "(1, 2)"]),
    (lambda: L.MaxPool2d(0), ["kernel_size", "0"]),
    (lambda: L.MaxPool2d(2, stride=0), ["stride", "0"]),
    (lambda: L.MaxPool2d(2, padding=2), ["padding", "half of kernel_size (2, 2)", "got (2, 2)"]),
    (lambda: L.MaxPool2d(3, padding=2, dilation=2), ["padding", "half of kernel_size (3, 3)", "got (2, 2)"]),
    (lambda: L.AvgPool2d(3, padding=(0, 2)), ["padding", "half", "(0, 2)"]),
    (lambda: L.AvgPool2d(2, divisor_override=0), ["divisor_override", "0"]),
    (lambda: L.AvgPool2d(2, divisor_override="2"), ["divisor_override", "'2'"]),
    (lambda: L.AvgPool2d(2, divisor_override=NAN), ["divisor_override", "nan"]),
    (lambda: L.AdaptiveAvgPool2d((1, 2, 3)), ["output_size", "2 of them", "(1, 2, 3)"]),
    (lambda: L.AdaptiveMaxPool1d(0), ["output_size", "0"]),
    (lambda: L.AdaptiveMaxPool3d((1, None, "2")), ["output_size", "'2'"]),
    (lambda: L.ConvTranspose1d(1, 1, 2, 2, output_padding=2), ["output_padding", "less than stride", "2"]),
    (lambda: L.ConvTranspose2d(3, 4, 1, groups=2), ["groups", "3 and 4", "2"]),
    (lambda: L.BatchNorm1d(0), ["num_features", "0"]),
    (lambda: L.BatchNorm1d(2, eps=-1.0), ["eps", "-1.0"]),
    (lambda: L.BatchNorm1d(2, momentum="0.1"), ["momentum", "'0.1'"]),
    (lambda: L.BatchNorm2d(2, track_running_stats=False), ["track_running_stats", "True", "batch"]),
    (lambda: L.Scale(0), ["num_parameters", "0"]),
    (lambda: L.Scale(init=NAN), ["init", "nan"]),
    (lambda: L.ZeroPad2d((1, 2)), ["padding", "(left, right, top, bottom)", "(1, 2)"]),
    (lambda: L.ZeroPad2d(1.5), ["padding", "1.5"]),
    (lambda: L.ZeroPad2d(True), ["padding", "True"]),
    (lambda: L.ZeroPad1d((1, 2, 3)), ["padding", "(left, right)", "(1, 2, 3)"]),
    (lambda: L.ConstantPad3d((1, 2), 0), ["padding", "front, back", "(1, 2)"]),
    (lambda: L.ConstantPad1d(1, NAN), ["value", "nan"]),
    (lambda: L.ReflectionPad2d((0, 1, -1, 0)), ["padding", "at least 0", "-1"]),
    (lambda: L.Embedding(0, 1), ["num_embeddings", "0"]),
    (lambda: L.Embedding(2, 1, padding_idx=2), ["padding_idx", "2"]),
    (lambda: L.Embedding(2, 1, padding_idx=-3), ["padding_idx", "-3"]),
    (lambda: L.PixelShuffle(0), ["upscale_factor", "0"]),
    (lambda: L.PixelUnshuffle(1.5), ["downscale_factor", "1.5"]),
    (lambda: L.Unflatten(0, (1, 2)), ["dim", "batch"]),
    (lambda: L.Unflatten(1, (-1, -1)), ["unflattened_size", "at most one", "(-1, -1)"]),
    (lambda: L.Unflatten(1, 4), ["unflattened_size", "4"]),
    (lambda: L.Permute((1, 0)), ["dims", "expected 0 and then", "(1, 0)"]),
    (lambda: L.Permute((0, 2)), ["dims", "(0, 2)"]),
    (lambda: L.Slice(0, 1), ["dim", "batch"]),
    (lambda: L.Slice(1, 0.5), ["start", "0.5"]),
    (lambda: L.Slice(1, step=-1), ["step", "-1"]),
    (lambda: L.Select(1, True), ["index", "True"]),
    (lambda: L.Upsample(), ["size, scale_factor", "one of the two"]),
    (lambda: L.Upsample(2, 2), ["size, scale_factor", "one of the two"]),
    (lambda: L.Upsample(2, mode="linear"), ["mode", "'nearest'", "'linear'"]),
    (lambda: L.Upsample(scale_factor=0), ["scale_factor", "above 0", "0"]),
    (lambda: L.Flatten(0), ["start_dim", "batch"]),
    (lambda: L.Flatten("1"), ["start_dim", "'1'"]),
    (lambda: L.Flatten(1, 2.5), ["end_dim", "2.5"]),
    (lambda: L.LeakyReLU(NAN), ["negative_slope", "finite number", "nan"]),
    (lambda: L.Threshold("0", 1.0), ["threshold", "finite number", "'0'"]),
    (lambda: L.Threshold(0.0, None), ["value", "finite number", "None"]),
    (lambda: L.Hardtanh(1.0, 1.0), ["max_val", "above min_val = 1.0", "got 1.0"]),
    (lambda: L.Softshrink(-0.5), ["lambd", "at least 0", "-0.5"]),
    (lambda: L.ELU(True), ["alpha", "finite number", "True"]),
    (lambda: L.CELU(0), ["alpha", "at least 1e-38 in size", "got 0"]),
    (lambda: L.Softplus(beta=0.0), ["beta", "other than 0", "got 0.0"]),
    (lambda: L.Softplus(threshold=float("inf")), ["threshold", "finite number", "inf"]),
    (lambda: L.GELU("erf"), ["approximate", "'none' or 'tanh'", "'erf'"]),
    (lambda: L.PReLU(0), ["num_parameters", "at least 1", "0"]),
    (lambda: L.PReLU(init=[0.1]), ["init", "finite number", "[0.1]"]),
    (lambda: L.Softmax(), ["dim", "None", "give it"]),
    (lambda: L.LogSoftmax(0), ["dim", "after the batch axis", "got 0"]),
    (lambda: L.Softmax(1.0), ["dim", "after the batch axis", "got 1.0"]),
    (lambda: L.Dropout(1.5), ["p", "[0, 1]", "1.5"]),
    (lambda: L.Dropout(NAN), ["p", "[0, 1]", "nan"]),
    (lambda: L.Dropout("0.5"), ["p", "[0, 1]", "'0.5'"]),
    (lambda: losses.CrossEntropyLoss("none"), ["CrossEntropyLoss", "reduction", "'mean' or 'sum'", "'none'"]),
    (lambda: losses.MSELoss(reduction=None), ["MSELoss", "reduction", "None"]),
    (lambda: gb.Sequential(layers.Linear(1, 1), dtype="float16"), ["dtype", "float64", "float16"]),
    (lambda: gb.Sequential(layers.Linear(1, 1), dtype="double precision"), ["dtype", "double precision"]),
    (lambda: gb.Sequential(gb.Sequential(L.Linear(1, 1), rng=0), dtype="float64"), ["dtype", "0.0", "float32"]),
    (lambda: gb.Sequential(layers.Linear(1, 1), [layers.ReLU()]), ["layer 1", "Layer", "[ReLU()]"]),
    (lambda: gb.Sequential(layers.ReLU), ["layer 0", "Layer", "ReLU"]),
]


@pytest.mark.parametrize(("construct", "words"), HYPERPARAMETERS, ids=range(len(HYPERPARAMETERS)))
def test_hyperparameters_are_checked_at_once(construct, words):
    refuse((ValueError, TypeError), words, construct)


# ---------------------------------------------------------------------------------------------------------- state dicts

STATES = {
    "unknown": ({"9.bias": np.ones(2)}, ValueError, ["unknown", "'9.bias'", "'2.bias'"]),
    "missing": ({"2.bias": None}, ValueError, ["missing", "'2.bias'"]),
    "shape": ({"2.bias": np.ones(3)}, ValueError, ["parameter 2.bias", "(2,)", "(3,)"]),
    "transposed": ({"2.weight": np.ones((4, 2))}, ValueError, ["parameter 2.weight", "(2, 4)", "(4, 2)"]),
    "ints": ({"2.bias": np.ones(2, int)}, TypeError, ["parameter 2.bias", "floats", "int64"]),
    "complex": ({"2.bias": np.ones(2, complex)}, TypeError, ["parameter 2.bias", "floats", "complex128"]),
    "list": ({"2.bias": [1.0, 1.0]}, TypeError, ["parameter 2.bias", "array", "list"]),
    "NaN": ({"2.bias": np.array([1, np.nan])}, ValueError, ["parameter 2.bias", "got NaN or infinity"]),
    "infinity": ({"2.bias": np.array([-np.inf, 1])}, ValueError, ["parameter 2.bias", "got NaN or infinity"]),
}
TOO_LARGE = np.array([1.0, -1e300])


@pytest.mark.parametrize(("change", "error", "words"), STATES.values(), ids=STATES)
def test_nothing_is_loaded_from_a_bad_state_dict(change, error, words):
    network = mlp()
    before = network.state_dict()
    state = {name: value + 1 for name, value in before.items()} | change
    state = {name: value for name, value in state.items() if value is not None}
    refuse(error, words, lambda: network.load_state_dict(state))
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(value, before[name])


def test_numbers_beyond_the_range_of_the_dtype_are_refused_by_parameter():
    network = mlp().astype("float32")
    before, words = network.state_dict(), ["parameter 2.bias", "range of float32", "got -1e+300"]
    refuse(ValueError, words, lambda: network.load_state_dict(before | {"0.bias": np.ones(4), "2.bias": TOO_LARGE}))
    refuse(ValueError, words, lambda: network.parameters.update({"2.bias": TOO_LARGE}))
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(value, before[name])
    wide = mlp()
    wide.parameters["2.bias"] = TOO_LARGE
    refuse(ValueError, words, lambda: wide.astype("float32"))
    assert {value.dtype.name for value in wide.parameters.values()} == {"float64"}
    assert wide[0].dtype == "float64"


@pytest.mark.parametrize("value", [1.0, [0.0, 0.0], np.ones(3), np.ones(2, int), np.full(2, np.nan)])
def test_assigning_a_bad_parameter(value):
    network = mlp()
    refuse((TypeError, ValueError), ["parameter 2.bias"], lambda: network.parameters.update({"2.bias": value}))


def test_parameters_cannot_be_added_or_deleted():
    parameters = mlp().parameters
    refuse(KeyError, ["9.weight"], lambda: parameters.update({"9.weight": np.ones(2)}))
    refuse(TypeError, ["parameter 2.bias", "deleted"], lambda: parameters.pop("2.bias"))


# -------------------------------------------------------------------------------------------------------------- devices


NETWORKS = pytest.mark.parametrize("network", [mlp(), gb.Sequential(layers.ReLU())], ids=["parameters", "none"])


@NETWORKS
def test_cuda_without_cupy(monkeypatch, network):
    monkeypatch.setitem(sys.modules, "cupy", None)
    extras = "install gbackprop[cuda12x] or gbackprop[cuda13x]"
    refuse(RuntimeError, ["'cuda'", "CuPy", extras], lambda: network.to("cuda"))
    refuse(RuntimeError, ["'cuda:1'", "CuPy"], lambda: gb.asarray(X, "cuda:1"))
    assert {gb.array.device_of(value) for value in network.parameters.values()} <= {"cpu"}


@NETWORKS
@pytest.mark.parametrize("device", ["gpu", "CUDA", "cuda:x", "cuda:-1", "", 0, None])
def test_unknown_devices(network, device):
    refuse((ValueError, TypeError), ["device", "cuda", repr(device)], lambda: network.to(device))


def test_naming_once_and_with_its_cause():
    expected = pytest.raises(gb.TooLargeError, match=r"^inner: out of memory \(full\)$")
    with expected as caught, errors.naming(lambda: "outer"), errors.naming(lambda: "inner"):
        raise MemoryError("full")
    assert repr(caught.value.__cause__) == "MemoryError('full')"


@pytest.mark.parametrize("chained", [True, False])
def test_release_lets_go_of_what_the_whole_chain_holds(chained):
    class Large:
        pass

    def fails(seen):
        held = Large()
        seen.append(weakref.ref(held))
        raise MemoryError

    seen = []
    try:
        try:
            fails(seen)
        except MemoryError as error:
            raise ValueError from error if chained else None
    except ValueError as error:
        errors.release(error)
        assert seen[0]() is None
