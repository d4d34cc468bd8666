"""`Expanded`, what attention and recurrent layers have in common: torch's names of parameters, checks of arguments."""

from __future__ import annotations

from typing import Any

from gbackprop.base.checks import check_flag, positive
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import INPUT, Nodes
from gbackprop.calculus.walk import Unexpanded
from gbackprop.layers import Dropout
from gbackprop.network.container import Container


class Expanded(Container):
    """Base class of containers of ``[N, T, features]`` that torch has as one layer. A subclass defines `expand`.

    Parameters of the children in `own` have the container's own path before their names: "0.weight_ih_l0".
    """

    features: int
    """The size of the last axis of inputs."""

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        if isinstance(nodes, Unexpanded):
            return nodes.add(name, self, *sources)
        (source,) = sources
        shape = nodes.input_shape if source == INPUT else nodes.leaves[source].output_shape
        if len(shape) != 2 or shape[0] == 0 or shape[1] != self.features:
            raise ValueError(
                f"layer {name or '(alone)'}, {self!r}: expected sequences of feature shape (T, {self.features}) "
                f"with T ≥ 1, got {shape}"
            )
        self.claim(nodes, name)
        return self.expand(nodes, name, source, shape[0])

    def expand(self, nodes: Nodes, name: str, source: int, length: int) -> int:
        """Append the layers for sequences of T = `length`; return the position of the output."""
        raise NotImplementedError(f"{type(self).__name__} has no expand")

    def arguments(self, *sizes: Any, **given: tuple[Any, Any]) -> str:
        """Return sizes, and the keywords whose value is not the default, as they are written in a call."""
        words = [f"{name}={value!r}" for name, (value, default) in given.items() if value != default]
        return ", ".join([*map(str, sizes), *words])

    def size(self, name: str, value: Any) -> int:
        """Return a size as an int; the error names the class and the argument."""
        return positive(f"{type(self).__name__}, {name}", value)

    def flag(self, name: str, value: Any) -> bool:
        """Return True or False as it is; the error names the class and the argument."""
        return check_flag(f"{type(self).__name__}, {name}", value)

    def dropout_of(self, p: Any) -> Dropout:
        """Return a dropout with probability p; the error names the class."""
        try:
            return Dropout(p)
        except ValueError:
            words = f"expected a probability in [0, 1], got {p!r}"
            raise ValueError(f"{type(self).__name__}, dropout: {words}") from None

    def refuse(self, name: str, value: Any, expected: Any, why: str) -> None:
        """Raise an error if an argument of torch's is not what it must be here."""
        if (value is not None) if expected is None else value != expected:
            raise UnsupportedError(f"{type(self).__name__}, {name}: expected {expected}, got {value!r} ({why})")

    def batch_is_first(self, batch_first: Any) -> None:
        """Raise an error for torch's default: leave the argument out here."""
        why = "inputs are (N, T, features), as with batch_first=True in torch; it is the default here"
        self.refuse("batch_first", batch_first, True, why)
