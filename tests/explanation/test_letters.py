"""Each letter of an explanation has a meaning, and no letter has one that does not occur."""

import re

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.plain.explanation.letters import LETTERS, meanings
from gbackprop.testing.runs import every_quantity


def explained(*quantities):
    net = gb.Sequential(layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.Flatten(), layers.Linear(8, 3), rng=0)
    x = np.random.default_rng(0).random((2, 1, 3, 3), dtype=np.float32)
    return str(gb.explain(net, losses.CrossEntropyLoss(), x, np.array([0, 2]), *quantities, rng=0))


def test_all_letters_of_all_quantities_are_explained():
    told, letters = explained(*every_quantity()).split("\nletters\n")
    formulas = "\n".join(re.sub(r"[A-Za-z_]{2,}\d*\w*|'[^']*'", " ", line) for line in told.splitlines()[6:])
    found = set(re.findall(r"[A-Zℓ](?![a-z])", formulas))
    explained_letters = "".join(f"{letter} {meaning}" for letter, meaning in meanings(told))
    assert {letter for letter in found if letter not in explained_letters} == set()
    for letter in ("R", "N", "V", "ℓₙ", "Sₙ", "Hₙ", "ŷₙₘ", "Ḡ", "A", "Q", "r", "u"):
        assert f"\n  {letter} " in f"\n{letters}", letter


def test_letters_that_do_not_occur_are_left_out():
    letters = explained().split("\nletters\n")[1]
    assert re.findall(r"^  (\S+)", letters, re.MULTILINE) == ["N", "R", "ℓₙ", "V", "g", "Jᵀ", "t", "u", "W"]


@pytest.mark.parametrize(
    ("text", "letters"),
    [("√R Sₙ", ["R", "Sₙ"]), ("Result, Vector, carry", []), ("c M", ["c"]), ("Wᵀ g", ["g", "W"]), ("[t, s]", ["t"])],
)
def test_a_letter_is_a_word_of_its_own(text, letters):
    assert [letter for letter, _ in meanings(text)] == letters


def test_meanings_are_in_the_order_of_the_table():
    assert [letter for letter, _ in meanings(" ".join(LETTERS))] == list(LETTERS)
