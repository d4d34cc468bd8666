"""Windows: their geometry, what they see, and pooling over them, against loops."""

import inspect
from itertools import product
from math import prod

import numpy as np
import pytest
from drawn_windows import SEEDS, numbers, paddings, windows
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers
from gbackprop.calculus.window import Spatial, Window, pad

# ------------------------------------------------------------------------------------------------------------------ pad


@given(paddings(), SEEDS)
def test_pad_against_a_loop(shape, seed):
    spatial, padding = shape
    x = numbers(seed, (2, *spatial, 3))
    got = pad(x, padding, value=9.0)
    assert got.shape == (2, *[s + b + a for s, (b, a) in zip(spatial, padding, strict=True)], 3)
    for place in np.ndindex(got.shape[1:-1]):
        source = [p - before for p, (before, _) in zip(place, padding, strict=True)]
        inside = all(0 <= s < size for s, size in zip(source, spatial, strict=True))
        np.testing.assert_array_equal(got[:, *place], x[:, *source] if inside else np.full((2, 3), 9.0))


@given(paddings(), SEEDS)
def test_the_adjoint_of_pad_is_the_negative_pad(shape, seed):
    spatial, padding = shape
    x = numbers(seed, (2, *spatial, 3))
    y = numbers(seed + 1, pad(x, padding).shape)
    back = pad(y, tuple((-before, -after) for before, after in padding))
    assert back.shape == x.shape
    np.testing.assert_allclose((pad(x, padding) * y).sum(), (x * back).sum(), atol=1e-10)


# --------------------------------------------------------------------------------------------------------- unfold, fold


def naive_unfold(x, window, out):
    """Return what each window sees, number by number; zero beyond the edge."""
    spatial = x.shape[1:-1]
    seen = np.zeros((x.shape[0], *out, *window.kernel, x.shape[-1]))
    for at, k in product(np.ndindex(*out), np.ndindex(*window.kernel)):
        moves = zip(at, window.stride, k, window.dilation, window.padding, strict=True)
        source = [o * s + j * d - before for o, s, j, d, (before, _) in moves]
        if all(0 <= s < size for s, size in zip(source, spatial, strict=True)):
            seen[:, *at, *k] = x[:, *source]
    return seen


@given(windows(), SEEDS, st.booleans())
def test_unfold_against_a_loop_wherever_the_channels_lie_in_memory(drawn, seed, last):
    window, spatial = drawn
    x = numbers(seed, (2, *spatial, 3)) if last else np.moveaxis(numbers(seed, (2, 3, *spatial)), 1, -1)
    np.testing.assert_array_equal(window.unfold(x), naive_unfold(x, window, window.out(spatial)))


@given(windows(), SEEDS)
def test_fold_is_the_adjoint_of_unfold_at_every_number(drawn, seed):
    window, spatial = drawn
    places = np.eye(int(np.prod(spatial))).reshape(-1, *spatial, 1)
    cols = numbers(seed, (1, *window.unfold(places).shape[1:]))
    each = (window.unfold(places) * cols).reshape(len(places), -1).sum(1)
    np.testing.assert_allclose(window.fold(cols, spatial), each.reshape(1, *spatial, 1), atol=1e-12)


@given(windows(), SEEDS)
def test_offsets_list_the_places_in_the_window_row_by_row(drawn, seed):
    window, spatial = drawn
    out = window.out(spatial)
    x = numbers(seed, (2, *spatial, 1))
    image, places = pad(x, window.fitted(spatial)), window.unfold(x)
    views = [image[:, *where] for where in window.offsets(out)]
    assert len(views) == prod(window.kernel)
    for view, k in zip(views, np.ndindex(*window.kernel), strict=True):
        assert np.shares_memory(view, image)
        np.testing.assert_array_equal(view, places[(slice(None), *[slice(None)] * len(out), *k)])


@given(windows(), SEEDS)
def test_the_padded_image_has_the_image_inside(drawn, seed):
    window, spatial = drawn
    x = numbers(seed, (2, *spatial, 3))
    image = pad(x, window.fitted(spatial))
    assert image.shape[1:-1] == window.padded(spatial)
    np.testing.assert_array_equal(image[:, *window.inside(spatial)], x)


