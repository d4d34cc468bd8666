"""Programs against the plain sweep: as recorded equal in every bit, simplified within rounding, at other numbers."""

import json
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from program_cases import cast, of_layer, of_loss

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.plan import make_plan
from gbackprop.testing.cases import ALL_LAYERS, LOSSES, NETWORKS
from gbackprop.testing.golden import build
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.runs import SHIPPED
from gbackprop.testing.strategies import problems

FILES = sorted(Path(__file__).parents[1].glob("golden*/*.npz"))
READ = ("nearest_kronecker", "kronecker_error")
"""Quantities that read numbers, and have no program."""

KINDS = {name: kind for name, kind in SHIPPED.items() if name not in READ} | {
    "diag_ggn_mc": lambda: q.DiagGGNMC(2), "kfac joint": lambda: q.KFAC(joint_bias=True, fisher="empirical"),
    "kfac reduce": lambda: q.KFAC(sharing="reduce", mc_samples=2),
}  # fmt: skip
FOLDED = {"float64": 1e-14, "float32": 1e-6}
BASES = ("QA", "QB", "eigenvalues")
"""Eigenvectors that belong to equal or tiny eigenvalues are not unique: what they make up is compared."""


def parts(value, path=""):
    """The arrays, classes and other attributes of a result by their paths."""
    if isinstance(value, gb.kronecker.EigenKronecker):
        yield f"{path} dense", value.to_dense()
        value = {name: each for name, each in vars(value).items() if name not in BASES}
    yield f"{path} class", type(value)
    if isinstance(value, dict | list | tuple):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(each, f"{path}/{key}")
    elif hasattr(value, "__dict__") and not isinstance(value, q.Quantity | losses.Loss):
        for name, each in vars(value).items():
            yield from parts(each, f"{path}.{name}")
    else:
        yield path, value


def assert_equal(got, want, tolerance):
    """Two results agree in everything: in every bit if the tolerance is 0, but for what eigenvectors make up."""
    got, want = dict(parts(got)), dict(parts(want))
    assert list(got) == list(want)
    for path, value in want.items():
        if not isinstance(value, np.ndarray | np.generic):
            assert got[path] is value or got[path] == value, path
            continue
        assert (got[path].dtype, got[path].shape) == (value.dtype, value.shape), path
        if path.endswith(" dense"):
            np.testing.assert_allclose(got[path], value, rtol=0, atol=ROUNDED[value.dtype.name] * np.abs(value).max())
        elif not tolerance:
            assert got[path].tobytes() == value.tobytes(), (path, np.abs(got[path] - value).max())
        elif value.dtype.kind == "f":
            error, size = np.abs(got[path] - value).max(initial=0), np.abs(value).max(initial=0)
            assert not np.isfinite(size) or error <= tolerance * size, (path, error / size)


ROUNDED = {"float64": 1e-9, "float32": 1e-4}


def asked(net, loss, x, y, names, **options):
    """One of each quantity that network and loss can give."""
    found = []
    for name in names:
        try:
            make_plan(net, loss, x, y, [KINDS[name]()], 0, **options)
        except (gb.UnsupportedError, ValueError):
            continue
        found.append(KINDS[name]())
    return found


