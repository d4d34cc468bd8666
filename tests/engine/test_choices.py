"""Sizes on which time and memory alone depend: `tests/mutants/equivalent.toml` names them, with values far apart."""

import sys
from contextlib import suppress

import numpy as np
import pytest
from common import flat, one_in
from mutants import choices

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.spectra import ntk
from gbackprop.engine.memory import free_memory
from gbackprop.plain.plan import make_plan
from gbackprop.quantities import DiagGGN
from gbackprop.testing.runs import every_quantity

RNG = np.random.default_rng(0)
LOSS, MEETING = losses.CrossEntropyLoss(), [layers.Linear(2, 3), layers.BatchNorm1d(3), layers.Linear(3, 3)]
Y = RNG.integers(0, 3, 4)


def cases():
    images = [layers.Conv2d(2, 4, 3, padding=1, bias=False), layers.MaxPool2d(2), layers.PReLU(4)]
    images += [layers.Conv2d(4, 4, 3, padding=1, groups=2), layers.ReLU(), layers.Flatten(), layers.Linear(36, 3)]
    steps = [gb.LSTM(2, 3), layers.Linear(3, 2), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3)]
    yield gb.Sequential(*images, rng=1, dtype="float64"), RNG.standard_normal((4, 2, 6, 6))
    yield gb.Sequential(*steps, rng=1, dtype="float64"), RNG.standard_normal((4, 4, 2))


CASES = list(cases())


def supported(net, x):
    """Yield the quantities that the network can give: first those of the whole batch, which forbid blocks."""
    whole = {"kfra", "gram_gradients", "gram_ggn"}
    for together in (True, False):
        found = []
        for quantity in every_quantity():
            with suppress(gb.UnsupportedError):
                make_plan(net, LOSS, x, Y, [quantity], 0)
                found += [quantity] if (quantity.name in whole) == together else []
        yield found


def everything():
    """Compute each quantity, operator, kernel and posterior of two networks, {label: array}."""
    found = {}
    for number, (net, x) in enumerate(CASES):
        for asked in supported(net, x):
            result = gb.backward(net, LOSS, x, Y, *asked, rng=0)
            for quantity, values in zip(asked, result.values, strict=True):
                found |= {f"{number} {quantity.name} {key}": value for key, value in flat(values).items()}
        few = np.eye(sum(value.size for value in net.parameters.values()))[:, ::9]
        for kind in (ops.GGN, ops.Hessian, ops.EmpiricalFisher):
            found[f"{number} {kind.__name__}"] = kind(net, LOSS, (x, Y)) @ few
        found[f"{number} ntk"] = ntk(net, x)
        found[f"{number} Laplace"] = Laplace(net, LOSS, [(x, Y)]).predict(x)
    meeting = gb.Sequential(*MEETING, rng=1, dtype="float64"), LOSS, CASES[1][1][:, 0], Y, DiagGGN()
    found |= {f"meeting {name}": each for name, each in gb.backward(*meeting, training=True)["diag_ggn"].items()}
    return found


@pytest.fixture(scope="module")
def expected():
    return everything()


TOGETHER = [dict(zip(choices(), values, strict=True)) for values in zip(*choices().values(), strict=True)]
"""All of the first values, all of the second."""


ALONE = [pytest.param({name: TOGETHER[0][name]}, marks=pytest.mark.long) for name in choices()]
DRAWN = RNG.integers(3, size=(10, len(choices())))  # one of the values, or the package's own
MIXED = one_in(5, [{name: TOGETHER[i][name] for name, i in zip(choices(), row) if i < 2} for row in DRAWN])


@pytest.mark.parametrize("chosen", [*TOGETHER, *MIXED, *ALONE], ids=min)
def test_no_result_depends_on_it(chosen, expected, monkeypatch):
    for name, value in chosen.items():
        module, _, name = f"gbackprop.{name}".rpartition(".")
        original = getattr(sys.modules[module], name)
        result = (lambda *given, value=value: value) if callable(original) else value
        for other in [m for key, m in sys.modules.items() if key.startswith("gbackprop")]:
            if getattr(other, name, None) is original:
                monkeypatch.setattr(other, name, result)
    free_memory()
    found = everything()
    free_memory()
    assert set(found) == set(expected)
    for label, want in expected.items():
        np.testing.assert_allclose(found[label], want, rtol=0, atol=1e-11 * np.abs(want).max(initial=0), err_msg=label)
