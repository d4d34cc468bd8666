"""Checks before anything is computed. Each message names the argument, what was expected and what was given."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from math import inf, isfinite
from numbers import Integral, Real
from operator import is_
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from gbackprop.array import FLOAT_NAMES, FLOATS, Array, all_finite, bounds, device_of, is_array

NO_ARGUMENTS = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)])

SHIPPED = "gbackprop."
"""The prefix of the modules whose classes are shipped."""

UNCHANGED = "expected no change after it was made; make another one"

VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Constructed:
    """Base class of layers, losses, quantities and optimizers: errors of arguments name the class that was called.

    Python names the class that defines `__init__`, which can be a private one. Copies and unpickled objects, which are
    made without arguments, are not checked.

    An option of a class of the library can be assigned later where it then counts, and is an error elsewhere.
    """

    fixed: ClassVar[frozenset[str]] = frozenset()
    """Names of attributes from which others follow when an object is made: they cannot be assigned later."""

    remade: ClassVar[bool] = False
    """True if another object of the class can be made at no cost, so that its constructor checks what is assigned."""

    _options: ClassVar[tuple[str, ...]] = ()  # the arguments that attributes have the names of
    _stored: ClassVar[frozenset[str]] = frozenset()  # the attributes that the functions of a class store
    _dropped: ClassVar[frozenset[str]] = frozenset()  # arguments that are none of these

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        known = [vars(each).get("_stored") or _stored_by(each) for each in cls.__mro__]
        stored = cls._stored = frozenset().union(*known)
        code = getattr(cls.__init__, "__code__", None)
        takes = () if code is None else code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        found = {each for each in takes if each in stored or isinstance(getattr(cls, each, None), property)}
        cls._dropped = frozenset(takes) - found
        cls._options = tuple(found) if code is not None and not code.co_flags & VARIABLE else ()

    if not TYPE_CHECKING:  # with it, mypy takes any name for an attribute

        def __setattr__(self, name: str, value: Any) -> None:
            kind = type(self)  # of the library: a user's class knows what it does with an attribute
            if kind.__module__.startswith(SHIPPED):
                if name in kind._dropped or (name in kind.fixed and name in vars(self)):
                    raise AttributeError(f"{kind.__name__}, {name}: {UNCHANGED}")
                if name not in kind._stored and name in (vars(self).get("drawn") or ()):  # as in torch
                    raise AttributeError(f"{kind.__name__}, {name}: expected parameters[{name!r}] = …, which is read")
                if kind.remade and name in kind._options:  # the library knows what it assigns
                    by = sys._getframe(1).f_globals.get("__name__", "")
                    value = value if by.startswith(SHIPPED) else _as_made(self, name, value)
            super().__setattr__(name, value)

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if given or named:
            own = cls.__init__ is not object.__init__
            signature = signature_of(cls.__init__) if own else NO_ARGUMENTS
            try:
                signature.bind(None, *given, **named)
            except TypeError as error:
                raise TypeError(_misfit(cls.__name__, signature, named, error)) from None
        new = super().__new__
        return new(cls) if new is object.__new__ else new(cls, *given, **named)

    __new__.__signature__ = NO_ARGUMENTS  # type: ignore[attr-defined]  # for help()


def _as_made(made: Any, name: str, value: Any) -> Any:
    """Return an option as the constructor stores it; raise what that raises, or if parameters had other shapes."""
    kind = type(made)
    given = {each: getattr(made, each) for each in kind._options if hasattr(made, each)}
    try:
        kind(**given)
    except Exception:  # its attributes are not what its constructor takes
        raise AttributeError(f"{kind.__name__}, {name}: {UNCHANGED}") from None
    other = kind(**{**given, name: value})
    shapes = [each.parameter_shapes() for each in (made, other)] if getattr(made, "drawn", None) else [{}, {}]
    if any(shape != shapes[1].get(key, shape) for key, shape in shapes[0].items()):
        raise AttributeError(f"{kind.__name__}, {name}: {UNCHANGED}")
    return getattr(other, name)


signature_of = lru_cache(maxsize=512)(inspect.signature)
"""The signature of a function, cached: inspecting it takes longer than most checks of its arguments."""


def _stored_by(kind: type) -> frozenset[str]:
    """Return the names of attributes that the functions of a class store, of whatever object."""
    codes = [each.__code__ for each in vars(kind).values() if isinstance(each, FunctionType)]
    storing = [code for code in codes if dis.opmap["STORE_ATTR"] in code.co_code[::2]]
    every = [each for code in storing for each in dis.get_instructions(code)]
    return frozenset(each.argval for each in every if each.opname == "STORE_ATTR")


def is_shipped(value: Any) -> bool:
    """Return whether a class, or that of an object, is one of gbackprop's."""
    return str(value.__module__).startswith(SHIPPED)


def is_original(part: Any) -> bool:
    """Return whether an object computes as a shipped class does, checks and all: wrappers that ship change nothing."""
    return is_shipped(part) and all(is_shipped(type(method)) for method in own_methods(part).values())


