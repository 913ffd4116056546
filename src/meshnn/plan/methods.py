"""Gradient methods: the properties, the walk over a schedule and the buffers of each.

*adjoint* is backprop through the ticks on the same lists, transposed. *factored* carries the influence of every
(tick, neuron) forward and contracts it with the readout:

    P_k[i, j, o] = sum over m of s_{m-1}[i] F_{m,k}[j, o]

F_{m,.}[j, .] is a *tangent*: it starts at neuron j in tick m and is carried on hop by hop. Its chain of lists follows
from the graph. An influence of a single hop is phi' A phi', the weights of the edges times derivatives. It is
contracted without being stored, so that up to three ticks nothing has to be carried. *influence* carries the derivative
of every neuron by every edge from tick to tick, as on a stream (`plan/influence.py`): its memory does not grow with the
number of ticks, and it processes samples one by one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from meshnn.arrays import FloatArray, IntArray
from meshnn.plan.cost import Cost
from meshnn.plan.draft import CompiledPlan, Draft, Plan, Tangents
from meshnn.plan.lists import PlanTooLargeError, offsets
from meshnn.plan.tiles import UIntArray
from meshnn.plan.walk import Walk


class Method:
    """A method that computes states and a gradient. To add one, write a subclass and an entry in `METHODS`."""

    name: ClassVar[str]
    #: Time per multiply-add relative to one on rows of samples.
    slowdown: ClassVar[float] = 1.0
    #: Whether no step runs backward through the ticks.
    forward_only: ClassVar[bool] = True
    #: Whether compiled epochs and curvature can run on its lists.
    compiled: ClassVar[bool] = False
    #: Whether products of clamped neurons, and a graph that settles, may be computed once while inputs are held.
    projects: ClassVar[bool] = False
    topological: ClassVar[bool] = False

    def draw(self, draft: Draft) -> Tangents:
        """Make, or count, the lists that the method needs besides the states; return its tangents."""
        return Tangents()

    def compile(self, draft: Draft, tangents: Tangents) -> tuple[CompiledPlan, UIntArray, UIntArray]:
        """Return the lists of the core, the value index of each weight, and the gradient index of each entry."""
        return draft.compiled(tangents)

    def rows(self, draft: Draft) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the worker buffers that have more than one row."""
        return {}

    # -- common to all methods -------------------------------------------------------------------------------------

    def cost(self, draft: Draft, workers: int = 1, itemsize: int = 4) -> Cost:
        """Return the cost, from a draft that counts lists."""
        self.draw(draft)
        return self._cost(draft, self._rows(draft), workers, itemsize)

    def plan(self, draft: Draft, itemsize: int = 4) -> Plan:
        """Return the plan, from a draft that emits lists."""
        tangents = self.draw(draft)
        t, rows = draft.schedule.topology, self._rows(draft)
        cost = self._cost(draft, rows, 1, itemsize)
        sizes = (draft.ticks, t.n_neurons, t.n_inputs, t.n_clamped, t.n_outputs, draft.n_numbers, draft.n_gradient)
        held = draft.input_projection >= 0 or draft.order is not None
        return Plan(self, *sizes, *self.compile(draft, tangents), rows, cost, held, draft.schedule.timing)

    def _rows(self, draft: Draft) -> dict[str, tuple[int, ...]]:
        n, n_outputs = draft.schedule.topology.n_neurons, draft.schedule.topology.n_outputs
        states = (1 if draft.order is not None else draft.ticks + 1, n)
        found: dict[str, tuple[int, ...]] = {
            "V": (1, 1), "W": (1,), "U": (1,), "T": (1, 1), "panel": (1,),
            "S": states, "D": states, "O": (2 * n_outputs,), "P": (4 * n_outputs,), "x": (n_outputs + 3,),
        }  # fmt: skip
        if draft.timed:
            found |= {"O": ((draft.ticks + 1) * n_outputs,), "x": (draft.ticks * (n_outputs + 2) + 1,)}
        if draft.input_projection >= 0:
            found |= {"U": (n,), "W": (n,)}
        found |= self.rows(draft)
        widest = max(draft.lists.widest, draft.gradient_lists.widest)
        if found["V"] != (1, 1) and widest:
            found["panel"] = (widest + 16,)  # rounded up to whole vectors
        return found

    def _cost(self, draft: Draft, rows: dict[str, tuple[int, ...]], workers: int, itemsize: int) -> Cost:
        return Cost(
            self.name, self.forward_only, draft.multiply_adds, draft.tiled / max(draft.multiply_adds, 1.0),
            draft.activations, draft.states, self.slowdown * itemsize / 4, draft.footprint(rows, workers, itemsize),
            draft.estimated or draft.lists.estimated, draft.sets,
        )  # fmt: skip


