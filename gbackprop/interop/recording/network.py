"""`trace`: a NumPy function of parameters and a batch as a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gbackprop.array import FLOATS, asnumpy, is_array
from gbackprop.base.checks import batch_of, check_flag, kind_of
from gbackprop.base.recording.arrays import record
from gbackprop.base.recording.refused import BatchSizeError, MixedSamplesError, NoDerivativeError, TraceError
from gbackprop.base.recording.tape import Tape
from gbackprop.calculus.layer import INPUT, Leaf, leaves_of
from gbackprop.calculus.several import Inputs, items_of
from gbackprop.calculus.walk import values_upwards
from gbackprop.interop.recording.examples import moved, samples, two_and_three
from gbackprop.interop.recording.reading import Reading
from gbackprop.interop.recording.steps import split
from gbackprop.interop.recording.table import TABLE
from gbackprop.layers import Parameter
from gbackprop.network import Graph
from gbackprop.network.patterns import replaced

MANY, SMALL = 129, 1_000_000
"""A number of samples for which a function is tried, if it has fewer numbers as inputs and as outputs."""

NOISE = 100
"""Arrays may differ by so often what 4 roundings move them by."""


def trace(function: Callable[[Any, Any], Any], parameters: Any, x: Any, replace: bool = True) -> Graph:
    """Make a network of a NumPy function.

    The function is called with arrays that compute as NumPy's do and write down what is done to them, with 2 samples
    and with 3, and with other numbers; what the network computes is compared with the function itself. Loops and calls
    unroll. An error names the line of the function, and says what to write instead. The network has all quantities;
    those in Kronecker form if each parameter that is not frozen is the weight or the bias of a product.

    Parameters
    ----------
    function : callable
        ``function(parameters, x)`` returns the outputs of a batch, shape (N, *out). The outputs of a sample may not
        depend on other samples.
    parameters : dict, list or tuple, nested, of ndarray
        Floats; names in the network are paths, ``"block.0.weight"``. The arrays are copied.
    x : ndarray, shape (N, *in), or a tuple or dictionary of these
        A batch by which shapes are found, of any N ≥ 1: floats, or integers that are indices, ``table[x]``. The
        function gets several inputs as they are here.
    replace : bool
        Whether operations that together are a layer, such as ``x @ w + b``, become that layer.

    Returns
    -------
    Graph
        In float64 if a parameter is, else in float32. NumPy's broadcasting is that of batches: the batch is axis 0.

    Raises
    ------
    TraceError
        Of the kinds in docs/trace.md, each a class in ``gbackprop.base.recording.refused``.
    TypeError, ValueError
        If an argument does not fit.

    Examples
    --------
    >>> def model(p, x):
    ...     return np.tanh(x @ p["w"] + p["b"]) @ p["v"]
    >>> network = gb.trace(model, {"w": w, "b": b, "v": v}, x)
    """
    check_flag("replace", replace)
    every = list(named(parameters))
    values = dict(every)
    if len(values) < len(every):
        raise ValueError(f"parameters: expected different paths, got {[name for name, _ in every]}")
    if not values:
        raise ValueError("parameters: expected at least one array, got none")
    parts = {f"input.{key}": checked_batch(each) for key, each in items_of(x)} or {"input": checked_batch(x)}
    batch = rebuilt(x, parts, "input")
    inputs = Inputs.of(batch)
    if inputs is not None:
        inputs.packed(batch)
    dtype = "float64" if "float64" in {value.dtype.name for value in values.values()} else "float32"
    exact = {name: value.astype("float64") for name, value in values.items()}
    rng = np.random.default_rng(0)

    def recorded(n: int, beside: int | None) -> tuple[Tape, Any]:
        return record(lambda given: function(rebuilt(parameters, given), rebuilt(x, given, "input")), {
            **{name: moved(value, rng) for name, value in exact.items()},
            **{name: samples(each, n, rng, beside) for name, each in parts.items()},
        })  # fmt: skip

    two, three, again = two_and_three(recorded, "x", 0)
    reading = Reading(two, three, lambda: again(2)[0], TABLE)
    layers = {name: Parameter(value.shape, initial=value) for name, value in values.items()}
    output = reading.read({**layers, **dict.fromkeys(parts)})
    unused = [name for name in exact if name not in reading.nodes]
    if not reading.nodes:
        _check_used(unused)
    options: Any = {"rng": 0, "dtype": "float64", "inputs": inputs and inputs.shapes}
    network = Graph(reading.nodes, output, **options)
    given, noise = dict(zip([*exact, *parts], three[0].values, strict=False)), noise_of(three[0])
    compare(network, reading, given, batch_of(network, rebuilt(x, given, "input")), noise)
    _check_used(unused)
    network = Graph(replaced(reading.nodes, output, reading.shapes), output, **options) if replace else network
    network.parameters.load(exact)
    same = function(rebuilt(parameters, exact), batch)
    words, last = "the function computes otherwise with plain arrays", noise[three[1].number]
    tolerance = 1e-8 if dtype == "float64" else 1e-4
    close("x", found := network(batch), same, TraceError, words, last, tolerance)
    compare_sizes("x", found, lambda rows: function(
        rebuilt(parameters, exact), rebuilt(x, {name: each[rows] for name, each in parts.items()}, "input")
    ), sum(each[0].size for each in parts.values()), last, tolerance)  # fmt: skip
    network = network.astype(dtype)
    if dtype == "float32":  # recorded in float64, of which a function may ask
        single = {name: each.astype(dtype) if each.dtype.kind == "f" else each for name, each in parts.items()}
        batch = rebuilt(x, single, "input")
        same = function(rebuilt(parameters, values), batch)
        close("x", network(batch), same, TraceError, f"{words} of float32", 2.0**29 * last, 1e-2)
    return network


def _check_used(unused: list[str]) -> None:
    if unused:
        raise TraceError(f"parameters: expected those on which the output depends, got {unused} on which it does not")


def named(parameters: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays in nested dictionaries, lists and tuples by their paths."""
    if isinstance(parameters, dict | list | tuple):
        items: Any = parameters.items() if isinstance(parameters, dict) else enumerate(parameters)
        for key, value in items:
            if not isinstance(key, str | int) or key == "" or (not path and key == "input"):
                raise ValueError(f"parameters{path and f' {path}'}: expected names other than 'input', got {key!r}")
            yield from named(value, f"{path}.{key}" if path else str(key))
        return
    if not path:
        raise TypeError(f"parameters: expected a dictionary, list or tuple of arrays, got {type(parameters).__name__}")
    value = np.asarray(parameters) if isinstance(parameters, float | np.floating) else parameters
    if not is_array(value):
        raise TypeError(f"parameters {path}: expected an array of floats, got {kind_of(value)}; give what is no "
                        "parameter by functools.partial")  # fmt: skip
    if value.dtype.name not in FLOATS:
        raise NoDerivativeError(f"parameters {path}: expected floats, got {value.dtype}; integers and booleans have no "
                                "derivative: give them by functools.partial, or as floats")  # fmt: skip
    yield path, asnumpy(value)


