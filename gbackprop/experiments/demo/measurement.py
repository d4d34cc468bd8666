"""Time and error of the quantities: each against brute force, and float32 against single passes.

Two checks, since neither says enough alone. The dense oracles go another way than the sweep, but can be afforded in
float64 on a few samples only. The loop of single passes takes the batch, dtype and device that were measured.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.array import Array
from gbackprop.experiments.demo.training import device_on, make_network
from gbackprop.testing.errors import largest_error
from gbackprop.testing.oracles import Dense

SAMPLES = 4
MC_SAMPLES = 2
NOISE = 1e-3  # of the pixels' range
ORACLE_TOLERANCE = 1e-8
LOOP_TOLERANCE = 1e-5

BUDGET = 0.7  # seconds of repetitions per measurement
FEWEST, MOST = 3, 9

T = TypeVar("T")


def all_quantities(targets: Array | None = None) -> list[Any]:
    """Return the paper's ten quantities."""
    mc: dict[str, Any] = {} if targets is None else {"mc_samples": len(targets), "targets": targets}
    first = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance()]
    diagonals = [q.DiagGGN(), q.DiagGGNMC(**mc), q.DiagHessian()]
    return [*first, *diagonals, q.KFAC(**mc), q.KFLR(), q.KFRA()]


def sweep_times(sweep: Callable[..., gb.Result], quantities: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the seconds for the gradient alone, for the gradient with each quantity, and with all in one sweep."""

    def finished(group: Sequence[Any]) -> None:
        gb.asnumpy(next(iter(sweep(*group).gradient.values())))  # a GPU works behind: wait for it

    for name, group in [("gradient", []), *((each.name, [each]) for each in quantities), ("all", quantities)]:
        yield name, _median_time(partial(finished, group))


def _median_time(call: Callable[[], object]) -> float:
    """Return the median time of a few calls after one that is not counted."""
    call()
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < BUDGET):
        times.append(timed(call)[0])
    return statistics.median(times)


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that a call took, and its result."""
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def oracle_errors(
    net: gb.Sequential, loss: losses.Loss, x: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Return the errors of the gradient and all ten quantities in float64 against the brute-force oracles."""
    images = x + NOISE * rng.standard_normal(x.shape)
    parameters = {name: gb.asnumpy(value).astype(np.float64) for name, value in net.state_dict().items()}
    twin = make_network(x.shape[1:], len(list(parameters.values())[-1]), np.random.default_rng(0), dtype="float64")
    twin.load_state_dict(parameters)
    targets = gb.asnumpy(loss.draw(twin(images), MC_SAMPLES, rng))
    want = Dense(twin, loss, images, y, targets)

    there = device_on(net)
    images, labels, targets = (gb.asarray(array, device=there) for array in (images, y, targets))
    quantities = all_quantities(targets)
    result = gb.backward(twin.to(there), loss, images, labels, *quantities)
    got = {"gradient": result.gradient} | {quantity.name: result[quantity] for quantity in quantities}
    return {name: largest_error(got[name], want[name]) for name in got}


def loop_error(net: gb.Sequential, loss: losses.Loss, x: Array, y: Array, batch_grad: Mapping[str, Array]) -> float:
    """Return the error of the individual gradients of a batch against one pass per sample."""
    single = [gb.backward(net, loss, x[n : n + 1], y[n : n + 1]).gradient for n in range(len(x))]
    want = {name: np.stack([gb.asnumpy(one[name]) for one in single]) / len(x) for name in batch_grad}
    return largest_error(batch_grad, want)
