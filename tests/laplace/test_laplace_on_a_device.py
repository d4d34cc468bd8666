"""Laplace approximations on a GPU, or its strict double: the numbers of the host, arrays on the device."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import array, layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.influence import removal
from gbackprop.curvature.laplace import Laplace


def problem(loss):
    rng = np.random.default_rng(0)
    network = gb.Sequential(
        layers.Conv2d(1, 2, 2), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3), rng=1, dtype="float64"
    )
    y = rng.standard_normal((5, 3)) if isinstance(loss, losses.MSELoss) else rng.integers(0, 3, 5)
    return network, rng.standard_normal((5, 1, 3, 3)), y


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.MSELoss()], ids=["classes", "numbers"])
@pytest.mark.parametrize("structure", ["full", "kron", "diag", "joint"])
def test_the_numbers_of_the_host(structure, loss, gpu):
    network, x, y = problem(loss)
    prior = {name: 1.0 + i for i, name in enumerate(network.parameters)}
    options = {"structure": structure, "prior_precision": prior}
    if structure == "joint":
        options = {"curvature": q.KFAC(fisher="exact", sharing="expand", joint_bias=True)}

    def results(x, y):
        laplace = Laplace(network, loss, (x, y), **options)
        best = laplace.with_prior(2.0).optimize_prior()
        numbers = [laplace.log_marginal_likelihood(), laplace.decrement(), *laplace.effective_parameters().values()]
        predicted = [laplace.predict(x), laplace.predict(x, "mc", 3, rng=0)]
        predicted += [laplace.functional(x, joint=True), laplace.sample_functions(x, 2, rng=0)]
        parts = [part for each in predicted for part in (each if isinstance(each, tuple) else [each])]
        return [*numbers, best.prior_precision], [*parts, *laplace.sample(2, rng=0).values()]

    numbers, arrays = results(x, y)
    network.to("cuda")
    there, found = results(gb.asarray(x, "cuda"), gb.asarray(y, "cuda"))
    np.testing.assert_allclose(there, numbers, rtol=1e-6)
    for one, other in zip(found, arrays, strict=True):
        assert array.device_of(one) == "cuda:0"
        np.testing.assert_allclose(gb.asnumpy(one), other, rtol=1e-8, atol=1e-10)


def test_influence_is_computed_on_the_host(gpu):
    loss = losses.MSELoss()
    network, x, y = problem(loss)
    network.to("cuda")
    with pytest.raises(TypeError, match="data: expected arrays on the cpu, where SciPy's cg computes, got cuda:0"):
        removal(network, loss, (gb.asarray(x, "cuda"), gb.asarray(y, "cuda")), [0], damping=1.0)
