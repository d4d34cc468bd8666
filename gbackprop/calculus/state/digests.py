"""Digests of objects: of their classes and all attributes, the same in each process and each run of Python.

- Numbers, texts and the like count by type and value; lists, tuples and dicts in their order, sets without.
- Arrays count by dtype, shape and numbers, wherever they are.
- Functions count by name, code, defaults and the variables that they enclose, but not by the global ones; those of no
  library also by their attributes (torch writes one into a function of Python's).
- An object counts by its class and attributes, those in slots too; `functools.cached_property` is left out, and so is
  an attribute with the value that its class has for all. Where its class says how it is pickled, as random generators
  and tensors do, what would be pickled counts instead.
- A class counts by name; one of no library also by its attributes and functions, and those of its bases.
- What has no attributes and cannot be pickled, as a lock or an open file, counts by its class alone.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

from gbackprop.array import Array, asnumpy, is_array
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state.classes import attributes_of, is_foreign, is_of_library

_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"none",
    bool: lambda value: b"bool %d" % value,
    int: lambda value: b"int %x" % value,
    float: lambda value: b"float " + value.hex().encode(),
    complex: lambda value: f"complex {value.real.hex()} {value.imag.hex()}".encode(),
    str: lambda value: b"str " + value.encode("utf-8", "surrogatepass"),
    bytes: lambda value: b"bytes " + value,
}
"""The bytes of values that contain no others."""

_FUNCTIONS: dict[type, tuple[str, ...]] = {
    FunctionType: ("__qualname__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__"),
    CellType: ("cell_contents",),
    MethodType: ("__func__", "__self__"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
"""The attributes by which functions, and what contains one, count."""

MISSING = object()
"""The value of an attribute that is not set."""

_CACHING = type(lru_cache(len))

_BUILT_IN = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, np.ndarray, np.generic)


def digest(*values: Any) -> str:
    """Return 128 bits in hexadecimal that depend on objects and all that they refer to."""
    return Walk().root(values).hex()


def numbers_of(array: Array) -> bytes:
    """Return 128 bits that depend on an array's numbers, wherever it is."""
    host = np.ascontiguousarray(asnumpy(array)).reshape(-1).view(np.uint8)
    return blake2b(host.data, digest_size=16).digest()


