"""The device's kernels against their definitions: the same source, run on the host by the double, or on a GPU."""

import numpy as np
import pytest
from device_ledger import ledger
from drawn_windows import SEEDS, numbers, windows
from hypothesis import HealthCheck, given, settings

import gbackprop as gb
from gbackprop import device_kernels, kernels
from gbackprop.layers.activation import sigmoid

TOLERANCES = {"float64": 1e-12, "float32": 1e-5}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCES)
ONE_DEVICE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(function, *arguments, dtype):
    """A kernel on the device gives what NumPy's definition gives."""
    arguments = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_compiled", lambda *given: None)  # the definition, not Numba's twin of it
        want = function(*arguments)
    moved = [gb.asarray(a, "cuda") if isinstance(a, np.ndarray) else a for a in arguments]
    ledger.clear()
    got = function(*moved)
    assert ledger.transfers == []
    assert got.dtype == want.dtype
    got = gb.asnumpy(got)
    np.testing.assert_allclose(got, want, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    return got


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_fold(gpu, dtype, drawn, seed):
    window, spatial = drawn
    cols = numbers(seed, (2, *window.out(spatial), *window.kernel, 3))
    check(kernels.fold, cols, window.padded(spatial), window.stride, window.dilation, dtype=dtype)


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_total_spread_and_largest(gpu, dtype, drawn, seed):
    window, spatial = drawn
    out, size = window.out(spatial), window.padded(spatial)
    image, rows = numbers(seed, (2, *size, 3)), numbers(seed + 1, (2, *out, 3))
    arguments = window.kernel, window.stride, window.dilation
    total = check(kernels.total, image, *arguments, out, dtype=dtype)
    spread = check(kernels.spread, rows, size, *arguments, dtype=dtype)
    np.testing.assert_allclose((total * rows).sum(), (image * spread).sum(), rtol=1e-4, atol=1e-4)
    largest = check(kernels.largest, image, *arguments, out, dtype=dtype)
    seen = kernels.unfold(image.astype(dtype), *arguments, out)
    np.testing.assert_array_equal(largest, seen.max(tuple(range(1 + len(out), 1 + 2 * len(out)))))


@PRECISIONS
@ONE_DEVICE
@given(drawn=windows(), seed=SEEDS)
def test_first_places_and_scatter(gpu, dtype, drawn, seed):
    window, spatial = drawn
    out, rng = window.out(spatial), np.random.default_rng(seed)
    image = rng.integers(0, 3, (2, *window.padded(spatial), 2)).astype(float)  # many are equal
    arguments = window.kernel, window.stride, window.dilation
    largest = kernels.largest(image, *arguments, out)
    places = check(kernels.first_places, image, largest, *arguments, dtype=dtype)
    rows = np.moveaxis(rng.standard_normal((3, 2, 2, *out)), 2, -1)  # channels do not lie last in memory
    check(kernels.scatter, rows, places, window.padded(spatial), *arguments, dtype=dtype)


@PRECISIONS
def test_a_third_axis(gpu, dtype):
    """The kernels have three axes, and the layers two: a layer of volumes would need the third."""
    kernel, stride, dilation, out = (2, 3, 2), (2, 1, 3), (1, 2, 1), (2, 3, 2)
    size = (5, 8, 5)  # a place more than is seen, along the first axis
    check(kernels.fold, numbers(0, (2, *out, *kernel, 3)), size, stride, dilation, dtype=dtype)
    image = numbers(1, (2, *size, 3)).astype(dtype)
    largest = kernels.largest(image, kernel, stride, dilation, out)
    places = check(kernels.first_places, image, largest, kernel, stride, dilation, dtype=dtype)
    assert places.max() > 6
    check(kernels.scatter, numbers(2, (2, 2, *out, 3)), places, size, kernel, stride, dilation, dtype=dtype)


@PRECISIONS
def test_four_axes_take_the_definition(gpu, dtype):
    cols = numbers(0, (1, 2, 1, 1, 2, 2, 1, 1, 1, 2))
    check(kernels.fold, cols, (3, 1, 1, 2), (1, 1, 1, 1), (1, 1, 1, 1), dtype=dtype)


@PRECISIONS
def test_sigmoid_where_it_could_overflow_and_in_any_layout(gpu, dtype):
    x = np.linspace(-800, 800, 24).reshape(2, 3, 4)
    for array in (x, np.moveaxis(x, 1, -1), x[:, ::2]):
        got = check(sigmoid, array, dtype=dtype)
        assert (got >= 0).all()
        assert (got <= 1).all()


def test_nan_is_passed_on(gpu):
    image = np.full((1, 4, 1), np.nan)
    assert check(kernels.first_places, image, image[:, :2], (2,), (2,), (1,), dtype="float64").tolist() == [[[0], [0]]]
    image[0, 1] = image[0, 2] = 1.0
    assert np.isnan(check(kernels.largest, image, (2,), (2,), (1,), (2,), dtype="float64")).all()


def test_an_index_out_of_range_is_caught(double, monkeypatch):
    """What the double's bounds are for: a kernel that reads beside its array."""
    source = device_kernels.SOURCES["fold"]
    monkeypatch.setitem(device_kernels.SOURCES, "fold", (*source[:2], source[2].replace("+ c]", "+ c + 1]")))
    device_kernels._kernel.cache_clear()
    with pytest.raises(IndexError, match="gbackprop_fold"):
        kernels.fold(gb.asarray(np.ones((1, 2, 2, 1)), "cuda"), (3,), (1,), (1,))


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
    source = device_kernels.SOURCES[name]
    assert sound in source[2]
    monkeypatch.setitem(device_kernels.SOURCES, name, (*source[:2], source[2].replace(sound, wrong)))
    device_kernels._kernel.cache_clear()
    rng = np.random.default_rng(0)
    geometry = (2, 2, 2), (2, 2, 1), (2, 1, 1)
    kernel, stride, dilation = geometry
    out, size = (2, 3, 3), (5, 6, 4)
    image = rng.integers(0, 3, (2, *size, 2)).astype(float)
    places = rng.integers(0, 8, (2, *out, 2)).astype(np.int32)
    calls = {
        "fold": lambda: check(
            kernels.fold, rng.standard_normal((2, *out, *kernel, 2)), size, stride, dilation, dtype="float64"
        ),
        "scatter": lambda: check(
            kernels.scatter, rng.standard_normal((3, 2, *out, 2)), places, size, *geometry, dtype="float64"
        ),
        "first_places": lambda: check(
            kernels.first_places, image, kernels.largest(image, *geometry, out), *geometry, dtype="float64"
        ),
        "sigmoid": lambda: check(sigmoid, image, dtype="float64"),
    }
    with pytest.raises((AssertionError, IndexError)):
        calls[name]()
    device_kernels._kernel.cache_clear()


def test_twins_are_taken_for_floats_on_a_device_alone(double):
    for dtype, taken in ((np.float32, True), (np.complex128, False), (np.int64, False)):
        assert (kernels.device_twins(double.zeros(3, dtype)) is not None) == taken
