"""Plans: the schedule of neurons per tick, the gradient methods, and the flat arrays that the core runs on."""

from meshnn.plan.cost import Cost, Decision, Explanation, decide
from meshnn.plan.draft import Draft, Plan
from meshnn.plan.lists import ROW_BYTES, ListBuilder, ListCounter, Lists, PlanTooLargeError
from meshnn.plan.methods import FORWARD_PASS, METHODS, STATES, Method
from meshnn.plan.schedule import Schedule, Timing

__all__ = [
    "FORWARD_PASS", "METHODS", "ROW_BYTES", "STATES", "Cost", "Decision", "Draft", "Explanation", "ListBuilder",
    "ListCounter", "Lists", "Method", "Plan", "PlanTooLargeError", "Schedule", "Timing", "decide",
]  # fmt: skip
