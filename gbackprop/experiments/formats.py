"""The file formats of the image sets: IDX (MNIST and its relatives), and CIFAR's binary version.

All readers count the bytes before they hand an array out, so that a download which broke off is an error with numbers
in it, and not a data set that is a little smaller.
"""

import gzip
import math
import tarfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath

import numpy as np

GZIP_START = b"\x1f\x8b"
IDX_UINT8 = 0x0800  # third byte 8: unsigned bytes; the fourth is the number of dimensions
CONTENT = {1: "labels", 3: "images"}
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)
CIFAR100_RECORD = CIFAR_RECORD + 1

DAMAGED = (tarfile.TarError, EOFError, OSError, zlib.error)
"""Errors of compressed files that broke off or were changed."""


@dataclass(frozen=True)
class Member:
    """A file of an archive, with what of a Path's interface its readers use."""

    archive: Path
    name: str  # without folders
    content: bytes = field(repr=False)

    def read_bytes(self) -> bytes:
        """Return the content."""
        return self.content

    def __str__(self) -> str:
        return f"{self.archive}: {self.name}"


def read_members(archive: Path, names: Collection[str], most: int) -> dict[str, Member]:
    """Read files of at most so many bytes from a compressed tar archive, without unpacking anything to disk."""
    found = {}
    try:
        with tarfile.open(archive) as files:
            for entry in files:
                name = PurePosixPath(entry.name).name
                if name in names and entry.size > most:
                    raise ValueError(f"{archive}: {name}: expected at most {most} bytes, got {entry.size}")
                content = files.extractfile(entry) if entry.isfile() and name in names else None
                if content is not None:
                    found[name] = Member(archive, name, content.read())
    except DAMAGED as error:
        raise ValueError(
            f"{archive}: truncated or no tar archive: expected one of {', '.join(names)}, got: {error}"
        ) from error
    return found


def read_idx(path: str | Path, dimensions: int | None = None) -> np.ndarray:
    """Read an IDX file of unsigned bytes, compressed by gzip or not.

    Its first two bytes decide whether it is compressed and not its name, since some programs unpack what they download
    and leave its name alone.
    """
    path, raw = Path(path), _read_bytes(Path(path))
    start = _unpacked(path, raw, 4 + 4 * 255)
    if len(start) < 4:
        raise ValueError(f"{path}: truncated: expected 4 bytes of magic number, got {len(start)}")
    count = int.from_bytes(start[:4], "big") - IDX_UINT8
    if not 1 <= count <= 255 or dimensions not in (None, count):
        wanted = [dimensions] if dimensions else [3, 1]
        expected = " or ".join(f"{IDX_UINT8 + each} ({CONTENT[each]})" for each in wanted)
        swapped = "; are the files of images and labels swapped?" if count in CONTENT else ""
        raise ValueError(f"{path}: wrong magic number: expected {expected}, got {IDX_UINT8 + count}{swapped}")
    header = 4 + 4 * count
    if len(start) < header:
        raise ValueError(f"{path}: truncated: expected {header} bytes of header, got {len(start)}")
    shape = tuple(int.from_bytes(start[at : at + 4], "big") for at in range(4, header, 4))
    expected_size = header + math.prod(shape)
    data = _unpacked(path, raw, expected_size + 1)
    if len(data) != expected_size:
        found = "more" if len(data) > expected_size else f"{len(data)}"
        raise ValueError(
            f"{path}: truncated or too long: expected {expected_size} bytes for an array of shape {shape}, got {found}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()


def _unpacked(path: Path, raw: bytes, most: int) -> bytes:
    """Return at most so many bytes of a file, unpacked if they are packed: a small file can hold many."""
    if not raw.startswith(GZIP_START):
        return raw[:most]
    data = bytearray()
    try:
        with gzip.open(BytesIO(raw)) as file:
            while len(data) < most and (part := file.read(min(most - len(data), len(raw)))):
                data += part
    except DAMAGED as error:
        raise ValueError(f"{path}: truncated or corrupt gzip stream, after {len(data)} bytes: {error}") from error
    return bytes(data)


def read_cifar10(path: str | Path | Member) -> tuple[np.ndarray, np.ndarray]:
    """Read one file of CIFAR-10's binary version."""
    images, labels = _read_records(path, (10,))
    return images, labels[0]


def read_cifar100(path: str | Path | Member) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read one file of CIFAR-100's binary version."""
    images, (coarse, fine) = _read_records(path, (20, 100))
    return images, fine, coarse


def _read_records(path: str | Path | Member, classes: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Read images, and one array for each label that goes before them."""
    raw = _read_bytes(path if isinstance(path, Member) else Path(path))
    size = len(classes) + math.prod(CIFAR_SHAPE)
    if len(raw) % size:
        raise ValueError(
            f"{path}: truncated, or of another set: expected records of {size} bytes, got {len(raw)} bytes"
        )
    table = np.frombuffer(raw, np.uint8).reshape(-1, size)
    labels = [table[:, column].astype(np.int64) for column in range(len(classes))]
    for column, count in zip(labels, classes, strict=True):
        check_labels(path, column, count)
    return table[:, len(classes) :].reshape(-1, *CIFAR_SHAPE).copy(), labels


def check_labels(path: str | Path | Member, labels: np.ndarray, classes: int) -> None:
    """Refuse labels that name no class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise ValueError(
            f"{path}: label out of range: expected 0 to {classes - 1}, got {labels[wrong[0]]} at index {wrong[0]}"
        )


def _read_bytes(path: Path | Member) -> bytes:
    if isinstance(path, Path) and not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    raw = path.read_bytes()
    if not raw:
        raise ValueError(f"{path}: the file is empty (0 bytes)")
    return raw
