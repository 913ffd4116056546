"""Gradient methods: one file each, and the choice among them. What they can do, they say themselves."""

from meshnn.methods.adjoint import Adjoint
from meshnn.methods.blocks import ColumnBlocks
from meshnn.methods.choice import Decision, decide
from meshnn.methods.explanation import Explanation
from meshnn.methods.factored import Factored
from meshnn.methods.method import Cost, Draft, Method, Plan
from meshnn.methods.plain import AllStates, ForwardPass
from meshnn.methods.tensor import Tensor

__all__ = [
    "FORWARD_PASS",
    "METHODS",
    "STATES",
    "Cost",
    "Decision",
    "Draft",
    "Explanation",
    "Method",
    "Plan",
    "decide",
]

#: All methods, by name. A new one is a line here.
METHODS: dict[str, Method] = {m.name: m for m in (Factored(), ColumnBlocks(), Tensor(), Adjoint())}
FORWARD_PASS, STATES = ForwardPass(), AllStates()
