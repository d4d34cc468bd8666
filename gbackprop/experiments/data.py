"""Image sets for the experiments, all in one form: float32 images in [0, 1] and integer labels.

`load` reads five sets. The digits come with scikit-learn; the files of the others must be there already, for
nothing here uses the network. Where something is missing, the error says what was expected and where.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gbackprop.base.extras import require
from gbackprop.base.names import near_miss
from gbackprop.experiments import class_names
from gbackprop.experiments.formats import (
    CIFAR100_RECORD,
    CIFAR_RECORD,
    Member,
    check_labels,
    read_cifar10,
    read_cifar100,
    read_idx,
    read_members,
)

__all__ = ["NAMES", "Dataset", "load", "read_cifar10", "read_cifar100", "read_idx"]

IDX_FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_TEST = "test_batch.bin"
CIFAR100_FILES = ("train.bin", "test.bin")
ARCHIVES = {"cifar-10": "cifar-10-binary.tar.gz", "cifar-100": "cifar-100-binary.tar.gz"}
UNPACKED = {"cifar-10": "cifar-10-batches-bin", "cifar-100": "cifar-100-binary"}
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Published:
    """The sizes of a complete set, as published."""

    train: int
    test: int
    shape: tuple[int, int, int]  # of one image, (C, H, W)


PUBLISHED = {
    "mnist": Published(60_000, 10_000, (1, 28, 28)),
    "fashion-mnist": Published(60_000, 10_000, (1, 28, 28)),
    "cifar-10": Published(50_000, 10_000, (3, 32, 32)),
    "cifar-100": Published(50_000, 10_000, (3, 32, 32)),
}

LARGEST = {
    "cifar-10": PUBLISHED["cifar-10"].test * CIFAR_RECORD,  # as many as in each of five files to train on
    "cifar-100": PUBLISHED["cifar-100"].train * CIFAR100_RECORD,
}
"""Bytes of the largest file in the published archives."""


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split into those to train on and those held out."""

    name: str
    train_x: np.ndarray  # float32 from 0 to 1, shape (N, C, H, W)
    train_y: np.ndarray  # int64, shape (N,)
    test_x: np.ndarray
    test_y: np.ndarray
    classes: tuple[str, ...]  # the name of each label
    note: str = ""  # on the split, for readers of an accuracy; empty where it is the usual one


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load an image set."""
    if name not in _LOADERS:
        raise ValueError(f"data set: expected one of {', '.join(NAMES)}, got {name!r}{near_miss(name, NAMES)}")
    loader, classes = _LOADERS[name]
    return loader(name, data_dir, classes)


def channel_statistics(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the deviation of each channel of the training images."""
    x = dataset.train_x
    mean = x.mean((0, 2, 3), dtype=np.float64)
    square = np.einsum("nchw,nchw->c", x, x, dtype=np.float64) / (x.size / x.shape[1])
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    if deviation.min() < 1e-6:
        raise ValueError(f"{dataset.name}: expected images that vary in every channel, got deviations {deviation}")
    return mean.astype(np.float32)[:, None, None], deviation.astype(np.float32)[:, None, None]


def _load_digits(name: str, data_dir: str | Path | None, classes: tuple[str, ...]) -> Dataset:
    bundled = require("sklearn.datasets", "the digits").load_digits()
    images = _unit(bundled.images[:, None], 16)
    labels = bundled.target.astype(np.int64)
    held_out = np.zeros(len(labels), bool)
    for label in range(len(classes)):
        held_out[np.flatnonzero(labels == label)[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY]] = True
    return Dataset(name, images[~held_out], labels[~held_out], images[held_out], labels[held_out], classes)


def _load_idx(name: str, data_dir: str | Path | None, classes: tuple[str, ...]) -> Dataset:
    folder = _folder(name, data_dir)
    paths = [folder / f"{file}.gz" if (folder / f"{file}.gz").is_file() else folder / file for file in IDX_FILES]
    missing = [f"{path.name}.gz" for path in paths if not path.is_file()]
    if missing:
        expected = f"expected {', '.join(missing)} (or without .gz)"
        raise FileNotFoundError(f"{folder}: files of {name} are missing: {expected}")
    parts = [_read_pair(images, labels, classes) for images, labels in (paths[:2], paths[2:])]
    (train_x, train_y), (test_x, test_y) = parts
    if train_x.shape[1:] != test_x.shape[1:]:
        raise ValueError(
            f"{paths[2]}: expected images of {train_x.shape[2:]} pixels as in {paths[0].name}, got {test_x.shape[2:]}"
        )
    return Dataset(name, train_x, train_y, test_x, test_y, classes)


