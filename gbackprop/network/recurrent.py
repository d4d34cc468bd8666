"""Recurrent layers: `RNN`, `LSTM`, `GRU`."""

from __future__ import annotations

from typing import Any

from gbackprop.calculus.layer import Layer
from gbackprop.engine.registry import ClassForms
from gbackprop.layers import Add, Multiply, ReLU, Sigmoid, Tanh
from gbackprop.layers.recurrent import GRUSteps, LSTMSteps, RNNSteps, Steps
from gbackprop.network.recurrence import Append, Recurrent, State


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
        self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng=rng, dtype=dtype
        )

    @property
    def nonlinearity(self) -> type[Layer]:
        """The class of the layer that is applied in each step; it may be assigned, or "tanh" or "relu"."""
        return self._nonlinearity

    @nonlinearity.setter
    def nonlinearity(self, value: str | type[Layer]) -> None:
        kinds: dict[Any, type[Layer]] = {"tanh": Tanh, "relu": ReLU}
        kind = value if isinstance(value, type) else kinds.get(value) if isinstance(value, str) else None
        if kind is None or not issubclass(kind, Layer):
            raise ValueError(f"{type(self).__name__}, nonlinearity: expected 'tanh' or 'relu', got {value!r}")
        self._nonlinearity = kind

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


Recurrent.rows = tuple(ClassForms(kind) for kind in (RNN, LSTM, GRU))
