"""The readers of the image sets: what they return, and what they say of broken or missing files."""

import gzip
import io
import re
import sys
import tarfile

import numpy as np
import pytest

from gbackprop.base.extras import MissingExtraError
from gbackprop.experiments import class_names, data

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


def write_cifar(path, rng, count=6, classes=(10,)):
    """One batch file; returns the table of its bytes, a row per record: labels, then pixels."""
    table = rng.integers(0, 256, (count, len(classes) + 3072), np.uint8)
    table[:, : len(classes)] %= np.uint8(classes)
    path.write_bytes(table.tobytes())
    return table


def write_cifar100(path, rng, count=6):
    """The same of CIFAR-100: coarse label, fine label, pixels."""
    return write_cifar(path, rng, count, (20, 100))


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
    "labels": (idx_bytes(np.arange(5)), "expected 2051 (images), got 2049; are the files of images and labels swapped"),
    "short pixels": (IMAGES[:-3], "truncated or too long: expected 40 bytes for an array of shape (2, 3, 4), got 37"),
    "short header": (IMAGES[:10], "truncated: expected 16 bytes of header, got 10"),
    "short magic": (IMAGES[:2], "truncated: expected 4 bytes of magic number, got 2"),
    "left over": (IMAGES + b"abc", "truncated or too long: expected 40 bytes for an array of shape (2, 3, 4), got m"),
    "huge header": (b"\0\0\x08\x03" + b"\xff" * 12, "expected 79228162458924105385300197391 bytes"),
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


@pytest.mark.parametrize("whole", [IMAGES, gzip.compress(IMAGES)], ids=["plain", "packed"])
def test_every_truncation_is_an_error(tmp_path, whole):
    path = tmp_path / "images.gz"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"images.gz: (truncated|the file is empty|wrong magic)"):
            data.read_idx(path)


@pytest.mark.parametrize("members", [1, 3])
def test_no_more_is_unpacked_than_the_header_announces(tmp_path, monkeypatch, members):
    sizes, path, read = [], tmp_path / "images.gz", gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda *asked: (sizes.append(len(got := read(*asked))), got)[1])
    path.write_bytes(gzip.compress(IMAGES) * (members > 1) + gzip.compress(IMAGES + bytes(10**7)) * members)
    with pytest.raises(ValueError, match=r"expected 40 bytes .* got more"):
        data.read_idx(path, dimensions=3)
    assert 0 < sum(sizes) < 2000


@pytest.mark.parametrize("byte", [-8, -4, 0, 12, 25])  # the checksum, the size, the header, what is packed
def test_a_gzip_file_that_was_changed_gives_no_other_array(tmp_path, rng, byte):
    array = rng.integers(0, 256, (9, 4, 6), np.uint8)
    whole, path = bytearray(gzip.compress(idx_bytes(array))), tmp_path / "images.gz"
    whole[byte] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"images\.gz: (truncated or corrupt gzip stream|wrong magic)"):
        data.read_idx(path)


def test_idx_without_expectation_refuses_other_types(tmp_path):
    path = tmp_path / "floats"
    path.write_bytes(b"\0\0\x0d\x03" + IMAGES[4:])
    with pytest.raises(ValueError, match=r"expected 2051 \(images\) or 2049 \(labels\), got 3331"):
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


def test_the_published_sets_have_so_many_images():
    found = {name: (each.train, each.test, each.shape) for name, each in data.PUBLISHED.items()}
    grey, colored = (60_000, 10_000, (1, 28, 28)), (50_000, 10_000, (3, 32, 32))
    assert found == {"mnist": grey, "fashion-mnist": grey, "cifar-10": colored, "cifar-100": colored}


def test_swapped_files_are_told(mnist):
    images, labels = (mnist / f"{TRAIN}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    content = images.read_bytes()
    images.write_bytes(labels.read_bytes())
    labels.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-images.*expected 2051 .*got 2049; .*swapped"):
        data.load("mnist", mnist)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (f"{TEST}-labels-idx1", np.array([0, 9, 10, 3, 255]), r"t10k-labels.*expected 0 to 9, got 10 at index 2"),
        (f"{TRAIN}-labels-idx1", np.zeros(11), r"train-labels.*in train-images.*as many labels, got 11 labels for"),
        (f"{TEST}-images-idx3", np.zeros((5, 4, 7)), r"t10k-images.*\(4, 6\) pixels.*got \(4, 7\)"),
        (f"{TEST}-images-idx3", np.zeros((0, 4, 6)), r"t10k-labels.*at least one image"),
    ],
)
def test_files_that_do_not_go_together(mnist, file, array, message):
    (mnist / f"{file}-ubyte.gz").write_bytes(gzip.compress(idx_bytes(array)))
    with pytest.raises(ValueError, match=message):
        data.load("mnist", mnist)


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


