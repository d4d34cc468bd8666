"""All time steps of a recurrent layer as one layer: the states h from a = W_ih x + b_ih, (N, T, G H) -> (N, T, H).

The columns go back through time: with γₜ the columns at hₜ and δₜ those at aₜ, δₜ = Jₜᵀ (γₜ + what step t + 1 gives
hₜ). W_hh and b_hh act as a change of a: their columns are Σₜ δₜ hₜ₋₁ᵀ and Σₜ δₜ. There is no residual: the
Hessian's diagonal takes the steps one by one, as layers of a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer, Nodes, Shape
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.layers.norms.affine import Matrix, Shift


class WholeSequences(Nodes):
    """Layers in the order of computation, in which all time steps of a recurrent layer are one layer."""


class Steps(Layer):
    """Base class of the time steps of a kind of recurrent layer. A subclass defines `forward`, `jmp` and `mjp`.

    Arrays of steps have the time first, in the order in which the steps are taken, the last one first if `reverse`:
    (T, N, …), or (T, V, N, …). The parameters are those of the layers `weight`, W_hh (G H, H), and `bias`, b_hh (G H).
    """

    curvature = "dense"
    kronecker_factors = True

    def __init__(self, weight: Matrix, bias: Shift | None, reverse: bool) -> None:
        self.weight, self.bias, self.reverse = weight, bias, reverse
        self.parts = [weight] if bias is None else [weight, bias]
        self.size, self.gates = weight.in_features, weight.out_features // weight.in_features
        self.frozen = frozenset(key for part in self.parts for key in part.frozen)

    def describe(self) -> str:
        return f"{self.size}, {self.weight.key!r}"

    @property
    def step_numbers(self) -> int:
        """Numbers that a step computes for one sample before the next one can begin."""
        return self.gates * self.size

    @property
    def parameters(self) -> dict[str, Array]:
        """W_hh and b_hh by name."""
        return {part.key: part.parameters[part.key] for part in self.parts}

    def parameter_shapes(self) -> dict[str, Shape]:
        return {part.key: part.parameter_shapes()[part.key] for part in self.parts}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2 or shape[1] != self.gates * self.size:
            raise ValueError(f"expected features of shape (T, {self.gates * self.size}), got {shape}")
        return shape[0], self.size

    def hidden(self, h: Array) -> Array:
        """W_hh h + b_hh: ``[…, H] -> […, G H]``."""
        product = self.linear(h)
        return product if self.bias is None else product + self.bias.parameters[self.bias.key]

    def linear(self, h: Array) -> Array:
        """W_hh h: ``[…, H] -> […, G H]``."""
        return h @ self.weight.parameters[self.weight.key].T

    def back(self, delta: Array) -> Array:
        """W_hhᵀ δ: ``[…, G H] -> […, H]``."""
        return delta @ self.weight.parameters[self.weight.key]

    def ordered(self, mat: Array) -> Array:
        """Return a view with the steps first, in the order in which they are taken: ``[…, T, F] -> [T, …, F]``."""
        steps = array_module(mat).moveaxis(mat, -2, 0)
        return steps[::-1] if self.reverse else steps

    def restored(self, steps: Array) -> Array:
        """Return a view as inputs and outputs are: ``[T, …, F] -> […, T, F]``."""
        return array_module(steps).moveaxis(steps[::-1] if self.reverse else steps, 0, -2)

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return self.jacobians_below(saved, lambda mat: self.mjp(saved, mat))

    def jacobians_below(self, saved: Any, carried: Any = None) -> dict[str, ParameterJacobian]:
        """Return the Jacobians of the parameters, of columns at the input; `carried` gives these for other columns."""

        def rows(mat: Array) -> Array:
            return self.at_hidden(saved, mat if carried is None else carried(mat))

        before = saved[0][:-1]
        u = self.restored(before)[None]
        bias = Bias(rows)
        found: dict[str, ParameterJacobian] = {
            self.weight.key: Outer(lambda: u, bias, lambda weight: weight, lambda weight: weight)
        }
        return found if self.bias is None else found | {self.bias.key: bias}

    def at_hidden(self, saved: Any, delta: Array) -> Array:
        """Return the columns at W_hh h + b_hh from those at a: the same, where both are added."""
        return delta


class RNNSteps(Steps):
    """hₜ = φ(aₜ + W hₜ₋₁ + b), with φ elementwise, `nonlinearity`; h₀ = 0."""

    formulas = {"forward": "h = φ(a + W h₋ + b)", "mjp": "δ = φ' (g + Wᵀ δ₊)"}

    def __init__(self, weight: Matrix, bias: Shift | None, reverse: bool, nonlinearity: Any) -> None:
        super().__init__(weight, bias, reverse)
        self.nonlinearity = nonlinearity

    def forward(self, a: Array) -> tuple[Array, Any]:
        h, a = _states(a, self.size), self.ordered(a)
        slope = array_module(a).empty_like(h[1:])
        for t in range(len(a)):
            z = a[t] + self.hidden(h[t])
            h[t + 1] = self.nonlinearity.value(z)
            slope[t] = self.nonlinearity.first(z, h[t + 1])
        return self.restored(h[1:]), (h, slope)

    def jmp(self, saved: Any, mat: Array) -> Array:
        _, slope = saved
        mat = self.ordered(mat)
        change: Any = 0
        found = []
        for t in range(len(slope)):
            change = slope[t] * (mat[t] + (self.linear(change) if t else 0))
            found.append(change)
        return self.restored(array_module(mat).stack(found))

    def mjp(self, saved: Any, mat: Array) -> Array:
        _, slope = saved
        mat = self.ordered(mat)
        delta = _empty(mat, self.size)
        for t in _backwards(mat):
            arriving = mat[t] if t == len(mat) - 1 else mat[t] + self.back(delta[t + 1])
            delta[t] = slope[t] * arriving
        return self.restored(delta)


class LSTMSteps(Steps):
    """cₜ = f ∘ cₜ₋₁ + i ∘ g, hₜ = o ∘ tanh(cₜ), with (i, f, g, o) = (σ, σ, tanh, σ) of aₜ + W hₜ₋₁ + b; h₀ = c₀ = 0."""

    formulas = {"forward": "c = f c₋ + i g, h = o tanh c", "mjp": "δ = ∂(i, f, g, o) (γ, f₊ δc₊)"}

    def forward(self, a: Array) -> tuple[Array, Any]:
        xp, h, a = array_module(a), _states(a, self.size), self.ordered(a)
        c, gates = xp.zeros_like(h), xp.empty((len(a), 4, *h.shape[1:]), dtype=a.dtype)
        for t in range(len(a)):
            z = self.parts_of(a[t] + self.hidden(h[t]))
            gates[t] = i, f, g, o = sigmoid(z[0]), sigmoid(z[1]), xp.tanh(z[2]), sigmoid(z[3])
            c[t + 1] = f * c[t] + i * g
            h[t + 1] = o * xp.tanh(c[t + 1])
        return self.restored(h[1:]), (h, c, gates)

    def jmp(self, saved: Any, mat: Array) -> Array:
        of_cell, of_output, slope, f = self.slopes(saved)
        mat = self.ordered(mat)
        change: Any = 0
        cell: Any = 0
        found = []
        for t in range(len(mat)):
            z = self.parts_of(mat[t] + (self.linear(change) if t else 0))
            cell = f[t] * cell + (of_cell[t][:, None] * z[:3]).sum(0)
            change = of_output[t] * z[3] + slope[t] * cell
            found.append(change)
        return self.restored(array_module(mat).stack(found))

    def mjp(self, saved: Any, mat: Array) -> Array:
        of_cell, of_output, slope, f = self.slopes(saved)
        mat = self.ordered(mat)
        delta = _empty(mat, 4 * self.size)
        cell: Any = 0
        for t in _backwards(mat):
            last = t == len(mat) - 1
            state = mat[t] if last else mat[t] + self.back(delta[t + 1])
            cell = slope[t] * state + (0 if last else f[t + 1] * cell)
            parts = self.parts_of(delta[t])
            parts[:3] = of_cell[t][:, None] * cell
            parts[3] = of_output[t] * state
        return self.restored(delta)

    def parts_of(self, z: Array) -> Array:
        """Return the view of each gate's part, ``[…, 4 H] -> [4, …, H]``."""
        return array_module(z).moveaxis(z.reshape(*z.shape[:-1], 4, self.size), -2, 0)

    def slopes(self, saved: Any) -> tuple[Array, Array, Array, Array]:
        """Return ∂c/∂(i, f, g before σ and tanh) (T, 3, N, H), ∂h/∂o likewise, ∂h/∂c = o (1 − tanh² c), and f."""
        _, c, gates = saved
        xp = array_module(c)
        i, f, g, o = gates.swapaxes(0, 1)
        of_cell = xp.stack([g * i * (1 - i), c[:-1] * f * (1 - f), i * (1 - g * g)], axis=1)
        tanh = xp.tanh(c[1:])
        return of_cell, tanh * o * (1 - o), o * (1 - tanh * tanh), f


