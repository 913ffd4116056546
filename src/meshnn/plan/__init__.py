"""Plans: which neurons matter at which tick, gradient methods, and the flat arrays that the core runs on."""

from meshnn.plan.adjoint import Adjoint
from meshnn.plan.carried import Influence
from meshnn.plan.cost import Cost, Decision, decide
from meshnn.plan.explanation import Explanation
from meshnn.plan.factored import Factored
from meshnn.plan.lists import ROW_BYTES, ListBuilder, ListCounter, Lists, PlanTooLargeError
from meshnn.plan.method import Draft, Method, Plan
from meshnn.plan.plain import AllStates, ForwardPass
from meshnn.plan.schedule import Schedule, Timing
from meshnn.plan.walk import Walk

__all__ = [
    "FORWARD_PASS",
    "METHODS",
    "ROW_BYTES",
    "STATES",
    "Cost",
    "Decision",
    "Draft",
    "Explanation",
    "ListBuilder",
    "ListCounter",
    "Lists",
    "Method",
    "Plan",
    "PlanTooLargeError",
    "Schedule",
    "Timing",
    "Walk",
    "decide",
]

#: All gradient methods, by name. A new one is a line here.
METHODS: dict[str, Method] = {m.name: m for m in (Factored(), Influence(), Adjoint())}
FORWARD_PASS, STATES = ForwardPass(), AllStates()
