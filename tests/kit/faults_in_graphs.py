"""Planted faults in networks that are no chains: joins, containers of branches, shared parameters."""

from dataclasses import replace

import numpy as np
from faults import Fault, after, before, instead, on_graph, on_layer, times

from gbackprop import layers
from gbackprop.calculus import mixed, residual
from gbackprop.calculus.layer import INPUT, Nodes
from gbackprop.layers import joins
from gbackprop.network import Concatenate, Graph, Product, Residual, Sequential, Sum
from gbackprop.network.branches import Branches
from gbackprop.network.container import Container
from gbackprop.plain import branching, uses
from gbackprop.plain.branching import Branching
from gbackprop.plain.flow import Flow
from gbackprop.plain.uses import Uses

# -------------------------------------------------------------------------------------------------------------- checks

graph = on_graph()


def branch(kind, combine, **options):
    """`check_layer` of two branches that meet."""
    return on_layer(
        lambda: kind(layers.Tanh(), layers.Sigmoid(), **options), (3,),
        lambda x: combine(np.tanh(x), 1 / (1 + np.exp(-x))),
    )  # fmt: skip


summed = branch(Sum, lambda a, b: a + b)
gated = branch(Product, lambda a, b: a * b)
joined = branch(Concatenate, lambda a, b: np.concatenate([a, b], 1))
skipped = on_layer(lambda: Residual(layers.Tanh()), (3,), lambda x: np.tanh(x) + x)
forked = on_layer(
    lambda: Graph({"a": (layers.Tanh(), "input"), "b": (layers.Sigmoid(), "a"), "c": (layers.Add(), "a", "b")}),
    (3,), lambda x: np.tanh(x) + 1 / (1 + np.exp(-np.tanh(x))),
)  # fmt: skip
slopes = on_graph(lambda: _slopes())


def _slopes():
    shared = layers.PReLU(3)
    return [layers.Linear(2, 3), shared, layers.Linear(3, 3), shared, layers.Tanh(), layers.Linear(3, 2)]

# ----------------------------------------------------------------------------------------------- longer wrong functions


def zero_for_the_second(parts):
    return parts[0], np.zeros_like(parts[1])


def without_transposing(self, saved, mat):
    a, b = saved
    return mat @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ mat[:, ::-1]


def without_singular_values(self, svd, a, b, index):
    return self, (svd[0], np.ones_like(svd[1]), svd[2]), a, b, index


def positive_half(factored):
    half = factored.width // 2
    return replace(factored, width=half, columns=lambda span: factored.columns(slice(0, half)))


def not_balanced(a, b, sign, at):
    on_a, on_b = a / 2**0.5, b / 2**0.5 * sign[:, None, *(None,) * (b.ndim - 2)]
    return (2 * on_a, on_b), sign[:, None] * np.ones(a.shape[:2])


def in_reverse(stacks):
    return [stack.with_values(stack.values[::-1]) if i else stack for i, stack in enumerate(stacks)]


def last_use_alone(self, name, jacobian, stack):
    wanted = self.plan.flow.uses[name]
    seen = self.met.setdefault(name, [])
    seen.append((jacobian, stack))
    return [(jacobian, stack, self.plan.statistics)] if len(seen) == wanted else []


def squares_added(uses_of_one):
    """The statistics of all uses next to each other: squared before they are added."""
    return lambda self, name, jacobian, stack: [(jacobian, stack, self.plan.statistics)]


def without_the_input(sound):
    def append(self, leaf, saved, signals, below):
        kept = sound(self, leaf, saved, signals, below)
        return below if self.plan.flow.mixed(leaf) else kept

    return append


def at_the_wrong_place(self, nodes, name, *sources):
    ends = [layer.place(nodes, f"{name}.{key}", *sources) for key, layer in self.children.items()]
    return ends[0]


def latest_consumer_alone(self, saved, mat):
    leaves, kept = saved
    arriving = {len(leaves) - 1: mat}
    for leaf in reversed(leaves):
        below = leaf.layer.mjp(kept[leaf.position], arriving.pop(leaf.position))
        arriving |= dict(zip(leaf.sources, below if len(leaf.sources) > 1 else (below,), strict=True))
    return arriving[INPUT]


def from_the_input(self, nodes, name, *sources):
    at = {"input": sources[0]}
    for node in self.order:
        taken = [at[other] if i == 0 else sources[0] for i, other in enumerate(self.inputs[node])]
        at[node] = self.children[node].place(nodes, node, *taken)
    return at[self.output]


def with_twice_the_gradient(self, saved, key, grad, shape):
    return self, saved, key, 2 * grad, shape


