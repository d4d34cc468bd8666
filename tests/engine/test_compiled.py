"""The compiled kernels give what the layers' plain functions give; every golden cell holds without them too."""

import builtins
import io
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import kernel_definitions as plain
import numpy as np
import pytest
from drawn_windows import SEEDS, numbers, paddings, windows
from hypothesis import given
from hypothesis import strategies as st

import gbackprop.engine.forms.elementwise
import gbackprop.engine.forms.products
from gbackprop.calculus.window import Window, pad
from gbackprop.engine import kernels
from gbackprop.engine.arena import Arena
from gbackprop.engine.forms.moves import padded
from gbackprop.engine.memory import Allocator
from gbackprop.testing.golden import check_folder

pytest.importorskip("numba")

from gbackprop.engine.kernels import compiled_tiles, compiler, host, plain_tiles
from gbackprop.engine.kernels import plain as uncompiled
from gbackprop.engine.kernels.compiler import Notice, compiled

TOLERANCES = {"float64": 1e-13, "float32": 1e-5}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCES)


@pytest.fixture
def without_numba(monkeypatch):
    for module in (kernels, gbackprop.engine.forms.products, gbackprop.engine.forms.elementwise):
        monkeypatch.setattr(module, "numba_kernels", lambda: None)


def check(name, *arguments, out, dtype):
    """A kernel writes what its definition gives, compiled or not, whatever was there before."""
    *arguments, out = plain.cast(dtype, *arguments, out)
    want = getattr(plain, name)(*arguments, out)
    assert (want.shape, want.dtype) == (out.shape, out.dtype)
    for module in [each for each in (uncompiled, host) if hasattr(each, name)]:
        got = plain.written(getattr(module, name), *arguments, like=out)
        np.testing.assert_allclose(got, want, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    return got


def written_by_both(name, *arguments, like):
    return [plain.written(getattr(module, name), *arguments, like=like) for module in (uncompiled, host)]


# ---------------------------------------------------------------------------------------------------------- which, when


def test_the_compiled_kernels_are_taken_for_floats_on_the_host():
    for dtype in (np.float32, np.float64):
        assert kernels.windows_of(np.zeros(1, dtype), 2) is host
        assert kernels.transforms_of(np.zeros(1, dtype)) is compiled_tiles
    for dtype in (np.complex128, np.int64, bool):
        assert kernels.windows_of(np.zeros(1, dtype), 2) is None
        assert kernels.transforms_of(np.zeros(1, dtype)) is None


def twice(x):
    for i in range(len(x)):
        x[i] *= 2


def kernels_where_importing_raises(error, monkeypatch):
    load = builtins.__import__

    def fails(name, *given):
        if "host" in (given[2] or ()):
            raise error
        return load(name, *given)

    monkeypatch.setattr(builtins, "__import__", fails)
    return kernels.numba_kernels.__wrapped__()


def test_without_numba_there_are_no_compiled_kernels(monkeypatch):
    assert kernels_where_importing_raises(ModuleNotFoundError("No module named 'numba'"), monkeypatch) is None


def test_threads_that_look_for_numba_at_once_do_not_warn(monkeypatch):
    load = builtins.__import__

    def slow(name, *given):
        if name.partition(".")[0] == "numba":
            time.sleep(0.02)  # the other threads come to a module that is not complete
            raise ModuleNotFoundError("No module named 'numba'")
        return load(name, *given)

    for name in ("host", "compiled", "compiler"):
        monkeypatch.delattr(kernels, name)
        monkeypatch.delitem(sys.modules, f"{kernels.__name__}.{name}")
    monkeypatch.setattr(builtins, "__import__", slow)
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(lambda _: kernels.numba_kernels.__wrapped__(), range(8))] == [None] * 8


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("Numba needs NumPy 2.0 or less"), "slower: Numba needs NumPy 2.0 or less$"),
        (RuntimeError("cannot cache function: no locator"), "no locator; set NUMBA_CACHE_DIR to a folder that can be"),
    ],
)
def test_a_numba_that_cannot_be_used_says_why(error, words, monkeypatch):
    with pytest.warns(RuntimeWarning, match=words):
        assert kernels_where_importing_raises(error, monkeypatch) is None


