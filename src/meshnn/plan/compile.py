"""From a topology, ticks and a method to a `Plan`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.plan import Blocks, Ops, Plan, Tangents
from meshnn.topology import Topology
from meshnn.topology.reach import edges_by_source, edges_leaving, need_sets

__all__ = ["PlanTooLargeError", "Schedule", "compile_plan"]

I64 = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
_NONE = np.empty(0, dtype=np.int64)


class PlanTooLargeError(Exception):
    """The index arrays would pass the limit that was set."""


@dataclass
class OpsBuilder:
    """Collects lists and lays them end to end."""

    limit: int | None = None
    n_lists: int = 0
    entries: int = 0
    n_rows: int = 0
    _lengths: list[I64] = field(default_factory=list)
    _rows: list[I64] = field(default_factory=list)
    _counts: list[I64] = field(default_factory=list)
    _cols: list[I64] = field(default_factory=list)
    _eids: list[I64] = field(default_factory=list)

    def add(self, rows: I64, counts: I64, col: I64, eid: I64, lengths: I64 | None = None) -> int:
        """Append a list, or as many as there are lengths; the number of the first."""
        lengths = np.array([len(rows)]) if lengths is None else lengths
        first = self.n_lists
        for kept, new in zip(
            (self._lengths, self._rows, self._counts, self._cols, self._eids),
            (lengths, rows, counts, col, eid),
            strict=True,
        ):
            kept.append(new)
        self.n_lists += len(lengths)
        self.entries += len(col)
        self.n_rows += len(rows)
        if self.limit is not None and self.entries * 12 + self.n_rows * 8 > self.limit:
            raise PlanTooLargeError
        return first

    def build(self) -> Ops:
        """The table."""
        ops = Ops(
            start=_narrow(_offsets(np.concatenate([*self._lengths, _NONE]))),
            rows=np.concatenate([*self._rows, _NONE]).astype(np.uint32),
            ptr=_narrow(_offsets(np.concatenate([*self._counts, _NONE]))),
            col=np.concatenate([*self._cols, _NONE]).astype(np.uint32),
            eid=np.concatenate([*self._eids, _NONE]).astype(np.int64),
        )
        return _reversed(ops) if os.environ.get("MESHNN_SUMS") == "reversed" else ops


def _reversed(ops: Ops) -> Ops:
    """The same sums in another order, which tests/steady.py asks for: no test may depend on it."""
    ptr = ops.ptr.astype(np.int64)
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    order = ptr[row] + ptr[row + 1] - 1 - np.arange(len(row))
    return ops._replace(col=ops.col[order], eid=ops.eid[order])


def _offsets(counts: I64) -> I64:
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def _narrow(offsets: I64) -> NDArray[np.uint32]:
    if offsets[-1] >= 2**32:
        raise PlanTooLargeError
    return offsets.astype(np.uint32)


@dataclass
class Schedule:
    """Which neurons matter at which tick: the common ground of all methods.

    `rows[k]` marks the neurons whose state is computed at tick k: those that are needed then and can be non-zero
    then. With `all_needed` the states of every neuron are wanted. With `candidates` (sources, destinations of edges
    that may not exist) the states they read are needed too, and neurons that are still zero count, because a candidate
    may wake them.
    """

    topology: Topology
    ticks: int
    awake: BoolArray
    all_needed: bool = False
    candidates: tuple[I64, I64] | None = None

    def __post_init__(self) -> None:
        t = self.topology
        self.src, self.dst = t.src, t.dst
        self.birth = t.birth_ticks(self.awake)
        free = np.arange(t.n_neurons) >= t.n_clamped
        if self.all_needed:
            need = np.repeat(free[None, :], self.ticks + 1, axis=0)
        elif self.candidates is not None:
            src, dst = (np.concatenate(pair) for pair in zip((t.src, t.dst), self.candidates, strict=True))
            need = need_sets(t.n_neurons, t.n_clamped, t.n_outputs, src, dst, self.ticks)
        else:
            need = need_sets(t.n_neurons, t.n_clamped, t.n_outputs, t.src, t.dst, self.ticks)
        if self.candidates is None:
            need &= self.birth <= np.arange(self.ticks + 1)[:, None]
        need[0] = False
        self.rows = need
        # Ticks with the same rows share their lists: a number for each distinct set of rows.
        seen: dict[bytes, int] = {}
        self.row_set = [seen.setdefault(self.rows[k].tobytes(), k) for k in range(self.ticks + 1)]
        self.out_ptr, self.out_order = edges_by_source(t.n_neurons, t.src)
        self._settled = int(self.birth[self.birth <= self.ticks].max(initial=0))

    def live_key(self, k: int) -> tuple[int, int]:
        """Ticks with equal keys have equal forward lists."""
        return self.row_set[k], min(k - 1, self._settled)

    def into(self, k: int, src: I64, dst: I64) -> I64:
        """Numbers of the edges that carry a signal into a row of tick k."""
        return np.flatnonzero(self.rows[k, dst] & (self.birth[src] < k))

    def pulls(self, ops: OpsBuilder, src: I64, dst: I64) -> I64:
        """For every tick k the list that pulls its rows from the states of tick k - 1; edges come by (dst, src)."""
        lists = np.zeros(self.ticks + 1, dtype=np.int64)
        memo: dict[tuple[int, int], int] = {}
        for k in range(1, self.ticks + 1):
            key = self.live_key(k)
            if key not in memo:
                eid = self.into(k, src, dst)
                rows = np.flatnonzero(self.rows[k])
                counts = np.bincount(dst[eid], minlength=self.topology.n_neurons)[rows]
                memo[key] = ops.add(rows, counts, src[eid], eid)
            lists[k] = memo[key]
        return lists

    def push(self, ops: OpsBuilder, k: int) -> int:
        """The transposed list: rows of tick k pull from the rows of tick k + 1 that they feed."""
        eid = np.flatnonzero(self.rows[k, self.src] & self.rows[k + 1, self.dst])
        eid = eid[np.argsort(self.src[eid], kind="stable")]
        rows = np.flatnonzero(self.rows[k])
        counts = np.bincount(self.src[eid], minlength=self.topology.n_neurons)[rows]
        return ops.add(rows, counts, self.dst[eid], eid)

    def hop(self, nodes: I64, k: int) -> I64:
        """Edges from the nodes (rows of tick k - 1) to rows of tick k, sorted by (destination, source)."""
        return np.sort(self.leaving(nodes, k))

    def leaving(self, nodes: I64, k: int) -> I64:
        """The same edges in no particular order."""
        eid = edges_leaving(nodes, self.out_ptr, self.out_order)
        into_rows: I64 = eid[self.rows[k, self.dst[eid]]]
        return into_rows


class _Automaton:
    """Lists that carry sets of neurons forward by one tick.

    The set of neurons that j influences after some hops is a state of a small automaton: sets that were met before, at
    a tick with the same rows, share their list. A saturated set is stored once, however many tangents run through it.
    """

    def __init__(self, schedule: Schedule, ops: OpsBuilder) -> None:
        self.schedule = schedule
        self.ops = ops
        self._singles: dict[int, tuple[I64, I64, I64]] = {}
        self._sets: dict[tuple[bytes, int], tuple[int, I64]] = {}

    def singles(self, k: int) -> tuple[I64, I64, I64]:
        """`(list, ptr, ends)`: for every single neuron at once, its list into tick k and the neurons that reaches."""
        key = self.schedule.row_set[k]
        if key not in self._singles:
            s, n = self.schedule, self.schedule.topology.n_neurons
            eid = s.out_order[s.rows[k, s.dst[s.out_order]]]  # by source, then destination
            ptr = np.zeros(n + 1, dtype=np.int64)
            np.cumsum(np.bincount(s.src[eid], minlength=n), out=ptr[1:])
            first = self.ops.add(s.dst[eid], np.ones(len(eid), dtype=np.int64), s.src[eid], eid, np.diff(ptr))
            self._singles[key] = first + np.arange(n), ptr, s.dst[eid]
        return self._singles[key]

    def follow(self, nodes: I64, k: int) -> tuple[int, I64]:
        """The list of a set of neurons into tick k, and the set it reaches."""
        key = (nodes.tobytes(), self.schedule.row_set[k])
        found = self._sets.get(key)
        if found is None:
            eid = self.schedule.hop(nodes, k)
            rows, counts = np.unique(self.schedule.dst[eid], return_counts=True)
            found = self._sets[key] = self.ops.add(rows, counts, self.schedule.src[eid], eid), rows
        return found


def _tangents(schedule: Schedule, ops: OpsBuilder, stop: int, gradient_lists: I64, table: Ops) -> Tangents:
    """Chains of lists that carry each (tick m, neuron j) that has a gradient at m forward to tick `stop`."""
    automaton = _Automaton(schedule, ops)
    ticks: list[I64] = [_NONE]
    row_of: list[I64] = [_NONE]
    lengths: list[I64] = [_NONE]
    chains: list[I64] = [_NONE]
    for m in range(1, stop):
        q = int(gradient_lists[m])
        first, last = int(table.start[q]), int(table.start[q + 1])
        rows = first + np.flatnonzero(np.diff(table.ptr[first : last + 1].astype(np.int64)))
        starts = table.rows[rows].astype(np.int64)
        lists, ptr, ends = automaton.singles(m + 1)
        chain = np.empty((len(rows), stop - m), dtype=np.int64)
        chain[:, 0] = lists[starts]
        if stop > m + 1:
            for a, j in enumerate(starts.tolist()):
                nodes = ends[ptr[j] : ptr[j + 1]]
                for h in range(1, stop - m):
                    chain[a, h], nodes = automaton.follow(nodes, m + 1 + h)
        ticks.append(np.full(len(rows), m))
        row_of.append(rows)
        lengths.append(np.full(len(rows), stop - m))
        chains.append(chain.ravel())
    row = np.concatenate(row_of)
    return Tangents(
        tick=np.concatenate(ticks),
        neuron=table.rows[row].astype(np.int64),
        row=row,
        ptr=_offsets(np.concatenate(lengths)),
        chain=np.concatenate(chains),
    )


def _blocks(schedule: Schedule, stop: int, limit: int | None, src: I64, dst: I64) -> tuple[Blocks, Ops]:
    """Lists for the column blocks up to tick `stop`; `src`, `dst` are the edges that get a gradient."""
    ops = OpsBuilder(limit)
    birth = schedule.birth
    # An edge belongs to a block if at some tick up to `stop` it feeds a row.
    belongs = np.zeros(len(src), dtype=np.bool_)
    for k in range(1, stop + 1):
        belongs[schedule.into(k, src, dst)] = True
    eid = np.flatnonzero(belongs)
    eid = eid[np.argsort(dst[eid], kind="stable")]
    neurons, counts = np.unique(dst[eid], return_counts=True)
    memo: dict[tuple[bytes, int, int], tuple[int, I64]] = {}
    chains = np.full((len(neurons), stop + 1), -1, dtype=np.int64)
    room = np.zeros(len(neurons), dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(counts)))
    for b, j in enumerate(neurons.tolist()):
        nodes = _NONE
        begin = int(birth[src[eid[first[b] : first[b + 1]]]].min()) + 1
        for k in range(begin, stop + 1):
            injects = bool(schedule.rows[k, j])
            key = (nodes.tobytes(), schedule.row_set[k], j if injects else -1)
            found = memo.get(key)
            if found is None:
                edges = schedule.hop(nodes, k) if nodes.size else _NONE
                rows = np.unique(schedule.dst[edges])
                if injects:
                    rows = np.union1d(rows, [j])
                per_row = np.bincount(np.searchsorted(rows, schedule.dst[edges]), minlength=len(rows))
                position = np.searchsorted(nodes, schedule.src[edges])
                found = memo[key] = ops.add(rows, per_row.astype(np.int64), position, edges), rows
            chains[b, k], nodes = found
            room[b] = max(room[b], len(nodes))
    per_block = counts * room * 2
    offset = np.concatenate(([0], np.cumsum(per_block)))
    blocks = Blocks(
        neuron=neurons,
        first=first,
        src=src[eid],
        eid=eid,
        birth=birth[src[eid]],
        room=room,
        offset=offset[:-1],
        chain=chains,
        store_rows=int(offset[-1]),
    )
    return blocks, ops.build()


def compile_plan(
    topology: Topology,
    ticks: int,
    awake: BoolArray,
    method: str,
    *,
    jacobian: bool = False,
    candidates: tuple[I64, I64] | None = None,
    limit: int | None = None,
) -> Plan:
    """Compile the index arrays of a method.

    Parameters
    ----------
    awake : bool array (n_neurons,)
        Neurons whose activation is not zero at zero.
    method : str
        "forward_pass" (states of the needed neurons only), "states" (all neurons), "factored", "blocks" or "adjoint".
    jacobian : bool
        Whether the derivative of each output is wanted rather than that of a loss.
    candidates : pair of int arrays, optional
        Sources and destinations of the edges that get a gradient, instead of the graph's own.
    limit : int, optional
        Bytes of index arrays at which to give up with `PlanTooLargeError`.
    """
    schedule = Schedule(topology, ticks, awake, all_needed=method == "states", candidates=candidates)
    ops = OpsBuilder(limit)
    forward = schedule.pulls(ops, topology.src, topology.dst)
    entries = ops.entries

    back = np.zeros(ticks + 1, dtype=np.int64)
    hops_back = 0
    if method == "adjoint":
        hops_back = ticks - 1
    elif method in ("factored", "blocks") and not jacobian:
        hops_back = min(1, ticks - 1)  # the readout
    pushed: dict[tuple[int, int], int] = {}
    for k in range(ticks - 1, ticks - 1 - hops_back, -1):
        pair = (schedule.row_set[k], schedule.row_set[k + 1])
        if pair not in pushed:
            pushed[pair] = schedule.push(ops, k)
        back[k] = pushed[pair]

    gradient, gradient_ops, n_gradient = forward, None, topology.n_edges
    src, dst = topology.src, topology.dst
    if candidates is not None:
        order = np.lexsort((candidates[0], candidates[1]))
        src, dst = candidates[0][order], candidates[1][order]
        wanted = OpsBuilder(limit)
        gradient = schedule.pulls(wanted, src, dst)
        entries, n_gradient = wanted.entries, len(src)
        gradient_ops = wanted.build()
        gradient_ops = gradient_ops._replace(eid=order[gradient_ops.eid])

    stop = ticks if jacobian else ticks - 1
    tangents = Tangents(_NONE, _NONE, _NONE, np.zeros(1, dtype=np.int64), _NONE)
    blocks, block_ops = None, None
    if method == "factored" and stop > 1:
        tangents = _tangents(schedule, ops, stop, gradient, gradient_ops or ops.build())
    elif method == "blocks":
        blocks, block_ops = _blocks(schedule, stop, limit, src, dst)
        if candidates is not None:
            blocks = blocks._replace(eid=order[blocks.eid])
    table = ops.build()
    return Plan(
        method=method,
        ticks=ticks,
        n=topology.n_neurons,
        n_inputs=topology.n_inputs,
        n_clamped=topology.n_clamped,
        n_outputs=topology.n_outputs,
        ops=table,
        forward=forward,
        back=back,
        hops_back=hops_back,
        gradient_ops=gradient_ops if gradient_ops is not None else table,
        gradient=gradient,
        n_gradient=n_gradient,
        gradient_entries=entries,
        tangents=tangents,
        blocks=blocks,
        block_ops=block_ops,
    )
