"""Bad arguments of a call: an error that names what was expected and what came, before anything is computed."""

import re
import types

import numpy as np
import pytest
from refusals import refuse, watched_forwards

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

N = 4
CE, MSE, BCE = losses.CrossEntropyLoss(), losses.MSELoss(), losses.BCEWithLogitsLoss()
X = np.random.default_rng(1).standard_normal((N, 3))
Y, Z = np.array([0, 1, 1, 0]), np.zeros((N, 2))


def mlp():
    inner = gb.Sequential(layers.ReLU(), layers.Linear(4, 2))
    return gb.Sequential(layers.Linear(3, 4), inner, rng=0, dtype="float64")


def above_conv(layer):
    """A layer above a sound convolution of 4 x 4 images of one channel."""
    return gb.Sequential(layers.Conv2d(1, 2, 3, padding=1), layer, rng=0, dtype="float64")


def framed(padding, mode):
    """A convolution with a frame that is not of zeros."""
    return layers.Conv2d(2, 1, 1, padding=padding, padding_mode=mode)


def test_a_computation_would_be_noticed():
    with watched_forwards() as calls:
        gb.backward(mlp(), CE, X, Y)
        above_conv(layers.Flatten())(np.ones((N, 1, 4, 4)))
    assert [type(layer).__name__ for layer in calls] == ["Linear", "ReLU", "Linear", "Conv2d", "Flatten"]


# ------------------------------------------------------------------------------------------------------------- features

MISFIT = gb.Sequential(layers.Linear(3, 4), gb.Sequential(layers.Tanh(), layers.Linear(5, 2)), dtype="float64")
FEATURES = [
    (mlp(), (2,), ["layer 0, Linear(3, 4)", "(…, 3)", "(2,)"]),
    (mlp(), (), ["layer 0, Linear(3, 4)", "(…, 3)", "()"]),
    (MISFIT, (3,), ["layer 1.1, Linear(5, 2)", "(…, 5)", "(4,)"]),
    (above_conv(layers.ReLU()), (2, 4, 4), ["layer 0, Conv2d", "(1, H, W)", "(2, 4, 4)"]),
    (above_conv(layers.ReLU()), (1, 4), ["layer 0, Conv2d", "(1, H, W)", "(1, 4)"]),
    (above_conv(layers.Conv2d(2, 1, 5)), (1, 4, 4), ["layer 1, Conv2d", "at least 5", "axis -2", "4"]),
    (above_conv(framed(4, "reflect")), (1, 4, 4), ["layer 1, Conv2d", "at most 3", "axis -2", "(4, 4)"]),
    (above_conv(framed(5, "circular")), (1, 4, 4), ["layer 1, Conv2d", "at most 4", "axis -2", "(5, 5)"]),
    (above_conv(layers.Conv1d(2, 1, 1)), (1, 4, 4), ["layer 1, Conv1d", "(2, W)", "(2, 4, 4)"]),
    (above_conv(layers.MaxPool2d((1, 5))), (1, 4, 4), ["layer 1, MaxPool2d", "at least 5", "axis -1", "4"]),
    (above_conv(layers.AvgPool2d(5)), (1, 4, 4), ["layer 1, AvgPool2d", "at least 5", "4"]),
    (above_conv(layers.ZeroPad2d(-2)), (1, 4, 4), ["layer 1, ZeroPad2d", "(2, 4, 4)"]),
    (above_conv(layers.ZeroPad2d((5, -5, 0, 0))), (1, 4, 4), ["layer 1, ZeroPad2d", "(2, 4, 4)"]),
    (above_conv(layers.ZeroPad2d((0, 0, -5, 5))), (1, 4, 4), ["layer 1, ZeroPad2d", "(2, 4, 4)"]),
    (above_conv(layers.PixelShuffle(2)), (1, 4, 4), ["layer 1, PixelShuffle(2)", "multiple of 4", "(2, 4, 4)"]),
    (above_conv(layers.PixelUnshuffle(3)), (1, 4, 4), ["layer 1, PixelUnshuffle(3)", "multiples of 3", "(2, 4, 4)"]),
    (above_conv(layers.Unflatten(1, (3, -1))), (1, 4, 4), ["layer 1, Unflatten", "splits", "(2, 4, 4)"]),
    (above_conv(layers.Permute((0, 2, 1))), (1, 4, 4), ["layer 1, Permute", "2 axes", "(2, 4, 4)"]),
    (above_conv(layers.Slice(1, 2)), (1, 4, 4), ["layer 1, Slice", "2:", "(2, 4, 4)"]),
    (above_conv(layers.Select(-4, 0)), (1, 4, 4), ["layer 1, Select", "axis -4", "(2, 4, 4)"]),
    (above_conv(layers.Select(3, 4)), (1, 4, 4), ["layer 1, Select", "index 4", "(2, 4, 4)"]),
    (above_conv(layers.Upsample(scale_factor=0.2)), (1, 4, 4), ["layer 1, Upsample", "(0, 0)", "(2, 4, 4)"]),
    (above_conv(layers.Upsample(size=(1, 2, 3))), (1, 4, 4), ["layer 1, Upsample", "3 axes", "(2, 4, 4)"]),
    (above_conv(layers.ConvTranspose2d(2, 1, 1, padding=2)), (1, 4, 4), ["layer 1, ConvTranspose2d", "(0, 0)"]),
    (above_conv(layers.BatchNorm1d(2)), (1, 4, 4), ["layer 1, BatchNorm1d(2)", "(2, W)", "(2, 4, 4)"]),
    (gb.Sequential(layers.InstanceNorm2d(2)), (2, 1, 1), ["layer 0, InstanceNorm2d(2)", "two numbers", "(2, 1, 1)"]),
    (above_conv(layers.Scale(3)), (1, 4, 4), ["layer 1, Scale(3)", "(3, …)", "(2, 4, 4)"]),
    (above_conv(layers.ReflectionPad2d(4)), (1, 4, 4), ["layer 1, ReflectionPad2d", "at most 3", "(4, 4)"]),
    (above_conv(layers.Flatten(3, 4)), (1, 4, 4), ["layer 1, Flatten", "3 to 4", "(2, 4, 4)"]),
]


