"""The plain engine: the plan of a call, and the sweep that is its definition."""

from gbackprop.base.checks import SHIPPED, batch_of
from gbackprop.base.names import listing
from gbackprop.calculus.copies import copied
from gbackprop.losses.sample_weights import weighted
from gbackprop.plain.completion import complete
from gbackprop.plain.plan import GRADIENT_SUM, Plan, make_plan, plan_of

__all__ = ["GRADIENT_SUM", "SHIPPED", "Plan", "batch_of", "complete", "copied", "make_plan", "plan_of", "weighted"]
__dir__ = listing(__all__)
