"""The influence of every learned edge on every neuron, in the layout of one stream: edges innermost.

    J_t[o, e] = phi'_o(t) * ( sum over i of A[i, o] J_{t-1}[i, e]  +  [dst(e) = o] s_{t-1}[src(e)] )

J_t[o, .] is non-zero only for the edges into the neurons that reach o. All in-edges of a neuron j reach the same
neurons, so they form one *group* of neighbouring columns, and the columns of o are the groups of the neurons in its
*reach set*. Neurons of one strong component have the same set: there a hop is a whole row times a number, and rows with
the same sources are computed together as a matrix product. Elsewhere a hop copies the groups that both sets have, in
runs.

Cutting the reach sets to r - 1 hops is SnAp-r (Menick et al., 2021): cheaper, but not exact. The hop into an output is
not counted, because an output reads all influences that its sources have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import BoolArray, IntArray
from meshnn.memory import check_fits
from meshnn.plan.lists import ROW_BYTES, offsets, runs_of
from meshnn.plan.schedule import Schedule
from meshnn.topology import Topology
from meshnn.topology.components import components, reaching
from meshnn.topology.reach import NEVER, output_distance, pointers

#: Bytes to whose multiple a row of J is padded: one vector register.
VECTOR = 64


class Reach(NamedTuple):
    """For each neuron, the neurons whose in-edges influence it."""

    number: IntArray  # (n,) index of its set; -1 if no learned edge influences it, or it influences no output
    sets: list[IntArray]  # per set, its neurons in increasing order
    counts: IntArray  # (n,) learned in-edges of each neuron: the columns of its group

    def width(self, number: int) -> int:
        """Return the number of columns of a set."""
        return int(self.counts[self.sets[number]].sum())


@dataclass(frozen=True, eq=False)
class InfluencePlan:
    """The lists that the core runs a stream on, and the cost of a sample."""

    course: SimpleNamespace  # the fields of the struct `StreamPlan` in `_core/stream_structs.hpp`
    ticks: int  # ticks per sample
    exact: bool
    entries: int  # edges read per sample
    tiled: int  # multiply-adds per sample in whole rows
    spread: int  # multiply-adds per sample in runs
    columns: int  # numbers in J
    reach: Reach
    learned: BoolArray  # (n_edges,)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds per sample."""
        return self.entries + self.tiled + self.spread


def reach_sets(topology: Topology, learned: BoolArray, hops: int | None, read: bool = False) -> Reach:
    """Return the set of neurons that influence each neuron within `hops` hops (None: any number of hops).

    `learned` marks the learned edges. With `read`, the hop into an output is not counted.
    """
    t, n = topology, topology.n_neurons
    counts = np.bincount(t.dst[learned], minlength=n)
    counts[: t.n_clamped] = 0
    useful = output_distance(n, t.n_clamped, t.n_outputs, t.src, t.dst) < NEVER
    free = (t.src >= t.n_clamped) & (t.dst >= t.n_clamped) & useful[t.src] & useful[t.dst]
    src, dst = t.src[free].astype(np.int64), t.dst[free].astype(np.int64)
    readers = range(n - t.n_outputs, n) if read else range(0)
    found = _by_component(t, src, dst, counts) if hops is None else _by_hops(n, src, dst, counts, hops, readers)
    number = np.full(n, -1)
    sets: list[IntArray] = []
    seen: dict[bytes, int] = {}
    for j in np.flatnonzero(useful).tolist():
        key = found[j].tobytes()
        if not found[j].size:
            continue
        if key not in seen:
            seen[key] = len(sets)
            sets.append(found[j])
        number[j] = seen[key]
    return Reach(number, sets, counts)


def _by_component(t: Topology, src: IntArray, dst: IntArray, counts: IntArray) -> list[IntArray]:
    """Return, for each neuron, all neurons with learned in-edges that reach it."""
    of = components(t.n_neurons, t.n_clamped, src, dst)
    order = np.argsort(of, kind="stable")
    order = order[(of[order] >= 0) & (counts[order] > 0)]
    members = np.split(order, np.searchsorted(of[order], np.arange(1, int(of.max()) + 1)))
    sets: list[IntArray] = []
    held = 0
    for those in reaching(of, src, dst):
        sets.append(np.sort(np.concatenate([members[c] for c in those])))
        held += sets[-1].nbytes
        check_fits(held * 4.0, "the reach of every neuron", 'take method="snap-1", or a graph with fewer long paths')
    sets.append(np.empty(0, np.int64))  # the set of clamped neurons, whose index is -1
    return [sets[c] for c in of.tolist()]


