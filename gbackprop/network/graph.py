"""`Graph`, a network of named nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from gbackprop.base.checks import signature_of
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.calculus.several import Inputs
from gbackprop.network.container import Container

INPUT_NAME = "input"
"""The name by which nodes refer to the network's input."""


class Graph(Container):
    """A network of named nodes, each a layer with the names of its inputs.

    Parameters
    ----------
    nodes : mapping of str to (Layer, str, …)
        For each node its layer, then the nodes whose outputs it takes; "input" is the network's input. In any order. A
        name can be a path with dots, "block.conv", if no other node's name starts it, as "block" does. A layer object
        at several nodes has the same parameters at each, named after the node that is computed first: the one with
        the fewest nodes on its longest way from the inputs; of several such, the one that is ready first.
    output : str, optional
        The node that is the output; the last by default.
    rng, dtype
        As for `Sequential`.
    inputs : mapping of str to shape, or sequence of shapes, optional
        Those of a network with several inputs, without the batch axis: x is then a dictionary of arrays, or a tuple,
        and nodes take "input.name", or "input.0", "input.1", …. An input of integers begins with that word,
        ``("integers", 7)``.

    Raises
    ------
    TypeError
        If a node is not a layer with names.
    ValueError
        If a name is unknown, nodes form a cycle, or a node's output is not used.

    Examples
    --------
    >>> Graph({
    ...     "hidden": (Linear(4, 3), "input"),
    ...     "gate": (Sigmoid(), "hidden"),
    ...     "gated": (Multiply(), "hidden", "gate"),
    ... })
    """

    evaluation_only: str = ""
    """The reason why it is right in evaluation mode alone, if there is one; training mode is an error then."""

    def __init__(
        self, nodes: Mapping[str, Sequence[Any]], output: str | None = None, rng: Any = None, dtype: Any = None,
        inputs: Any = None,
    ) -> None:  # fmt: skip
        if inputs is not None:
            self.several = Inputs(inputs)
        sources = list(sources_of(self.several))
        self.inputs = _checked(nodes, sources)
        self.output = next(reversed(self.inputs)) if output is None else output
        if not isinstance(self.output, str) or self.output not in self.inputs:
            raise ValueError(f"output: expected one of the nodes {list(self.inputs)}, got {output!r}")
        self.order = _ordered(self.inputs)
        _check_used(self.inputs, self.output, sources)
        self.own = frozenset(name for name in self.order if nodes[name][0].node_parameters)
        super().__init__({name: nodes[name][0] for name in self.order}, rng, dtype)

    def describe(self) -> str:
        nodes = [f"{name!r}: {(self.children[name], *self.inputs[name])!r}" for name in self.inputs]
        more = "" if self.several is None else f", inputs={self.several.shapes!r}"
        return f"{{{', '.join(nodes)}}}, output={self.output!r}{more}"

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        (source,) = sources
        if nodes.training and self.evaluation_only:
            raise UnsupportedError(f"training=True is not supported: {self.evaluation_only}")
        self.claim(nodes, name)
        found = {} if self.several is None else self.several.place(nodes, source)
        at = {f"{INPUT_NAME}.{key}": position for key, position in found.items()} or {INPUT_NAME: source}
        for node in self.order:
            taken = [at[other] for other in self.inputs[node]]
            _check_number(inside(name, node), self.children[node], taken)
            at[node] = self.children[node].place(nodes, inside(name, node), *taken)
        return at[self.output]


def sources_of(inputs: Inputs | None) -> dict[str, None]:
    """Return the names by which nodes refer to the network's inputs, in order."""
    return dict.fromkeys([INPUT_NAME] if inputs is None else [f"{INPUT_NAME}.{key}" for key in inputs.parts])


def _checked(nodes: Any, sources: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of each node's inputs."""
    if not isinstance(nodes, Mapping) or not nodes:
        raise TypeError(f"nodes: expected a mapping of names to (layer, inputs …), got {nodes!r:.80}")
    inputs = {}
    for name, node in nodes.items():
        if not isinstance(name, str) or not all(name.split(".")) or name in (INPUT_NAME, *sources):
            raise ValueError(f"node {name!r}: expected a name or a path with dots, other than {sources[0]!r}")
        if not isinstance(node, Sequence) or not node or not isinstance(node[0], Layer) or not _fits(node):
            raise TypeError(f"node {name!r}: expected (layer, inputs …), got {node!r:.80}")
        inputs[name] = tuple(node[1:])
    for name, taken in inputs.items():
        for i in range(name.count(".")):
            start = ".".join(name.split(".")[: i + 1])
            if start in inputs:
                raise ValueError(f"node {name!r}: expected a path that no other node's name starts, got {start!r}, too")
        for other in taken:
            if not isinstance(other, str) or (other not in sources and other not in inputs):
                known = [*sources, *inputs]
                raise ValueError(f"node {name!r}: expected inputs among {known}, got {other!r}")
    return inputs


def _ordered(inputs: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the nodes in an order in which each comes after its inputs."""
    try:
        order = TopologicalSorter(inputs).static_order()
        return [name for name in order if name in inputs]
    except CycleError as error:
        raise ValueError(f"nodes: expected no cycle, got {' → '.join(reversed(error.args[1]))}") from None


def _fits(node: Sequence[Any]) -> bool:
    """Return whether a node has names of inputs, or a layer that takes none."""
    try:
        _bind(node[0], ())
    except TypeError:
        return len(node) > 1
    return True


def _check_number(name: str, layer: Layer, taken: list[int]) -> None:
    """Check that a layer accepts as many inputs as its node has."""
    if len(taken) != 1:
        try:
            _bind(layer, taken)
        except TypeError:
            raise ValueError(f"layer {name}, {layer!r}: expected one input, got {len(taken)}") from None


def _bind(layer: Layer, taken: Sequence[Any]) -> None:
    """Raise a TypeError if a layer does not take as many inputs."""
    function = layer.output_shape
    own = getattr(function, "__func__", None)
    signature_of(own or function).bind(*([layer] if own else []), *taken)


def _check_used(inputs: dict[str, tuple[str, ...]], output: str, sources: list[str]) -> None:
    """Check that the output depends on every node."""
    used, waiting = set(), [output]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += inputs.get(name, ())
    unused = [name for name in inputs if name not in used]
    if unused:
        raise ValueError(f"nodes: expected nodes that the output {output!r} depends on, got {unused} which it does not")
    if missing := [source for source in sources if source not in used]:
        words = "the network's input" if sources == [INPUT_NAME] else f"all inputs, got one that does not on {missing}"
        raise ValueError(f"output {output!r}: expected an output that depends on {words}")
