"""Named arrays and sizes that a claim is about, found in its arguments: nothing here knows a single claim."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, islice
from math import prod
from typing import Any

import numpy as np
from scipy import special

from gbackprop.array import asnumpy
from gbackprop.calculus.layer import leaves_of
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.quantities import Quantity
from gbackprop.testing.complex_steps import passes
from gbackprop.testing.diagnosis.numbers import Sizes
from gbackprop.testing.flat import Flat
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.oracles import ORACLES, Parts
from gbackprop.testing.probe import Probe, is_container
from gbackprop.testing.runs import Runs
from gbackprop.testing.setting import CheckedNetwork

Terms = dict[str, np.ndarray]
"""Arrays by name."""

MOST = 400
"""Views of terms that are looked at."""

MANY = 64
"""Most entries of an array whose mean and sum are among the numbers."""

FEW = 6
"""The number of entries of a parameter or tuple, such as coefficients, up to which each is a number of its own."""

FUNCTIONS: dict[str, Any] = {
    "{}²": np.square, "(1 + {})": lambda t: 1 + t, "(1 − {})": lambda t: 1 - t, "(1 − 2{})": lambda t: 1 - 2 * t,
    "(1 − {}²)": lambda t: 1 - t * t, "(1 + {}²)": lambda t: 1 + t * t, "√(1 + {}²)": lambda t: (1 + t * t) ** 0.5,
    "|{}|": np.abs, "sign {}": np.sign,
    "(1 + |{}|)": lambda t: 1 + np.abs(t), "[{} > 0]": lambda t: (t > 0) * 1.0, "√|{}|": lambda t: np.abs(t) ** 0.5,
    "1/{}": lambda t: np.divide(1, t, out=np.zeros_like(t), where=t != 0), "exp {}": np.exp, "σ({})": special.expit,
    "[|{}| < 1]": lambda t: (np.abs(t) < 1) * 1.0, "[|{}| > 1]": lambda t: (np.abs(t) > 1) * 1.0,
    "clipped {}": lambda t: np.clip(t, -1, 1),
    "σ′({})": lambda t: special.expit(t) * special.expit(-t),
    "σ″({})": lambda t: special.expit(t) * special.expit(-t) * (1 - 2 * special.expit(t)),
    "σ(−{})": lambda t: special.expit(-t), "tanh {}": np.tanh, "(1 − tanh² {})": lambda t: 1 - np.tanh(t) ** 2,
    "tanh² {}": lambda t: np.tanh(t) ** 2, "φ({})": lambda t: np.exp(-t * t / 2) / (2 * np.pi) ** 0.5,
    "Φ({})": special.ndtr, "sin {}": np.sin, "cos {}": np.cos,
    "exp(−{}²)": lambda t: np.exp(-t * t), "log |{}|": lambda t: np.log(np.abs(t)),
    "softmax {}": lambda t: special.softmax(t, axis=1) if t.ndim > 1 else t,
}  # fmt: skip
"""Functions of an array's entries that derivatives are made of, and softmax."""


def arrays_of(arguments: tuple[Any, ...]) -> Terms:
    """Return the arrays of the probe among a claim's arguments, by name, each once."""
    found: Terms = {}
    for name, array in (each for part in arguments for each in _arrays(part)):
        array = np.asarray(asnumpy(array))
        known = any(array.shape == other.shape and np.array_equal(array, other) for other in found.values())
        if array.dtype.kind in "fiub" and array.size and not known:
            found[f"its {name}" if name in found else name] = array.astype(float)
    for one, other in combinations_with_replacement([name for name in ("x", "y", "g") if name in found], 2):
        if found[one].shape == found[other].shape and found[one].ndim > 1:
            found[f"⟨{one}, {other}⟩"] = (found[one] * found[other]).reshape(len(found[one]), -1).sum(1)
    return found


