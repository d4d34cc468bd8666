"""Conventions of Kronecker factors: which columns give B, and what is done with shared positions.

For a weight that is applied at T positions, with u[n, t] its inputs and s[v, n, t] the columns at its outputs, which
have √R in them:

========= =================== ============================
sharing   A                   B
========= =================== ============================
"bias"    1/N Σₙₜ u uᵀ        Σₙᵥ (Σₜ s[t]) (Σₜ s[t])ᵀ
"expand"  1/(N T) Σₙₜ u uᵀ    Σₙᵥₜ s[t] s[t]ᵀ
"reduce"  1/N Σₙ ū ūᵀ         Σₙᵥ (Σₜ s[t]) (Σₜ s[t])ᵀ
========= =================== ============================

with ū[n] = 1/T Σₜ u[n, t]. Columns of `fisher`:

"mc"
    √(R/(c M)) ∇ℓ(fₙ, ŷₙₘ), at M pseudo-targets (c as in `Loss.summed_weight`).
"exact"
    √R Sₙ, the exact root of the loss's Hessian.
"empirical"
    √R ∇ℓₙ, at the true targets.
"forward-only"
    None: B is the identity, free of R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import check_flag
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.mixed import jacobians_of_zeros
from gbackprop.calculus.signals import EXACT, GRADIENT, MonteCarlo, Signal
from gbackprop.calculus.views import View, Viewed, expand, joint, outer_of, reduce
from gbackprop.quantities.base import Scale, Statistic

FISHER = ("mc", "exact", "empirical", "forward-only")
SHARING = ("bias", "expand", "reduce")


def joint_expand(jacobian: ParameterJacobian) -> ParameterJacobian:
    """`expand` of weight and bias as one matrix."""
    return expand(joint(jacobian))


def joint_reduce(jacobian: ParameterJacobian) -> ParameterJacobian:
    """`reduce` of weight and bias as one matrix."""
    return reduce(joint(jacobian))


VIEWS: dict[tuple[str, bool], View] = {
    ("expand", False): expand,
    ("reduce", False): reduce,
    ("bias", True): joint,
    ("expand", True): joint_expand,
    ("reduce", True): joint_reduce,
}
"""The views of which A and B are taken, by `sharing` and `joint_bias`; the default has none."""

A_TEXT = {"bias": "Σₙₜ u uᵀ", "expand": "1/T Σₙₜ u uᵀ", "reduce": "Σₙ ū ūᵀ, ū = 1/T Σₜ u"}
B_TEXT = {"expand": "B = Σᵥₙₜ g gᵀ"}


OPTIONS = frozenset({"fisher", "sharing", "joint_bias"})
"""The options of a quantity that a convention is made of."""


class Convention:
    """A choice of `fisher`, `sharing` and `joint_bias` of a quantity, `owner`, with the statistics that it needs."""

    owner: str
    fisher: str
    sharing: str
    joint_bias: bool

    def __init__(
        self,
        owner: str,
        fisher: str,
        sharing: str,
        joint_bias: bool,
        drawn: MonteCarlo,
        fishers: Sequence[str] = FISHER,
    ) -> None:
        for name, value, known in (("fisher", fisher, fishers), ("sharing", sharing, SHARING)):
            if not isinstance(value, str) or value not in known:
                words = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
                raise ValueError(f"{owner}, {name}: expected {words}, got {value!r}")
        joint_bias = check_flag(f"{owner}, joint_bias", joint_bias)
        if fisher != "mc" and (drawn.mc_samples != 1 or drawn.targets is not None):
            raise ValueError(f"{owner}: mc_samples and targets are for fisher='mc', got fisher={fisher!r}")
        vars(self).update(owner=owner, fisher=fisher, sharing=sharing, joint_bias=joint_bias)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise an error: a quantity's statistics and formulas follow from this."""
        raise AttributeError(f"{self.owner}, {name}: expected no change after it was made; make another quantity")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Convention) and vars(self) == vars(other)

    def __repr__(self) -> str:
        """Return the arguments that are not the default, as they are written in a call."""
        words = [f"fisher={self.fisher!r}"] if self.fisher != "mc" else []
        words += [f"sharing={self.sharing!r}"] if self.sharing != "bias" else []
        words += ["joint_bias=True"] if self.joint_bias else []
        return ", ".join(words)

    @property
    def formulas(self) -> tuple[str, str]:
        """The exact formulas of A and B, and what is computed at the end of a sweep: `Quantity.scale`, `finishes`."""
        a = {"bias": "1/N Σₙₜ u uᵀ", "expand": "1/(N T) Σₙₜ u uᵀ", "reduce": "1/N Σₙ ū ūᵀ"}[self.sharing]
        before, index = {"mc": ("R/M", "ₙₘ"), "exact": ("R", "ₙᵥ")}.get(self.fisher, ("R", "ₙ"))
        total = f"{before} Σ{index}ₜ g gᵀ" if self.sharing == "expand" else f"{before} Σ{index} b bᵀ"
        one = ", u ← [u, 1]" if self.joint_bias else ""
        end = {"empirical": "B = kronecker / R", "forward-only": "B = I"}.get(self.fisher, "B as extracted")
        scale = f"B ⊗ A, A = {a}{one}, B = {'I' if self.fisher == 'forward-only' else total}"
        return scale, f"A = input_square / N, {end}"

    @property
    def powers(self) -> tuple[int, int]:
        """Those of R and c in B: see `Quantity.powers`. ∇ℓ ∇ℓᵀ at the true targets has c², and B = I has no scale."""
        return {"empirical": (1, 2), "forward-only": (0, 0)}.get(self.fisher, (1, 1))

    def columns(self, drawn: MonteCarlo) -> Signal:
        """Return the columns of `fisher`; `drawn` are those of "mc"."""
        return {"mc": drawn, "exact": EXACT}.get(self.fisher, GRADIENT)

    def statistics(self, drawn: MonteCarlo) -> tuple[Statistic, ...]:
        """Return the statistics of A and B; `drawn` are the columns of "mc"."""
        view, signal = VIEWS.get((self.sharing, self.joint_bias)), self.columns(drawn)
        if view is None:
            return Statistic("input_square", mean=True), Statistic("kronecker", signal)
        u = ", u ← [u, 1]" if self.joint_bias else ""
        a = Viewed.of("input_square", view, A_TEXT[self.sharing] + u, lacks_joint if self.joint_bias else None)
        b = Viewed.of("kronecker", expand, B_TEXT["expand"]) if self.sharing == "expand" else "kronecker"
        return Statistic(a, mean=True), Statistic(b, signal)

    def shown(self, plain: str) -> str:
        """Return the representation of a quantity with these arguments, from one without them."""
        return plain if not repr(self) else f"{plain[:-1]}, {self!r})"

    def __call__(self, quantity: Any, scale: Scale, found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Compute the block of each parameter that has one: see `Quantity.together`.

        With `joint_bias` the bias that belongs to a weight has none.
        """
        biases = {joined_bias(name) for name, (a, _) in found.items() if a is not None} if self.joint_bias else set()
        named = {name: values for name, values in found.items() if name not in biases}
        return {name: quantity.finish(scale, a, self._scaled(scale, b)) for name, (a, b) in named.items()}

    def _scaled(self, scale: Scale, b: Array) -> Array:
        """Compute B from its statistic."""
        if self.fisher == "forward-only":
            xp = array_module(b)
            return xp.zeros_like(b) + xp.eye(b.shape[-1], dtype=b.dtype)
        return self.of_squares(scale, b)

    def of_squares(self, scale: Scale, total: Any) -> Any:
        """Compute what is quadratic in the columns: the gradient's has R in it, the others √R."""
        return total / scale.factor if self.fisher == "empirical" else total


def joined_bias(weight: str) -> str:
    """Return the name of the bias that belongs to a weight."""
    return f"{weight.removesuffix('weight')}bias"


def lacks_joint(leaf: Leaf, uses: Mapping[str, int] | None) -> str | None:
    """Return the reason why a layer's weight and bias are no matrix [O, I + 1], or None: see `Viewed.lacks`."""
    jacobians = jacobians_of_zeros(leaf)
    for key, name in leaf.parameters.items():
        outer, bias = outer_of(jacobians[key]), leaf.parameters.get(joined_bias(key))
        if outer is None:
            continue
        if not isinstance(jacobians[key], Outer):
            return f"the outputs of its {key} lie between the inputs, so that joint_bias has no column for the bias"
        if outer.groups > 1:
            return f"its {key} has {outer.groups} groups, so that joint_bias has no one matrix for the bias"
        if bias is None:
            return f"its {key} has no bias in this layer, or that is frozen, and joint_bias needs one"
        if bias != joined_bias(name):
            return f"joint_bias needs names as a.weight and a.bias, or weight and bias, not {name} and {bias}"
        if uses and uses[name] != uses[bias]:
            return f"joint_bias needs a bias at the same places: it is used at {uses[bias]}, its {key} at {uses[name]}"
    return None