@pytest.mark.parametrize(("network", "shape", "words"), FEATURES)
def test_features_that_do_not_fit_name_the_layer(network, shape, words):
    x = np.ones((N, *shape))
    refuse(ValueError, words, lambda: network(x))
    refuse(ValueError, words, lambda: gb.backward(network, MSE, x, x, q.DiagGGN()))


def test_a_lone_layer_is_named_too():
    x = np.ones((N, 2), np.float32)
    refuse(ValueError, ["layer (alone), Linear(3, 2)", "(2,)"], lambda: gb.backward(layers.Linear(3, 2), MSE, x, x))


# --------------------------------------------------------------------------------------------------------- x, y, losses

FOREIGN = types.SimpleNamespace(dtype="int64", shape=(N,))  # an array of some other library
BAD_BATCHES = {
    "sizes differ": (CE, X, Y[:3], ValueError, ["y of CrossEntropyLoss", "4 samples", "(3,)"]),
    "sizes differ, other loss": (MSE, X, Z[:3], ValueError, ["y of MSELoss", "4 samples", "(3, 2)"]),
    "empty": (CE, X[:0], Y[:0], ValueError, ["x", "at least one sample", "(0, 3)"]),
    "no batch axis": (CE, np.array(1.0), Y, ValueError, ["x", "batch", "()"]),
    "x a list": (CE, X.tolist(), Y, TypeError, ["x", "array", "list"]),
    "x of ints": (CE, np.ones((N, 3), int), Y, TypeError, ["x", "float32 or float64", "int64"]),
    "x of halves": (CE, X.astype(np.float16), Y, TypeError, ["x", "float32 or float64", "float16"]),
    "x complex": (CE, X + 0j, Y, TypeError, ["x", "float32 or float64", "complex128"]),
    "x of another dtype": (CE, X.astype("f4"), Y, TypeError, ["x", "float64", "0.weight", "float32", "net.astype"]),
    "x with NaN": (CE, X * [1, np.nan, 1], Y, ValueError, ["x", "finite", "NaN"]),
    "x with infinity": (CE, X - np.array([0, 0, np.inf]), Y, ValueError, ["x", "finite", "infinity"]),
    "y a list": (CE, X, Y.tolist(), TypeError, ["y of CrossEntropyLoss", "array", "list"]),
    "y None": (CE, X, None, TypeError, ["y of CrossEntropyLoss", "array", "NoneType"]),
    "y foreign": (CE, X, FOREIGN, TypeError, ["y of CrossEntropyLoss", "array", "SimpleNamespace"]),
    "labels float": (CE, X, Y * 1.0, TypeError, ["y of CrossEntropyLoss", "integer", "float64"]),
    "labels bool": (CE, X, Y == 1, TypeError, ["y of CrossEntropyLoss", "integer", "bool"]),
    "label too large": (CE, X, Y + 1, ValueError, ["y of CrossEntropyLoss", "0 to 1", "got 2"]),
    "label negative": (CE, X, Y - 1, ValueError, ["y of CrossEntropyLoss", "0 to 1", "got -1"]),
    "label to ignore": (CE, X, Y - 100, ValueError, ["0 to 1", "got -100", "ignore_index=-100 leaves such labels out"]),
    "one-hot labels": (CE, X, Z.astype(int), ValueError, ["y of CrossEntropyLoss", "(4,)", "target.argmax(1)"]),
    "targets of another shape": (MSE, X, np.zeros((N, 3)), ValueError, ["y of MSELoss", "(4, 2)", "(4, 3)"]),
    "targets that would broadcast": (MSE, X, np.zeros((N, 1)), ValueError, ["y of MSELoss", "(4, 2)", "(4, 1)"]),
    "targets of ints": (MSE, X, Z.astype(int), TypeError, ["y of MSELoss", "float32 or float64", "int64"]),
    "targets of another dtype": (BCE, X, Z.astype(np.float32), TypeError, ["y of BCE", "float64", "x", "float32"]),
    "targets with NaN": (MSE, X, Z * np.nan, ValueError, ["y of MSELoss", "finite", "NaN"]),
    "targets with infinity": (BCE, X, Z + np.inf, ValueError, ["y of BCE", "finite", "infinity"]),
    "probability above 1": (BCE, X, Z + 1.5, ValueError, ["y of BCE", "[0, 1]", "1.5"]),
    "probability below 0": (BCE, X, Z - 0.5, ValueError, ["y of BCE", "[0, 1]", "-0.5"]),
    "labels without positions": (CE, np.ones((N, 5, 3)), Y, ValueError, ["CrossEntropyLoss", "(4, 2)", "(4, 5, 2)"]),
}