def test_code_that_cannot_be_stored_runs(monkeypatch):
    def full(self, signature, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.Cache.save_overload", full)
    monkeypatch.setattr("numba.core.caching.Cache.load_overload", lambda *_: None)
    double = compiled(twice)
    x = np.array([1.0, 2.0])
    double(x)
    np.testing.assert_array_equal(x, [2.0, 4.0])


class Slow:
    """Numba's events of a loop that takes some seconds to compile, on a clock of its own."""

    def __init__(self, monkeypatch, module="gbackprop.engine.kernels.compiled"):
        self.now, self.due, self.started = 0.0, None, 0
        monkeypatch.setattr(compiler, "Timer", self.timer)
        monkeypatch.setattr(compiler.time, "monotonic", lambda: self.now)
        loop = SimpleNamespace(py_func=SimpleNamespace(__module__=module), stats=SimpleNamespace(cache_path="HERE"))
        self.event = SimpleNamespace(data={"dispatcher": loop})

    def timer(self, seconds, function, arguments):
        def start():
            self.due, self.tell, self.started = self.now + seconds, partial(function, *arguments), self.started + 1

        return SimpleNamespace(start=start, cancel=lambda: setattr(self, "due", None), daemon=False)

    def __call__(self, notice, seconds):
        notice.on_start(self.event)
        self.now += seconds
        if self.due is not None and self.due <= self.now:
            self.tell()
        notice.on_end(self.event)


LINE = "\rgbackprop: Numba compiles loops, which takes some seconds once: the code is stored in HERE\n"


@pytest.mark.parametrize(("each", "lines"), [([0.5, 1.4], 0), ([2.5, 9], 1), ([0.9, 0.9, 0.9], 1)], ids=str)
def test_slow_compilation_is_told_once_after_two_seconds_of_it(each, lines, capsys, monkeypatch):
    slow, notice = Slow(monkeypatch), Notice()
    for seconds in each:
        slow(notice, seconds)
        slow.now += 100  # what is between compilations does not count
    assert capsys.readouterr().err == LINE * lines
    assert slow.due is None


def test_a_loop_that_compiles_another_is_one_compilation(capsys, monkeypatch):
    slow, notice = Slow(monkeypatch), Notice()
    notice.on_start(slow.event)
    slow(notice, 1.9)
    slow.now += 0.2
    assert slow.due <= slow.now
    notice.on_end(slow.event)
    assert slow.started == 1


def test_loops_of_others_are_theirs_to_tell(capsys, monkeypatch):
    Slow(monkeypatch, "someone.else")(Notice(), 9)
    assert capsys.readouterr().err == ""


def test_a_closed_stderr_is_no_error(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr("sys.stderr", stream)
        Notice().tell("HERE")


def test_numba_tells_when_it_compiles_and_not_when_it_loads_or_calls(monkeypatch):
    told = []
    monkeypatch.setattr(compiler.NOTICE, "written", False)
    monkeypatch.setattr(compiler.NOTICE, "tell", told.append)
    monkeypatch.setattr(compiler.NOTICE, "left", 0.0)
    monkeypatch.setattr(twice, "__module__", "gbackprop.tests")
    monkeypatch.setattr("numba.core.caching.Cache.load_overload", lambda *_: None)
    monkeypatch.setattr("numba.core.caching.Cache.save_overload", lambda *_: None)
    double, x = compiled(twice), np.ones(2)
    for _ in range(2):
        double(x)
    assert len(told) == 1
    assert Path(told[0]).parts[-2:] == ("engine", "__pycache__")


def test_without_numba_windows_and_transforms_are_numpys(without_numba):
    assert kernels.windows_of(np.zeros(1), 2) is uncompiled
    assert kernels.windows_of(np.zeros(1, complex), 2) is None
    assert kernels.transforms_of(np.zeros(1)) is plain_tiles
    assert kernels.transforms_of(np.zeros(1, complex)) is None


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 1e-4)])
def test_golden_without_numba(without_numba, dtype, tolerance):
    report = check_folder(Path(__file__).parents[1] / "golden", tolerance, dtype)
    assert report.passed == report.total == 300


# ------------------------------------------------------------------------------------------------------------- windows


@PRECISIONS
@given(drawn=windows(), seed=SEEDS)
def test_fold(dtype, drawn, seed):
    window, spatial = drawn
    cols = numbers(seed, (2, *window.out(spatial), *window.kernel, 3))
    image = check("fold", cols, window, out=np.zeros((2, *window.padded(spatial), 3)), dtype=dtype)
    inside = image[:, *window.inside(spatial)]
    np.testing.assert_allclose(inside, window.fold(cols, spatial), rtol=1e-5, atol=TOLERANCES[dtype])


