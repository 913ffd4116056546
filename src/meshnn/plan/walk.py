"""`Walk`: follows sets of neurons forward, tick by tick.

The set of neurons that a neuron influences after some hops is a state of a small automaton. Equal sets at ticks with
the same rows share one list. Therefore a saturated set is stored once, regardless of how many influences pass through
it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.plan.lists import ListCounter
from meshnn.plan.schedule import Schedule, added, fingerprint
from meshnn.topology.reach import counted, in_ranges, taken


class Step(NamedTuple):
    """One hop of a set."""

    number: int  # index of its list
    entries: int
    tiled: int  # entries in tiles
    state: int  # index of the resulting set
    size: int  # number of neurons in the resulting set


class Singles(NamedTuple):
    """One hop from every single neuron."""

    number: IntArray  # (n,) index of the list of each neuron that is not clamped
    ptr: IntArray  # (n + 1,) neuron j has edges to ends[ptr[j]:ptr[j + 1]]
    ends: Array


class Walk:
    """Follows sets of neurons over a schedule and adds their hops to `lists`."""

    def __init__(self, schedule: Schedule, lists: ListCounter) -> None:
        self.schedule, self.lists = schedule, lists
        self.walked = self.made = self.held = 0  # edges processed, sets found, and neurons in these sets
        self._singles: dict[int, Singles] = {}
        self._states: dict[bytes, int] = {}
        self._nodes: list[Array] = []  # the neurons of every state
        self._steps: dict[tuple[int, int], Step] = {}
        self._fan_out, self._fan_out_at = np.zeros(schedule.topology.n_neurons, dtype=np.int64), 0

    def singles(self, k: int) -> Singles:
        """Return the hop of every neuron that is not clamped into tick k."""
        key = self.schedule.row_set[k]
        if key not in self._singles:
            s, n, clamped = self.schedule, self.schedule.topology.n_neurons, self.schedule.topology.n_clamped
            eid = s.out_order[s.out_ptr[clamped] :]  # sorted by source, then destination
            eid = eid[taken(s.rows[k], s.dst[eid])]
            ends = s.dst[eid]
            ptr = np.zeros(n + 1, dtype=np.int64)
            np.cumsum(counted(n, s.src[eid]), out=ptr[1:])
            ones = np.ones(len(eid), dtype=np.uint32)
            first = self.lists.add(ends, ones, eid, s.src, lengths=np.diff(ptr)[clamped:])
            self._singles[key] = Singles(first - clamped + np.arange(n), ptr, ends)
        return self._singles[key]

    def count_singles(self, k: int) -> IntArray:
        """Return the number of rows of tick k that each neuron has edges to, in a shared array. For counting only."""
        s, n, clamped = self.schedule, self.schedule.topology.n_neurons, self.schedule.topology.n_clamped
        # update the result of the previous call: process only rows that differ
        nodes = np.flatnonzero(s.rows[k] ^ s.rows[self._fan_out_at])
        for sign, ends in ((1, nodes[s.rows[k, nodes]]), (-1, nodes[~s.rows[k, nodes]])):
            self._fan_out += sign * counted(n, s.src[in_ranges(ends, s.in_ptr)])
        self._fan_out_at, key = k, s.row_set[k]
        if key not in self._singles:
            entries = int(self._fan_out[clamped:].sum())
            self.lists.count(entries, entries, n - clamped)
            self._singles[key] = Singles(*[np.empty(0, np.int64)] * 3)  # counted, not kept
        return self._fan_out

    def ends(self, j: int, k: int) -> Array:
        """Return the rows of tick k that neuron j has edges to."""
        s = self.schedule
        ends = s.dst[s.out_order[s.out_ptr[j] : s.out_ptr[j + 1]]]
        rows: Array = ends[s.rows[k, ends]]
        return rows.astype(np.uint32)

    def state(self, nodes: Array) -> int:
        """Return the index of a set of neurons."""
        key = fingerprint(nodes)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = len(self._nodes)
            self._nodes.append(nodes)
            self.held += len(nodes)
        return found

    def follow(self, state: int, k: int) -> Step:
        """Return the hop of a set of neurons into tick k."""
        self.walked += 64  # the fixed cost of a step, in edges
        key = (state, self.schedule.row_set[k])
        found = self._steps.get(key)
        if found is None:
            nodes = self._nodes[state]
            eid = self.schedule.leaving(nodes, k)
            eid.sort()  # sorted by destination, then source
            rows, counts = _runs(self.schedule.dst[eid])
            rows = rows.astype(np.uint32, copy=False)
            made = added(self.lists, rows, counts, eid, self.schedule.src)
            found = self._steps[key] = Step(*made, self.state(rows), len(rows))
            self.walked += len(eid) + len(nodes)
            self.made += 1
        return found


def _runs(ends: Array) -> tuple[Array, IntArray]:
    """Return the neurons in a sorted list, and the number of occurrences of each."""
    if len(ends) == 0:
        return ends, np.empty(0, np.int64)
    new = np.empty(len(ends) + 1, dtype=np.bool_)
    new[0] = new[-1] = True
    np.not_equal(ends[1:], ends[:-1], out=new[1:-1])
    at = np.flatnonzero(new)
    return ends[at[:-1]], at[1:] - at[:-1]
