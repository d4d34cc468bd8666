"""Layers, losses and quantities of users at other parameters: a program equals the plain sweep, or it is refused."""

import enum
import re
import threading

import numpy as np
import pytest
from common import batch, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

X, Y = batch(4, 6)
NET = chain(layers.Linear(6, 3))


class Axis(enum.IntEnum):
    FEATURES = 1


class Own(layers.Layer):
    """A layer of the user's whose function is `function(self, x)`, with numbers that `draw_all(rng)` draws."""

    def __init__(self, function, draw_all=None, **more):
        self.function, self.draw_all = function, draw_all
        self.__dict__.update(more)

    def output_shape(self, shape):
        return shape

    def noise(self, batch_shape, rng):
        return None if self.draw_all is None else self.draw_all(rng)

    def forward(self, x):
        return self.function(self, x), None

    def forward_training(self, x, noise):
        return self.forward(x)[0] * (1 if noise is None else noise), None

    def mjp(self, saved, mat):
        return mat


class Result:
    def __init__(self, array):
        self.array = array


class Asked(q.BatchGrad):
    """A quantity of the user's, of `function(each)`."""

    name = "asked"

    def __init__(self, function):
        super().__init__()
        self.function, self.lock = function, threading.Lock()

    def finish(self, scale, each):
        return self.function(each)


class Decay(losses.MSELoss):
    """A loss with the squares of parameters that are found by a global name."""

    def values(self, output, target):
        return super().values(output, target) + sum((p**2).sum() for p in NET.parameters.values())


class Distilled(losses.MSELoss):
    """A loss with a network of its own."""

    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher

    def values(self, output, target):
        return super().values(output, self.teacher.forward(target)[0])

    def gradients(self, output, target):
        return super().gradients(output, self.teacher.forward(target)[0])


def refuse(words, net, loss, *quantities, **options):
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.program(net, loss, X, X[:, :3], *quantities, **options)


@pytest.mark.parametrize(("function", "words"), [
    (lambda self, x: x if isinstance(x, np.ndarray) else 2 * x, "another one than gbackprop.reference"),
    (lambda self, x: x if type(self) is Own else 2 * x, "another one than gbackprop.reference"),
    (lambda self, x: np.multiply(x, 2, out=x * 1, where=np.arange(6) > 2), "np.multiply with where="),
])  # fmt: skip
def test_layers_that_are_refused(function, words):
    refuse(words, chain(Own(function), layers.Linear(6, 3)), losses.MSELoss())


@pytest.mark.parametrize("draw_all", [lambda rng: rng.random(), lambda rng: rng.random(1)[0], lambda rng: 3])
def test_random_numbers_that_are_no_arrays(draw_all):
    net = chain(Own(lambda self, x: x, draw_all), layers.Linear(6, 3))
    refuse("noise_0: expected random numbers as arrays", net, losses.MSELoss(), training=True)


@pytest.mark.parametrize(("loss", "function", "words"), [
    (losses.MSELoss(), lambda each: each * NET.parameters["0.bias"].sum(), "asked.*another step is computed"),
    (losses.MSELoss(), lambda each: float(NET.parameters["0.weight"].sum()), "asked.*another step is computed"),
    (losses.MSELoss(), Result, "asked.*class Result is not in the table"),
    (Decay(), lambda each: each, "loss value.*another step is computed"),
])  # fmt: skip
def test_parameters_that_are_found_by_another_way(loss, function, words):
    before = {name: value.copy() for name, value in NET.parameters.items()}
    refuse(words, NET, loss, Asked(function))
    assert all(value.tobytes() == before[name].tobytes() for name, value in NET.parameters.items())


def test_layers_that_others_have_must_not_change():
    inner, teacher = chain(layers.Linear(6, 6)).layers[0], chain(layers.Linear(3, 3)).layers[0]
    net = chain(layers.Linear(6, 6), Own(lambda self, x: self.inner.forward(x)[0], inner=inner), layers.Linear(6, 3))
    program = gb.program(net, loss := Distilled(teacher), X, X[:, :3])
    for layer, words in ((inner, "layer 1 has changed"), (teacher, "loss has changed")):
        before, layer.drawn = layer.drawn, {name: 2 * value for name, value in layer.drawn.items()}
        with pytest.raises(ValueError, match=words):
            program(X, X[:, :3])
        layer.drawn = before
    np.testing.assert_array_equal(program(-X, X[:, :3]).loss, gb.reference(net, loss, -X, X[:, :3]).loss)


