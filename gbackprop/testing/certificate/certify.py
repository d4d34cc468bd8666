"""Certificates of elementwise layers and of losses: `certify`."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.testing.certificate.proofs import Certificate
from gbackprop.testing.flat import dense
from gbackprop.testing.probe import is_container, twin_of


def certify(subject: Layer | Loss, low: float = -50.0, high: float = 50.0, *, ulps: float = 128.0) -> Certificate:
    """Derive what an elementwise layer or a loss states, and compare formulas and code on all floats of an interval.

    Parameters
    ----------
    subject : Layer or Loss
        It states its function and derivatives in `formulas`.
    low, high : float
        The ends; a loss is certified where it is defined between them.
    ulps : float
        The error allowed of the code, in units of 2⁻⁵² max(1, |value|).

    Returns
    -------
    Certificate

    Raises
    ------
    FormulaError
        If a formula cannot be parsed; the message names the subject, the formula and the place.
    TypeError, ValueError
        If `subject` is no layer or loss, a layer is not elementwise, samples of a loss depend on each other, the
        function is not stated or is a root of a square, or the ends are none.
    MissingExtraError
        If SymPy or mpmath is not installed.
    """
    with needed("sympy", "certificates", "symbolic"), needed("mpmath", "certificates", "symbolic"):
        from gbackprop.testing.certificate.judge import judged
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low, high: expected two finite numbers in order, got {low} and {high}")
    if not ulps > 0:
        raise ValueError(f"ulps: expected a number above 0, got {ulps}")
    if not isinstance(subject, (Layer, Loss)):
        raise TypeError(f"subject: expected a layer or a loss, got {type(subject).__name__}")
    if isinstance(subject, Layer) and not is_elementwise(subject):
        raise TypeError(f"{subject!r}: expected an elementwise layer, which computes each number from itself alone")
    return judged(subject, (low, high), ulps)


def is_elementwise(layer: Layer) -> bool:
    """Return whether a layer computes each number, and its derivatives, from itself alone, in features of any shape."""
    x = np.array([-1.5, 0.25, 2.0, -0.5, 1.0, 0.75, -3.0])
    try:
        twin = twin_of(layer, rng=np.random.default_rng(0))
        with np.errstate(all="ignore"):
            each = np.concatenate([_computed(twin, x[i].reshape(1, 1)) for i in range(7)], axis=1)
            shaped = [_computed(twin, x.reshape(shape)) for shape in ((7, 1), (1, 7), (1, 7, 1, 1))]
        alone = all(np.allclose(one, each, 1e-12, 0, equal_nan=True) for one in shaped)
        alone = alone and twin.output_shape((2, 7)) == (2, 7)
    except (ValueError, TypeError, IndexError, NotImplementedError):
        return False
    return alone and layer.curvature != "dense" and not is_container(layer)


def _computed(layer: Layer, x: np.ndarray) -> np.ndarray:
    """Return y, φ'(x) and φ''(x) of all numbers in rows; without the last if there is none, or it raises."""
    y, saved = layer.forward(x)
    rows = [y, layer.mjp(saved, np.ones((1, *x.shape)))]
    with suppress(Exception):  # the certificate will say so
        second = dense(layer.residual(saved, np.ones(x.shape)))
        rows.append(second if second.size == x.size else np.einsum("nii->ni", second))
    return np.stack([row.ravel() for row in rows])
