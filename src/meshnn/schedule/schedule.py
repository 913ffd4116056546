"""`Schedule`: which neurons matter at which tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule.lists import ListCounter
from meshnn.topology import Topology
from meshnn.topology.reach import edges_by_source, edges_leaving, need_sets

__all__ = ["Schedule"]

I64 = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
    awake: BoolArray  # neurons whose activation is not zero at zero
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

    def leaving(self, nodes: I64, k: int) -> I64:
        """Edges from the nodes (rows of tick k - 1) to rows of tick k, in no particular order."""
        eid = edges_leaving(nodes, self.out_ptr, self.out_order)
        into_rows: I64 = eid[self.rows[k, self.dst[eid]]]
        return into_rows

    def pulls(self, lists: ListCounter, src: I64, dst: I64) -> tuple[I64, I64]:
        """For every tick k the list that pulls its rows from the states of tick k - 1, and how many entries it has."""
        found = np.zeros((2, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int]] = {}
        for k in range(1, self.ticks + 1):
            key = self.live_key(k)
            if key not in memo:
                eid = self.into(k, src, dst)
                rows = np.flatnonzero(self.rows[k])
                counts = np.bincount(dst[eid], minlength=self.topology.n_neurons)[rows]
                memo[key] = lists.add(rows, counts, eid, src), len(eid)
            found[:, k] = memo[key]
        return found[0], found[1]

    def pushes(self, lists: ListCounter, hops: int) -> tuple[I64, I64]:
        """For the last `hops` ticks k but one the transposed list: rows of tick k pull from those of tick k + 1."""
        found = np.zeros((2, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int]] = {}
        for k in range(self.ticks - 1, self.ticks - 1 - hops, -1):
            key = (self.row_set[k], self.row_set[k + 1])
            if key not in memo:
                eid = self.out_order[
                    self.rows[k, self.src[self.out_order]] & self.rows[k + 1, self.dst[self.out_order]]
                ]
                rows = np.flatnonzero(self.rows[k])
                counts = np.bincount(self.src[eid], minlength=self.topology.n_neurons)[rows]
                one = np.array([len(rows)])  # as they come: by source, then destination
                memo[key] = lists.add(rows, counts, eid, self.dst, lengths=one), len(eid)
            found[:, k] = memo[key]
        return found[0], found[1]
