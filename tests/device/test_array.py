"""The array module: finite numbers, blocks of rows, layouts, host and device."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gbackprop as gb
from gbackprop import array
from gbackprop.base import memory
from gbackprop.engine import scratch

# ------------------------------------------------------------------------------------------------------- finite numbers

FLOATS = st.sampled_from([np.float32, np.float64])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@given(st.data(), FLOATS, SHAPES)
def test_all_finite_against_a_look_at_each_number(data, dtype, shape):
    x = data.draw(hnp.arrays(dtype, shape, elements=st.floats(width=32 if dtype == np.float32 else 64)))
    assert array.all_finite(x) == bool(np.isfinite(x).all())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_finite_when_the_sum_overflows(dtype):
    x = np.full(9, np.finfo(dtype).max, dtype)
    assert array.all_finite(x)
    assert array.all_finite(-x)
    for value in (np.nan, np.inf, -np.inf):
        x[4] = value
        assert not array.all_finite(x)
    assert not array.all_finite(np.array([np.inf, -np.inf], dtype))


# ------------------------------------------------------------------------------------------------------ blocks, layouts


@given(st.integers(0, 300), st.integers(0, 2**22))
@example(2**21, 1)
@example(300, 2**21)
def test_row_blocks_cover_all_rows_once_and_are_as_large_as_the_bound_allows(rows, row_bytes):
    blocks = list(scratch.row_blocks(rows, row_bytes, np.zeros(1)))
    assert [0, *(block.stop for block in blocks)] == [*(block.start for block in blocks), rows]
    sizes = [block.stop - block.start for block in blocks]
    assert all(size == 1 or size * row_bytes <= scratch._CACHE_BYTES for size in sizes)
    assert all(size > 0 for size in sizes)
    assert all((size + after) * row_bytes > scratch._CACHE_BYTES for size, after in pairwise(sizes))


@pytest.mark.parametrize("lead", [1, 2])
def test_layouts_are_views_and_undo_each_other(lead):
    x = np.random.default_rng(0).standard_normal((2,) * lead + (3, 4, 5))
    last = array.channels_last(x, lead)
    assert last.shape == (2,) * lead + (4, 5, 3)
    assert np.shares_memory(last, x)
    np.testing.assert_array_equal(array.channels_first(last, lead), x)


# ------------------------------------------------------------------------------------------------------ host and device


def test_asarray_and_asnumpy():
    x = np.arange(3.0)
    assert gb.asarray(x) is x
    assert gb.asnumpy(x) is x
    assert gb.asarray([1, 2], dtype="float32").dtype == np.float32
    np.testing.assert_array_equal(gb.asarray(x, "cpu", "float32"), x)
    assert array.like([1, 2], x, np.float64).dtype == np.float64
    assert (array.device_of(x), array.array_module(x)) == ("cpu", np)
    assert [array.is_array(value) for value in (x, [1.0], 1.0, np.float64(1))] == [True, False, False, False]


@pytest.mark.parametrize("device", ["gpu", "CPU", "cuda:x", "cuda:-1", "cuda 0", "cuda:0:1", ""])
def test_unknown_devices(device):
    with pytest.raises(ValueError, match="device: expected 'cpu', 'cuda' or 'cuda:0'"):
        gb.asarray(np.ones(1), device)


def test_available_memory_of_the_host_is_plausible():
    assert memory.available_memory("cpu") > 2**20