class Walk:
    """A walk over objects and all that they refer to; objects with a name in `names`, by identity, count by that.

    `numbers` gives the bytes by which an array counts; `left_out` are attributes of layers with a name, not counted.
    """

    def __init__(
        self,
        names: Mapping[int, str] | None = None,
        numbers: Callable[[Array], bytes] = numbers_of,
        left_out: Collection[str] = (),
    ) -> None:
        self.names, self.numbers, self.left_out = names or {}, numbers, left_out
        self.open: list[int] = []
        self.done: dict[int, tuple[Any, bytes]] = {}  # the object too, so that its identity stays its own
        # what was met that can change: attributes, items, attributes by name, numbers, other objects, shipped classes
        self.dicts: list[tuple[Mapping[Any, Any], list[Any], list[Any]]] = []
        self.lists: list[tuple[list[Any], list[Any]]] = []
        self.fields: list[tuple[Any, tuple[str, ...], list[Any]]] = []
        self.arrays: list[tuple[Array, bytes]] = []
        self.others: list[Any] = []
        self.kinds: set[type] = set()
        self.layouts: dict[type, tuple[bool, tuple[str, ...]]] = {}

    def root(self, value: Any) -> bytes:
        """Return the digest of an object, even of one that counts by a name elsewhere."""
        self.open.append(id(value))
        try:
            parts = list(self._parts(value))
        finally:
            self.open.pop()
        found = blake2b(repr(parts).encode(), digest_size=16).digest()  # with quotes, so that parts stay apart
        self.done[id(value)] = value, found
        return found

    def token(self, value: Any) -> bytes:
        """Return bytes for a value inside another."""
        plain, key = _PLAIN.get(type(value)), id(value)
        if plain is not None:
            return plain(value)
        if key in self.names:
            return b"named " + self.names[key].encode()
        if key in self.done:
            return self.done[key][1]
        if key in self.open:
            return b"above %d" % (len(self.open) - self.open.index(key))
        return self.root(value)

    def _parts(self, value: Any) -> Iterator[bytes]:
        """Yield the bytes of the parts of an object."""
        kind = type(value)
        if kind in (list, tuple):
            if kind is list:
                self.lists.append((value, value.copy()))
            yield kind.__name__.encode()
            yield from map(self.token, value)
        elif kind in (dict, MappingProxyType):
            yield b"dict"
            yield from self._items(value, [name for pair in value.items() for name in pair])
        elif kind in (set, frozenset):
            yield kind.__name__.encode()
            yield from sorted(map(self.token, value))
            if kind is set:
                self.others.append(value)
        elif is_array(value) and kind.__name__ == "ndarray":
            yield from self._array(value)
        elif isinstance(value, np.dtype | np.generic) and kind is not np.void:
            yield f"{kind.__name__} {value if isinstance(value, np.dtype) else value.dtype.str}".encode()
            yield b"" if isinstance(value, np.dtype) else value.tobytes()
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, (CodeType, *_FUNCTIONS)):
            yield from self._function(value)
        elif isinstance(value, ModuleType):
            yield f"module {value.__name__}".encode()
        elif isinstance(value, ref):
            yield b"ref"
            yield self.token(value())
        else:
            yield from self._object(value)

    def _items(self, value: Mapping[Any, Any], items: list[Any]) -> Iterator[bytes]:
        self.dicts.append((value, [*value], [*value.values()]))
        yield from map(self.token, items)

    def _array(self, value: Array) -> Iterator[bytes]:
        yield f"array {value.dtype.str} {value.dtype.descr if value.dtype.names else ''} {value.shape}".encode()
        if value.dtype.hasobject:
            self.others.append(value)
            yield from [self.token(each) for each in value.ravel().tolist()]
        else:
            self.arrays.append((value, self.numbers(value)))
            yield self.arrays[-1][1]

    def _class(self, kind: type) -> Iterator[bytes]:
        """Yield the name of a class, and the attributes of those of its bases that belong to no library."""
        foreign = [base for base in kind.__mro__ if is_foreign(base)]
        self.kinds |= {base for base in kind.__mro__ if is_shipped(base)}
        yield f"class {'' if foreign else kind.__module__} {kind.__qualname__}".encode()
        for base in kind.__mro__:
            yield f"{base.__qualname__}".encode()
            if base in foreign:
                yield from self._items(vars(base), [part for pair in attributes_of(base) for part in pair])

    def _function(self, value: Any) -> Iterator[bytes]:
        """Yield the parts of a function, or of what contains one or is inside of one."""
        yield type(value).__name__.encode()
        if isinstance(value, CodeType):
            yield from self._code(value, None)
            return
        if isinstance(value, FunctionType):
            yield from self._code(value.__code__, value.__doc__)
            self.fields.append((value, ("__code__",), [value.__code__]))
        names = next(names for kind, names in _FUNCTIONS.items() if isinstance(value, kind))
        ours = isinstance(value, FunctionType) and is_of_library(str(value.__globals__.get("__name__")))
        yield from self._fields(value, tuple([name for name in names if not ours or name != "__dict__"]))

    def _code(self, code: CodeType, documentation: str | None) -> Iterator[bytes]:
        constants = code.co_consts
        yield from (code.co_code, repr((code.co_name, code.co_names, code.co_varnames)).encode())
        yield from map(self.token, constants[1:] if documentation and constants[:1] == (documentation,) else constants)

    def _fields(self, value: Any, names: tuple[str, ...]) -> Iterator[bytes]:
        found = [getattr(value, name, MISSING) for name in names]
        self.fields.append((value, names, found))
        for name, part in zip(names, found, strict=True):
            yield from (b"missing",) if part is MISSING else (name.encode(), self.token(part))

    def _object(self, value: Any) -> Iterator[bytes]:
        kind = type(value)
        self.fields.append((value, ("__class__",), [kind]))
        yield self.token(kind)
        own = getattr(value, "__dict__", None)
        if kind not in self.layouts:
            self.layouts[kind] = _layout(kind)
        plain, slots = self.layouts[kind]
        if _caches(kind) and isinstance(own, dict) and "__wrapped__" in own:
            yield self.token(own["__wrapped__"])
            return
        if plain and (slots or isinstance(own, dict)):
            if isinstance(own, dict):
                mine = isinstance(value, Layer) and id(value) in self.names  # a layer of others may have any attributes
                names = [name for name in sorted(own) if not mine or name not in self.left_out]
                names = [name for name in names if not self._is_as_in_class(kind, name, own[name])]
                yield from self._items(own, [part for name in names for part in (name, own[name])])
            if slots:
                yield from self._fields(value, slots)
            return
        reduced = _reduced(value)
        if reduced and not isinstance(reduced[0], str):
            self.others.append(value)
        yield from [self.token(part) for part in reduced]

    def _is_as_in_class(self, kind: type, name: str, value: Any) -> bool:
        """Return whether an attribute has the value that it would have if it was not set."""
        default = getattr(kind, name, MISSING)
        if isinstance(default, cached_property):
            return True
        return default is not MISSING and type(default) is type(value) and self.token(default) == self.token(value)


def _caches(kind: type) -> bool:
    """Return whether objects of a class are functions that are compiled or cache, with attributes that change."""
    return kind is _CACHING or str(kind.__module__).partition(".")[0] == "numba"


def _layout(kind: type) -> tuple[bool, tuple[str, ...]]:
    """Return whether an object is no more than its attributes, and the names of those in slots."""
    default = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
    slots = {name for base in kind.__mro__ if "__slots__" in vars(base) for name in _slots(base)}
    return default and not issubclass(kind, _BUILT_IN), tuple(sorted(slots))


def _slots(kind: type) -> list[str]:
    names = vars(kind)["__slots__"]
    names = [names] if isinstance(names, str) else list(names)
    private = f"_{kind.__name__.lstrip('_')}"
    mangled = [f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name for name in names]
    return [name for name in mangled if name not in ("__dict__", "__weakref__")]


def _reduced(value: Any) -> list[Any]:
    """Return what would be pickled of an object, nothing where it cannot be."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        found = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception:  # whatever its class raises
        return []
    if isinstance(found, str):
        return [found]
    return [list(part) if i > 2 and part is not None else part for i, part in enumerate(found[:5])]
