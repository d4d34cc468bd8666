"""Further sweeps, for quantities whose statistics depend on the values of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gbackprop.array import Array
from gbackprop.calculus.several import structured
from gbackprop.plain.plan import Plan, plan_of
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result


def complete(plan: Plan, x: Array, result: Result, run: Callable[[Plan], Result]) -> Result:
    """Run further sweeps, with the same draws, until each quantity has its result."""
    waiting = [value for value in result.values if isinstance(value, Quantity)]
    if plan.scale.rows:
        values = [each if isinstance(each, Quantity) else structured(plan.network, each) for each in result.values]
        result = replace(result, gradient=structured(plan.network, result.gradient), values=values)
    if not waiting:
        return result
    following = plan_of(plan.network, plan.loss, x, waiting, plan.training, plan.wrt)
    drawn = {leaf.name: noise for leaf, noise in zip(plan.leaves, plan.noise, strict=True)}
    noise = [drawn.get(leaf.name) for leaf in following.leaves]  # the plan before may take time steps as one layer
    following = replace(following, noise=noise, mc_noise=plan.mc_noise, scale=plan.scale)
    found = iter(complete(following, x, run(following), run).values)
    return replace(result, values=[next(found) if isinstance(value, Quantity) else value for value in result.values])
