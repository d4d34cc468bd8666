"""An option that is assigned after an object was made counts from then on, or the assignment is an error."""

import inspect
from functools import partial

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses, quantities
from gbackprop.testing.cases import activations, moves, norms, rows, sequences, windows
from gbackprop.testing.cases.rows import LayerRow

ROWS = [row for module in (activations, moves, norms, rows, sequences, windows) for group in vars(module).values()
        if isinstance(group, list | tuple) for row in group if isinstance(row, LayerRow)]  # fmt: skip
ERRORS = AttributeError, TypeError, ValueError, gb.UnsupportedError
VARIABLE = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
TEXTS = {"padding_mode": ["reflect", "circular"], "approximate": ["none", "tanh"], "mode": ["nearest"],
         "nonlinearity": ["relu", "tanh"], "reduction": ["sum", "mean"]}  # fmt: skip


def others(name, value):
    """Yield other values of an option."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (0.5 * value + 0.1, 1.5 * value + 0.1)
    elif isinstance(value, str):
        yield from (each for each in TEXTS.get(name, []) if each != value)
    elif isinstance(value, tuple) and value and all(isinstance(each, int) for each in value):
        yield tuple(each + 1 for each in value)


def arguments(row):
    """Return the class of a row's layer, and all its arguments; None of what is not made by a call of the class."""
    if not isinstance(row.make, partial) or not isinstance(row.make.func, type):
        return None
    bound = inspect.signature(row.make.func).bind(*row.make.args, **row.make.keywords)
    bound.apply_defaults()
    variable = [each.name for each in bound.signature.parameters.values() if each.kind in VARIABLE]
    return None if variable else (row.make.func, dict(bound.arguments))


def of_layers():
    found = {}
    for row in ROWS:
        kind, given = arguments(row) or (None, {})
        for name, value in given.items():
            if name not in ("rng", "dtype") and any(True for _ in others(name, value)):
                found.setdefault((kind.__name__, name), row)
    return found


LAYERS = of_layers()


def drawn(layer, values=None):
    network = gb.Sequential(layer, rng=0, dtype="float64")
    for name, value in network.parameters.items():
        if values is not None and value.shape == values.get(name, value).shape:
            value[...] = values.get(name, value)
    return network


def results(network, x, training):
    y = np.random.default_rng(1).standard_normal((len(x), *network.output_shape(x.shape[1:])))
    asked = quantities.BatchGrad(), quantities.DiagGGN()
    return gb.backward(network, losses.MSELoss(), x, y, *asked, rng=0, training=training)


def same(a, b):
    pairs = [(a.loss, b.loss), (a.output, b.output)]
    for own, other in [(a.gradient, b.gradient), *((value, b[name]) for name, value in a.items())]:
        if set(own) != set(other):
            return False
        pairs += [(own[name], other[name]) for name in own]
    return all(np.shape(one) == np.shape(two) and np.allclose(one, two, 1e-9, 1e-12) for one, two in pairs)


def refuses(layer, name, value):
    """Set an option; return whether that is refused by its name."""
    try:
        setattr(layer, name, value)
    except AttributeError as error:
        return f"{type(layer).__name__}, {name}: expected no change after it was made" in str(error)
    return False


@pytest.mark.parametrize(("kind", "name"), LAYERS, ids=str)
def test_an_option_of_a_layer_counts_or_cannot_be_assigned(kind, name):
    row = LAYERS[kind, name]
    kind, given = arguments(row)
    for value in others(name, given[name]):
        for training in (False, True):
            try:
                fresh = drawn(kind(**{**given, name: value}))
                wanted = results(fresh, row.x(), training)
            except ERRORS:  # no such option, or none of quantities that are asked for
                continue
            layer = kind(**given)
            network = drawn(layer, fresh.parameters)
            results(network, row.x(), training)
            if refuses(layer, name, value):
                return
            try:
                found = results(network, row.x(), training)
            except ValueError:  # parameters were drawn for the option before
                continue
            assert same(found, wanted), (value, training)


W = np.array([0.5, 2.0, 1.5])
LABELS = [(losses.CrossEntropyLoss, "ignore_index", -1), (losses.CrossEntropyLoss, "label_smoothing", 0.3),
          (losses.CrossEntropyLoss, "weight", W), (losses.CrossEntropyLoss, "reduction", "sum"),
          (losses.NLLLoss, "ignore_index", -1), (losses.NLLLoss, "weight", W)]  # fmt: skip
BITS = [(losses.BCEWithLogitsLoss, "weight", W), (losses.BCEWithLogitsLoss, "pos_weight", W)]


