"""What many tests set up, small networks and batches, and whether two results are the same."""

import tracemalloc
from collections import Counter
from types import FunctionType

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import quantities as q


def chain(*parts, rng=0, dtype="float64"):
    """A chain with drawn parameters."""
    return gb.Sequential(*parts, rng=rng, dtype=dtype)


def batch(samples, *shape, classes=3, seed=0, dtype="float64"):
    """Inputs and labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, *shape)).astype(dtype), rng.integers(0, classes, samples)


def one_in(count, cases, kind=lambda *case: None):
    """All cases as parameters; only the first of each kind, and every `count`-th after it, not in the long profile."""
    found, seen = [], Counter()
    for case in cases:
        case = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*case, marks=[pytest.mark.long] * (seen[kind(*case)] % count > 0)))
        seen[kind(*case)] += 1
    return found


def in_turn(cases, options):
    """Each case, a tuple, with one of the options in turn; with the others in the long profile."""
    return [pytest.param(*case, option, marks=[pytest.mark.long] * ((at + shift) % len(options) > 0))
            for at, case in enumerate(cases) for shift, option in enumerate(options)]  # fmt: skip


def flat(values):
    """The arrays of a quantity by parameter: Kronecker factors, also as pairs (A, B), one by one."""
    found = {}
    for name, value in values.items():
        if hasattr(value, "B"):
            value = value.A, value.B
        elif hasattr(value, "to_dense"):
            value = value.to_dense()
        parts = zip((f"{name} A", f"{name} B"), value) if isinstance(value, tuple) else [(name, value)]
        found |= {key: part for key, part in parts if part is not None}
    return found


def assert_equal(found, want, tolerance=1e-12, label="", least=1e-300):
    """The arrays of a quantity agree, each to a tolerance of its largest entry, or of `least`."""
    found, want = flat(found), flat(want)
    assert set(found) == set(want)
    for name, value in want.items():
        scale = max(np.abs(value).max(initial=0), least)
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance * scale, err_msg=f"{label} {name}")


def assert_same(found, want, tolerance=1e-12, least=1e-300):
    """Two results of the same quantities agree in everything."""
    whole = [{"loss": result.loss, "output": result.output} for result in (found, want)]
    assert_equal(*whole, tolerance, "result", least)
    assert_equal(found.gradient, want.gradient, tolerance, "gradient", least)
    for quantity, one, other in zip(want.quantities, found.values, want.values, strict=True):
        if isinstance(quantity, q.Variance):  # a difference of squares: it has the rounding errors of the mean's square
            r = want.scale.factor * want.scale.batch
            for name, gradient in want.gradient.items():
                floor = max(np.abs(gradient / r).max(initial=0) ** 2, least)
                assert_equal({name: one[name]}, {name: other[name]}, tolerance, quantity.name, floor)
        else:
            assert_equal(one, other, tolerance, quantity.name, least)


def both(network, loss, x, y, *asked, tolerance=1e-12, least=1e-300, rng=0, training=False, **options):
    """The fast engine gives what the plain one gives; return the result."""
    found = gb.backward(network, loss, x, y, *asked, rng=rng, training=training, **options)
    assert_same(found, gb.reference(network, loss, x, y, *asked, rng=rng, training=training), tolerance, least)
    return found


def in_module_of(original, function):
    """A function as if its text stood in the module of another: classes to which it is assigned stay shipped ones."""
    return FunctionType(function.__code__, original.__globals__, function.__name__, None, function.__closure__)


def peak(call):
    """Bytes that a call takes at its peak beside what was there before."""
    call()  # what is loaded or compiled once does not count
    tracemalloc.start()
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def with_weight(kind, **own):
    """A class of layers whose weight's Jacobian has functions of its own."""

    def parameter_jacobians(self, saved):
        found = kind.parameter_jacobians(self, saved)
        found["weight"].__class__ = type("Own", (gb.layers.Outer,), own)
        return found

    return type("Own", (kind,), {"parameter_jacobians": parameter_jacobians})


def hundredfold(name):
    """A function of a weight's Jacobian, a hundred times too large."""
    return {name: lambda self, *given: 100 * getattr(gb.layers.Outer, name)(self, *given)}