def own_methods(part: Any) -> dict[str, Any]:
    """Return the functions by which an object computes that are not gbackprop's, by name.

    They stand in a user's class, or are attributes in place of the class's methods. What was assigned to a class that
    ships is taken for gbackprop's: so faults are planted.
    """
    found: dict[str, Any] = {}
    for kind in type(part).__mro__[-2::-1]:
        found |= {} if kind.__module__.startswith(SHIPPED) else foreign_in(kind)
    return found | {name: value for name, value in vars(part).items() if callable(value) and hasattr(type(part), name)}


def foreign_in(kind: type) -> dict[str, Any]:
    """Return the functions in a class that are not gbackprop's, by name, as it is now."""
    now, (before, found) = vars(kind), _FOREIGN.get(kind, ({}, {}))
    if before.keys() != now.keys() or not all(map(is_, before.values(), now.values())):
        found = {name: value for name, value in now.items() if not is_ours(value)}
        _FOREIGN[kind] = dict(now), found
    return found


_FOREIGN: WeakKeyDictionary[type, tuple[dict[str, Any], dict[str, Any]]] = WeakKeyDictionary()
"""The attributes of each class that was looked at, and the functions among them that are not gbackprop's."""


def is_ours(value: Any) -> bool:
    """Return whether an attribute of a class is no function of somebody else's, whatever name that bears."""
    function = getattr(value, "__func__", value)
    if function.__class__ is not FunctionType:
        function = getattr(function, "fget", getattr(function, "func", function))
    if function.__class__ is FunctionType:
        return str(function.__globals__.get("__name__")).startswith(SHIPPED)
    return isinstance(function, type) or not callable(function) or is_shipped(type(function))


def _misfit(name: str, signature: inspect.Signature, named: Mapping[str, Any], error: TypeError) -> str:
    takes = [str(p.replace(annotation=p.empty, default=p.empty)) for p in list(signature.parameters.values())[1:]]
    unknown = [repr(key) for key in named if key not in signature.parameters]
    problem = f" has no argument {', '.join(unknown)}" if "unexpected keyword" in str(error) else f": {error}"
    return f"{name}{problem}; it takes {', '.join(takes) or 'none'}"


def check_parameters(parameters: Mapping[str, Any], x: Array) -> None:
    """Check that all parameters are finite, of one dtype and on one device, and that `x` is, too, and has these."""
    for name, value in [(name, v) for name, v in parameters.items() if type(v) is not np.ndarray and not is_array(v)]:
        if value is None:  # an option was assigned afterwards
            raise ValueError(f"parameter {name}: expected an array, got none: it was not drawn")
        check_shape(name, value, ())  # raises
    first: tuple[str, Array] | None = None
    alike = {(type(value), value.dtype) for value in (x, *parameters.values())} == {(np.ndarray, x.dtype)}
    for name, value in () if alike else parameters.items():
        if first is None:
            first, device = (name, value), device_of(value)
            check_same("x", x, name, value)
        if value.dtype != first[1].dtype or device_of(value) != device:
            cure = "net.to moves" if value.dtype == first[1].dtype else "net.astype converts"
            raise TypeError(
                f"parameter {name}: expected {first[1].dtype} on {device_of(first[1])} as {first[0]} is, "
                f"got {value.dtype} on {device_of(value)} ({cure} all of them)"
            )
    if all_finite(x, *parameters.values()):
        return
    if not all_finite(x):
        raise ValueError("x: expected finite numbers, got NaN or infinity")
    for name, value in parameters.items():
        if not all_finite(value):
            raise ValueError(f"parameter {name}: expected finite numbers, got NaN or infinity")


def check_shapes(leaves: Any) -> None:
    """Check that parameters, of those that are frozen, too, are arrays of their shapes."""
    for name, layer, key, shape in shapes_of(leaves):
        check_shape(name, (layer.drawn or {}).get(key), shape)


def shapes_of(leaves: Any) -> list[tuple[str, Any, str, tuple[int, ...]]]:
    """Return name, layer, key and shape of each parameter, of those that are frozen, too."""
    each = [(leaf, key, (*shape,)) for leaf in leaves for key, shape in leaf.layer.parameter_shapes().items()]
    names = [leaf.parameters.get(key) or f"{leaf.name}.{key}".removeprefix(".") for leaf, key, _ in each]
    return [(name, leaf.layer, key, shape) for name, (leaf, key, shape) in zip(names, each, strict=True)]


