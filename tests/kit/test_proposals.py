"""The first proposal of a diagnosis for wrong lines of users' classes, in words that say what is wrong."""

import pytest
from faults_of_users import USERS

from gbackprop.testing.diagnosis import search

UNNAMED = {
    "activation: 2 sin for sin 2", "layer: x squared", "layer: divided by d", "quantity: 1/N twice", "quantity: one R",
    "quantity: not rooted",
}  # fmt: skip
"""Faults whose words no first proposal has, so far."""


@pytest.mark.parametrize("fault", [fault for fault in USERS if fault not in UNNAMED])
def test_the_first_proposal_says_what_is_wrong(fault, monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 60)
    check, words = USERS[fault]
    failed = [row for row in check().rows if row.failed]
    first = [row.diagnosis[0] for row in failed if row.diagnosis]
    assert any(words in proposal.words and len(proposal.samples) == 3 for proposal in first)
