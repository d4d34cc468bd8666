"""A user's forward pass that returns something other than (output, saved) is named, in every call that takes it."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops

LOSS = losses.MSELoss()

WRONG = {
    "array": lambda x: x,
    "list": lambda x: [x, None],
    "one": lambda x: (x,),
    "three": lambda x: (x, None, None),
    "nothing": lambda x: None,
    "rows": tuple,  # of two samples it is a tuple of two arrays
    "output that is no array": lambda x: (x.tolist(), None),
    "no output": lambda x: (None, x),
    "dtype": lambda x: (x.astype("float32"), None),
    "integers": lambda x: (x.astype(int), None),
    "features": lambda x: (x[:, :-1], None),
    "samples": lambda x: (np.concatenate([x, x]), None),
    "sum over samples": lambda x: (x.sum(0), None),
}

TUPLE = r"a tuple \(output, saved\), got "
MESSAGES = {
    "array": TUPLE + "ndarray", "list": TUPLE + "list", "three": TUPLE + "a tuple of 3", "no output": ".* got NoneType",
    "dtype": "float64 as the input is, got float32",
}  # fmt: skip

CALLS = {
    "net(x)": lambda net, x, y: net(x),
    "net.forward": lambda net, x, y: net.forward(x),
    "backward": lambda net, x, y: gb.backward(net, LOSS, x, y),
    "reference": lambda net, x, y: gb.reference(net, LOSS, x, y),
    "explain": lambda net, x, y: gb.explain(net, LOSS, x, y),
    "GGN": lambda net, x, y: ops.GGN(net, LOSS, (x, y)),
    "Jacobian": lambda net, x, y: ops.Jacobian(net, x),
    "Fisher": lambda net, x, y: ops.Fisher(net, LOSS, (x, y), rng=0),
}

TRAINING = {
    "net.forward_training": lambda net, x, y: net.forward_training(x, (None,) * 3),
    "backward": lambda net, x, y: gb.backward(net, LOSS, x, y, training=True, rng=0),
    "reference": lambda net, x, y: gb.reference(net, LOSS, x, y, training=True, rng=0),
    "explain": lambda net, x, y: gb.explain(net, LOSS, x, y, training=True, rng=0),
}


class Own(layers.Layer):
    """y = x, if `made` is right."""

    made = None

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return (x + 0, None) if self.made is None else self.made(x)

    def jmp(self, saved, mat):
        return mat

    mjp = jmp


class OwnTraining(Own):
    """Its evaluation is right."""

    def forward(self, x):
        return x + 0, None

    def forward_training(self, x, noise):
        return Own.forward(self, x)


def problem(layer, place, branches, batch, features, seed):
    around = [layers.Linear(features, features), layers.Linear(features, features)]
    around.insert(place, gb.Residual(layer) if branches else layer)
    x, y = np.random.default_rng(seed).standard_normal((2, batch, features))
    return gb.Sequential(*around, rng=0, dtype="float64"), x, y


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(WRONG)), st.booleans(), st.data(), st.integers(0, 2), st.booleans(), st.integers(1, 3),
    st.integers(2, 3), st.integers(0, 9),
)  # fmt: skip
def test_what_a_forward_pass_returns_is_checked(wrong, training, data, place, branches, batch, features, seed):
    layer = OwnTraining() if training else Own()
    layer.made = WRONG[wrong]
    calls = TRAINING if training else CALLS
    call = calls[data.draw(st.sampled_from(list(calls)))]
    net, x, y = problem(layer, place, branches and not training, batch, features, seed)
    where = f"{place}.0" if branches and not training else place
    method = "forward_training" if training else "forward"
    if training:
        gb.backward(net, LOSS, x, y)
    words = re.escape(f"layer {where}, {type(layer).__name__}(), {method}: expected ") + MESSAGES.get(wrong, "")
    with pytest.raises((TypeError, ValueError), match=words):
        call(net, x, y)
    layer.made = None
    call(net, x, y)


def test_a_layer_that_is_right_for_one_sample_is_checked_with_several():
    class First(Own):
        def forward(self, x):
            return x[:1] + 0, None

    net, x, y = problem(First(), 1, False, 4, 2, 0)
    gb.backward(net, LOSS, x[:1], y[:1])
    with pytest.raises(ValueError, match=r"First\(\), forward: expected shape \(4, 2\), got \(1, 2\)"):
        gb.backward(net, LOSS, x, y)


def test_a_layer_of_indices_is_checked_too():
    class Rows(layers.Embedding):
        def forward(self, x):
            return super().forward(x)[0]

        def output_shape(self, shape):
            return (*shape, 3)

    net = gb.Sequential(Rows(5, 3), rng=0)
    x = np.array([[1, 2], [3, 4]])
    for call in (net, lambda x: gb.backward(net, LOSS, x, np.zeros((2, 2, 3), "float32"))):
        with pytest.raises(TypeError, match=r"layer 0, Rows\(5, 3\), forward: expected a tuple \(output, saved\)"):
            call(x)
