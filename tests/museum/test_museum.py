"""The museum: the usual check passes on each fault that shipped, the audit names it, and the mended one passes."""

from pathlib import Path

import numpy as np
import pytest
from exhibit import gradient_error
from museum import EXHIBITS, page

from gbackprop.layers import Linear
from gbackprop.testing import check_layer

PAGE = Path(__file__).parents[2] / "docs" / "museum.md"
exhibits = pytest.mark.parametrize("exhibit", EXHIBITS, ids=str)


def test_there_are_twenty_and_no_two_alike():
    assert len(EXHIBITS) >= 20
    assert len({exhibit.title for exhibit in EXHIBITS}) == len(EXHIBITS)
    assert len({exhibit.lines for exhibit in EXHIBITS}) == len(EXHIBITS)


@exhibits
def test_the_usual_check_passes(exhibit):
    assert exhibit.usual(exhibit.faulty()) <= exhibit.passes
    assert exhibit.usual(exhibit.right()) <= exhibit.passes


@exhibits
def test_the_audit_names_the_fault(exhibit):
    first = exhibit.audit(exhibit.faulty()).failures[0]
    assert (first.method, first.claim[: len(exhibit.claim)]) == (exhibit.method, exhibit.claim)
    assert "raised" not in first.problem


@exhibits
def test_the_mended_one_passes(exhibit):
    report = exhibit.audit(exhibit.right())
    report.assert_ok()
    claims = [row.claim for row in report.rows if row.verdict == "ok"]
    assert any(claim.startswith(exhibit.claim) for claim in claims)


@pytest.mark.long
def test_the_page_is_what_the_command_prints():
    assert PAGE.read_text() == page().strip() + "\n"


# ------------------------------------------------------------------------------------ the usual gradient check is one


class WrongWeight(Linear):
    def forward(self, x):
        y, saved = super().forward(x)
        return y, 1.01 * saved


class WrongInput(Linear):
    def mjp(self, saved, mat):
        return 1.01 * super().mjp(saved, mat)


@pytest.mark.parametrize("kind", [WrongWeight, WrongInput])
def test_the_gradient_check_finds_wrong_gradients(kind):
    x = np.random.default_rng(0).standard_normal((3, 4))
    assert gradient_error(kind(4, 2), x) > 1e-3
    assert not check_layer(kind(4, 2), x).ok
    assert gradient_error(Linear(4, 2), x) < 1e-8