def check(net, loss, batch, other, names=tuple(KINDS), **options):
    """Record with one batch, change the parameters, and compare at another batch."""
    quantities = asked(net, loss, *batch, names, **options)
    programs = [(gb.program(net, loss, *batch, *quantities, fold=fold, **options), fold) for fold in (False, True)]
    rng = np.random.default_rng(3)
    for i, values in enumerate(net.parameters.values()):
        values *= rng.uniform(0.9, 1.1, values.shape).astype(values.dtype)
        values += rng.uniform(0, 0.1) * (i % 2)
    for _, layer in net.named_layers():  # and replaced
        layer.drawn = {name: value.copy() for name, value in layer.parameters.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = gb.reference(net, loss, *other, *quantities, rng=5, **options)
        for program, fold in programs:
            got = program(*other, 5)
            assert_equal(got, want, FOLDED[want.output.dtype.name] if fold else 0)
            assert_own(got, *other, *net.parameters.values(), *program.constants.values())


def assert_own(result, *given):
    """Each array of a result has memory of its own, which may be written to."""
    for (path, value), (other, more) in combinations([*arrays_of(result), *enumerate(given)], 2):
        assert isinstance(path, int) or not np.shares_memory(value, more), (path, other)
    assert all(value.flags.writeable for _, value in arrays_of(result))


def arrays_of(result):
    return [each for each in parts(result) if isinstance(each[1], np.ndarray)]


# ------------------------------------------------------------------------------------------------------- golden files


def golden(file, dtype, **options):
    with np.load(file) as case:
        case = dict(case)
    net, loss = build(json.loads(str(case["spec"])), case, dtype)
    x, y = cast((case["x"], case["y"]), dtype)
    check(net, loss, (x, y), (x[::-1] if x.dtype.kind == "i" else (x[::-1] * 1.1).astype(dtype), y[::-1]), **options)


@pytest.mark.parametrize("file", FILES[::9], ids=lambda file: file.stem)
def test_golden_networks(file):
    golden(file, "float64" if FILES.index(file) % 2 else "float32", names=NAMED)


NAMED = ("kfac", "ekfac", "diag_hessian", "variance")


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_golden_networks(file, dtype):
    golden(file, dtype)


# ------------------------------------------------------------------------------------------------- the table of cases


@pytest.mark.parametrize("i", [6, 9])
def test_networks(i):
    row = NETWORKS[i]
    check(row.network(), row.loss, row.batch(0), row.batch(5), names=[*KINDS][i % 2 :: 2])


@pytest.mark.long
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("i", range(len(NETWORKS)))
def test_all_networks(i, dtype, training):
    row = NETWORKS[i]
    net = row.network().astype(dtype)
    check(net, row.loss, cast(row.batch(0), dtype), cast(row.batch(5), dtype), training=training)


@pytest.mark.parametrize("i", range(3, len(LOSSES), 4))
def test_losses(i):
    case = of_loss(LOSSES[i], ("mean", "sum")[i // 4 % 2], ("float64", "float32")[i % 3 == 0])
    check(*case, names=["diag_ggn_mc", "kflr"])


def test_the_factor_of_weighted_targets_is_no_array_of_float32():
    check(*of_loss(LOSSES[6], "mean", "float32"), names=["batch_grad", "second_moment", "variance"])


@pytest.mark.long
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("i", [i for i, row in enumerate(LOSSES) if row.shape != (200,)])
def test_all_losses(i, reduction):
    for dtype in ("float64", "float32"):
        check(*of_loss(LOSSES[i], reduction, dtype))


@pytest.mark.parametrize("i", range(0, len(ALL_LAYERS), 20))
def test_layers(i):
    check(*of_layer(ALL_LAYERS[i], "float64"), names=("diag_hessian",), training=i % 8 == 4)


@pytest.mark.long
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("i", range(len(ALL_LAYERS)))
def test_all_layers(i, training):
    too_long = TOO_LONG if str(ALL_LAYERS[i]) == "LSTM(2, 2, num_layers=2, bidirectional=True) on (3, 2)" else ()
    for dtype in ("float64", "float32"):
        case = of_layer(ALL_LAYERS[i], dtype)
        check(*case, names=[name for name in KINDS if name not in too_long], training=training)
        for name in too_long:
            number = {"float64": 28705, "float32": 28725}[dtype]  # in float32 pairs are converted
            with pytest.raises(gb.UnsupportedError, match=f"program: {number} statements, expected at most 20000"):
                gb.program(*case[:2], *case[2], KINDS[name](), fold=False)


TOO_LONG = ("diag_hessian", "batch_diag_hessian")


# --------------------------------------------------------------------------------------------------------- drawn cases


@st.composite
def calls(draw):
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    return draw(problems() | graph_problems()), names, draw(st.booleans()), draw(st.sampled_from([*FOLDED]))


@settings(max_examples=max(8, settings().max_examples // 5) if settings().max_examples > 30 else 5)
@given(calls())
def test_drawn(call):
    problem, names, training, dtype = call
    training = training and not any(hasattr(layer, "buffers") for _, layer in problem.network.named_layers())
    net, rng = problem.network.astype(dtype), np.random.default_rng(problem.seed)
    assume(net.parameters)
    batch = cast((problem.x, problem.y), dtype)
    check(net, problem.loss, batch, cast((problem.x * rng.uniform(0.5, 1.5), batch[1][::-1]), dtype), names,
          training=training)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- options


def image(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 2, 3, 3)), rng.integers(0, 3, 4)


def normed():
    chain = layers.Conv2d(2, 3, 2), layers.BatchNorm2d(3), layers.ReLU(), layers.Dropout(0.4), layers.Flatten()
    return gb.Sequential(*chain, layers.Linear(12, 3), rng=0, dtype="float64")


@pytest.mark.parametrize("training", [False, True])
def test_training_mode(training):
    names = ("batch_grad", "diag_ggn") if training else ("batch_grad", "kfac", "diag_hessian")
    check(normed(), losses.CrossEntropyLoss(), image(0), image(1), names, training=training)


@pytest.mark.parametrize("wrt", ["x", ["x", "0.weight"], ["5.bias"]])
def test_names_to_differentiate_in(wrt):
    check(normed(), losses.CrossEntropyLoss("sum"), image(0), image(1), ("batch_grad", "diag_ggn", "variance"), wrt=wrt)


def test_frozen_and_shared_parameters():
    shared = layers.Linear(4, 4)
    chain = [shared, layers.Tanh(), gb.Residual(shared, layers.Sigmoid()), layers.Linear(4, 3), layers.Linear(3, 3)]
    chain[3].frozen, chain[4].frozen = frozenset({"bias"}), frozenset({"weight", "bias"})
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((5, 4)), rng.integers(0, 3, 5)) for _ in range(2)]
    net = gb.Sequential(*chain, rng=0, dtype="float64")
    check(net, losses.CrossEntropyLoss(), *batches, ("batch_grad", "diag_hessian", "diag_ggn_mc", "gram_gradients"))


def test_eigenvectors_of_factors_whose_rank_is_found_first():
    """The eigenvectors of 70 rows of rank 5 are others than `numpy.linalg.eigh` gives; the block is the same."""
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((5, 70)), rng.integers(0, 3, 5)) for _ in range(2)]
    check(gb.Sequential(layers.Linear(70, 3), rng=0, dtype="float64"), losses.CrossEntropyLoss(), *batches, ["ekfac"])


