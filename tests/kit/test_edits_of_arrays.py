"""Edits of arrays: the words of each say what it does to a matrix, and its cost when it is tried."""

import numpy as np
import pytest

from gbackprop.testing.diagnosis.arguments import ARRAYS
from gbackprop.testing.diagnosis.arrays import operations
from gbackprop.testing.diagnosis.care import STATISTICS
from gbackprop.testing.diagnosis.numbers import recognized

MATRIX = np.array([[1.0, -2, 3, 4], [4, 6, 7, 8]])
BLOCKS = "axis 1, 2 blocks of 2,"
EDITED = {
    "squared": "1 4 9 16 16 36 49 64", "its absolute value": "1 2 3 4 4 6 7 8", "its sign alone": "1 -1 1 1 1 1 1 1",
    "1 minus it": "0 3 -2 -3 -3 -5 -6 -7", "its positive part": "1 0 3 4 4 6 7 8",
    "its negative part": "0 -2 0 0 0 0 0 0", "its square with its sign": "1 -4 9 16 16 36 49 64",
    "clipped to ±1": "1 -1 1 1 1 1 1 1", "clipped to ±2": "1 -2 2 2 2 2 2 2", "clipped to ±6": "1 -2 3 4 4 6 6 6",
    "clipped to ±0.5": "0.5 -0.5 0.5 0.5 0.5 0.5 0.5 0.5",
    "its reciprocal": "1 -0.5 0.33333333 0.25 0.25 0.16666667 0.14285714 0.125",
    "the square root of its absolute value": "1 1.41421356 1.73205081 2 2 2.44948974 2.64575131 2.82842712",
    "its square root with its sign": "1 -1.41421356 1.73205081 2 2 2.44948974 2.64575131 2.82842712",
    "axis 0 reversed": "4 6 7 8 1 -2 3 4", "axis 1 reversed": "4 3 -2 1 8 7 6 4",
    "axis 1 moved on by one": "4 1 -2 3 8 4 6 7", "axis 1 moved back by one": "-2 3 4 1 6 7 8 4",
    "the first along axis 0 for all": "1 -2 3 4 1 -2 3 4", "the first along axis 1 for all": "1 1 1 1 4 4 4 4",
    "the last along axis 1 for all": "4 4 4 4 8 8 8 8", "the first along axis 1 alone, and 0": "1 0 0 0 4 0 0 0",
    "the last along axis 1 alone, and 0": "0 0 0 4 0 0 0 8", "0 for the first along axis 1": "0 -2 3 4 0 6 7 8",
    "0 for the last along axis 0": "1 -2 3 4 0 0 0 0",
    "the mean over axis 1 for each": "1.5 1.5 1.5 1.5 6.25 6.25 6.25 6.25",
    "the sum over axis 0 for each": "5 4 10 12 5 4 10 12",
    "the mean over axis 1 subtracted": "-0.5 -3.5 1.5 2.5 -2.25 -0.25 0.75 1.75",
    "along axis 1 the last term in place of the sum (= for +=)": "0 0 0 4 0 0 0 8",
    "along axis 0 the first term in place of the sum (= for +=)": "1 -2 3 4 0 0 0 0",
    "summed up along axis 1": "1 -1 2 6 4 10 17 25", "axes 0 and 1 reversed": "8 7 6 4 4 3 -2 1",
    "the diagonal of axes 0 and 1 alone": "1 0 0 0 0 6 0 0", "0 on the diagonal of axes 0 and 1": "0 -2 3 4 4 0 7 8",
    "the lower triangle of axes 0 and 1 alone": "1 0 0 0 4 6 0 0",
    "the upper triangle of axes 0 and 1 alone": "1 -2 3 4 0 6 7 8",
    f"{BLOCKS} in the reverse order of blocks": "3 4 1 -2 7 8 4 6", f"{BLOCKS} interleaved": "1 3 -2 4 4 7 6 8",
    f"{BLOCKS} each reversed": "-2 1 4 3 6 4 8 7", f"{BLOCKS} the first block alone, and 0": "1 -2 0 0 4 6 0 0",
    f"{BLOCKS} the last block alone, and 0": "0 0 3 4 0 0 7 8",
    f"{BLOCKS} the first block for all": "1 -2 1 -2 4 6 4 6",
    f"{BLOCKS} the mean of blocks for each": "2 1 2 1 5.5 7 5.5 7", "axes read in the order 1, 0": "1 4 -2 6 3 7 4 8",
}  # fmt: skip
COSTS = {
    1.0: ["reversed", "exchanged"],
    1.1: ["moved on by one", "moved back by one"],
    1.2: ["squared", "square root", "square", "absolute value", "mean over axis 0", "the sum over axis", "diagonal",
          "mirrored", "symmetric part"],
    1.3: ["the first along axis 0 for all", "the last along axis 0 for all", "reverse order of blocks", "interleaved"],
    1.4: ["1 minus it", "clipped", "axes 0 and 1 reversed", "0 on the diagonal", "triangle"],
    1.5: ["alone, and 0", "0 for the first", "0 for the last", "summed up along axis 0", "block for all"],
    1.6: ["axes read in the order 1, 0"],
    2.0: ["its sign alone"],
}  # fmt: skip


