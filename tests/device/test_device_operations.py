"""Every row of the table of operations on a device: the same numbers, with no transfer to the host."""

import numpy as np
import pytest
from common import one_in
from device_ledger import ledger
from device_problems import LISTED, there

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.calculus.state.checksums import checksum
from gbackprop.testing.cases.operations import CASES, around
from gbackprop.testing.errors import relative_error

ASKED = (q.BatchGrad(), q.DiagGGN(), q.DiagHessian())


@pytest.mark.parametrize(("name", "options", "shapes"), one_in(9, CASES, lambda name, *_: name), ids=str)
def test_every_row(name, options, shapes, gpu):
    network, x = around(name, options, shapes)
    y = np.random.default_rng(2).standard_normal(network(x).shape)
    want = gb.backward(network, losses.MSELoss(), x, y, *ASKED)
    network.to("cuda")
    batch = there(x), there(y)
    ledger.clear()
    got = gb.backward(network, losses.MSELoss(), *batch, *ASKED)
    assert {each for each in ledger.transfers if each[0] == "to host"} <= LISTED
    for each in ("batch_grad", "diag_ggn", "diag_hessian"):
        for key, value in want[each].items():
            assert relative_error(got[each][key], value) < 1e-8, (each, key)


def test_a_checksum_tells_the_last_bit_of_the_last_number(gpu):
    x = gb.asarray(np.ones(1000, "float32"), "cuda")
    before = checksum(x)
    assert checksum(x.copy()) == before
    x[-1] = np.nextafter(np.float32(1), np.float32(2))
    assert checksum(x) != before