def _by_hops(n: int, src: IntArray, dst: IntArray, counts: IntArray, hops: int, readers: range) -> list[IntArray]:
    """Return the neurons that reach each neuron within `hops` hops, itself included; one hop more for `readers`."""
    own = [np.array([j], np.int64) if counts[j] else np.empty(0, np.int64) for j in range(n)]
    into: list[list[int]] = [[] for _ in range(n)]
    for i, j in zip(src.tolist(), dst.tolist(), strict=True):
        into[j].append(i)
    sets = own
    for _ in range(min(hops, n)):
        more = [
            np.unique(np.concatenate([own[j], *(sets[i] for i in into[j])])) if into[j] else own[j] for j in range(n)
        ]
        if all(len(a) == len(b) for a, b in zip(more, sets, strict=True)):
            break
        sets = more
        check_fits(4.0 * sum(s.nbytes for s in sets), "the reach of every neuron", "cut the influence to fewer hops")
    further = {j: np.unique(np.concatenate([own[j], *(sets[i] for i in into[j])])) for j in readers}
    return [further.get(j, sets[j]) for j in range(n)]


def plan_influence(
    topology: Topology, number: IntArray, n_parameters: int, codes: IntArray, awake: BoolArray, ticks: int,
    carries: bool, hops: int | None, itemsize: int,
) -> InfluencePlan:  # fmt: skip
    """Return the lists of one sample, which lasts `ticks` ticks.

    `number` is the index of the parameter that each edge takes its weight from; the first `n_parameters` are learned.
    With `carries`, the state is kept from sample to sample. `hops` limits the distance that the influence of an edge is
    carried from its destination.
    """
    t, n = topology, topology.n_neurons
    learned = (number < n_parameters) & (t.dst >= t.n_clamped)
    limits = [h for h in (hops, None if carries else ticks - 1) if h is not None]
    limit = min(limits) if limits else None
    reach = reach_sets(t, learned, limit, read=limit is not None and (carries or limit < ticks - 1))
    exact = hops is None or (not carries and hops >= ticks - 1)
    layout = _Layout(reach, n, itemsize)
    if carries:
        everybody = np.arange(n) >= t.n_clamped
        live = [(everybody, np.ones(n, np.bool_))]
    else:
        rows = Schedule(t, ticks, awake).rows
        clamped = np.arange(n) < t.n_clamped
        live = [(rows[k], clamped | rows[k - 1]) for k in range(1, ticks + 1)]
    lists = _Lists(t, number, learned, codes, reach, layout, itemsize)
    tick_list, seen, costs = np.zeros(ticks, np.int64), dict[Any, int](), []
    for k, (rows_now, sources) in enumerate(live):  # ticks with the same rows and sources share a list
        key = (rows_now.tobytes(), sources.tobytes(), carries or k > 0)
        if key not in seen:
            seen[key] = len(seen)
            costs.append(lists.add(rows_now, sources, influences=carries or k > 0))
        tick_list[k:] = seen[key]
    outputs = np.arange(n - t.n_outputs, n)
    columns = [layout.numbers(reach, int(reach.number[o]), t, number, learned) for o in outputs.tolist()]
    out_ptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])]).astype(np.int64)
    ends = np.stack([out_ptr[:-1], out_ptr[1:], layout.offset[outputs]], axis=1)
    course = lists.plan(tick_list, ends, _joined(columns))
    entries, tiled, spread = np.array(costs)[tick_list].sum(axis=0).tolist()
    return InfluencePlan(course, ticks, exact, entries, tiled, spread, layout.total, reach, learned)


