"""The file formats of the image sets: IDX (MNIST and its relatives), and CIFAR's binary version.

All readers count the bytes before they hand an array out, so that a download which broke off is an error
with numbers in it, and not a data set that is a little smaller.
"""

import math
import sys
import zlib
from pathlib import Path

import numpy as np

from gbackprop.experiments.archives import Member

GZIP_START = b"\x1f\x8b"
GZIP_WINDOW = 31  # zlib's code for "a gzip member, window as large as it gets"
IDX_HEADER = 4 + 4 * 255
"""Bytes of the longest header."""

BEYOND = 1024
"""Bytes that are unpacked beyond what a header announces, to say how many are left over: a small file can hold many."""

IDX_UINT8 = 0x0800  # third byte 8: unsigned bytes; the fourth is the number of dimensions
CIFAR_SHAPE = (3, 32, 32)
CIFAR_PIXELS = math.prod(CIFAR_SHAPE)
CIFAR_RECORD = 1 + CIFAR_PIXELS
CIFAR100_RECORD = 2 + CIFAR_PIXELS
CIFAR_CLASSES = 10
CIFAR100_COARSE, CIFAR100_FINE = 20, 100


def read_idx(path: str | Path, dimensions: int | None = None) -> np.ndarray:
    """Read an IDX file of unsigned bytes, compressed by gzip or not.

    Whether a file is compressed is decided by its first two bytes and not by its name, since some programs
    unpack what they download and leave its name alone.
    """
    path = Path(path)
    raw = _read_bytes(path)
    packed = raw.startswith(GZIP_START)
    data, complete = _gunzip(path, raw, IDX_HEADER) if packed else (raw, True)
    header = 4 + 4 * _idx_dimensions(path, data, dimensions, complete)
    if len(data) < header:
        raise _truncated(path, f"{header} bytes of header", len(data), complete)
    shape = [int(size) for size in np.frombuffer(data, ">u4", offset=4, count=header // 4 - 1)]
    expected = header + math.prod(shape)  # Python's integers: a corrupt header must not overflow
    if packed:
        data, complete = _gunzip(path, raw, expected + BEYOND)
    if len(data) < expected or not complete:
        raise _truncated(path, f"{expected} bytes for an array of shape {tuple(shape)}", len(data), complete)
    if len(data) > expected:
        least = "at least " if packed and len(data) == expected + BEYOND else ""
        raise ValueError(
            f"{path}: {least}{len(data) - expected} bytes are left over: expected {expected} bytes for an array of "
            f"shape {tuple(shape)}, got {least}{len(data)}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()


def read_cifar10(path: str | Path | Member) -> tuple[np.ndarray, np.ndarray]:
    """Read one file of CIFAR-10's binary version."""
    images, labels = _read_records(path, (CIFAR_CLASSES,))
    return images, labels[0]


def read_cifar100(path: str | Path | Member) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read one file of CIFAR-100's binary version."""
    images, (coarse, fine) = _read_records(path, (CIFAR100_COARSE, CIFAR100_FINE))
    return images, fine, coarse


def _read_records(path: str | Path | Member, classes: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Images, and one array for each label that goes before them."""
    path = path if isinstance(path, Member) else Path(path)
    raw, size = _read_bytes(path), len(classes) + CIFAR_PIXELS
    records, rest = divmod(len(raw), size)
    if rest:
        other = {CIFAR_RECORD: "CIFAR-10", CIFAR100_RECORD: "CIFAR-100"}
        hint = [f"; is it a file of {name}?" for length, name in other.items() if len(raw) % length == 0]
        raise ValueError(
            f"{path}: truncated: expected records of {size} bytes, got {len(raw)} bytes, which is "
            f"{records} records and {rest} bytes of another{''.join(hint)}"
        )
    table = np.frombuffer(raw, np.uint8).reshape(records, size)
    labels = [table[:, column].astype(np.int64) for column in range(len(classes))]
    for column, count in zip(labels, classes, strict=True):
        check_labels(path, column, count)
    return table[:, len(classes) :].reshape(records, *CIFAR_SHAPE).copy(), labels


def check_labels(path: str | Path | Member, labels: np.ndarray, classes: int) -> None:
    """Refuse labels that name no class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise ValueError(
            f"{path}: label out of range: expected 0 to {classes - 1}, got {labels[wrong[0]]} at index "
            f"{wrong[0]} ({wrong.size} such labels)"
        )


def _read_bytes(path: Path | Member) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    raw = path.read_bytes()
    if not raw:
        raise ValueError(f"{path}: the file is empty (0 bytes)")
    return raw


def _gunzip(path: Path, raw: bytes, most: int) -> tuple[bytes, bool]:
    """Unpack at most so many bytes; return them, and whether the stream was sound as far as that, or to its end.

    zlib itself holds the checksum at the end.
    """
    parts = []
    while raw and most:
        member = zlib.decompressobj(GZIP_WINDOW)
        try:
            parts.append(member.decompress(raw, min(most, sys.maxsize)))
        except zlib.error as error:
            raise ValueError(f"{path}: the gzip stream is corrupt: {error}") from error
        most -= len(parts[-1])
        if most and not member.eof:
            return b"".join(parts), False
        raw = member.unused_data.lstrip(b"\0")  # gzip allows padding by zeros after a member
    return b"".join(parts), True


def _idx_dimensions(path: Path, data: bytes, expected: int | None, complete: bool) -> int:
    """Return the number of dimensions that the magic number announces."""
    if len(data) < 4:
        raise _truncated(path, "4 bytes of magic number", len(data), complete)
    magic = int.from_bytes(data[:4], "big")
    found = magic - IDX_UINT8
    if expected is not None and found != expected:
        hint = "; are the files of images and labels swapped?" if {found, expected} == {1, 3} else ""
        raise ValueError(
            f"{path}: wrong magic number: expected {IDX_UINT8 + expected} ({_content(expected)}), "
            f"got {magic} ({_content(found)}){hint}"
        )
    if not 1 <= found <= 255:
        raise ValueError(
            f"{path}: wrong magic number: expected {IDX_UINT8 + 1} to {IDX_UINT8 + 255} (unsigned bytes in 1 "
            f"to 255 dimensions; {IDX_UINT8 + 3} are images, {IDX_UINT8 + 1} labels), got {magic}"
        )
    return found


def _content(dimensions: int) -> str:
    known = {1: "labels", 3: "images"}
    other = f"{dimensions} dimensions" if 0 < dimensions < 256 else "no IDX file of unsigned bytes"
    return known.get(dimensions, other)


def _truncated(path: Path, expected: str, found: int, complete: bool) -> ValueError:
    where = "" if complete else " before the gzip stream broke off"
    return ValueError(f"{path}: truncated: expected {expected}, got {found}{where}")
