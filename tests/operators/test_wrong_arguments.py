"""Wrong arguments, data that changes, and layers that lack what a product needs: errors that name what is wrong."""

import foreign
import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops


def network(dtype="float64"):
    return gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype=dtype)


def data(n=4, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)).astype(dtype), rng.integers(0, 2, n)


X, Y = data()
LOSS = losses.CrossEntropyLoss()
NAN = np.where(np.arange(12).reshape(4, 3) == 5, np.nan, X)


def changed(part, index, value):
    part = part.copy()
    part[index] = value
    return part


CASES = {
    "a generator": ((1 / 0 for _ in ()), TypeError, r"data: expected a batch \(x, y\), .*got generator, which can be"),
    "gb.data.batches": (gb.data.batches(X, Y, 2), TypeError, "map, which can be gone through once .make a list of it."),
    "no batches": ([], ValueError, "data: expected at least one batch, got none"),
    "a list of arrays": ([X, Y], TypeError, r"batch 0: expected a pair of arrays .x, y., got ndarray"),
    "an array": (X, TypeError, "data: expected one batch"),
    "a number": (3, TypeError, "data: expected one batch .*got int"),
    "three arrays": ([(X, Y), (X, Y, Y)], TypeError, "batch 1: expected a pair of arrays"),
    "another feature shape": ([(X, Y), (X[:, :2], Y)], ValueError, r"batch 1: .*\(…, 3\), got \(2,\)"),
    "an empty batch": ([(X, Y), (X[:0], Y[:0])], ValueError, "batch 1: x: expected a batch of at least one sample"),
    "NaN": ([(X, Y), (NAN, Y)], ValueError, "batch 1: x: expected finite numbers"),
    "NaN in one batch": ((NAN, Y), ValueError, "^x: expected finite numbers"),
    "wrong targets": ([(X, Y), (X, Y + 1)], ValueError, "batch 1: y of CrossEntropyLoss"),
    "too few targets": ([(X, Y), (X, Y[:3])], ValueError, "batch 1: y of .*expected 4 samples"),
    "another dtype": ([(X, Y), (X.astype("float32"), Y)], TypeError, "batch 1: x: expected float64"),
}


@pytest.mark.parametrize("kind", [ops.GGN, ops.Hessian, ops.Fisher, ops.EmpiricalFisher])
@pytest.mark.parametrize("case", CASES)
def test_wrong_data(kind, case):
    given, error, message = CASES[case]
    with pytest.raises(error, match=message):
        kind(network(), LOSS, given)


