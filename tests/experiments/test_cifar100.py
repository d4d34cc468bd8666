"""The reader of CIFAR-100, and both CIFARs in their published archives."""

import io
import tarfile

import numpy as np
import pytest
from test_data import write_cifar

from gbackprop.experiments import class_names, data
from gbackprop.experiments.formats import CIFAR100_RECORD


def write_cifar100(path, rng, count=6):
    """The same of CIFAR-100: coarse label, fine label, pixels."""
    table = rng.integers(0, 256, (count, CIFAR100_RECORD), np.uint8)
    table[:, 0] %= 20
    table[:, 1] %= 100
    path.write_bytes(table.tobytes())
    return table


def pack(archive, files):
    """A compressed archive of files in a folder, as the published ones are."""
    with tarfile.open(archive, "w:gz") as packed:
        for file in files:
            packed.add(file, f"published/{file.name}")
            file.unlink()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_cifar100_record_is_coarse_label_fine_label_then_planes(tmp_path, rng):
    table = write_cifar100(tmp_path / "train.bin", rng)
    images, fine, coarse = data.read_cifar100(tmp_path / "train.bin")
    assert images.dtype == np.uint8
    assert images.shape == (6, 3, 32, 32)
    assert fine.dtype == np.int64
    np.testing.assert_array_equal(coarse, table[:, 0])
    np.testing.assert_array_equal(fine, table[:, 1])
    assert images[4, 2, 5, 7] == table[4, 2 + 2 * 1024 + 5 * 32 + 7]


def test_load_cifar100(tmp_path, rng):
    train, test = (write_cifar100(tmp_path / f"{part}.bin", rng, count) for part, count in (("train", 7), ("test", 4)))
    got = data.load("cifar-100", tmp_path)
    np.testing.assert_array_equal(got.train_y, train[:, 1])
    np.testing.assert_array_equal(got.test_y, test[:, 1])
    np.testing.assert_array_equal(np.rint(got.test_x.reshape(4, -1) * 255), test[:, 2:])
    assert got.train_x.dtype == np.float32
    assert got.note == ""
    assert (len(got.classes), got.classes[0], got.classes[99]) == (100, "apple", "worm")


def test_cifar100_names_are_numbered_by_the_alphabet():
    assert list(class_names.CIFAR_100) == sorted(set(class_names.CIFAR_100))


@pytest.mark.parametrize("part", ["train.bin", "test.bin"])
def test_missing_cifar100_file_is_named(tmp_path, rng, part):
    for file in {"train.bin", "test.bin"} - {part}:
        write_cifar100(tmp_path / file, rng)
    with pytest.raises(FileNotFoundError, match=rf"missing: expected {part}, or cifar-100-binary\.tar\.gz"):
        data.load("cifar-100", tmp_path)


def test_truncated_cifar100_is_named(tmp_path, rng):
    path = tmp_path / "train.bin"
    path.write_bytes(write_cifar100(path, rng, 4).tobytes()[:-100])
    with pytest.raises(ValueError, match=r"train\.bin.*3074 bytes, got 12196 bytes, .* 3 records and 2974 bytes"):
        data.read_cifar100(path)


def test_files_of_the_other_cifar_are_told(tmp_path, rng):
    ten, hundred = tmp_path / "ten.bin", tmp_path / "hundred.bin"
    write_cifar(ten, rng)
    write_cifar100(hundred, rng)
    with pytest.raises(ValueError, match=r"ten\.bin.*is it a file of CIFAR-10\?"):
        data.read_cifar100(ten)
    with pytest.raises(ValueError, match=r"hundred\.bin.*is it a file of CIFAR-100\?"):
        data.read_cifar10(hundred)


@pytest.mark.parametrize(("column", "message"), [(0, "expected 0 to 19, got 20"), (1, "expected 0 to 99, got 100")])
def test_cifar100_label_out_of_range_is_named(tmp_path, rng, column, message):
    path = tmp_path / "train.bin"
    table = write_cifar100(path, rng)
    table[3, column] = 20 if column == 0 else 100
    path.write_bytes(table.tobytes())
    with pytest.raises(ValueError, match=rf"train\.bin.*{message} at index 3"):
        data.read_cifar100(path)


@pytest.mark.parametrize("name", ["cifar-10", "cifar-100"])
@pytest.mark.parametrize("packed", [True, False])
def test_published_archive_or_its_folder(tmp_path, rng, name, packed):
    folder = tmp_path / data.UNPACKED[name]
    folder.mkdir()
    names, write = (
        (("data_batch_2.bin", "test_batch.bin"), write_cifar) if name == "cifar-10"
        else (("train.bin", "test.bin"), write_cifar100)
    )
    tables = [write(folder / file, rng) for file in names]
    if packed:
        pack(tmp_path / data.ARCHIVES[name], [folder / file for file in names])
        folder.rmdir()
    got = data.load(name, tmp_path)
    pixels = [table[:, -3072:] for table in tables]
    np.testing.assert_array_equal(np.rint(got.train_x.reshape(6, -1) * 255), pixels[0])
    np.testing.assert_array_equal(np.rint(got.test_x.reshape(6, -1) * 255), pixels[1])
    np.testing.assert_array_equal(got.test_y, tables[1][:, len(tables[1][0]) - 3073])


def test_file_of_an_archive_that_is_wrong_is_named(tmp_path, rng):
    paths = [tmp_path / "train.bin", tmp_path / "test.bin"]
    for path in paths:
        write_cifar(path, rng)
    pack(tmp_path / "cifar-100-binary.tar.gz", paths)
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz: train\.bin: truncated.*CIFAR-10\?"):
        data.load("cifar-100", tmp_path)


def test_file_of_an_archive_that_is_too_large_is_not_unpacked(tmp_path, rng, monkeypatch):
    monkeypatch.setitem(data.LARGEST, "cifar-100", 5 * CIFAR100_RECORD)
    write_cifar100(tmp_path / "train.bin", rng)
    pack(tmp_path / "cifar-100-binary.tar.gz", [tmp_path / "train.bin"])
    with pytest.raises(ValueError, match=r"tar\.gz: train\.bin: expected at most 15370 bytes, got 18444$"):
        data.load("cifar-100", tmp_path)


def test_archive_without_the_files(tmp_path):
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("readme"), io.BytesIO())
    with pytest.raises(FileNotFoundError, match=r"cifar-100-binary.tar.gz: .*expected train\.bin and test\.bin"):
        data.load("cifar-100", tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated_archive_is_named(tmp_path, rng, share):
    paths = [tmp_path / "train.bin", tmp_path / "test.bin"]
    for path in paths:
        write_cifar100(path, rng, 20)
    archive = tmp_path / "cifar-100-binary.tar.gz"
    pack(archive, paths)
    archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz: truncated or no tar archive"):
        data.load("cifar-100", tmp_path)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"])
def test_archive_that_is_none_is_named(tmp_path, content):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz: truncated or no tar archive"):
        data.load("cifar-10", tmp_path)
