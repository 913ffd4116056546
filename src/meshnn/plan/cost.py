"""What each method would cost, and which one `auto` takes. Counted from the graph, before anything is compiled.

Tangents and blocks are walked exactly while the graph is small; on a large one a random sample of them is walked and
scaled up, and the figure is marked as an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshnn.memory import format_bytes
from meshnn.plan.compile import Schedule
from meshnn.plan.plan import ROW_BYTES
from meshnn.topology import Topology

__all__ = ["DEARER", "METHODS", "Cost", "Decision", "decide", "price"]

I64 = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

METHODS = ("factored", "blocks", "tensor", "adjoint")
#: `auto` leaves forward-only when it is predicted to be this many times dearer than the adjoint.
DEARER = 10.0
#: What starting and ending a row costs, in multiply-adds. Fitted to the kernels with benchmarks/ticks.py.
_ROW = 2.0
#: A cost estimate looks at all tangents or blocks if there are this few, else at a random sample of so many ...
_SAMPLE = 1000
#: ... or fewer, once it has walked over so many edges.
_WALK = 3_000_000


@dataclass(frozen=True)
class Cost:
    """Predicted cost of one method."""

    method: str
    forward_only: bool
    multiply_adds: float  # a sample
    overhead: float  # rows started and activations, a sample, in multiply-adds
    bytes: float  # working memory: index arrays and the buffers of all workers, without data and results
    estimated: bool  # scaled up from a sample of the graph

    @property
    def predicted(self) -> float:
        """Time in units of one multiply-add."""
        return self.multiply_adds + self.overhead


@dataclass(frozen=True)
class Decision:
    """The cost of every method, what was chosen and why."""

    costs: tuple[Cost, ...]
    chosen: str
    reason: str

    def cost(self, method: str) -> Cost:
        """The row of one method."""
        return next(cost for cost in self.costs if cost.method == method)


class _Walk:
    """Counts what carrying sets of neurons forward costs, with a memo of sets met before."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.memo: dict[tuple[bytes, int], tuple[int, I64]] = {}
        self.walked = 0
        self.stored_entries = 0
        self.stored_rows = 0

    def hop(self, nodes: I64, k: int) -> tuple[int, I64]:
        self.walked += 16
        key = (nodes.tobytes(), self.schedule.row_set[k])
        found = self.memo.get(key)
        if found is None:
            eid = self.schedule.leaving(nodes, k)
            reached = np.zeros(self.schedule.topology.n_neurons, dtype=np.bool_)
            reached[self.schedule.dst[eid]] = True
            found = self.memo[key] = len(eid), np.flatnonzero(reached)
            self.walked += len(eid) + len(nodes)
            self.stored_entries += len(eid)
            self.stored_rows += len(found[1])
        return found


def _sampled(count: int) -> I64:
    """Which of `count` things to look at: all in turn if they are few, a fixed random sample if they are many."""
    return np.arange(count) if count <= _SAMPLE else np.random.default_rng(0).choice(count, _SAMPLE, replace=False)


def _factored(schedule: Schedule, stop: int, jacobian: bool) -> tuple[float, float, float, bool]:
    """`(multiply-adds, rows, bytes of index arrays, estimated)` of all tangents."""
    ticks: list[I64] = []
    neurons: list[I64] = []
    fan_in: list[I64] = []
    kinds: dict[tuple[int, int], tuple[I64, I64]] = {}
    for m in range(1, stop):
        kind = schedule.live_key(m)
        if kind not in kinds:
            ends = schedule.dst[schedule.into(m, schedule.src, schedule.dst)]
            kinds[kind] = np.unique(ends, return_counts=True)
        found, counts = kinds[kind]
        ticks.append(np.full(len(found), m))
        neurons.append(found)
        fan_in.append(counts)
    if not ticks:
        return 0.0, 0.0, 0.0, False
    tick, neuron, indegree = np.concatenate(ticks), np.concatenate(neurons), np.concatenate(fan_in)
    walk = _Walk(schedule)
    macs = rows = 0.0
    done = 0
    for a in _sampled(len(tick)).tolist():
        nodes = neuron[a : a + 1]
        for k in range(int(tick[a]) + 1, stop + 1):
            entries, nodes = walk.hop(nodes, k)
            macs += entries
            rows += len(nodes)
        # the contraction with the readout, or one product per output reached and in-edge
        macs += len(nodes) * (int(indegree[a]) if jacobian else 1)
        done += 1
        if walk.walked > _WALK and done >= 4:
            break
    scale = len(tick) / max(done, 1)
    bytes_ = (walk.stored_entries * 12 + walk.stored_rows * 8) * scale + float(8 * (3 * len(tick) + len(tick) * stop))
    return macs * scale, rows * scale, bytes_, done < len(tick)