@pytest.mark.parametrize("words", EDITED)
def test_an_edit_does_what_its_words_say(words):
    (change,) = (op.change for op in operations(MATRIX.shape) if op.words == words)
    np.testing.assert_allclose(change(MATRIX).ravel(), np.array(EDITED[words].split(), float), atol=1e-8)


@pytest.mark.parametrize(("which", "want"), [("first", [[1, 0, 0], [0, 5, 0]]), ("last", [[0, 0, 3], [0, 5, 0]])])
def test_a_term_of_zero_is_none_that_overwrites(which, want):
    (change,) = (op.change for op in operations((2, 3)) if op.words.startswith(f"along axis 1 the {which} term"))
    np.testing.assert_array_equal(change(np.array([[1.0, 2, 3], [0, 5, 0]])), want)


def test_the_simple_edits_cost_less():
    found = {}
    for op in operations((3, 4)):
        found.setdefault(op.cost, []).append(op.words)
    assert set(found) == set(COSTS)
    for cost, parts in COSTS.items():
        for part in parts:
            assert any(part in words for words in found[cost]), (cost, part)
    costly = [op.cost for op in operations((3, 4)) if any(part in op.words for part in ("subtracted", "for each"))]
    assert sorted(costly) == [1.2] * 6 + [1.4, 1.5]


def test_triangles_of_squares_are_mirrored():
    found = {op.words: op.change for op in operations((2, 2))}
    for words, want in (
        ("the lower triangle of axes 0 and 1 mirrored", [[1, 3], [3, 4]]),
        ("the upper triangle of axes 0 and 1 mirrored", [[1, 2], [2, 4]]),
        ("the symmetric part of axes 0 and 1 alone", [[1, 2.5], [2.5, 4]]),
    ):
        np.testing.assert_array_equal(found[words](np.array([[1.0, 2], [3, 4]])), want)


def test_what_undoes_itself_is_closed():
    closed = {"reversed", "exchanged", "on by one", "back by one", "order of blocks", "interleaved"}
    for op in operations((3, 4)):
        assert op.closed is any(op.words.endswith(word) for word in closed), op.words


