"""Image sets for the experiments, all in one form: float32 images in [0, 1] and integer labels.

`load` knows four sets. The digits come with scikit-learn; the files of the others must be there already, for
nothing here uses the network. Where something is missing, the error says what was expected and where.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gbackprop.experiments.extras import require
from gbackprop.experiments.formats import check_labels, read_cifar10, read_idx

__all__ = ["NAMES", "Dataset", "load", "read_cifar10", "read_idx"]

DIGITS = tuple("0123456789")
FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_TEST = "test_batch.bin"
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split into those to train on and those held out.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    train_x, test_x : ndarray, shape (N, C, H, W), float32
        Images, from 0 to 1.
    train_y, test_y : ndarray, shape (N,), int64
        Labels.
    classes : tuple of str
        The name of each label.
    note : str
        What a reader of an accuracy must know about the split; empty where it is the usual one.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: tuple[str, ...]
    note: str = ""


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load an image set.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "cifar-10"}
        The set. The digits are those that scikit-learn bundles.
    data_dir : str or Path, optional
        The folder of the set's files, or the folder that holds a folder of the set's name. Not looked at for
        the digits.

    Returns
    -------
    Dataset
        The set.

    Raises
    ------
    ValueError
        If there is no such set, `data_dir` is missing, or a file is not what it should be.
    FileNotFoundError
        If the folder or a file is missing; the message says what was expected where.
    MissingExtraError
        If the digits are asked for and scikit-learn is not installed.

    Notes
    -----
    The digits are split without a random number: of each class, in the order of the bundled file, the third,
    the eighth and so on are held out, which is 20 %, stratified, and the same everywhere.

    CIFAR-10 is read from whichever training batches are there. If its test batch is missing, the last
    training batch is held out instead, and `Dataset.note` says so.
    """
    if name not in _LOADERS:
        near = difflib.get_close_matches(str(name).lower(), NAMES, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"data set: expected one of {', '.join(NAMES)}, got {name!r}{hint}")
    loader, classes = _LOADERS[name]
    return loader(name, data_dir, classes)


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
    paths = _find_all(name, folder, IDX_FILES)
    parts = [_read_pair(images, labels, classes) for images, labels in (paths[:2], paths[2:])]
    (train_x, train_y), (test_x, test_y) = parts
    if train_x.shape[1:] != test_x.shape[1:]:
        raise ValueError(
            f"{paths[2]}: expected images of {train_x.shape[2:]} pixels as in {paths[0].name}, "
            f"got {test_x.shape[2:]}"
        )
    return Dataset(name, train_x, train_y, test_x, test_y, classes)


def _read_pair(images_path: Path, labels_path: Path, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1).astype(np.int64)
    if len(images) != len(labels):
        raise ValueError(
            f"{labels_path}: expected {len(images)} labels, one for each image of {images_path.name}, "
            f"got {len(labels)}"
        )
    if not images.size:
        raise ValueError(f"{images_path}: expected at least one image, got an array of shape {images.shape}")
    check_labels(labels_path, labels, len(classes))
    return _unit(images[:, None], 255), labels


def _load_cifar(name: str, data_dir: str | Path | None, classes: tuple[str, ...]) -> Dataset:
    folder = _folder(name, data_dir)
    train = [folder / file for file in CIFAR_TRAIN if (folder / file).is_file()]
    test = folder / CIFAR_TEST
    note = ""
    if not train:
        raise FileNotFoundError(
            f"{folder}: no file of {name} there: expected at least one of {', '.join(CIFAR_TRAIN)}"
        )
    if not test.is_file():
        if len(train) == 1:
            raise FileNotFoundError(
                f"{folder}: nothing to hold out: expected {CIFAR_TEST}, or a second one of "
                f"{', '.join(CIFAR_TRAIN)}, got {train[0].name} alone"
            )
        test = train.pop()
        note = (
            f"held out is {test.name}, not trained on, for want of {CIFAR_TEST}: "
            f"this is no CIFAR-10 test accuracy"
        )
    train_x, train_y = _read_batches(train)
    test_x, test_y = _read_batches([test])
    return Dataset(name, train_x, train_y, test_x, test_y, classes, note)


def _read_batches(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    batches = [read_cifar10(path) for path in paths]
    images, labels = zip(*batches, strict=True)
    return _unit(np.concatenate(images), 255), np.concatenate(labels)


def _folder(name: str, data_dir: str | Path | None) -> Path:
    """The folder of the set's files: `data_dir` itself, or the one of the set's name inside."""
    if data_dir is None:
        raise ValueError(
            f"{name}: data_dir is needed: the folder of its files, or its parent (--data-dir DIR)"
        )
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; expected the folder of {name}'s files, or its parent"
        )
    if (folder / name).is_dir():
        return folder / name
    # MNIST and Fashion-MNIST share their file names: only the folder tells one from the other.
    if folder.name in _LOADERS and folder.name != name:
        raise ValueError(f"{folder}: this is the folder of {folder.name}, but {name} was asked for")
    return folder


def _find_all(name: str, folder: Path, stems: Sequence[str]) -> list[Path]:
    """For each stem the compressed file, else the plain one."""
    found: list[Path | None] = []
    for stem in stems:
        candidates = (folder / f"{stem}.gz", folder / stem)
        found.append(next((path for path in candidates if path.is_file()), None))
    missing = [stem for stem, path in zip(stems, found, strict=True) if path is None]
    if missing:
        expected = ", ".join(f"{stem}.gz" for stem in missing)
        raise FileNotFoundError(
            f"{folder}: files of {name} are missing: expected {expected} (or without .gz)"
        )
    return [path for path in found if path is not None]


def _unit(images: np.ndarray, largest: float) -> np.ndarray:
    return images.astype(np.float32) / np.float32(largest)


_Loader = Callable[[str, str | Path | None, tuple[str, ...]], Dataset]
_LOADERS: dict[str, tuple[_Loader, tuple[str, ...]]] = {
    "digits": (_load_digits, DIGITS),
    "mnist": (_load_idx, DIGITS),
    "fashion-mnist": (_load_idx, FASHION),
    "cifar-10": (_load_cifar, CIFAR),
}
NAMES = tuple(_LOADERS)
