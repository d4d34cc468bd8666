"""The network's input as a parameter: derivatives in the entries of x, and the names of what is differentiated in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gbackprop.array import Array
from gbackprop.base.names import inside, near_miss
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import INPUT, Layer, Leaf, Nodes, Shape, leaves_of
from gbackprop.calculus.tied import Direct

X = "x"
"""The name of the network's input in `wrt` and in results."""

Names = frozenset[str]


class InputRows(Layer):
    """The network's input as a parameter, y = x: each sample has its own row of it."""

    formulas = {"forward": "y = x"}
    kronecker_factors = "the entries of x are no weight of a layer, and no sample has those of another"

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def describe(self) -> str:
        return str(self.shape)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"": self.shape}

    @property
    def parameters(self) -> dict[str, Array]:
        """None: the values are the network's input."""
        return {}

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x, None

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {"": OwnRow()}


class OwnRow(Direct):
    """The Jacobian of each sample's input in itself: a sum over samples has the term of one in each row."""

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        return self.batch(mat, sign)

    def push(self, directions: Array, batch: int, shape: Shape) -> Array:
        """Return J P, the row of each sample: ``[K, N, *in]``, as it is."""
        return directions


def names_of(wrt: Any) -> Names:
    """Return names, or one, as a set."""
    given = [wrt] if isinstance(wrt, str) else list(wrt) if isinstance(wrt, Iterable) else [wrt]
    if not given or not all(isinstance(each, str) for each in given):
        raise TypeError(f"wrt: expected names of parameters, or {X!r} for the input, got {wrt!r}")
    return frozenset(given)


def check_names(network: Layer, wrt: Names, x: Array) -> Names:
    """Check that each name is that of a parameter that is not frozen, or the input's, which has floats."""
    frozen, inputs = network.frozen, getattr(network, "several", None)
    known = [name for name in network.parameter_shapes() if name not in frozen]
    parts = {} if inputs is None else {f"{X}.{key}": part.kind == "floats" for key, part in inputs.parts.items()}
    own = {X: any(parts.values()) if parts else x.dtype.kind == "f", **parts}  # whether these are floats
    for name in sorted(wrt):
        if name in own and name in known:
            raise ValueError(f"wrt: expected a network without a parameter of the input's name {name!r}")
        if name not in own and name not in known:
            hint = ", which is frozen (net.unfreeze)" if name in frozen else near_miss(name, known)
            raise ValueError(f"wrt: expected names among {[*own, *known]}, got {name!r}{hint}")
        if not own.get(name, True):
            got = x.dtype if name == X else "integers"
            raise TypeError(f"wrt: expected an input of floats for {name!r}, got {got}: an index has no derivative")
    return wrt - {X} | {name for name in parts if parts[name]} if parts and X in wrt else wrt


def placed(network: Layer, nodes: Nodes) -> list[Leaf]:
    """Return the layers of a network in `nodes`, above its input as a parameter if that is asked for."""
    asked = nodes.wrt is not None and X in nodes.wrt
    source = nodes.add(X, InputRows(nodes.input_shape), INPUT) if asked else INPUT
    return leaves_of(network, nodes.input_shape, nodes, source)


def every_value(leaves: list[Leaf]) -> list[tuple[Mapping[str, str], dict[str, Array]]]:
    """Return the names of all parameters by their keys, and the values, for each layer."""
    owned = [(leaf.name, leaf.layer.parameters) for leaf in leaves]
    return [({key: inside(name, key) for key in its}, its) for name, its in owned]
