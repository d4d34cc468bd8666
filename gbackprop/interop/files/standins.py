"""Quantities and losses in files: by class and arguments, if they are shipped; else what stands in for them."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import numpy as np

from gbackprop import losses, quantities
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.state import digest
from gbackprop.interop.files.values import Reader, Writer, expect, parts
from gbackprop.losses import Loss
from gbackprop.quantities import Quantity, Statistic

UNKNOWN = "a file has its values, and not its class, which is not one of gbackprop's"


class StoredQuantity(Quantity):
    """A stand-in in a loaded result for a quantity whose class is not gbackprop's: its name, and its text.

    Its values are in the result under its name. It cannot be computed or merged: for that, put the quantity itself in
    its place, ``dataclasses.replace(result, quantities=[…])``.

    Parameters
    ----------
    name : str
        The quantity's name.
    text : str
        The quantity as text.
    """

    merging = UNKNOWN

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text  # type: ignore[misc]  # of each object here

    def __repr__(self) -> str:
        return f"StoredQuantity({self.text})"

    def statistics(self) -> tuple[Statistic, ...]:
        raise UnsupportedError(f"{self.text} cannot be computed: {UNKNOWN}")


class StoredLoss(Loss):
    """A stand-in in a loaded result for a loss whose class is not gbackprop's: its reduction, and its text.

    Results that have it can be merged with others of the same loss; it computes nothing.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    text : str
        The loss as text.
    stored : str, optional
        The loss's digest, by which results of other losses are distinguished from its own.
    """

    def __init__(self, reduction: Any, text: str, stored: str | None = None) -> None:
        super().__init__(reduction)
        self.text, self.stored = text, stored

    def __repr__(self) -> str:
        return self.text

    def summed_weight(self, shape: tuple[int, ...]) -> float:
        raise UnsupportedError(f"{self.text}: its weight is not known: {UNKNOWN}")


def quantity_tree(writer: Writer, quantity: Quantity) -> dict[str, Any]:
    """Return the tree of a quantity: class and arguments, its name, and its text."""
    return {"name": quantity.name} | _tree(writer, quantity, quantities)


def quantity_of(reader: Reader, where: str, tree: Any) -> Quantity:
    """Return the quantity of a tree, or a `StoredQuantity`."""
    name = _text(where, parts(where, tree, "name class text", "arguments"), "name")
    found = _shipped(reader, where, tree, quantities, Quantity) or StoredQuantity(name, _text(where, tree, "text"))
    return expect(where, found, f"a quantity called {name!r}", found.name == name)


def loss_tree(writer: Writer, loss: Loss) -> dict[str, Any]:
    """Return the tree of a loss: class and arguments, its reduction, its text and its digest."""
    stored = loss.stored if isinstance(loss, StoredLoss) else digest(loss)
    return {"reduction": loss.reduction, "digest": stored} | _tree(writer, loss, losses)


def loss_of(reader: Reader, where: str, tree: Any) -> Loss:
    """Return the loss of a tree, or a `StoredLoss`."""
    there = parts(where, tree, "reduction class text digest", "arguments")
    reduction, text, stored = (_text(where, there, name) for name in ("reduction", "text", "digest"))
    found = _shipped(reader, where, tree, losses, Loss) or StoredLoss(reduction, text, stored)
    return expect(where, found, f"the reduction {reduction!r}", found.reduction == reduction)


def _tree(writer: Writer, thing: Any, module: ModuleType) -> dict[str, Any]:
    kind, text = type(thing), thing.text if isinstance(thing, StoredQuantity) else repr(thing)
    if getattr(module, kind.__name__, None) is not kind:
        return {"class": None, "text": text}
    arguments = {name: _argument(writer, getattr(thing, name)) for name in _arguments(kind)}
    return {"class": kind.__name__, "text": text, "arguments": writer.tree(f"arguments of {text}", arguments)}


def _shipped(reader: Reader, where: str, tree: Any, module: ModuleType, base: type) -> Any:
    """Return the object of a shipped class, or None."""
    name = tree["class"]
    if name is None:
        return None
    expect(where, name, "the name of a class", isinstance(name, str) and name.isidentifier() and name[0] != "_")
    arguments = reader.value(where, parts(where, tree, "class arguments", " ".join(tree))["arguments"])
    expect(where, arguments, "arguments by name", isinstance(arguments, dict))
    inner = {key: quantity_of(reader, f"{where}/{key}", each) for key, each in arguments.items() if type(each) is dict}
    kind = getattr(module, name) if name in module.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, base)):
        return None
    if any(isinstance(value, StoredQuantity) for value in inner.values()):  # it takes the class itself
        return None
    return reader.made(where, kind, arguments | inner)


def _text(where: str, tree: Any, name: str) -> str:
    return expect(f"{where}/{name}", tree[name], "a text", isinstance(tree[name], str))


def _argument(writer: Writer, value: Any) -> Any:
    """Return an argument as it is stored: of another quantity its tree, and no generator, whose state has moved on."""
    if isinstance(value, Quantity):
        return quantity_tree(writer, value)
    return None if isinstance(value, np.random.Generator) else value


def _arguments(kind: type) -> list[str]:
    own = kind.__init__ is not object.__init__  # type: ignore[misc]
    return list(inspect.signature(kind.__init__).parameters)[1:] if own else []  # type: ignore[misc]
