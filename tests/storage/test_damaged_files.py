"""No damaged file is read: flipped bits, cut and longer files, arrays that have changed places, in every format."""

from contextlib import contextmanager

import numpy as np
import pytest
from forged import forge
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.tensors import read_tensors
from gbackprop.curvature.data.checkpoint import Checkpoint
from gbackprop.curvature.laplace import Laplace
from gbackprop.experiments import checkpoint as runs
from gbackprop.interop.files.values import Reader

safetensors = pytest.importorskip("safetensors.numpy")
X, Y = np.random.default_rng(0).standard_normal((4, 2)), np.array([0, 1, 0, 1])
LOSS, ASKED, KEY = losses.CrossEntropyLoss(), [q.KFLR()], '{"epochs": 3}'


def network(seed=0):
    return gb.Sequential(layers.Linear(2, 2), rng=seed, dtype="float64")


NETWORK, OTHER = network(), network(1)


def result():
    return gb.backward(NETWORK, LOSS, X, Y, q.KFLR())


def laplace():
    return Laplace(NETWORK, LOSS, (X, Y), "diag")


def accumulated(path):
    gb.accumulate(NETWORK, LOSS, [(X, Y), (X, Y)], *ASKED, rng=0, checkpoint=path, executor="serial")


ENTROPY = tuple(np.random.default_rng(0).integers(2**32, size=4).tolist())


def sums(path):
    read = Checkpoint(path, 60, NETWORK, LOSS, ASKED, {"outputs": True}, ENTROPY, False)
    return read.arrays, read.header, read.digests


def run(path):
    rows = [{"epoch": 0, "loss": 0.5}, {"epoch": 1, "loss": 0.25}]
    runs.save(path, KEY, rows, {"weight": X}, {"step": np.array(3)})


FORMATS = {
    "state dict": (lambda path: gb.save(NETWORK, path), lambda path: gb.load(OTHER, path).state_dict()),
    "result": (lambda path: gb.save(result(), path), gb.load_result),
    "block": (lambda path: gb.save(result()["kflr"]["0.weight"], path), gb.load_result),
    "Laplace approximation": (
        lambda path: gb.save(laplace(), path),
        lambda path: gb.load_result(path, network=NETWORK),
    ),
    "checkpoint of accumulate": (accumulated, sums),
    "checkpoint of a run": (run, lambda path: runs.load(path, KEY)),
}
FLIPS = {"checkpoint of accumulate": 500, "checkpoint of a run": 1500}
"""Flipped bits in files of some formats, 2,000 in those of others: 10,000 in all. Checkpoints have one reader."""


@pytest.fixture(params=FORMATS)
def file(request, tmp_path):
    """A file's format, path, content and reader; the content is read first."""
    write, read = FORMATS[request.param]
    path = tmp_path / "file"
    write(path)
    read(path)
    return request.param, path, path.read_bytes(), read


def refused(path, read):
    """The message, if a file is refused by a ValueError that names it, or an empty text; no other error is raised."""
    words = ""
    try:
        read(path)
    except ValueError as error:
        words = str(error)
    assert not words or words.startswith(f"{path}: ")
    return words


