"""The algebra of blocks in Kronecker form on the device: the numbers of the host, and the transfers that are listed."""

from dataclasses import fields, replace

import numpy as np
import pytest
from device_ledger import ledger
from device_problems import LISTED, there
from drawn_blocks import Case, cases
from hypothesis import HealthCheck, given, settings

from gbackprop import array
from gbackprop.testing.errors import relative_error

FREE = {
    "product": lambda block, v: block @ v,
    "dense": lambda block, v: block.to_dense(),
    "diagonal": lambda block, v: block.diagonal(),
    "trace": lambda block, v: block.trace(),
    "norm": lambda block, v: block.frobenius_norm(),
    "transpose": lambda block, v: block.T.to_dense(),
    "multiple": lambda block, v: (2 * block / 3).to_dense(),
    "sum": lambda block, v: (block + block.eigh()).frobenius_norm(),
    "norm of a sum": lambda block, v: (block + 2 * block.T).frobenius_norm(),
    "product of a sum": lambda block, v: (block - 2 * block.eigh()) @ v,
    "eigenvalues": lambda block, v: block.eigvalsh(),
    "determinant": lambda block, v: block.det(),
    "damped": lambda block, v: block.damped(0.3).to_dense(),
    "damped exactly": lambda block, v: block.damped(0.3, "exact").to_dense(),
    "integer power": lambda block, v: (block**2).to_dense(),
    "capped": lambda block, v: block.solve(v, 0.0, 1e3, "exact"),
}
"""What waits for no transfer."""

CHECKED = {
    "logdet": lambda block, v: block.logdet(),
    "damped logdet": lambda block, v: block.logdet(0.3),
    "inverse": lambda block, v: block.inverse(0.3).to_dense(),
    "undamped inverse": lambda block, v: block.inverse().to_dense(),
    "exact inverse": lambda block, v: block.inverse(0.3, "exact").to_dense(),
    "power": lambda block, v: (block**-0.5).to_dense(),
    "solution": lambda block, v: block.solve(v, 0.3),
    "capped solution": lambda block, v: block.solve(v, 0.3, 1e3),
    "exact solution": lambda block, v: block.solve(v, 0.3, method="exact"),
}
"""What looks at eigenvalues or norms first."""


def moved(block, device="cuda"):
    parts = {f.name: getattr(block, f.name) for f in fields(block)}
    return replace(block, **{n: array.asarray(v, device) for n, v in parts.items() if array.is_array(v)})


@pytest.mark.parametrize("name", [*FREE, *CHECKED])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_the_device_computes_what_the_host_does(name, case, gpu):
    call, v = (FREE | CHECKED)[name], np.random.default_rng(case.seed).standard_normal(case.shape).astype(case.dtype)
    block, at = moved(case.block()), there(v)
    ledger.clear()
    found = call(block, at)
    assert set(ledger.transfers) <= (LISTED if name in CHECKED else set())
    assert array.device_of(found) == "cuda:0"
    assert found.dtype == case.dtype
    assert relative_error(found, call(case.block(), v)) < 10 * case.tolerance


@pytest.mark.parametrize("kind", ["plain", "grouped", "eigen", "grouped eigen"])
@pytest.mark.parametrize("name", [*FREE, *CHECKED])
def test_blocks_compute_where_they_lie(name, kind, double):
    case = Case(kind, 2 if "grouped" in kind else 1, 3, 2, 2, False, True, "float64", 0)
    block, v = moved(case.block(), "cuda:1"), array.asarray(np.ones(case.shape), "cuda:1")
    found = (FREE | CHECKED)[name](block, v)
    assert array.device_of(found) == "cuda:1"
    assert {way for way, _ in ledger.transfers} <= {"to device", "to host"}


def test_a_singular_factor_is_named_there_too(gpu):
    for kind, words in (("plain", "factor B of shape"), ("eigen", "the block of shape")):
        block = moved(Case(kind, 1, 3, 2, 1, False, False, "float64", 0, rank=2).block())
        for call in (block.inverse, block.logdet, lambda block=block: block**-1):
            with pytest.raises(np.linalg.LinAlgError, match=f"{words}.* is singular"):
                call()
