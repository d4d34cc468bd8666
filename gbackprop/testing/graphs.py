"""Hypothesis strategies: networks that are no chains, small, and shrinking to smaller.

A block is a layer or container whose output has the shape of its input, so that blocks nest in any way: chains,
residuals, sums, products, concatenations, and graphs in which an output is taken several times and matrices are
multiplied. A layer with parameters may be one that stands elsewhere already: shared parameters.
"""

from __future__ import annotations

from functools import partial

from gbackprop import layers
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.layers.norms.normalization import Norm
from gbackprop.network import Concatenate, Graph, Product, Residual, Sequential, Sum
from gbackprop.testing.strategies import SEEDS, NetworkCase, activations, losses_for, norms, problems, slopes, softmaxes
from gbackprop.testing.symmetries_table import SYMMETRIES

with needed("hypothesis", "gbackprop.testing.graphs", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

SHAPES = st.one_of(st.tuples(st.integers(1, 3)), st.sampled_from([(2, 2), (3, 3), (1, 2)]))
"""Feature shapes: some are square matrices, which can be multiplied."""


def _has_sets(shape: Shape, layer: Layer) -> bool:
    """Return whether a norm's sets have several numbers: of one it makes 0, where the next layer may have a kink."""
    return isinstance(layer, Norm) and layer.sets(shape)[1] > 1


@st.composite
def maps(draw: DrawFn, shape: Shape, shared: list[Layer]) -> Layer:
    """One layer; if it has parameters, it is from `shared` or joins it."""
    kinds = ["linear", "shared", "activation", "slopes", "softmax", "identity"] + ["norm"] * (shape[-1] > 1)
    kind = draw(st.sampled_from(kinds))
    if kind == "shared" and shared:
        return draw(st.sampled_from(shared))
    if kind in ("linear", "shared"):
        shared.append(layers.Linear(shape[-1], shape[-1], bias=draw(st.booleans())))
        return shared[-1]
    others: dict[str, SearchStrategy[Layer]] = {
        "activation": activations(shape), "slopes": slopes(shape), "softmax": softmaxes(shape),
        "norm": norms(shape).filter(partial(_has_sets, shape)),
        "identity": st.builds(layers.Identity),
    }  # fmt: skip
    layer = draw(others[kind])
    if layer.parameter_shapes():
        shared.append(layer)
    return layer


@st.composite
def blocks(draw: DrawFn, shape: Shape, depth: int, shared: list[Layer]) -> Layer:
    """A layer or container that maps features of a shape to features of that shape."""
    if not depth:
        return draw(maps(shape, shared))
    inner = blocks(shape, depth - 1, shared)
    kinds = ["map", "chain", "residual", "sum", "product", "concatenation", "fork"]
    kind = draw(st.sampled_from(kinds + ["matrices"] * (len(shape) == 2 and shape[0] == shape[1])))
    if kind == "map":
        return draw(maps(shape, shared))
    some = draw(st.lists(inner, min_size=1, max_size=2))
    if kind == "residual":
        return Residual(*some, shortcut=draw(st.none() | maps(shape, shared)))
    if kind == "concatenation":
        return Sequential(Concatenate(*some, axis=-1), layers.Linear(shape[-1] * len(some), shape[-1]))
    if kind == "fork":  # one output that is taken three times
        return Graph({
            "fork": (some[0], "input"),
            "gate": (draw(maps(shape, shared)), "fork"),
            "gated": (layers.Multiply(), "gate", "fork"),
            "sum": (layers.Add(), "gated", "fork", "input"),
        })  # fmt: skip
    if kind == "matrices":
        left, right = draw(maps(shape, shared)), draw(maps(shape, shared))
        nodes = {"left": (left, "input"), "right": (right, "input"), "product": (layers.MatMul(), "left", "right")}
        return Graph(nodes)
    return {"chain": Sequential, "sum": Sum, "product": Product}[kind](*some)


@st.composite
def graph_problems(draw: DrawFn, depth: int = 3) -> NetworkCase:
    """Networks of nested blocks and a linear layer, with loss and batch."""
    shape, shared = draw(SHAPES), []  # type: ignore[var-annotated]
    body = draw(st.lists(blocks(shape, depth, shared), min_size=1, max_size=2))
    chain = [*body, layers.Flatten()] if len(shape) > 1 and draw(st.booleans()) else body
    width = Sequential(*chain).output_shape(shape)[-1]
    seed = draw(SEEDS)
    network = Sequential(*chain, layers.Linear(width, draw(st.integers(1, 3))), rng=seed, dtype="float64")
    return NetworkCase(network, draw(losses_for(network.output_shape(shape))), shape, draw(st.integers(1, 3)), seed)


def symmetric_problems() -> SearchStrategy[tuple[NetworkCase, str]]:
    """Networks, chains and others, with the name of a symmetry for `check_symmetries`."""
    return st.tuples(problems() | graph_problems(), st.sampled_from([each.name for each in SYMMETRIES]))
