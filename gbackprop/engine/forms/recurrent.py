"""Fast forms of the time steps of an LSTM: a compiled loop in float32; else each step writes into arrays made before.

A step of a usual size is a product of matrices and some ten operations on arrays that fit into the first cache. Making
new arrays takes as long as the operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.engine.kernels import steps_of
from gbackprop.engine.registry import Context, LayerForms
from gbackprop.layers.recurrent import GRUSteps, LSTMSteps, RNNSteps


def forward(layer: LSTMSteps, a: Array, context: Context) -> tuple[Array, Any]:
    """Compute `LSTMSteps.forward`, with σ(z) as 1 / (1 + e⁻ᶻ): where e⁻ᶻ overflows, that is 0."""
    xp = array_module(a)
    if not isinstance(a, np.ndarray):
        return layer.forward(a)
    (n, length), size = a.shape[:2], layer.size
    weight = xp.ascontiguousarray(layer.weight.parameters[layer.weight.key].reshape(4, size, size).swapaxes(1, 2))
    bias = None if layer.bias is None else layer.parts_of(layer.bias.parameters[layer.bias.key])[:, None]
    h, c = context.memory.empty(a, (2, length + 1, n, size))
    gates = context.memory.empty(a, (length, 4, n, size))
    if kernels := steps_of(a):
        shift = xp.zeros((4, size), dtype=a.dtype) if bias is None else xp.ascontiguousarray(bias[:, 0])
        kernels.lstm_forward(xp.ascontiguousarray(a), weight, shift, layer.reverse, (h, c, gates))
        return layer.restored(h[1:]), (h, c, gates)
    h[0] = c[0] = 0
    product = np.empty_like(h[0])
    steps = layer.parts_of(layer.ordered(a)).swapaxes(0, 1)
    with np.errstate(over="ignore"):
        for t in range(length):
            z, cell = gates[t], c[t + 1]
            np.matmul(h[t], weight, out=z)
            z += steps[t]
            if bias is not None:
                z += bias
            np.tanh(z[2], out=z[2])
            _sigmoid(z[:2])
            _sigmoid(z[3])
            np.multiply(z[1], c[t], out=cell)
            cell += np.multiply(z[0], z[2], out=product)
            np.multiply(z[3], np.tanh(cell, out=product), out=h[t + 1])
    return layer.restored(h[1:]), (h, c, gates)


def _sigmoid(z: Array) -> None:
    """Replace z by 1 / (1 + e⁻ᶻ)."""
    np.exp(np.negative(z, out=z), out=z)
    z += 1
    np.reciprocal(z, out=z)


def carry(layer: LSTMSteps, saved: Any, mat: Array, context: Context) -> Array:
    """Compute `LSTMSteps.mjp`."""
    if not isinstance(mat, np.ndarray):
        return layer.mjp(saved, mat)
    xp, weight, steps = array_module(mat), layer.parameters[layer.weight.key], layer.ordered(mat)
    length, v, n, size = steps.shape
    delta = context.memory.empty(mat, (v, n, length, 4 * size))
    if kernels := steps_of(mat):
        columns, weight = xp.ascontiguousarray(mat), xp.ascontiguousarray(weight)
        kernels.lstm_carry(columns, weight, layer.reverse, saved, delta)
        return delta
    of_cell, of_output, slope, f = _slopes(layer, saved, context)
    ordered = layer.ordered(delta)
    now = xp.zeros((v, n, 4 * size), dtype=mat.dtype)  # δ of the step above: 0 for the last
    parts = layer.parts_of(now)
    state, cell, product = xp.zeros((3, v, n, size), dtype=mat.dtype)
    for t in range(length - 1, -1, -1):
        np.matmul(now.reshape(v * n, -1), weight, out=state.reshape(v * n, size))
        state += steps[t]
        cell += np.multiply(state, slope[t], out=product)
        np.multiply(of_cell[t][:, None], cell, out=parts[:3])
        np.multiply(of_output[t], state, out=parts[3])
        ordered[t] = now
        cell *= f[t]
    return delta


def _slopes(layer: LSTMSteps, saved: Any, context: Context) -> tuple[Array, Array, Array, Array]:
    """Compute `LSTMSteps.slopes` in few arrays."""
    _, c, gates = saved
    i, f, g, o = gates.swapaxes(0, 1)
    of_cell = context.memory.empty(c, (len(gates), 3, *c.shape[1:]))
    first, new = of_cell[:, :2], of_cell[:, 2]
    np.subtract(1, gates[:, :2], out=first)
    first *= gates[:, :2]
    first[:, 0] *= g
    first[:, 1] *= c[:-1]
    np.subtract(1, np.multiply(g, g, out=new), out=new)
    new *= i
    slope, of_output = context.memory.empty(c, (2, *c[1:].shape))
    np.tanh(c[1:], out=slope)
    np.subtract(1, o, out=of_output)
    of_output *= o
    of_output *= slope
    np.subtract(1, np.multiply(slope, slope, out=slope), out=slope)
    slope *= o
    return of_cell, of_output, slope, f


ROWS = [
    LayerForms(RNNSteps, jacobians_at_input=RNNSteps.jacobians_below),
    LayerForms(LSTMSteps, forward=forward, carry=carry, loops=steps_of, jacobians_at_input=LSTMSteps.jacobians_below),
    LayerForms(GRUSteps, jacobians_at_input=GRUSteps.jacobians_below),
]