@pytest.mark.parametrize("after", [0, 10])
@pytest.mark.parametrize(("kind", "name", "value"), LABELS + BITS)
def test_an_option_of_a_loss_counts(kind, name, value, after):
    """In small calls, too, which run a program of a call with other labels; they are weighted by the batch's own R."""
    nll = kind is losses.NLLLoss
    network = gb.Sequential(layers.Linear(2, 3), *[layers.LogSoftmax(1)] * nll, rng=0, dtype="float64")
    loss, fresh, rng = kind(), kind(**{name: value}), np.random.default_rng(0)
    curved = quantities.DiagGGN(), quantities.DiagHessian(), quantities.DiagGGNMC(2)
    asked = (quantities.BatchGrad(),) if nll else curved
    for i in range(after + 12):
        x = rng.standard_normal((4, 2))
        y = rng.integers(0, 2, (4, 3)).astype(float) if kind is losses.BCEWithLogitsLoss else rng.integers(0, 3, 4)
        if name == "ignore_index" and i >= after:
            y[i % 4] = y[-1] = -1
        if i == after:
            setattr(loss, name, value)
            assert repr(loss) == repr(fresh)
        wanted = fresh if i >= after else kind()
        for some in ((), asked):
            found = gb.backward(network, loss, x, y, *some, rng=i)
            assert same(found, gb.reference(network, wanted, x, y, *some, rng=i))


def test_weights_that_are_assigned_later_are_refused_where_weights_are():
    loss, x, y = losses.CrossEntropyLoss(), np.ones((4, 2)), np.array([0, 1, 2, 0])
    network = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    loss.ignore_index = -1
    with pytest.raises(ValueError, match="loss: expected one without weights"):
        gb.influence.removal(network, loss, (x, y), [1], damping=0.1)


@pytest.mark.parametrize("name", ["mc_samples", "targets"])
@pytest.mark.parametrize("kind", [quantities.DiagGGNMC, quantities.KFAC, quantities.EKFAC])
def test_draws_of_a_quantity_cannot_be_assigned(kind, name):
    quantity = kind(1)
    with pytest.raises(AttributeError, match=f"{kind.__name__}, {name}: expected no change after it was made"):
        setattr(quantity, name, 50)
    assert quantity.mc_samples == quantity.signal.mc_samples == 1


@pytest.mark.parametrize("name", ["fisher", "sharing", "joint_bias"])
def test_conventions_of_a_quantity_cannot_be_assigned(name):
    with pytest.raises(AttributeError, match=f"KFAC, {name}: expected no change after it was made; make another one"):
        setattr(quantities.KFAC(), name, True)


def test_a_users_class_may_store_what_the_library_does_not():
    class Own(layers.MaxPool2d):
        def __init__(self, stride):
            super().__init__(2, stride)
            self.stride = stride

    own = Own(2)
    own.stride = 3
    assert (own.stride, Own(1).stride) == (3, 1)

    class Before(gb.LSTM):
        def __init__(self, hidden_size):
            self.hidden_size = hidden_size
            super().__init__(2, hidden_size)
            self.dropout = self.dropout

    class Weighted(losses.CrossEntropyLoss):
        def __init__(self):
            super().__init__()
            self.weighted = True

    assert Before(3).hidden_size == 3
    assert Weighted().weighted
    assert not losses.CrossEntropyLoss().weighted


def test_options_that_others_follow_from_count_or_are_refused():
    x = -np.ones((2, 3))
    celu, select = layers.CELU(), layers.Select(1, 0)
    celu.alpha, select.index = 2.0, 2
    np.testing.assert_array_equal(gb.Sequential(celu)(x), gb.Sequential(layers.CELU(2.0))(x))
    np.testing.assert_array_equal(gb.Sequential(select)(x * [1, 2, 3]), [-3, -3])
    attention, lstm, norm = gb.MultiheadAttention(4, 2), gb.LSTM(2, 3), layers.GroupNorm(1, 2)
    for layer, name, value in (
        (attention, "is_causal", True), (attention, "num_heads", 1), (attention, "dropout", 0.5),
        (lstm, "hidden_size", 4), (lstm, "bidirectional", True), (norm, "affine", False),
        (layers.Slice(1, 0, 2), "start", 1), (layers.ReflectionPad1d(1), "padding", 0),
        (layers.LayerNorm(3), "elementwise_affine", False), (layers.ZeroPad2d(1), "padding", 2),
        (layers.BatchNorm1d(3), "num_features", 2), (layers.InstanceNorm1d(3, affine=True), "num_features", 2),
        (layers.ConvTranspose2d(2, 4, 3), "output_padding", 1), (losses.PoissonNLLLoss(), "eps", 1e-3),
        (losses.PoissonNLLLoss(), "log_input", False),
    ):  # fmt: skip
        assert refuses(layer, name, value), (layer, name)


