"""Every row of the table of operations: derivatives, second derivatives, ties, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from common import one_in

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import leaves_of
from gbackprop.layers import Operation
from gbackprop.layers.operations.operation import ROWS, ComposedOperation
from gbackprop.layers.operations.row import LinearRow, table
from gbackprop.testing import check_layer, check_network
from gbackprop.testing.cases.operations import CASES, OPERATIONS, around, evaluated, split
from gbackprop.testing.flat import Flat


@pytest.mark.parametrize("row", OPERATIONS, ids=str)
def test_every_row(row):
    layer, x = row.layer(), row.x()
    inputs = tuple(layer.split(x, 1)) if isinstance(layer, Flat) else x
    report = check_layer(layer.layer if isinstance(layer, Flat) else layer, inputs, reference=row.reference(layer))
    report.assert_ok()


def test_every_row_has_a_case():
    assert {name for name, _, _ in CASES} == ROWS.keys()


COMPOSED = [case for case in CASES if isinstance(Operation(case[0], **case[1]), ComposedOperation)]


@pytest.mark.parametrize(("name", "options", "shapes"), one_in(3, COMPOSED), ids=str)
def test_quantities_through_composed_rows(name, options, shapes, apart):
    network, x = around(name, options, shapes)
    y = np.random.default_rng(2).standard_normal(network(x).shape)
    check_network(network, losses.MSELoss(), x, y).assert_ok()


@pytest.mark.parametrize(("name", "options"), [
    ("gather", {"places": np.array(2)}), ("take", {"indices": np.array(2), "axis": 1}),
])  # fmt: skip
def test_one_place_of_features_has_no_axis(name, options):
    assert Operation(name, **options).forward(np.ones((5, 3)))[0].shape == (5,)
    assert Operation(name, **options).output_shape((3,)) == ()


@pytest.mark.parametrize(("index", "text"), [
    ((slice(None), 0), "x[:, 0, ...]"), ((Ellipsis, 0), "x[..., 0]"), (slice(1, None, 2), "x[1::2, ...]"),
    (-1, "x[-1, ...]"), ((None, Ellipsis, slice(None, None, -1)), "x[None, ..., ::-1]"),
])  # fmt: skip
def test_a_part_is_written_as_it_is_in_numpy(index, text):
    assert Operation("getitem", index=index).text("x", shapes=((2, 3),)) == text


@pytest.mark.parametrize("size", [1, 2, 3])
def test_negative_places_count_from_the_end(size):
    x, places = np.arange(2.0 * size).reshape(2, size), np.arange(-size, size)
    for options in ({"name": "gather", "places": places}, {"name": "take", "indices": places, "axis": 1}):
        np.testing.assert_array_equal(Operation(**options).forward(x)[0], x[:, places])
    one = Operation("scatter_add", places=np.array([-size]), shape=(size,)).forward(np.full((1, 1), 7.0))[0]
    assert one.tolist() == [[7.0] + [0.0] * (size - 1)]


def test_the_slope_of_expm1_is_not_lost_where_it_is_small():
    x = np.array([[-30.0, -17.0, -8.0, 0.0, 3.0]], "float32")
    layer = Operation("expm1")
    _, saved = layer.forward(x)
    wanted = [math.exp(v) for v in x[0].tolist()]
    np.testing.assert_allclose(layer.mjp(saved, np.ones((1, *x.shape), "float32"))[0, 0], wanted, rtol=3e-7)
    np.testing.assert_allclose(layer.residual(saved, np.ones_like(x)).product()[0], wanted, rtol=3e-7)


def test_curvature_of_a_quotient_of_large_numbers_is_not_lost():
    x = np.array([[30.0, 29.0, 3.0], [-2.0, 1.0, 28.0]])
    plain = gb.Graph({"e": (Operation("exp"), "input"), "s": (Operation("sum", axis=1, keepdims=True), "e"),
                      "y": (Operation("divide"), "e", "s")}, dtype="float64")  # fmt: skip
    stable = gb.Graph({"y": (Operation("softmax"), "input")}, dtype="float64")
    plain, stable = (
        gb.backward(net, losses.MSELoss(), x, 1 + x, q.DiagHessian(), wrt="x")["diag_hessian"]["x"]
        for net in (plain, stable)
    )
    np.testing.assert_allclose(plain, stable, rtol=1e-9, atol=1e-12)


SIZES = ((), (1,), (3,), (1, 1), (1, 3), (2, 1), (2, 3))
BROADCAST = [name for name, _, shapes in CASES if len(shapes) > 1 and len({*shapes}) > 1
             and not {name} & {"matmul", "einsum", "concatenate", "cosine_similarity"}]  # fmt: skip


@pytest.mark.parametrize("name", dict.fromkeys(BROADCAST))
def test_every_combination_of_axes_of_size_one(name):
    for a, b in itertools.product(SIZES, repeat=2):
        shapes = (a, b, a)[: 3 if name == "where" else 2]
        network, rng = split(Operation(name), shapes), np.random.default_rng(0)
        x = rng.uniform(0.5, 2, (3, sum(math.prod(shape) for shape in shapes)))
        parts = np.split(x, np.cumsum([math.prod(shape) for shape in shapes])[:-1], axis=1)
        inputs = [part.reshape(3, *shape) for part, shape in zip(parts, shapes, strict=True)]
        y, saved = network.forward(x)
        np.testing.assert_allclose(y, evaluated(Operation(name), shapes, *inputs), rtol=1e-12)
        u, g = rng.standard_normal(x.shape), rng.standard_normal(y.shape)
        pushed, step = network.jmp(saved, u[None])[0], 1e-6
        slope = (network.forward(x + step * u)[0] - network.forward(x - step * u)[0]) / (2 * step)
        np.testing.assert_allclose(pushed, slope, atol=1e-7, err_msg=str(shapes))
        back = network.mjp(saved, g[None])[0]
        np.testing.assert_allclose((back * u).sum(1), (g * pushed).reshape(3, -1).sum(1), atol=1e-10)


def test_rows_that_state_no_ties_are_linear():
    for name, options, shapes in CASES:
        layer, rng = Operation(name, **options), np.random.default_rng(0)
        if isinstance(layer.row, LinearRow) and layer.row.ties == "none: linear":
            a, b = ([rng.standard_normal((2, *shape)) for shape in shapes] for _ in range(2))
            (y, saved), (z, _) = layer.forward(*a), layer.forward(*b)
            difference = [p - q for p, q in zip(a, b, strict=True)]
            np.testing.assert_allclose(layer.jmp(saved, *[d[None] for d in difference])[0], y - z, atol=1e-12)


@pytest.mark.parametrize(("name", "options", "inputs", "expected"), [
    ("absolute", {}, [[0.0, -1.0]], [[0.0, -1.0]]),
    ("clip", {"least": 0.0, "most": 1.0}, [[0.0, 1.0, 2.0]], [[1.0, 1.0, 0.0]]),
    ("maximum", {}, [[1.0, 2.0], [1.0, 3.0]], [[0.5, 0.0], [0.5, 1.0]]),
    ("minimum", {}, [[1.0, 2.0], [1.0, 3.0]], [[0.5, 1.0], [0.5, 0.0]]),
    ("max", {"axis": 1}, [[2.0, 2.0, 1.0, 2.0]], [[1 / 3, 1 / 3, 0.0, 1 / 3]]),
    ("min", {"axis": 1}, [[2.0, 1.0, 1.0, 2.0]], [[0.0, 0.5, 0.5, 0.0]]),
    ("min", {"axis": 1, "first": True}, [[2.0, 1.0, 1.0, 2.0]], [[0.0, 1.0, 0.0, 0.0]]),
    ("power", {"exponent": 1}, [[0.0]], [[1.0]]),
    ("power", {"exponent": 0}, [[0.0]], [[0.0]]),
    ("power", {"exponent": np.array([2, 0.5, 1, 0])}, [[-1.0, 4.0, 0.0, 0.0]], [[-2.0, 0.25, 1.0, 0.0]]),
    ("root", {}, [[0.0]], [[0.0]]),
    ("sign", {}, [[0.0, 2.0]], [[0.0, 0.0]]),
])  # fmt: skip
def test_derivatives_at_ties_and_kinks(name, options, inputs, expected):
    layer = Operation(name, **options)
    y, saved = layer.forward(*[np.array([each]) for each in inputs])
    below = layer.mjp(saved, np.ones((1, *y.shape)))
    parts = below if isinstance(below, tuple) else (below,)
    np.testing.assert_array_equal([part[0, 0] for part in parts], expected)


@pytest.mark.parametrize(("name", "options", "shapes", "words"), [
    ("sum", {"axis": 0}, [(2,)], "axis: expected axes after the batch axis"),
    ("sum", {"axis": 3}, [(2, 2)], "axis: expected different axes"),
    ("sum", {"axis": (1, -2)}, [(2, 2)], "axis: expected different axes"),
    ("add", {}, [(2,), (3,)], r"expected features that broadcast, got \(2,\) and \(3,\)"),
    ("add", {}, [(2,)], "expected at least two inputs, got 1"),
    ("exp", {}, [(2,), (2,)], "expected one input, got 2"),
    ("matmul", {}, [(2, 3), (2, 3)], r"expected features \(…, T, K\)"),
    ("reshape", {"shape": (4,)}, [(2, 3)], "shape: expected one of 6 numbers"),
    ("gather", {"places": np.array([6])}, [(2, 3)], "places: expected integers from -6 to 5"),
    ("take", {"indices": np.array([0.0]), "axis": 1}, [(2, 3)], "indices: expected integers"),
    ("getitem", {"index": 4}, [(2, 3)], "index: expected one of features"),
    ("einsum", {"subscripts": "aa,b->b"}, [(2, 2), (3,)], "subscripts: expected each letter once"),
    ("concatenate", {"axis": 1}, [(2, 2), (2, 3)], "expected features of equal shape but for axis 1"),
    ("clip", {"least": "0"}, [(2,)], "least: expected a number, got '0'"),
    ("prod", {"axis": 4}, [(2,)], "axis: expected different axes"),
    ("var", {"ddof": 2}, [(2,)], "ddof: expected an integer from 0"),
    ("pad", {"widths": ((1, 1),)}, [(2, 2)], "widths: expected"),
    ("pad", {"widths": ((1, -1),)}, [(2,)], "widths: expected"),
    ("pad", {"widths": ((1, 1, 1),)}, [(2,)], "widths: expected"),
    ("pad", {"widths": ((1, 1),), "mode": "mirror"}, [(2,)], "mode: expected one of"),
    ("sum", {"axis": True}, [(2,)], "axis: expected axes after the batch axis"),
    ("sum", {"keepdims": 1}, [(2,)], "keepdims: expected True or False, got 1"),
    ("cumsum", {"axis": None}, [(2,)], "axis: expected one axis after the batch axis, got None"),
    ("softmax", {"axis": (1, 2)}, [(2, 2)], "axis: expected one axis"),
    ("roll", {"shift": 1.5, "axis": 1}, [(2,)], "shift: expected integers, got 1.5"),
    ("roll", {"shift": True, "axis": 1}, [(2,)], "shift: expected integers, got True"),
    ("roll", {"shift": "1", "axis": 1}, [(2,)], "shift: expected integers, got '1'"),
    ("roll", {"shift": 1}, [(2,)], "axis, shift: expected axes and a shift for each"),
    ("roll", {"shift": (1, 1), "axis": 1}, [(2,)], "axis, shift: expected axes and a shift for each"),
    ("repeat", {"repeats": 0, "axis": 1}, [(2,)], "repeats: expected a positive integer, got 0"),
    ("reshape", {"shape": (-2, -3)}, [(2, 3)], "shape: expected one of 6 numbers"),
    ("reshape", {"shape": (-1, -1, 6)}, [(2, 3)], "shape: expected one of 6 numbers"),
    ("reshape", {"shape": (-1, 4)}, [(2, 3)], "shape: expected one of 6 numbers"),
    ("transpose", {"axes": (1,)}, [(2, 3)], "axes: expected all axes after the batch axis"),
    ("broadcast_to", {"shape": (1, 3)}, [(2, 3)], "shape: expected one to which features"),
    ("getitem", {"index": [0, 1]}, [(2, 3)], "use 'gather'"),
    ("gather", {"places": np.array([-7])}, [(2, 3)], "places: expected integers from -6 to 5"),
    ("scatter_add", {"places": np.array([0]), "shape": (3,)}, [(2,)], "places: expected one for each number"),
    ("along", {"matrix": np.ones((2, 3)), "axis": 1}, [(2,)], r"matrix: expected an array of shape \(…, 2\)"),
    ("along", {"matrix": np.ones(2), "axis": 1}, [(2,)], r"matrix: expected an array of shape \(…, 2\)"),
    ("along", {"matrix": [[1, 2]], "axis": 1}, [(2,)], r"matrix: expected an array of shape \(…, 2\)"),
    ("tril", {}, [(2,)], "expected features of matrices"),
    ("var", {"ddof": True}, [(2,)], "ddof: expected an integer from 0"),
    ("var", {"ddof": -1}, [(2,)], "ddof: expected an integer from 0"),
    ("glu", {}, [(3,)], "expected features with an even axis -1"),
    ("stack", {"axis": 1}, [(2,), (3,)], "expected features of equal shape"),
    ("index_add", {"indices": [0], "axis": 1}, [(2,), (2,)], r"expected features \(1,\) to be added"),
    ("unfold", {"kernel": (2, 2, 2)}, [(1, 3, 3)], "expected 2 integers each for an image"),
    *[("unfold", {"kernel": 2, **more}, [(1, 3, 3)], "kernel: expected windows inside the padded image")
      for more in ({"kernel": 4}, {"dilation": 3}, {"padding": -1}, {"stride": 0}, {"kernel": 0})],
    ("fold", {"size": (3, 3), "kernel": 2}, [(4, 3)], r"expected features \(4, 4\) of windows"),
    ("interpolate", {"size": 2, "mode": "nearest", "corners": True}, [(1, 3)], "mode: expected one of"),
    ("interpolate", {"size": 2, "mode": "area"}, [(1, 3)], "mode: expected one of"),
    *[("interpolate", {"size": size, **more}, [(1, 3)], "size: expected that of each axis after the channels")
      for size, more in ((0, {}), ((2, 2), {}), (2, {"factors": (1.0, 2.0)}))],
    ("power", {"exponent": True}, [(2,)], "exponent: expected a number, got True"),
    *[("power", {"exponent": exponent}, [(2,)], r"exponent: expected numbers that broadcast to features \(2,\)")
      for exponent in (np.ones((3, 1)), np.ones(2) > 0)],
    ("affine", {"factor": "2"}, [(2,)], "factor: expected a number, got '2'"),
    ("clip", {"most": True}, [(2,)], "most: expected a number, got True"),
    ("divided_by", {"number": 0}, [(2,)], "number: expected one other than 0, got 0"),
    ("raised", {"base": -1}, [(2,)], "base: expected a number above 0, got -1"),
    ("matmul", {}, [(), (2,)], "expected vectors or matrices"),
    ("where", {}, [(2,), (2,)], "expected 3 inputs, got 2"),
    *[("einsum", {"subscripts": text}, [(2,), (2,)], "subscripts: expected 'a,b->c'")
      for text in ("a,b", "a->a", "1,b->b")],
    *[("einsum", {"subscripts": text}, [(2,), (3,)], words) for text, words in (
        ("a,b->c", "expected each letter once"), ("a,b->aa", "expected each letter once"),
        ("a,a->", "expected letters for"), ("ab,c->c", "expected letters for"))],
])  # fmt: skip
def test_what_does_not_fit_is_refused(name, options, shapes, words):
    with pytest.raises(ValueError, match=words):
        Operation(name, **options).output_shape(*shapes)


@pytest.mark.parametrize(("name", "option"), [
    ("affine", "factor"), ("divided_by", "number"), ("reciprocal", "numerator"), ("raised", "base"),
    ("power", "exponent"), ("clip", "least"),
])  # fmt: skip
def test_an_option_of_float64_leaves_float32(name, option):
    layer = Operation(name, **{option: np.float64(1.5)})
    y, saved = layer.forward(np.array([[0.5, 2.0]], "float32"))
    assert (y.dtype, layer.mjp(saved, np.ones((1, 1, 2), "float32")).dtype) == ("float32", "float32")


COSTS = {  # numbers of operations, of the first case of each row
    0: "reshape transpose", 2: "getitem", 3: "reciprocal negative divided_by", 5: "concatenate",
    4: "square absolute sign minimum multiply", 8: "repeat", 9: "tril", 10: "clip",
    16: "std fold", 20: "prod", 32: "unfold",
    6: "sqrt root rsqrt affine sum mean gather take flip roll scatter_add cumsum add subtract maximum where einsum "
       "greater greater_equal less less_equal equal not_equal index_add stack",
    12: "max min broadcast_to pad along triu matmul divide var norm", 36: "cosine_similarity", 40: "glu", 120: "pow",
    30: "expm1 log log2 log10 raised log1p power sin cos tan arctan sinh cosh erf", 64: "interpolate",
    60: "exp logsumexp softmax log_softmax",
}  # fmt: skip


def test_costs_are_operations_on_numbers():
    first = {name: (options, shapes) for name, options, shapes in reversed(CASES)}
    found = {name: Operation(name, **options).cost(*shapes) for name, (options, shapes) in first.items()}
    assert found == {name: cost for cost, names in COSTS.items() for name in names.split()}


@pytest.mark.parametrize("more", [{"padding": (1, 2)}, {"padding": 1, "dilation": (1, 2), "stride": (2, 1)}], ids=str)
def test_windows_of_a_padded_image_are_those_of_a_loop(more):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    (up, left), (far, wide), (down, right) = (np.broadcast_to(more.get(name, at_least), 2).tolist()
                                              for name, at_least in (("padding", 0), ("dilation", 1), ("stride", 1)))
    padded = np.pad(x, ((0, 0), (0, 0), (up, up), (left, left)))
    rows, columns = range(0, padded.shape[2] - far, down), range(0, padded.shape[3] - 2 * wide, right)
    seen = [padded[:, :, i : i + far + 1 : far, j : j + 2 * wide + 1 : wide].reshape(2, -1)
            for i in rows for j in columns]  # fmt: skip
    unfolded = gb.Sequential(Operation("unfold", kernel=(2, 3), **more))(x)
    np.testing.assert_array_equal(unfolded, np.stack(seen, -1))
    y = np.random.default_rng(1).standard_normal(unfolded.shape)
    folded = gb.Sequential(Operation("fold", size=(4, 5), kernel=(2, 3), **more))(y)
    np.testing.assert_allclose((folded * x).sum(), (y * unfolded).sum(), rtol=1e-12)  # the adjoint of unfold


def test_a_name_or_an_option_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="did you mean 'matmul'"):
        Operation("matmull")
    with pytest.raises(TypeError, match="its options are axis=None, keepdims=False"):
        Operation("sum", dim=1)


def test_a_row_that_lacks_something_is_an_error():
    row = ROWS["flip"]
    fields = {name: getattr(row, name) for name in LinearRow.__dataclass_fields__}
    for name in fields:
        with pytest.raises(ValueError, match=f"of operations: expected its {name}"):
            table(LinearRow(**{**fields, name: None}))
    with pytest.raises(ValueError, match="expected one row of a name"):
        table(row, row)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("size", "out"), [(3, 5), (4, 2), (2, 7), (5, 5)])
def test_a_linear_interpolation_is_numpys(size, out, corners):
    x = np.random.default_rng(0).standard_normal((2, 1, size))
    at = np.arange(out) * (size - 1) / (out - 1) if corners else (np.arange(out) + 0.5) * size / out - 0.5
    found = gb.Sequential(Operation("interpolate", size=out, mode="linear", corners=corners))(x)
    wanted = [[np.interp(at, np.arange(size), each)] for each in x[:, 0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-14)


def test_rows_of_functions_say_what_their_derivatives_are():
    of = {name: Operation(name).formulas for name in ("cosh", "arctan")}
    assert all({"forward", "mjp"} <= formulas.keys() for formulas in of.values())
    assert of["cosh"] != of["arctan"]


def test_a_product_with_one_matrix_has_the_axes_of_the_other():
    assert Operation("matmul").output_shape((2, 3, 4), (4, 5)) == (2, 3, 5)
    assert Operation("matmul").output_shape((3, 4), (2, 4, 5)) == (2, 3, 5)


def test_parts_of_one_kind_are_numbered():
    graph = gb.Graph({"a": (layers.Slice(1, 0, 3), "input"), "b": (layers.Slice(1, 3, 6), "input"),
                      "o": (Operation("cosine_similarity"), "a", "b")})  # fmt: skip
    names = {leaf.name for leaf in leaves_of(graph, (6,))}
    assert {"o.norm.sum", "o.norm2.sum", "o.clip", "o.clip2", "o.broadcast_to2"} <= names


@pytest.mark.parametrize("direction", [1, -1])
def test_a_complex_step_at_a_bound_of_clip_is_its_derivative(direction):
    layer, x = Operation("clip", least=0.0, most=1.0), np.array([[-0.5, 0.0, 0.5, 1.0, 1.5]])
    moved = layer.forward(x + direction * 1e-20j)[0]
    np.testing.assert_array_equal(moved.real, np.clip(x, 0, 1))
    slope = layer.mjp(layer.forward(x)[1], np.ones((1, *x.shape)))[0]
    np.testing.assert_allclose(moved.imag / (direction * 1e-20), slope, rtol=1e-12)


def test_a_clip_between_equal_bounds_is_constant():
    layer, x = Operation("clip", least=0.5, most=0.5), np.array([[-1.0, 0.25, 2.0]])
    y, saved = layer.forward(x)
    np.testing.assert_array_equal(y, 0.5)
    np.testing.assert_array_equal(layer.mjp(saved, np.ones((1, 1, 3))), 0)


@pytest.mark.parametrize(("name", "slope"), [("reciprocal", -1e-30), ("rsqrt", -5e-16)])
def test_slopes_below_the_range_multiply_columns_above_one(name, slope):
    """φ' is −10⁻⁶⁰ or −5 · 10⁻⁴⁶, which float32 has not; times 10³⁰ it has."""
    layer, x, columns = Operation(name), np.full((1, 1), 1e30, "float32"), np.full((1, 1, 1), 1e30, "float32")
    saved = layer.forward(x)[1]
    for product in (layer.jmp, layer.mjp):
        np.testing.assert_allclose(product(saved, columns), slope, rtol=1e-6)


def test_the_absolute_value_of_a_negative_zero_is_zero():
    y = gb.Sequential(Operation("absolute")).astype("float64")(np.array([[-0.0, 0.0, -2.0]]))
    assert not np.signbit(y).any()
    np.testing.assert_array_equal(y, [[0, 0, 2]])