SEQUENCES = [(np.zeros((2, length, 3)), np.zeros((2, length, 2))) for length in (5, 4)]
GGN, JACOBIAN = ops.GGN(network(), LOSS, (X, Y)), ops.Jacobian(network(), X)
V = np.random.default_rng(1).standard_normal((26, 2))
ARGUMENTS = {
    "network": (lambda: ops.GGN(3, LOSS, (X, Y)), TypeError, "network: expected a Layer"),
    "loss": (lambda: ops.Hessian(network(), "mse", (X, Y)), TypeError, "loss: expected a Loss"),
    "blocks": (lambda: ops.GGN(network(), LOSS, (X, Y), blocks=1), TypeError, "blocks: expected True or False, got 1"),
    "executor": (lambda: ops.GGN(network(), LOSS, (X, Y), executor=2), TypeError, "executor: expected a concurrent"),
    "mc_samples": (lambda: ops.Fisher(network(), LOSS, (X, Y), mc_samples=0), ValueError, "mc_samples: expected"),
    "rng": (lambda: ops.Fisher(network(), LOSS, (X, Y), rng="a"), (TypeError, ValueError), "rng: expected"),
    "an unknown one": (lambda: ops.GGN(network(), LOSS, (X, Y), rng=0), TypeError, "GGN has no argument 'rng'"),
    "a missing one": (lambda: ops.GGN(network(), LOSS), TypeError, "GGN"),
    "a batch of another shape": (
        lambda: ops.GGN(gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64"), losses.MSELoss(), SEQUENCES),
        ValueError, r"batch 1: x: expected shape \('N', 5, 3\) as in batch 0, got \('N', 4, 3\)",
    ),
    "no parameters": (lambda: ops.GGN(layers.Tanh(), losses.MSELoss(), (X, X)), ValueError, "with parameters that"),
    "a loss without draws": (
        lambda: ops.Fisher(network(), losses.HuberLoss(), [(X, X[:, :2].copy())]), gb.UnsupportedError, "^HuberLoss"
    ),
    "x of a Jacobian": (lambda: ops.Jacobian(network(), iter([X])), TypeError, "expected a batch x, .* once"),
    "two columns for a vector": (lambda: GGN.matvec(V), ValueError, r"\(26,\) or \(26, 1\), got \(26, 2\)"),
    "no x of a Jacobian": (lambda: ops.Jacobian(network(), []), ValueError, "at least one batch"),
    "batches of a Jacobian": (lambda: ops.Jacobian(network(), [X, NAN]), ValueError, "batch 1: x: expected finite"),
    "damping": (lambda: GGN.damped(-1), ValueError, "damping: expected a finite number of at least 0, got -1"),
    "damped": (lambda: JACOBIAN.damped(1), ValueError, r"damped: expected a square operator, .* \(8, 26\)"),
    "damping of an inverse": (lambda: GGN.inverse(damping=-1), ValueError, "damping: .*at least 0, got -1"),
    "damping of least squares": (lambda: JACOBIAN.inverse("lsmr", damping=-1), ValueError, "damping: .*got -1"),
    "method": (lambda: GGN.inverse("lu"), ValueError, "method: expected 'cg', 'lsmr' or 'neumann', got 'lu'"),
    "not symmetric": (lambda: JACOBIAN.inverse(), ValueError, "method: expected 'lsmr' for an operator that is not"),
    "rtol": (lambda: GGN.inverse(rtol=0), ValueError, "rtol: expected a finite number above 0 and below 1, got 0"),
    "maxiter": (lambda: GGN.inverse(maxiter=0), ValueError, "maxiter: expected an integer of at least 1, got 0"),
    "scale": (lambda: GGN.inverse("neumann", scale=-1), ValueError, "scale: expected a finite number above 0"),
    "a name": (
        lambda: GGN.submatrix("0.wieght"), ValueError, r"rows: expected some of the parameters \['0.weight', .*wieght'"
    ),
    "a name twice": (lambda: GGN.submatrix(None, ["0.bias"] * 2), ValueError, "columns: .*each once, got"),
    "names of outputs": (lambda: JACOBIAN.submatrix("0.bias"), TypeError, "rows: expected numbers, as they are not"),
    "a number": (lambda: GGN.submatrix([26]), ValueError, "rows: .*numbers from 0 to 25, each once, got .26."),
    "a number twice": (lambda: GGN.submatrix([1, 1]), ValueError, "rows: .*each once"),
    "a negative number": (lambda: GGN.submatrix(np.array([-1])), ValueError, "rows: .*numbers from 0 to 25"),
    "none": (lambda: GGN.submatrix([], None), (TypeError, ValueError), "rows: expected names of parameters, or"),
    "floats": (lambda: GGN.submatrix(None, [0.5]), TypeError, "columns: expected names of parameters, or numbers"),
    "a mask": (lambda: GGN.submatrix(np.ones(26, bool)), TypeError, "rows: expected names of parameters, or numbers"),
    "names and numbers": (lambda: GGN.submatrix(["0.bias", 1]), (TypeError, ValueError), "rows: expected"),
    "a set": (lambda: GGN.submatrix({1, 2}), TypeError, "rows: expected names of parameters, or numbers"),
    "a dictionary": (
        lambda: GGN.submatrix(None, [1, 2]) @ {"0.bias": np.ones(4)}, TypeError, "v: expected an array, as the columns"
    ),
    "pack": (lambda: GGN.submatrix([1], [2]).pack({}), TypeError, "neither rows nor columns are parameters"),
    "shape of a part": (lambda: GGN.submatrix([1], [2, 3]) @ np.ones(3), ValueError, r"v: expected shape \(2,\)"),
    "NaN for an inverse": (lambda: GGN.inverse(damping=1) @ np.full(26, np.nan), ValueError, "v: expected finite"),
    "NaN of a transpose": (lambda: JACOBIAN.T @ np.full(8, np.nan), ValueError, "v: expected finite numbers"),
    "v of a Jacobian": (lambda: JACOBIAN @ V[:8, 0], ValueError, r"v: expected shape \(26,\) or"),
    "w of a Jacobian": (lambda: JACOBIAN.rmatvec(V[:, 0]), ValueError, r"v: expected shape \(8,\) or"),
    "W of a Jacobian": (lambda: JACOBIAN.rmatmat(V), ValueError, r"V: expected shape \(8, K\)"),
    "too few rows to unpack": (
        lambda: GGN.unpack(V[:25]), ValueError, r"v: expected shape \(26,\) or \(26, K\), got \(25, 2\)"
    ),
    "a list to unpack": (lambda: GGN.unpack([0.0] * 26), TypeError, "v: expected a NumPy or CuPy array, got list"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments(case):
    make, error, message = ARGUMENTS[case]
    with pytest.raises(error, match=message):
        make()


VECTORS = {
    "too short": (V[:25, 0], ValueError, r"v: expected shape \(26,\) or \(26, 1\), got \(25,\)"),
    "too few rows": (V[:25], ValueError, r"V: expected shape \(26, K\), got \(25, 2\)"),
    "too many axes": (V[None], ValueError, r"v: expected shape \(26,\) or \(26, K\), got \(1, 26, 2\)"),
    "no columns": (V[:, :0], ValueError, r"V: expected at least one vector, got shape \(26, 0\)"),
    "half floats": (np.ones(26, "float16"), TypeError, "v: expected float32 or float64, got float16"),
    "complex NaN": (V[:, 0] + 1j * changed(V[:, 0], 3, np.nan), ValueError, "v: expected finite numbers"),
    "NaN": (changed(V[:, 0], 3, np.nan), ValueError, "v: expected finite numbers"),
    "infinity": (changed(V, 3, np.inf), ValueError, "V: expected finite numbers"),
}


@pytest.mark.parametrize("case", VECTORS)
@pytest.mark.parametrize("kind", [ops.GGN, ops.Hessian])
def test_wrong_vectors(kind, case):
    given, error, message = VECTORS[case]
    operator = kind(network(), LOSS, (X, Y))
    with pytest.raises(error, match=message):
        operator @ given
    with pytest.raises(error, match=message):
        operator.T @ given


GIVEN = dict(network().parameters)
DICTIONARIES = [
    (
        {name: GIVEN[name] for name in list(GIVEN)[:-1]}, ValueError,
        r"v: expected the parameters .*missing \['2.bias'\], unknown \[\]",
    ),
    ({**GIVEN, "other": V}, ValueError, r"missing \[\], unknown \['other'\]"),
    ({**GIVEN, "0.bias": V}, ValueError, r"v\['0.bias'\]: expected shape \(4,\) or \('K', 4\), got \(26, 2\)"),
    ({**GIVEN, "0.bias": [0.0] * 4}, TypeError, r"v\['0.bias'\]: expected a NumPy or CuPy array, got list"),
    ({**GIVEN, "0.bias": np.zeros(4, int)}, TypeError, r"v\['0.bias'\]: expected float32 or float64"),
    ({**GIVEN, "0.bias": np.full(4, np.nan)}, ValueError, r"v\['0.bias'\]: expected finite"),
    ({k: v[None][:0] for k, v in GIVEN.items()}, ValueError, r"v\['0.weight'\]: expected at least one vector"),
    ({**GIVEN, "0.bias": np.zeros((2, 4))}, ValueError, "the same number K of vectors for each parameter"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "message"), DICTIONARIES)
def test_wrong_dictionaries(wrong, error, message):
    with pytest.raises(error, match=message):
        GGN @ wrong


class Changing:
    """Batches that change after some passes."""

    def __init__(self, *passes):
        self.passes, self.count = passes, 0

    def __iter__(self):
        self.count += 1
        return iter(self.passes[min(self.count - 1, len(self.passes) - 1)])


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([(X, Y), (X + 1, Y)], "batch 1: expected the same arrays as when the operator was made"),
        ([(X, Y), (X, 1 - Y)], "batch 1: expected the same arrays"),
        ([(X, Y)], "data: expected 2 batches as when the operator was made, got 1"),
        ([(X, Y), (X, Y), (X, Y)], "batch 2: expected the same arrays"),
        ([(X, Y), X], "batch 1: expected the same arrays"),
    ],
)
@pytest.mark.parametrize("kind", [ops.GGN, ops.Hessian, ops.Fisher])
def test_data_that_changes(kind, after, message):
    first = [(X, Y), (X, Y)]
    operator = kind(network(), LOSS, Changing(first, first, after))  # one pass asks whether it is an iterator
    with pytest.raises(ValueError, match=message):
        operator @ V


def test_a_batch_that_is_written_over():
    x = X.copy()
    operator = ops.GGN(network(), LOSS, (x, Y))
    operator @ V
    x[0, 0] += 1
    with pytest.raises(ValueError, match="data: expected the same arrays"):
        operator @ V
    x[0, 0] = X[0, 0]
    operator @ V


def replace_layer(net, loss):
    net.layers = (*net.layers[:-1], layers.Linear(3, 2, bias=False))


def remove_layer(net, loss):
    del net.children["1"]


def enclose_another(net, loss):
    loss.note = foreign.enclosing(3)


CHANGES = {
    "option": (lambda net, loss: setattr(net.layers[1], "negative_slope", 0.9), "layer 1, LeakyReLU"),
    "own": (lambda net, loss: setattr(net.layers[2], "factor", 3.0), "layer 2, Multiplied"),
    "list": (lambda net, loss: net.layers[2].shares.__setitem__(0, 2.0), "layer 2, Multiplied"),
    "set": (lambda net, loss: net.layers[2].names.add("b"), "layer 2, Multiplied"),
    "dictionary": (lambda net, loss: net.layers[2].given.update(a=2), "layer 2, Multiplied"),
    "class": (lambda net, loss: setattr(foreign.Multiplied, "note", [1]), "layer 2, Multiplied"),
    "parameter": (lambda net, loss: net.parameters["0.bias"].__iadd__(1), "layer 0, Linear"),
    "weights": (lambda net, loss: loss.weight.__iadd__(1), "loss, ScaledLoss"),
    "reduction": (lambda net, loss: setattr(loss, "reduction", "sum"), "loss, ScaledLoss"),
    "loss": (lambda net, loss: setattr(loss, "times", 2.0), "loss, ScaledLoss"),
    "function": (enclose_another, "loss, ScaledLoss"),
    "replaced": (replace_layer, "layer 3, Linear"),
    "removed": (remove_layer, "network"),
    "freeze": (lambda net, loss: net.freeze("0.bias"), "layer 0, Linear"),
    "unfreeze": (lambda net, loss: net.unfreeze("3.bias"), "layer 3, Linear"),
}


def test_a_layer_of_another_class_is_another_operator():
    net = gb.Sequential(layers.Linear(3, 2), layers.Sigmoid(), rng=0, dtype="float64")
    operator = ops.GGN(net, losses.MSELoss(), (X, X[:, :2].copy()))
    v = np.ones(operator.shape[1])
    operator @ v
    net[1].__class__ = layers.Tanh
    with pytest.raises(ValueError, match=r"^layer 1, Tanh.*: expected all parameters and options as they were"):
        operator @ v


@pytest.mark.parametrize("kind", [ops.GGN, ops.Hessian, ops.Fisher, ops.EmpiricalFisher, ops.Jacobian])
@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES)
def test_a_network_or_loss_that_changes_is_another_operator(kind, change, name, monkeypatch):
    monkeypatch.setattr(foreign.Multiplied, "note", None)
    parts = layers.Linear(3, 3), layers.LeakyReLU(0.1), foreign.Multiplied(), layers.Linear(3, 2)
    parts[2].shares, parts[2].names, parts[2].given = [1.0], {"a"}, {"a": 1}
    net, loss = gb.Sequential(*parts, rng=0, dtype="float64").freeze("3.bias"), foreign.ScaledLoss()
    loss.note, loss.weight = foreign.enclosing(2), np.ones(3)
    operator = kind(net, X) if kind is ops.Jacobian else kind(net, loss, (X, X[:, :2].copy()))
    if kind is ops.Jacobian and name.startswith("loss"):
        return  # it has none
    v = np.ones(operator.shape[1])
    before = operator @ v
    for layer in net.layers:
        layer.drawn = {key: value.copy() for key, value in layer.drawn.items()}  # equal, and other objects
    assert np.array_equal(operator @ v, before)
    change(net, loss)
    for product in (lambda: operator @ v, lambda: operator.T @ np.ones(operator.shape[0]), lambda: operator.to_dense()):
        with pytest.raises(ValueError, match=f"^{name}.*: expected all parameters and options as they were"):
            product()