def rebuilt(parameters: Any, given: Any, path: str = "") -> Any:
    """Return the nested parameters with others in the place of each array."""
    if isinstance(parameters, dict | list | tuple):
        keys = list(parameters) if isinstance(parameters, dict) else range(len(parameters))
        new = {key: rebuilt(parameters[key], given, f"{path}.{key}" if path else str(key)) for key in keys}
        make = getattr(parameters, "_make", type(parameters))  # of a named tuple
        return new if isinstance(parameters, dict) else make(new.values())
    return given[path]


def checked_batch(x: Any) -> np.ndarray:
    """Return the example in float64."""
    if not is_array(x) or x.ndim == 0 or 0 in x.shape:
        raise TypeError(f"x: expected an array (N, *in) with N ≥ 1, got {kind_of(x)}")
    if x.dtype.kind not in "iu" and x.dtype.name not in FLOATS:
        raise NoDerivativeError(f"x: expected floats, or integers that are indices, got {x.dtype}")
    return asnumpy(x).astype("float64" if x.dtype.kind == "f" else "int64")


def noise_of(tape: Tape) -> list[float]:
    """Return by how much each array of a record moves where those that it begins with do by up to 4 roundings.

    What is left where numbers cancel is of this size, whatever theirs is: no fixed one tells it from small numbers.
    """
    near, rng = copy.copy(tape), np.random.default_rng(0)
    near.values = [*tape.values]
    with np.errstate(all="ignore"):
        for step in tape.steps:
            if step.name == "leaf":
                (number,), unit = step.results, 4 * np.finfo(np.float64).eps
                if (value := tape.values[number]).dtype.kind == "f":
                    near.values[number] = value * (1 + unit * rng.uniform(-1, 1, value.shape))
            elif step.function is not None:
                found = step.function(*near.lowered(step.args), **near.lowered(step.kwargs))
                every = found if isinstance(found, tuple | list) else [found]
                for number, value in zip(step.results, every, strict=True):
                    near.values[number] = np.asarray(value)
        pairs = zip(tape.values, near.values, strict=True)
        return [float(np.nanmax(abs(a - b), initial=0)) if a.dtype.kind == "f" else 0.0 for a, b in pairs]