@PRECISIONS
@given(drawn=windows(), seed=SEEDS)
def test_largest_first_places_and_scatter(dtype, drawn, seed):
    window, spatial = drawn
    out, axes, rng = window.out(spatial), len(spatial), np.random.default_rng(seed)
    image = rng.integers(0, 3, (2, *window.padded(spatial), 2)).astype(float)  # many are equal
    seen = plain.bare(window).unfold(image).reshape(2, *out, -1, 2)
    y = check("largest", image, window, out=np.zeros((2, *out, 2)), dtype=dtype)
    np.testing.assert_array_equal(y, seen.max(-2))
    places = check("first_places", image, y, window, out=np.zeros(y.shape, np.int32), dtype=dtype)
    np.testing.assert_array_equal(places, seen.argmax(-2))
    rows = np.moveaxis(rng.standard_normal((3, 2, 2, *out)), 2, -1)  # channels do not lie last in memory
    scattered = check("scatter", rows, places, window, out=np.zeros((3, *image.shape)), dtype=dtype)
    sums = [x.sum(tuple(range(2, 2 + axes))) for x in (scattered, rows)]
    np.testing.assert_allclose(*sums, atol=10 * TOLERANCES[dtype])


@PRECISIONS
@pytest.mark.parametrize("samples", [2, 3, 5])
def test_blocks_of_two_samples_and_a_rest(dtype, samples, monkeypatch):
    window, rng = Window((3, 2), (2, 1), (1, 1), ((0, 1), (1, 0))), np.random.default_rng(0)
    image = rng.standard_normal((samples, *window.padded((6, 5)), 3)).astype(dtype)
    monkeypatch.setattr("gbackprop.engine.scratch._CACHE_BYTES", 2 * image[0].nbytes)
    y = check("largest", image, window, out=np.zeros((samples, *window.out((6, 5)), 3)), dtype=dtype)
    places = check("first_places", image, y, window, out=np.zeros(y.shape, np.int32), dtype=dtype)
    rows = rng.standard_normal((2, *y.shape))
    check("scatter", rows, places, window, out=np.zeros((2, *image.shape)), dtype=dtype)


@pytest.mark.parametrize("size", [11, 12])
def test_places_in_windows_with_more_of_them_than_a_byte_counts(size):
    window = Window((size, size), (1, 1), (1, 1), ((0, 0), (0, 0)))
    image = np.arange(2.0 * size * size).reshape(1, size, size, 2)
    y = image[:, -1:, -1:]
    places = check("first_places", image, y, window, out=np.zeros(y.shape, np.int32), dtype="float64")
    assert (places == size * size - 1).all()


@PRECISIONS
@given(drawn=windows(), seed=SEEDS)
def test_images_whose_channels_do_not_lie_last_in_memory(dtype, drawn, seed):
    window, spatial = drawn
    image = np.moveaxis(numbers(seed, (2, 3, *window.padded(spatial))), 1, -1)
    y = check("largest", image, window, out=np.zeros((2, *window.out(spatial), 3)), dtype=dtype)
    check("first_places", image, y, window, out=np.zeros(y.shape, np.int32), dtype=dtype)


THREE = Window((3,), (1,), (1,), ((0, 0),))


@pytest.mark.parametrize("order", [(np.nan, 1.0, 2.0), (1.0, np.nan, 2.0), (1.0, 2.0, np.nan)])
def test_the_largest_of_nan_and_numbers_is_nan(order):
    image, out = np.array(order).reshape(1, 3, 1), np.zeros((1, 1, 1))
    for y in (plain.largest(image, THREE, out), *written_by_both("largest", image, THREE, like=out)):
        assert np.isnan(y.item())


def test_nan_is_passed_on():
    """Wherever the maximum is NaN, the first place takes the derivative, by the definition as well."""
    image, out = np.full((1, 3, 1), np.nan), np.zeros((1, 1, 1), np.int32)
    arguments = image, image[:, :1], THREE
    for places in (plain.first_places(*arguments, out), *written_by_both("first_places", *arguments, like=out)):
        assert places.item() == 0


# ---------------------------------------------------------------------------------------------- outer products, padding


@PRECISIONS
def test_outer_products(dtype):
    g, u = (numbers(size, (4, size))[::2] for size in (3, 5))
    check("outer", g, u, out=np.zeros((2, 3, 5)), dtype=dtype)


@PRECISIONS
@given(drawn=paddings(), wide=st.booleans(), seed=SEEDS)
def test_padding_in_memory_that_is_reused(dtype, drawn, wide, seed):
    spatial, padding = drawn
    x, memory = numbers(seed, (2, *spatial, 2**14 if wide else 3)).astype(dtype), Arena() if wide else Allocator()
    memory.empty(x, (2**20,))[...] = np.nan  # what was there before
    got = padded(x, padding, memory, value=-np.inf)
    np.testing.assert_array_equal(got, pad(x, padding, -np.inf))
    assert got.dtype == dtype