WRONG = [
    (losses.CrossEntropyLoss(), "reduction", "none"), (losses.MSELoss(), "reduction", "MEAN"),
    (losses.CrossEntropyLoss(), "label_smoothing", 2.0), (losses.CrossEntropyLoss(), "ignore_index", 1.5),
    (losses.CrossEntropyLoss(), "weight", -W), (losses.HuberLoss(), "delta", -1.0),
    (losses.SmoothL1Loss(), "beta", -1.0),
    (losses.PoissonNLLLoss(), "log_input", "no"), (layers.Dropout(0.5), "p", 1.5), (layers.LayerNorm(3), "eps", -1.0),
    (layers.GELU(), "approximate", "foo"), (layers.Hardtanh(-1, 1), "min_val", 2.0),
    (layers.Softshrink(), "lambd", -1.0),
    (layers.Softplus(), "beta", 0.0), (layers.GroupNorm(2, 4), "num_groups", 3),
    (layers.Threshold(0.1, 0.2), "value", 0.7),
    (layers.Embedding(3, 2), "padding_idx", True), (layers.Embedding(3, 2), "padding_idx", 3),
]  # fmt: skip


@pytest.mark.parametrize(("made", "name", "value"), WRONG, ids=lambda each: str(each))
def test_what_the_constructor_refuses_cannot_be_assigned(made, name, value):
    before = dict(vars(made))
    with pytest.raises(ERRORS, match="expected "):
        setattr(made, name, value)
    assert vars(made).keys() == before.keys()
    assert all(vars(made)[each] is before[each] for each in before)


def test_an_option_is_stored_as_the_constructor_stores_it():
    for made, name, value, expected in (
        (layers.Embedding(3, 2), "padding_idx", -1, 2), (layers.AdaptiveAvgPool2d(2), "output_size", 3, (3, 3)),
        (losses.CrossEntropyLoss(), "ignore_index", np.int64(-1), -1),
        (layers.LayerNorm(4), "normalized_shape", 4, (4,)),
    ):  # fmt: skip
        setattr(made, name, value)
        assert getattr(made, name) == expected
        assert type(getattr(made, name)) is type(expected)
    with pytest.raises(TypeError, match="CrossEntropyLoss, weight: expected a NumPy or CuPy array, got list"):
        losses.CrossEntropyLoss().weight = [1.0, 2.0, 3.0]
    x, y = np.ones((2, 2), int), np.ones((2, 2, 2))
    found = layers.Embedding(3, 2), layers.Embedding(3, 2, padding_idx=-2)
    found[0].padding_idx = -2
    gradients = [gb.backward(gb.Sequential(each, rng=0, dtype="float64"), losses.MSELoss(), x, y) for each in found]
    assert same(*gradients)
    assert not gradients[0].gradient["0.weight"].any()


@pytest.mark.parametrize(("layer", "name", "value"), [
    (layers.Linear(2, 3), "out_features", 4), (layers.LayerNorm(4), "normalized_shape", 3),
    (layers.Conv2d(2, 4, 3), "groups", 2), (layers.ConvTranspose2d(2, 4, 3), "out_channels", 2),
], ids=str)  # fmt: skip
def test_an_option_on_which_drawn_parameters_depend_is_refused(layer, name, value):
    gb.Sequential(layer, rng=0)
    assert refuses(layer, name, value)


def test_a_parameter_that_was_not_drawn_is_named():
    layer = layers.Linear(2, 3, bias=False)
    network = gb.Sequential(layer, rng=0)
    layer.bias = True
    with pytest.raises(ValueError, match=r"parameter 0.bias: expected an array, got none: it was not drawn"):
        gb.backward(network, losses.MSELoss(), np.ones((4, 2), "float32"), np.ones((4, 3), "float32"))


def test_a_parameter_is_no_attribute():
    layer = layers.Linear(2, 3)
    gb.Sequential(layer, rng=0)
    with pytest.raises(AttributeError, match=r"Linear, weight: expected parameters\['weight'\] = …"):
        layer.weight = np.zeros((3, 2), "float32")
    with pytest.raises(TypeError, match="bias: expected True or False"):
        layer.bias = np.zeros(3, "float32")
    layer.note = "as any other attribute"


FLAGS = [(kind, name) for (kind, name) in LAYERS if isinstance(arguments(LAYERS[kind, name])[1][name], bool)]
NONSENSE = ["False", "no", None, np.nan, (), {}, 1, 0]


