"""Which neurons can influence each other, and when: properties of the graph alone.

Two tick counts per neuron decide which computations the engine skips (docs/explanation/ticks-and-topologies.md):

* `birth[i]`: the first tick at which the state of neuron i can be non-zero. Clamped neurons are born at tick 0, *awake*
  neurons (whose activation is not zero at zero) at tick 1 at the latest.
* `distance[j]`: the fewest hops from neuron j to an output, through neurons that are not clamped.

With K ticks the edge (i, j) influences an output at tick m if and only if `birth[i] < m` and an output is exactly K - m
hops from j. Such an m exists if and only if `birth[i] + 1 + distance[j] <= K`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, BoolArray, IntArray

T = TypeVar("T", bound=np.generic)
#: A tick count that is never reached; the sum of two does not overflow.
NEVER = int(np.iinfo(np.int64).max // 4)
#: Edges per block where 64-bit copies of all edges would take too much memory.
BLOCK = 1 << 22


def counted(n: int, ends: Array) -> IntArray:
    """Return how often each of n numbers occurs: `bincount` without a 64-bit copy."""
    if len(ends) <= BLOCK:
        return np.bincount(ends, minlength=n)
    total = np.zeros(n, dtype=np.int64)
    for begin in range(0, len(ends), BLOCK):
        total += np.bincount(ends[begin : begin + BLOCK], minlength=n)
    return total


def taken(marks: NDArray[T], numbers: Array) -> NDArray[T]:
    """Return `marks[numbers]` without a 64-bit copy of the numbers."""
    if len(numbers) <= BLOCK:
        return marks[numbers]
    found = np.empty(len(numbers), dtype=marks.dtype)
    for begin in range(0, len(numbers), BLOCK):
        found[begin : begin + BLOCK] = marks[numbers[begin : begin + BLOCK]]
    return found


def pointers(n: int, ends: Array) -> IntArray:
    """Return the pointers into edges sorted by `ends`: neuron i has the edges ptr[i] to ptr[i + 1]."""
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(counted(n, ends), out=ptr[1:])
    return ptr


def edges_by_source(n: int, src: Array) -> tuple[IntArray, Array]:
    """Return `(ptr, order)`: the edges that leave neuron i are `order[ptr[i]:ptr[i + 1]]`, in ascending order."""
    ptr, number = pointers(n, src), np.uint32 if len(src) < 2**32 else np.int64
    if (src[1:] >= src[:-1]).all():
        return ptr, np.arange(len(src), dtype=number)
    if number is np.int64:
        return ptr, np.argsort(src, kind="stable")
    # sorting source and number in one word is about ten times as fast as a stable sort by source
    keys = src.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(len(src), dtype=np.uint64)
    keys.sort()
    return ptr, keys.astype(np.uint32)  # the lower half of each word


def in_ranges(nodes: Array, ptr: IntArray) -> IntArray:
    """Return the numbers ptr[i] to ptr[i + 1] of all nodes i, concatenated, without a Python loop."""
    begin = ptr[nodes]
    counts = ptr[1:][nodes] - begin
    ends = np.cumsum(counts)
    return np.repeat(begin - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def edges_leaving(nodes: Array, ptr: IntArray, order: Array) -> Array:
    """Return all edges that leave any of the nodes."""
    return order[in_ranges(nodes, ptr)]


def _different(n: int, nodes: Array) -> IntArray:
    """Return the distinct nodes in increasing order."""
    if 8 * len(nodes) < n:
        return np.unique(nodes)
    marks = np.zeros(n, dtype=np.bool_)
    marks[nodes] = True
    return np.flatnonzero(marks)


def _spread(n: int, start: IntArray, src: IntArray, dst: IntArray) -> IntArray:
    """Return the fewest hops from the start values: `level[j] = min(start[j], 1 + level[i])` over the edges (i, j)."""
    ptr, order = edges_by_source(n, src)
    level = start.copy()
    later = {int(v): np.flatnonzero(start == v) for v in np.unique(start[start < NEVER])}
    frontier = np.empty(0, dtype=np.int64)
    tick = min(later, default=0)
    while frontier.size or later:
        begins = later.pop(tick, np.empty(0, dtype=np.int64))
        frontier = np.union1d(frontier, begins[level[begins] == tick])
        reached = dst[edges_leaving(frontier, ptr, order)] if frontier.size else frontier
        frontier = _different(n, reached[level[reached] > tick + 1])
        tick += 1
        level[frontier] = tick
    return level


def birth_ticks(n: int, n_clamped: int, src: IntArray, dst: IntArray, awake: BoolArray | None = None) -> IntArray:
    """Return the first tick at which each neuron can be non-zero; `NEVER` if it cannot."""
    start = np.full(n, NEVER, dtype=np.int64)
    if awake is not None:
        start[awake] = 1
    start[:n_clamped] = 0
    into_free = dst >= n_clamped
    if into_free.all():
        return _spread(n, start, src, dst)
    return _spread(n, start, src[into_free], dst[into_free])


def output_distance(n: int, n_clamped: int, n_outputs: int, src: IntArray, dst: IntArray) -> IntArray:
    """Return the fewest hops from each neuron to an output; `NEVER` for clamped neurons and if none is reachable."""
    start = np.full(n, NEVER, dtype=np.int64)
    start[n - n_outputs :] = 0
    free = (src >= n_clamped) & (dst >= n_clamped)
    return _spread(n, start, dst[free], src[free])


def need_sets(
    n: int, n_clamped: int, n_outputs: int, src: IntArray, dst: IntArray, ticks: int,
    counted_at: BoolArray | None = None, whole_end: bool = False,
) -> BoolArray:  # fmt: skip
    """Return `need[k, j]`: whether the state of neuron j after tick k can reach an output in exactly `ticks - k` hops.

    The shape is `(ticks + 1, n)`. Row 0 is False, because only clamped neurons matter before tick 1. With `counted_at`
    `(ticks + 1,)`, outputs are read after those ticks, not only after the last. With `whole_end`, all neurons that are
    not clamped are read after the last tick.
    """
    if counted_at is None:
        counted_at = np.arange(ticks + 1) == ticks
    need = np.zeros((ticks + 1, n), dtype=np.bool_)
    need[counted_at, n - n_outputs :] = True
    need[0] = False
    need[ticks, n_clamped:] |= whole_end
    # up to this tick, outputs are read after all ticks or after none
    alike = int(np.argmax(np.append(counted_at[2:] != counted_at[1], True))) + 1 if ticks else 0
    free = (src >= n_clamped) & (dst >= n_clamped)
    src, dst = src[free], dst[free]
    ptr, order = edges_by_source(n, dst)
    leads = np.zeros(n, dtype=np.int64)  # number of edges from each neuron to neurons that the next tick needs
    for k in range(ticks - 1, 0, -1):
        changed = need[k + 1] ^ need[k + 2] if k + 2 <= ticks else need[k + 1]
        nodes = np.flatnonzero(changed)
        if nodes.size == 0 and k + 1 <= alike:  # a fixed point: all earlier ticks need the same neurons
            need[1 : k + 1] = need[k + 1]
            break
        # process only neurons that differ from the next tick, so that each edge is rarely processed twice
        for sign, ends in ((1, nodes[need[k + 1, nodes]]), (-1, nodes[~need[k + 1, nodes]])):
            starts = src[edges_leaving(ends, ptr, order)]
            if 8 * len(starts) < n:
                np.add.at(leads, starts, sign)
            else:
                leads += sign * np.bincount(starts, minlength=n)
        need[k] |= leads > 0
    return need


def fewest_ticks(birth: IntArray, distance: IntArray, src: IntArray, dst: IntArray) -> int:
    """Return the fewest ticks at which every edge that can ever influence an output does; 0 if there is none."""
    ticks = birth[src] + 1 + distance[dst]
    ticks = ticks[ticks < NEVER]
    return int(ticks.max()) if ticks.size else 0


def longest_path(n: int, birth: IntArray, distance: IntArray, src: IntArray, dst: IntArray) -> int | None:
    """Return the number of edges on the longest path from a clamped neuron to an output; None if there are cycles."""
    on_path = (birth[src] < NEVER) & (distance[dst] < NEVER)
    length = longest_paths(n, src[on_path], dst[on_path])
    return None if length is None else int(length[distance == 0].max(initial=0))


def longest_paths(n: int, src: IntArray, dst: IntArray, start: IntArray | None = None) -> IntArray | None:
    """Return the length of the longest path to each of n neurons, at least the start values; None for a cycle."""
    ptr, order = edges_by_source(n, src)
    waiting = counted(n, dst)
    length = np.zeros(n, dtype=np.int64) if start is None else start.copy()
    ready = np.flatnonzero(waiting == 0)
    left = len(src)
    while ready.size:
        edges = edges_leaving(ready, ptr, order)
        ends = dst[edges]
        np.maximum.at(length, ends, length[src[edges]] + 1)
        np.subtract.at(waiting, ends, 1)
        left -= len(edges)
        ready = _different(n, ends[waiting[ends] == 0])
    return None if left else length