# --- CIFAR ----------------------------------------------------------------------------------------

CIFAR = {
    "cifar-10": (("data_batch_2.bin", "test_batch.bin"), (10,)),
    "cifar-100": (("train.bin", "test.bin"), (20, 100)),
}


def pack(archive, files):
    """A compressed archive of files in a folder, as the published ones are."""
    with tarfile.open(archive, "w:gz") as packed:
        for file in files:
            packed.add(file, f"published/{file.name}")
            file.unlink()


def read(name, path):
    """Images, and the labels in the order of the file."""
    if name == "cifar-10":
        images, labels = data.read_cifar10(path)
        return images, [labels]
    images, fine, coarse = data.read_cifar100(path)
    return images, [coarse, fine]


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_record_is_labels_then_planes(tmp_path, rng, name):
    classes = CIFAR[name][1]
    table = write_cifar(tmp_path / "batch.bin", rng, classes=classes)
    images, labels = read(name, tmp_path / "batch.bin")
    assert images.dtype == np.uint8
    assert images.shape == (6, 3, 32, 32)
    assert {column.dtype.name for column in labels} == {"int64"}
    np.testing.assert_array_equal(np.transpose(labels), table[:, : len(classes)])
    assert images[4, 2, 5, 7] == table[4, len(classes) + 2 * 1024 + 5 * 32 + 7]


@pytest.mark.parametrize(("name", "column"), [("cifar-10", 0), ("cifar-100", 0), ("cifar-100", 1)])
def test_a_cifar_file_that_is_wrong_is_named(tmp_path, rng, name, column):
    path, classes = tmp_path / "batch.bin", CIFAR[name][1]
    table = write_cifar(path, rng, 4, classes)
    path.write_bytes(table.tobytes()[:-100])
    size = 3072 + len(classes)
    with pytest.raises(ValueError, match=rf"batch\.bin: truncated.* {size} bytes, got {4 * size - 100} bytes"):
        read(name, path)
    other = next(each for each in CIFAR if each != name)
    write_cifar(path, rng, 4, CIFAR[other][1])
    with pytest.raises(ValueError, match=r"batch\.bin: .*of another set"):
        read(name, path)
    table[2, column] = classes[column]
    path.write_bytes(table.tobytes())
    expected = rf"batch\.bin.*expected 0 to {classes[column] - 1}, got {classes[column]} at index 2"
    with pytest.raises(ValueError, match=expected):
        read(name, path)


def test_load_cifar_reads_the_batches_that_are_there(tmp_path, rng):
    tables = [write_cifar(tmp_path / f"data_batch_{number}.bin", rng) for number in (2, 4)]
    held_out = write_cifar(tmp_path / "test_batch.bin", rng, count=3)
    got = data.load("cifar-10", tmp_path)
    np.testing.assert_array_equal(got.train_y, np.concatenate([table[:, 0] for table in tables]))
    np.testing.assert_array_equal(got.test_y, held_out[:, 0])
    assert got.train_x.shape == (12, 3, 32, 32)
    assert got.note == ""


def test_without_a_test_batch_the_last_training_batch_is_held_out(tmp_path, rng):
    tables = {number: write_cifar(tmp_path / f"data_batch_{number}.bin", rng) for number in (1, 3, 5)}
    got = data.load("cifar-10", tmp_path)
    np.testing.assert_array_equal(got.train_y, np.concatenate([tables[1][:, 0], tables[3][:, 0]]))
    np.testing.assert_array_equal(np.rint(got.test_x.reshape(6, -1) * 255), tables[5][:, 1:])
    assert "data_batch_5.bin, not trained on" in got.note
    assert "no CIFAR-10 test accuracy" in got.note


