"""The demo's training loop, and what a trained network says."""

from collections.abc import Iterator

import numpy as np

import gbackprop as gb
from gbackprop import array, losses
from gbackprop.experiments.demo.plans import Plan
from gbackprop.optim import SGD


def train(
    net: gb.Sequential, loss: losses.Loss, x: np.ndarray, y: np.ndarray, plan: Plan, rng: np.random.Generator
) -> Iterator[float]:
    """Train a network in place, step by step, on the device where it lies."""
    device = device_of(net)
    optimizer = SGD(net, plan.learning_rate, plan.momentum)
    for _ in range(plan.epochs):
        for batch in gb.data.batches(x, y, plan.batch, rng):
            inputs, labels = (gb.asarray(part, device=device) for part in batch)
            result = gb.backward(net, loss, inputs, labels)
            optimizer.step(result)
            yield float(result.loss)


def predict(net: gb.Sequential, x: np.ndarray, batch: int = 1024) -> np.ndarray:
    """Return the most likely class of each image."""
    device = device_of(net)
    blocks = [net(gb.asarray(x[start : start + batch], device=device)) for start in range(0, len(x), batch)]
    return np.concatenate([gb.asnumpy(block.argmax(1)) for block in blocks])


def device_of(net: gb.Sequential) -> str:
    """Return the device of a network's parameters, as `gb.asarray` names it."""
    return array.device_of(next(iter(net.parameters.values())))
