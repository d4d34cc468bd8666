"""Containers of branches, which take the same input and meet again: Residual, Sum, Product, Concatenate."""

from __future__ import annotations

from typing import Any

from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.layers.joins import Add, Concat, Multiply
from gbackprop.network.container import Container, layers_of


class Branches(Container):
    """Base class of containers whose branches, at least one, take the same input."""

    join = "join"
    """Name of the place where the branches meet."""

    def __init__(self, *branches: Layer, rng: Any = None, dtype: Any = None) -> None:
        if not branches:
            raise ValueError(f"{type(self).__name__}: expected at least one branch, got none")
        super().__init__({str(i): branch for i, branch in enumerate(branches)}, rng, dtype)

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        (source,) = sources
        ends = [layer.place(nodes, inside(name, key), source) for key, layer in self.children.items()]
        return ends[0] if len(ends) == 1 else self.meet(nodes, inside(name, self.join), ends)

    def meet(self, nodes: Nodes, name: str, ends: list[int]) -> int:
        """Append the layer at which the branches meet; return its position."""
        raise NotImplementedError


class Sum(Branches):
    """The sum of branches that take the same input: y = f₁(x) + … + fₖ(x).

    Parameters
    ----------
    *branches : Layer
        With outputs of equal shape. Parameters are named "0.…", "1.…", … by branch.
    rng, dtype
        As for `Sequential`.

    Raises
    ------
    TypeError, ValueError
        As `Sequential` does, or if there is no branch.
    """

    join = "sum"

    def meet(self, nodes: Nodes, name: str, ends: list[int]) -> int:
        return nodes.add(name, Add(), *ends)


class Product(Branches):
    """The elementwise product of branches that take the same input, as in a gate: y = f₁(x) ∘ … ∘ fₖ(x).

    Parameters
    ----------
    *branches : Layer
        With outputs of equal shape. Parameters are named "0.…", "1.…", … by branch.
    rng, dtype
        As for `Sequential`.

    Raises
    ------
    TypeError, ValueError
        As `Sequential` does, or if there is no branch.
    """

    join = "product"

    def meet(self, nodes: Nodes, name: str, ends: list[int]) -> int:
        total = nodes.add(name, Multiply(), *ends[:2])
        for i, end in enumerate(ends[2:], 2):
            total = nodes.add(f"{name}{i}", Multiply(), total, end)
        return total


class Concatenate(Branches):
    """The outputs of branches that take the same input, side by side: y = (f₁(x), …, fₖ(x)).

    Parameters
    ----------
    *branches : Layer
        With outputs of equal shape but for one axis. Parameters are named "0.…", "1.…", … by branch.
    axis : int
        The axis, with the batch as axis 0.
    rng, dtype
        As for `Sequential`.

    Raises
    ------
    TypeError, ValueError
        As `Sequential` does, or if there is no branch.
    """

    join = "concatenation"

    def __init__(self, *branches: Layer, axis: int = 1, rng: Any = None, dtype: Any = None) -> None:
        self.layer = Concat(axis)
        super().__init__(*branches, rng=rng, dtype=dtype)

    def describe(self) -> str:
        return f"{super().describe()}, {self.layer.describe()}"

    def meet(self, nodes: Nodes, name: str, ends: list[int]) -> int:
        return nodes.add(name, self.layer, *ends)


class Residual(Container):
    """A chain of layers beside a shortcut: y = f(x) + s(x).

    Parameters
    ----------
    *layers : Layer
        f, from input to output. Parameters are named "0.…", "1.…", …
    shortcut : Layer, optional
        s, with parameters "shortcut.…"; the input itself by default.
    rng, dtype
        As for `Sequential`.

    Raises
    ------
    TypeError, ValueError
        As `Sequential` does.

    Source: He, Zhang, Ren, Sun 2016.
    """

    def __init__(self, *layers: Layer, shortcut: Layer | None = None, rng: Any = None, dtype: Any = None) -> None:
        children = {str(i): layer for i, layer in enumerate(layers)}
        super().__init__(children if shortcut is None else {**children, "shortcut": shortcut}, rng, dtype)

    @property
    def shortcut(self) -> Layer | None:
        """s, one of the children, or None for the input itself; another one can be assigned."""
        return self.children.get("shortcut")

    @shortcut.setter
    def shortcut(self, layer: Layer | None) -> None:
        self.children = layers_of(self.chain if layer is None else {**self.chain, "shortcut": layer})

    @property
    def chain(self) -> dict[str, Layer]:
        """The layers of f: the other children, from input to output."""
        return {key: layer for key, layer in self.children.items() if key != "shortcut"}

    def describe(self) -> str:
        layers = ", ".join(map(repr, self.chain.values()))
        return layers if self.shortcut is None else f"{layers}, shortcut={self.shortcut!r}"

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        (source,) = sources
        end = other = source
        for key, layer in self.chain.items():
            end = layer.place(nodes, inside(name, key), end)
        if self.shortcut is not None:
            other = self.shortcut.place(nodes, inside(name, "shortcut"), source)
        return nodes.add(inside(name, "sum"), Add(), end, other)