class AllStates(Method):
    """The states of every neuron after every tick, without a gradient."""

    name = "states"


class ForwardPass(Method):
    """The outputs without a gradient: only the states they depend on, of which earlier ticks are overwritten."""

    name = "forward_pass"
    projects = True
    topological = True

    def rows(self, draft: Draft) -> dict[str, tuple[int, ...]]:
        """Return two alternating ticks; a topological pass needs one."""
        two = (1 if draft.order is not None else 2, draft.schedule.topology.n_neurons)
        return {"S": two, "D": two}


class Influence(ForwardPass):
    """`gradient="influence"`."""

    name = "influence"
    slowdown = 10.0  # samples are processed one by one
    projects = False
    topological = False

    def draw(self, draft: Draft) -> Tangents:
        """Count the products of a sample; the engine makes the lists of the influence."""
        t = draft.schedule.topology
        free = (t.src >= t.n_clamped) & (t.dst >= t.n_clamped)
        columns = _columns(draft)
        draft.multiply_adds += draft.ticks * float(columns[t.src[free]].sum() + t.n_edges)
        draft.extra_bytes += 16.0 * float(columns.sum()) + 32.0 * t.n_edges
        draft.n_summed = draft.n_numbers
        return Tangents()

    def compile(self, draft: Draft, tangents: Tangents) -> tuple[CompiledPlan, UIntArray, UIntArray]:
        """Return the lists of the states; the gradient is already in the order of the values."""
        plan, weight_index, _ = draft.compiled(tangents)
        unpadded = plan.grad_lists._replace(padding=np.empty(0, np.uint32))
        return plan._replace(grad_lists=unpadded), weight_index, np.arange(draft.n_numbers, dtype=np.uint32)


def _columns(draft: Draft) -> FloatArray:
    """Return the number of edges that influence each neuron within the ticks; an upper bound on large graphs."""
    t = draft.schedule.topology
    n, hops = t.n_neurons, draft.ticks - 1
    fan_in = np.bincount(t.dst, minlength=n).astype(np.float64)
    fan_in[: t.n_clamped] = 0
    if n > 300:  # assume that all edges reach every neuron
        return np.full(n, fan_in.sum() if hops else 0.0)
    free = (t.src >= t.n_clamped) & (t.dst >= t.n_clamped)
    reach = np.eye(n, dtype=np.float32)
    if hops:
        reach[t.src[free], t.dst[free]] = 1
    done = 1
    while done < min(hops, n):  # double the length of the paths
        reach = np.minimum(reach @ reach, 1)
        done *= 2
    found: FloatArray = fan_in @ reach
    return found


class _ChunkMethod(Method):
    """The common part of `adjoint` and `factored`: the same lists and kernels, and the stored states of all ticks."""

    compiled = True
    projects = True

    def rows(self, draft: Draft) -> dict[str, tuple[int, ...]]:
        """Return the adjoints of a tick, of the next one and of the start of tangents, and the Jacobian of a chunk."""
        t = draft.schedule.topology
        found: dict[str, tuple[int, ...]] = {"V": (3, t.n_neurons)}
        if draft.jacobian:
            found["C"] = (t.n_outputs * draft.n_gradient,)
        return found


class Adjoint(_ChunkMethod):
    """`gradient="adjoint"`: backprop, the only method that is not forward-only."""

    name = "adjoint"
    forward_only = False
    topological = True

    def draw(self, draft: Draft) -> Tangents:
        """Hop back for every tick except the last, from all outputs at once or from each."""
        passes = draft.schedule.topology.n_outputs if draft.jacobian else 1
        draft.pull_back(draft.ticks - 1, passes)
        draft.correlate(passes)
        return Tangents()