def _read_pair(images_path: Path, labels_path: Path, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1).astype(np.int64)
    if len(images) != len(labels) or not images.size:
        raise ValueError(
            f"{labels_path}: expected at least one image in {images_path.name} and as many labels, "
            f"got {len(labels)} labels for images of shape {images.shape}"
        )
    check_labels(labels_path, labels, len(classes))
    return _unit(images[:, None], 255), labels


def _load_cifar10(name: str, data_dir: str | Path | None, classes: tuple[str, ...]) -> Dataset:
    folder, files = _cifar_files(name, data_dir, (*CIFAR_TRAIN, CIFAR_TEST))
    train, note = [files[file] for file in CIFAR_TRAIN if file in files], ""
    if CIFAR_TEST not in files and len(train) > 1:
        files = {**files, CIFAR_TEST: train.pop()}
        note = (
            f"held out is {files[CIFAR_TEST].name}, not trained on, for want of {CIFAR_TEST}: "
            f"this is no CIFAR-10 test accuracy"
        )
    if not train or CIFAR_TEST not in files:
        raise FileNotFoundError(
            f"{folder}: expected {CIFAR_TEST} and at least one of {', '.join(CIFAR_TRAIN)}, or {ARCHIVES[name]}, "
            f"got {', '.join(files) or 'none of them'}"
        )
    images, labels = zip(*map(read_cifar10, train), strict=True)
    test_images, test_y = read_cifar10(files[CIFAR_TEST])
    train_x, test_x = _unit(np.concatenate(images), 255), _unit(test_images, 255)
    return Dataset(name, train_x, np.concatenate(labels), test_x, test_y, classes, note)


def _load_cifar100(name: str, data_dir: str | Path | None, classes: tuple[str, ...]) -> Dataset:
    folder, files = _cifar_files(name, data_dir, CIFAR100_FILES)
    missing = [file for file in CIFAR100_FILES if file not in files]
    if missing:
        raise FileNotFoundError(
            f"{folder}: files of {name} are missing: expected {' and '.join(missing)}, or {ARCHIVES[name]}"
        )
    (train_images, train_y, _), (test_images, test_y, _) = (read_cifar100(files[file]) for file in CIFAR100_FILES)
    return Dataset(name, _unit(train_images, 255), train_y, _unit(test_images, 255), test_y, classes)


def _cifar_files(
    name: str, data_dir: str | Path | None, names: Sequence[str]
) -> tuple[Path, Mapping[str, Path | Member]]:
    """Return the folder, and those of its files that are there; or of the published archive, if none is."""
    folder = _folder(name, data_dir)
    if (folder / UNPACKED[name]).is_dir():
        folder = folder / UNPACKED[name]
    paths = {file: folder / file for file in names if (folder / file).is_file()}
    archive = folder / ARCHIVES[name]
    if not paths and archive.is_file():
        return archive, read_members(archive, names, LARGEST[name])
    return folder, paths


def _folder(name: str, data_dir: str | Path | None) -> Path:
    """Return the folder of the set's files: `data_dir` itself, or the one of the set's name inside."""
    if data_dir is None:
        raise ValueError(f"{name}: data_dir is needed: the folder of its files, or its parent (--data-dir DIR)")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; expected the folder of {name}'s files, or its parent")
    if (folder / name).is_dir():
        return folder / name
    # MNIST and Fashion-MNIST share their file names: only the folder distinguishes them.
    if folder.name in _LOADERS and folder.name != name:
        raise ValueError(f"{folder}: this is the folder of {folder.name}, but {name} was asked for")
    return folder


def _unit(images: np.ndarray, largest: float) -> np.ndarray:
    images = images.astype(np.float32)
    images /= np.float32(largest)  # in place: the largest set takes 600 MB
    return images


_Loader = Callable[[str, str | Path | None, tuple[str, ...]], Dataset]
_LOADERS: dict[str, tuple[_Loader, tuple[str, ...]]] = {
    "digits": (_load_digits, class_names.DIGITS),
    "mnist": (_load_idx, class_names.DIGITS),
    "fashion-mnist": (_load_idx, class_names.FASHION_MNIST),
    "cifar-10": (_load_cifar10, class_names.CIFAR_10),
    "cifar-100": (_load_cifar100, class_names.CIFAR_100),
}
NAMES = tuple(_LOADERS)
