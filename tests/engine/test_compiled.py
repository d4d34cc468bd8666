"""The compiled kernels give what their definitions give; every golden cell holds on the plain path too."""

import importlib
from math import prod
from pathlib import Path

import numpy as np
import pytest
from drawn_windows import SEEDS, numbers, windows
from hypothesis import given

from gbackprop import kernels
from gbackprop.testing.golden import check_folder

pytest.importorskip("numba")


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(kernels, "_compiled", lambda *given: None)


def both(call, monkeypatch):
    """What a call gives with the compiled kernels, and without."""
    compiled = call()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_compiled", lambda *given: None)
        return compiled, call()


def test_the_compiled_kernels_are_taken_for_host_floats():
    assert kernels._compiled(np.zeros(1, np.float32)) is not None
    assert kernels._compiled(np.zeros(1, np.complex128)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(drawn=windows(), seed=SEEDS)
def test_fold(dtype, drawn, seed):
    window, spatial = drawn
    out = window.out(spatial)
    cols = numbers(seed, (2, *out, *window.kernel, 3)).astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        compiled, plain = both(lambda: window.fold(cols, spatial), patch)
    assert compiled.dtype == dtype
    np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-5 if dtype == "float32" else 1e-13)


@given(drawn=windows(), seed=SEEDS)
def test_first_places_and_scatter(drawn, seed):
    window, spatial = drawn
    out, rng = window.out(spatial), np.random.default_rng(seed)
    image = rng.integers(0, 3, (2, *window.padded(spatial), 2)).astype(float)  # many are equal
    seen = kernels.unfold(image, window.kernel, window.stride, window.dilation, out)
    flat = seen.reshape(2, *out, prod(window.kernel), 2)
    arguments = window.kernel, window.stride, window.dilation
    with pytest.MonkeyPatch.context() as patch:
        for y in both(lambda: kernels.largest(image, *arguments, out), patch):
            np.testing.assert_array_equal(y, flat.max(-2))
        compiled, plain = both(lambda: kernels.first_places(image, flat.max(-2), *arguments), patch)
        np.testing.assert_array_equal(compiled, flat.argmax(-2))
        np.testing.assert_array_equal(plain, flat.argmax(-2))
        rows = np.moveaxis(rng.standard_normal((3, 2, 2, *out)), 2, -1)  # channels do not lie last in memory
        size = window.padded(spatial)
        compiled, plain = both(lambda: kernels.scatter(rows, plain, size, *arguments), patch)
    np.testing.assert_allclose(compiled, plain, atol=1e-13)
    np.testing.assert_allclose(compiled.sum((2, 3)[: len(out)]), rows.sum((2, 3)[: len(out)]), atol=1e-12)


@pytest.mark.parametrize("order", [(np.nan, 1.0, 2.0), (1.0, np.nan, 2.0), (1.0, 2.0, np.nan)])
def test_the_largest_of_nan_and_numbers_is_nan_for_both(order, monkeypatch):
    image = np.array(order).reshape(1, 3, 1)
    for y in both(lambda: kernels.largest(image, (3,), (1,), (1,), (1,)), monkeypatch):
        assert np.isnan(y.item())


def test_nan_is_passed_on_by_both(monkeypatch):
    image = np.full((1, 2, 1), np.nan)
    for places in both(lambda: kernels.first_places(image, image[:, :1], (2,), (2,), (1,)), monkeypatch):
        assert places.item() == 0


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 1e-4)])
def test_golden_on_the_plain_path(plain, dtype, tolerance):
    report = check_folder(Path(__file__).parents[1] / "golden", tolerance, dtype)
    assert report.passed == report.total == 300


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_without_compiled_kernels_the_plain_ones_are_taken(error, monkeypatch):
    def fails(name):
        raise error("cannot cache function: no locator available")

    monkeypatch.setattr(importlib, "import_module", fails)
    assert kernels._imported.__wrapped__("gbackprop.compiled") is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2)])
def test_outer_products(dtype, groups, order, monkeypatch):
    rng = np.random.default_rng(0)
    g, u = (rng.standard_normal((groups, 4, size)).astype(dtype)[:, ::2] for size in (3, 5))

    def written():
        out = np.zeros([(groups, 2, 3, 5)[axis] for axis in order], dtype).transpose(order)  # each undoes itself
        kernels.outer(g, u, out)
        return out

    for out in both(written, monkeypatch):
        np.testing.assert_array_equal(out, g[..., None] * u[..., None, :])
