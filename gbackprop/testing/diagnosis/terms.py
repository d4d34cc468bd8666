"""Named arrays and sizes that a claim is about, found in its arguments: nothing here knows a single claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import prod
from typing import Any

import numpy as np
from scipy import special

from gbackprop.array import asnumpy
from gbackprop.calculus.layer import Layer, leaves_of
from gbackprop.losses.base import Loss
from gbackprop.testing.complex_steps import passes
from gbackprop.testing.diagnosis.numbers import Sizes
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.oracles import ORACLES
from gbackprop.testing.flat import Flat
from gbackprop.testing.probe import Probe, is_container
from gbackprop.testing.runs import Runs
from gbackprop.testing.setting import CheckedNetwork

Terms = dict[str, np.ndarray]
"""Arrays by name."""

FUNCTIONS: dict[str, Any] = {
    "{}": lambda t: t,
    "{}²": np.square,
    "(1 + {})": lambda t: 1 + t,
    "(1 − {})": lambda t: 1 - t,
    "(1 − 2{})": lambda t: 1 - 2 * t,
    "(1 − {}²)": lambda t: 1 - t * t,
    "(1 + {}²)": lambda t: 1 + t * t,
    "|{}|": np.abs,
    "(1 + |{}|)": lambda t: 1 + np.abs(t),
    "sign {}": np.sign,
    "[{} > 0]": lambda t: (t > 0).astype(float),
    "√|{}|": lambda t: np.sqrt(np.abs(t)),
    "exp {}": np.exp,
    "σ({})": special.expit,
    "σ(−{})": lambda t: special.expit(-t),
    "tanh {}": np.tanh,
    "(1 − tanh² {})": lambda t: 1 - np.tanh(t) ** 2,
    "φ({})": lambda t: np.exp(-t * t / 2) / np.sqrt(2 * np.pi),
    "Φ({})": special.ndtr,
    "exp(−{}²)": lambda t: np.exp(-t * t),
    "1/{}": lambda t: np.divide(1, t, out=np.zeros_like(t), where=t != 0),
    "sin {}": np.sin,
    "cos {}": np.cos,
    "log |{}|": lambda t: np.log(np.abs(t)),
    "softmax({})": lambda t: special.softmax(t, axis=1) if t.ndim > 1 else np.zeros_like(t),
}
"""Functions of an array's entries that derivatives are made of, and softmax."""


