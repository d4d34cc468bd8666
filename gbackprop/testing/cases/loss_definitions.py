"""The losses in plain terms: of each, the terms of one sample, of which a loss is the mean or the sum."""

from __future__ import annotations

from typing import Any

import numpy as np


def cross_entropy(loss: Any, f: np.ndarray, y: np.ndarray) -> list[float]:
    """−Σ w q log p at each position; `y` has classes, or the probabilities of all."""
    found, w = [], np.ones(len(f)) if loss.weight is None else loss.weight
    for t in np.ndindex(f.shape[1:]):
        scores, soft = f[(slice(None), *t)], y.shape == f.shape
        label = y[(slice(None), *t)] if soft else y[t]
        if not soft and label == loss.ignore_index:
            found.append(0.0)
            continue
        q = label if soft else np.array([float(k == label) for k in range(len(f))])
        smooth = (1 - loss.label_smoothing) * q + loss.label_smoothing / len(f)
        log_p = [score - np.log(sum(np.exp(scores))) for score in scores]
        found.append(-sum(w[k] * smooth[k] * log_p[k] for k in range(len(f))))
    return found


def chosen_classes(loss: Any, f: np.ndarray, y: np.ndarray) -> list[float]:
    """Minus what the label chooses, at each position."""
    w = np.ones(len(f)) if loss.weight is None else loss.weight
    return [-f[(y[t], *t)] * w[y[t]] if y[t] != loss.ignore_index else 0.0 for t in np.ndindex(y.shape)]


def bits_of_logits(loss: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """−w (u y log p + (1 − y) log(1 − p)) with p = 1 / (1 + e^−f)."""
    w, u = (1.0 if each is None else each for each in (loss.weight, loss.pos_weight))
    p = 1 / (1 + np.exp(-f))
    return -w * (u * y * np.log(p) + (1 - y) * np.log(1 - p))


def bits_of_probabilities(loss: Any, p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """−w (y log p + (1 − y) log(1 − p)); logarithms are cut off at −100."""
    w = 1.0 if loss.weight is None else loss.weight
    return -w * (y * np.maximum(np.log(p), -100) + (1 - y) * np.maximum(np.log(1 - p), -100))


def normal(loss: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(log v + (f − y)² / v) / 2, of numbers y and their variances v."""
    v = np.where(y[1] < loss.eps, loss.eps, y[1])
    return (np.log(v) + (f - y[0]) ** 2 / v + (np.log(2 * np.pi) if loss.full else 0)) / 2


def poisson(loss: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rate minus y times its logarithm; if `full` with Stirling's formula for log y! where y > 1."""
    some = np.maximum(y, 1)
    stirling = np.where(loss.full & (y > 1), some * np.log(some) - some + np.log(2 * np.pi * some) / 2, 0)
    return (np.exp(f) - y * f if loss.log_input else f - y * np.log(f + loss.eps)) + stirling


def huber(loss: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """d²/2 up to δ, and δ (d − δ/2) beyond, d = |f − y|."""
    d = abs(f - y)
    return np.where(d <= loss.delta, d**2 / 2, loss.delta * (d - loss.delta / 2))


def smooth_absolute(loss: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """d² / 2β up to β, and d − β/2 beyond, d = |f − y|."""
    d = abs(f - y)
    return np.where(d < loss.beta, d**2 / (2 * loss.beta), d - loss.beta / 2)
