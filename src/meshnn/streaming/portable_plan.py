"""The plan of a portable stream: index lists, learner settings and state arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import Memo, StepRule
from meshnn.memory import check_fits
from meshnn.parameters import Ties
from meshnn.plan.influence import reach_sets
from meshnn.streaming.kalman import KalmanLearner, Learner
from meshnn.streaming.learners import AdamLearner, SgdLearner
from meshnn.streaming.state import Workspace
from meshnn.topology import Topology

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream
    from meshnn.streaming.stream import Stream

__all__ = ["blocks_of", "new_portable_state", "plan_portable", "rule_of"]


def rule_of(learner: Learner) -> Array:
    """Return the settings of a learner in the order of `_core/portable.c`."""
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
    """Return the groups of parameters that reach the same neurons: (neurons, parameters), if they reach an output."""
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
    """Return the index lists and sizes of a stream, for the core and for C headers."""
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
    """Yield the parameters of each group, the rows they reach, and the slice of the block (parameters, rows) in J."""
    at = 0
    for g, (first, last) in enumerate(pairwise(net.par_ptr.tolist())):
        rows = net.rows[net.row_ptr[g] : net.row_ptr[g + 1]]
        size = (last - first) * len(rows)
        yield net.par[first:last], rows, slice(at, at + size)
        at += size


def new_portable_state(stream: PortableStream, origin: Stream) -> Workspace:
    """Return the state arrays, with the state of another stream converted to float32."""
    t, net, N = stream.topology, stream.net, stream.ties.n_parameters
    learner, known, filters = origin.learner, origin.room, stream.learner.filters
    columns = max((last.stop for *_, last in blocks_of(net)), default=0)
    check_fits(4.0 * (columns + filters * N * (N + 1) // 2), "a portable stream", "use a net with fewer parameters")
    rows, links = len(net.code), int(np.diff(net.sub_ptr[net.row_ptr]).max(initial=1))
    sizes = {
        "other": t.n_neurons, "J": columns, "t": rows, "d": rows, "w": links,
        "column": 4 * int(np.diff(net.row_ptr).max(initial=1)), "h": N, "u": N * filters, "grad": N,
        "moved": N * filters, "g": t.n_outputs, "scaled": stream.width,
    }  # fmt: skip
    taken = {"theta": origin.values, "s": known.s[0], "x_moments": known.x_moments, "y_moments": known.y_moments}
    taken |= dict.fromkeys(("first", "second", "P", "last", "noise"), np.empty(0))
    if isinstance(learner, KalmanLearner):
        memo, C = learner.filter.memo, t.n_outputs
        taken |= {"P": learner.covariance()[np.triu_indices(N)], "noise": learner.noise, "last": memo[Memo.NOISE + C :],
                  "memo": [memo[Memo.SAMPLES], learner.q, memo[Memo.MEAN_SQUARE]]}  # fmt: skip
    else:
        m, adam, steps = learner.moments, isinstance(learner, AdamLearner), origin.learned
        taken |= {"first": m.first, "second": m.second[: N * adam],
                  "memo": [m.beta1**steps, m.beta2**steps, 0] if adam else [1, 1, 0]}  # fmt: skip
    return Workspace(
        clock=known.clock[:4].copy(),
        **{name: np.zeros(size, np.float32) for name, size in sizes.items()},
        **{name: np.array(values, np.float32).ravel() for name, values in taken.items()},
    )
