"""From ``my_module:MyLayer`` to the subject that it names: a layer, loss, quantity, optimizer, operator or network."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from gbackprop import losses
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.losses.base import Loss
from gbackprop.network import Container
from gbackprop.optim import Optimizer
from gbackprop.quantities import Quantity
from gbackprop.testing.operators import is_operator

KINDS = (Layer, Loss, Quantity, Optimizer)
Subject = Layer | Loss | Quantity | Optimizer | Callable[[Container], Optimizer]

LISTED = 5
"""The greatest number of names that an error message offers."""

EXPECTED = (
    "a layer, loss, quantity or network: an instance, a class, or a function that returns one; an optimizer, "
    "or a class or function of a `network` that makes one; or a linear operator, with shape and @"
)


class TargetError(ValueError):
    """Something that the user can put right; one line says how."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let modules be imported from a folder, before all others, while this lasts."""
    path = str(folder)
    sys.path.insert(0, path)
    try:
        yield
    finally:
        with suppress(ValueError):  # a module may have changed the path itself
            sys.path.remove(path)


def resolve(target: str) -> Subject:
    """Return the object that a target names; a class or function is called without arguments, but for optimizers."""
    module, _, name = target.partition(":")
    if module.endswith(".py") or "/" in module:
        stem = Path(module).stem
        raise TargetError(f"expected a module's name rather than a file's: {stem}:{name or 'NAME'}, got {target}")
    if not all(part.isidentifier() for part in module.split(".")):
        raise TargetError(f"expected MODULE:NAME, as in my_layers:Swish, got {target!r}")
    home = _module(module)
    if not name:
        known = " or ".join(f"{module}:{each}" for each in _auditable(home)[:LISTED])
        hint = f"did you mean {known}?" if known else "it holds no layer, loss, quantity or optimizer"
        raise TargetError(f"expected MODULE:NAME, got {target!r}; {hint}")
    return _made(target, _attribute(home, name))


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise TargetError(f"importing {name} raised {type(error).__name__}: {error}") from error
        here = [path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or path.is_dir()]
        hint = _near(name, here) or f"there is no {name}.py in {Path.cwd()}, and none is installed"
        raise TargetError(f"no module named {error.name!r}; {hint}") from error
    except (Exception, SystemExit) as error:  # whatever a user's module does on import
        raise TargetError(f"importing {name} raised {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        known = _auditable(module)
        some = ", ".join(known[:LISTED]) or "no layer, loss, quantity or optimizer"
        hint = _near(name, known) or _near(name, vars(module)) or f"it has {some}"
        raise TargetError(f"{module.__name__} has no {name!r}; {hint}") from None


def _auditable(module: ModuleType) -> list[str]:
    """Names of what can be audited: instances, a module's own classes, then its own functions without arguments."""

    def fits(value: Any) -> bool:
        if isinstance(value, type):
            return issubclass(value, KINDS) and value.__module__ == module.__name__
        return isinstance(value, KINDS)

    def makes(value: Any) -> bool:
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        return own and _missing(value) in ([], ["network"])

    every = vars(module).items()
    return [name for kind in (fits, makes) for name, value in every if kind(value) and not name.startswith("_")]


def _near(name: str, known: Iterable[str]) -> str:
    """"did you mean …?", or an empty string."""
    close = difflib.get_close_matches(name, [each for each in known if not each.startswith("_")], 2)
    return f"did you mean {' or '.join(close)}?" if close else ""


def _made(target: str, found: Any) -> Subject:
    """Return an instance from an instance, a class or a function; what makes an optimizer takes a network, as it is."""
    if isinstance(found, KINDS) or is_operator(found):
        return found
    own = isinstance(found, type) and issubclass(found, Optimizer)
    missing = _missing(found) if own or inspect.isroutine(found) else []
    if own or missing == ["network"]:
        if more := ", ".join(name for name in missing if name != "network"):
            module, _, name = target.partition(":")
            function = f"write `def made(network): return {name}(network, …)` into {module}"
            raise TargetError(f"{name} needs arguments ({more}): {function}, and audit {module}:made")
        return found
    if isinstance(found, type) and not issubclass(found, KINDS) and not hasattr(found, "__matmul__"):
        bases = "gbackprop.layers.Layer, losses.Loss, quantities.Quantity or optim.Optimizer"
        raise TargetError(f"{target}: expected a class derived from {bases}")
    if not isinstance(found, type) and not inspect.isroutine(found):
        raise TargetError(f"{target}: expected {EXPECTED}, got {_kind(found)}")
    made = _called(target, found)
    if not isinstance(made, KINDS) and not is_operator(made):
        raise TargetError(f"{target}() returns {_kind(made)}: expected {EXPECTED}")
    return made


def _called(target: str, make: Callable[..., Any]) -> Any:
    missing = _missing(make)
    if missing:
        module, _, name = target.partition(":")
        verb = f"layer = {name}(…)" if isinstance(make, type) else f"made = {name}(…)"
        raise TargetError(
            f"{name} needs arguments ({', '.join(missing)}): write an instance into {module}, as in `{verb}`, "
            f"and audit {module}:{verb.partition(' ')[0]}"
        )
    try:
        return make()
    except Exception as error:
        raise TargetError(f"{target}() raised {type(error).__name__}: {error}") from error


def _missing(make: Callable[..., Any]) -> list[str]:
    """Names of arguments that must be given."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (ValueError, TypeError):  # written in C
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]


def _kind(thing: Any) -> str:
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def parse_shapes(text: str | None, target: str) -> list[Shape]:
    """Return the shape of one sample from ``3,8,8``; of a layer of several inputs that of each, from ``4+3,8,8``."""
    example = "--input 3,8,8 (one sample, without the batch)"
    if text is None:
        raise TargetError(f"{target}: give the shape of its input, as in {example}")
    try:
        shapes = [tuple(int(part) for part in each.strip("() ,").split(",")) for each in text.split("+")]
    except ValueError:
        shapes = [(0,)]
    if min(map(min, shapes)) < 1:
        raise TargetError(f"expected positive whole numbers, as in {example}, got --input {text}")
    return shapes


def resolve_loss(name: str) -> Loss:
    """Return a loss that ships, by its name, or a user's as MODULE:NAME."""
    if ":" in name:
        found = resolve(name)
        if not isinstance(found, Loss):
            raise TargetError(f"expected a loss, as in --loss my_losses:Huber, got {_kind(found)}")
        return found
    shipped = [each for each in losses.__all__ if each != "Loss"]
    if name not in shipped:
        hint = _near(name, shipped) or f"expected {', '.join(shipped)}, or MODULE:NAME"
        raise TargetError(f"no loss named {name!r}; {hint}")
    return getattr(losses, name)()
