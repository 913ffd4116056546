"""The lists, settings and arrays of a portable stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.codes import MomentRow, StepRule
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.parameters import Ties
from meshnn.streaming.kalman import KalmanSettings
from meshnn.streaming.learners import AdamLearner, KalmanLearner, Learner, SgdLearner
from meshnn.streaming.state import Workspace
from meshnn.streaming.stream import new_learner
from meshnn.topology import Topology
from meshnn.topology.reach import NEVER, output_distance

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream

__all__ = ["blocks_of", "new_portable_state", "plan_portable", "portable_learner", "rule_of"]

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
_F4 = np.dtype(np.float32)


#: The lists of a net in the order of `_core/portable_structs.h`, which describes them.
LISTS = ("ptr", "col", "num", "code", "row_ptr", "rows", "sub_ptr", "sub_src", "sub_num", "par_ptr", "par", "edge_ptr",
         "edge_row", "edge_src", "out_row")  # fmt: skip


def portable_learner(
    learner: str, topology: Topology, ties: Ties, settings: dict[str, Any], given: dict[str, Any]
) -> Learner:
    """By its name, or a sentence about what a portable stream has not; `given` are the choices of `Mesh.stream`."""
    for name, value in (("n_streams", 1), ("delay", 0), ("method", "exact")):
        if given[name] != value:
            raise MeshError(f"a portable stream has {name}={value!r} only, got {given[name]!r}")
    if learner == "ekf":
        if settings.get("covariance") == "decoupled":
            raise MeshError('a portable filter has one covariance; leave covariance at "auto" or take fewer parameters')
        if settings.get("replays"):
            raise MeshError("a portable filter keeps no samples to learn from again; leave replays out")
        settings = {"covariance": "full", **settings, "replays": 0}
        if settings["covariance"] == "auto":
            settings["covariance"] = "full"
    return new_learner(learner, topology, ties, _F4, settings)


def rule_of(learner: Learner) -> F32:
    """Return the settings in the order of `_core/portable.c`."""
    found = np.zeros(14, _F4)
    if isinstance(learner, KalmanLearner):
        s: KalmanSettings = learner.known.settings
        auto = s.forgetting == "auto"
        found[6:] = (
            s.tails, 0.02 if s.noise == "auto" else 0.0, 1e-3, s.rate if auto else 0.0, s.least, s.most, s.bound,
            s.ceiling,
        )  # fmt: skip
    else:
        m = learner.moments
        found[:6] = *learner.pace, m.l2, m.beta1, m.beta2, m.epsilon
    return found


class _Group(NamedTuple):
    rows: list[int]  # neurons that its parameters reach
    members: list[int]  # parameters


def _groups(t: Topology, ties: Ties) -> list[_Group]:
    """Parameters by the neurons they reach, of those that reach an output."""
    n, first = t.n_neurons, t.n_clamped
    useful = output_distance(n, first, t.n_outputs, t.src, t.dst) < NEVER
    useful[:first] = False
    after: list[list[int]] = [[] for _ in range(n)]
    for a, b in zip(t.src.tolist(), t.dst.tolist(), strict=True):
        if useful[a] and useful[b]:
            after[a].append(b)
    reached: dict[int, frozenset[int]] = {}
    for j in np.unique(t.dst).tolist():
        if useful[j]:
            seen, todo = {j}, [j]
            while todo:
                fresh = [b for b in after[todo.pop()] if b not in seen]
                seen.update(fresh)
                todo += fresh
            reached[j] = frozenset(seen)
    sets: dict[int, frozenset[int]] = {}
    for number, j in zip(ties.number.tolist(), t.dst.tolist(), strict=True):
        if number < ties.n_parameters and j in reached:
            sets[number] = sets.get(number, frozenset()) | reached[j]
    found: dict[frozenset[int], list[int]] = {}
    for number in sorted(sets):
        found.setdefault(sets[number], []).append(number)
    return [_Group(sorted(rows), members) for rows, members in found.items()]


def plan_portable(stream: PortableStream) -> Workspace:
    """Make the lists of a stream, for the core and for headers."""
    t, ties, n_clamped, C = stream.topology, stream.ties, stream.topology.n_clamped, stream.topology.n_outputs
    number = ties.number
    into: list[list[int]] = [[] for _ in range(t.n_neurons)]
    edges_of: dict[int, list[int]] = {}
    for e, j in enumerate(t.dst.tolist()):
        into[j].append(e)
        if j >= n_clamped:
            edges_of.setdefault(int(number[e]), []).append(e)
    lists: dict[str, list[int]] = {name: [] for name in LISTS}
    for name in ("ptr", "row_ptr", "sub_ptr", "par_ptr", "edge_ptr"):
        lists[name].append(0)
    for j in range(n_clamped, t.n_neurons):
        lists["col"] += t.src[into[j]].tolist()
        lists["num"] += number[into[j]].tolist()
        lists["ptr"].append(len(lists["col"]))
        lists["code"].append(int(stream.codes[j]))
    for rows, members in _groups(t, ties):
        place = {j: k for k, j in enumerate(rows)}
        for j in rows:
            for e in into[j]:
                if int(t.src[e]) in place:
                    lists["sub_src"].append(place[int(t.src[e])])
                    lists["sub_num"].append(int(number[e]))
            lists["sub_ptr"].append(len(lists["sub_src"]))
        lists["rows"] += [j - n_clamped for j in rows]
        lists["row_ptr"].append(len(lists["rows"]))
        for k in members:
            for e in edges_of[k]:
                if int(t.dst[e]) in place:
                    lists["edge_row"].append(place[int(t.dst[e])])
                    lists["edge_src"].append(int(t.src[e]))
            lists["edge_ptr"].append(len(lists["edge_row"]))
        lists["par"] += members
        lists["par_ptr"].append(len(lists["par"]))
        lists["out_row"] += [place.get(j, len(rows)) for j in range(t.n_neurons - C, t.n_neurons)]
    return Workspace(
        **{name: np.array(found, np.int64) for name, found in lists.items()},
        n_inputs=t.n_inputs,
        n_clamped=n_clamped,
        n_outputs=C,
        n_targets=stream.width,
        n_parameters=ties.n_parameters,
        ticks=stream.ticks_per_sample,
        carries=int(stream.memory == "carry"),
        loss=stream.loss.code,
        learner=StepRule.MOMENTUM if isinstance(stream.learner, SgdLearner) else StepRule.ADAM,
        filters=int(stream.learner.filters),
    )


def blocks_of(net: Workspace) -> Iterator[tuple[I64, I64, slice]]:
    """Yield the parameters of each group, the rows that they reach and where the block (parameters, rows) lies in J."""
    at = 0
    for g, (first, last) in enumerate(pairwise(net.par_ptr.tolist())):
        rows = net.rows[net.row_ptr[g] : net.row_ptr[g + 1]]
        size = (last - first) * len(rows)
        yield net.par[first:last], rows, slice(at, at + size)
        at += size


def new_portable_state(stream: PortableStream) -> Workspace:
    """Make the arrays of a stream that has seen nothing."""
    t, net, N = stream.topology, stream.net, stream.ties.n_parameters
    filters, adam = stream.learner.filters, isinstance(stream.learner, AdamLearner)
    half = N * (N + 1) // 2 if filters else 0
    columns = max((last.stop for *_, last in blocks_of(net)), default=0)
    check_fits(4.0 * (columns + half), "a portable stream", "take a net with fewer parameters")
    span = np.diff(net.sub_ptr[net.row_ptr])

    def zeros(count: int) -> F32:
        return np.zeros(count, _F4)

    room = Workspace(
        theta=stream._given.astype(_F4),
        s=zeros(t.n_neurons),
        J=zeros(columns),
        first=zeros(0 if filters else N),
        second=zeros(N if adam else 0),
        P=zeros(half),
        last=zeros(N if filters else 0),
        noise=zeros(t.n_outputs if filters else 0),
        memo=zeros(3),
        x_moments=zeros(MomentRow.ALL * t.n_inputs if stream.scale else 0),
        y_moments=zeros(MomentRow.ALL * t.n_outputs if stream.scale and not stream.loss.likelihood else 0),
        clock=np.zeros(4, np.int64),
        t=zeros(len(net.code)),
        d=zeros(len(net.code)),
        w=zeros(int(span.max(initial=1))),
        column=zeros(4 * int(np.diff(net.row_ptr).max(initial=1))),
        h=zeros(N),
        u=zeros(N if filters else 0),
        grad=zeros(N),
        moved=zeros(N if filters else 0),
        g=zeros(t.n_outputs),
        scaled=zeros(stream.width),
        other=zeros(t.n_neurons),
    )
    room.s[t.n_inputs : t.n_clamped] = 1  # the bias
    room.memo[:2] = 1
    if isinstance(stream.learner, KalmanLearner):
        settings = stream.learner.known.settings
        diagonal = np.concatenate([[0], np.cumsum(np.arange(N, 1, -1))]) if N else np.empty(0, np.int64)
        room.P[diagonal.astype(np.int64)] = settings.p0
        room.memo[:] = 0, settings.q, 0
        room.noise[:] = 1.0 if settings.noise == "auto" else settings.noise
    return room