@pytest.mark.parametrize(("kind", "name"), FLAGS, ids=str)
def test_an_option_that_is_true_or_false_is_nothing_else(kind, name):
    """A text is true, whatever it says, and so is an argument in another's place, as Conv2d(…, "reflect")."""
    kind, given = arguments(LAYERS[kind, name])
    for value in NONSENSE:
        with pytest.raises((TypeError, ValueError, gb.UnsupportedError), match=name):
            kind(**{**given, name: value})
    kind(**{**given, name: np.bool_(given[name])})


def test_losses_and_operators_take_the_booleans_of_numpy():
    yes, x = np.bool_(True), np.ones((2, 3))
    assert repr(losses.PoissonNLLLoss(full=yes, log_input=yes)) == repr(losses.PoissonNLLLoss(full=True))
    assert repr(losses.GaussianNLLLoss(full=yes)) == repr(losses.GaussianNLLLoss(full=True))
    network = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
    found = [gb.operators.GGN(network, losses.MSELoss(), (x, x[:, :2].copy()), blocks=each) for each in (yes, True)]
    np.testing.assert_array_equal(found[0].to_dense(), found[1].to_dense())


def kronecker_error():
    return quantities.KroneckerError(quantities.KFAC())


ASSIGNED = [
    *[(make, "divisor_override", value) for make in (lambda: layers.AvgPool2d(2),) for value in (0, 1.5, True, "a")],
    *[(make, "threshold", value) for make in (lambda: layers.Threshold(0.1, 0.0),) for value in (np.nan, "a", None)],
    (lambda: layers.Threshold(0.1, 0.0), "replacement", np.nan),
    (lambda: layers.ConstantPad2d(1, 2.0), "value", None),
    *[(lambda: layers.Unflatten(1, (2, 2)), "dim", value) for value in (1.5, "a", True)],
    *[(lambda: gb.RNN(2, 3), "nonlinearity", value) for value in ("sigmoid", None, int)],
    *[(quantities.BatchGrad, "coupled", value) for value in ("a", 1)],
    *[(quantities.NearestKronecker, "tolerance", value) for value in (-1, np.nan, True)],
    (quantities.NearestKronecker, "iterations", 0),
    *[(kronecker_error, "columns", value) for value in (0, 1.5, "a")],
    (kronecker_error, "of", "a"),
    *[(lambda: gb.Residual(layers.Linear(2, 2), rng=0), "shortcut", value) for value in (2.0, "a", layers.Linear)],
    (lambda: layers.LayerNorm(3), "eps", None),
    *[(lambda: layers.BatchNorm1d(3), "momentum", value) for value in (np.nan, -3, 2.0, np.inf)],
]  # fmt: skip


@pytest.mark.parametrize(("make", "name", "value"), ASSIGNED)
def test_an_assignment_that_nothing_checks_is_refused(make, name, value):
    made = make()
    before = getattr(made, name)
    with pytest.raises((AttributeError, TypeError, ValueError), match=name):
        setattr(made, name, value)
    assert getattr(made, name) is before


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (layers.BatchNorm1d, {"momentum": np.nan}, "momentum: expected a finite number of at least 0, got nan"),
        (layers.BatchNorm1d, {"momentum": 1.5}, "momentum: expected a number from 0 to 1, or None, got 1.5"),
        (layers.GroupNorm, {"num_groups": 1, "eps": None}, "eps: expected a finite number of at least 0, got None"),
        (layers.Parameter, {"initial": 1 + 2j}, "initial: expected numbers, got complex128"),
        (layers.Parameter, {"initial": np.inf}, "initial: expected finite numbers, got NaN or infinity"),
        (layers.Parameter, {"shape": b"a"}, "shape: expected an integer or a tuple of integers, got b'a'"),
    ],
)
def test_numbers_of_a_layer_are_finite(kind, given, words):
    first = {"shape": (2,)} if kind is layers.Parameter else {} if kind is layers.GroupNorm else {"num_features": 3}
    first |= {"num_channels": 2} if kind is layers.GroupNorm else {}
    with pytest.raises((TypeError, ValueError), match=words.replace("(", r"\(")):
        kind(**{**first, **given})


def test_arguments_of_traced_functions_are_checked():
    x, p = np.ones((2, 3)), {"w": np.ones((3, 2))}
    with pytest.raises(TypeError, match="replace: expected True or False, got 'no'"):
        gb.trace(lambda p, x: x @ p["w"], p, x, replace="no")
    with pytest.raises(TypeError, match="sampler: expected a function of outputs and uniform numbers, or None, got"):
        gb.trace_loss(lambda f, y: ((f - y) ** 2).sum(1), x, x, sampler="a")