# ----------------------------------------------------------------------------------------------------- how many windows


def naive_count(size, window, axis):
    """Walk along the axis: a window counts if it fits or, in ceil mode, if something of the padded input is left for
    it and it begins on the input or the padding before it."""
    before, after = window.padding[axis]
    start = count = 0
    while True:
        end = start + window.reach[axis]
        left_over = end - window.stride[axis] < size + before + after  # the window before did not reach the end
        begins_inside = start < size + before
        fits = end <= size + before + after
        if not (fits or (window.ceil_mode and left_over and begins_inside)):
            return count
        count, start = count + 1, start + window.stride[axis]


@given(windows())
def test_number_of_windows_against_a_walk(drawn):
    window, spatial = drawn
    assert window.out(spatial) == tuple(naive_count(size, window, axis) for axis, size in enumerate(spatial))


def test_ceil_mode_counts_a_partial_window_only_if_it_begins_inside():
    whole, more = (Window((2,), (2,), (1,), ((1, 1),), ceil_mode=ceil) for ceil in (False, True))
    assert [(whole.out((size,)), more.out((size,))) for size in (3, 4, 5)] == [((2,), (2,)), ((3,), (3,)), ((3,), (3,))]
    assert Window((2,), (3,), (1,), ((0, 0),), ceil_mode=True).out((7,)) == (3,)  # the third begins on the last pixel
    assert Window((2,), (3,), (1,), ((0, 0),), ceil_mode=True).out((6,)) == (2,)  # the third would begin beyond


def test_ceil_mode_takes_an_input_smaller_than_the_window_only_within_a_stride():
    for stride, size, count in ((3, 2, 1), (2, 3, 1), (3, 1, None), (2, 2, None), (1, 3, None)):
        window = Window((4,), (stride,), (1,), ((0, 0),), ceil_mode=True)
        if count is None:
            with pytest.raises(ValueError, match="at least 4"):
                window.out((size,))
        else:
            assert window.out((size,)) == (count,)


@given(windows(ceil=False), st.integers(1, 5))
def test_a_window_that_does_not_fit_is_refused(drawn, less):
    window, _ = drawn
    size = window.reach[0] - sum(window.padding[0]) - less
    with pytest.raises(ValueError, match=f"at least {window.reach[0]} along axis -{len(window.kernel)}, got {size}"):
        window.out((size,) * len(window.kernel))


