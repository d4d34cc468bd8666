"""Checks that planted faults fail pass without them; a file of its own, so that it runs beside that of the faults."""

import pytest
from fault_table import FAULTS


@pytest.mark.parametrize("check", dict.fromkeys(fault.check for fault in FAULTS))
def test_no_alarm_without_the_fault(check):
    check().assert_ok()
