"""Recurrent layers: `RNN`, `LSTM`, `GRU`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.layers import Add, Concat, Multiply, ReLU, Select, Sigmoid, Slice, Tanh, Unflatten
from gbackprop.layers.norms.affine import Matrix, Shift, Times, Zeros
from gbackprop.layers.recurrent import GRUSteps, LSTMSteps, RNNSteps, Steps, WholeSequences
from gbackprop.network.container import inside
from gbackprop.network.expanded import Expanded

Append = Callable[..., int]
"""``(label, layer, *sources)``: append a layer of a time step; return its position."""

State = tuple[int, ...]
"""The positions of a state: its first is the output of the step."""


class Recurrent(Expanded):
    """Base class of recurrent layers. A subclass defines `step`.

    At each time step the same parameters are used; they are shared as those of a layer at several places are.
    """

    gates: ClassVar[int]
    """The number of vectors of length `hidden_size` that the linear maps give."""

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
        self.bias, self.bidirectional = bool(bias), bool(bidirectional)
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
        words = [str(self.input_size), str(self.hidden_size)]
        words += [f"num_layers={self.num_layers}"] if self.num_layers > 1 else []
        words += [] if self.bias else ["bias=False"]
        words += [f"dropout={self.dropout.p}"] if self.dropout.p else []
        return ", ".join(words + (["bidirectional=True"] if self.bidirectional else []))

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
        """Return whether each step is that of `all_steps`: no method of this layer or its children is overridden."""
        kind, children = type(self), self.children.values()
        own = (kind.direction, kind.gate) == _DIRECTION and (kind.step, kind.all_steps) in _STEPS
        own &= _OF_STEPS.isdisjoint(vars(self))
        return own and all(type(child) in (Matrix, Shift) and _METHODS.isdisjoint(vars(child)) for child in children)

    def all_steps(self, weight: Any, bias: Any, reverse: bool) -> Steps:
        """Return all steps in one direction as one layer, with these layers' parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no all_steps")

    def step(self, add: Append, x: int, hidden: int, state: State) -> State:
        """Append a time step; return the next state.

        Parameters
        ----------
        add : callable
        x, hidden : int
            Positions of W_ih x + b_ih and W_hh h + b_hh, (gates · H).
        state : tuple of int
            Before the step; at the first, the zeros alone.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def gate(self, i: int, count: int = 1) -> Slice:
        """Return a layer that takes the numbers of gate i, and of those after it, if `count` is not 1."""
        return Slice(1, i * self.hidden_size, (i + count) * self.hidden_size)


class RNN(Recurrent):
    """A recurrent layer with h' = tanh(W_ih x + b_ih + W_hh h + b_hh): ``[N, T, input_size] -> [N, T, D H]``.

    H is `hidden_size`, D is 2 if `bidirectional` and 1 otherwise. The output is the sequence of states of the last
    layer; torch's returns a tuple, of which this is the first entry. h is 0 before the first step.

    Parameters
    ----------
    input_size, hidden_size, num_layers : int
    nonlinearity : {"tanh", "relu"}
    bias : bool
        Whether there are b_ih and b_hh.
    batch_first : bool
        Must be True, which is the default here.
    dropout : float
        Of the outputs of all layers but the last, in training mode.
    bidirectional : bool
        Whether each layer has a second set of parameters for the steps in reverse order.
    rng, dtype
        As for `Sequential`.

    Attributes
    ----------
    parameters
        For each layer k "weight_ih_lk" (H, inputs), "weight_hh_lk" (H, H), "bias_ih_lk", "bias_hh_lk" (H), then
        those of the other direction, with names that end in "_reverse". Drawn from U(−1/√H, 1/√H).

    Raises
    ------
    ValueError
        If a size or `nonlinearity` does not fit.
    UnsupportedError
        If `batch_first` is False.

    Source: Elman 1990.
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        rng: Any = None,
        dtype: Any = None,
    ) -> None:
        kinds: dict[str, type[Layer]] = {"tanh": Tanh, "relu": ReLU}
        if not isinstance(nonlinearity, str) or nonlinearity not in kinds:
            raise ValueError(f"{type(self).__name__}, nonlinearity: expected 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = kinds[nonlinearity]
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng=rng, dtype=dtype
        )

    def describe(self) -> str:
        return super().describe() + (", nonlinearity='relu'" if self.nonlinearity is ReLU else "")

    def all_steps(self, weight: Any, bias: Any, reverse: bool) -> Steps:
        return RNNSteps(weight, bias, reverse, self.nonlinearity())

    def step(self, add: Append, x: int, hidden: int, state: State) -> State:
        return (add("state", self.nonlinearity(), add("sum", Add(), x, hidden)),)


