"""`Schedule`: which neurons matter at which tick."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.plan.lists import ROW_BYTES, Edges, ListBuilder, ListCounter, offsets
from meshnn.topology import Topology
from meshnn.topology.reach import (
    counted,
    edges_by_source,
    edges_leaving,
    in_ranges,
    longest_paths,
    need_sets,
    pointers,
    taken,
)


class Timing(NamedTuple):
    """Options of a run in time. By default, outputs are read after the last tick, from initial states of zero."""

    # one byte per tick from tick 1 on: whether outputs are read after it; empty: after the last tick only
    counts: bytes = b""
    given: bool = False  # whether the states before the first tick are given
    whole_end: bool = False  # whether the states of all neurons are needed after the last tick

    @classmethod
    def at(cls, counts: BoolArray, given: bool = False, whole_end: bool = False) -> Timing:
        """Make the options from a mask of ticks `(ticks,)`."""
        return cls(np.ascontiguousarray(counts, dtype=np.bool_).tobytes(), given, whole_end)

    def counted_at(self, ticks: int) -> BoolArray:
        """Return the mask of ticks `(ticks + 1,)`."""
        if not self.counts:
            last: BoolArray = np.arange(ticks + 1) == ticks
            return last
        found = np.zeros(ticks + 1, dtype=np.bool_)
        found[1:] = np.frombuffer(self.counts, dtype=np.bool_)
        return found


@dataclass
class Schedule:
    """The neurons whose state is computed at each tick. All methods build on it.

    `rows[k]` marks the neurons that are needed at tick k and can be non-zero then. With `candidates` (sources and
    destinations of edges that may not exist), the states that they read are needed too, and neurons that are still zero
    count, because a candidate may make them non-zero. With a `timing`, outputs are rows of every tick after which they
    are read; if initial states are given, all neurons may be non-zero.
    """

    topology: Topology
    ticks: int
    awake: BoolArray  # neurons whose activation is not zero at zero
    all_needed: bool = False  # whether the states of every neuron are needed
    candidates: tuple[IntArray, IntArray] | None = None
    held: bool = False  # whether the inputs are the same at every tick
    timing: Timing | None = None
    listed: int = 1 << 21  # entries of lists that a count makes to measure the fraction in tiles

    def __post_init__(self) -> None:
        t, timing = self.topology, self.timing
        self.src, self.dst = t.src, t.dst
        self.birth = t.birth_ticks(self.awake)
        ends: tuple[BoolArray | None, bool] = (None, False)
        if timing is not None:
            assert not self.held  # the result of a held run is only valid at the last tick
            counted_at = timing.counted_at(self.ticks)
            ends = (counted_at, timing.whole_end)
            self.birth = np.zeros_like(self.birth) if timing.given else self.birth
        free = np.arange(t.n_neurons) >= t.n_clamped
        if self.all_needed:
            need = np.repeat(free[None, :], self.ticks + 1, axis=0)
        elif self.candidates is not None:
            src, dst = (np.concatenate(pair) for pair in zip((t.src, t.dst), self.candidates, strict=True))
            need = need_sets(t.n_neurons, t.n_clamped, t.n_outputs, src, dst, self.ticks, *ends)
        else:
            need = need_sets(t.n_neurons, t.n_clamped, t.n_outputs, t.src, t.dst, self.ticks, *ends)
        if self.candidates is None:
            need &= self.birth <= np.arange(self.ticks + 1)[:, None]
        if timing is not None:  # also neurons that are zero: a buffer shared by ticks may contain other values
            need[counted_at, t.n_neurons - t.n_outputs :] = True
        need[0] = False
        self.rows = need
        # Ticks with the same rows share their lists: number the distinct sets of rows.
        seen: dict[bytes, int] = {}
        self.row_set = [seen.setdefault(fingerprint(self.rows[k]), k) for k in range(self.ticks + 1)]
        self._settled = int(self.birth[self.birth <= self.ticks].max(initial=0))

    @cached_property
    def in_ptr(self) -> IntArray:
        """The edges into neuron j are in_ptr[j] to in_ptr[j + 1]."""
        return pointers(self.topology.n_neurons, self.dst)

    @cached_property
    def _by_source(self) -> tuple[IntArray, Array]:
        return edges_by_source(self.topology.n_neurons, self.src)

    @property
    def out_ptr(self) -> IntArray:
        """The edges that leave neuron i are out_order[out_ptr[i]:out_ptr[i + 1]], by destination."""
        return self._by_source[0]

    @property
    def out_order(self) -> Array:
        """Edge indices sorted by source, then destination."""
        return self._by_source[1]

    def live_key(self, k: int) -> tuple[int, int]:
        """Return a key that is equal for ticks with equal forward lists."""
        return self.row_set[k], min(k - 1, self._settled)

    def into(self, k: int, src: Array, ptr: IntArray) -> tuple[IntArray, IntArray, Edges]:
        """Return the rows of tick k, the number of edges that carry a signal into each, and these edges.

        `ptr` has the format of `in_ptr`.
        """
        rows = np.flatnonzero(self.rows[k])
        counts = ptr[rows + 1] - ptr[rows]
        # rows without a gap: their edges are a contiguous range
        solid = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
        eid: Edges = slice(int(ptr[rows[0]]), int(ptr[rows[-1] + 1])) if solid else in_ranges(rows, ptr)
        return rows, *_kept(taken(self.birth < k, src[eid]), counts, eid)

    def leaving(self, nodes: Array, k: int) -> Array:
        """Return the edges from the nodes (rows of tick k - 1) to rows of tick k, in no particular order."""
        eid = edges_leaving(nodes, self.out_ptr, self.out_order)
        into_rows: Array = eid[self.rows[k][self.dst[eid]]]
        return into_rows

    def degrees(self, src: Array, dst: Array) -> Iterator[IntArray]:
        """Yield, for every tick from 1 on, the number of edges that can carry a signal into each neuron.

        The same array is changed in place. Every edge is processed once, when its source is born.
        """
        fed = np.zeros(self.topology.n_neurons, dtype=np.int64)
        levels = range(self._settled + 1)
        if self._settled > 8:  # ticks
            born = self.birth[src]
            order = np.argsort(born, kind="stable")
            ends = np.searchsorted(born[order], np.arange(self._settled + 2))
        for k in range(1, self.ticks + 1):
            if k - 1 in levels:
                more = dst[order[ends[k - 1] : ends[k]]] if self._settled > 8 else dst[taken(self.birth == k - 1, src)]
                if 8 * len(more) < len(fed):
                    np.add.at(fed, more, 1)
                else:
                    fed += counted(len(fed), more)
            yield fed

    @cached_property
    def _tally(self) -> IntArray:
        """The number of edges into the rows of every tick: all of them, and those from inputs and bias."""
        found = np.zeros((2, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], int] = {}
        clamped: IntArray | None = None
        for k, fed in enumerate(self.degrees(self.src, self.dst), start=1):
            clamped = fed.copy() if clamped is None else clamped  # born at tick 0
            same = memo.setdefault(self.live_key(k), k)
            found[:, k] = found[:, same] if same < k else (fed[self.rows[k]].sum(), clamped[self.rows[k]].sum())
        return found

    def pulls(self, lists: ListCounter, src: Array, dst: Array, moving: bool = False) -> tuple[IntArray, IntArray]:
        """Return, for every tick k, the list that pulls its rows from the states of tick k - 1, and its entries.

        The numbers of entries have shape `(2, ticks + 1)`: all, and those in tiles. With `moving`, edges from clamped
        neurons are left out.
        """
        found = np.zeros((3, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int, int]] = {}
        guess = None if isinstance(lists, ListBuilder) or src is not self.src else _TileEstimate(lists, self.listed)
        ptr = self.in_ptr if dst is self.dst else pointers(self.topology.n_neurons, dst)
        for k in range(1, self.ticks + 1):
            key = self.live_key(k)
            if key not in memo and guess is not None and guess.ready:
                entries = int(self._tally[0, k] - moving * self._tally[1, k])
                memo[key] = guess.added(int(self.rows[k].sum()), entries)
            elif key not in memo:
                rows, counts, eid = self.into(k, src, ptr)
                if moving:
                    counts, eid = _kept(src[eid] >= self.topology.n_clamped, counts, eid)
                memo[key] = added(lists, rows, counts, eid, src)
            found[:, k] = memo[key]
        return found[0], found[1:]

    def projection_list(self, lists: ListCounter) -> tuple[int, int, int]:
        """Return the list that pulls only from clamped neurons, for the rows of all ticks, and its entries."""
        rows = np.flatnonzero(self.rows.any(axis=0))
        eid = in_ranges(rows, self.in_ptr)
        counts, edges = _kept(self.src[eid] < self.topology.n_clamped, self.in_ptr[rows + 1] - self.in_ptr[rows], eid)
        return added(lists, rows, counts, edges, self.src)

    def saved_by_projection(self) -> int:
        """Return the number of products with clamped neurons that repeat at later ticks while the inputs are held."""
        repeats = (self.rows.sum(axis=0) - 1).clip(0)
        if not repeats.any():
            return 0
        fan_in = counted(self.topology.n_neurons, self.dst[self.src < self.topology.n_clamped])
        return int((repeats * fan_in).sum())

    def pushes(self, lists: ListCounter, hops: int) -> tuple[IntArray, IntArray]:
        """Return the transposed lists of the last `hops` ticks: rows of tick k pull from those of tick k + 1."""
        found = np.zeros((3, self.ticks + 1), dtype=np.int64)
        memo: dict[tuple[int, int], tuple[int, int, int]] = {}
        guess = (
            None if isinstance(lists, ListBuilder) or self.candidates is not None else _TileEstimate(lists, self.listed)
        )
        for k in range(self.ticks - 1, self.ticks - 1 - hops, -1):
            key = (self.row_set[k], self.row_set[k + 1])
            if key not in memo and guess is not None and guess.ready:
                # the transposed pulls of tick k + 1: a source of a needed row is needed
                entries = int(self._tally[0, k + 1] - self._tally[1, k + 1])
                memo[key] = guess.added(int(self.rows[k].sum()), entries)
            elif key not in memo:
                rows = np.flatnonzero(self.rows[k])
                eid = edges_leaving(rows, self.out_ptr, self.out_order)
                counts = self.out_ptr[rows + 1] - self.out_ptr[rows]
                counts, edges = _kept(taken(self.rows[k + 1], self.dst[eid]), counts, eid)
                one = np.array([len(rows)])  # sorted by source, then destination
                memo[key] = added(lists, rows, counts, edges, self.dst, lengths=one)
            found[:, k] = memo[key]
        return found[0], found[1:]

    def topological_order(self) -> IntArray | None:
        """Return all rows in topological order if one pass over them is exact and cheaper than the ticks, else None.

        With held inputs, the state of a neuron that no cycle feeds settles after as many ticks as the longest path to
        it has edges. If no path to an output has more edges than there are ticks, every edge (i, j) is read after i has
        settled: the rest of its path behind j has as many edges as there are ticks left.
        """
        if not self.held or self.candidates is not None or self.all_needed:
            return None
        t = self.topology
        some: BoolArray = np.any(self.rows, axis=0)
        twice = int(some.sum()) < int(self.rows.sum())
        # without saved products, one position per neuron is faster only if the states of all ticks take 64 MiB
        if not twice and (self.ticks < 4 or self.rows.size * ROW_BYTES < 1 << 26):
            return None
        feeds = some.copy()
        feeds[: t.n_clamped] = True
        reads = taken(some, self.dst) & taken(feeds, self.src)
        # a neuron without in-edges that is not zero at zero has its final state from tick 1 on
        settled = longest_paths(t.n_neurons, self.src[reads], self.dst[reads], some.astype(np.int64))
        if settled is None:
            return None
        rows = np.flatnonzero(some)
        if settled[t.n_neurons - t.n_outputs :].max(initial=0) > self.ticks:
            return None
        order: IntArray = rows[np.argsort(settled[rows], kind="stable")]
        return order

    def topological_lists(self, lists: ListCounter, order: IntArray, back: bool) -> tuple[int, int, int]:
        """Return the list that computes all rows in this order, or the transposed list in reverse, and its entries."""
        t, some = self.topology, np.zeros(self.topology.n_neurons, dtype=np.bool_)
        some[order] = True
        rows = order[::-1] if back else order
        ptr, others = (self.out_ptr, self.dst) if back else (self.in_ptr, self.src)
        some[: t.n_clamped] = not back
        eid: Array = edges_leaving(rows, ptr, self.out_order) if back else in_ranges(rows, ptr)
        counts, edges = _kept(taken(some, others[eid]), ptr[rows + 1] - ptr[rows], eid)
        return added(lists, rows, counts, edges, others, lengths=np.array([len(rows)]), ordered=True)


class _TileEstimate:
    """Counts lists without making them after `listed` entries, assuming the same fraction of entries in tiles."""

    def __init__(self, lists: ListCounter, listed: int) -> None:
        self.lists, self.entries, self.tiled, self.listed = lists, lists.entries, lists.tiled, listed

    @property
    def ready(self) -> bool:
        """Whether enough lists were made for the estimate."""
        return self.lists.entries - self.entries > self.listed

    def added(self, n_rows: int, entries: int) -> tuple[int, int, int]:
        """Count a list; return the same values as the function `added`."""
        self.lists.estimated = True
        tiled = round(entries * (self.lists.tiled - self.tiled) / max(self.lists.entries - self.entries, 1))
        return self.lists.count(n_rows, entries, tiled=tiled), entries, tiled


def _kept(mask: BoolArray, counts: IntArray, eid: Edges) -> tuple[IntArray, Edges]:
    """Return the number of selected edges per row, and these edges."""
    if mask.all():
        return counts, eid
    left = np.diff(np.concatenate(([0], np.cumsum(mask)))[offsets(counts)])
    return left, eid.start + np.flatnonzero(mask) if isinstance(eid, slice) else eid[mask]


def added(lists: ListCounter, *given: Any, **how: Any) -> tuple[int, int, int]:
    """Add a list; return its index, its number of entries including padding, and how many of them are in tiles."""
    entries, tiled = lists.entries, lists.tiled
    number = lists.add(*given, **how)
    return number, lists.entries - entries, lists.tiled - tiled


def fingerprint(array: Array) -> bytes:
    """Return a digest that identifies an array without keeping it."""
    return hashlib.blake2b(array.data, digest_size=16).digest()
