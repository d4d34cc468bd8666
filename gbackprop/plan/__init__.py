"""The plan of a backward call: what it computes, and the checks that come before any computation."""

from gbackprop.plan.plan import GRADIENT_SUM, Plan, make_plan

__all__ = ["GRADIENT_SUM", "Plan", "make_plan"]