def check_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Check that a parameter is an array of its shape, not one that broadcasts; None, of one not drawn, passes."""
    if value is not None and not is_array(value):
        raise TypeError(f"parameter {name}: expected a NumPy or CuPy array, got {kind_of(value)}")
    if value is not None and value.shape != tuple(shape):
        raise ValueError(f"parameter {name}: expected shape {tuple(shape)}, got {value.shape}")


def check_batch(x: Any) -> None:
    """Check that `x` is a non-empty batch of floats, or of integers (`layers.inputs`: which layers take them)."""
    if not is_array(x) or (x.dtype not in FLOAT_NAMES and x.dtype.kind not in "iu"):
        check_floats("x", x)  # raises
    if x.ndim < 1 or x.shape[0] == 0:
        raise ValueError(f"x: expected a batch of at least one sample, got shape {x.shape}")


def batch_of(network: Any, x: Any) -> Any:
    """Return a batch as the network computes with it: several inputs as columns of one array."""
    try:
        inputs = network.several
    except AttributeError:  # a layer, or no network, which others say
        inputs = None
    if inputs is not None and hasattr(inputs, "packed"):  # of a layer, any attribute of a user's
        return inputs.packed(x, next((value.dtype for value in network.parameters.values()), "float32"))
    if type(x) in (tuple, dict):
        raise TypeError(f"x: expected an array, as the network has one input, got a {type(x).__name__} of {len(x)}")
    return x


def check_array(name: str, x: Any) -> None:
    """Check that `x` is an array."""
    if not is_array(x):
        raise TypeError(f"{name}: expected a NumPy or CuPy array, got {kind_of(x)}")


def check_flag(name: str, value: Any) -> bool:
    """Check that an argument is True or False; return it."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def check_floats(name: str, x: Any) -> None:
    """Check that `x` is an array of float32 or float64."""
    check_array(name, x)
    if x.dtype not in FLOAT_NAMES:
        raise TypeError(f"{name}: expected {' or '.join(FLOATS)}, got {x.dtype}")


def kind_of(value: Any) -> str:
    """Return the name of the type of what was given instead of an array, and how to make one of it."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return f"{kind.__name__} of torch (give tensor.detach().cpu().numpy())"
    if kind in (list, tuple):
        return f"{kind.__name__} (make an array with numpy.array)"
    return kind.__name__


def shown(value: Any) -> str:
    """Return what was given instead of an object, of an array its shape, and that a class must be called."""
    if is_array(value):
        return f"an array of shape {value.shape}"
    return f"{value!r}{' (call the class)' if isinstance(value, type) else ''}"


def float_name(dtype: Any) -> str:
    """Return "float32" or "float64" for a dtype in any form."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if dtype is None or name not in FLOATS:
        raise ValueError(f"dtype: expected {' or '.join(FLOATS)}, got {name if dtype is not None else None}")
    return name


def feature_axis(name: str, axis: Any) -> int:
    """Check that an argument is the number of an axis with the batch as axis 0, which it may not be; return it."""
    if isinstance(axis, bool) or not isinstance(axis, Integral) or axis == 0:
        raise ValueError(f"{name}: expected an axis after the batch axis, got {axis!r}")
    return int(axis)


def check_same(name: str, x: Array, other_name: str, other: Array, dtype: bool = True) -> None:
    """Check that `x` is on the device of `other` and, if `dtype` is true, has its dtype."""
    if device_of(x) != device_of(other):
        raise TypeError(
            f"{name}: expected an array on {device_of(other)} as {other_name} is, got one on {device_of(x)} "
            "(move it with gb.asarray, or the network with net.to)"
        )
    if dtype and x.dtype != other.dtype:
        raise TypeError(
            f"{name}: expected {other.dtype} as {other_name} is, got {x.dtype} "
            "(convert it with its astype, or the network with net.astype)"
        )


def positive(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return int(value)


def number(
    name: str, value: Any, least: float | None = None, above: float | None = None, below: float | None = None
) -> float:
    """Return `value` as a finite float within bounds."""
    try:
        found = float(value) if isinstance(value, Real) and not isinstance(value, bool | np.bool_) else float("nan")
    except OverflowError:
        found = float("inf")
    within = (least is None or found >= least) and (above is None or found > above) and (below is None or found < below)
    if not isfinite(found) or not within:
        words = [("of at least", least), ("above", above), ("below", below)]
        bounds = " and".join(f" {word} {bound:g}" for word, bound in words if bound is not None)
        raise ValueError(f"{name}: expected a finite number{bounds}, got {value!r}")
    return found


def generator(rng: Any) -> np.random.Generator:
    """Return a Generator made from None, an int or a Generator."""
    try:
        if isinstance(rng, bool):  # which NumPy takes as the seed 0 or 1
            raise TypeError
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: expected None, an integer of at least 0 or a Generator, got {rng!r}") from None


def check_within(name: str, x: Array, domain: tuple[float, float], ends: bool) -> None:
    """Check that no number is outside of a domain, to which its ends may belong; NaN passes."""
    (least, most), kind = bounds(x.real), x.real.dtype.type
    low, high = (float(kind(end)) for end in domain)  # as the numbers are rounded
    below = least < low or (not ends and least == low > -inf)
    above = most > high or (not ends and most == high < inf)
    if below or above:
        left, right = "[]" if ends else "()"
        words = f"expected numbers in {left}{domain[0]:g}, {domain[1]:g}{right}"
        raise ValueError(f"{name}: {words}, got {kind(least if below else most)!s}")


def unpacked(where: str, made: Any) -> tuple[Array, Any]:
    """Return what a forward pass gave, if it is a tuple (output, saved) with an array as the output."""
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise TypeError(f"{where}: expected a tuple (output, saved), got {got}")
    if not is_array(made[0]):
        raise TypeError(f"{where}: expected a tuple (output, saved) with an array first, got {type(made[0]).__name__}")
    return made