def several():
    nodes = {"l": (layers.Linear(4, 3), "input.a"), "r": (layers.Linear(2, 3), "input.b"),
             "m": (layers.Multiply(), "l", "r")}  # fmt: skip
    return gb.Graph(nodes, inputs={"a": (4,), "b": (2,)}, rng=0, dtype="float64")


EQUAL = [
    (lambda: chain(layers.Linear(6, 5), layers.BatchNorm1d(5), layers.Linear(5, 3)), {"training": True}),
    (lambda: chain(layers.LayerNorm(3, bias=False), layers.Flatten(), layers.Linear(6, 3)), {"x": X.reshape(4, 2, 3)}),
    (lambda: chain(Own(lambda self, x: x - 0 * x.sum(Axis.FEATURES, keepdims=True)), layers.Linear(6, 3)), {}),
    (several, {"wrt": ["x", "l.bias"]}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "options"), EQUAL)
def test_parameters_are_read_in_each_call(make, options):
    net, x = make(), options.get("x", X)
    x = {"b": X[:, 4:], "a": X[:, :4]} if make is several else x
    options, loss = {key: value for key, value in options.items() if key != "x"}, losses.CrossEntropyLoss()
    program, folded = (gb.program(net, loss, x, Y, fold=fold, **options) for fold in (False, True))
    for _, layer in net.named_layers():
        layer.drawn = {name: 1.5 * value + 0.1 for name, value in layer.parameters.items()}
    x = {key: -value for key, value in x.items()} if make is several else -x
    got, want = program(x, Y), gb.reference(net, loss, x, Y, **options)
    assert got.output.tobytes() == want.output.tobytes()
    for name, value in want.gradient.items():
        assert got.gradient[name].tobytes() == value.tobytes(), name
        np.testing.assert_allclose(folded(x, Y).gradient[name], value, rtol=0, atol=1e-13)
    if make is several:
        np.testing.assert_array_equal(got.gradient["x"]["b"], want.gradient["x"]["b"])
        assert gb.program(net, loss, x, Y, fold=False)(x, Y).output.tobytes() == want.output.tobytes()


def emptied(each):
    double = 2 * each
    double[0] = 0
    return double


class Emptied(Asked):
    name = "emptied"


@pytest.mark.parametrize("fold", [False, True])
def test_a_result_stays_when_what_is_equal_to_it_is_written_to(fold):
    asked = Asked(lambda each: 2 * each), Emptied(emptied)
    given = NET, losses.CrossEntropyLoss(), X, Y, *asked
    got, want = gb.program(*given, fold=fold)(X, Y), gb.reference(*given)
    for name in ("asked", "emptied"):
        np.testing.assert_allclose(got[name]["0.weight"], want[name]["0.weight"], rtol=1e-12)


OPTIONS = pytest.mark.parametrize("options", [{}, {"fold": False}, {"functional": True}], ids=str)


@OPTIONS
def test_gradients_that_are_equal_are_two_arrays(options):
    net, loss = chain(gb.Residual(layers.Linear(6, 3), shortcut=layers.Linear(6, 3))), losses.CrossEntropyLoss()
    got, want = gb.program(net, loss, X, Y, **options)(X, Y), gb.reference(net, loss, X, Y)
    for gradient in got.gradient.values():
        gradient *= 0.5  # as who clips it
    for name, gradient in want.gradient.items():
        np.testing.assert_allclose(got.gradient[name], gradient / 2, rtol=1e-12, err_msg=name)


@OPTIONS
@pytest.mark.parametrize("function", [
    lambda x: x, lambda x: x.T[::-1, None].reshape(6, 4).T, np.flipud, lambda x: np.atleast_3d(x)[..., 0],
    lambda x: np.hsplit(x, [6])[0], lambda x: np.broadcast_arrays(x, x[:1])[0],
    lambda x: np.broadcast_to(x[:, :1] + 0, (4, 6)),
    lambda x: x.astype(x.dtype, copy=False), lambda x: np.nan_to_num(x, copy=False),
    lambda x: np.meshgrid(x[0], x[0, :4], copy=False)[0], lambda x: np.broadcast_to((x[:, :1] + 0).T, (6, 4)).T,
    lambda x: np.einsum("ij->ij", x), lambda x: np.einsum("ij->ji", x).T,
    lambda x: np.diagonal((x + 0)[:, :, None] * np.ones(6), axis1=1, axis2=2),
])  # fmt: skip
def test_an_output_is_the_callers_who_may_change_it(function, options):
    net, before = chain(Own(lambda self, x: function(x))), X.copy()
    output = gb.program(net, losses.MSELoss(), X, 2 * X, **options)(X, 2 * X).output
    output += 1
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(output, function(X) + 1)


