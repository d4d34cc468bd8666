"""Random changes of images: each against plain loops over one image at a time, and against Pillow's enhancers."""

import numpy as np
import pytest

from gbackprop.experiments import augmentation
from gbackprop.experiments.augmentation import augment, brightness, contrast, crop, mirror, saturation


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def pictures(rng, count=6, shape=(3, 5, 7)):
    return rng.random((count, *shape)).astype("float32")


def clipped(value):
    return min(max(value, 0.0), 1.0)


def grey(image, i, j):
    return 0.299 * float(image[0, i, j]) + 0.587 * float(image[1, i, j]) + 0.114 * float(image[2, i, j])


def test_crop_moves_by_up_to_two_pixels(rng):
    x = pictures(rng, 25)
    rows, columns = np.divmod(np.arange(25), 5)
    got = crop(x, rows, columns)
    assert got.dtype == np.float32
    for n, c, i, j in np.ndindex(x.shape):
        source = i + rows[n] - 2, j + columns[n] - 2
        inside = 0 <= source[0] < 5 and 0 <= source[1] < 7
        assert got[n, c, i, j] == (x[n, c, *source] if inside else 0)
    np.testing.assert_array_equal(got[12], x[12])  # the middle


def test_mirror_swaps_left_and_right(rng):
    x, chosen = pictures(rng), np.array([True, False, False, True, True, False])
    got = mirror(x, chosen)
    for n, c, i, j in np.ndindex(x.shape):
        assert got[n, c, i, j] == x[n, c, i, 6 - j if chosen[n] else j]


def none(image, i, j):
    return 0.0


def mean_grey(image, i, j):
    return sum(grey(image, *pixel) for pixel in np.ndindex(5, 7)) / 35


@pytest.mark.parametrize(
    ("change", "dull", "edge"), [(brightness, none, 1), (saturation, grey, 0), (contrast, mean_grey, 0)]
)
def test_colours_blend_with_something_duller(rng, change, dull, edge):
    x, factor = pictures(rng), rng.uniform(0.2, 1.8, 6)
    want = np.empty(x.shape)
    for n, c, i, j in np.ndindex(x.shape):
        want[n, c, i, j] = clipped(factor[n] * float(x[n, c, i, j]) + (1 - factor[n]) * dull(x[n], i, j))
    np.testing.assert_allclose(change(x, factor), want, atol=1e-6)
    assert edge in (want.min(), want.max())  # something was clipped
    np.testing.assert_array_equal(change(x, np.ones(6)), x)


@pytest.mark.parametrize(
    ("change", "enhancer"), [(brightness, "Brightness"), (saturation, "Color"), (contrast, "Contrast")]
)
def test_colours_change_as_in_pillow(rng, change, enhancer):
    """torchvision hands images to Pillow, which works in whole grey levels."""
    enhance = pytest.importorskip("PIL.ImageEnhance")
    from PIL import Image

    levels = rng.integers(0, 256, (8, 3, 9, 9), np.uint8)
    factor = rng.uniform(0.2, 1.8, 8)
    got = change((levels / 255).astype("float32"), factor)
    for image, f, result in zip(levels, factor, got, strict=True):
        want = getattr(enhance, enhancer)(Image.fromarray(image.transpose(1, 2, 0))).enhance(f)
        np.testing.assert_allclose(255 * result, np.asarray(want).transpose(2, 0, 1), atol=2)


def test_augment_keeps_type_range_and_input_and_is_a_function_of_the_rng(rng):
    x = pictures(rng, 64, (3, 32, 32))
    before = x.copy()
    got, again, other = (augment(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(got, again)
    assert got.dtype == np.float32
    assert got.shape == x.shape
    assert got.min() >= 0
    assert got.max() <= 1
    changed = np.any(got != other, axis=(1, 2, 3))
    assert changed.all()


def test_augment_draws_for_each_image_alone_and_over_the_whole_range(rng, monkeypatch):
    drawn = {}

    def spy(name):
        function = getattr(augmentation, name)

        def noting(x, *choices):
            drawn[name] = choices
            return function(x, *choices)

        monkeypatch.setattr(augmentation, name, noting)

    names = ("crop", "mirror", "brightness", "saturation", "contrast")
    for name in names:
        spy(name)
    augmentation.augment(np.zeros((20_000, 3, 2, 2), "float32"), rng)
    assert tuple(drawn) == names  # in this order
    for corner in drawn["crop"]:
        np.testing.assert_allclose(np.bincount(corner) / 20_000, 0.2, atol=0.02)
    assert abs(drawn["mirror"][0].mean() - 0.5) < 0.05
    ranges = {"brightness": (1 - 63 / 255, 1 + 63 / 255), "saturation": (0.5, 1.5), "contrast": (0.2, 1.8)}
    for name, (least, most) in ranges.items():
        (factor,) = drawn[name]
        near = (most - least) / 1000
        assert least <= factor.min() < least + near
        assert most - near < factor.max() < most
        assert abs(factor.mean() - 1) < 0.03
    choices = np.stack([choice.astype(float) for parts in drawn.values() for choice in parts])
    assert np.abs(np.corrcoef(choices) - np.eye(6)).max() < 0.1