@contextmanager
def flipped(path, bits):
    """Flip bits of a file for a while: in place, as to write it anew takes far longer."""
    content = np.memmap(path, np.uint8, "r+")
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    yield
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("together", [1, 2])
def test_flipped_bits_are_found(file, together):
    """In archives there are bits that mean nothing, dates for instance."""
    name, path, content, read = file
    want, rng = repr(read(path)), np.random.default_rng(together)
    flips = FLIPS.get(name, 2000)
    for _ in range(flips if together == 1 else flips // 10):
        bits = rng.choice(8 * len(content), together, replace=False).tolist()
        with flipped(path, bits):
            if not refused(path, read):
                assert "checkpoint" in name, f"bits {bits} of {8 * len(content)}"
                assert repr(read(path)) == want
    assert path.read_bytes() == content


def test_other_lengths_are_found(file):
    """An archive may have something before or behind it, which is not read."""
    name, path, content, read = file
    want = repr(read(path))
    for other in (*(content[:n] for n in (0, 7, 8, 9, 50, len(content) - 1)), content + b"\0", content * 2):
        path.write_bytes(other)
        words = refused(path, read)
        assert words or ("checkpoint" in name and repr(read(path)) == want), len(other)
        assert "checkpoint" in name or "not a safetensors file, or damaged" in words


def test_numbers_that_have_changed_places_are_found(file):
    name, path, content, read = file
    if "checkpoint" not in name:
        path.write_bytes(content[:-16] + content[-8:] + content[-16:-8])
        assert refused(path, read)


MARKS = '"gbackprop":', '"gbackprop.digest":', '"gbackprop:'


@pytest.mark.parametrize("marks", [MARKS[:1], MARKS[1:2], MARKS[:2], MARKS[::2], MARKS[1:]], ids=str)
def test_a_file_with_one_mark_of_ours_needs_the_others(marks, tmp_path):
    """No damage to a name makes a state dict that of another program."""
    path = tmp_path / "file"
    gb.save(network(), path)
    content = path.read_bytes()
    for mark in marks:
        content = content.replace(mark.encode(), mark.replace("gback", "gbock").encode())
    path.write_bytes(content)
    assert refused(path, lambda path: gb.load(network(1), path))


def test_a_file_of_another_program_needs_none(tmp_path):
    path = tmp_path / "file"
    safetensors.save_file(network().state_dict(), path, {"format": "pt", "by": "not gbackprop"})
    np.testing.assert_array_equal(gb.load(network(1), path).parameters["0.weight"], network().parameters["0.weight"])


ENTRY = '"x":{"dtype":"F64","shape":[%s],"data_offsets":[0,8]}'
HEADERS = {"twice": f"{ENTRY % 1},{ENTRY % 1}", "no end": "[" * 99, "null": '"x":null'}
HEADERS["huge"] = ENTRY % "0,18446744073709551615"


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_none_is_named(name, tmp_path):
    path = tmp_path / "file"
    header = ("{" + HEADERS[name] + "}").encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert refused(path, gb.load_result)
    assert refused(path, lambda path: gb.load(network(), path))


# ------------------------------------------------------------------------------------------------ trees of anything

TREES = [
    [], {}, {"list": [], "dict": {}}, {"set": []}, {"list": "a"}, {"tuple": {}}, {"list": 3}, {"dict": []},
    {"array": 3}, {"array": "none"}, {"array": ["vector"]}, {"scalar": "vector"}, {"block": {}}, {"block": []},
    {"block": ["Kronecker"]}, {"block": [["Kronecker"], {}]}, {"block": ["Kronecker", []]}, {"block": ["int", {}]},
    {"block": ["Kronecker", {"A": 1, "B": 2}]}, {"block": ["Kronecker", {}]},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_tree_that_says_nothing_known_is_named(tree):
    with pytest.raises(ValueError, match=r"^at: "):
        Reader({"vector": np.zeros(2)}).value("at", tree)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("__class__"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def places(tree, path=()):
    """The paths of all nodes of a tree of JSON."""
    yield path
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(part, (*path, key))


def changed(tree, path, value):
    """A tree with another node at a path."""
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


@pytest.fixture(scope="module", params=["result", "block", "Laplace approximation"])
def described(request, tmp_path_factory):
    """A file, its reader, its arrays and what it says about them."""
    write, read = FORMATS[request.param]
    path = tmp_path_factory.mktemp("trees") / "file"
    write(path)
    return path, read, *read_tensors(path, "")


def saved(value, path):
    gb.save(value, path)
    arrays, tree = read_tensors(path, "")
    return repr((sorted(arrays.items()), tree))


def test_what_is_said_has_all_of_its_parts_and_no_other(described):
    path, read, arrays, tree = described
    names = [name for name in tree if name not in ("version", "kind")]
    for other in ({**tree, "more": 0}, *({n: tree[n] for n in tree if n != name} for name in names)):
        forge(path, arrays, other)
        assert ": expected an object with " in refused(path, read)


@given(data=st.data())
def test_what_is_said_of_arrays_is_checked(described, data):
    """Any part of it is replaced by anything: a ValueError, or else what was read can be saved and read again."""
    path, read, arrays, tree = described
    place = data.draw(st.sampled_from(list(places(tree))))
    others = st.sampled_from([*arrays, "KFAC", "sum", "list", "tuple", "scalar", "EigenKronecker"])
    forge(path, arrays, changed(tree, place, data.draw(ANY | others)))
    if not refused(path, read):
        again = [saved(read(path), path) for _ in range(2)]
        assert again[0] == again[1]
