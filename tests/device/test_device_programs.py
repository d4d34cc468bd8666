"""Programs on a device: the results of the host, by launches without a transfer between them."""

import numpy as np
import pytest
from common import flat
from device_problems import CE, X, Y, simple, there, transfers

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.errors import largest_error
from gbackprop.testing.runs import every_quantity

READ = ("ekfac", "nearest_kronecker", "kronecker_error")
"""Quantities that read numbers, or whose eigenvectors are not unique."""


@pytest.mark.parametrize("fold", [False, True])
def test_a_program_on_a_device_has_the_results_of_the_host(fold, gpu):
    asked = [each for each in every_quantity() if each.name not in READ and "gram" not in each.name]
    host, moved = simple(), simple().to("cuda")
    x, y = there(X), there(Y)
    program = gb.program(moved, CE, x, y, *asked, training=True, fold=fold)
    got, want = program(x * 1.1, y, 3), gb.reference(host, CE, X * 1.1, Y, *asked, rng=3, training=True)
    assert gb.array.device_of(got.output) == "cuda:0"
    assert largest_error({k: gb.asnumpy(v) for k, v in got.gradient.items()}, want.gradient) < 1e-12
    for quantity in asked:
        there_and_here = flat(got[quantity]), flat(want[quantity])
        assert there_and_here[0].keys() == there_and_here[1].keys() != set()
        for one, other in zip(*(each.values() for each in there_and_here), strict=True):
            np.testing.assert_allclose(gb.asnumpy(one), other, rtol=1e-10, atol=1e-12)
    values = {name: moved.parameters[name] for name in moved.parameters}
    noise = {name: there(value) for name, value in program.inputs(x, y, 3).items() if name.startswith("random/")}
    random = {name.removeprefix("random/"): value for name, value in noise.items()}
    moves = transfers(lambda: program.function(x, y, values, random, program.constants_there))
    assert moves == []


def test_what_is_elsewhere_is_refused(gpu):
    program = gb.program(simple().to("cuda"), CE, there(X), there(Y), q.DiagGGN())
    with pytest.raises(ValueError, match=r"x: .* float64 on cuda:0, for which .*, got .* float64$"):
        program(X, Y)


WEIGHT = np.array([1.0, 2.0, 0.5])
LABELS = np.arange(24).reshape(6, 4) % 9
CASES = {
    "scipy": (lambda: [layers.Linear(4, 5), layers.GELU(), layers.Linear(5, 3)], X[:, 0, 0], None),
    "class weights": (lambda: [layers.Linear(4, 3)], X[:, 0, 0], WEIGHT),
    "indices": (lambda: [layers.Embedding(9, 2), layers.Flatten(), layers.Linear(8, 3)], LABELS, None),
    "small constants": (lambda: [layers.Linear(4, 3), layers.LayerNorm(3)], X[:, 0, 0], None),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_of_scipy_and_constants_are_there(name, gpu):
    make, x, weight = CASES[name]
    host, moved = gb.Sequential(*make(), rng=0, dtype="float64"), gb.Sequential(*make(), rng=0, dtype="float64").to(gpu)
    here, loss = (losses.CrossEntropyLoss(weight=each) for each in (weight, None if weight is None else there(weight)))
    program = gb.program(moved, loss, there(x), there(Y), q.DiagHessian())
    want = gb.reference(host, here, x[::-1], Y, q.DiagHessian())["diag_hessian"]
    got = program(there(x[::-1].copy()), there(Y))["diag_hessian"]
    assert largest_error({k: gb.asnumpy(v) for k, v in got.items()}, want) < 1e-12
    x, y, values = there(x), there(Y), {name: moved.parameters[name] for name in moved.parameters}
    assert transfers(lambda: program.function(x, y, values, {}, program.constants_there)) == []


def test_a_function_that_scipy_has_alone_is_refused(gpu):
    net, y = gb.Sequential(layers.Linear(4, 3), rng=0, dtype="float64").to(gpu), there(np.ones((6, 3)))
    with pytest.raises(gb.UnsupportedError, match=r"program: scipy\.special\.pdtrik: expected one that CuPy has"):
        gb.program(net, losses.PoissonNLLLoss(), there(X[:, 0, 0]), y, q.DiagGGNMC())
