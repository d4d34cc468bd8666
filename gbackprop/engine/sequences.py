"""Plans in which all time steps of a recurrent layer are one layer, for all but the Hessian's diagonal and KFRA."""

from __future__ import annotations

from dataclasses import replace

from gbackprop.array import Array
from gbackprop.calculus.layer import INPUT
from gbackprop.calculus.signals import AVERAGE, RESIDUAL
from gbackprop.layers.recurrent import Steps, WholeSequences
from gbackprop.plain.plan import Plan


def with_whole_sequences(plan: Plan, x: Array) -> Plan:
    """Return the plan of the same results with fewer layers, if the network has recurrent ones."""
    if plan.chain or RESIDUAL in plan.signals or AVERAGE in plan.signals:
        return plan
    nodes = WholeSequences(x.shape[1:])
    plan.network.place(nodes, "", INPUT)
    leaves = nodes.leaves
    used = [name for leaf in leaves for name in leaf.parameters.values()]
    if not any(isinstance(leaf.layer, Steps) for leaf in leaves) or set(used) != set(plan.parameters):
        return plan
    drawn = {leaf.name: noise for leaf, noise in zip(plan.leaves, plan.noise, strict=True)}
    chain = all(leaf.sources == (leaf.position - 1,) for leaf in leaves) and len(set(used)) == len(used)
    swept = [leaf for leaf in leaves if leaf.swept]
    return replace(plan, leaves=leaves, swept=swept, chain=chain, noise=[drawn.get(leaf.name) for leaf in leaves])
