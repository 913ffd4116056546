"""`Walk`: sets of neurons carried forward, tick by tick.

The set of neurons that a neuron influences after some hops is a state of a small automaton: sets that were met before,
at a tick with the same rows, share their list. A saturated set is stored once, however many influences run through it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule.lists import ListCounter
from meshnn.schedule.schedule import Schedule

__all__ = ["Singles", "Step", "Walk"]

I64 = NDArray[np.int64]


class Step(NamedTuple):
    """One hop of a set."""

    number: int  # of its list
    entries: int
    nodes: I64  # the set that it leads to


class Singles(NamedTuple):
    """One hop of every single neuron at once."""

    number: I64  # (n,) of the list of each
    ptr: I64  # (n + 1,) ends[ptr[j]:ptr[j + 1]] are the neurons that j leads to
    ends: I64


class Walk:
    """Carries sets over a schedule; what it finds goes to `lists`."""

    def __init__(self, schedule: Schedule, lists: ListCounter) -> None:
        self.schedule, self.lists = schedule, lists
        self.walked = 0  # edges looked at
        self._singles: dict[int, Singles] = {}
        self._sets: dict[tuple[bytes, int, int], Step] = {}

    def singles(self, k: int) -> Singles:
        """Every single neuron into tick k."""
        key = self.schedule.row_set[k]
        if key not in self._singles:
            s, n = self.schedule, self.schedule.topology.n_neurons
            eid = s.out_order[s.rows[k, s.dst[s.out_order]]]  # by source, then destination
            ptr = np.zeros(n + 1, dtype=np.int64)
            np.cumsum(np.bincount(s.src[eid], minlength=n), out=ptr[1:])
            ones = np.ones(len(eid), dtype=np.int64)
            first = self.lists.add(s.dst[eid], ones, eid, s.src, lengths=np.diff(ptr))
            self._singles[key] = Singles(first + np.arange(n), ptr, s.dst[eid])
        return self._singles[key]

    def follow(self, nodes: I64, k: int, joins: int = -1, positions: bool = False) -> Step:
        """A set of neurons into tick k, where neuron `joins` comes in; entries may read positions in the set."""
        self.walked += 16
        key = (nodes.tobytes(), self.schedule.row_set[k], joins)
        found = self._sets.get(key)
        if found is None:
            eid = self.schedule.leaving(nodes, k)
            rows, counts = self._ends(eid, joins)
            before = self.lists.entries
            number = self.lists.add(rows, counts, eid, self.schedule.src, within=nodes if positions else None)
            found = self._sets[key] = Step(number, self.lists.entries - before, rows)
            self.walked += len(eid) + len(nodes)
        return found

    def _ends(self, eid: I64, joins: int) -> tuple[I64, I64]:
        """The neurons that some edges lead to, and how many lead to each."""
        ends, n = self.schedule.dst[eid], self.schedule.topology.n_neurons
        if 8 * len(eid) < n:  # a few of very many
            rows, counts = np.unique(ends, return_counts=True)
            if joins >= 0 and joins not in rows:
                at = int(np.searchsorted(rows, joins))
                rows, counts = np.insert(rows, at, joins), np.insert(counts, at, 0)
            return rows, counts
        every = np.bincount(ends, minlength=n)
        reached = every > 0
        if joins >= 0:
            reached[joins] = True
        rows = np.flatnonzero(reached)
        return rows, every[rows]
