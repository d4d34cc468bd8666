"""Edits of a method: care that it should take of its arguments, its result, and its owner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from operator import add, floordiv, mul, sub
from typing import Any
from unittest import mock

import numpy as np

from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.quantities import Quantity
from gbackprop.quantities.base import Scale
from gbackprop.testing.diagnosis.arguments import Change, Edit, on_subject
from gbackprop.testing.diagnosis.options import with_attribute
from gbackprop.testing.diagnosis.terms import constants_of, scalars_of
from gbackprop.testing.probe import Probe

Method = Callable[..., Any]
Wrapper = Callable[[Method, Any, str], Method]
"""A method as it should be, from the method, its owner, and its name."""


def _each(change: Callable[[np.ndarray], np.ndarray], given: Any) -> Any:
    """Change each array of an argument or result."""
    if isinstance(given, (tuple, list)):
        return type(given)(_each(change, each) for each in given)
    return change(given) if isinstance(given, np.ndarray) else given


def _of_arguments(change: Callable[[np.ndarray], np.ndarray]) -> Wrapper:
    return lambda sound, owner, name: lambda *given, **named: sound(*(_each(change, each) for each in given), **named)


def _of_result(change: Callable[..., Any]) -> Wrapper:
    """A change of the result, given the arguments, too."""
    return lambda sound, owner, name: lambda *given, **named: change(sound(*given, **named), *given)


def _cast(result: Any, *given: Any) -> Any:
    kinds: list[np.dtype] = [each.dtype for each in given if isinstance(each, Scale)]
    _each(lambda a: kinds.append(a.dtype) or a if a.dtype.kind == "f" else a, list(given))  # type: ignore[func-returns-value]
    return _each(lambda a: a.astype(kinds[0]) if a.dtype.kind in "fib" else a, result)


def _afresh(sound: Method, owner: Any, name: str) -> Method:
    own = getattr(owner, "__dict__", {}).get(name)  # a method of this object alone

    def afresh(*given: Any, **named: Any) -> Any:
        twin = copy.deepcopy(owner)
        vars(twin).pop(name, None)  # the wrapper
        return (getattr(twin, name) if own is None else own)(*given, **named)

    return afresh


def _seeded(sound: Method, owner: Any, name: str) -> Method:
    def seeded(*given: Any, **named: Any) -> Any:
        with mock.patch("numpy.random.default_rng", return_value=np.random.Generator(np.random.PCG64(0))):
            return sound(*given, **named)

    return seeded


def _complete(sound: Method, owner: Any, name: str) -> Method:
    return lambda *given: {each: ParameterJacobian() for each in owner.parameters} | sound(*given)


def inherited(sound: Method, owner: Any, name: str) -> Method:
    """Return the method of the class above, of one that an object alone has that of its class."""
    kinds = [kind for kind in type(owner).__mro__ if name in vars(kind)]
    return partial(vars(kinds[name not in getattr(owner, "__dict__", {})])[name], owner)


CARE: dict[str, tuple[float, Wrapper]] = {
    "its arguments were copied": (1, _of_arguments(np.copy)),
    "its arguments were contiguous": (1.1, _of_arguments(np.ascontiguousarray)),
    "its result were copied": (1.1, _of_result(lambda y, *_: copy.deepcopy(y))),
    "its result were cast to the type of its arguments": (1.1, _of_result(_cast)),
    "its result were cut to the slice that is given": (1.1, _of_result(
        lambda y, *given: y[given[-1]] if isinstance(given[-1], slice) else y)),
    "it wrote nothing into its owner": (1.2, _afresh),
    "its random numbers were seeded": (1.3, _seeded),
    "it were the inherited one": (1.6, inherited),
    "it gave a Jacobian for each of the other parameters, too": (1.1, _complete),
    "its result had no last axis": (1.3, _of_result(lambda y, *_: y[:-1] if isinstance(y, tuple) else y[..., 0])),
    "its result had no first axis": (1.3, _of_result(lambda y, *_: y[1:] if isinstance(y, tuple) else y[0])),
    "its shapes were reversed": (1.3, _of_result(lambda y, *_: {name: shape[::-1] for name, shape in y.items()})),
}  # fmt: skip
"""Edits of a method, with their cost."""

RESULTS: dict[str, tuple[float, Wrapper]] = {
    "its result were larger by 1": (1.2, _of_result(lambda y, *_: y + 1)),
    "its result were smaller by 1": (1.2, _of_result(lambda y, *_: y - 1)),
    "its result were doubled": (1.3, _of_result(lambda y, *_: 2 * y)),
    "its result were halved": (1.3, _of_result(lambda y, *_: y // 2)),
    "its result were 1 minus it": (1.4, _of_result(lambda y, *_: 1 - y)),
    "the last axes of its result were exchanged": (1.3, _of_result(lambda y, *_: y.swapaxes(-1, -2))),
    "the last three axes of its result were reversed": (1.4, _of_result(lambda y, *_: y.swapaxes(-1, -3))),
    "the largest of each sample were subtracted from the output": (1.3, _of_arguments(
        lambda a: a - a.max(1, keepdims=True) if a.dtype.kind == "f" and a.ndim > 1 else a)),
}  # fmt: skip
"""Edits of what a method gives: they say nothing where it is compared with itself, and both sides are others."""

DRAWS: dict[str, tuple[float, Wrapper]] = {
    "the next class were drawn": (1.2, _of_result(lambda y, f, *_: (y + 1) % f.shape[1])),
    "the previous class were drawn": (1.2, _of_result(lambda y, f, *_: (y - 1) % f.shape[1])),
    **{f"draws were {words} as far from the output": (1.3, _of_result(lambda y, f, *_, c=c: f + (y - f) * c))
       for words, c in {"√2 times": 2**0.5, "1/√2 times": 0.5**0.5, "twice": 2.0, "half": 0.5}.items()},
}  # fmt: skip


def _draws(loss: Any) -> dict[str, tuple[float, Wrapper]]:
    """Return edits of draws: other classes, and draws that are as far from the output as options say."""
    powers = {"{} times": 1.0, "1/{} times": -1.0, "√{} times": 0.5, "1/√{} times": -0.5}
    sizes: dict[str, Any] = {name: size for name, size in scalars_of(loss).items() if size not in (0, 1)}
    sizes |= {name: array for name, array in constants_of(loss) if array.ndim and (array > 0).all()}
    return DRAWS | {
        f"draws were {form.format(f'({name})' if ' ' in name else name)} as far from the output": (
            1.25 + 0.2 * (not name.isidentifier()), _of_result(lambda y, f, *_, c=size**power: f + (y - f) * c))
        for name, size in sizes.items() for form, power in powers.items()
    }  # fmt: skip


def of_care(method: str, probe: Any, conduct: bool = False) -> Iterator[Edit]:
    """Yield edits of the method that a claim is on, in a copy of its owner; or those of its `conduct` alone."""
    shapes = _shapes(probe) if method == "output_shape" and isinstance(probe, Probe) else {}
    ways = CARE | ({} if conduct else RESULTS) | (_draws(probe.loss) if method == "draw" else shapes)
    for words, (cost, wrapper) in ways.items():
        if wrapper is not inherited or method != "output_shape":  # that asks the forward pass
            yield cost, words, wrapped(method, wrapper)
    for value in ("zero", "diagonal", "dense") if method == "curvature" else ():
        yield 1, f"{method} were {value!r}", on_subject(partial(with_attribute, method, value))


def of_methods(method: str, arguments: tuple[Any, ...]) -> Iterator[Edit]:
    """Yield edits of the method that a numeric claim is on: of its result, or of the statistics that it finishes."""
    if method == "hessian_sqrt":
        yield 1.3, "its columns and the outputs were exchanged", wrapped(method, _of_result(
            lambda roots, *_: np.swapaxes(roots, 0, 2)))  # fmt: skip
    for quantity in (part for part in arguments if isinstance(part, Quantity)):
        for k, statistic in enumerate(quantity.statistics()):
            name = f"its statistic {k}, {statistic.reduction.name} of {getattr(statistic.signal, 'name', 'inputs')},"
            for words, change in STATISTICS.items():
                yield 1.5, f"{name} {words}", wrapped(method, partial(_of_statistic, k, change))


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "had the other sign": np.negative, "were all zeros": np.zeros_like, "were doubled": lambda a: 2 * a,
    "were squared": np.square, "were replaced by absolute values": np.abs,
    "had its first two axes exchanged": lambda a: np.swapaxes(a, 0, 1),
    "had its last two axes exchanged": lambda a: np.swapaxes(a, -1, -2),
}  # fmt: skip
"""Edits of an array that a quantity finishes."""


def _of_statistic(k: int, change: Callable[[np.ndarray], np.ndarray], sound: Method, owner: Any, name: str) -> Method:
    return lambda scale, *shares: sound(scale, *shares[:k], change(shares[k]), *shares[k + 1 :])


def wrapped(method: str, wrapper: Wrapper | None = None) -> Change:
    """Return an edit of arguments: a method of their subject is wrapped, or put in the place of itself."""
    wrapper = wrapper or (lambda sound, owner, name: lambda *given, **named: sound(*given, **named))
    return on_subject(lambda owner: _wrapped(owner, "finish" if isinstance(owner, Quantity) else method, wrapper))


def _wrapped(owner: Any, method: str, wrapper: Wrapper) -> Any:
    parameter, _, own = method.rpartition(".")
    twin = copy.copy(owner)
    if not parameter:
        setattr(twin, method, wrapper(getattr(twin, method), twin, method))
        return twin
    jacobians = _of_result(lambda found, *_: {**found, parameter: _wrapped(found[parameter], own, wrapper)})
    return _wrapped(owner, "parameter_jacobians", jacobians)


def _shapes(probe: Any) -> dict[str, tuple[float, Wrapper]]:
    """Return other rules for the shape of the output: of the input's axes, options, and its own."""
    found: dict[str, Callable[..., Any]] = {"it gave the input's shape": lambda y, x: x}
    options = {name: value for name, value in vars(probe.layer).items() if isinstance(value, (int, tuple))}
    for i in range(len(probe.x.shape) - 1):
        axis, given = f"axis {i} of its result were", f"the input's axis {i}"
        found[f"{axis} larger by 1"] = lambda y, x, i=i: (*y[:i], y[i] + 1, *y[i + 1 :])
        found[f"{axis} smaller by 1"] = lambda y, x, i=i: (*y[:i], y[i] - 1, *y[i + 1 :])
        for name, value in options.items():
            rules = {name: lambda size, v: v, f"{given} minus {name} plus 1": lambda size, v: size - v + 1}
            ways = {"times": mul, "over": floordiv, "plus": add, "minus": sub}
            rules |= {f"{given} {way} {name}": rule for way, rule in ways.items()}
            for words, rule in rules.items() if isinstance(value, int) else ():
                found[f"{axis} {words}"] = lambda y, x, i=i, r=rule, v=value: (*y[:i], r(x[i], v), *y[i + 1 :])
                others = f"it gave the input's shape but for axis {i}: {words}"
                found[others] = lambda y, x, i=i, r=rule, v=value: (*x[:i], r(x[i], v), *x[i + 1 :])
    for name, value in options.items():
        if isinstance(value, tuple):
            found[f"the last axes of its result were {name}"] = lambda y, x, v=value: (*x[: len(x) - len(v)], *v)
    return {words: (1.2 + 0.1 * (" but for " in words), _of_result(rule)) for words, rule in found.items()}
