"""The plan of a backward call: what it computes, and the checks that come before any computation."""

from gbackprop.losses.sample_weights import weighted
from gbackprop.plan.further_sweeps import complete
from gbackprop.plan.plan import GRADIENT_SUM, Plan, make_plan, plan_of
from gbackprop.system.names import listing

__all__ = ["GRADIENT_SUM", "Plan", "complete", "make_plan", "plan_of", "weighted"]
__dir__ = listing(__all__)