def subject_in(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the probes and settings among the arguments, and what they are of."""
    found = [part for part in arguments if isinstance(part, (Probe, LossProbe, CheckedNetwork, Runs))]
    return tuple(found)


def arrays_of(arguments: tuple[Any, ...]) -> Terms:
    """Return the arrays of the probes and settings among a claim's arguments, by name, each once."""
    found: Terms = {}
    for part in subject_in(arguments):
        for name, array in _arrays(part):
            array = np.asarray(asnumpy(array))
            known = any(array.shape == other.shape and np.array_equal(array, other) for other in found.values())
            if array.dtype.kind in "fiub" and array.size and not known:
                found.setdefault(name, array.astype(float))
    return found


def _arrays(part: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(part, Probe):
        yield "x", part.x
        yield from _inside(part)
        for name, value in options_of(part.layer).items():
            if isinstance(value, float) and value not in (0.0, 1.0):
                yield f"({name} x)", value * part.x
                yield f"(x/{name})", part.x / value
        yield "y", part.output
        if part.columns is not None:
            yield "g", part.columns[0]
            yield "u", part.tangents[0]
            yield "columns", part.columns
        if part.signs is not None:
            yield "signs", part.signs
        for name, value in part.layer.parameters.items():
            yield name, value
        for name, value in _attributes(part.layer):
            yield name, value
        yield from _nested("saved", part.saved)
        if part.noise is not None:
            yield from _nested("noise", part.noise)
    elif isinstance(part, LossProbe):
        yield "f", part.output
        yield "target", part.target
        if part.target.shape == part.output.shape:
            yield "(f − target)", part.output - part.target
        elif part.target.dtype.kind in "iu" and part.output.ndim > 1:
            one_hot = np.eye(part.output.shape[1])[part.target % part.output.shape[1]]
            yield "one-hot target", np.moveaxis(one_hot, -1, 1)
        yield from _attributes(part.loss)


def _inside(probe: Probe) -> Iterator[tuple[str, np.ndarray]]:
    """The inputs of a layer of several, and the outputs of the parts of a container."""
    if isinstance(probe.layer, Flat):
        yield from ((f"input {i}", each) for i, each in enumerate(probe.layer.split(probe.x, 1)))
    elif is_container(probe.layer):
        for each in passes(leaves_of(probe.layer, probe.x.shape[1:]), probe.x):
            yield f"output of {each.leaf.name}", each.output


def _attributes(thing: Any) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in vars(thing).items():
        if isinstance(value, np.ndarray):
            yield name, value


def _nested(name: str, saved: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(saved, np.ndarray):
        yield name, saved
    elif isinstance(saved, (tuple, list)) and len(saved) < 8:
        for i, each in enumerate(saved):
            yield from _nested(f"{name}[{i}]", each)


def quantities_of(arguments: tuple[Any, ...], parts: Mapping[str, Any]) -> dict[str, Terms]:
    """Return what other quantities are, and sums over samples of gradients and Jacobians, for each part of a claim."""
    settings = [part.setting if isinstance(part, Runs) else part for part in subject_in(arguments)]
    settings = [setting for setting in settings if isinstance(setting, CheckedNetwork)]
    found: dict[str, Terms] = {name: {} for name in parts}
    for setting in settings[:1]:
        try:
            dense = setting.oracle
        except Exception:  # too large, or not analytic
            return found
        for other in ORACLES:
            try:
                values = dense[other]
            except Exception:  # a quantity that this network has not
                continue
            for name in parts:
                value: Any = values.get(name.split("/")[0])
                if isinstance(value, tuple):
                    value = dict(zip("AB", value, strict=True)).get(name.rpartition("/")[2])
                if value is not None:
                    found[name][other] = np.asarray(value)
        for name in parts:
            own = dense.parts.get(name.split("/")[0])
            if own is not None:
                for title, each in (("∇ℓ", own.gradients), ("J", own.jacobians), ("s J", _rooted(own))):
                    found[name] |= reductions(title, each)
    return found


def _rooted(own: Any) -> np.ndarray:
    """SᵀJ of each sample, for a root S of the Hessian in the outputs."""
    values, vectors = np.linalg.eigh(own.hessians)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None]
    return np.einsum("ncv,nc...->nv...", root, own.jacobians)


def reductions(title: str, each: np.ndarray) -> Terms:
    """Return an array of samples, sums of it and of its squares over samples and outputs, and norms."""
    n, found = len(each), {f"{title}": each, f"{title}²": each**2, f"|{title}|": np.abs(each)}
    for name, array in list(found.items()):
        found[f"Σₙ {name}"] = array.sum(0)
        found[f"max {name}"] = array.max(0)
        if array.ndim > 2:
            found[f"Σ {name} over outputs"] = array.sum(1)
            found[f"Σₙ Σ {name} over outputs"] = array.sum((0, 1))
        found[f"Σ {name} of each sample"] = array.reshape(n, -1).sum(1)
        found[f"Σ {name}"] = array.sum()
    found[f"‖{title}‖ of each sample"] = np.sqrt((each.reshape(n, -1) ** 2).sum(1))
    found[f"(Σₙ {title})²"] = each.sum(0) ** 2
    if each.ndim > 2:
        found[f"Σ (Σₙ {title})² over outputs"] = (each.sum(0) ** 2).sum(0)
        found[f"Σₙ (Σ {title} over outputs)²"] = (each.sum(1) ** 2).sum(0)
    found[f"‖Σₙ {title}‖²"] = (each.sum(0) ** 2).sum()
    found[f"var {title}"] = each.var(0)
    return found


# --------------------------------------------------------------------------------------------------------------- sizes


def sizes_of(arguments: tuple[Any, ...]) -> Sizes:
    """Return the sizes of a claim's arguments by name, the most telling first; options of its subject among them."""
    found: Sizes = {}
    for part in subject_in(arguments):
        setting = part.setting if isinstance(part, Runs) else part
        if isinstance(setting, Probe):
            _shapes(found, "input", setting.x.shape)
            _shapes(found, "output", setting.output.shape)
            if setting.columns is not None:
                found["V"] = len(setting.columns)
            _options(found, setting.layer)
        elif isinstance(setting, LossProbe):
            _shapes(found, "output", setting.output.shape)
            found["c"] = setting.loss.summed_weight(setting.output.shape[1:])
            _options(found, setting.loss)
        elif isinstance(setting, CheckedNetwork):
            out = setting.network.output_shape(setting.x.shape[1:])
            _shapes(found, "output", (len(setting.x), *out))
            found["R"], found["c"] = setting.loss.factor(len(setting.x), setting.y), setting.loss.summed_weight(out)
            if setting.targets is not None:
                found["M"] = len(setting.targets)
    if "N" in found:
        found["N − 1"] = found["N"] - 1
    return found


def _shapes(found: Sizes, name: str, shape: tuple[int, ...]) -> None:
    found["N"] = shape[0]
    found[f"{name} features"] = prod(shape[1:])
    if len(shape) > 2:
        found |= {f"{name} axis {axis}": size for axis, size in enumerate(shape) if axis}
        found[f"{name} positions"] = prod(shape[2:])
        found[f"{name} positions before features"] = prod(shape[1:-1])


def _options(found: Sizes, subject: Layer | Loss) -> None:
    for name, value in options_of(subject).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = abs(value)
        elif isinstance(value, tuple) and all(isinstance(each, int) for each in value) and value:
            found |= {f"{name}[{i}]": each for i, each in enumerate(value)} | {f"Π {name}": prod(value)}


def options_of(subject: Any) -> dict[str, Any]:
    """Return the plain attributes of a subject, and those of plain values in it, by path."""
    found: dict[str, Any] = {}
    for name, value in vars(subject).items():
        if isinstance(value, (bool, int, float, str)) or (
            isinstance(value, tuple) and value and all(isinstance(each, (int, float)) for each in value)
        ):
            found[name] = value
        elif is_dataclass(value) and not isinstance(value, type):
            plain = {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            found |= {path: each for path, each in plain.items() if isinstance(each, (int, float, tuple))}
    return found
