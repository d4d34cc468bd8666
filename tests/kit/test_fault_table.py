"""docs/faults.md is what ``make faults`` prints."""

from pathlib import Path

import pytest
from fault_table import FAULTS, row, table

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()


def test_the_page_has_each_fault_with_the_method_that_must_be_named():
    """test_faults.py plants each and sees that it is caught, and that this method is named."""
    assert [line for line in PAGE.splitlines() if line.startswith("| ")][1:] == [row(f, f.method) for f in FAULTS]
    assert f"**Caught: {len(FAULTS)} of {len(FAULTS)} planted. Rightly located: {len(FAULTS)} of" in PAGE


@pytest.mark.long
def test_the_page_is_what_the_command_prints():
    assert PAGE.strip() == table()