@pytest.mark.parametrize(
    ("name", "there", "message"),
    [
        ("cifar-10", ["data_batch_3.bin"], r"expected test_batch\.bin and .*data_batch_1.*got data_batch_3\.bin$"),
        ("cifar-10", ["test_batch.bin"], r"data_batch_1\.bin, .*data_batch_5\.bin, .*got test_batch\.bin$"),
        ("cifar-10", [], r"or cifar-10-binary\.tar\.gz, got none of them"),
        ("cifar-100", ["train.bin"], r"missing: expected test\.bin, or cifar-100-binary\.tar\.gz"),
        ("cifar-100", ["test.bin"], r"missing: expected train\.bin, or cifar-100-binary\.tar\.gz"),
    ],
)
def test_cifar_files_that_are_missing(tmp_path, rng, name, there, message):
    for file in there:
        write_cifar(tmp_path / file, rng, classes=CIFAR[name][1])
    with pytest.raises(FileNotFoundError, match=message):
        data.load(name, tmp_path)


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize("place", ["archive", "its folder", "here"])
def test_published_archive_or_its_files(tmp_path, rng, name, place):
    folder = tmp_path if place == "here" else tmp_path / data.UNPACKED[name]
    folder.mkdir(exist_ok=True)
    names, classes = CIFAR[name]
    tables = [write_cifar(folder / file, rng, classes=classes) for file in names]
    if place == "archive":
        pack(tmp_path / data.ARCHIVES[name], [folder / file for file in names])
        folder.rmdir()
    got = data.load(name, tmp_path)
    assert got.train_x.dtype == np.float32
    assert (got.note, len(got.classes)) == ("", classes[-1])
    for x, y, table in ((got.train_x, got.train_y, tables[0]), (got.test_x, got.test_y, tables[1])):
        np.testing.assert_array_equal(np.rint(x.reshape(6, -1) * 255), table[:, -3072:])
        np.testing.assert_array_equal(y, table[:, len(classes) - 1])


def test_cifar100_names_are_numbered_by_the_alphabet():
    assert list(class_names.CIFAR_100) == sorted(set(class_names.CIFAR_100))
    assert len(class_names.CIFAR_100) == 100


def test_an_archive_that_is_wrong_is_named(tmp_path, rng, monkeypatch):
    archive = tmp_path / "cifar-100-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("readme"), io.BytesIO())
    with pytest.raises(FileNotFoundError, match=r"cifar-100-binary.tar.gz: .*expected train\.bin and test\.bin"):
        data.load("cifar-100", tmp_path)
    for part in ("train", "test"):
        write_cifar(tmp_path / f"{part}.bin", rng)
    pack(archive, [tmp_path / "train.bin", tmp_path / "test.bin"])
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz: train\.bin: truncated"):
        data.load("cifar-100", tmp_path)
    monkeypatch.setitem(data.LARGEST, "cifar-100", 5 * 3073)
    with pytest.raises(ValueError, match=r"tar\.gz: train\.bin: expected at most 15365 bytes, got 18438$"):
        data.load("cifar-100", tmp_path)  # and is not unpacked


def test_the_largest_files_of_archives_are_those_that_are_published():
    assert data.LARGEST == {"cifar-10": 30_730_000, "cifar-100": 153_700_000}


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.999])
def test_truncated_archive_is_named(tmp_path, rng, share):
    paths = [tmp_path / "train.bin", tmp_path / "test.bin"]
    for path in paths:
        write_cifar100(path, rng, 20)
    archive = tmp_path / "cifar-100-binary.tar.gz"
    pack(archive, paths)
    archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)] if share else b"<html>")
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz: truncated or no tar archive"):
        data.load("cifar-100", tmp_path)


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
    [("fashion", "fashion-mnist"), ("MNIST", "mnist"), ("cifar10", "cifar-10"), ("digit", "digits"), ("xyz", None)],
)
def test_unknown_set_names_the_near_miss(name, near):
    hint = rf"; did you mean '{near}'\?" if near else ""
    with pytest.raises(ValueError, match=f"expected one of digits, .*got '{name}'{hint}$"):
        data.load(name)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10", "cifar-100"])
def test_data_dir_is_needed(name):
    with pytest.raises(ValueError, match=f"{name}: data_dir is needed"):
        data.load(name)
