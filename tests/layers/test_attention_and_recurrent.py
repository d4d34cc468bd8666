"""Attention and recurrent layers: torch's names in torch's order, sharing, freezing, and what is refused."""

import copy
import pickle

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.cases import sequences

# --------------------------------------------------------------------------------------------------------------- names

NAMES = {
    "attention": (
        gb.MultiheadAttention(4, 2),
        {"in_proj_weight": (12, 4), "in_proj_bias": (12,), "out_proj.weight": (4, 4), "out_proj.bias": (4,)},
    ),
    "attention without bias": (
        gb.MultiheadAttention(4, 2, bias=False),
        {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)},
    ),
    "encoder": (
        gb.TransformerEncoderLayer(4, 2, 3),
        {
            "self_attn.in_proj_weight": (12, 4), "self_attn.in_proj_bias": (12,),
            "self_attn.out_proj.weight": (4, 4), "self_attn.out_proj.bias": (4,),
            "linear1.weight": (3, 4), "linear1.bias": (3,), "linear2.weight": (4, 3), "linear2.bias": (4,),
            "norm1.weight": (4,), "norm1.bias": (4,), "norm2.weight": (4,), "norm2.bias": (4,),
        },
    ),
    "encoder without bias": (
        gb.TransformerEncoderLayer(4, 2, 3, bias=False),
        {
            "self_attn.in_proj_weight": (12, 4), "self_attn.out_proj.weight": (4, 4),
            "linear1.weight": (3, 4), "linear2.weight": (4, 3), "norm1.weight": (4,), "norm2.weight": (4,),
        },
    ),
    "RNN": (
        gb.RNN(3, 2),
        {"weight_ih_l0": (2, 3), "weight_hh_l0": (2, 2), "bias_ih_l0": (2,), "bias_hh_l0": (2,)},
    ),
    "LSTM": (
        gb.LSTM(3, 2, 2, bidirectional=True),
        {
            "weight_ih_l0": (8, 3), "weight_hh_l0": (8, 2), "bias_ih_l0": (8,), "bias_hh_l0": (8,),
            "weight_ih_l0_reverse": (8, 3), "weight_hh_l0_reverse": (8, 2),
            "bias_ih_l0_reverse": (8,), "bias_hh_l0_reverse": (8,),
            "weight_ih_l1": (8, 4), "weight_hh_l1": (8, 2), "bias_ih_l1": (8,), "bias_hh_l1": (8,),
            "weight_ih_l1_reverse": (8, 4), "weight_hh_l1_reverse": (8, 2),
            "bias_ih_l1_reverse": (8,), "bias_hh_l1_reverse": (8,),
        },
    ),
    "GRU without bias": (gb.GRU(3, 2, bias=False), {"weight_ih_l0": (6, 3), "weight_hh_l0": (6, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_the_names_shapes_and_order_of_torch(name):
    layer, shapes = NAMES[name]
    alone = {key: value.shape for key, value in layer.state_dict().items()}
    assert list(alone.items()) == list(shapes.items())
    inside = gb.Sequential(layers.Identity(), layer)
    assert list(inside.parameters) == list(inside.state_dict()) == [f"1.{key}" for key in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_have_these_names(name):
    layer, shapes = NAMES[name]
    network = gb.Sequential(layer, layers.Flatten(), rng=0)
    x = np.random.default_rng(0).standard_normal((2, 3, layer.features), dtype="float32")
    gradient = gb.backward(network, losses.MSELoss(), x, np.zeros_like(network(x))).gradient
    assert {key: value.shape for key, value in gradient.items()} == {f"0.{k}": shape for k, shape in shapes.items()}


@pytest.mark.parametrize("name", NAMES)
def test_copies_load_state_dicts(name):
    network = gb.Sequential(NAMES[name][0], rng=0)
    other = pickle.loads(pickle.dumps(copy.deepcopy(network)))
    other.initialize(np.random.default_rng(1))
    x = np.random.default_rng(0).standard_normal((2, 3, NAMES[name][0].features), dtype="float32")
    assert (other(x) != network(x)).any()
    np.testing.assert_array_equal(other.load_state_dict(network.state_dict())(x), network(x))


def test_parameters_are_drawn_as_in_torch():
    attention = gb.MultiheadAttention(64, 4, rng=0).parameters
    assert 0.99 * (6 / 256) ** 0.5 < np.abs(attention["in_proj_weight"]).max() <= (6 / 256) ** 0.5
    assert 0.99 / 8 < np.abs(attention["out_proj.weight"]).max() <= 1 / 8
    assert not attention["in_proj_bias"].any()
    assert not attention["out_proj.bias"].any()
    for value in gb.LSTM(30, 64, rng=0).parameters.values():
        assert 0.95 / 8 < np.abs(value).max() <= 1 / 8


def test_a_layer_at_two_places_has_one_set_of_parameters():
    shared = gb.GRU(2, 2)
    network = gb.Sequential(shared, layers.Tanh(), shared, rng=0)
    assert list(network.parameters) == ["0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0"]


def test_one_parameter_is_frozen_by_its_name():
    network = gb.Sequential(gb.LSTM(2, 2), rng=0, dtype="float64").freeze("0.weight_hh_l0")
    x = np.random.default_rng(0).standard_normal((3, 3, 2))
    part = gb.backward(network, losses.MSELoss(), x, 0 * x, q.DiagHessian())
    assert list(part.gradient) == ["0.weight_ih_l0", "0.bias_ih_l0", "0.bias_hh_l0"]
    network.unfreeze()
    whole = gb.backward(network, losses.MSELoss(), x, 0 * x, q.DiagHessian())
    for name in part.gradient:
        np.testing.assert_allclose(part["diag_hessian"][name], whole["diag_hessian"][name], rtol=1e-12)


def test_a_recurrent_layer_is_explained_step_by_step():
    network = gb.Sequential(gb.RNN(2, 3), layers.Flatten(), layers.Linear(6, 2), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((2, 2, 2))
    names = [step.name for step in gb.explain(network, losses.MSELoss(), x, x[:, 0], q.DiagHessian()).steps]
    assert names.index("0.l0_step1_state") < names.index("0.l0_step1_weight_hh_l0") < names.index("0.l0_step0_state")


def test_relu_is_the_other_nonlinearity():
    layer = gb.RNN(2, 3, nonlinearity="relu", rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((2, 4, 2))
    want = sequences.recurrent(x, step=lambda a, b, h, c: (np.maximum(a + b, 0), c), **layer.parameters)
    np.testing.assert_allclose(layer(x), want, rtol=1e-12)


# ------------------------------------------------------------------------------------------------------------- refusals

M, T, R = gb.MultiheadAttention, gb.TransformerEncoderLayer, gb.RNN
REFUSED = {
    "heads": (lambda: M(8, 3), r"MultiheadAttention, embed_dim: expected a multiple of num_heads = 3, got 8"),
    "width": (lambda: M(0, 1), r"MultiheadAttention, embed_dim: expected an integer of at least 1, got 0"),
    "dropout": (lambda: M(8, 2, 1.5), r"MultiheadAttention, dropout: expected a probability in \[0, 1\], got 1.5"),
    "kdim": (lambda: M(8, 2, kdim=4), r"MultiheadAttention, kdim: expected None, got 4 \(this is self-attention"),
    "vdim": (lambda: M(8, 2, vdim=8), r"MultiheadAttention, vdim: expected None, got 8"),
    "add_bias_kv": (lambda: M(8, 2, add_bias_kv=True), r"MultiheadAttention, add_bias_kv: expected False, got True"),
    "add_zero_attn": (lambda: M(8, 2, add_zero_attn=True), r"Attention, add_zero_attn: expected False, got True"),
    "attention": (lambda: M(8, 2, batch_first=False), r"MultiheadAttention, batch_first: expected True, got False"),
    "encoder": (lambda: T(8, 2, batch_first=False), r"TransformerEncoderLayer, batch_first: expected True, got False"),
    "nhead": (lambda: T(8, 3), r"TransformerEncoderLayer, d_model: expected a multiple of nhead = 3, got 8"),
    "activation": (lambda: T(8, 2, activation="tanh"), r"Layer, activation: expected one of .* or a Layer, got 'tanh'"),
    "function": (lambda: T(8, 2, activation=np.tanh), r"Layer, activation: expected one of .* got <ufunc 'tanh'>"),
    "RNN": (lambda: R(3, 2, batch_first=False), r"RNN, batch_first: .* got False .*it is the default here"),
    "GRU": (lambda: gb.GRU(3, 2, batch_first=False), r"GRU, batch_first: expected True, got False"),
    "nonlinearity": (lambda: R(3, 2, nonlinearity="gelu"), r"RNN, nonlinearity: expected 'tanh' or 'relu', got 'gelu'"),
    "proj_size": (lambda: gb.LSTM(3, 2, proj_size=1), r"LSTM, proj_size: expected 0, got 1"),
    "hidden_size": (lambda: gb.LSTM(3, -2), r"LSTM, hidden_size: expected an integer of at least 1, got -2"),
    "num_layers": (lambda: gb.GRU(3, 2, 0), r"GRU, num_layers: expected an integer of at least 1, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_do_not_fit_are_refused_by_the_name_of_the_class(name):
    make, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        make()


def test_an_argument_that_a_class_has_not_is_refused_with_those_that_it_has():
    with pytest.raises(TypeError, match=r"GRU has no argument 'proj_size'; it takes input_size, hidden_size"):
        gb.GRU(3, 2, proj_size=1)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (0, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("layer", [gb.LSTM(3, 2), M(3, 1), T(3, 3, 2)], ids=repr)
def test_inputs_that_are_no_sequences_of_these_features_are_refused_by_the_name_of_the_layer(layer, shape):
    network = gb.Sequential(layers.Identity(), layer)
    words = rf"layer 1, {type(layer).__name__}\(.*expected sequences of feature shape \(T, 3\) with T ≥ 1, got \("
    with pytest.raises(ValueError, match=words):
        gb.backward(network, losses.MSELoss(), np.ones((2, *shape)), np.ones((2, 2)))


def test_kfra_is_refused():
    network = gb.Sequential(gb.RNN(3, 2), rng=0, dtype="float64")
    with pytest.raises(gb.UnsupportedError, match="cannot give KFRA"):
        gb.backward(network, losses.MSELoss(), np.ones((2, 2, 3)), np.ones((2, 2, 2)), q.KFRA())