@pytest.mark.parametrize(("loss", "x", "y", "error", "words"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_bad_batch(loss, x, y, error, words):
    network = mlp()
    refuse(error, words, lambda: gb.backward(network, loss, x, y, q.DiagGGN(), q.KFRA()))


@pytest.mark.parametrize("loss", [MSE, BCE])
def test_outputs_without_a_number(loss):
    x, y = np.ones((N, 0, 3)), np.ones((N, 0, 2))
    refuse(ValueError, [type(loss).__name__, "(4, 0, 2)"], lambda: gb.backward(mlp(), loss, x, y))


@pytest.mark.parametrize("x", [X.tolist(), X.astype(np.float32), X[:0], X * np.nan, X[0, 0], np.ones((N, 3), int)])
def test_calling_a_network_checks_its_input(x):
    refuse((TypeError, ValueError), ["x"], lambda: mlp()(x))


@pytest.mark.parametrize(("output", "words"), [(X.tolist(), ["list"]), (Y, ["int64"]), (X.astype("f4"), ["float32"])])
def test_calling_a_loss_checks_both(output, words):
    refuse(TypeError, words, lambda: MSE(output, X))


@pytest.mark.parametrize("call", [gb.backward, lambda network, *given: network(given[1])])
@pytest.mark.parametrize(("frozen", "calls"), [(False, 2), (True, 2), (False, 0), (True, 0)])
@pytest.mark.parametrize(
    ("value", "words"),
    [(np.zeros(shape), ["parameter 0.bias", "(4,)", str(shape)]) for shape in ((1,), (), (N, 4), (1, 4))]
    + [([0.0] * 4, ["parameter 0.bias", "array", "list"])],
    ids=str,
)
def test_a_parameter_of_another_shape_that_broadcasts(call, frozen, calls, value, words):
    network = gb.Sequential(layers.Linear(3, 4), layers.Linear(4, 2), rng=0, dtype="float64")
    network.freeze(*["0.bias"] * frozen)
    for _ in range(calls):
        call(network, CE, X, Y)
    network[0].parameters["bias"] = value
    with pytest.raises((TypeError, ValueError)) as caught:
        call(network, CE, X, Y)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_a_matrix_as_a_parameter_of_the_first_call(call):
    network = gb.Sequential(layers.Linear(3, 11), layers.Linear(11, 2), rng=0, dtype="float64")
    network[0].parameters["weight"] = network[0].parameters["weight"].view(np.matrix)
    words = ["parameter 0.weight: expected a NumPy or CuPy array, got matrix"]
    refuse(TypeError, words, lambda: call(network, CE, X, Y))


@pytest.mark.parametrize("shape", [(1,), (), (N, 3)])
def test_a_draw_of_another_shape(shape):
    class Wrong(layers.PReLU):
        def draw(self, rng):
            return {"weight": np.ones(shape)}

    network = gb.Sequential(layers.Linear(3, 3), Wrong(3), rng=0, dtype="float64")
    with pytest.raises(ValueError, match=re.escape(f"parameter 1.weight: expected shape (3,), got {shape}")):
        gb.backward(network, CE, X, Y)


def test_parameters_of_two_dtypes():
    drawn = gb.Sequential(layers.Linear(3, 4), rng=0, dtype="float64")
    network = gb.Sequential(drawn, layers.Linear(4, 2), rng=0)
    words = ["parameter 1.weight", "float64", "0.0.weight", "float32", "net.astype converts all"]
    refuse(TypeError, words, lambda: gb.backward(network, CE, X, Y))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["0.weight", "1.1.bias"])
def test_parameters_that_are_not_finite(name, value):
    network = mlp()
    network.parameters[name][..., 1] = value
    refuse(ValueError, [f"parameter {name}", "finite"], lambda: gb.backward(network, CE, X, Y))
    refuse(ValueError, [f"parameter {name}", "finite"], lambda: network(X))


# ----------------------------------------------------------------------------------------------------- NaN and infinity

SQUASHING = [layers.ReLU(), layers.Sigmoid(), layers.Tanh(), layers.MaxPool2d(2), layers.Dropout()]
SQUASHING += [layers.Threshold(1.5, 0.5), layers.Hardtanh(), layers.Hardsigmoid(), layers.Hardshrink(2.0)]
SQUASHING += [layers.Softshrink(2.0), layers.ELU(), layers.PReLU(), layers.Softplus(), layers.Softsign(), layers.GELU()]
SQUASHING += [layers.Softmax(-1), layers.LogSoftmax(1)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layer", SQUASHING, ids=repr)
def test_infinity_does_not_come_out_as_a_plausible_number(layer, value):
    x = np.ones((N, 1, 2, 2), np.float32)
    y = layer.forward(x)[0]
    x[1, 0, 1, 0] = value
    refuse(ValueError, ["x", "finite"], lambda: gb.Sequential(layer)(x))
    refuse(ValueError, ["x", "finite"], lambda: gb.backward(layer, MSE, x, y))


@pytest.mark.parametrize("layer", [*SQUASHING, layers.AvgPool2d(2), layers.Flatten(), layers.ZeroPad2d(1)], ids=repr)
def test_nan_that_arises_inside_passes_through(layer):
    x = np.ones((2, 1, 2, 2))
    x[1, 0, 1, 0] = np.nan
    y, saved = layer.forward(x)
    assert [np.isnan(sample).any() for sample in y] == [False, True]
    assert np.isnan(layer.mjp(saved, np.full((1, *y.shape), np.nan))).any()


@pytest.mark.parametrize("pool", [layers.MaxPool2d(2), layers.AvgPool2d(2)], ids=repr)
def test_derivatives_do_not_vanish_beside_nan(pool):
    x = np.ones((1, 1, 2, 4))
    x[0, 0, 1, 0] = np.nan
    saved = pool.forward(x)[1]
    assert pool.mjp(saved, np.ones((1, 1, 1, 1, 2))).sum() == 2  # each window passes its derivative on


def test_infinity_that_arises_inside_reaches_the_loss():
    network = gb.Sequential(layers.Linear(1, 2), layers.ReLU(), layers.Linear(2, 1), rng=0, dtype="float64")
    for value in network.parameters.values():
        value[...] = 1e200
    with np.errstate(all="ignore"):
        result = gb.backward(network, MSE, np.full((1, 1), 1e200), np.zeros((1, 1)))
    assert not np.isfinite(result.loss)
    assert not np.isfinite(result.gradient["0.weight"]).any()


def test_a_maximum_over_padding_alone_is_refused():
    # windows 1 x 2, two pixels apart: they see the padding left and right of a single column
    network = gb.Sequential(layers.MaxPool2d((1, 2), padding=(0, 1), dilation=2), layers.ReLU())
    refuse(ValueError, ["layer 0, MaxPool2d"], lambda: network(np.ones((1, 1, 2, 1))))


# ------------------------------------------------------------------------------------------------------ other arguments


@pytest.mark.parametrize("wrong", ["kfac", [q.KFAC()], None])
def test_quantities_of_another_kind(wrong):
    words = ["quantity 1", "Quantity", repr(wrong)]
    refuse(TypeError, words, lambda: gb.backward(mlp(), CE, X, Y, q.KFLR(), wrong))


def test_a_class_instead_of_an_instance():
    network = mlp()
    refuse(TypeError, ["quantity 0", "KFAC", "call the class"], lambda: gb.backward(network, CE, X, Y, q.KFAC))
    refuse(TypeError, ["loss", "call the class"], lambda: gb.backward(network, losses.CrossEntropyLoss, X, Y))
    refuse(TypeError, ["layer 1", "call the class"], lambda: gb.Sequential(layers.Linear(2, 2), layers.ReLU))
    refuse(TypeError, ["quantity 0", "KFAC", "call the class"], lambda: gb.accumulate(network, CE, [(X, Y)], q.KFAC))
    refuse(TypeError, ["loss", "Loss", "MSELoss"], lambda: gb.backward(network, losses.MSELoss, X, Z))
    refuse(TypeError, ["network", "Layer", "ReLU"], lambda: gb.backward(layers.ReLU, CE, X, Y))


@pytest.mark.parametrize("wrong", ["network", "loss", "quantity 0"])
def test_an_array_in_the_place_of_another_argument_is_shown_by_its_shape(wrong):
    given = {"network": mlp(), "loss": CE, "x": X, "y": Y, "quantity 0": q.KFLR()} | {wrong: X}
    words = [f"{wrong}: expected a", f"got an array of shape {X.shape}"]
    refuse(TypeError, words, lambda: gb.backward(*given.values()))


@pytest.mark.parametrize("argument", ["sample_block", "column_block", "workers"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2"])
def test_blocks_are_positive_integers(argument, value):
    words = [argument, "integer", repr(value)]
    refuse(ValueError, words, lambda: gb.backward(mlp(), CE, X, Y, **{argument: value}))


@pytest.mark.parametrize("rng", ["seed", 1.5])
def test_rng_of_another_kind(rng):
    refuse(TypeError, [str(rng)], lambda: gb.backward(mlp(), CE, X, Y, q.KFAC(), rng=rng))


def test_names_in_a_result():
    asked = q.DiagGGN(), q.DiagGGNMC(1), q.DiagGGNMC(2)
    result = gb.backward(mlp(), CE, X, Y, *asked, rng=0)
    refuse(KeyError, ["'variance'", "DiagGGN()"], lambda: result["variance"])
    refuse(KeyError, ["as DiagGGNMC(mc_samples=3)", "DiagGGN()"], lambda: result[q.DiagGGNMC(3)])
    refuse(KeyError, ["2 quantities", "'diag_ggn_mc'", "index by quantity"], lambda: result["diag_ggn_mc"])
    assert not np.array_equal(result[asked[1]]["0.bias"], result[asked[2]]["0.bias"])
    found = [key in result for key in ("diag_ggn", "variance", asked[2], q.DiagGGNMC(2), q.DiagGGNMC(3), 3)]
    assert found == [True, False, True, True, False, False]


def test_an_equal_quantity_finds_the_result():
    targets = np.array([[0, 1, 1, 0]])
    asked = [q.DiagGGN(), q.KFAC(), q.KFAC(3), q.DiagGGNMC(targets=targets)]
    result = gb.backward(mlp(), CE, X, Y, *asked, rng=0)
    for one, other in zip(asked, [q.DiagGGN(), q.KFAC(mc_samples=1), q.KFAC(3), q.DiagGGNMC(targets=targets)]):
        assert result[other] is result[one]
    words = ["no quantity", "DiagGGNMC(mc_samples=1, targets=…)", "other arguments", "the object that was passed"]
    refuse(KeyError, words, lambda: result[q.DiagGGNMC(targets=targets.copy())])
    assert q.KFLR() not in result


def test_a_users_quantity_is_told_apart_by_its_arguments():
    class Power(q.DiagGGN):
        def __init__(self, power):
            self.power = power

        def finish(self, scale, square):
            return square**self.power[0]

    one, other, array = Power([1]), Power([2]), Power([X, X])
    result = gb.backward(mlp(), CE, X, Y, one, other, q.DiagGGN())
    assert result[Power([2])] is result[other]
    np.testing.assert_array_equal(result[Power([1])]["0.bias"] ** 2, result[other]["0.bias"])
    assert Power([3]) not in result
    assert Power([X.copy(), X]) not in gb.Result(result.loss, result.output, {}, (array,), ({},))


def test_an_instance_asked_for_twice_is_still_found():
    twice = q.DiagGGN()
    result = gb.backward(mlp(), CE, X, Y, twice, twice)
    assert set(result[twice]) == set(result.gradient)
    assert result["diag_ggn"] is result[twice]  # equal ones have equal results