class GRUSteps(Steps):
    """hₜ = (1 − z) ∘ n + z ∘ hₜ₋₁; h₀ = 0.

    With b = W hₜ₋₁ + b_hh in three parts, as a: r = σ(a₀ + b₀), z = σ(a₁ + b₁), n = tanh(a₂ + r ∘ b₂).
    """

    formulas = {"forward": "h = (1 − z) n + z h₋", "mjp": "δ = ∂(r, z, n) γ"}

    def forward(self, a: Array) -> tuple[Array, Any]:
        xp, h, a = array_module(a), _states(a, self.size), self.ordered(a)
        parts = xp.empty((*a.shape[:2], 4, self.size), dtype=a.dtype)  # r, z, n and b₂ of each step
        for t in range(len(a)):
            of_a, b = (each.reshape(-1, 3, self.size) for each in (a[t], self.hidden(h[t])))
            parts[t, :, :2] = sigmoid(of_a[:, :2] + b[:, :2])
            r, z = parts[t, :, 0], parts[t, :, 1]
            parts[t, :, 2] = n = xp.tanh(of_a[:, 2] + r * b[:, 2])
            parts[t, :, 3] = b[:, 2]
            h[t + 1] = n + z * (h[t] - n)
        return self.restored(h[1:]), (h, parts)

    def jmp(self, saved: Any, mat: Array) -> Array:
        slopes, r, z = self.slopes(saved)
        mat = self.ordered(mat)
        change: Any = array_module(mat).zeros((*mat.shape[1:3], self.size), dtype=mat.dtype)
        found = []
        for t in range(len(mat)):
            of_a, b = (each.reshape(*mat.shape[1:3], 3, self.size) for each in (mat[t], self.linear(change)))
            before = of_a + b
            before[:, :, 2] = of_a[:, :, 2] + r[t] * b[:, :, 2]
            change = (slopes[t] * before).sum(2) + z[t] * change
            found.append(change)
        return self.restored(array_module(mat).stack(found))

    def mjp(self, saved: Any, mat: Array) -> Array:
        slopes, r, z = self.slopes(saved)
        mat = self.ordered(mat)
        delta = _empty(mat, 3 * self.size)
        parts = delta.reshape(*mat.shape[:3], 3, self.size)
        state: Any = 0
        for t in _backwards(mat):
            if t == len(mat) - 1:
                state = mat[t]
            else:
                hidden = parts[t + 1].copy()
                hidden[:, :, 2] *= r[t + 1]
                state = mat[t] + z[t + 1] * state + self.back(hidden.reshape(delta.shape[1:]))
            parts[t] = slopes[t] * state[:, :, None]
        return self.restored(delta)

    def slopes(self, saved: Any) -> tuple[Array, Array, Array]:
        """Return ∂h/∂(r, z, n before σ and tanh) (T, N, 3, H), r, and ∂h/∂h₋ = z at constant gates."""
        h, parts = saved
        r, z, n, b = (parts[:, :, k] for k in range(4))
        found = array_module(h).empty((*parts.shape[:2], 3, self.size), dtype=h.dtype)
        found[:, :, 2] = new = (1 - z) * (1 - n * n)
        found[:, :, 0] = new * b * r * (1 - r)
        found[:, :, 1] = (h[:-1] - n) * z * (1 - z)
        return found, r, z

    def at_hidden(self, saved: Any, delta: Array) -> Array:
        """(δ₀, δ₁, r ∘ δ₂): r multiplies b₂."""
        parts = delta.reshape(*delta.shape[:-1], 3, self.size).copy()
        parts[..., 2, :] *= self.restored(saved[1][:, :, 0])
        return parts.reshape(delta.shape)


def _states(a: Array, size: int) -> Array:
    """Return zeros (T + 1, N, H) for the states before and after each step of inputs (N, T, G H)."""
    return array_module(a).zeros((a.shape[1] + 1, a.shape[0], size), dtype=a.dtype)


def _empty(mat: Array, features: int) -> Array:
    """Return an array (T, V, N, features) for columns of all steps (T, V, N, H)."""
    return array_module(mat).empty((*mat.shape[:3], features), dtype=mat.dtype)


def _backwards(steps: Array) -> Iterator[int]:
    """Yield the numbers of the steps, from the last to the first."""
    return iter(range(len(steps) - 1, -1, -1))