class _Layout:
    """The positions of the rows of J in one flat array."""

    def __init__(self, reach: Reach, n: int, itemsize: int) -> None:
        step = VECTOR // itemsize
        self.width = np.array([reach.width(k) for k in range(len(reach.sets))] or [0], np.int64)
        self.padded = -(-self.width // step) * step
        sizes = np.where(reach.number >= 0, self.padded[np.maximum(reach.number, 0)], 0)
        self.offset = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        self.total = int(sizes.sum())
        #: For each set, the first column of each of its groups.
        self.first = [np.concatenate([[0], np.cumsum(reach.counts[s])])[:-1] for s in reach.sets]
        check_fits(2.0 * self.total * itemsize, "the influence of every edge on every neuron",
                   'take method="snap-1", fewer neurons, or columns instead of dense recurrence')  # fmt: skip

    def numbers(self, reach: Reach, kind: int, t: Topology, number: IntArray, learned: BoolArray) -> IntArray:
        """Return the parameter of each column of a set."""
        if kind < 0:
            return np.empty(0, np.int64)
        mask = np.zeros(t.n_neurons, np.bool_)
        mask[reach.sets[kind]] = True
        return number[learned & mask[t.dst]]  # edges are sorted by destination, in the order of the groups

    def column(self, reach: Reach, kind: int, j: int) -> int:
        """Return the first column of the group of neuron j; 0 if it has none."""
        return 0 if kind < 0 or not reach.counts[j] else int(self.first[kind][np.searchsorted(reach.sets[kind], j)])


class _Row(NamedTuple):
    """A row of a list: one neuron. Rows with the same set and the same whole sources are computed together."""

    kind: int  # index of its set, -1 without one
    whole: bytes  # sources whose whole row of J is added
    neuron: int
    eid: IntArray  # its edges; those from whole sources come first, as their weights form a matrix
    n_whole: int
    hops: list[tuple[int, int, int]]  # (entry, first run, last run) of the entries that carry runs of columns
    spread: int  # number of columns in those runs


class _Lists:
    """Lists of rows, filled one after the other; see `StreamPlan` in `_core/stream_structs.hpp`."""

    def __init__(
        self, t: Topology, number: IntArray, learned: BoolArray, codes: IntArray, reach: Reach, layout: _Layout,
        itemsize: int,
    ) -> None:  # fmt: skip
        self.t, self.number, self.codes, self.reach, self.layout = t, number, codes, reach, layout
        self.lanes, self.step = ROW_BYTES // itemsize, VECTOR // itemsize
        self.in_ptr = pointers(t.n_neurons, t.dst)
        before = np.concatenate([[0], np.cumsum(learned)])
        self.place = np.where(learned, before[:-1] - before[self.in_ptr[t.dst]], -1)  # position within its group
        self.rows: list[_Row] = []
        self.lane: list[int] = []
        self.runs: list[tuple[int, int, int]] = []
        self.groups: list[tuple[int, int, int]] = []
        self.pack: list[int] = []
        self.start, self.group_start, self.pack_start = [0], [0], [0]
        self._run_memo: dict[tuple[int, int], tuple[int, int]] = {}
        self._hop_memo: dict[tuple[int | bytes, bytes, bytes], tuple[list[tuple[int, int, int]], int]] = {}

    def add(self, rows: BoolArray, sources: BoolArray, influences: bool) -> tuple[int, int, int]:
        """Add the list of a tick; `influences` states whether the sources have influences to carry forward.

        Return its entries, and the multiply-adds of influences in whole rows and in runs.
        """
        found = [self._row(o, sources, influences) for o in np.flatnonzero(rows).tolist()]
        found.sort(key=lambda row: row[:3])
        codes = self.codes[[row.neuron for row in found]]
        lane = np.zeros(len(found), np.int64)
        for code in np.unique(codes).tolist():
            those = np.flatnonzero(codes == code)
            lane[those] = self.lanes * (len(self.pack) - self.pack_start[-1]) + np.arange(len(those))
            self.pack += [code] * -(-len(those) // self.lanes)
        self.lane += lane.tolist()
        for (kind, _), same in groupby(found, key=lambda row: row[:2]):
            begin = len(self.rows)
            self.rows += same
            if kind >= 0:
                self.groups.append((begin, len(self.rows), int(self.layout.padded[kind])))
        self.start.append(len(self.rows))
        self.group_start.append(len(self.groups))
        self.pack_start.append(len(self.pack))
        tiled = sum(row.n_whole * int(self.layout.width[row.kind]) for row in found)
        return sum(len(row.eid) for row in found), tiled, sum(row.spread for row in found)

    def _row(self, o: int, sources: BoolArray, influences: bool) -> _Row:
        t, reach, kind = self.t, self.reach, int(self.reach.number[o])
        eid = np.arange(self.in_ptr[o], self.in_ptr[o + 1])
        eid = eid[sources[t.src[eid]]]
        source_kinds = reach.number[t.src[eid]]
        carried = (source_kinds >= 0) & (kind >= 0) & influences
        whole = carried & (source_kinds == kind)
        order, n_whole = np.argsort(~whole, kind="stable"), int(whole.sum())
        eid, carried = eid[order], carried[order]
        hops, spread = ([], 0) if kind < 0 else self._hops(t.src[eid], carried, n_whole, kind)
        return _Row(kind, t.src[eid[:n_whole]].astype(np.int64).tobytes(), o, eid, n_whole, hops, spread)

    def _hops(
        self, src: IntArray, carried: BoolArray, n_whole: int, kind: int
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Return the entries of a row that carry runs of columns, each with its runs, and the number of these columns.

        Rows with the same sources whose sets differ only in their last group, their own, share the result. This matters
        for hundreds of outputs, which all have different sets.
        """
        there, reach = np.flatnonzero(carried[n_whole:]) + n_whole, self.reach
        members, kinds = reach.sets[kind], reach.number[src[there]]
        own = any(reach.sets[a][-1] >= members[-1] for a in np.unique(kinds).tolist())
        key = (kind if own else members[:-1].tobytes(), there.tobytes(), kinds.tobytes())
        if key not in self._hop_memo:
            found = [(p, *self._runs(a, kind)) for p, a in zip(there.tolist(), kinds.tolist(), strict=True)]
            hops = [(p, first, last) for p, first, last in found if last > first]
            spread = sum(length for _, first, last in hops for *_, length in self.runs[first:last])
            self._hop_memo[key] = hops, spread
        return self._hop_memo[key]

    def _runs(self, a: int, b: int) -> tuple[int, int]:
        """Return the groups that sets a and b share, as runs (column of a, column of b, length)."""
        if (a, b) not in self._run_memo:
            first = len(self.runs)
            _, i, j = np.intersect1d(self.reach.sets[a], self.reach.sets[b], assume_unique=True, return_indices=True)
            counts = self.reach.counts[self.reach.sets[a][i]]
            for start, to, length in zip(self.layout.first[a][i], self.layout.first[b][j], counts, strict=True):
                last = self.runs[-1] if len(self.runs) > first else None
                if last is not None and last[0] + last[2] == start and last[1] + last[2] == to:
                    self.runs[-1] = (last[0], last[1], last[2] + int(length))
                else:
                    self.runs.append((int(start), int(to), int(length)))
            self._run_memo[a, b] = (first, len(self.runs))
        return self._run_memo[a, b]

    def _vectors(self) -> IntArray:
        """Return the runs, with the number of columns that are processed: whole vectors where zeros follow."""
        runs = _ints(self.runs).reshape(-1, 3)
        many = runs[:, 2] // self.step * self.step
        for (a, _), (first, last) in self._run_memo.items():
            start, length = runs[first:last, 0], runs[first:last, 2]
            filled = -(-length // self.step) * self.step
            # up to the end of the source row, and not into the next destination row
            ends = (start + length == self.layout.width[a]) & (start + filled <= self.layout.padded[a])
            many[first:last][ends] = filled[ends]
        return np.concatenate([runs, many[:, None]], axis=1)

    def plan(self, tick_list: IntArray, outputs: IntArray, out_parameter: IntArray) -> SimpleNamespace:
        """Return all lists as arrays."""
        t, rows = self.t, self.rows
        eid, ptr = _joined([row.eid for row in rows]), offsets(_ints([len(row.eid) for row in rows]))
        # The first column of the group of each row. Only edges with a place in the group are its own.
        group = [self.layout.column(self.reach, row.kind, row.neuron) for row in rows]
        of = np.repeat(np.arange(len(rows)), np.diff(ptr))
        own = (self.place[eid] >= 0) & (_ints([row.kind for row in rows])[of] >= 0)
        hops = _ints([(begin + p, *run) for begin, row in zip(ptr, rows, strict=False) for p, *run in row.hops])
        hops = hops.reshape(-1, 3)
        return SimpleNamespace(
            tick_list=tick_list, start=_ints(self.start), rows=_ints([row.neuron for row in rows]),
            lane=_ints(self.lane), ptr=ptr, col=t.src[eid].astype(np.int64),
            own_column=np.where(own, _ints(group)[of] + self.place[eid], -1),
            n_whole=_ints([row.n_whole for row in rows]), hop_ptr=offsets(_ints([len(row.hops) for row in rows])),
            hop_col=t.src[eid[hops[:, 0]]].astype(np.int64), hop_weight=hops[:, 0].copy(),
            hop_run=hops[:, 1:].copy(), runs=self._vectors(), group_start=_ints(self.group_start),
            groups=_ints(self.groups).reshape(-1, 3), pack_start=_ints(self.pack_start),
            pack_activation=_ints(self.pack), offset=self.layout.offset, outputs=outputs.astype(np.int64),
            out_parameter=out_parameter, out_runs=runs_of(out_parameter),
            weight_index=self.number[eid].astype(np.int64),
            n_inputs=t.n_inputs, n_clamped=t.n_clamped, n_outputs=t.n_outputs, columns=self.layout.total,
            most_packs=int(np.diff(self.pack_start).max(initial=1)), most_sources=max([1, *(r.n_whole for r in rows)]),
        )  # fmt: skip


def _ints(values: Any) -> IntArray:
    return np.array(values, np.int64)


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64)