class InTwoLines(q.BatchGrad):
    name, scale = "two", "R ∇ℓₙ,\n    of each sample"


def test_a_name_may_be_longer_than_a_line():
    long = "hidden" * 25
    net = gb.Graph({long: (layers.Linear(6, 3), "input"), "y": (layers.Tanh(), long)}, rng=0, dtype="float64")
    (x, _), loss = batch(4, 6), losses.MSELoss()
    program, want = gb.program(net, loss, x, x[:, :3]), gb.reference(net, loss, x, x[:, :3])
    for name, gradient in program(x, x[:, :3]).gradient.items():
        np.testing.assert_array_equal(gradient, want.gradient[name])


def test_a_scale_of_several_lines_is_a_comment_of_one():
    program = gb.program(chain(layers.Linear(6, 3)), losses.CrossEntropyLoss(), X, Y, InTwoLines())
    assert "    'two': {  # R ∇ℓₙ, of each sample\n" in program.source


def scaled(self, x):
    total = x.sum()
    square = total * total
    square *= 2
    return x * square + total


def written_below(self, x):
    double = 2 * x
    kept = double + 1
    part = double[:, :3]
    part[:, 0] = 0
    return double + kept


def counted(self, x):
    some = (x > 0)[:, :, None].sum(2)
    return x * (some + some) + (x > 0)[:, :, None].sum((1, 2))[:, None]


def one_row_seen(self, x):
    y = np.exp(x)
    row = y[x[:, 0].argmax()]  # a view, though of a place that was computed
    wave = row * np.sin(row)
    y = y + 0
    y[:] = 2 * wave
    return y + row + wave


TURNED = [
    written_below, counted, one_row_seen,
    lambda self, x: x * x[:, 0].transpose(0)[:, None],
    lambda self, x: x.reshape(4, 2, 3).transpose(0, -2, -1).reshape(4, 6),
    lambda self, x: x.T.transpose(1, 0),
    scaled,
]


@pytest.mark.parametrize("options", [{}, {"fold": False}, {"fold": False, "functional": True}], ids=str)
@pytest.mark.parametrize("function", TURNED)
def test_axes_in_any_form_and_numbers_changed_in_place(function, options):
    net, loss = chain(Own(function), layers.Linear(6, 3)), losses.CrossEntropyLoss()
    got, want = gb.program(net, loss, X, Y, **options)(-X, Y), gb.reference(net, loss, -X, Y)
    np.testing.assert_allclose(got.gradient["1.weight"], want.gradient["1.weight"], rtol=1e-12)


def all_rows_taken(x):
    y = np.exp(x)
    rows = y[np.argsort(x[:, 0])]
    rows = rows * np.sin(rows)
    y[0] = rows[0]
    return y


def some_rows_seen(x):
    y = np.exp(x)
    rows = y[1:]
    rows = rows * np.sin(rows)
    y[0] = rows[0]
    return y


@pytest.mark.parametrize(("function", "copies"), [(all_rows_taken, 0), (some_rows_seen, 1)])
def test_an_array_is_copied_before_it_is_written_to_where_a_view_of_it_is_left(function, copies):
    net, loss = chain(Own(lambda self, x: function(x)), layers.Linear(6, 3)), losses.CrossEntropyLoss()
    program = gb.program(net, loss, X, Y)
    assert program.source.count("np.copy(") == copies
    np.testing.assert_allclose(program(-X, Y).loss, gb.reference(net, loss, -X, Y).loss, rtol=1e-13)


def test_an_axis_is_left_out_of_a_sum_whether_it_is_given_by_place_or_by_name():
    loss, sources = losses.CrossEntropyLoss(), []
    for function in (lambda self, x: x[:, :, None].sum(2), lambda self, x: x[:, :, None].sum(axis=2)):
        sources.append(gb.program(chain(Own(function), layers.Linear(6, 3)), loss, X, Y).source)
    assert sources[0] == sources[1]
    assert "None].sum" not in sources[0]


