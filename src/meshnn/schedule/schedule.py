"""`Schedule`: which neurons matter at which tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule.lists import ListCounter
from meshnn.topology import Topology
from meshnn.topology.reach import edges_by_source, edges_leaving, longest_paths, need_sets

__all__ = ["Schedule"]

I64 = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass
class Schedule:
    """Which neurons matter at which tick: the common ground of all methods.

    `rows[k]` marks the neurons whose state is computed at tick k: those that are needed then and can be non-zero
    then. With `all_needed` the states of every neuron are wanted. With `candidates` (sources, destinations of edges
    that may not exist) the states they read are needed too, and neurons that are still zero count, because a candidate
    may wake them. What can be saved while inputs are `held` is found by `drive` and `sweep`.
    """

    topology: Topology
    ticks: int
    awake: BoolArray  # neurons whose activation is not zero at zero
    all_needed: bool = False
    candidates: tuple[I64, I64] | None = None
    held: bool = False  # whether the inputs are the same at every tick

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

    def leaving(self, nodes: I64, k: int) -> I64:
        """Edges from the nodes (rows of tick k - 1) to rows of tick k, in no particular order."""
        eid = edges_leaving(nodes, self.out_ptr, self.out_order)
        into_rows: I64 = eid[self.rows[k, self.dst[eid]]]
        return into_rows

    def pulls(self, lists: ListCounter, src: I64, dst: I64, moving: bool = False) -> tuple[I64, I64]:
        """For every tick k the list that pulls its rows from the states of tick k - 1, and how many entries it has.

        These are `(2, ticks + 1)`: all of them, and those in tiles. Of `moving` neurons only: those that are not clamped.
        """
        found = np.zeros((3, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int, int]] = {}
        for k in range(1, self.ticks + 1):
            key = self.live_key(k)
            if key not in memo:
                eid = self.into(k, src, dst)
                if moving:
                    eid = eid[src[eid] >= self.topology.n_clamped]
                rows = np.flatnonzero(self.rows[k])
                counts = np.bincount(dst[eid], minlength=self.topology.n_neurons)[rows]
                memo[key] = _added(lists, rows, counts, eid, src)
            found[:, k] = memo[key]
        return found[0], found[1:]

    def drive(self, lists: ListCounter) -> tuple[int, int, int]:
        """The list that pulls from clamped neurons alone, for all rows there are at some tick, and its entries."""
        t, some = self.topology, self.rows.any(axis=0)
        eid = np.flatnonzero(some[self.dst] & (self.src < t.n_clamped))
        rows = np.flatnonzero(some)
        counts = np.bincount(self.dst[eid], minlength=t.n_neurons)[rows]
        return _added(lists, rows, counts, eid, self.src)

    def saved_by_drive(self) -> int:
        """Products with clamped neurons that repeat themselves from tick to tick while the inputs are held."""
        fan_in = np.bincount(self.dst[self.src < self.topology.n_clamped], minlength=self.topology.n_neurons)
        return int(((self.rows.sum(axis=0) - 1).clip(0) * fan_in).sum())

    def pushes(self, lists: ListCounter, hops: int) -> tuple[I64, I64]:
        """For the last `hops` ticks k but one the transposed list: rows of tick k pull from those of tick k + 1."""
        found = np.zeros((3, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int, int]] = {}
        for k in range(self.ticks - 1, self.ticks - 1 - hops, -1):
            key = (self.row_set[k], self.row_set[k + 1])
            if key not in memo:
                eid = self.out_order[
                    self.rows[k, self.src[self.out_order]] & self.rows[k + 1, self.dst[self.out_order]]
                ]
                rows = np.flatnonzero(self.rows[k])
                counts = np.bincount(self.src[eid], minlength=self.topology.n_neurons)[rows]
                one = np.array([len(rows)])  # as they come: by source, then destination
                memo[key] = _added(lists, rows, counts, eid, self.dst, lengths=one)
            found[:, k] = memo[key]
        return found[0], found[1:]

    def sweep(self) -> I64 | None:
        """All rows in topological order, if a single pass over them gives all that matters; else None.

        With inputs that are held, the state of a neuron that no cycle feeds settles after as many ticks as the longest
        path to it has edges. A path from an edge (i, j) to an output has, behind j, as many edges as there are ticks
        left; so if no path to an output has more edges than there are ticks, i has settled whenever it matters.
        """
        if not self.held or self.candidates is not None or self.all_needed:
            return None
        t, some = self.topology, self.rows.any(axis=0)
        reads = some[self.dst] & (some[self.src] | (self.src < t.n_clamped))
        # a neuron that nothing feeds, but that is not zero at zero, is so from tick 1 on
        settled = longest_paths(t.n_neurons, self.src[reads], self.dst[reads], some.astype(np.int64))
        if settled is None:
            return None
        rows = np.flatnonzero(some)
        if settled[t.n_neurons - t.n_outputs :].max(initial=0) > self.ticks:
            return None
        order: I64 = rows[np.argsort(settled[rows], kind="stable")]
        return order

    def sweep_lists(self, lists: ListCounter, order: I64, back: bool) -> tuple[int, int, int]:
        """The list that computes all rows in that order, or the transposed one in the opposite; its entries."""
        t, place = self.topology, np.full(self.topology.n_neurons, -1, dtype=np.int64)
        place[order] = np.arange(len(order))
        rows = order[::-1] if back else order
        ends, others = (self.src, self.dst) if back else (self.dst, self.src)
        clamped = others < t.n_clamped if not back else np.zeros(len(others), dtype=np.bool_)
        eid = np.flatnonzero((place[ends] >= 0) & (clamped | (place[others] >= 0)))
        key = -place[ends[eid]] if back else place[ends[eid]]
        eid = eid[np.lexsort((others[eid], key))]
        counts = np.bincount(ends[eid], minlength=t.n_neurons)[rows]
        return _added(lists, rows, counts, eid, others, lengths=np.array([len(rows)]), ordered=True)


def _added(
    lists: ListCounter, *given: I64, lengths: I64 | None = None, ordered: bool = False
) -> tuple[int, int, int]:
    """The number of a new list, how many entries it has, holes included, and how many of them are in tiles."""
    entries, tiled = lists.entries, lists.tiled
    number = lists.add(*given, lengths=lengths, ordered=ordered)
    return number, lists.entries - entries, lists.tiled - tiled
