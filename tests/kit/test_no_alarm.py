"""Checks that planted faults fail pass without them; a file of its own, so that it runs beside that of the faults."""

import numpy as np
import pytest
from fault_table import FAULTS

from gbackprop import layers
from gbackprop.testing import check_layer


@pytest.mark.parametrize("check", dict.fromkeys(fault.check for fault in FAULTS))
def test_no_alarm_without_the_fault(check):
    check().assert_ok()


@pytest.mark.parametrize("layer", [layers.RMSNorm(1, eps=1e-5), layers.LayerNorm(1), layers.Softmax(1)], ids=repr)
@pytest.mark.parametrize("seed", range(5))
def test_no_alarm_where_a_derivative_is_what_cancellation_leaves(layer, seed):
    check_layer(layer, np.random.default_rng(seed).standard_normal((3, 1)), seed).assert_ok()


@pytest.mark.parametrize("factor", [1 + 1e-6, -1, 2])
def test_what_is_left_of_cancelling_terms_is_judged_all_the_same(factor):
    class Wrong(layers.RMSNorm):
        def mjp(self, saved, mat):
            return factor * super().mjp(saved, mat)

    report = check_layer(Wrong(1, eps=1e-5), np.random.default_rng(0).standard_normal((3, 1)))
    assert report.failures[0].method == "mjp"
