"""How a network will run: index arrays and predicted cost for one (topology, ticks, method). No weights."""

from meshnn.plan.compile import compile_plan
from meshnn.plan.cost import Cost, Decision, decide, price
from meshnn.plan.plan import Blocks, Ops, Plan, Tangents

__all__ = ["Blocks", "Cost", "Decision", "Ops", "Plan", "Tangents", "compile_plan", "decide", "price"]