def attention(p, x):
    scores = x @ p["q"] @ np.swapaxes(x @ p["k"], 1, 2) / 2
    e = np.exp(scores - scores.max(-1, keepdims=True))
    h = np.zeros_like(x)
    h[:, 1:] = (e / e.sum(-1, keepdims=True) @ x)[:, 1:]
    return (np.where(h > 0, h, 0.1 * h) + x).mean(1) @ p["o"]


def test_traced_networks():
    rng = np.random.default_rng(0)
    parameters = {name: rng.standard_normal(shape) for name, shape in {"q": (3, 2), "k": (3, 2), "o": (3, 3)}.items()}
    batches = [(rng.standard_normal((4, 3, 3)), rng.integers(0, 3, 4)) for _ in range(2)]
    net = gb.trace(attention, parameters, batches[0][0])
    check(net, losses.CrossEntropyLoss(), *batches, ("batch_grad", "diag_ggn", "diag_hessian"))


@pytest.mark.parametrize("kind", [gb.LSTM, gb.GRU, gb.RNN])
def test_recurrent_networks(kind):
    net = gb.Sequential(kind(2, 3), layers.Flatten(), layers.Linear(9, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((3, 3, 2)), rng.integers(0, 2, 3)) for _ in range(2)]
    check(net, losses.CrossEntropyLoss(), *batches, ("diag_ggn", "variance"))
