"""Networks: names, shapes, initial values, state dicts, updates in place, and the shapes that a network can have."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

MSE = losses.MSELoss()


def convnet(**options):
    return gb.Sequential(
        gb.Sequential(layers.Conv2d(1, 2, (3, 2), bias=False), layers.Sigmoid()),
        gb.Sequential(layers.MaxPool2d(2), layers.Conv2d(2, 4, 1, groups=2)),
        layers.Flatten(),
        layers.Linear(4, 3),
        **options,
    )


IMAGES = np.random.default_rng(2).standard_normal((5, 1, 4, 3)).astype(np.float32)


# --------------------------------------------------------------------------------------------------- names and defaults


def test_names_and_shapes_are_torchs():
    assert convnet().parameter_shapes() == {
        "0.0.weight": (2, 1, 3, 2),
        "1.1.weight": (4, 1, 1, 1),
        "1.1.bias": (4,),
        "3.weight": (3, 4),
        "3.bias": (3,),
    }
    network = convnet()
    for view in (network.parameters, network.state_dict(), gb.backward(network, MSE, IMAGES, IMAGES[:, 0, 0]).gradient):
        assert {name: value.shape for name, value in view.items()} == network.parameter_shapes()
        assert list(view) == list(network.parameter_shapes())  # in this order


def test_defaults_are_torchs():
    x = np.ones((2, 1, 5, 5), np.float32)
    assert layers.Conv2d(1, 2, 3).output_shape(x.shape[1:]) == (2, 3, 3)
    for layer in (layers.Conv2d(1, 2, 3), layers.Linear(1, 1)):
        assert list(layer.parameter_shapes()) == ["weight", "bias"]
    assert layers.MaxPool2d(2).output_shape(x.shape[1:]) == (1, 2, 2)  # the stride is the kernel, rounded down
    padded = layers.AvgPool2d(3, padding=1).forward(x)[0]
    np.testing.assert_allclose(padded[0, 0, 0, 0], 4 / 9, rtol=1e-6)  # the padding counts
    assert layers.Flatten().output_shape((2, 3, 4)) == (24,)
    assert layers.Dropout().p == 0.5
    assert [loss().reduction for loss in (losses.CrossEntropyLoss, losses.MSELoss)] == ["mean", "mean"]


@pytest.mark.parametrize("bias", [True, False])
def test_layers_without_bias_have_none(bias):
    for layer in (layers.Linear(2, 3, bias=bias), layers.Conv2d(2, 3, 2, bias=bias)):
        assert ("bias" in layer.parameter_shapes()) == bias


# ------------------------------------------------------------------------------------------------------- initial values


@pytest.mark.parametrize(
    ("layer", "fan_in"), [(layers.Linear(16, 400), 16), (layers.Conv2d(8, 400, (2, 1), groups=4), 4)], ids=repr
)
def test_initial_values_fill_torchs_interval(layer, fan_in):
    for name, value in gb.Sequential(layer, rng=3).parameters.items():
        bound = fan_in**-0.5
        assert value.min() >= -bound, name
        assert value.max() <= bound, name
        assert value.min() < -0.97 * bound, name
        assert value.max() > 0.97 * bound, name
        assert abs(value.mean()) < 0.1 * bound, name


def same(one, other):
    return [np.array_equal(one.parameters[name], other.parameters[name]) for name in one.parameters]


def test_same_seed_same_weights():
    assert all(same(convnet(rng=0), convnet(rng=0)))
    assert all(same(convnet(rng=0), convnet(rng=np.random.default_rng(0))))
    assert not any(same(convnet(rng=0), convnet(rng=1)))
    assert not any(same(convnet(), convnet()))  # without a seed: fresh entropy


def test_layers_are_drawn_one_after_the_other_whatever_the_nesting():
    flat = gb.Sequential(layers.Linear(2, 2), layers.Linear(2, 2), rng=0).parameters
    nested = gb.Sequential(gb.Sequential(layers.Linear(2, 2)), layers.Linear(2, 2), rng=0).parameters
    assert not np.array_equal(flat["0.weight"], flat["1.weight"])
    np.testing.assert_array_equal(flat["0.weight"], nested["0.0.weight"])
    np.testing.assert_array_equal(flat["1.bias"], nested["1.bias"])


def test_a_generator_goes_on_where_it_was():
    rng = np.random.default_rng(0)
    first, second = gb.Sequential(layers.Linear(2, 2), rng=rng), gb.Sequential(layers.Linear(2, 2), rng=rng)
    assert not any(same(first, second))


def test_without_rng_drawn_at_first_need_and_then_kept():
    layer = layers.Linear(2, 2)
    network = gb.Sequential(layer)
    assert layer.drawn is None
    once = network.parameters["0.weight"].copy()
    np.testing.assert_array_equal(network.parameters["0.weight"], once)


def test_an_outer_rng_draws_what_is_not_drawn_yet_and_nothing_else():
    drawn = gb.Sequential(layers.Linear(2, 2), rng=1)
    loaded = gb.Sequential(layers.Linear(2, 2)).load_state_dict({"0.weight": np.ones((2, 2)), "0.bias": np.ones(2)})
    lazy = gb.Sequential(layers.Linear(2, 2))
    network = gb.Sequential(drawn, loaded, lazy, rng=0)
    np.testing.assert_array_equal(
        network.parameters["0.0.weight"], gb.Sequential(layers.Linear(2, 2), rng=1).parameters["0.weight"]
    )
    np.testing.assert_array_equal(network.parameters["1.0.bias"], np.ones(2))
    np.testing.assert_array_equal(
        network.parameters["2.0.weight"], gb.Sequential(layers.Linear(2, 2), rng=0).parameters["0.weight"]
    )


def test_dtypes_and_their_draws():
    assert {value.dtype.name for value in convnet(rng=0).parameters.values()} == {"float32"}
    wide, narrow = convnet(rng=0, dtype="float64"), convnet(rng=0, dtype=np.float32)
    for name, value in wide.parameters.items():
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value.astype(np.float32), narrow.parameters[name])
    inner = gb.Sequential(layers.Linear(2, 2))
    assert gb.Sequential(inner, dtype="float64").parameters["0.0.bias"].dtype == np.float64


# ---------------------------------------------------------------------------------------------------------- state dicts


def test_state_dict_is_a_copy_and_loading_copies():
    network = convnet(rng=0)
    before, state = network(IMAGES), network.state_dict()
    for value in state.values():
        value += 1
    np.testing.assert_array_equal(network(IMAGES), before)
    network.load_state_dict(state)
    after = network(IMAGES)
    assert not np.allclose(after, before)
    for value in state.values():
        value += 1
    np.testing.assert_array_equal(network(IMAGES), after)


def test_a_state_dict_moves_from_network_to_network():
    one, other = convnet(rng=0), convnet(rng=1)
    assert other.load_state_dict(one.state_dict()) is other
    np.testing.assert_array_equal(one(IMAGES), other(IMAGES))
    assert one.parameters["3.bias"] is not other.parameters["3.bias"]
    one.load_state_dict(one.parameters)  # its own: nothing changes
    assert all(same(one, other))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_loading_casts_to_the_networks_dtype(dtype):
    network = convnet(rng=0, dtype="float64")
    state = {name: value.astype(dtype) for name, value in network.state_dict().items()}
    for name, value in network.load_state_dict(state).parameters.items():
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value, state[name])


# ------------------------------------------------------------------------------------------------------- another dtype


def test_a_network_is_converted_in_place_and_back():
    network, wide = convnet(rng=0), convnet(rng=0, dtype="float64")
    x, y = IMAGES, np.ones((5, 3), np.float32)
    before = network.state_dict()
    assert network.astype(np.float64) is network
    result = gb.backward(network, MSE, x.astype(float), y.astype(float), q.DiagGGN())
    assert {value.dtype.name for value in (*result.gradient.values(), *result["diag_ggn"].values())} == {"float64"}
    for name, value in network.astype("float32").parameters.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, before[name])
    for name, value in wide.astype("float32").parameters.items():
        np.testing.assert_array_equal(value, before[name])


def test_what_is_not_drawn_yet_is_drawn_in_the_new_dtype():
    network = convnet().astype("float64")
    assert network[3].drawn is None
    assert {value.dtype.name for value in network.parameters.values()} == {"float64"}


def test_other_arrays_of_a_layer_are_converted_if_they_are_floats():
    network = gb.Sequential(layers.Linear(2, 2), rng=0)
    network[0].parameters.update(mean=np.ones(2, np.float32), count=np.array(3))
    network.astype("float64")
    assert network[0].parameters["mean"].dtype == np.float64
    assert network[0].parameters["count"].dtype.kind == "i"


@pytest.mark.parametrize("dtype", ["float16", int, complex, None, "many"])
def test_a_network_has_no_other_dtype(dtype):
    with pytest.raises(ValueError, match="dtype: expected float32 or float64, got"):
        convnet(rng=0).astype(dtype)


# ----------------------------------------------------------------------------------------------------------- parameters


def test_update_in_place_is_a_descent_step():
    network = convnet(rng=0, dtype="float64")
    x, y = IMAGES.astype(float), np.ones((5, 3))
    before = gb.backward(network, MSE, x, y)
    arrays = dict(network.parameters)
    for name, gradient in before.gradient.items():
        network.parameters[name] -= 0.1 * gradient
    assert gb.backward(network, MSE, x, y).loss < before.loss
    assert all(network.parameters[name] is value for name, value in arrays.items())


def test_assignment_copies_and_casts():
    network, other = convnet(rng=0), convnet(rng=1, dtype="float64")
    network.parameters["3.bias"] = other.parameters["3.bias"]
    assert network.parameters["3.bias"].dtype == np.float32
    np.testing.assert_allclose(network.parameters["3.bias"], other.parameters["3.bias"], rtol=1e-6)
    kept = np.zeros(3, np.float32)
    network.parameters["3.bias"] = kept
    before = network(IMAGES)
    network.parameters["3.bias"] += 1
    np.testing.assert_array_equal(kept, 0)
    np.testing.assert_allclose(network(IMAGES), before + 1, rtol=1e-6)


def test_an_outer_network_sees_an_inner_ones_update():
    inner = gb.Sequential(layers.Linear(2, 2), rng=0)
    outer = gb.Sequential(inner, layers.ReLU())
    inner.parameters["0.bias"] = np.array([7.0, 8.0])
    np.testing.assert_array_equal(outer.parameters["0.0.bias"], [7, 8])


def test_parameters_are_a_mapping():
    parameters = convnet().parameters
    assert len(parameters) == 5
    assert ("3.bias" in parameters, "9.bias" in parameters) == (True, False)
    assert "'3.bias': ((3,), 'float32')" in repr(parameters)


# ------------------------------------------------------------------------------------------------ what a network can be

REPRESENTED = [
    layers.Linear(2, 3, bias=False),
    layers.Conv2d(2, 4, (3, 1), stride=2, padding=(1, 0), dilation=(1, 2), groups=2, bias=False),
    layers.Conv2d(2, 4, 3, padding="same"),
    layers.MaxPool2d(3, 2, padding=1, dilation=2, ceil_mode=True),
    layers.AvgPool2d(2, 1, padding=1, ceil_mode=True, count_include_pad=False, divisor_override=3),
    layers.ZeroPad2d((1, 2, 3, -1)),
    layers.Flatten(2, -1),
    layers.Dropout(0.25),
    gb.Sequential(layers.Sigmoid(), gb.Sequential(layers.Tanh(), layers.ReLU()), layers.Identity(), layers.Flatten()),
]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (layers.LayerNorm(4), "LayerNorm(4)"),
        (layers.LayerNorm(4, eps=0.25), "LayerNorm(4, eps=0.25)"),
        (layers.GroupNorm(2, 4, eps=0.0), "GroupNorm(2, 4, eps=0.0)"),
        (layers.InstanceNorm1d(4), "InstanceNorm1d(4)"),
    ],
    ids=str,
)
def test_a_usual_eps_is_left_out(layer, words):
    assert repr(layer) == words


def test_what_is_added_on_one_side_may_be_cropped_on_the_other():
    assert layers.ZeroPad2d((1, -1, 0, 0)).output_shape((1, 1, 1)) == (1, 1, 1)
    assert layers.ZeroPad2d((1, -1, 0, 0)).forward(np.ones((1, 1, 1, 1)))[0].tolist() == [[[[0.0]]]]


@pytest.mark.parametrize("layer", REPRESENTED, ids=lambda layer: type(layer).__name__)
def test_repr_says_how_to_build_it(layer):
    twin = eval(repr(layer), {**vars(layers), "Sequential": gb.Sequential})
    assert repr(twin) == repr(layer)
    shape = (5, 2) if isinstance(layer, layers.Linear) else (2, 9, 8)
    assert twin.output_shape(shape) == layer.output_shape(shape)
    assert twin.parameter_shapes() == layer.parameter_shapes()


def test_a_sequential_is_a_sequence():
    first, last = layers.ReLU(), layers.Tanh()
    network = gb.Sequential(first, last)
    assert (len(network), list(network), network[0], network[-1]) == (2, [first, last], first, last)


def test_a_lone_layer_is_a_network():
    layer, x, y = layers.Linear(3, 2), np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    result = gb.backward(layer, MSE, x, y, q.DiagHessian(), q.KFRA())
    assert list(result.gradient) == ["weight", "bias"]
    wrapped = gb.backward(gb.Sequential(layer), MSE, x, y, q.DiagHessian(), q.KFRA())
    np.testing.assert_array_equal(result["diag_hessian"]["weight"], wrapped["diag_hessian"]["0.weight"])
    np.testing.assert_array_equal(result["kfra"]["bias"].B, wrapped["kfra"]["0.bias"].B)


ALL = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagGGNMC(), q.DiagHessian(),
       q.KFAC(), q.KFLR(), q.KFRA(), q.BatchDiagGGN(), q.BatchDiagHessian()]  # fmt: skip


BARE = [gb.Sequential(), gb.Sequential(layers.Identity()), gb.Sequential(gb.Sequential()), layers.Flatten()]


@pytest.mark.parametrize("network", BARE, ids=repr)
def test_networks_without_parameters_have_a_loss_and_no_gradient(network):
    x = np.arange(6.0).reshape(3, 2)
    result = gb.backward(network, MSE, x, np.zeros((3, 2)), *ALL, column_block=2)
    np.testing.assert_allclose(result.loss, (x**2).mean())
    np.testing.assert_array_equal(result.output, x)
    assert result.gradient == {}
    assert [result[quantity] for quantity in ALL] == [{}] * len(ALL)


def test_empty_sequentials_inside_change_nothing():
    linear = layers.Linear(2, 2)
    network = gb.Sequential(gb.Sequential(), linear, gb.Sequential(), rng=0, dtype="float64")
    x = np.ones((3, 2))
    got = gb.backward(network, MSE, x, x, q.DiagHessian())["diag_hessian"]["1.bias"]
    np.testing.assert_array_equal(got, gb.backward(linear, MSE, x, x, q.DiagHessian())["diag_hessian"]["bias"])
    assert network.output_shape((2,)) == (2,)


def test_threads_that_need_undrawn_parameters_at_once_find_the_same():
    class Slow(layers.Linear):
        def draw(self, rng):
            time.sleep(0.02)
            return super().draw(rng)

    net = gb.Sequential(Slow(3, 2), layers.Tanh(), Slow(2, 2))
    x, y = np.random.default_rng(0).standard_normal((4, 3)).astype("float32"), np.array([0, 1, 1, 0])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: gb.backward(net, losses.CrossEntropyLoss(), x, y).loss, range(4)))
    assert found == [gb.backward(net, losses.CrossEntropyLoss(), x, y).loss] * 4


# ------------------------------------------------------------------------------------------------------------- nesting

DEPTH = 2000


def nested(depth):
    """A linear layer inside as many containers, each with layers before and after."""
    network = gb.Sequential(layers.Flatten(), layers.Linear(2, 3))
    for _ in range(depth):
        network = gb.Sequential(layers.Identity(), network, layers.Identity())
    return gb.Sequential(network, rng=0, dtype="float64")


def test_networks_nest_deeper_than_calls_can():
    network, flat = nested(DEPTH), gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    x, path = np.random.default_rng(0).standard_normal((4, 2)), "0." + "1." * DEPTH
    y = np.array([0, 2, 1, 1])
    want = gb.backward(flat, losses.CrossEntropyLoss(), x, y, q.KFAC(), rng=0)
    for call in (gb.backward, gb.reference):
        result = call(network, losses.CrossEntropyLoss(), x, y, q.KFAC(), rng=0, training=True)
        np.testing.assert_allclose(result.gradient[f"{path}1.weight"], want.gradient["0.weight"], rtol=1e-12)
        np.testing.assert_allclose(result["kfac"][f"{path}1.bias"].B, want["kfac"]["0.bias"].B, rtol=1e-12)
    np.testing.assert_array_equal(network.load_state_dict(network.state_dict())(x), flat(x))
    assert (repr(network).count("Sequential("), network.output_shape((2,))) == (DEPTH + 2, (3,))


def test_the_methods_of_a_deep_network_are_those_of_its_layers():
    network, flat = nested(DEPTH), gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((4, 2))
    y, saved = network.forward_training(x, network.noise(x.shape, np.random.default_rng(0)))
    np.testing.assert_array_equal(y, flat(x))
    kept = flat.forward(x)[1]
    np.testing.assert_array_equal(network.jmp(saved, x[None]), flat.jmp(kept, x[None]))
    np.testing.assert_array_equal(network.mjp(saved, y[None]), flat.mjp(kept, y[None]))
    network.initialize(np.random.default_rng(0))
    np.testing.assert_array_equal(network(x), flat(x))


def test_an_integer_seeds_the_draws_of_a_network():
    network = gb.Sequential(layers.Linear(3, 2), layers.Linear(2, 2))
    network.initialize(np.random.default_rng(5))
    want = {name: value.copy() for name, value in network.parameters.items()}
    network.initialize(5)
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(value, want[name])
    with pytest.raises(ValueError, match="rng: expected None, an integer of at least 0 or a Generator, got -1"):
        network.initialize(-1)


def test_building_a_deep_network_searches_it_once(monkeypatch):
    searches, original = [], gb.Sequential.named_layers

    def counted(self, name=""):
        searches.append(self)
        return original(self, name)

    monkeypatch.setattr(gb.Sequential, "named_layers", counted)
    network = gb.Sequential(layers.Linear(2, 2))
    for _ in range(50):
        network = gb.Sequential(layers.Linear(2, 2), layers.ReLU(), network)
    assert searches == []  # each level would search all below


def test_a_layer_at_several_places_has_one_entry_with_the_name_of_the_first():
    shared = layers.Linear(2, 2)
    one, other = gb.Sequential(shared), gb.Sequential(layers.ReLU(), gb.Sequential(shared))
    for network in (gb.Sequential(one, other), gb.Sequential(one, one), gb.Sequential(gb.Residual(shared), shared)):
        assert list(network.parameters) == ["0.0.weight", "0.0.bias"]
        assert list(network.state_dict()) == ["0.0.weight", "0.0.bias"]
        np.testing.assert_array_equal(network.parameters["0.0.weight"], shared.parameters["weight"])


def test_a_nested_subclass_says_itself_what_is_inside():
    class Reversed(gb.Sequential):
        def named_layers(self, name=""):
            yield from reversed(list(super().named_layers(name)))

    inner = Reversed(layers.Linear(2, 3), layers.Linear(3, 2))
    assert [layer.in_features for _, layer in gb.Sequential(layers.Linear(4, 2), inner).named_layers()] == [4, 3, 2]
