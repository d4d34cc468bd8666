"""`Recurrent`, what recurrent layers have in common: the graph of their time steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.engine.registry import ClassForms
from gbackprop.layers import Concat, ReLU, Select, Slice, Tanh, Unflatten
from gbackprop.layers.norms.affine import Matrix, Shift, Times, Zeros
from gbackprop.layers.recurrent import Steps, WholeSequences
from gbackprop.network.expanded import Expanded

Append = Callable[..., int]
"""``(label, layer, *sources)``: append a layer of a time step; return its position."""

State = tuple[int, ...]
"""The positions of a state: its first is the output of the step."""


class Recurrent(Expanded):
    """Base class of recurrent layers. A subclass defines `step`.

    At each time step the same parameters are used; they are shared as those of a layer at several places are.
    """

    fixed = frozenset({"input_size", "hidden_size", "num_layers", "bias", "dropout", "bidirectional"})
    gates: ClassVar[int]
    """The number of vectors of length `hidden_size` that the linear maps give."""

    rows: ClassVar[tuple[ClassForms, ...]] = ()
    """The classes whose `step` and `all_steps` compute the same, with the functions that these are made of."""

    minus: ClassVar[Layer] = Times(-1.0)
    """The layer of a step that changes the sign."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        rng: Any = None,
        dtype: Any = None,
    ) -> None:
        self.input_size = self.features = self.size("input_size", input_size)
        self.hidden_size, self.num_layers = self.size("hidden_size", hidden_size), self.size("num_layers", num_layers)
        self.bias, self.bidirectional = self.flag("bias", bias), self.flag("bidirectional", bidirectional)
        self.batch_is_first(batch_first)
        self.dropout, self.start = self.dropout_of(dropout), Zeros(hidden_size)
        children: dict[str, Layer] = {}
        out, bound = self.gates * hidden_size, hidden_size**-0.5
        for i in range(num_layers):
            size = input_size if i == 0 else hidden_size * len(self.suffixes(i))
            for suffix in self.suffixes(i):
                layers: list[Any] = [Matrix(f"weight_ih_{suffix}", size, out, bound)]
                layers += [Matrix(f"weight_hh_{suffix}", hidden_size, out, bound)]
                layers += [Shift(f"bias_{of}_{suffix}", out, bound) for of in ("ih", "hh") if self.bias]
                children |= {layer.key: layer for layer in layers}
        self.own = frozenset(children)
        super().__init__(children, rng, dtype)

    def describe(self) -> str:
        return self.arguments(
            self.input_size, self.hidden_size, num_layers=(self.num_layers, 1), bias=(self.bias, True),
            dropout=(self.dropout.p, 0), bidirectional=(self.bidirectional, False),
        )  # fmt: skip

    def suffixes(self, layer: int) -> list[str]:
        """Return how the names of a layer's parameters end, for each direction."""
        return [f"l{layer}", f"l{layer}_reverse"][: 1 + self.bidirectional]

    def expand(self, nodes: Nodes, name: str, source: int, length: int) -> int:
        whole = isinstance(nodes, WholeSequences) and self._is_own()
        append = self.whole_direction if whole else self.direction
        for i in range(self.num_layers):
            ends = [append(nodes, name, suffix, source, length) for suffix in self.suffixes(i)]
            source = ends[0] if len(ends) == 1 else nodes.add(inside(name, f"directions_l{i}"), Concat(-1), *ends)
            if self.dropout.p and i < self.num_layers - 1:
                source = nodes.add(inside(name, f"dropout_l{i}"), self.dropout, source)
        return source

    def direction(self, nodes: Nodes, name: str, suffix: str, source: int, length: int) -> int:
        """Append the steps of a layer in one direction; return the position of its outputs, ``[N, T, hidden_size]``."""

        def own(key: str, at: int, where: str = "") -> int:
            layer = self.children.get(f"{key}_{suffix}")
            return at if layer is None else nodes.add(inside(name, f"{where}{key}_{suffix}"), layer, at)

        def appending(where: str) -> Append:
            return lambda label, layer, *sources: nodes.add(inside(name, where + label), layer, *sources)

        start = nodes.add(inside(name, f"start_{suffix}"), self.start, source)
        x, hidden = own("weight_ih", source), own("weight_hh", start, "first_")
        x, hidden = own("bias_ih", x), own("bias_hh", hidden, "first_")  # in the order of the state dict
        outputs: list[int] = [0] * length
        state: State = (start,)
        order = range(length)[::-1] if suffix.endswith("reverse") else range(length)
        for t in order:
            where = f"{suffix}_step{t}_"
            add = appending(where)
            if t != order[0]:
                hidden = own("bias_hh", own("weight_hh", state[0], where), where)
            state = self.step(add, add("input", Select(1, t), x), hidden, state)
            outputs[t] = add("output", Unflatten(1, (1, self.hidden_size)), state[0])
        return outputs[0] if length == 1 else nodes.add(inside(name, f"outputs_{suffix}"), Concat(1), *outputs)

    def whole_direction(self, nodes: Nodes, name: str, suffix: str, source: int, length: int) -> int:
        """Append what `direction` does, with all steps as one layer."""
        for key in (f"weight_ih_{suffix}", f"bias_ih_{suffix}"):
            if key in self.children:
                source = nodes.add(inside(name, key), self.children[key], source)
        weight, bias = (self.children.get(f"{kind}_hh_{suffix}") for kind in ("weight", "bias"))
        layer = self.all_steps(weight, bias, suffix.endswith("reverse"))
        nodes.names[id(layer)] = nodes.names[id(weight)]
        return nodes.add(inside(name, f"steps_{suffix}"), layer, source)

    def _is_own(self) -> bool:
        """Return whether each step is that of `all_steps`: this layer and its children are what their classes say."""
        row = next((row for row in Recurrent.rows if isinstance(self, row.kind)), None)
        own = self.minus is _MINUS and type(self.start) is Zeros
        own &= getattr(self, "nonlinearity", Tanh) in (Tanh, ReLU)
        if row is None or not own or not row.holds(self):
            return False
        known = {part.kind: part for part in _CHILDREN}
        return all(type(child) in known and known[type(child)].holds(child) for child in self.children.values())

    def all_steps(self, weight: Any, bias: Any, reverse: bool) -> Steps:
        """Return all steps in one direction as one layer, with these layers' parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no all_steps")

    def step(self, add: Append, x: int, hidden: int, state: State) -> State:
        """Append a time step, from W_ih x + b_ih, W_hh h + b_hh and the state before (zeros alone); return the next."""
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def gate(self, i: int, count: int = 1) -> Slice:
        """Return a layer that takes the numbers of gate i, and of those after it, if `count` is not 1."""
        return Slice(1, i * self.hidden_size, (i + count) * self.hidden_size)


_CHILDREN = ClassForms(Matrix), ClassForms(Shift)
_MINUS = Recurrent.minus
