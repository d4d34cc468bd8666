"""Functions that a torch module calls: the layers for them, their defaults, and what is refused."""

import inspect

import numpy as np
import pytest

from gbackprop import UnsupportedError, layers

torch = pytest.importorskip("torch")
from gbackprop.interop.arithmetic import Tensor, arithmetic  # noqa: E402
from gbackprop.interop.importing import _batch  # noqa: E402
from gbackprop.interop.operations import FUNCTIONS, REQUIRED, found, item  # noqa: E402

F = torch.nn.functional


def tensor(*shape):
    return Tensor("x", shape)


X = tensor(2, 3, 4)


def made(name, *args, shape=(2, 3, 4), **keywords):
    return [repr(layer) for layer in found(name, name, args, keywords, shape)[0]]


def arguments_of_torch(name):
    """The arguments of a function after the tensor, with their defaults, or None where torch does not tell them."""
    function = getattr(F, f"_{name}", None) or getattr(F, name)  # pools of maxima: the one without indices
    try:
        return {each.name: each.default for each in [*inspect.signature(function).parameters.values()][1:]}
    except ValueError:  # of a function in C
        schema = getattr(getattr(torch.ops.aten, name, None), "default", None)
        return schema and {each.name: each.default_value for each in schema._schema.arguments[1:]}


def test_defaults_are_those_of_torch():
    seen = 0
    for name, (_, defaults) in FUNCTIONS.items():
        theirs = arguments_of_torch(name)
        for key, value in defaults.items() if theirs is not None else ():
            if key in theirs and value is not REQUIRED:
                same = theirs[key] == value if not isinstance(theirs[key], list) else not (value or any(theirs[key]))
                assert same, (name, key)  # in C no stride is an empty list, and no padding a list of zeros
                seen += 1
    assert seen >= 45


SLICED = [
    (slice(None), []), ((slice(None), 1), [repr(layers.Select(1, 1))]),
    ((slice(None), slice(1, 3)), [repr(layers.Slice(1, 1, 3))]),
    ((slice(None), slice(None), slice(0, 4, 2)), [repr(layers.Slice(2, 0, 4, 2))]),
    ((slice(None), 1, slice(1, 3)), [repr(layers.Slice(2, 1, 3)), repr(layers.Select(1, 1))]),
]  # fmt: skip


@pytest.mark.parametrize(("index", "want"), SLICED, ids=str)
def test_indices_are_selections_and_slices(index, want):
    assert [repr(layer) for layer in item(X, index)] == want


@pytest.mark.parametrize("index", [0, (0, 1), (slice(1, 2), 1), (slice(None), [0, 1]), (slice(None), None)], ids=str)
def test_other_indices_are_refused(index):
    with pytest.raises(UnsupportedError, match="expected the whole batch, then integers and slices"):
        item(X, index)


def test_numbers_are_added_multiplied_and_divided():
    def numbers(name, *args, **keywords):
        made, taken = arithmetic(name, args, keywords)
        return [repr(layer) for layer in made], taken

    assert numbers("add", X, 2.0, alpha=3)[0] == ["Plus(6)"]
    assert numbers("sub", X, 2.0)[0] == ["Plus(-2)"]
    made, ((negated, taken),) = numbers("sub", 5.0, X)
    assert (made, [repr(layer) for layer in negated], taken) == (["Plus(5)"], ["Times(-1)"], [X])
    assert numbers("add", X, 0.0) == ([], [X])
    assert numbers("add", X, X)[0] == ["Add()"]
    for name, value, factor in (("mul", 4.0, 4.0), ("div", 4.0, 0.25), ("truediv", -2.0, -0.5)):
        ((scaled, taken),) = numbers(name, X, value)[1]
        assert ([repr(layer) for layer in scaled], taken) == ([f"Times({factor:g})"], [X])


REFUSED = {
    "two tensors": (("relu", X, X), {}, "relu: expected one tensor, which the network computes"),
    "no tensor": (("relu", 3), {}, "relu: expected one tensor"),
    "an argument": (("relu", X, False, 1), {}, r"relu: expected the arguments \['inplace'\]"),
    "a keyword": (("tanh", X), {"dim": 1}, r"tanh: expected the arguments \[\]"),
    "a number to multiply": (("matmul", X, 3), {}, "matmul: expected two tensors"),
    "where to write": (("matmul", X, X), {"out": X}, "matmul: expected two tensors"),
    "one to concatenate": (("cat", [X]), {}, "cat: expected several tensors"),
    "numbers to concatenate": (("cat", [X, 1]), {}, "cat: expected several tensors"),
    "no layer": (("svd", X), {}, "svd: there is no layer for it"),
    "the batch": (("view", X), {"shape": (3, 2, 4)}, r"view: expected that the batch remains axis 0, got"),
    "a divisor": (("div", X, X), {}, "div: expected a number other than 0 as the divisor"),
    "zero": (("div", X, 0.0), {}, "div: expected a number other than 0 as the divisor"),
    "rounding": (("div", X, 2.0), {"rounding_mode": "floor"}, "div: expected two operands and no further argument"),
    "no number": (("add", X, float("inf")), {}, "add: expected tensors, which the network computes, or finite numbers"),
    "always": (("dropout", X, 0.5, True), {}, "dropout: it drops in evaluation mode, too"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_layer_computes_is_refused(case):
    args, keywords, words = REFUSED[case]
    with pytest.raises(UnsupportedError, match=f"^{words}"):
        made(*args, **keywords) if case != "the batch" else made(*args, shape=keywords["shape"])


def test_axes_are_merged_and_split_as_shapes_say():
    assert made("view", tensor(2, 3, 4), shape=(2, 12)) == [repr(layers.Flatten(1, -1))]
    assert made("view", tensor(2, 3, 4, 5), shape=(2, 12, 5)) == [repr(layers.Flatten(1, 2))]
    assert made("view", tensor(2, 12), shape=(2, 3, 4)) == [repr(layers.Unflatten(1, (3, 4)))]
    assert made("view", tensor(2, 12), shape=(2, 12)) == []


def test_a_batch_has_the_dtype_of_its_floats():
    for given, want in (("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("int64", "float32")):
        x, dtype = _batch(np.ones((2, 3), given), None)
        assert dtype == want
        assert str(x.dtype) == f"torch.{want if given != 'int64' else given}"
    for wrong in (np.ones(()), np.ones((0, 2)), [1, 2]):
        with pytest.raises(TypeError, match="example: expected an array or a tensor of at least one sample"):
            _batch(wrong, None)
    assert len(_batch(np.ones(1), None)[0]) == 1
