"""Backprop through the ticks on the same lists, transposed: the honest baseline, and the only method that runs back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.method import CompiledPlan, Draft, Method
from meshnn.plan.plain import as_course

__all__ = ["Adjoint", "ChunkMethod"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


class ChunkMethod(Method):
    """What backprop and the factored form share: the same lists, kernels, and the states of all ticks."""

    compiled = True
    curvature = True
    driven = True

    def course(self, draft: Draft, drawn: Any) -> tuple[CompiledPlan, U32, U32]:
        """Without tangents."""
        return as_course(draft)

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """The adjoint of a tick, the next and one that tangents begin at; the Jacobian of a chunk."""
        t = draft.schedule.topology
        found: dict[str, tuple[int, ...]] = {"V": (3, t.n_neurons)}
        if draft.jacobian:
            found["C"] = (t.n_outputs * draft.n_gradient,)
        return found


class Adjoint(ChunkMethod):
    """`gradient="adjoint"`."""

    name = "adjoint"
    forward_only = False
    sweeps = True

    def draw(self, draft: Draft) -> None:
        """A hop back for every tick but the last, from all outputs at once or from each."""
        passes = draft.schedule.topology.n_outputs if draft.jacobian else 1
        draft.pull_back(draft.ticks - 1, passes)
        draft.correlate(passes)
