"""Memory layout of a C header: the order in which neurons are computed, and the storage of their edges.

States are in one array of *slots*: the inputs first, then the computed neurons, each of which is a *row*. Rows that are
computed together are adjacent. A *block* is a sequence of rows with the same activation. It is *full* if all its rows
read the same consecutive slots, so that only weights are stored; otherwise the slot of every weight is also stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.blueprint import Blueprint


@dataclass(frozen=True)
class WeightBlock:
    """The rows from `begin` to `end`, all with the same activation, and their edges."""

    begin: int
    end: int
    activation: str
    outputs: bool
    full: bool
    #: In a full block: the first slot that its rows read; then, where the weights of its first row begin.
    first: int = 0
    count: int = 0
    at: int = 0


@dataclass(frozen=True)
class Stage:
    """Consecutive ticks that compute the same rows."""

    rows: tuple[tuple[int, int], ...]  # runs of rows as (begin, end)
    times: int


class Layout:
    """Slots, rows and blocks of a blueprint.

    A weight has `size` bytes. With `padded`, absent edges are stored as weights of 0 where this is shorter.
    """

    def __init__(self, blueprint: Blueprint, padded: bool, size: int) -> None:
        self.blueprint, self.size, self.once = blueprint, size, blueprint.once
        self.tick = np.zeros(blueprint.n_neurons, np.int64)  # the last tick that computes each neuron
        for tick, neurons in enumerate(blueprint.timetable):
            self.tick[neurons] = tick + 1
        self.neurons = self._order()
        self.slot = np.full(blueprint.n_neurons, -1)
        self.slot[: blueprint.n_inputs] = np.arange(blueprint.n_inputs)
        self.slot[self.neurons] = blueprint.n_inputs + np.arange(len(self.neurons))
        self.bias = np.zeros(len(self.neurons))
        self.sources: list[IntArray] = []  # slots per row
        self.row_weights: list[Array] = []
        self.edges: list[IntArray] = []  # blueprint edges per row
        self.n_rows, self.n_slots = len(self.neurons), blueprint.n_inputs + len(self.neurons)
        for row, j in enumerate(self.neurons.tolist()):
            self._read(row, slice(*blueprint.pointers[j : j + 2].tolist()))
        self.blocks = self._blocks(padded)
        self._block = [block for block in self.blocks for _ in range(block.begin, block.end)]

    @property
    def n_edges(self) -> int:
        """Return the number of stored weights that are edges, including those of the bias."""
        return sum(map(len, self.sources)) + int(np.count_nonzero(self.bias))

    @cached_property
    def outputs(self) -> IntArray:
        """Return the slots of the outputs, -1 for an output that is always 0."""
        return self.slot[self.blueprint.outputs]

    @property
    def multiply_adds(self) -> int:
        """Return the products per prediction, or per step."""
        fan_in = np.array([len(found) for found in self.sources])
        ticks = 1 if self.blueprint.timing is None else self.blueprint.timing.per_step
        return ticks * sum(stage.times * sum(int(fan_in[a:b].sum()) for a, b in stage.rows) for stage in self.stages)

    @cached_property
    def stages(self) -> list[Stage]:
        """Return the order in which rows are computed; for a stateful net, within one tick."""
        if self.once:
            return [Stage(tuple((block.begin, block.end) for block in self.blocks), 1)]
        stages: list[Stage] = []
        for neurons in self.blueprint.timetable:
            runs = tuple(self._runs(np.sort(self.slot[neurons]) - self.blueprint.n_inputs))
            if stages and stages[-1].rows == runs:
                stages[-1] = Stage(runs, stages[-1].times + 1)
            elif runs:
                stages.append(Stage(runs, 1))
        return stages

    def block_of(self, row: int) -> WeightBlock:
        """Return the block of a row."""
        return self._block[row]

    def listed(self) -> tuple[IntArray, IntArray]:
        """Return the pointers of the listed edges of each row, `(n_rows + 1,)`, and the slots of these edges."""
        counts = [0 if block.full else len(found) for block, found in zip(self._block, self.sources, strict=True)]
        slots = [found for found, count in zip(self.sources, counts, strict=True) if count]
        return np.concatenate([[0], np.cumsum(counts)]), np.concatenate([*slots, np.zeros(0, np.int64)])

    def table(self, weights: list[Array]) -> Array:
        """Return weights per row as one table: the matrices of full blocks, then the weights of listed edges."""
        parts = [np.zeros(0, weights[0].dtype if weights else float)]
        for block in self.blocks:
            if block.full:
                matrix = np.zeros((block.end - block.begin, block.count), parts[0].dtype)
                for row in range(block.begin, block.end):
                    matrix[row - block.begin, self.sources[row] - block.first] = weights[row]
                parts.append(matrix.ravel())
        return np.concatenate(parts + [w for block, w in zip(self._block, weights, strict=True) if not block.full])

    @cached_property
    def sums(self) -> set[int]:
        """Return the rows of outputs with identity activation: integer nets return their sums without a shift."""
        rows = [slot - self.blueprint.n_inputs for slot in self.outputs.tolist() if slot >= 0]
        return {row for row in rows if self.block_of(row).activation == "identity"}

    @cached_property
    def read(self) -> set[int]:
        """Return the rows that other rows read."""
        slots = np.unique(np.concatenate([*self.sources, np.zeros(0, np.int64)]))
        return set((slots[slots >= self.blueprint.n_inputs] - self.blueprint.n_inputs).tolist())

    # -- construction ----------------------------------------------------------------------------------------------

    def _order(self) -> IntArray:
        """Return the neurons sorted by computing tick (acyclic nets), outputs last, and activation."""
        r = self.blueprint
        first = np.full(r.n_neurons, len(r.timetable))
        for tick, neurons in reversed(list(enumerate(r.timetable))):
            first[neurons] = tick
        found = np.flatnonzero(first < len(r.timetable))
        kinds = np.array([r.activations[j - r.n_clamped] for j in found.tolist()])
        keys = found, kinds, found >= r.outputs[0], first[found] if self.once else 0 * found
        return np.asarray(found[np.lexsort(keys)])

    def _read(self, row: int, edges: slice) -> None:
        """Collect the sources and weights of a row."""
        r = self.blueprint
        src, w = r.src[edges], r.weights[edges]
        constant = src == r.n_inputs if r.bias else np.zeros(len(src), np.bool_)
        self.bias[row] = w[constant].sum()
        # a state that is never computed is always 0; before it is computed for the only time, it is 0
        live = ~constant & (self.slot[src] >= 0)
        if self.once:
            live &= self.tick[src] < self.tick[self.neurons[row]]
        order = np.argsort(self.slot[src[live]], kind="stable")
        self.sources.append(self.slot[src[live]][order])
        self.row_weights.append(w[live][order])
        self.edges.append(np.arange(edges.start, edges.stop)[live][order])

    def _blocks(self, padded: bool) -> list[WeightBlock]:
        r = self.blueprint
        keys = [
            (int(self.tick[j]) if self.once else 0, r.activations[j - r.n_clamped], j >= r.outputs[0])
            for j in self.neurons.tolist()
        ]
        ends = [k for k in range(1, len(keys)) if keys[k] != keys[k - 1]]
        blocks: list[WeightBlock] = []
        at, index_size = 0, 1 if self.n_slots <= 256 else 2
        for begin, end in pairwise([0, *ends, len(keys)]):
            reads = [found for found in self.sources[begin:end] if len(found)]
            first = min((int(found[0]) for found in reads), default=0)
            count = max((int(found[-1]) for found in reads), default=-1) + 1 - first
            edges, entries = sum(map(len, reads)), (end - begin) * count
            full = edges == entries or (padded and entries * self.size <= edges * (self.size + index_size))
            kind = keys[begin][1:]
            before = blocks[-1] if blocks else None
            if full:
                blocks.append(WeightBlock(begin, end, *kind, True, first, count, at))
                at += entries
            elif before is not None and not before.full and (before.activation, before.outputs) == kind:
                blocks[-1] = WeightBlock(before.begin, end, *kind, False)  # one loop processes both, in this order
            else:
                blocks.append(WeightBlock(begin, end, *kind, False))
        return blocks

    def _runs(self, rows: IntArray) -> list[tuple[int, int]]:
        """Return runs of consecutive rows within one block."""
        if not len(rows):
            return []
        cuts = {block.begin for block in self.blocks}
        ends = [k for k in range(1, len(rows)) if rows[k] != rows[k - 1] + 1 or int(rows[k]) in cuts]
        return [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise([0, *ends, len(rows)])]