@pytest.mark.parametrize("name", ["list", "set", "dictionary"])
def test_an_attribute_that_changes_inside_is_another_operator(name):
    """Also where all attributes are the same objects as before, and there is no other kind of attribute."""
    layer = type("Multiplied", (layers.Tanh,), {})()
    attribute, value = {"list": ("shares", [1.0]), "set": ("names", {"a"}), "dictionary": ("given", {"a": 1})}[name]
    setattr(layer, attribute, value)
    net = gb.Sequential(layers.Linear(3, 2), layers.Sigmoid(), layer, rng=0, dtype="float64")
    operator = ops.GGN(net, losses.MSELoss(), (X, X[:, :2].copy()))
    v = np.ones(operator.shape[1])
    operator @ v
    operator @ v
    CHANGES[name][0](net, None)
    with pytest.raises(ValueError, match=r"^layer 2, Multiplied.*: expected all parameters and options as they were"):
        operator @ v


def of_hidden_layers(rng):
    """A network of layers that are made of others, which are no children."""
    return gb.Sequential(gb.LSTM(2, 2), gb.MultiheadAttention(2, 1), layers.Flatten(), layers.Linear(6, 2), rng=rng)


LOOKS = {
    "Jacobian": lambda net, x, y: ops.Jacobian(net, x),
    "kernel": lambda net, x, y: gb.spectra.ntk(net, x),
    "input": lambda net, x, y: gb.backward(net, LOSS, x, y, wrt="x"),
    "program": lambda net, x, y: gb.program(net, LOSS, x, y),
    "freeze": lambda net, x, y: net.freeze("0").unfreeze(),
}


