"""The time steps of an LSTM as one loop, compiled by Numba: no step waits for Python, and blocks run in threads.

Arrays are as in `gbackprop.layers.recurrent`: gates i, f, g, o in `gates` (T, 4, N, H), states in `h` and `c`
(T + 1, N, H), and steps taken from the last to the first if `reverse`. For float32 alone: e^z is computed here, as
2^k p(r) with z = k log 2 + r, since what Numba calls for it is not vectorized.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from gbackprop.engine.kernels.compiler import compiled

Saved = tuple[np.ndarray, np.ndarray, np.ndarray]
"""h, c and gates."""

F = np.float32
inlined = njit(nogil=True, inline="always", error_model="numpy")

LOG2E, HIGH, LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
"""1 / log 2, and log 2 as the sum of a number of few digits, of which k times is exact, and the rest."""

LEAST, MOST, HALF, ONE, TWO, SMALL = F(-87), F(89), F(0.5), F(1), F(2), F(0.3)
E2, E3, E4, E5, E6, E7 = F(1 / 2), F(1 / 6), F(1 / 24), F(1 / 120), F(1 / 720), F(1 / 5040)
T3, T5, T7, T9, T11 = F(-1 / 3), F(2 / 15), F(-17 / 315), F(62 / 2835), F(-1382 / 155925)


@inlined
def _exp(z: Any) -> Any:
    """e^z for z from −87 to 88.3: e⁻⁸⁷ below, infinity above; NaN remains NaN."""
    z = LEAST if z < LEAST else MOST if z > MOST else z
    k = np.floor(z * LOG2E + HALF)
    r = z - k * HIGH - k * LOW
    p = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7))))))
    bits = np.int32((np.int32(k) + np.int32(127)) << np.int32(23))  # of 2^k
    return p * bits.view(np.float32)


@inlined
def _sigmoid(z: Any) -> Any:
    """1 / (1 + e⁻ᶻ)."""
    return ONE / (ONE + _exp(-z))


@inlined
def _tanh(z: Any) -> Any:
    """(1 − e⁻²ᶻ) / (1 + e⁻²ᶻ); near 0, where that has lost digits, its Taylor series."""
    e, s = _exp(-TWO * abs(z)), z * z
    large = (ONE - e) / (ONE + e)
    return z + z * s * (T3 + s * (T5 + s * (T7 + s * (T9 + s * T11)))) if s < SMALL * SMALL else np.copysign(large, z)


@compiled
def lstm_forward(a: np.ndarray, weight: np.ndarray, bias: np.ndarray, reverse: bool, saved: Saved) -> None:
    """Write the states and gates for inputs `a` (N, T, 4 H), W_hhᵀ of each gate (4, H, H) and b_hh (4, H)."""
    h, c, gates = saved
    samples, length, size = len(a), a.shape[1], h.shape[2]
    h[0], c[0] = 0, 0
    for t in range(length):
        for gate in range(4):
            np.dot(h[t], weight[gate], gates[t, gate])
        for n in range(samples):
            row = a[n, length - 1 - t if reverse else t]
            for gate in range(4):
                z, x, b = gates[t, gate, n], row[gate * size : (gate + 1) * size], bias[gate]
                if gate == 2:
                    for j in range(size):
                        z[j] = _tanh(z[j] + x[j] + b[j])
                else:
                    for j in range(size):
                        z[j] = _sigmoid(z[j] + x[j] + b[j])
            i, f, g, o = gates[t, 0, n], gates[t, 1, n], gates[t, 2, n], gates[t, 3, n]
            before, cell, state = c[t, n], c[t + 1, n], h[t + 1, n]
            for j in range(size):
                cell[j] = f[j] * before[j] + i[j] * g[j]
            for j in range(size):
                state[j] = o[j] * _tanh(cell[j])


@compiled
def lstm_carry(mat: np.ndarray, weight: np.ndarray, reverse: bool, saved: Saved, delta: np.ndarray) -> None:
    """Write the columns `delta` at a, (V, N, T, 4 H), for columns `mat` at h, (V, N, T, H), and W_hh (4 H, H)."""
    _, c, gates = saved
    columns, samples, length, size = mat.shape
    now = np.empty((samples, 4 * size), mat.dtype)
    state, cell = np.empty((samples, size), mat.dtype), np.empty((samples, size), mat.dtype)
    tanh = np.empty((length, samples, size), mat.dtype)
    for t in range(length):
        for n in range(samples):
            after, found = c[t + 1, n], tanh[t, n]
            for j in range(size):
                found[j] = _tanh(after[j])
    for v in range(columns):
        now[:], cell[:] = 0, 0
        for t in range(length - 1, -1, -1):
            np.dot(now, weight, state)
            at = length - 1 - t if reverse else t
            for n in range(samples):
                i, f, g, o = gates[t, 0, n], gates[t, 1, n], gates[t, 2, n], gates[t, 3, n]
                above, before, of_tanh, row = mat[v, n, at], c[t, n], tanh[t, n], now[n]
                for j in range(size):
                    s = state[n, j] + above[j]
                    d = cell[n, j] + s * o[j] * (ONE - of_tanh[j] * of_tanh[j])
                    row[j] = d * g[j] * i[j] * (ONE - i[j])
                    row[size + j] = d * before[j] * f[j] * (ONE - f[j])
                    row[2 * size + j] = d * i[j] * (ONE - g[j] * g[j])
                    row[3 * size + j] = s * of_tanh[j] * o[j] * (ONE - o[j])
                    cell[n, j] = d * f[j]
                delta[v, n, at] = row