def compare(
    network: Graph, reading: Reading, parameters: dict[str, np.ndarray], x: np.ndarray, noise: list[float]
) -> None:
    """Compare every array of the record of 3 samples with the network's; the first that differs is an error."""
    network.parameters.load({name: parameters[name] for name in network.parameters})
    leaves = leaves_of(network, x.shape[1:])
    at = outputs(leaves, x)
    ends: dict[str, int] = {}
    for leaf in leaves:
        parts = leaf.name.split(".")
        ends |= {".".join(parts[: i + 1]): leaf.position for i in range(len(parts))}
    for number, value in reading.values.items():
        if value.places is None and value.constant is None and value.pieces and value.pieces[0] in ends:
            own = split(reading.three.values[number], value.batch, 3)
            got = at[ends[value.pieces[0]]]
            what = f"{value.line}: the result for a sample depends on other samples"
            got = got.reshape(len(got), *value.shape)
            close(what, got, own, MixedSamplesError, "the batch axis must stay in order", noise[number])


def compare_sizes(
    what: str, found: np.ndarray, function: Callable[[np.ndarray], Any], size_in: int, noise: float, tol: float = 1e-8
) -> None:
    """Compare a network's rows with the function of one sample, of one more than in the batch, and of many.

    A sample has `size_in` numbers as the input.
    """
    n = len(found)
    for size in (1, n + 1, *[MANY] * (MANY * max(size_in, found[0].size) < SMALL)):
        rows = np.arange(size) % n
        try:
            expected = function(rows)
        except Exception:  # the function itself refuses such a batch
            continue
        if size == 1 and np.size(expected) == found[0].size:  # np.squeeze drops the axis of one sample
            expected = np.reshape(expected, found[:1].shape)
        words = f"the function computes otherwise with N = {size} samples: their number may not decide"
        close(what, found[rows], expected, BatchSizeError, words, noise, tol)


def outputs(leaves: list[Leaf], x: np.ndarray) -> dict[int, np.ndarray]:
    """Return the output of each layer."""
    at: dict[int, Any] = {INPUT: x}
    with np.errstate(all="ignore"):
        for leaf, inputs in values_upwards(leaves, at):
            at[leaf.position] = leaf.layer.forward(*inputs)[0]
    return at


def close(
    what: str, got: np.ndarray, expected: Any, kind: type[TraceError], words: str, noise: float, tol: float = 1e-8
) -> None:
    """Check that two arrays are equal but for rounding, of which `noise` is a measure."""
    expected = np.asarray(expected)
    if got.shape[1:] == expected.shape[1:] and len({*got.shape[:1], *expected.shape[:1], 1}) <= 2:
        finite = expected[np.isfinite(expected)] if expected.dtype.kind == "f" else expected
        scale = float(np.abs(finite.astype(float)).max(initial=0))
        if np.allclose(got, expected, rtol=tol, atol=tol / 100 * scale + NOISE * noise, equal_nan=True):
            return
    raise kind(f"{what}: {words}")

