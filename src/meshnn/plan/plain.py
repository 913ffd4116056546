"""States without a gradient: the outputs alone, or every neuron at every tick."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.lists import ListBuilder
from meshnn.plan.method import CompiledPlan, Draft, Method, Tangents

__all__ = ["NO_TANGENTS", "AllStates", "ForwardPass", "as_course"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
_NONE = np.empty(0, dtype=np.int64)
NO_TANGENTS = Tangents(_NONE, _NONE, _NONE, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint32))


def as_course(draft: Draft, tangents: Tangents = NO_TANGENTS) -> tuple[CompiledPlan, U32, U32]:
    """Return the lists of a draft, where its weights are taken from, and where its gradient goes."""
    assert isinstance(draft.lists, ListBuilder)
    assert isinstance(draft.gradient_lists, ListBuilder)
    lists = grad_lists = draft.lists.build(draft.number)
    if draft.gradient_lists is not draft.lists:
        grad_lists = draft.gradient_lists.build(draft.asked)
    found = (lists, draft.forward, draft.back, draft.hops_back, grad_lists, draft.gradient, tangents)
    course = CompiledPlan(*found, draft.input_projection, draft.order is not None, draft.clamps)
    return course, lists.number, grad_lists.number[: draft.entries]


class AllStates(Method):
    """Of every neuron, after every tick."""

    name = "states"

    def draw(self, draft: Draft) -> None:
        """The lists of the states are there."""

    def course(self, draft: Draft, drawn: Any) -> tuple[CompiledPlan, U32, U32]:
        """States alone."""
        return as_course(draft)

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """States alone."""
        return {}


class ForwardPass(AllStates):
    """Of the neurons that the outputs depend on; those of earlier ticks are forgotten."""

    name = "forward_pass"
    driven = True
    sweeps = True

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """Two ticks take turns; a sweep needs one place."""
        two = (1 if draft.order is not None else 2, draft.schedule.topology.n_neurons)
        return {"S": two, "D": two}