@pytest.mark.parametrize("rng", [0, None])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_who_looks_at_a_network_does_not_change_it(look, rng):
    net, x = of_hidden_layers(rng).astype("float64"), np.random.default_rng(0).standard_normal((4, 3, 2))
    operator = ops.GGN(net, LOSS, (x, Y))
    look(net, x, Y)
    operator @ np.ones(operator.shape[1])


def test_products_that_overflow():
    net = network("float32")
    operator = ops.GGN(net, losses.MSELoss("sum"), (X.astype("float32"), X[:, :2].astype("float32")))
    with pytest.warns(gb.NotFiniteWarning, match="product of GGN"), np.errstate(all="ignore"):
        operator @ np.full(26, 3e38, "float32")


def test_buffers_and_frozen_parameters_that_change():
    net = gb.Sequential(layers.Linear(3, 2), layers.BatchNorm1d(2), rng=0, dtype="float64").freeze("0.weight")
    x, y = X, X[:, :2].copy()
    for values, name in ((net.buffers, "1.running_mean"), (net.parameters, "0.weight")):
        operator = ops.Hessian(net, losses.MSELoss(), (x, y))
        operator @ np.ones(6)
        values[name] = values[name] + 1
        with pytest.raises(ValueError, match=f"layer {name[0]}, .*: expected all parameters"):
            operator @ np.ones(6)


def test_masked_arrays_are_refused_wherever_arrays_are_taken():
    operator = ops.GGN(network(), LOSS, (X, Y))
    masked = np.ma.masked_array(np.ones(operator.shape[0]), np.arange(operator.shape[0]) % 2)
    for given in (operator, operator.damped(0.1).inverse("cg")):
        for product in (given.dot, given.matvec, given.__matmul__):
            with pytest.raises(TypeError, match="MaskedArray"):
                product(masked)
    with pytest.raises(TypeError, match="MaskedArray"):
        gb.asarray(masked)
    optimizer = gb.optim.SGD(network(), 0.1, momentum=0.9)
    gradient = gb.backward(optimizer.network, LOSS, X, Y)
    optimizer.step(gradient)
    state = optimizer.state_dict()
    name = next(key for key, value in state.items() if value.ndim)
    with pytest.raises(TypeError, match="MaskedArray"):
        optimizer.load_state_dict({**state, name: np.ma.masked_array(state[name])})
