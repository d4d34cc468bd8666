"""No damaged file is read: flipped bits, cut and longer files, arrays that have changed places, in every format."""

from contextlib import contextmanager

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.data.checkpoint import Checkpoint
from gbackprop.experiments import checkpoint as runs

safetensors = pytest.importorskip("safetensors.numpy")
X, Y = np.random.default_rng(0).standard_normal((4, 2)), np.array([0, 1, 0, 1])
LOSS, ASKED, KEY = losses.CrossEntropyLoss(), [q.KFLR()], '{"epochs": 3}'


def network(seed=0):
    return gb.Sequential(layers.Linear(2, 2), rng=seed, dtype="float64")


def result():
    return gb.backward(network(), LOSS, X, Y, q.KFLR())


def accumulated(path):
    gb.accumulate(network(), LOSS, [(X, Y), (X, Y)], *ASKED, rng=0, checkpoint=path, executor="serial")


def sums(path):
    read = Checkpoint(path, 60, network(), LOSS, ASKED, {"outputs": True}, entropy(), False)
    return read.arrays, read.header, read.digests


def entropy():
    return tuple(np.random.default_rng(0).integers(2**32, size=4).tolist())


def run(path):
    rows = [{"epoch": 0, "loss": 0.5}, {"epoch": 1, "loss": 0.25}]
    runs.save(path, KEY, rows, {"weight": X}, {"step": np.array(3)})


FORMATS = {
    "state dict": (lambda path: gb.save(network(), path), lambda path: gb.load(network(1), path).state_dict()),
    "result": (lambda path: gb.save(result(), path), gb.load_result),
    "block": (lambda path: gb.save(result()["kflr"]["0.weight"], path), gb.load_result),
    "checkpoint of accumulate": (accumulated, sums),
    "checkpoint of a run": (run, lambda path: runs.load(path, KEY)),
}
FLIPS = 2000
"""Flipped bits in each format: 10,000 in all."""


@pytest.fixture(params=FORMATS)
def file(request, tmp_path):
    """A file's format, path, content and reader; the content is read first."""
    write, read = FORMATS[request.param]
    path = tmp_path / "file"
    write(path)
    read(path)
    return request.param, path, path.read_bytes(), read


def refused(path, read):
    """Whether a file is refused, by a ValueError that names it; no other error is raised."""
    try:
        read(path)
    except ValueError as error:
        return str(error).startswith(f"{path}: ") or pytest.fail(str(error))
    return False


@contextmanager
def flipped(path, bits):
    """Flip bits of a file for a while: in place, as to write it anew takes far longer."""
    content = np.memmap(path, np.uint8, "r+")
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    content.flush()
    yield
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    content.flush()


@pytest.mark.parametrize("together", [1, 2])
def test_flipped_bits_are_found(file, together):
    """In archives there are bits that mean nothing, dates for instance."""
    name, path, content, read = file
    want, rng = repr(read(path)), np.random.default_rng(together)
    for _ in range(FLIPS if together == 1 else FLIPS // 10):
        bits = rng.choice(8 * len(content), together, replace=False).tolist()
        with flipped(path, bits):
            if not refused(path, read):
                assert "checkpoint" in name, f"bits {bits} of {8 * len(content)}"
                assert repr(read(path)) == want
    assert path.read_bytes() == content
