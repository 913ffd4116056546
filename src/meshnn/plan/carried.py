"""The influence method: the derivative of every neuron by every edge is carried from tick to tick, as on a stream.

    J_k[o, e] = phi'_o(t_k) * ( sum over i of A[i, o] J_{k-1}[i, e]  +  [dst(e) = o] s_{k-1}[src(e)] )

Memory does not grow with the ticks, and neither does the cost per tick: at many ticks it is the cheapest forward-only
method. Samples run one by one, with the edges innermost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.method import CompiledPlan, Draft
from meshnn.plan.plain import ForwardPass, as_course

__all__ = ["Influence"]

U32 = NDArray[np.uint32]
#: Neurons up to which reach is counted exactly; beyond, all edges are assumed to reach every neuron.
COUNTED = 300


class Influence(ForwardPass):
    """`gradient="influence"`."""

    name = "influence"
    slowdown = 10.0  # samples run one by one
    driven = False
    sweeps = False

    def draw(self, draft: Draft) -> None:
        """Count the products of a sample; the lists of the influence are made by the engine."""
        t = draft.schedule.topology
        free = (t.src >= t.n_clamped) & (t.dst >= t.n_clamped)
        columns = _columns(draft)
        draft.multiply_adds += draft.ticks * float(columns[t.src[free]].sum() + t.n_edges)
        draft.extra_bytes += 16.0 * float(columns.sum()) + 32.0 * t.n_edges
        draft.n_summed = draft.n_numbers

    def course(self, draft: Draft, drawn: Any) -> tuple[CompiledPlan, U32, U32]:
        """States alone; the gradient comes by values."""
        course, weight_index, _ = as_course(draft)
        unpadded = course.grad_lists._replace(padding=np.empty(0, np.uint32))
        return course._replace(grad_lists=unpadded), weight_index, np.arange(draft.n_numbers, dtype=np.uint32)


def _columns(draft: Draft) -> NDArray[np.float64]:
    """Return the number of edges that influence each neuron within the ticks; an upper bound on large graphs."""
    t = draft.schedule.topology
    n, hops = t.n_neurons, draft.ticks - 1
    fan_in = np.bincount(t.dst, minlength=n).astype(np.float64)
    fan_in[: t.n_clamped] = 0
    if n > COUNTED:
        return np.full(n, fan_in.sum() if hops else 0.0)
    free = (t.src >= t.n_clamped) & (t.dst >= t.n_clamped)
    reach = np.eye(n, dtype=np.float32)
    reach[t.src[free], t.dst[free]] = 1
    done = 1
    while done < min(hops, n):  # paths of twice the length
        reach = np.minimum(reach @ reach, 1)
        done *= 2
    if hops == 0:
        reach = np.eye(n, dtype=np.float32)
    found: NDArray[np.float64] = fan_in @ reach
    return found