class LSTM(Recurrent):
    """Long short-term memory: ``[N, T, input_size] -> [N, T, D H]``, with D and the output as for `RNN`.

    c' = f ∘ c + i ∘ g and h' = o ∘ tanh(c'), with (i, f, g, o) = (σ, σ, tanh, σ) of the four parts of
    W_ih x + b_ih + W_hh h + b_hh. h and c are 0 before the first step.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng, dtype
        As for `RNN`.
    proj_size : int
        Of torch: must be 0.

    Attributes
    ----------
    parameters
        As for `RNN`, with 4 H rows.

    Raises
    ------
    ValueError
        If a size does not fit.
    UnsupportedError
        If `batch_first` is False, or `proj_size` is not 0.

    Source: Hochreiter, Schmidhuber 1997.
    """

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        rng: Any = None,
        dtype: Any = None,
    ) -> None:
        self.refuse("proj_size", proj_size, 0, "outputs have hidden_size numbers")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng=rng, dtype=dtype
        )

    def all_steps(self, weight: Any, bias: Any, reverse: bool) -> Steps:
        return LSTMSteps(weight, bias, reverse)

    def step(self, add: Append, x: int, hidden: int, state: State) -> State:
        gates = add("gates", Add(), x, hidden)

        def gate(label: str, kind: Layer, i: int) -> int:
            return add(label, kind, add(f"{label}_part", self.gate(i), gates))

        cell = add("new", Multiply(), gate("i", Sigmoid(), 0), gate("g", Tanh(), 2))
        if len(state) > 1:  # before the first step the cell is zero
            cell = add("cell", Add(), add("old", Multiply(), gate("f", Sigmoid(), 1), state[1]), cell)
        o = gate("o", Sigmoid(), 3)
        return add("state", Multiply(), o, add("tanh", Tanh(), cell)), cell


class GRU(Recurrent):
    """Gated recurrent unit: ``[N, T, input_size] -> [N, T, D H]``, with D and the output as for `RNN`.

    h' = (1 − z) ∘ n + z ∘ h, with a = W_ih x + b_ih and b = W_hh h + b_hh in three parts each, r = σ(a₀ + b₀),
    z = σ(a₁ + b₁) and n = tanh(a₂ + r ∘ b₂). h is 0 before the first step.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng, dtype
        As for `RNN`.

    Attributes
    ----------
    parameters
        As for `RNN`, with 3 H rows.

    Raises
    ------
    ValueError
        If a size does not fit.
    UnsupportedError
        If `batch_first` is False.

    Source: Cho et al. 2014, with r applied as in torch.
    """

    gates = 3
    minus: ClassVar[Layer] = Times(-1.0)

    def all_steps(self, weight: Any, bias: Any, reverse: bool) -> Steps:
        return GRUSteps(weight, bias, reverse)

    def step(self, add: Append, x: int, hidden: int, state: State) -> State:
        both = [add(f"{label}_gates", self.gate(0, 2), at) for label, at in (("x", x), ("h", hidden))]
        gates = add("gates", Sigmoid(), add("sum", Add(), *both))
        r, z = (add(label, self.gate(k), gates) for k, label in enumerate(("r", "z")))
        reset = add("reset", Multiply(), r, add("h_new", self.gate(2), hidden))
        new = add("new", Tanh(), add("new_sum", Add(), add("x_new", self.gate(2), x), reset))
        change = add("change", Add(), state[0], add("minus_new", self.minus, new))
        return (add("state", Add(), new, add("z_change", Multiply(), z, change)),)


_DIRECTION = Recurrent.direction, Recurrent.gate
_OF_STEPS = {"direction", "gate", "step", "all_steps"}
_STEPS = {(kind.step, kind.all_steps) for kind in (RNN, LSTM, GRU)}
_METHODS = {"forward", "jmp", "mjp", "vjp", "parameter_jacobians", "parameters"}
