"""The lists, settings and arrays of a portable stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import MomentRow, StepRule
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.parameters import Ties
from meshnn.plan.influence import reach_sets
from meshnn.streaming.kalman import KalmanLearner
from meshnn.streaming.learners import AdamLearner, Learner, SgdLearner
from meshnn.streaming.state import Workspace
from meshnn.streaming.stream import new_learner
from meshnn.topology import Topology

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream

__all__ = ["blocks_of", "new_portable_state", "plan_portable", "portable_learner", "rule_of"]


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
        settings = {**settings, "covariance": "full", "replays": 0}
    return new_learner(learner, topology, ties, np.dtype(np.float32), settings)


def rule_of(learner: Learner) -> Array:
    """Return the settings in the order of `_core/portable.c`."""
    found = np.zeros(14, np.float32)
    if isinstance(learner, KalmanLearner):
        s, rule = learner.settings, learner.settings.rule()
        found[6:10] = [rule[name] for name in ("tails", "noise_rate", "noise_floor", "q_rate")]
        found[10:] = s.least, s.most, s.bound, s.ceiling
    else:
        m = learner.moments
        found[:6] = *learner.pace, m.l2, m.beta1, m.beta2, m.epsilon
    return found


def _groups(t: Topology, ties: Ties) -> list[tuple[list[int], list[int]]]:
    """Return the neurons that parameters reach, and these parameters, of those that reach an output."""
    reach = reach_sets(t, ties.number < ties.n_parameters, None)
    reached: dict[int, set[int]] = {}
    for o in np.flatnonzero(reach.number >= 0).tolist():
        for j in reach.sets[reach.number[o]].tolist():
            reached.setdefault(j, set()).add(o)
    sets: dict[int, frozenset[int]] = {}
    for number, j in zip(ties.number.tolist(), t.dst.tolist(), strict=True):
        if number < ties.n_parameters and j in reached:
            sets[number] = sets.get(number, frozenset()) | reached[j]
    found: dict[frozenset[int], list[int]] = {}
    for number in sorted(sets):
        found.setdefault(sets[number], []).append(number)
    return [(sorted(rows), members) for rows, members in found.items()]


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
    # `_core/portable_structs.h` describes the lists
    lists: dict[str, list[int]] = {name: [0] for name in ("ptr", "row_ptr", "sub_ptr", "par_ptr", "edge_ptr")}
    lists |= {name: [] for name in ("col", "num", "code", "rows", "sub_src", "sub_num", "par", "edge_row", "edge_src",
                                    "out_row")}  # fmt: skip
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
        n_inputs=t.n_inputs, n_clamped=n_clamped, n_outputs=C, n_targets=stream.width,
        n_parameters=ties.n_parameters, ticks=stream.ticks_per_sample, carries=int(stream.memory == "carry"),
        loss=stream.loss.code, learner=StepRule.MOMENTUM if isinstance(stream.learner, SgdLearner) else StepRule.ADAM,
        filters=int(stream.learner.filters),
    )  # fmt: skip


def blocks_of(net: Workspace) -> Iterator[tuple[IntArray, IntArray, slice]]:
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
    rows, C, M = len(net.code), t.n_outputs, MomentRow.ALL * stream.scale
    sizes = {
        "s": t.n_neurons, "other": t.n_neurons, "J": columns, "first": 0 if filters else N, "second": N * adam,
        "P": half, "last": N * filters, "noise": C * filters, "memo": 3, "x_moments": M * t.n_inputs,
        "y_moments": 0 if stream.loss.likelihood else M * C, "t": rows, "d": rows,
        "w": int(np.diff(net.sub_ptr[net.row_ptr]).max(initial=1)),
        "column": 4 * int(np.diff(net.row_ptr).max(initial=1)), "h": N, "u": N * filters, "grad": N,
        "moved": N * filters, "g": C, "scaled": stream.width,
    }  # fmt: skip
    room = Workspace(
        theta=stream._given.astype(np.float32), clock=np.zeros(4, np.int64),
        **{name: np.zeros(size, np.float32) for name, size in sizes.items()},
    )  # fmt: skip
    room.s[t.n_inputs : t.n_clamped] = 1  # the bias
    room.memo[:2] = 1
    if isinstance(stream.learner, KalmanLearner):
        settings = stream.learner.settings
        diagonal = np.concatenate([[0], np.cumsum(np.arange(N, 1, -1))]) if N else np.empty(0, np.int64)
        room.P[diagonal.astype(np.int64)] = settings.p0
        room.memo[:] = 0, settings.q, 0
        room.noise[:] = 1.0 if settings.noise == "auto" else settings.noise
    return room
