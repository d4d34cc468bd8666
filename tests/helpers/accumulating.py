"""A data set in batches of unequal sizes, its results over a data set, and how results are compared."""

from functools import cache

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.errors import largest_error

SIZES = [3, 1, 7, 2, 5, 4, 1, 6, 8, 2]
N = sum(SIZES)
EXACT = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagHessian(), q.KFLR()]
DRAWN = [q.DiagGGNMC(2), q.KFAC()]


def network(dtype="float64"):
    chain = [layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.Flatten(), layers.Linear(8, 3)]
    return gb.Sequential(*chain, rng=0, dtype=dtype)


def samples(dtype="float64"):
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 1, 3, 3)).astype(dtype), rng.integers(0, 3, N)


def parts(x, y, sizes=tuple(SIZES)):
    stops = np.cumsum(sizes)
    return [(x[stop - size : stop], y[stop - size : stop]) for size, stop in zip(sizes, stops)]


def numbers(result):
    """Every array of a result by name, factors of Kronecker blocks included."""
    found = {"loss": np.asarray(gb.asnumpy(result.loss)), "output": result.output, **result.gradient}
    for key, values in result.items():
        for name, value in values.items():
            pair = {"A": value.A, "B": value.B} if hasattr(value, "B") else {"": value}
            found |= {f"{key} {name} {part}": each for part, each in pair.items() if each is not None}
    return found


def assert_close(one, other, tolerance=1e-12):
    assert largest_error(numbers(one), numbers(other)) <= tolerance


def assert_same_bits(one, other):
    for (name, a), (again, b) in zip(numbers(one).items(), numbers(other).items(), strict=True):
        assert (name, a.dtype, a.shape, a.tobytes()) == (again, b.dtype, b.shape, b.tobytes())


def once(**settings):
    return gb.accumulate(network(), losses.CrossEntropyLoss(), parts(*samples()), *EXACT, *DRAWN, rng=7, **settings)


@cache
def serial():
    """The result over the data set on one thread."""
    return once(executor="serial")
