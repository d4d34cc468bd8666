"""docs/faults.md is what ``make faults`` prints."""

from pathlib import Path

from fault_table import table


def test_the_page_is_what_the_command_prints():
    assert (Path(__file__).parents[2] / "docs" / "faults.md").read_text().strip() == table()
