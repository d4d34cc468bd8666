"""Every fast path against the plain sweep: drawn networks, quantities and options, and drawn thresholds."""

from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pytest
from common import flat
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import blocks, costs, memory, scratch
from gbackprop.engine.forms import FORMS
from gbackprop.plain.plan import make_plan
from gbackprop.testing.graphs import graph_problems
from gbackprop.testing.runs import every_quantity
from gbackprop.testing.strategies import SEEDS, NetworkCase, problems

TOLERANCE = {"float64": 1e-12, "float32": 2e-4}
"""Of the largest entry of a quantity in any parameter."""

KINDS = {quantity.name: type(quantity) for quantity in every_quantity()} | {"diag_ggn_mc": lambda: q.DiagGGNMC(2)}

DIFFERENCES = {"variance": "second_moment", "diag_hessian": "diag_ggn", "batch_diag_hessian": "batch_diag_ggn"}
"""The quantity of which another one may be a small difference: it is rounded as that."""


@dataclass(frozen=True)
class Options:
    """The way in which a call computes; none of this may change a result."""

    asked: tuple[str, ...]
    dtype: str
    training: bool
    call: dict
    numba: bool
    always_tiles: bool
    always_routed: bool
    cache: int
    block: int
    least_array: int
    form_of_squares: float


@st.composite
def options(draw):
    asked = tuple(draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True)))
    call = {} if "gram_ggn" in asked else {"column_block": draw(st.none() | st.integers(1, 6))}
    if not {"kfra", "gram_gradients", "gram_ggn"} & set(asked):
        call |= {"sample_block": draw(st.none() | st.integers(1, 3)), "workers": draw(st.none() | st.integers(1, 3))}
    if draw(st.integers(0, 3)) == 0:
        call["memory"] = "1GiB"
    return Options(
        asked, draw(st.sampled_from(["float64", "float64", "float32"])), draw(st.booleans()), call, draw(st.booleans()),
        draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([2**8, 2**12, 2**20])),
        draw(st.sampled_from([2**6, 2**26])), draw(st.sampled_from([1, 2**16])), draw(st.sampled_from([0.0, 1.0, 1e9])),
    )  # fmt: skip


@st.composite
def image_problems(draw):
    """Convolutions below activations, padding, dropout and pooling, with tiles and routes in every other one."""
    seed, channels, size = draw(SEEDS), draw(st.integers(1, 3)), draw(st.integers(6, 9))
    shape = start = (channels, size, size)
    chain = []
    for _ in range(draw(st.integers(1, 2))):
        groups = draw(st.sampled_from([1, 1, shape[0]]))
        out = groups * draw(st.integers(1, 3))
        chain.append(layers.Conv2d(shape[0], out, draw(st.sampled_from([2, 3])), padding=1, groups=groups))
        between = [layers.ReLU(), layers.Sigmoid(), layers.Tanh(), layers.ZeroPad2d((0, 1, 1, 0)), layers.Dropout(0.3)]
        between += [layers.LeakyReLU(), layers.SiLU(), layers.PReLU(out)]
        chain += draw(st.lists(st.sampled_from([*between, layers.Identity()]), max_size=2, unique_by=id))
        pool = [layers.MaxPool2d(2), layers.MaxPool2d(3, 2, 1), layers.AvgPool2d(2), layers.MaxPool2d(2, 1)]
        chain.append(draw(st.sampled_from(pool)))
        shape = gb.Sequential(*chain).output_shape(start)
    chain += [layers.Flatten(), layers.Linear(int(np.prod(shape)), draw(st.integers(2, 4)))]
    net = gb.Sequential(*chain, rng=seed, dtype="float64")
    loss = losses.CrossEntropyLoss(draw(st.sampled_from(["mean", "sum"])))
    return NetworkCase(net, loss, start, draw(st.integers(1, 4)), seed)