@pytest.mark.parametrize(("parts", "line"), [
    (lambda x: (x[:1], x[1:3], x[3:]), None),
    (lambda x: [x[1:3], x[3:], x[:1]], "np.concatenate([x[1:4], x[0][None]])"),
    (lambda x: [x[1:], x[0][None]], "np.concatenate([x[1:], x[0][None]])"),
])  # fmt: skip
def test_adjacent_parts_that_are_joined_are_one_part_and_others_stay_as_they_are(parts, line):
    net = chain(Own(lambda self, x: np.concatenate(parts(x))), layers.Linear(6, 3))
    program = gb.program(net, loss := losses.CrossEntropyLoss(), X, Y)
    assert re.findall(r"np\.concatenate\(.*\)(?=  #)", program.source) == ([line] if line else [])
    want = gb.reference(net, loss, -X, Y).gradient["1.weight"]
    np.testing.assert_allclose(program(-X, Y).gradient["1.weight"], want, rtol=1e-12)


@pytest.mark.parametrize("function", [
    lambda self, x: np.where((x > 0) & True, x, np.exp(x) * 1),
    lambda self, x: np.where(True & (x > 0), x, 0 + np.exp(x)),
    lambda self, x: np.where(np.ones(6, bool) & (x > 0), x, np.ones(6) * np.exp(x)),
])  # fmt: skip
def test_what_leaves_each_number_as_it_is_goes(function):
    plain = chain(Own(lambda self, x: np.where(x > 0, x, np.exp(x))), layers.Linear(6, 3))
    more = chain(Own(function), layers.Linear(6, 3))
    one, other = (gb.program(net, losses.MSELoss(), X, X[:, :3]).source for net in (plain, more))
    assert one == other


def all_assigned(x, index, move):
    y = np.zeros_like(x, shape=(4, 6, 1))
    y[index] = move(np.exp(x))
    return y[:, :, 0]


@pytest.mark.parametrize(("index", "move", "assigned"), [
    (..., lambda v: v[:, :, None], False), (None, lambda v: v[None, :, :, None], False),
    ((slice(None), slice(None), slice(None, None, -1)), lambda v: v[:, :, None], False),
    (slice(None, None, -1), lambda v: v[:, :, None], True),
])  # fmt: skip
def test_an_array_to_which_all_numbers_are_assigned_in_order_is_what_was_assigned(index, move, assigned):
    net = chain(Own(lambda self, x: all_assigned(x, index, move)), layers.Linear(6, 3))
    program = gb.program(net, loss := losses.MSELoss(), X, X[:, :3])
    assert ("np.zeros" in program.source) == assigned
    want = gb.reference(net, loss, -X, X[:, :3]).output
    np.testing.assert_allclose(program(-X, X[:, :3]).output, want, rtol=1e-13)


def test_the_last_bit_of_an_integer_is_not_taken_for_the_integer():
    net, loss = chain(Own(lambda self, x: x * (np.rint(3 * x).astype(int) & 1)), layers.Linear(6, 3)), losses.MSELoss()
    got, want = gb.program(net, loss, X, X[:, :3])(-X, X[:, :3]), gb.reference(net, loss, -X, X[:, :3])
    np.testing.assert_allclose(got.gradient["1.weight"], want.gradient["1.weight"], rtol=1e-12)


class Counted(q.BatchGrad):
    """The gradients times R and a whole number."""

    name = "counted"

    def finish(self, scale, each):
        return each * (scale.factor * np.array([3]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_factor_of_a_loss_times_whole_numbers_is_no_whole_number(dtype):
    net, x, weight = gb.Sequential(layers.Linear(6, 3), rng=0, dtype=dtype), X.astype(dtype), np.array([1, 2, 5], dtype)
    loss = losses.CrossEntropyLoss(weight=weight)
    found = gb.program(net, loss, x, Y, Counted())(x, Y)["counted"]
    each = gb.backward(net, loss, x, Y, q.BatchGrad())["batch_grad"]
    for name, value in found.items():
        np.testing.assert_allclose(value, each[name] * 3 / weight[Y].sum(), rtol=1e-5)
