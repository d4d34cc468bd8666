"""What cannot be traced is an error of its kind, which names the line and the rewriting; each stands in the docs."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.base.recording import refused
from gbackprop.base.recording.refused import (
    BatchSizeError,
    BroadcastError,
    InPlaceError,
    LeakedArrayError,
    MissingFunctionError,
    MixedSamplesError,
    NoDerivativeError,
    NotDeterministicError,
    NumberReadError,
    PlainArrayError,
    RandomNumbersError,
    TraceError,
)

DOCS = Path(__file__).parents[2] / "docs" / "trace.md"
FIXED = np.ones((5, 3))
SOURCE = np.random.default_rng(1)
KEPT: list = []


def branch(p, x):
    return x @ p["w"] if x.sum() > 0 else x


def into_places(p, x):
    h = np.zeros((len(x), 3))
    h[:, 0] = (x @ p["w"])[:, 0]
    return h


def one_place(p, x):
    h = np.zeros(3)
    h[0] = p["w"].sum()
    return x @ p["w"] + h


def part_of_plain(p, x):
    h = np.zeros((len(x), 3))
    part = h[:, :2]
    part += x[:, :2]
    return h @ p["w"]


def own_input(p, x):
    x += 1
    return x @ p["w"]


def other_name(p, x):
    y = x
    y *= 2
    return y @ p["w"]


def own_parameter(p, x):
    p["w"][0] = 0
    return x @ p["w"]


def through_a_view(p, x):
    y = x[:, :2]
    y[...] = 0
    return x @ p["w"]


def part_after_write(p, x):
    y = x @ p["w"]
    first, _, _ = np.split(y, 3, axis=1)
    y[:, 0] = 0
    return first


def copied_to(p, x):
    y = x @ p["w"]
    np.copyto(y, x)
    return y


def written_over(p, x):
    h = x @ p["w"]
    h[:, :] = 1.0
    return np.exp(h)


def caught(p, x):
    try:
        scale = float(p["w"][0, 0])
    except ValueError:
        scale = 1.0
    return scale * x @ p["w"]


def kept(p, x):
    KEPT.append(x @ p["w"])
    return KEPT[0] + x


def changing(p, x):
    KEPT.append(0)
    return x @ p["w"] if len(KEPT) < 2 else np.tanh(x @ p["w"])


def first_ones(p, x):
    y = x @ p["w"]
    y[:9] = 0
    return y + x


def one_by_one(p, x):
    return np.stack([each @ p["w"] for each in x])


CASES = [
    (branch, NumberReadError, r"refusals.py:\d+: `return x @ p\[\"w\"\] if x.sum\(\) > 0 else x`: bool\(\)"),
    (lambda p, x: x @ p["w"] * float(p["w"].sum()), NumberReadError, r"float\(\)"),
    (lambda p, x: x @ p["w"] * p["w"].sum().item(), NumberReadError, r"`.item` reads numbers"),
    (lambda p, x: FIXED[p["w"][0]] + x @ p["w"], NumberReadError, r"index\(\)"),
    (caught, NumberReadError, r"float\(\)"),
    (into_places, PlainArrayError, r"`h\[:, 0\] = .*`: .* np.stack\(parts, axis\), or preallocate by np.zeros_like"),
    (one_place, PlainArrayError, r"`h\[0\] = .*`: .* np.stack"),
    (part_of_plain, PlainArrayError, r"`part \+= x\[:, :2\]`"),
    (lambda p, x: np.asarray(x) @ p["w"], PlainArrayError, "leave out np.asarray"),
    (lambda p, x: x @ p["w"] + np.full_like(x, p["w"][0, 0]), PlainArrayError, "np.full_like would make a constant"),
    (lambda p, x: np.array([x, x])[0] @ p["w"], PlainArrayError, r"np.stack\(\[a, b\]\) for np.array"),
    (lambda p, x: x @ p["w"] - x.mean(0), MixedSamplesError, r"np.mean gives shape \(3,\) for 2 samples and"),
    (lambda p, x: (x - x.mean(0, keepdims=True)) @ p["w"], MixedSamplesError, "np.mean"),
    (lambda p, x: x[::-1] @ p["w"], MixedSamplesError, "depends on other samples"),
    (lambda p, x: np.roll(x, 1, axis=0) @ p["w"], MixedSamplesError, "depends on other samples"),
    (lambda p, x: x @ x.T @ x @ p["w"], MixedSamplesError, r"np.matmul gives shape \(2, 2\) for 2"),
    (lambda p, x: np.cumsum(x, axis=0) @ p["w"], MixedSamplesError, "np.cumsum over the batch axis"),
    (lambda p, x: x[0] @ p["w"] + x, MixedSamplesError, "an index gives shape"),
    (lambda p, x: x.T.reshape(len(x), -1) @ p["w"], MixedSamplesError, "depends on other samples"),
    (lambda p, x: np.concatenate([x, x]) @ p["w"], MixedSamplesError, "np.concatenate over the batch axis"),
    (lambda p, x: np.einsum("nd,md->nd", x, x) @ p["w"], MixedSamplesError, "depends on other samples"),
    (lambda p, x: p["w"] @ x.T, MixedSamplesError, "expected an output with one row for each sample"),
    (lambda p, x: x @ p["w"] / len(x), BatchSizeError, "the number 2, which is 3 with one sample more"),
    (lambda p, x: x @ p["w"] + np.arange(len(x))[:, None], BatchSizeError, "differs from sample to sample"),
    (lambda p, x: x @ p["w"] * np.full(3, len(x)), BatchSizeError, "no number to compute with"),
    (lambda p, x: (x @ p["w"]).sum(1) * np.arange(len(x)), BatchSizeError, "an index of rows"),
    (lambda p, x: x @ p["w"] if len(x) > 1 else x @ -p["w"], BatchSizeError, "with N = 1 samples"),
    (lambda p, x: x @ p["w"] if len(x) != 5 else x @ -p["w"], BatchSizeError, "with N = 5 samples"),
    (lambda p, x: x @ p["w"] if x.size < 100 else x @ -p["w"], BatchSizeError, "with N = 129 samples"),
    (lambda p, x: (x @ p["w"])[:4], BatchSizeError, "a slice of the samples begins or ends at a fixed number"),
    (lambda p, x: (x @ p["w"])[..., -3:, :], BatchSizeError, "a slice of the samples"),
    (lambda p, x: (x @ p["w"]).T[:, :4].T, BatchSizeError, "a slice of the samples"),
    (lambda p, x: (x @ p["w"], x * p["w"][0])[len(x) % 2].reshape(len(x), -1), BatchSizeError, "is another with"),
    (first_ones, BatchSizeError, "a slice of the samples"),
    (one_by_one, BatchSizeError, "write loops over samples as operations of the whole batch"),
    (lambda p, x: x @ p["w"] + SOURCE.normal(size=3), RandomNumbersError, "random numbers"),
    (lambda p, x: x @ p["w"] * SOURCE.normal(), RandomNumbersError, "random numbers"),
    (lambda p, x: x * (SOURCE.random(x.shape) > 0.5) @ p["w"], RandomNumbersError, "random numbers"),
    (changing, NotDeterministicError, "another call did something else"),
    (kept, LeakedArrayError, "an array of an earlier call is used"),
    (lambda p, x: x @ np.linalg.inv(p["w"]), MissingFunctionError, r"np.linalg.inv is not in the table \(the near"),
    (lambda p, x: np.sort(x @ p["w"], axis=1), MissingFunctionError, "np.sort is not in the table"),
    (lambda p, x: np.sum(x @ p["w"], axis=1, where=FIXED[0] > 0), MissingFunctionError, "keyword argument 'where'"),
    (lambda p, x: np.add.accumulate(x @ p["w"], axis=1), MissingFunctionError, "np.add.accumulate is not"),
    (lambda p, x: np.einsum(x, [0, 1], p["w"], [1, 2]), MissingFunctionError, "expected subscripts as text"),
    (lambda p, x: (x @ p["w"]).byteswap(), MissingFunctionError, "`.byteswap` of an array is not in the table"),
    (own_input, InPlaceError, r"`x \+= 1`: the function writes into its input or a parameter; write `a = a \+ b`"),
    (other_name, InPlaceError, "writes into its input"),
    (own_parameter, InPlaceError, "writes into its input or a parameter"),
    (through_a_view, InPlaceError, "writes into its input"),
    (part_after_write, InPlaceError, "a part of an array is used after the array was written"),
    (copied_to, InPlaceError, "np.copyto writes into an array"),
    (lambda p, x: x @ p["w"] + np.ones(4), BroadcastError, r"np.add of shapes \(2, 3\) and \(4,\): operands could not"),
    (lambda p, x: np.where(x > 0, x) @ p["w"], BroadcastError, "np.where of .*either both or neither of x and y"),
    (lambda p, x: x @ p["w"][:2], BroadcastError, r"np.matmul of shapes \(2, 3\) and \(2, 3\)"),
    (lambda p, x: x[:, 5] + p["w"][0, 0], BroadcastError, "out of bounds"),
    (lambda p, x: x @ p["w"] * np.logical_and(x > 0, x), NoDerivativeError, "compare them first"),
    (lambda p, x: x @ p["w"] * np.logical_or(x, x > 0), NoDerivativeError, "compare them first"),
    (lambda p, x: x @ p["w"] * np.logical_not(x), NoDerivativeError, "compare them first"),
    (lambda p, x: x @ p["w"] + np.cumsum(p["w"])[:3], MissingFunctionError, "np.cumsum .* expected an axis"),
    (lambda p, x: np.linalg.norm(x, 1, axis=1)[:, None] + p["w"][0], MissingFunctionError, "ord=1"),
    (lambda p, x: np.dot(x, np.ones((2, 3, 3)) * p["w"]).sum(1), MissingFunctionError, "use np.matmul or np.einsum"),
    (lambda p, x: np.einsum("nd,de,ef->nf", x, p["w"], p["w"]), MissingFunctionError, "expected one or two operands"),
    (lambda p, x: np.einsum("...d,de->...e", x, p["w"]), MissingFunctionError, "expected one or two operands"),
    (lambda p, x: x + np.einsum("ii->i", p["w"]), MissingFunctionError, "expected one or two operands"),
    (lambda p, x: np.clip(x, p["w"][0], 1), MissingFunctionError, "use np.maximum and np.minimum"),
    (lambda p, x: np.pad(x, ((1, 0), (0, 0))) @ p["w"], MixedSamplesError, "np.pad gives shape"),
    (lambda p, x: np.stack([x, x]) @ p["w"], MixedSamplesError, "expected an output with one row for each sample"),
    (lambda p, x: np.concatenate([x, p["w"][:2]])[:2] @ p["w"], MixedSamplesError, "np.concatenate gives shape"),
    (lambda p, x: x.astype(int) @ p["w"], NoDerivativeError, "has no derivative"),
    *[(function, NoDerivativeError, "wraps around beyond its range, and a number of the network") for function in (
        lambda p, x: x @ p["w"] * ((x > 0).astype(np.uint8) - np.uint8(1))[:, :1],
        lambda p, x: x @ p["w"] * ((x > 0).astype(np.int16) * np.int16(100) + np.int16(100))[:, :1],
        lambda p, x: x @ p["w"] * -(x > 0).astype(np.uint64)[:, :1],
        lambda p, x: x @ p["w"] * (100 * (x > 0).sum(1, keepdims=True)).astype(np.int8))],
    (lambda p, x: (x @ p["w"], x), TraceError, r"that depends on x, got tuple \(join them by np.concatenate\)"),
    (lambda p, x: np.abs(x @ p["w"] @ (FIXED.T @ FIXED * 1j)), NoDerivativeError, "a constant is complex"),
    (lambda p, x: FIXED[np.argmax(x @ p["w"], 1)] @ p["w"], NumberReadError, r"== i\[:, None\]\) @ a"),
    (lambda p, x: np.ones((len(x), 3)), TraceError, "function: expected one array that depends on x"),
    (lambda p, x: p["w"] * 1.0, TraceError, "function: expected an output that depends on x"),
    (written_over, TraceError, r"`return np.exp\(h\)`: expected an output that depends on x"),
    (lambda p, x: np.tanh(x), TraceError, r"parameters: .* got \['w'\]"),
    (lambda p, x: x, TraceError, r"parameters: .* got \['w'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "kind", "words"), CASES)
def test_what_cannot_be_traced(function, kind, words):
    KEPT.clear()
    rng = np.random.default_rng(0)
    with pytest.raises(kind, match=words) as caught:
        gb.trace(function, {"w": rng.standard_normal((3, 3))}, rng.standard_normal((4, 3)))
    assert type(caught.value) is kind
    assert isinstance(caught.value, gb.TraceError)


@pytest.mark.parametrize(("parameters", "x", "kind", "words"), [
    ({"w": np.arange(3)}, FIXED, NoDerivativeError, "parameters w: expected floats, got int64"),
    ({"w": FIXED > 0}, FIXED, NoDerivativeError, "got bool"),
    ({"a": {"b": "heads"}}, FIXED, TypeError, "parameters a.b: expected an array of floats, got str"),
    ({}, FIXED, ValueError, "expected at least one array"),
    (FIXED, {"w": FIXED}, TypeError, "parameters: expected a dictionary, list or tuple of arrays, got ndarray"),
    (2.0, FIXED, TypeError, "parameters: expected a dictionary, list or tuple of arrays, got float"),
    ({"input": FIXED}, FIXED, ValueError, "expected names other than 'input'"),
    ({"a.b": FIXED, "a": {"b": FIXED}}, FIXED, ValueError, r"expected different paths, got \['a.b', 'a.b'\]"),
    ({"w": FIXED}, 3.0, TypeError, r"x: expected an array \(N, \*in\)"),
    ({"w": FIXED}, FIXED[:0], TypeError, r"x: expected an array \(N, \*in\)"),
    ({"w": FIXED}, FIXED > 0, NoDerivativeError, "x: expected floats, or integers that are indices, got bool"),
    ({"w": FIXED.T}, FIXED.astype(int)[:, :5], NoDerivativeError, r"can be an index of a table, `table\[x\]`"),
])  # fmt: skip
def test_arguments_that_do_not_fit(parameters, x, kind, words):
    with pytest.raises(kind, match=words):
        gb.trace(lambda p, x: x @ p["w"], parameters, x)


def test_every_kind_has_a_paragraph():
    kinds = {name for name, kind in vars(refused).items() if inspect.isclass(kind) and issubclass(kind, TraceError)}
    assert set(re.findall(r"^### `(\w+)`", DOCS.read_text(), re.MULTILINE)) == kinds - {"TraceError"}


@pytest.mark.parametrize("fails", [lambda y: np.asarray(y), lambda y: int("one")], ids=["refused", "of the user"])
def test_an_array_that_is_kept_from_a_call_with_an_error_is_of_an_earlier_call(fails):
    kept = []

    def leaking(p, x):
        kept.append(x @ p["w"])
        return fails(kept[-1]) if len(kept) < 2 else kept[0]

    given = {"w": np.ones((3, 3))}, np.ones((2, 3))
    with pytest.raises((TraceError, ValueError)):
        gb.trace(leaking, *given)
    with pytest.raises(LeakedArrayError, match=r"`kept\[0\] \+ 1`: an array of an earlier call is used"):
        kept[0] + 1
    with pytest.raises(LeakedArrayError, match="an array of an earlier call is used"):
        gb.trace(leaking, *given)


def test_an_error_deep_in_the_package_names_the_line_of_the_user():
    loss = losses.HuberLoss()
    vars(loss)["delta"] = np.ones(3)

    def function(p, x):
        return loss.values(x @ p["w"], np.zeros((2, 4)))  # which calls `huber`, where three numbers meet four

    with pytest.raises(TraceError, match=r"^test_refusals.py:\d+: `return loss.values\(x @ .*: np.less_equal of "):
        gb.trace(function, {"w": np.ones((4, 4))}, np.ones((2, 4)))


def test_an_array_of_another_trace_is_of_another_call():
    def outer(p, x):
        h = np.tanh(x @ p["w"])
        gb.trace(lambda p, x: h, {"w": np.ones((3, 3))}, np.ones((2, 3)))
        return h

    with pytest.raises(LeakedArrayError, match="an array of an earlier call is used"):
        gb.trace(outer, {"w": np.ones((3, 3))}, np.ones((2, 3)))


def test_an_index_is_no_number():
    with pytest.raises(NoDerivativeError, match="of an index has no derivative"):
        gb.trace(lambda p, x: x.astype(float) @ p["w"], {"w": FIXED.T}, FIXED.astype(int))


def test_a_function_that_asks_for_the_dtype():
    """It is recorded in float64."""
    with pytest.raises(TraceError, match="computes otherwise with plain arrays of float32"):
        gb.trace(lambda p, x: x @ p["w"] * x.itemsize, {"w": np.eye(3, dtype="float32")}, FIXED)


def test_a_function_of_another_number_of_rows():
    with pytest.raises(TraceError, match="computes otherwise with plain arrays"):
        gb.trace(lambda p, x: x @ p["w"] if len(x) < 4 else x[:2], {"w": np.eye(3)}, FIXED)


MIXING = {
    "reversed": lambda p, x: x[::-1] @ p["w"],
    "rolled": lambda p, x: np.roll(x, 1, axis=0) @ p["w"],
    "turned": lambda p, x: x.T.reshape(x.shape) @ p["w"],
    "beside the next": lambda p, x: (x - np.roll(x, 1, axis=0)) @ p["w"] + 1,
    "in a loss": lambda f, y: ((f[::-1] - y) ** 2).sum(1),
}


@pytest.mark.parametrize("size", [1e-100, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("name", MIXING)
def test_samples_that_are_mixed_are_refused_whatever_the_size_of_numbers(name, size):
    rng = np.random.default_rng(0)
    x, y, w = size * rng.standard_normal((6, 4)), size * rng.standard_normal((6, 4)), rng.standard_normal((4, 3))
    with pytest.raises(MixedSamplesError):
        gb.trace_loss(MIXING[name], x, y) if name == "in a loss" else gb.trace(MIXING[name], {"w": w}, x)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e8])
@pytest.mark.parametrize("function", [
    lambda p, x: (x @ p["w"] + 1e3) - 1e3 - x @ p["w"] + (x @ p["w"]) ** 2,
    lambda p, x: 1e6 * (np.tanh(x @ p["w"]) - (np.exp(2 * (x @ p["w"])) - 1) / (np.exp(2 * (x @ p["w"])) + 1)),
    lambda p, x: x @ p["w"] - np.einsum("ni,io->no", x, p["w"]),
], ids=["sum", "tanh", "product"])  # fmt: skip
def test_what_is_left_where_numbers_cancel_is_no_mixing(function, size):
    rng = np.random.default_rng(0)
    gb.trace(function, {"w": rng.standard_normal((4, 3)) / size}, size * rng.standard_normal((6, 4)))


def test_samples_that_are_mixed_are_refused_where_few_digits_are_right():
    rng = np.random.default_rng(0)
    with pytest.raises(MixedSamplesError):
        gb.trace(lambda p, x: np.sin(1e12 * x)[::-1] @ p["w"], {"w": np.eye(4)}, rng.standard_normal((6, 4)))


@pytest.mark.parametrize("value", [-3, -1, 0, 1, 2, 7, True, False])
@pytest.mark.parametrize("n", [2, 3])
def test_integers_that_are_the_same_in_all_samples_are_told_apart(value, n):
    from gbackprop.interop.recording.examples import samples

    found = samples(np.array([[value, 4], [value, 5]]), n, np.random.default_rng(0))[:, 0]
    low, high = min(value, 0), max(value, 0) + (value == 0)
    assert ((low <= found) & (found <= high)).all()
    assert not np.array_equal(found, found[::-1])
    assert not np.array_equal(found, np.sort(found))
    kept = samples(np.array([[value, 4], [value, 5]]), n, np.random.default_rng(0), beside=None)
    assert (kept[:, 0] == value).all()
    assert set(kept[:, 1]) == {4, 5}


INTEGERS = {
    "reversed": lambda p, x: p["t"][x][::-1].sum(1),
    "rolled": lambda p, x: np.roll(p["t"][x].sum(1), 1, 0),
    "of the second column alone": lambda p, x: p["t"][x][:, 0] + p["t"][x][::-1, 1],
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("x", [[[1, 2]], [[0, 0]], [[3, 2]] * 4, [[1, 2], [3, 2], [5, 2]]], ids=str)
def test_functions_that_mix_indices_show_at_any_example(name, x):
    table = {"t": np.random.default_rng(0).standard_normal((10, 3))}
    with pytest.raises(MixedSamplesError, match="depends on other samples"):
        gb.trace(INTEGERS[name], table, np.array(x))
    network = gb.trace(lambda p, x: p["t"][x].sum(1), table, np.array(x))
    rows = np.random.default_rng(1).integers(0, 10, (4, 2))
    np.testing.assert_allclose(network(rows), table["t"][rows].sum(1))


own = lambda o, y: o[np.arange(len(y)), y]  # noqa: E731
MIXED = {  # labels, and floats that are made of them
    "labels": lambda o, y: np.log(np.exp(o).sum(1)) - own(o, y[::-1]),
    "outputs at labels": lambda o, y: np.log(np.exp(o).sum(1)) - own(o, y)[::-1],
    "outputs at labels, rolled": lambda o, y: np.log(np.exp(o).sum(1)) - np.roll(own(o, y), 1),
    "floats of labels": lambda o, y: (o**2).sum(1) * (1.0 * y)[::-1],
    "one-hot": lambda o, y: (o * (y[:, None] == np.arange(3))[::-1]).sum(1) ** 2,
    "centred": lambda o, y: (o**2).sum(1) * (y - (y / 1.0).mean()),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("target", [np.array([1]), np.array([0]), np.ones(4, int), np.array([0, 1, 2, 0])], ids=str)
def test_losses_that_mix_targets_show_at_any_example(name, target):
    output = np.random.default_rng(0).standard_normal((len(target), 3))
    with pytest.raises(MixedSamplesError):
        gb.trace_loss(MIXED[name], output, target)
    with pytest.raises(MixedSamplesError):
        gb.trace_loss(lambda o, y: (o**2).sum(1) * y[::-1], output, target > 0)


def test_an_example_of_integers_with_which_no_others_go_is_refused():
    words = "target: expected an example in which integers differ .*; with others .*out of bounds"
    with pytest.raises(ValueError, match=words):
        gb.trace_loss(lambda o, y: o[np.arange(len(y)), 5 * y - 19] ** 2, np.ones((1, 2)), np.array([4]))
    gb.trace_loss(lambda o, y: o[np.arange(len(y)), y + 1] ** 2, np.ones((2, 2)), np.array([0, -1]))


def test_an_index_that_can_be_0_alone_is_taken():
    network = gb.trace(lambda p, x: p["t"][x], {"t": np.ones((1, 3))}, np.zeros(2, int))
    np.testing.assert_array_equal(network(np.zeros(4, int)), np.ones((4, 3)))
    loss = gb.trace_loss(lambda o, y: o[np.arange(len(y)), y] ** 2, np.ones((4, 1)), np.zeros(4, int))
    np.testing.assert_array_equal(loss.values(np.array([[2.0], [3.0]]), np.zeros(2, int)), [4, 9])


@pytest.mark.parametrize("function", [
    lambda p, x: p["w"][x, 0][:, None], lambda p, x: p["w"][:, x].T, lambda p, x: p["w"][0, x][:, None],
    lambda p, x: p["w"][x, 1:],
])  # fmt: skip
def test_a_computed_index_beside_others_is_refused_with_what_to_write_instead(function):
    with pytest.raises(MissingFunctionError, match=r"multiply by `i\[..., None\] == np.arange\(size\)`"):
        gb.trace(function, {"w": FIXED[:3]}, np.array([0, 2, 1, 1]))


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2**24), ("float64", 2**53)])
def test_integer_targets_that_the_outputs_dtype_has_not_are_refused(dtype, most):
    example = np.zeros((2, 1)), most - np.array([1, 3])
    loss = gb.trace_loss(lambda o, y: ((o - (y - most)[:, None]) ** 2).sum(1), *example)
    output = np.zeros((2, 1), dtype)
    np.testing.assert_array_equal(loss.values(output, np.array([most, most - 3])), [0, 9])
    words = f"target: expected integers that {dtype} represents, up to {most}, got {most + 1}"
    with pytest.raises(ValueError, match=words):
        loss(output, np.array([most + 1, 3]))
    with pytest.raises(ValueError, match="expected integers that float64 represents, up to 9007199254740992"):
        gb.trace_loss(lambda o, y: (o**2).sum(1) * y, np.zeros((2, 1)), np.array([2**53 + 1, 4]))


def test_the_number_of_samples_decides_nothing_in_a_loss_either():
    f, y = np.ones((3, 2)), np.zeros((3, 2))
    for size in (1, 4, 129):
        with pytest.raises(BatchSizeError, match=f"with N = {size} samples"):
            gb.trace_loss(lambda f, y, size=size: ((f - y) ** 2).sum(1) * (1 + (len(f) == size)), f, y)


def test_the_axis_of_one_sample_may_be_dropped():
    net = gb.trace(lambda p, x: np.squeeze(x @ p["w"]), {"w": np.ones((3, 2))}, np.ones((4, 3)))
    assert net(np.ones((1, 3))).shape == (1, 2)


@pytest.mark.parametrize(("features", "many"), [(3, True), (10_000, False)])
def test_many_samples_are_tried_of_small_ones_alone(features, many):
    sizes = []

    def summed(p, x):
        sizes.append(len(x))
        return (x * p["w"]).sum(1)

    gb.trace(summed, {"w": np.ones(features)}, np.ones((4, features)))
    assert {1, 5} <= set(sizes)
    assert (129 in sizes) is many