def naive_pool(layer, x, counted):
    """For each window of ``[N, C, H, W]``: the numbers that it sees on the image, and how many places it counts."""
    window, spatial = layer.window, x.shape[2:]
    for at in np.ndindex(*window.out(spatial)):
        seen, count = [], 0
        for k in np.ndindex(*window.kernel):
            moves = zip(at, window.stride, k, window.dilation, window.padding, strict=True)
            place = [o * s + j * d - before for o, s, j, d, (before, _) in moves]
            inside = all(0 <= p < size for p, size in zip(place, spatial, strict=True))
            seen += [x[:, :, *place]] if inside else []
            ends = [size + after for size, (_, after) in zip(spatial, window.padding, strict=True)]
            count += inside or (counted and all(p < end for p, end in zip(place, ends, strict=True)))
        yield at, np.array(seen), count


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(PAIRS, PAIRS, st.integers(0, 1), st.booleans(), st.booleans(), st.sampled_from([None, 5]), SEEDS)
def test_average_pooling_against_a_loop(kernel, stride, padding, ceil_mode, counted, divisor, seed):
    margin = tuple(min(padding, k // 2) for k in kernel)
    pool = layers.AvgPool2d(kernel, stride, margin, ceil_mode, count_include_pad=counted, divisor_override=divisor)
    x = numbers(seed, (2, 3, 5, 4))
    y = pool.forward(x)[0]
    for at, seen, count in naive_pool(pool, x, counted):
        np.testing.assert_allclose(y[:, :, *at], seen.sum(0) / (divisor or count), atol=1e-12)


@given(PAIRS, PAIRS, PAIRS, st.integers(0, 1), st.booleans(), SEEDS)
def test_max_pooling_against_a_loop(kernel, stride, dilation, padding, ceil_mode, seed):
    pool = layers.MaxPool2d(kernel, stride, tuple(min(padding, k // 2) for k in kernel), dilation, ceil_mode)
    x = numbers(seed, (2, 3, 8, 7))
    y = pool.forward(x)[0]
    for at, seen, _ in naive_pool(pool, x, counted=False):
        np.testing.assert_array_equal(y[:, :, *at], seen.max(0))


def test_windows_see_an_image_that_is_narrower_than_they_are():
    x = np.array([[[3.0, 5.0]]])
    np.testing.assert_array_equal(gb.Sequential(layers.MaxPool1d(2, 1, 1, 2))(x), [[[5, 3]]])  # x₋₁ and x₁, x₀ and x₂
    with pytest.raises(ValueError, match="expected an image of which every window sees something"):
        layers.MaxPool1d(2, 1, 1, 3).output_shape((1, 2))  # x₋₁ and x₂


def test_a_dilated_window_sees_an_image_by_its_last_place_alone():
    x = np.array([[[3.0, 5.0, 4.0]]])
    np.testing.assert_array_equal(layers.MaxPool1d(2, 1, 1, 3).forward(x)[0], [[[4, 3]]])  # x₋₁ and x₂, x₀ and x₃


def test_of_equal_maxima_the_first_takes_the_derivative():
    pool = layers.MaxPool2d(2, stride=1)
    saved = pool.forward(np.ones((1, 1, 3, 3)))[1]
    back = pool.mjp(saved, np.array([[[[[1.0, 2.0], [3.0, 4.0]]]]]))
    np.testing.assert_array_equal(back[0, 0, 0], [[1, 2, 0], [3, 4, 0], [0, 0, 0]])


def test_same_padding_puts_the_odd_zero_after():
    conv = gb.Sequential(layers.Conv2d(1, 1, (2, 4), padding="same", bias=False), dtype="float64")
    conv.load_state_dict({"0.weight": np.array([[[[1.0, 1, 1, 1], [0, 0, 0, 10]]]])})
    x = np.array([[[[1.0, 2, 4], [100, 200, 300]]]])
    np.testing.assert_array_equal(conv(x)[0, 0], [[3007, 7, 6], [600, 600, 500]])


@pytest.mark.parametrize(("name", "words"), [
    ("Conv1d", "stride, dilation : int or (int,)\n"), ("MaxPool3d", "padding : int or (int, int, int)\n"),
    ("ReflectionPad2d", "padding : int or (left, right, top, bottom)"), ("BatchNorm2d", "Is added to the variance."),
])  # fmt: skip
def test_the_docstring_of_a_layer_over_some_axes_has_the_parameters_of_its_family(name, words):
    lines = inspect.getdoc(getattr(layers, name)).split("\n")
    assert lines[1] == ""
    assert words in "\n".join(lines)


WRITTEN_OUT = {1: ("(int,)", "(left, right)"), 2: ("(int, int)", "(left, right, top, bottom)"),
               3: ("(int, int, int)", "(left, right, top, bottom, front, back)")}  # fmt: skip


def test_docstrings_of_layers_over_some_axes_write_out_what_there_is_of_each_axis():
    kinds = [kind for kind in vars(layers).values() if isinstance(kind, type) and issubclass(kind, Spatial)]
    assert len(kinds) > 30
    for kind in kinds:
        for short, words in zip(("(int, …)", "(left, …)"), WRITTEN_OUT[kind.dims], strict=True):
            assert kind.__doc__.count(words) == kind.__bases__[0].__doc__.count(short), kind
        assert "…)" not in kind.__doc__


@pytest.mark.parametrize("three", [3, np.int64(3)], ids=["int", "int64"])
def test_a_number_is_one_for_each_axis(three):
    with pytest.raises(ValueError, match=r"kernel_size: expected an integer of at least 1, got array\(3\)"):
        layers.Conv2d(1, 1, np.array(3))
    assert layers.Conv2d(1, 1, three, padding=three).parameter_shapes()["weight"] == (1, 1, 3, 3)
    assert layers.Conv2d(1, 1, [three, 2]).parameter_shapes()["weight"] == (1, 1, 3, 2)
