"""The readers of the image sets: what they return, and what they say of broken or missing files."""

import gzip
import re
import sys
import zlib

import numpy as np
import pytest

from gbackprop.base.extras import MissingExtraError
from gbackprop.experiments import data
from gbackprop.experiments.formats import CIFAR_RECORD

TRAIN, TEST = "train", "t10k"


def idx_bytes(array):
    """The IDX file of an array of bytes."""
    header = np.array([0x0800 + array.ndim, *array.shape], ">u4")
    return header.tobytes() + array.astype(np.uint8).tobytes()


def write_mnist(folder, rng, train=12, test=5, pixels=(4, 6), compress=True):
    """The four files of a small set; returns the arrays written."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, count in ((TRAIN, train), (TEST, test)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, *pixels), np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, count, np.uint8)
    for stem, array in arrays.items():
        content = idx_bytes(array)
        path = folder / (f"{stem}.gz" if compress else stem)
        path.write_bytes(gzip.compress(content) if compress else content)
    return arrays


def write_cifar(path, rng, count=6):
    """One batch file; returns the table of its bytes, a row per record."""
    table = rng.integers(0, 256, (count, CIFAR_RECORD), np.uint8)
    table[:, 0] %= 10
    path.write_bytes(table.tobytes())
    return table


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def mnist(tmp_path, rng):
    write_mnist(tmp_path / "mnist", rng)
    return tmp_path / "mnist"


# --- IDX ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (2, 0, 3), (0,), (2, 3, 1, 2)])
@pytest.mark.parametrize("compress", [True, False])
def test_idx_round_trip(tmp_path, rng, shape, compress):
    array = rng.integers(0, 256, shape, np.uint8)
    content = idx_bytes(array)
    path = tmp_path / "array.gz"  # the name says .gz either way: the content decides
    path.write_bytes(gzip.compress(content) if compress else content)
    got = data.read_idx(path)
    assert got.dtype == np.uint8
    assert got.shape == shape
    assert got.flags.writeable
    np.testing.assert_array_equal(got, array)


def test_idx_header_is_big_endian(tmp_path):
    path = tmp_path / "labels"
    path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 9, 4]))
    np.testing.assert_array_equal(data.read_idx(path, dimensions=1), [9, 4])


def test_idx_of_several_gzip_members(tmp_path, rng):
    array = rng.integers(0, 256, (3, 5), np.uint8)
    content = idx_bytes(array)
    path = tmp_path / "array.gz"
    path.write_bytes(gzip.compress(content[:9]) + gzip.compress(content[9:]) + b"\0\0")
    np.testing.assert_array_equal(data.read_idx(path), array)


IMAGES = idx_bytes(np.arange(24).reshape(2, 3, 4))  # 16 bytes of header and 24 of pixels
BROKEN_IDX = {
    "another type": (b"\0\0\x0d\x03" + IMAGES[4:], "magic number: expected 2051 (images), got 3331"),
    "no idx at all": (b"\x89PNG" + IMAGES[4:], "magic number: expected 2051 (images), got 2303741511"),
    "labels": (
        idx_bytes(np.arange(5)),
        "expected 2051 (images), got 2049 (labels); are the files of images and labels",
    ),
    "short pixels": (IMAGES[:-3], "truncated: expected 40 bytes for an array of shape (2, 3, 4), got 37"),
    "short header": (IMAGES[:10], "truncated: expected 16 bytes of header, got 10"),
    "short magic": (IMAGES[:2], "truncated: expected 4 bytes of magic number, got 2"),
    "left over": (IMAGES + b"abc", "3 bytes are left over: expected 40 bytes"),
    "huge header": (
        b"\0\0\x08\x03" + b"\xff" * 12,
        "truncated: expected 79228162458924105385300197391 bytes",
    ),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("fault", list(BROKEN_IDX))
def test_broken_idx_is_named(tmp_path, fault, compress):
    content, message = BROKEN_IDX[fault]
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(content) if compress and content else content)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        data.read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


def test_every_truncation_of_a_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress(IMAGES)
    path = tmp_path / "images.gz"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"truncated|empty|wrong magic"):
            data.read_idx(path)


def test_truncated_gzip_stream_tells_what_got_through(tmp_path, rng):
    array = rng.integers(0, 256, (50, 4, 6), np.uint8)
    whole = gzip.compress(idx_bytes(array))
    path = tmp_path / "images.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"expected 1216 bytes .*, got \d+ before the gzip stream broke off"):
        data.read_idx(path)


def unpacked(monkeypatch):
    """A list that gets how many bytes each call of the decompressor gave."""
    sizes, plain = [], zlib.decompressobj

    class Counting:
        def __init__(self, *arguments):
            self.inner = plain(*arguments)

        def decompress(self, *arguments):
            got = self.inner.decompress(*arguments)
            sizes.append(len(got))
            return got

        def __getattr__(self, name):
            return getattr(self.inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    return sizes


@pytest.mark.parametrize("members", [1, 3])
def test_no_more_is_unpacked_than_the_header_announces(tmp_path, monkeypatch, members):
    sizes, path = unpacked(monkeypatch), tmp_path / "images.gz"
    path.write_bytes(gzip.compress(IMAGES) * (members > 1) + gzip.compress(IMAGES + bytes(10**7)) * members)
    with pytest.raises(ValueError, match="at least 1024 bytes are left over: expected 40 bytes"):
        data.read_idx(path, dimensions=3)
    assert sum(sizes) < 3000


def test_corrupt_gzip_stream_is_an_error(tmp_path, rng):
    whole = bytearray(gzip.compress(idx_bytes(rng.integers(0, 256, (9, 4, 6), np.uint8))))
    path = tmp_path / "images.gz"
    whole[-8] ^= 0xFF  # the checksum
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="gzip stream is corrupt"):
        data.read_idx(path)


def test_idx_without_expectation_refuses_other_types(tmp_path):
    path = tmp_path / "floats"
    path.write_bytes(b"\0\0\x0d\x03" + IMAGES[4:])
    with pytest.raises(ValueError, match="2051 are images, 2049 labels"):
        data.read_idx(path)


def test_missing_file_is_named(tmp_path):
    for read in (data.read_idx, data.read_cifar10, data.read_cifar100):
        with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
            read(tmp_path / "nowhere")


# --- MNIST and Fashion-MNIST ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("compress", [True, False])
def test_load_idx_set(tmp_path, rng, name, compress):
    arrays = write_mnist(tmp_path / name, rng, compress=compress)
    for data_dir in (tmp_path, tmp_path / name, str(tmp_path)):
        got = data.load(name, data_dir)
        assert got.name == name
        assert len(got.classes) == 10
        assert got.note == ""
        for part, x, y in ((TRAIN, got.train_x, got.train_y), (TEST, got.test_x, got.test_y)):
            images, labels = arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"]
            assert x.dtype == np.float32
            assert x.shape == (len(images), 1, 4, 6)
            assert y.dtype == np.int64
            np.testing.assert_array_equal(np.rint(x[:, 0] * 255), images)
            assert x.max() <= 1
            assert x.max() > 0.9
            np.testing.assert_array_equal(y, labels)


def test_swapped_files_are_told(mnist):
    images, labels = (mnist / f"{TRAIN}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    content = images.read_bytes()
    images.write_bytes(labels.read_bytes())
    labels.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-images.*expected 2051 .*got 2049 .*swapped"):
        data.load("mnist", mnist)


def test_label_out_of_range_is_named(mnist):
    path = mnist / f"{TEST}-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.array([0, 9, 10, 3, 255]))))
    with pytest.raises(
        ValueError, match=r"t10k-labels.*expected 0 to 9, got 10 at index 2 \(2 such labels\)"
    ):
        data.load("mnist", mnist)


def test_counts_that_differ_are_named(mnist):
    path = mnist / f"{TRAIN}-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(11))))
    with pytest.raises(ValueError, match=r"train-labels.*expected 12 labels.*train-images.*got 11"):
        data.load("mnist", mnist)


def test_image_sizes_that_differ_are_named(mnist):
    path = mnist / f"{TEST}-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((5, 4, 7)))))
    with pytest.raises(ValueError, match=r"t10k-images.*\(4, 6\) pixels.*got \(4, 7\)"):
        data.load("mnist", mnist)


def test_no_images_at_all_is_an_error(tmp_path, rng):
    write_mnist(tmp_path, rng, test=0)
    with pytest.raises(ValueError, match=r"t10k-images.*at least one image"):
        data.load("mnist", tmp_path)


def test_missing_files_are_listed(mnist):
    (mnist / f"{TRAIN}-labels-idx1-ubyte.gz").unlink()
    (mnist / f"{TEST}-images-idx3-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        data.load("mnist", mnist)
    message = str(caught.value)
    assert str(mnist) in message
    assert "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz" in message
    assert "train-images" not in message


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such folder; expected the folder of mnist"):
        data.load("mnist", tmp_path / "nowhere")


def test_the_folder_of_another_set_is_refused(mnist):
    with pytest.raises(ValueError, match="this is the folder of mnist, but fashion-mnist was asked for"):
        data.load("fashion-mnist", mnist)


# --- CIFAR-10 -------------------------------------------------------------------------------------


def test_cifar_record_is_label_then_planes(tmp_path, rng):
    table = write_cifar(tmp_path / "batch.bin", rng)
    images, labels = data.read_cifar10(tmp_path / "batch.bin")
    assert images.dtype == np.uint8
    assert images.shape == (6, 3, 32, 32)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, table[:, 0])
    assert images[4, 2, 5, 7] == table[4, 1 + 2 * 1024 + 5 * 32 + 7]


def test_load_cifar_reads_the_batches_that_are_there(tmp_path, rng):
    tables = [write_cifar(tmp_path / f"data_batch_{number}.bin", rng) for number in (2, 4)]
    held_out = write_cifar(tmp_path / "test_batch.bin", rng, count=3)
    got = data.load("cifar-10", tmp_path)
    np.testing.assert_array_equal(got.train_y, np.concatenate([table[:, 0] for table in tables]))
    np.testing.assert_array_equal(got.test_y, held_out[:, 0])
    assert got.train_x.shape == (12, 3, 32, 32)
    assert got.train_x.dtype == np.float32
    assert got.train_x.max() == 1
    assert got.note == ""


def test_without_a_test_batch_the_last_training_batch_is_held_out(tmp_path, rng):
    tables = {number: write_cifar(tmp_path / f"data_batch_{number}.bin", rng) for number in (1, 3, 5)}
    got = data.load("cifar-10", tmp_path)
    np.testing.assert_array_equal(got.train_y, np.concatenate([tables[1][:, 0], tables[3][:, 0]]))
    np.testing.assert_array_equal(np.rint(got.test_x.reshape(6, -1) * 255), tables[5][:, 1:])
    assert "data_batch_5.bin, not trained on" in got.note
    assert "no CIFAR-10 test accuracy" in got.note


def test_one_cifar_batch_alone_is_an_error(tmp_path, rng):
    write_cifar(tmp_path / "data_batch_3.bin", rng)
    with pytest.raises(FileNotFoundError, match=r"expected test_batch\.bin, .*got data_batch_3\.bin alone"):
        data.load("cifar-10", tmp_path)


def test_no_cifar_batch_is_an_error_that_lists_them(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin, .*data_batch_5\.bin"):
        data.load("cifar-10", tmp_path)


def test_truncated_cifar_is_named(tmp_path, rng):
    path = tmp_path / "data_batch_1.bin"
    table = write_cifar(path, rng, count=4)
    path.write_bytes(table.tobytes()[:-100])
    with pytest.raises(
        ValueError, match=r"data_batch_1.*3073 bytes, got 12192 bytes, .* 3 records and 2973 bytes"
    ):
        data.read_cifar10(path)


def test_cifar_label_out_of_range_is_named(tmp_path, rng):
    path = tmp_path / "data_batch_1.bin"
    table = write_cifar(path, rng, count=4)
    table[2, 0] = 77
    path.write_bytes(table.tobytes())
    with pytest.raises(ValueError, match=r"data_batch_1.*expected 0 to 9, got 77 at index 2"):
        data.read_cifar10(path)


# --- digits and names -----------------------------------------------------------------------------


def test_digits_are_split_once_and_for_all():
    datasets = pytest.importorskip("sklearn.datasets")
    got, again = data.load("digits"), data.load("digits")
    assert got.train_x.shape == (1438, 1, 8, 8)
    assert got.test_x.shape == (359, 1, 8, 8)
    assert got.train_x.dtype == np.float32
    assert got.train_y.dtype == np.int64
    assert got.train_x.min() == 0
    assert got.train_x.max() == 1
    np.testing.assert_array_equal(got.test_x, again.test_x)
    counts, held_out = np.bincount(np.r_[got.train_y, got.test_y]), np.bincount(got.test_y)
    np.testing.assert_allclose(held_out / counts, 0.2, atol=0.004)  # stratified
    everything = np.concatenate([got.train_x, got.test_x]).reshape(len(datasets.load_digits().data), -1) * 16
    np.testing.assert_array_equal(np.sort(everything.sum(1)), np.sort(datasets.load_digits().data.sum(1)))


def test_no_digit_is_in_both_parts():
    pytest.importorskip("sklearn.datasets")
    got = data.load("digits")
    train = {image.tobytes() for image in got.train_x}
    assert not any(image.tobytes() in train for image in got.test_x)


def test_digits_without_scikit_learn_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        MissingExtraError, match=r"'sklearn' is not installed; pip install \"gbackprop\[experiments\]\""
    ):
        data.load("digits")


@pytest.mark.parametrize(
    ("name", "near"),
    [("fashion", "fashion-mnist"), ("MNIST", "mnist"), ("cifar10", "cifar-10"), ("digit", "digits")],
)
def test_unknown_set_names_the_near_miss(name, near):
    with pytest.raises(ValueError, match=f"expected one of digits, .*got '{name}'; did you mean '{near}'"):
        data.load(name)


def test_unknown_set_without_a_near_miss():
    with pytest.raises(ValueError, match=r"got 'xyz'$"):
        data.load("xyz")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10", "cifar-100"])
def test_data_dir_is_needed(name):
    with pytest.raises(ValueError, match=f"{name}: data_dir is needed"):
        data.load(name)