def names_of_their_own(sound):
    def add(self, name, layer, *sources):
        self.names.pop(id(layer), None)
        return sound(self, name, layer, *sources)

    return add


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    Fault(layers.Add, "forward", "difference", lambda sound: lambda s, a, b: (a - b, 2), layers.Add, "forward"),
    Fault(layers.Add, "jmp", "first alone", instead(lambda self, saved, a, b: a), layers.Add, "jmp"),
    Fault(layers.Add, "mjp", "first alone", after(zero_for_the_second), layers.Add, "mjp"),
    Fault(layers.Multiply, "forward", "sum", lambda sound: lambda s, a, b: (a + b, (a, b)), layers.Multiply, "forward"),
    Fault(layers.Multiply, "jmp", "one factor alone",
          instead(lambda self, saved, of_a, of_b: saved[1] * of_a), layers.Multiply, "jmp"),
    Fault(layers.Multiply, "mjp", "the factor itself",
          before(lambda self, saved, mat: (self, saved[::-1], mat)), layers.Multiply, "mjp"),
    Fault(layers.Multiply, "pairs", "without the gradient",
          after(lambda ab: (ab[0], ab[0])), layers.Multiply, "residual"),
    Fault(layers.Multiply, "pairs", "wrong sign", after(lambda ab: (ab[0], -ab[1])), layers.Multiply, "residual"),
    Fault(layers.Concat, "forward", "in reverse", before(lambda s, a, b: (s, b, a)), layers.Concat, "forward"),
    Fault(layers.Concat, "mjp", "second is zero", after(zero_for_the_second), layers.Concat, "mjp"),
    Fault(layers.MatMul, "forward", "B B", lambda sound: lambda s, a, b: (a @ b * 2, (a, b)), layers.MatMul, "forward"),
    Fault(layers.MatMul, "jmp", "one factor alone", instead(lambda s, saved, a, b: a @ saved[1]), layers.MatMul, "jmp"),
    Fault(layers.MatMul, "mjp", "rows in reverse", instead(without_transposing), layers.MatMul, "mjp"),
    Fault(layers.MatMul, "pairs", "no singular values", before(without_singular_values), layers.MatMul, "residual"),
    Fault(joins, "products", "missing cross term", after(positive_half), layers.Multiply, "residual"),
    Fault(residual, "signed", "signs lost",
          after(lambda pieces: (pieces[0], abs(pieces[1]))), layers.Multiply, "residual"),
    Fault(residual, "signed", "not balanced", instead(not_balanced), layers.Multiply, "residual"),
    Fault(Branches, "place", "first branch alone", instead(at_the_wrong_place), summed, "forward"),
    Fault(Sum, "meet", "product", instead(Product.meet), summed, "forward"),
    Fault(Product, "meet", "sum", instead(Sum.meet), gated, "forward"),
    Fault(Concatenate, "meet", "in reverse",
          before(lambda self, nodes, name, ends: (self, nodes, name, ends[::-1])), joined, "forward"),
    Fault(Residual, "place", "no shortcut",
          instead(lambda self, nodes, name, *sources: Sequential(*self.chain.values()).place(nodes, name, *sources)),
          skipped, "forward"),
    Fault(Graph, "place", "second input lost", instead(from_the_input), forked, "forward"),
    Fault(Container, "mjp", "latest consumer alone", instead(latest_consumer_alone), forked, "mjp"),
    Fault(Container, "jmp", "doubled", times(2), forked, "jmp"),
    Fault(branching, "added", "one branch alone", instead(lambda before, more: before), graph, "sweep"),
    Fault(branching, "added", "one branch twice",
          lambda sound: lambda before, more: sound(sound(before, more), more), graph, "sweep"),
    Fault(uses, "aligned", "columns in another order", after(in_reverse), graph, "sweep"),
    Fault(Uses, "add", "last use alone", instead(last_use_alone), graph, "backward"),
    Fault(Uses, "add", "squared before added", squares_added, graph, "BatchDiagGGN"),
    Fault(Uses, "add_direct", "left out", instead(lambda self, name, columns: None), graph, "BatchDiagHessian"),
    Fault(Branching, "append", "no mixed columns at the input", without_the_input, graph, "BatchDiagHessian"),
    Fault(Flow, "mixed", "none", instead(lambda self, leaf: {}), graph, "BatchDiagHessian"),
    Fault(mixed, "gradients_at_units", "wrong sign", times(-1), graph, "BatchDiagHessian"),
    Fault(layers.PReLU, "mixed_residual", "doubled", before(with_twice_the_gradient), slopes,
          "1.weight.mixed_residual"),
    Fault(Nodes, "add", "tie lost", names_of_their_own, graph, "backward"),
]  # fmt: skip
