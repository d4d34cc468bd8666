"""The device's kernels against their definitions: the same source, run on the host by the double, or on a GPU."""

import kernel_definitions as plain
import numpy as np
import pytest
from device_ledger import ledger
from drawn_windows import SEEDS, numbers, windows
from hypothesis import HealthCheck, given, settings

import gbackprop as gb
from gbackprop.calculus.window import Window
from gbackprop.engine.kernels import device, on_gpu, transforms_of, windows_of
from gbackprop.layers.elementwise.activation import sigmoid

TOLERANCES = {"float64": 1e-12, "float32": 1e-5}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCES)
ONE_DEVICE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def moved(arguments):
    return [gb.asarray(a, "cuda") if isinstance(a, np.ndarray) else a for a in arguments]


def check(name, *arguments, out, dtype):
    """A kernel on the device writes what NumPy's definition gives, whatever was there before."""
    *arguments, out = plain.cast(dtype, *arguments, out)
    want = getattr(plain, name)(*arguments, out)
    assert (want.shape, want.dtype) == (out.shape, out.dtype)
    *arguments, out = moved((*arguments, out))
    ledger.clear()
    got = plain.written(getattr(device, name), *arguments, like=out)
    assert ledger.transfers == []
    got = gb.asnumpy(got)
    np.testing.assert_allclose(got, want, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    return got


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_fold(gpu, dtype, drawn, seed):
    window, spatial = drawn
    cols = numbers(seed, (2, *window.out(spatial), *window.kernel, 3))
    check("fold", cols, window, out=np.zeros((2, *window.padded(spatial), 3)), dtype=dtype)


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_total_spread_and_largest(gpu, dtype, drawn, seed):
    window, spatial = drawn
    image = numbers(seed, (2, *window.padded(spatial), 3))
    rows = numbers(seed + 1, (2, *window.out(spatial), 3))
    total = check("total", image, window, out=rows, dtype=dtype)
    spread = check("spread", rows, window, out=image, dtype=dtype)
    np.testing.assert_allclose((total * rows).sum(), (image * spread).sum(), rtol=1e-4, atol=1e-4)
    largest = check("largest", image, window, out=rows, dtype=dtype)
    seen = plain.bare(window).unfold(image.astype(dtype)).reshape(*rows.shape[:-1], -1, 3)
    np.testing.assert_array_equal(largest, seen.max(-2))


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_first_places_and_scatter(gpu, dtype, drawn, seed):
    window, spatial = drawn
    out, rng = window.out(spatial), np.random.default_rng(seed)
    image = rng.integers(0, 3, (2, *window.padded(spatial), 2)).astype(float)  # many are equal
    y = plain.largest(image, window, None)
    places = check("first_places", image, y, window, out=np.zeros(y.shape, np.int32), dtype=dtype)
    rows = np.moveaxis(rng.standard_normal((3, 2, 2, *out)), 2, -1)  # channels do not lie last in memory
    check("scatter", rows, places, window, out=np.zeros((3, *image.shape)), dtype=dtype)


VOLUMES = Window((2, 3, 2), (2, 1, 3), (2, 2, 1), ((0, 0),) * 3)
SIZE, OUT = (6, 8, 5), (2, 4, 2)
"""A place more than is seen, along the first axis."""


@PRECISIONS
def test_a_third_axis(gpu, dtype):
    """The kernels have three axes, and the layers two: a layer of volumes would need the third."""
    assert VOLUMES.out(SIZE) == OUT
    cols, image = numbers(0, (2, *OUT, *VOLUMES.kernel, 3)), numbers(1, (2, *SIZE, 3)).astype(dtype)
    check("fold", cols, VOLUMES, out=image, dtype=dtype)
    y = plain.largest(image, VOLUMES, None)
    places = check("first_places", image, y, VOLUMES, out=np.zeros(y.shape, np.int32), dtype=dtype)
    assert places.max() > 6
    check("scatter", numbers(2, (2, 2, *OUT, 3)), places, VOLUMES, out=np.zeros((2, 2, *SIZE, 3)), dtype=dtype)


@PRECISIONS
def test_four_axes_take_the_definition(gpu, dtype):
    window = Window((2, 1, 1, 1), (1,) * 4, (1,) * 4, ((0, 0),) * 4)
    cols = numbers(0, (1, 2, 1, 1, 2, *window.kernel, 2)).astype(dtype)
    [there] = moved([cols])
    assert windows_of(there, 3) is device
    assert windows_of(there, 4) is None
    got = gb.asnumpy(window.fold(there, (3, 1, 1, 2)))
    np.testing.assert_allclose(got, window.fold(cols, (3, 1, 1, 2)), rtol=TOLERANCES[dtype])


@PRECISIONS
def test_sigmoid_where_it_could_overflow_and_in_any_layout(gpu, dtype):
    x = np.linspace(-800, 800, 24).reshape(2, 3, 4).astype(dtype)
    for array in (x, np.moveaxis(x, 1, -1), x[:, ::2]):
        [there] = moved([array])
        ledger.clear()
        got = device.sigmoid(there)
        assert ledger.transfers == []
        assert got.dtype == dtype
        got = gb.asnumpy(got)
        np.testing.assert_allclose(got, sigmoid(array), rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
        assert (got >= 0).all()
        assert (got <= 1).all()


TWO = Window((2,), (2,), (1,), ((0, 0),))


def test_nan_is_passed_on(gpu):
    image = np.full((1, 4, 1), np.nan)
    out = np.zeros((1, 2, 1))
    places = check("first_places", image, image[:, :2], TWO, out=out.astype(np.int32), dtype="float64")
    assert places.tolist() == [[[0], [0]]]
    image[0, 1] = image[0, 2] = 1.0
    assert np.isnan(check("largest", image, TWO, out=out, dtype="float64")).all()


def test_an_index_out_of_range_is_caught(double, monkeypatch):
    """What the double's bounds are for: a kernel that reads beside its array."""
    source = device.SOURCES["fold"]
    monkeypatch.setitem(device.SOURCES, "fold", (*source[:2], source[2].replace("+ c]", "+ c + 1]")))
    device._kernel.cache_clear()
    with pytest.raises(IndexError, match="gbackprop_fold"):
        device.fold(double.ones((1, 2, 2, 1)), Window((2,), (1,), (1,), ((0, 0),)), double.ones((1, 3, 1)))
    device._kernel.cache_clear()


@pytest.mark.parametrize(
    ("name", "sound", "wrong"),
    [
        ("fold", "fromh % strideh", "fromh % stridew"),
        ("fold", "d - a * stepd", "d - a"),
        ("scatter", "== k", "<= k"),
        ("scatter", "row % samples", "row / samples"),
        ("first_places", "x[at] < y", "x[at] <= y"),
        ("sigmoid", "x < 0 ? e", "x > 0 ? e"),
    ],
)
def test_a_fault_in_a_kernel_shows(double, monkeypatch, name, sound, wrong):
    """The source that the tests run is the source that a GPU would get."""
    checks = test_sigmoid_where_it_could_overflow_and_in_any_layout if name == "sigmoid" else test_a_third_axis
    device._kernel.cache_clear()
    checks(None, "float64")
    source = device.SOURCES[name]
    assert sound in source[2]
    monkeypatch.setitem(device.SOURCES, name, (*source[:2], source[2].replace(sound, wrong)))
    device._kernel.cache_clear()
    with pytest.raises((AssertionError, IndexError)):
        checks(None, "float64")
    device._kernel.cache_clear()


def test_the_kernels_are_taken_for_floats_on_a_device_alone(double):
    for dtype, taken in ((np.float32, True), (np.complex128, False), (np.int64, False)):
        assert (on_gpu(double.zeros(3, dtype)) is device) == taken
        assert (windows_of(double.zeros(3, dtype), 2) is device) == taken
        assert transforms_of(double.zeros(3, dtype)) is None
    assert on_gpu(np.zeros(3)) is None