def test_edits_of_more_axes():
    cube = np.arange(24.0).reshape(2, 3, 4)
    orders = {"1, 0": (1, 0, 2), "2, 1": (0, 2, 1), "1, 2, 0": (1, 2, 0), "2, 0, 1": (2, 0, 1), "2, 1, 0": (2, 1, 0)}
    found = {op.words: op.change(cube) for op in operations(cube.shape) if op.words.startswith("axes")}
    assert {f"axes read in the order {order}" for order in orders} == {words for words in found if "read" in words}
    for order, axes in orders.items():
        np.testing.assert_array_equal(found[f"axes read in the order {order}"].ravel(), cube.transpose(axes).ravel())
    for i, j in ((0, 1), (0, 2), (1, 2)):
        np.testing.assert_array_equal(found[f"axes {i} and {j} exchanged"], cube.swapaxes(i, j))
    blocks = [op.words for op in operations((4, 2, 6, 3)) if "interleaved" in op.words]
    assert blocks == ["axis 2, 2 blocks of 3, interleaved", "axis 2, 3 blocks of 2, interleaved"]  # not of samples


GIVEN = {
    "were all ones": (1.45, "1 1 1 1 1 1 1 1"), "were all zeros": (1.45, "0 0 0 0 0 0 0 0"),
    "were replaced by absolute values": (1, "1 2 3 4 4 6 7 8"), "had the other sign": (1, "-1 2 -3 -4 -4 -6 -7 -8"),
    "were squared": (1.1, "1 4 9 16 16 36 49 64"), "were reversed": (1.1, "4 6 7 8 1 -2 3 4"),
    "were reversed along axis 1": (1.2, "4 3 -2 1 8 7 6 4"),
    "were reversed along the last axis": (1.2, "4 3 -2 1 8 7 6 4"),
    "were the first for all": (1.2, "1 -2 3 4 1 -2 3 4"), "were the first of axis 1 for all": (1.2, "1 1 1 1 4 4 4 4"),
    "were moved on by one": (1.3, "4 6 7 8 1 -2 3 4"),
    "were moved on by one along the last axis": (1.3, "4 1 -2 3 8 4 6 7"),
    "were moved back by one along the last axis": (1.3, "-2 3 4 1 6 7 8 4"),
    "were its mean for all": (1.3, "2.5 2 5 6 2.5 2 5 6"), "had its last two axes exchanged": (1.2, "1 4 -2 6 3 7 4 8"),
    "were read as it lies in memory": (1.4, "1 -2 3 4 4 6 7 8"), "were larger by 1": (1.4, "2 -1 4 5 5 7 8 9"),
    "were smaller by 1": (1.4, "0 -3 2 3 3 5 6 7"), "were 1 minus it": (1.4, "0 3 -2 -3 -3 -5 -6 -7"),
}  # fmt: skip


def test_edits_of_what_a_method_is_given():
    assert set(GIVEN) == set(ARRAYS)
    for words, (cost, want) in GIVEN.items():
        found, change = ARRAYS[words]
        assert (found, words) == (cost, words)
        np.testing.assert_array_equal(change(MATRIX).ravel(), np.array(want.split(), float), words)
    cube = np.arange(24).reshape(2, 3, 4)
    for words, axis in (("", 0), (" along axis 1", 1), (" along the last axis", 2)):
        np.testing.assert_array_equal(ARRAYS[f"were reversed{words}"][1](cube), np.flip(cube, axis))


def test_numbers_are_the_same_within_a_share_of_the_first():
    assert recognized([1234567.1, 1234567.1 * (1 + 1e-9)], [{}, {}], 1e-6) is not None
    assert recognized([1.2345e-3, 1.3e-3], [{}, {}], 1e-2) is None


@pytest.mark.parametrize("ndim", [2, 3, 4, 5])
def test_axes_of_statistics_are_exchanged_as_the_words_say(ndim):
    array = np.arange(float(np.prod(range(2, 2 + ndim)))).reshape(range(2, 2 + ndim))
    last, first = (STATISTICS[f"had its {words} two axes exchanged"](array) for words in ("last", "first"))
    np.testing.assert_array_equal(last, np.einsum("...ij->...ji", array))
    np.testing.assert_array_equal(first, np.einsum("ij...->ji...", array))