@contextmanager
def engine(opt):
    """The engine with thresholds that drive small networks through the paths of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "_CACHE_BYTES", opt.cache)
        patch.setattr(blocks, "BLOCK_BYTES", opt.block)
        patch.setattr(blocks, "SMALL_BYTES", 0 if opt.block < 2**20 else blocks.SMALL_BYTES)
        patch.setattr(blocks, "REUSED_BYTES", opt.cache)
        patch.setattr("gbackprop.engine.arena.LEAST_ARRAY", opt.least_array)
        patch.setattr(memory, "LEAST_RESULT", opt.least_array)
        positions = costs.square_by_positions
        patch.setattr(costs, "square_by_positions", lambda *sizes: opt.form_of_squares * positions(*sizes))
        if opt.always_tiles:
            patch.setattr(costs, "TILED_CHANNELS", 1)
            patch.setattr(costs, "TILED_POSITIONS", 1)
        if opt.always_routed:
            patch.setattr(costs, "SAMPLE_COST", -np.inf)
        if not opt.numba:
            for module in ("engine.kernels", "engine.forms.products", "engine.forms.elementwise"):
                patch.setattr(f"gbackprop.{module}.numba_kernels", lambda: None)
        patch.setattr(costs, "COMPILED_LOOP", 0)
        yield


def poison():
    """Fill all idle memory with NaN: who reads before he writes shall be seen."""
    for arena in memory.idle_arenas:
        for slab in arena._slabs:
            np.frombuffer(slab, np.uint8)[...] = 0xFF
    for piece in memory._idle_results.values():
        piece[...] = 0xFF


def cast(problem, dtype):
    net = gb.Sequential(*problem.network.layers)
    for _, layer in net.named_layers():
        layer.drawn = {name: value.astype(dtype) for name, value in layer.parameters.items()}
    x, y = problem.x.astype(dtype), problem.y
    return net, problem.loss, x, y.astype(dtype) if y.dtype.kind == "f" else y


def arrays(result, names):
    """All that a result has, by quantity: {quantity: {parameter: array}}."""
    found = {"loss": {"": result.loss}, "output": {"": result.output}, "gradient": result.gradient}
    return found | {name: flat(result[name]) for name in names}


def supported(case, names):
    """The quantities that the network and the loss can give: Kronecker factors not of all layers, draws not of all."""
    found = []
    for name in names:
        with suppress(gb.UnsupportedError):
            make_plan(*case, [KINDS[name]()], 0)
            found.append(name)
    return found


def trains(problem, opt):
    """Return whether to compute in training mode: batch normalization has none."""
    return opt.training and not any(hasattr(layer, "buffers") for _, layer in problem.network.named_layers())


def assert_agree(got, want, dtype):
    size = {name: max((np.abs(v).max(initial=0) for v in values.values()), default=0) for name, values in want.items()}
    for name, values in want.items():
        largest = size[name] + size.get(DIFFERENCES.get(name), 0)
        for key, value in values.items():
            assert (got[name][key].dtype, got[name][key].shape) == (value.dtype, value.shape), (name, key)
            error = np.abs(got[name][key] - value).max(initial=0)
            assert error <= TOLERANCE[dtype] * largest + np.finfo(dtype).tiny, (name, key, error, largest)


ANY = problems() | image_problems() | graph_problems()


def plain(problem, opt, case, asked, names):
    """The arrays of `gb.reference`; a case whose numbers are too large for its dtype is drawn again."""
    with np.errstate(over="ignore", invalid="ignore"):
        want = arrays(gb.reference(*case, *asked, rng=1, training=trains(problem, opt)), names)
    assume(all(np.isfinite(value).all() for values in want.values() for value in values.values()))
    return want


@settings(max_examples=3 * settings().max_examples)
@given(problem=ANY, opt=options())
def test_backward_gives_what_reference_gives(problem, opt):
    case = cast(problem, opt.dtype)
    names = supported(case, list(opt.asked))
    names += [whole for name, whole in DIFFERENCES.items() if name in names and whole not in names]
    asked = [KINDS[name]() for name in names]
    want = plain(problem, opt, case, asked, names)
    with engine(opt):
        for _ in range(2):  # the second call takes the memory that the first one left
            got = arrays(gb.backward(*case, *asked, rng=1, training=trains(problem, opt), **opt.call), names)
            assert_agree(got, want, opt.dtype)
            poison()
            assert_agree(got, want, opt.dtype)  # and results have none of it
    gb.free_memory()


@given(problem=ANY, opt=options())
def test_with_an_empty_registry_everything_is_the_same(problem, opt):
    case = cast(problem, opt.dtype)
    names = supported(case, list(opt.asked))
    asked = [KINDS[name]() for name in names]
    want = plain(problem, opt, case, asked, names)
    with pytest.MonkeyPatch.context() as patch:
        for kind in list(FORMS):
            patch.delitem(FORMS, kind)
        got = arrays(gb.backward(*case, *asked, rng=1, training=trains(problem, opt), **opt.call), names)
    for name in DIFFERENCES:  # rounded as what they are differences of, which may not have been asked for
        got.pop(name, None), want.pop(name, None)
    assert_agree(got, want, opt.dtype)