def _arrays(part: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(part, Probe):
        yield from (("x", part.x), *_inside(part), ("y", part.output))
        if part.columns is not None:
            yield from (("g", part.columns[0]), ("u", part.tangents[0]), ("columns", part.columns))
        yield from _with_options("x", part.x, part.layer)
        yield from (*_nested("saved", part.saved), *_nested("noise", part.noise))
    elif isinstance(part, LossProbe):
        yield from (("f", part.output), ("target", part.target))
        if part.target.shape == part.output.shape:
            yield "(f − target)", part.output - part.target
            yield from _with_options("(f − target)", part.output - part.target, part.loss)
        elif part.target.dtype.kind in "iu":
            classes = part.output.shape[1]
            yield "one-hot target", np.moveaxis(np.eye(classes)[part.target % classes], -1, 1)
            weights = [(name, value) for name, value in constants_of(part.loss) if value.shape == (classes,)]
            yield from ((f"{name}[target]", value[part.target % classes]) for name, value in weights)
    if isinstance(part, (Probe, LossProbe)):
        yield from constants_of(part.layer if isinstance(part, Probe) else part.loss)


def constants_of(owner: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays, and the tuples and lists of numbers, of an owner and its class, its buffers and parameters."""
    for name, value in numbers_of(owner.layer if isinstance(owner, Flat) else owner).items():
        numbers = isinstance(value, (tuple, list)) and all(isinstance(each, float) for each in value)
        if isinstance(value, np.ndarray) or (numbers and value):
            yield name, np.asarray(value)


def attributes_of(owner: Any) -> dict[str, Any]:
    """Return what an object has by name: attributes of its classes, a base's first, and its own."""
    return {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()} | vars(owner)


def numbers_of(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object, its buffers and its parameters."""
    groups = [getattr(owner, group, {}) for group in ("buffers", "parameters")]
    return attributes_of(owner) | {name: value for group in groups for name, value in group.items()}


def _with_options(title: str, array: np.ndarray, owner: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield an array times each option that is a number, and where it is larger than that, with a sign and without."""
    options = [(name, value) for name, value in vars(owner).items() if isinstance(value, float) and value not in (0, 1)]
    yield from [(f"[{title} > 0]", array > 0)] if options else []  # the usual one, before those that equal it here
    for name, value in options:
        yield from ((f"({name} {title})", value * array), (f"({name}² + {title}²)", value**2 + array**2))
        yield f"{title} clipped to ±{name}", np.clip(array, -abs(value), abs(value))
        yield from ((f"[{title} > {name}]", array > value), (f"[|{title}| > {name}]", np.abs(array) > value))


def _inside(probe: Probe) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the inputs of a layer of several, and the outputs of the parts of a container."""
    if isinstance(probe.layer, Flat):
        ends = np.cumsum([0, *map(prod, probe.layer.shapes)])
        for i, each in enumerate(probe.layer.split(probe.x, 1)):
            yield f"input {i}", each
            yield f"[input {i}]", (np.arange(ends[-1]) // ends[i + 1] == 0) * (np.arange(ends[-1]) >= ends[i])
    elif is_container(probe.layer):
        for passed in list(passes(leaves_of(probe.layer, probe.x.shape[1:]), probe.x))[:-1]:
            yield f"output of {passed.leaf.name}", passed.output


def _nested(name: str, saved: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(saved, np.ndarray):
        yield name, saved
    elif isinstance(saved, (tuple, list)) and len(saved) < 8:
        yield from (each for i, part in enumerate(saved) for each in _nested(f"{name}[{i}]", part))


def library(terms: Terms, shape: tuple[int, ...]) -> Terms:
    """Return terms and functions of their entries along the axes of a result of some shape that fit theirs."""
    found: Terms = {"1": np.ones((1,) * len(shape))}
    rest: Terms = {}
    for i, j in combinations(range(len(shape)), 2) if len(shape) > 2 else ():
        if shape[i] == shape[j] > 1 and i:
            wide = [shape[axis] if axis in (i, j) else 1 for axis in range(len(shape))]
            found["I" if len(shape) == 3 else f"I along {i}, {j}"] = np.eye(shape[i]).reshape(wide)
    for form, function in {"{}": np.copy, **FUNCTIONS}.items():
        for name, array in terms.items():
            inner = name[0] == "⟨" and form not in ("{}²", "1/{}")
            plain = inner or name[0] == "[" or name in ("g", "u", "columns")
            if form == "{}" or (not plain and array.size < 100_000):
                with np.errstate(all="ignore"):
                    for likely, title, view in _placed(form.format(name), function(array), shape):
                        likely = likely or form == "{}"
                        if len(found if likely else rest) < MOST:
                            (found if likely else rest)[title] = view
    return dict(islice((found | rest).items(), MOST))


def plain(views: Terms, terms: Terms) -> Terms:
    """Return the views of arrays as they are, of means, reciprocals, 1 minus them, and usual functions of f and x."""
    bare = {}
    for title in views:
        name = title.partition(" along")[0].removesuffix(" (flat)").removesuffix("ᵀ").removeprefix("1/")
        name = name.removeprefix("mean ").removesuffix(" over axis 0")
        name = {"softmax f": "f", "σ(f)": "f", "exp f": "f", "σ(x)": "x", "exp x": "x", "tanh x": "x"}.get(name, name)
        bare[title] = name.removeprefix("(1 − ").removesuffix(")") if name.startswith("(1 − ") else name
    return {title: views[title] for title, name in bare.items()
            if name in ("1", "I") or (name in terms and name[0] not in "[(⟨" and " clipped" not in name)}  # fmt: skip


def _placed(name: str, array: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[bool, str, np.ndarray]]:
    """Yield an array along each choice of axes that fit its own, in order; flat, too, and a matrix either way.

    Likely are the first axes, the first with the last, and any single one.
    """
    forms = {name: array, f"{name} (flat)": array.reshape(len(array), -1)} if array.ndim > 2 else {name: array}
    forms |= {f"{name}ᵀ": array.swapaxes(-1, -2)} if 2 <= array.ndim <= 3 else {}
    forms |= {f"mean {name}": array.reshape(len(array), -1).mean(1)} if array.ndim > 1 and name.isidentifier() else {}
    forms |= {f"mean {name} over axis 0": array.mean(0)} if array.ndim == 2 and name.isidentifier() else {}
    forms |= {f"Σ {name}": array.reshape(len(array), -1).sum(1)} if len(shape) == 1 < array.ndim else {}
    few = len(array) if array.ndim == 1 and name.isidentifier() else 0
    for axis, size in enumerate(shape if few > 1 else ()):
        if axis and size > few and size % few == 0:
            wide = [-1 if i == axis else 1 for i in range(len(shape))]
            yield True, f"{name} repeated along {axis}", np.repeat(array, size // few).reshape(wide)
            yield True, f"{name} tiled along {axis}", np.tile(array, size // few).reshape(wide)
    for title, each in forms.items():
        kept = each.reshape([size for size in each.shape if size != 1])
        for axes in combinations(range(len(shape)), kept.ndim):
            if all(shape[axis] == size for axis, size in zip(axes, kept.shape, strict=True)):
                wide = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
                first, last = tuple(range(kept.ndim)), tuple(range(len(shape) - kept.ndim + 1, len(shape)))
                words = title if axes == first else f"{title} along {', '.join(map(str, axes))}"
                yield kept.ndim == 1 or axes in (first, (0, *last)), words, kept.reshape(wide)


# ---------------------------------------------------------------------------------------------------------- quantities


def quantities_of(arguments: tuple[Any, ...], name: str) -> Terms:
    """Return what other quantities are, and sums of gradients and Jacobians, for a part of a quantity."""
    settings = [part.setting if isinstance(part, Runs) else part for part in arguments]
    found: Terms = {}
    for setting in [setting for setting in settings if isinstance(setting, CheckedNetwork)][:1]:
        parameter, _, side = name.partition("/")
        if parameter not in setting.network.parameters or name.count("/") > 1:
            return {}
        for other, definition in ORACLES.items():
            try:
                value: Any = definition(setting.oracle.parts[parameter])
            except Exception:  # a quantity that this network has not, or no oracle
                continue
            value = dict(zip("AB", value, strict=True)).get(side) if isinstance(value, tuple) else value
            found |= {} if value is None else {other: np.asarray(value)}
        if found:
            parts = setting.oracle.parts[parameter]
            mean = parts.gradients.mean(0)
            found |= {"mean ∇ℓ": mean, "‖mean ∇ℓ‖": np.sqrt((mean**2).sum())}
            found["‖gradient‖"] = parts.factor * parts.batch * found["‖mean ∇ℓ‖"]
            named = {"∇ℓ": parts.gradients, "J": parts.jacobians, "Sᵀ J": _rooted(parts),
                     "(∇ℓ − mean)": parts.gradients - mean}  # fmt: skip
            found |= {key: value for title, each in named.items() for key, value in _reductions(title, each)}
    return found


def basic(terms: Terms) -> Terms:
    """Return the quantities, and the mean gradient, of what `quantities_of` returns."""
    return {name: terms[name] for name in ("mean ∇ℓ", *ORACLES) if name in terms}


def _rooted(parts: Parts) -> np.ndarray:
    """SᵀJ of each sample, for a root S of the Hessian in the outputs."""
    values, vectors = np.linalg.eigh(parts.hessians)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None]
    return np.einsum("ncv,nc...->nv...", root, parts.jacobians)


def _reductions(title: str, each: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield an array of samples, and sums, squares, norms, largest entries and variances of it."""
    n = len(each)
    entries = {f"{title}{'²³⁴'[power - 2]}": each**power for power in (2, 3, 4)}
    for name, array in {title: each, f"|{title}|": np.abs(each), **entries}.items():
        flat = array.reshape(n, -1)
        yield from ((name, array), (f"Σₙ {name}", array.sum(0)), (f"maxₙ {name}", array.max(0)))
        yield from ((f"{name} of the first sample", array[0]), (f"{name} of the last sample", array[-1]))
        yield from ((f"Σ {name} of each sample", flat.sum(1)), (f"Σ {name}", array.sum()))
        yield from ((f"|Σₙ {name}|", np.abs(array.sum(0))), (f"(Σ {name} of each sample)²", flat.sum(1) ** 2))
        yield f"Σ {name} {name} of each two samples", flat @ flat.T
        yield from ((f"(Σₙ {name})²", array.sum(0) ** 2), (f"‖{name}‖ of each sample", _norms(array)))
        if array.ndim > 2:
            yield from ((f"Σ {name} over outputs", array.sum(1)), (f"Σₙ Σ {name} over outputs", array.sum((0, 1))))
            yield f"Σₙ (Σ {name} over outputs)²", (array.sum(1) ** 2).sum(0)
    yield from ((f"‖Σₙ {title}‖²", (each.sum(0) ** 2).sum()), (f"var {title}", each.var(0)))


def _norms(array: np.ndarray) -> np.ndarray:
    return (array.reshape(len(array), -1) ** 2).sum(1) ** 0.5


# --------------------------------------------------------------------------------------------------------------- sizes


def sizes_of(arguments: tuple[Any, ...]) -> Sizes:
    """Return the sizes of a claim's arguments by name, the most telling first; options of its subject among them."""
    found: Sizes = {}
    own = [part for part in arguments if isinstance(part, str) and part in ("mean", "sum")]  # of which R is
    signals = [each.signal for part in arguments if isinstance(part, Quantity) for each in part.statistics()]
    drawn = not signals or any(isinstance(signal, MonteCarlo) for signal in signals)
    for part in ((part.variants[own[0]] if own else part.setting) if isinstance(part, Runs) else part
                 for part in arguments):  # fmt: skip
        if isinstance(part, Probe):
            found |= _shapes("input", part.x.shape) | _shapes("output", part.output.shape)
            found |= scalars_of(part.layer) | ({} if part.columns is None else {"V": len(part.columns)})
        elif isinstance(part, LossProbe):
            found |= _shapes("output", part.output.shape) | scalars_of(part.loss)
            found["c"] = part.loss.summed_weight(part.output.shape[1:])
        elif isinstance(part, CheckedNetwork):
            out = part.network.output_shape(part.x.shape[1:])
            found |= {"N": len(part.x)} | ({"M": len(part.targets)} if drawn and part.targets is not None else {})
            found |= _shapes("output", (len(part.x), *out))
            found |= {"R": part.loss.factor(len(part.x), part.y), "c": part.loss.summed_weight(out)}
    return found


def _shapes(name: str, shape: tuple[int, ...]) -> Sizes:
    n, features = shape[0], prod(shape[1:])
    found: Sizes = {"N": n, "N − 1": n - 1, f"{name} features": features}
    if len(shape) > 2:
        found |= {f"{name} axis {axis}": size for axis, size in enumerate(shape) if axis}
        found[f"{name} positions"] = prod(shape[2:])
    ratio = {f"{name} features/({name} features − 1)": features / (features - 1)} if features > 1 else {}
    return found | {f"{name} features − 1": features - 1} | ratio


def scalars_of(subject: Any) -> Sizes:
    """Return the numbers among public attributes, buffers and parameters of a subject, and the entries of tuples.

    Of arrays that are no parameters, such as weights of classes, mean and sum are among them.
    """
    subject = subject.layer if isinstance(subject, Flat) else subject
    own = {key: value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
           for key, value in numbers_of(subject).items()}  # fmt: skip
    arrays = {key: value for key, value in own.items() if isinstance(value, np.ndarray)}
    few = [(key, value) for key, value in arrays.items() if value.size <= FEW]
    for key, value in arrays.items():
        numbers = value.dtype.kind in "fiub" and 1 < value.size <= MANY
        if numbers and key not in getattr(subject, "parameters", {}) and not key.startswith("_"):
            own |= {f"mean of {key}": float(value.mean()), f"Σ {key}": float(value.sum())}
    own |= {f"{key}[{i}]": entry for key, value in few if value.ndim == 1 for i, entry in enumerate(value.tolist())}
    window = vars(own["window"]) if hasattr(own.get("window"), "kernel") else {}
    found: Sizes = {}
    for name, value in (own | window).items():
        if isinstance(value, tuple) and all(isinstance(each, int) for each in value) and value:
            found |= {f"{name}[{i}]": float(each) for i, each in enumerate(value)} | {f"Π {name}": float(prod(value))}
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and not name.startswith("_"):
            found[name if value >= 0 else f"|{name}|"] = abs(float(value))
    return found | {f"1 − {name}": 1 - size for name, size in found.items() if 0 < size < 1}