def _blocks(schedule: Schedule, stop: int) -> tuple[float, float, float, bool]:
    """The same of all column blocks; bytes without the store come first, the store (one worker) is in them."""
    src, dst = schedule.src, schedule.dst
    belongs = np.zeros(len(src), dtype=np.bool_)
    for k in range(1, stop + 1):
        belongs[schedule.into(k, src, dst)] = True
    neurons, counts = np.unique(dst[belongs], return_counts=True)
    first = np.full(schedule.topology.n_neurons, np.iinfo(np.int64).max)
    np.minimum.at(first, dst[belongs], schedule.birth[src[belongs]] + 1)
    walk = _Walk(schedule)
    macs = rows = store = 0.0
    done = 0
    for b in _sampled(len(neurons)).tolist():
        j, width = int(neurons[b]), int(counts[b])
        nodes = np.empty(0, dtype=np.int64)
        room = 0
        for k in range(int(first[j]), stop + 1):
            entries = 0
            if nodes.size:
                entries, nodes = walk.hop(nodes, k)
            if schedule.rows[k, j]:
                nodes = np.union1d(nodes, [j])
            macs += width * entries
            rows += width * len(nodes)
            room = max(room, len(nodes))
        macs += width * len(nodes)
        store += 2.0 * width * room * ROW_BYTES
        done += 1
        if walk.walked > _WALK and done >= 4:
            break
    scale = len(neurons) / max(done, 1)
    index = (walk.stored_entries * 12 + walk.stored_rows * 8) * scale + len(neurons) * (stop + 6) * 8.0
    return macs * scale, rows * scale, index + store * scale, done < len(neurons)


def price(
    topology: Topology,
    ticks: int,
    awake: BoolArray,
    *,
    itemsize: int = 4,
    workers: int = 1,
    jacobian: bool = False,
    activation_cost: NDArray[np.float64] | None = None,
) -> tuple[Cost, ...]:
    """Cost of every method; `activation_cost` is what the activation of each neuron costs, in multiply-adds."""
    schedule = Schedule(topology, ticks, awake)
    n, n_edges, n_outputs = topology.n_neurons, topology.n_edges, topology.n_outputs
    kinds = [schedule.live_key(k) for k in range(1, ticks + 1)]  # ticks of one kind share their list
    lists = {
        kind: len(schedule.into(k, topology.src, topology.dst))
        for kind, k in dict(zip(reversed(kinds), range(ticks, 0, -1), strict=True)).items()
    }
    pulls = [lists[kind] for kind in kinds]
    pairs = [(schedule.row_set[k], schedule.row_set[k + 1]) for k in range(1, ticks)]
    hops = {
        pair: int(np.count_nonzero(schedule.rows[pair[0], topology.src] & schedule.rows[pair[1], topology.dst]))
        for pair in set(pairs)
    }
    pushes = [hops[pair] for pair in pairs]
    n_rows = float(schedule.rows.sum())
    activations = float((schedule.rows @ activation_cost).sum()) if activation_cost is not None else 0.0
    states = _ROW * n_rows + activations
    forward, gradient = float(sum(pulls)), float(sum(pulls))
    stop = ticks if jacobian else ticks - 1
    readout = float(pushes[-1]) if pushes and not jacobian else 0.0
    copies = float(n_outputs) if jacobian else 1.0
    table = sum(lists.values()) * 12.0 + len(lists) * n * 8.0
    results = n_outputs * n_edges * ROW_BYTES if jacobian else n_edges * itemsize * 2.0
    buffers = (2 * (ticks + 1) + 2) * n * float(ROW_BYTES) + results

    tangents, tangent_rows, tangent_bytes, guessed = _factored(schedule, stop, jacobian)
    factored = Cost(
        "factored",
        True,
        forward + readout + (float(pulls[-1]) if jacobian else gradient) + tangents,
        states + _ROW * tangent_rows,
        table + tangent_bytes + workers * (buffers + 2.0 * n * ROW_BYTES),
        guessed,
    )
    block_macs, block_rows, block_bytes, guessed = _blocks(schedule, stop)
    blocks = Cost(
        "blocks",
        True,
        forward + readout + (0.0 if jacobian else float(pulls[-1])) + block_macs,
        states + _ROW * block_rows,
        table + workers * (block_bytes + 6.0 * n * ROW_BYTES + (0.0 if jacobian else results)),
        guessed,
    )
    tensor = Cost(
        "tensor",
        True,
        ticks * float(n) ** 4,
        ticks * float(n) ** 3 / 64,
        itemsize * (2.0 * float(n) ** 3 + n**2),
        False,
    )
    adjoint = Cost(
        "adjoint",
        False,
        forward + copies * (float(sum(pushes)) + gradient),
        states + _ROW * n_rows * copies,
        table + sum(hops.values()) * 12.0 + workers * buffers,
        False,
    )
    return factored, blocks, tensor, adjoint


def decide(costs: tuple[Cost, ...], memory: int, way_out: bool = True) -> Decision:
    """The choice of `auto` among the methods (of `forward` if there is no `way_out`), and its reason."""
    return Decision(costs, *_choose(costs, memory, way_out))


def _choose(costs: tuple[Cost, ...], memory: int, way_out: bool) -> tuple[str, str]:
    # the tensor is an oracle that runs in Python, one sample at a time: never a choice
    forward_only = sorted((c for c in costs if c.forward_only and c.method != "tensor"), key=lambda c: c.predicted)
    adjoint = costs[-1]
    fitting = [c for c in forward_only if c.bytes <= memory]
    if not fitting:
        least = min(forward_only, key=lambda c: c.bytes)
        why = (
            f"forward-only would need {format_bytes(least.bytes)} ({least.method}), "
            f"the machine has {format_bytes(memory)}"
        )
        return ("adjoint", why) if way_out else (least.method, why)
    best = fitting[0]
    ratio = best.predicted / max(adjoint.predicted, 1.0)
    if ratio > DEARER and way_out and adjoint.bytes <= memory:
        return (
            "adjoint",
            f"forward-only ({best.method}) is predicted {ratio:.0f} times dearer, more than {DEARER:.0f}",
        )
    versus = "predicted as fast as backprop" if ratio < 1.05 else f"predicted {ratio:.1f} times as long as backprop"
    return best.method, f"the cheapest exact forward-only method, {versus}"