class Factored(_ChunkMethod):
    """`gradient="factored"`."""

    name = "factored"

    def draw(self, draft: Draft) -> Tangents:
        """Contract the last hop, the readout, with the loss immediately; push all earlier influences to it.

        In a run in time, influences are pushed to the last tick and contracted at every tick with a loss.
        """
        if draft.timed:
            draft.correlate()
        elif draft.jacobian:
            draft.correlate(ticks=slice(-1, None))
        else:
            draft.pull_back(min(2, draft.ticks - 1))
            draft.correlate()
        return _tangents(draft) if draft.last > (1 if draft.last == draft.ticks else 2) else Tangents()

    def rows(self, draft: Draft) -> dict[str, tuple[int, ...]]:
        """Return the buffers of both methods, and a tangent before and after a hop."""
        return super().rows(draft) | {"T": (2, draft.schedule.topology.n_neurons)}


def _tangents(draft: Draft) -> Tangents:
    """Return the chains of lists that carry each (tick m, neuron j) with a gradient at m forward to the last tick."""
    tick, neuron, row, fan_in = _starts(draft)
    hops = draft.last - tick
    ptr = offsets(hops)
    draft.extra_bytes += 8.0 * 4 * len(tick) + 4.0 * float(ptr[-1])
    if draft.limit is not None and draft.extra_bytes > draft.limit:
        raise PlanTooLargeError
    chain = np.empty(ptr[-1] if draft.emits else 0, dtype=np.uint32)
    walk = Walk(draft.schedule, draft.lists)
    # the first hop of all tangents at once
    reached = np.zeros(len(tick), dtype=np.int64)
    ends = np.searchsorted(tick, np.arange(1, draft.last + 1))  # tangents are sorted by tick
    for m, here in enumerate(map(slice, ends[:-1].tolist(), ends[1:].tolist()), start=1):
        if here.start == here.stop:
            continue
        if draft.emits:
            singles = walk.singles(m + 1)
            reached[here] = np.diff(singles.ptr)[neuron[here]]
            chain[ptr[:-1][here]] = singles.number[neuron[here]]
        else:
            reached[here] = walk.count_singles(m + 1)[neuron[here]]
    first_hops = float(reached.sum())
    far = np.flatnonzero(hops > 1)
    picked, done = far[draft.sample(len(far))], 0
    before, entries, tiled, unseen = draft.lists.nbytes, 0, 0, 0.0
    for a in draft.watched(picked, "tangents"):
        k, j, last = int(tick[a]) + 1, int(neuron[a]), int(hops[a])
        nodes = walk.ends(j, k)
        state, size = walk.state(nodes), len(nodes)
        for h in range(1, last):
            step = walk.follow(state, k + h)
            if draft.emits:
                chain[ptr[a] + h] = step.number
            state, size = step.state, step.size
            entries += step.entries
            if draft.jacobian or h < last - 1:  # the last hop is contracted row by row
                tiled += step.tiled
            if draft.exhausted(walk.walked):  # count the remaining hops like this one
                entries += (last - 1 - h) * step.entries
                unseen += (last - 1 - h) * 8.0 * (step.entries + size)
                break
        reached[a] = size
        done += 1
        if draft.enough(walk.walked, done):
            break
    scale = draft.scaled(done, len(far), walk, before, unseen)
    # at its end a tangent is contracted with the readout, or with every in-edge per reached output for a Jacobian
    ended = reached * (fan_in if draft.jacobian else 1)
    draft.multiply_adds += (
        first_hops + float(ended[hops == 1].sum()) + scale * (entries + float(ended[picked[:done]].sum()))
    )
    draft.tiled += scale * tiled
    return Tangents(tick, neuron, row, ptr, chain)


def _starts(draft: Draft) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return tick, neuron, row in the gradient list and fan-in of every tangent."""
    s, found, memo = draft.schedule, [], {}
    ticks = range(1, draft.last if draft.last == draft.ticks else draft.last - 1)
    for m, fed in zip(ticks, s.degrees(draft.src, draft.dst), strict=False):
        kind = s.live_key(m)
        if kind not in memo:
            rows = np.flatnonzero(s.rows[m])
            fan_in = fed[rows]
            at = np.flatnonzero(fan_in)
            memo[kind] = rows[at], draft.gradient_lists.first_row[int(draft.gradient[m])] + at, fan_in[at]
        found.append((np.full(len(memo[kind][0]), m), *memo[kind]))
    tick, neuron, row, fan_in = (np.concatenate(column) for column in zip(*found, strict=True))
    return tick, neuron, row, fan_in


#: All gradient methods by name.
METHODS: dict[str, Method] = {m.name: m for m in (Factored(), Influence(), Adjoint())}
FORWARD_PASS, STATES = ForwardPass(), AllStates()
