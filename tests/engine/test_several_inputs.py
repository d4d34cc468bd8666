"""Networks of several inputs: both engines, operators and data, held against brute force and against one input."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop import quantities as q
from gbackprop.calculus.several import Inputs
from gbackprop.layers import Operation
from gbackprop.testing import check_layer, check_network, check_quantity, check_symmetries

N = 3
Y, LOSS = np.array([0, 1, 1]), losses.CrossEntropyLoss()
TARGETS = np.array([[0, 1, 1], [1, 1, 0]])
ASKED = (
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN(), q.DiagHessian(),
    q.BatchDiagHessian(), q.DiagGGNMC(targets=TARGETS),
)  # fmt: skip
CALLS = [(gb.reference, {}), (gb.backward, {}), (gb.backward, {"sample_block": 2, "column_block": 3})]


def attention(a, b):
    """Queries of one input, keys and values of the other: bilinear in both."""
    return {
        "q": (layers.Linear(3, 2), a), "k": (layers.Linear(4, 2), b), "v": (layers.Linear(4, 2), b),
        "kt": (Operation("transpose", axes=(2, 1)), "k"), "scores": (Operation("matmul"), "q", "kt"),
        "soft": (layers.Softmax(-1), "scores"), "mix": (Operation("matmul"), "soft", "v"),
        "flat": (layers.Flatten(), "mix"), "y": (layers.Linear(4, 2), "flat"),
    }  # fmt: skip


def siamese(a, b):
    """One layer for both inputs, and these themselves."""
    shared = layers.Linear(3, 2)
    return {
        "left": (shared, a), "right": (shared, b), "tanh": (layers.Tanh(), "left"), "d": (Operation("multiply"), a, b),
        "sum": (Operation("sum", axis=1), "d"), "wide": (Operation("reshape", shape=(1,)), "sum"),
        "both": (layers.Concat(1), "tanh", "right", "wide"), "y": (layers.Linear(5, 2), "both"),
    }  # fmt: skip


CASES = {attention: {"a": (2, 3), "b": (3, 4)}, siamese: {"left one": (3,), "2": (3,)}}


def tokens():
    """Indices, numbers that are a mask, and floats."""
    nodes = {
        "e": (layers.Embedding(7, 2), "input.tokens"), "m": (Operation("reshape", shape=(4, 1)), "input.mask"),
        "masked": (Operation("multiply"), "e", "m"), "sum": (Operation("sum", axis=1), "masked"),
        "product": (layers.Multiply(), "sum", "input.x"), "y": (layers.Linear(2, 2), "product"),
    }  # fmt: skip
    inputs = {"tokens": ("integers", 4), "mask": ("numbers", 4), "x": (2,)}
    rng = np.random.default_rng(0)
    x = {"tokens": rng.integers(0, 7, (N, 4)), "mask": rng.random((N, 4)) < 0.7, "x": rng.standard_normal((N, 2))}
    return gb.Graph(nodes, rng=0, dtype="float64", inputs=inputs), x


def problem(make, named=True):
    shapes, rng = CASES[make], np.random.default_rng(1)
    keys = list(shapes) if named else ["0", "1"]
    inputs = shapes if named else list(shapes.values())
    network = gb.Graph(make(*[f"input.{key}" for key in keys]), rng=0, dtype="float64", inputs=inputs)
    x = {key: rng.standard_normal((N, *shape)) for key, shape in shapes.items()}
    return network, x if named else tuple(x.values())


def values_of(x):
    return list(x.values() if isinstance(x, dict) else x)


def flat(x):
    return np.concatenate([each.reshape(N, -1) for each in values_of(x)], axis=1)


def of_one_input(make, network):
    """The same network with one input, of which slices are taken."""
    (a, b), start = CASES[make].values(), int(np.prod(next(iter(CASES[make].values()))))
    parts = {
        "a0": (Operation("getitem", index=slice(0, start)), "input"), "a": (Operation("reshape", shape=a), "a0"),
        "b0": (Operation("getitem", index=slice(start, None)), "input"), "b": (Operation("reshape", shape=b), "b0"),
    }  # fmt: skip
    return gb.Graph(parts | make("a", "b"), rng=0, dtype="float64").load_state_dict(network.state_dict())


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("make", CASES)
def test_every_quantity_in_the_entries_of_each_input(make, named):
    network, x = problem(make, named)
    twin = of_one_input(make, network)
    wrt = ["x", *network.parameters]
    want = gb.reference(twin, LOSS, flat(x), Y, *ASKED, wrt=wrt)
    np.testing.assert_allclose(network(x), twin(flat(x)), atol=1e-14)
    for call, options in CALLS:
        result = call(network, LOSS, x, Y, *ASKED, wrt=wrt, **options)
        for found, expected in [(result.gradient, want.gradient), *zip(result.values, want.values, strict=True)]:
            assert type(found["x"]) is type(x)
            parts = values_of(found["x"])
            whole = sum(parts) if parts[0].ndim == 1 else flat(found["x"])
            np.testing.assert_allclose(whole, expected["x"], atol=1e-14)
            for name in network.parameters:
                np.testing.assert_allclose(found[name], expected[name], atol=1e-14)


@pytest.mark.parametrize("make", CASES)
def test_gradient_and_hessian_by_differences_of_the_loss(make):
    network, x = problem(make)
    result, step = gb.backward(network, LOSS, x, Y, q.DiagHessian(), wrt="x"), 1e-3
    for key, part in x.items():
        for i in np.ndindex(part.shape):
            before, sides = part[i], []
            for k in range(-2, 3):
                part[i] = before + k * step
                sides.append(float(gb.reference(network, LOSS, x, Y).loss))
            part[i] = before
            first, second = np.dot([[1, -8, 0, 8, -1], [-1, 16, -30, 16, -1]], sides) / (12 * step)
            assert first == pytest.approx(result.gradient["x"][key][i], abs=1e-9)
            assert second / step == pytest.approx(result["diag_hessian"]["x"][key][i], abs=1e-8)
    for key in x:
        alone = gb.backward(network, LOSS, x, Y, wrt=f"x.{key}").gradient
        np.testing.assert_array_equal(alone[f"x.{key}"], result.gradient["x"][key])
        assert list(alone) == [f"x.{key}"]


@pytest.mark.parametrize("make", [*CASES, tokens])
def test_every_quantity_of_the_parameters_by_brute_force(make):
    network, x = tokens() if make is tokens else problem(make)
    report = check_network(network, LOSS, x, Y)
    assert report.ok, report


@pytest.mark.parametrize("named", [True, False])
def test_operators_over_all_inputs(named):
    network, x = problem(attention, named)
    result = gb.backward(network, LOSS, x, Y, q.DiagHessian(), wrt="x")
    diagonal = np.concatenate([each.ravel() for each in values_of(result["diag_hessian"]["x"])])
    for data in ((x, Y), list(gb.data.batches(x, Y, 2))):
        operator = operators.Hessian(network, LOSS, data, wrt="x")
        np.testing.assert_allclose(np.diag(operator.to_dense()), diagonal, atol=1e-14)
        vector = np.random.default_rng(0).standard_normal(operator.shape[1])
        found = (operator @ operator.unpack(vector))["x"]
        assert type(found) is type(x)
        np.testing.assert_allclose(operator.pack({"x": found}), operator.to_dense() @ vector, atol=1e-14)
    each = operators.Jacobian(network, x, wrt="x").to_arrays()["x"]
    twin = operators.Jacobian(of_one_input(attention, network), flat(x), wrt="x").to_arrays()["x"]
    np.testing.assert_allclose(np.concatenate([v.reshape(N, 2, -1) for v in values_of(each)], axis=2), twin, atol=1e-14)


@pytest.mark.parametrize("make", [lambda: problem(attention), lambda: problem(siamese, False), tokens])
def test_batches_prepared_calls_and_what_is_built_on_them(make):
    network, x = make()
    want = gb.reference(network, LOSS, x, Y, q.DiagGGN())["diag_ggn"]
    prepared = gb.prepare(network, LOSS, q.DiagGGN())
    merged = gb.accumulate(network, LOSS, gb.data.batches(x, Y, 2, rng=0), q.DiagGGN())
    for found in (prepared(x, Y)["diag_ggn"], prepared(x, Y)["diag_ggn"], merged["diag_ggn"]):
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, atol=1e-14)
    assert "x." in str(gb.explain(network, LOSS, x, Y, q.DiagHessian(), wrt="x"))
    packed = network.several.packed(x)
    laplace = gb.laplace.Laplace(network, LOSS, (x, Y), structure="diag")
    np.testing.assert_array_equal(laplace.functional(x).covariance, laplace.functional(packed).covariance)
    on = [gb.influence.on_loss(network, LOSS, (each, Y), (x, Y), damping=1.0) for each in (x, packed)]
    np.testing.assert_array_equal(*on)


def test_integers_stay_exact_or_are_refused():
    network, x = tokens()
    result = gb.backward(network, LOSS, x, Y, wrt="x")
    assert result.gradient["x"]["tokens"] is result.gradient["x"]["mask"] is None
    for dtype, most in (("float32", 2**24), ("float64", 2**53)):
        big = {**x, "tokens": np.full((N, 4), most), "x": x["x"].astype(dtype)}
        part = network.several.parts["tokens"].forward(network.several.packed(big))[0]
        assert part.dtype == "int64"
        assert (part == most).all()
        with pytest.raises(ValueError, match=rf"x\['tokens'\]: expected integers up to {most}"):
            network.several.packed({**big, "tokens": np.full((N, 4), -most - 1)})
    for name, error in (("x.tokens", "expected an input of floats for 'x.tokens', got integers"), ("x.z", "got 'x.z'")):
        with pytest.raises((TypeError, ValueError), match=error):
            gb.backward(network, LOSS, x, Y, wrt=name)
    with pytest.raises(TypeError, match="expected integers in the columns"):
        network(network.several.packed(x) + 0.5)


INPUTS = {name: np.ones((2, 3), dtype) for name, dtype in {"x": "f4", "y": "f8", "i": "i4", "m": bool}.items()}


@pytest.mark.parametrize(("names", "dtype"), [
    ("i", "int64"), ("ii", "int64"), ("m", "float32"), ("im", "float32"), ("ix", "float32"), ("iy", "float64"),
    ("mx", "float32"), ("yim", "float64"),
])  # fmt: skip
def test_the_dtype_of_packed_inputs(names, dtype):
    x = tuple(INPUTS[name] for name in names)
    inputs = Inputs.of(x)
    assert inputs.packed(x).dtype == dtype
    assert inputs.packed(x, "float64").dtype == (dtype if "x" in names or dtype == "int64" else "float64")


ONE = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
A, B = np.ones((N, 2, 3)), np.ones((N, 3, 4))


@pytest.mark.parametrize(("named", "x", "error", "words"), [
    (True, {"a": A}, ValueError, r"x: expected the inputs \['a', 'b'\], missing \['b'\], unknown \[\]"),
    (True, {"a": A, "c": B}, ValueError, r"missing \['b'\], unknown \['c'\]"),
    (True, A, ValueError, r"x: expected a dictionary of arrays of shapes .*, got an array of shape \(3, 2, 3\)"),
    (True, {"a": A, "b": B[:2]}, ValueError, r"x\['b'\]: expected 3 samples as in x\['a'\], got 2"),
    (True, {"a": A, "b": B[:, :2]}, ValueError, r"x\['b'\]: expected shape \('N', 3, 4\), .*, got \(3, 2, 4\)"),
    (True, {"a": A, "b": B.astype("float32")}, TypeError, r"x\['b'\]: expected float64 as x\['a'\] is, got float32"),
    (True, {"a": A, "b": B.astype(int)}, TypeError, r"x\['b'\]: expected float32 or float64, got int64"),
    (True, {"a": A, "b": B.tolist()}, TypeError, r"x\['b'\]: expected a NumPy or CuPy array, got list"),
    (False, (A, B, B), ValueError, "x: expected 2 inputs, a tuple of arrays .*, got 3"),
    (False, {"0": A, "1": B}, TypeError, "x: expected a tuple of arrays .*, got dict"),
    (False, (A, B[:0]), ValueError, r"x\[1\]: expected shape .*, N at least 1, got \(0, 3, 4\)"),
    (None, (A, B), TypeError, "x: expected an array, as the network has one input, got a tuple of 2"),
    (None, {"a": A}, TypeError, "x: expected an array, as the network has one input, got a dict of 1"),
])  # fmt: skip
def test_other_inputs_are_refused(named, x, error, words):
    network = ONE if named is None else problem(attention, named)[0]
    several = [] if named is None else [lambda x: operators.GGN(network, LOSS, (x, Y))]
    several += [] if named is None else [lambda x: gb.accumulate(network, LOSS, [(x, Y)])]
    calls = [lambda x, call=call: call(network, LOSS, x, Y) for call in (gb.backward, gb.reference, gb.explain)]
    for call in [network, *calls, *several]:
        with pytest.raises(error, match=words):
            call(x)


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"inputs": {"a": (2, 3)}}, ValueError, r"node '.': expected inputs among \['input.a', .*got 'input.b'"),
    ({"inputs": {"a": (2, 3), "b": (3, 4), "c": (1,)}}, ValueError, r"depends on all inputs, .*\['input.c'\]"),
    ({"inputs": {"a": (2, 3), "b": (3, 0)}}, ValueError, "inputs: expected names with positive sizes"),
    ({"inputs": ()}, TypeError, "inputs: expected shapes by name, or in a list"),
    ({"inputs": {"a": (2, 3), "b": (3, 5)}}, ValueError, "layer ., Linear"),
])  # fmt: skip
def test_graphs_with_other_inputs_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        gb.Graph(attention("input.a", "input.b"), **change)({"a": A, "b": np.ones((N, 3, 5))})


@pytest.mark.parametrize("make", [attention, tokens])
def test_checks_of_networks_take_all_inputs(make):
    network, x = tokens() if make is tokens else problem(make)
    layer, given = check_layer(network, x), (network, LOSS, x, Y)
    for report in (layer, check_quantity(q.DiagGGN(), *given), check_symmetries(*given)):
        report.assert_ok()
    assert layer.rows[0].verdict == ("not given" if make is tokens else "ok")
