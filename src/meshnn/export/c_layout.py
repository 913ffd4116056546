"""Where things are in a C header: the order in which neurons are computed, and how their edges are written down.

States lie in one array of *slots*: inputs first, then neurons in the order of their *rows*. A row is a neuron that is
computed; rows are sorted so that what is computed together stands together. The edges of some rows are a *block*:
either *full* (all rows read the same run of slots, so that nothing but weights is written down) or *listed* (a slot for
every weight).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.blueprint import Blueprint

__all__ = ["Block", "Layout", "Stage"]


@dataclass(frozen=True)
class Block:
    """Rows from `begin` to `end`, all of one activation, and their edges."""

    begin: int
    end: int
    activation: str
    outputs: bool
    full: bool
    #: Of full ones: the slots that are read, and where the weights of the first row begin.
    first: int = 0
    count: int = 0
    at: int = 0


@dataclass(frozen=True)
class Stage:
    """Ticks at which the same rows are computed, one after the other."""

    rows: tuple[tuple[int, int], ...]  # runs of rows
    times: int


class Layout:
    """Of a blueprint.

    Parameters
    ----------
    blueprint : Blueprint
    padded : bool
        Whether absent edges may be written as weights of 0 where that is shorter.
    size : int
        Bytes of a weight.
    """

    def __init__(self, blueprint: Blueprint, padded: bool, size: int) -> None:
        self.blueprint, self.size = blueprint, size
        self.once = blueprint.once
        self.tick = np.zeros(blueprint.n_neurons, np.int64)  # at which a neuron is computed, the last time
        for tick, neurons in enumerate(blueprint.timetable):
            self.tick[neurons] = tick + 1
        self.neurons = self._order()
        self.slot = np.full(blueprint.n_neurons, -1)
        self.slot[: blueprint.n_inputs] = np.arange(blueprint.n_inputs)
        self.slot[self.neurons] = blueprint.n_inputs + np.arange(len(self.neurons))
        self.bias = np.zeros(len(self.neurons))
        self.sources: list[IntArray] = []
        self.row_weights: list[Array] = []
        self.edges: list[IntArray] = []  # of the blueprint
        for row, j in enumerate(self.neurons.tolist()):
            self._read(row, slice(*blueprint.pointers[j : j + 2].tolist()))
        self.blocks = self._blocks(padded)

    @property
    def n_rows(self) -> int:
        """Neurons that are computed."""
        return len(self.neurons)

    @property
    def n_slots(self) -> int:
        """Inputs and rows."""
        return self.blueprint.n_inputs + self.n_rows

    @property
    def n_edges(self) -> int:
        """Weights that are used, those of the bias among them."""
        return sum(map(len, self.sources)) + int(np.count_nonzero(self.bias))

    @cached_property
    def outputs(self) -> IntArray:
        """Slots of the outputs."""
        return self.slot[self.blueprint.n_neurons - self.blueprint.n_outputs :]

    @property
    def multiply_adds(self) -> int:
        """Of one prediction, or of one step."""
        fan_in = np.array([len(found) for found in self.sources])
        ticks = 1 if self.blueprint.timing is None else self.blueprint.timing.per_step
        return ticks * sum(turn.times * sum(int(fan_in[a:b].sum()) for a, b in turn.rows) for turn in self.turns)

    @cached_property
    def turns(self) -> list[Stage]:
        """In which order rows are computed; of a net in time, those of a tick."""
        first = self.blueprint.n_inputs
        lists = [np.sort(self.slot[found]) - first for found in self.blueprint.timetable if len(found)]
        if self.once:
            return [Stage(tuple((block.begin, block.end) for block in self.blocks), 1)]
        turns: list[Stage] = []
        for rows in lists:
            runs = tuple(self._runs(rows))
            if turns and turns[-1].rows == runs:
                turns[-1] = Stage(runs, turns[-1].times + 1)
            else:
                turns.append(Stage(runs, 1))
        return turns

    def block_of(self, row: int) -> Block:
        """That a row belongs to."""
        return next(block for block in self.blocks if block.begin <= row < block.end)

    def listed(self) -> tuple[IntArray, IntArray]:
        """Of all rows where their listed edges begin, `(n_rows + 1,)`, and the slots of these edges."""
        counts = [0 if self.block_of(row).full else len(found) for row, found in enumerate(self.sources)]
        slots = [found for found, count in zip(self.sources, counts, strict=True) if count]
        return np.concatenate([[0], np.cumsum(counts)]), np.concatenate(slots) if slots else np.zeros(0, np.int64)

    def weights(self) -> Array:
        """Those of full blocks, then those that are listed."""
        parts = []
        for block in self.blocks:
            if block.full:
                matrix = np.zeros((block.end - block.begin, block.count))
                for row in range(block.begin, block.end):
                    matrix[row - block.begin, self.sources[row] - block.first] = self.row_weights[row]
                parts.append(matrix.ravel())
        for row in range(self.n_rows):
            if not self.block_of(row).full:
                parts.append(self.row_weights[row])
        return np.concatenate(parts) if parts else np.zeros(0)

    # -- how it comes about --------------------------------------------------------------------------------------

    def _order(self) -> IntArray:
        """Neurons by the tick in which they are computed, of cyclic nets by the first one; then by activation."""
        table, blueprint = self.blueprint.timetable, self.blueprint
        first = np.full(blueprint.n_neurons, len(table))
        for tick, neurons in reversed(list(enumerate(table))):
            first[neurons] = tick
        found = np.flatnonzero(first < len(table))
        kinds = np.array([blueprint.activations[j - blueprint.n_clamped] for j in found.tolist()])
        outputs = found >= blueprint.n_neurons - blueprint.n_outputs
        return np.asarray(found[np.lexsort((found, kinds, outputs, first[found] if self.once else 0 * found))])

    def _read(self, row: int, edges: slice) -> None:
        r = self.blueprint
        src, w = r.src[edges], r.weights[edges]
        constant = src == r.n_inputs if r.bias else np.zeros(len(src), np.bool_)
        self.bias[row] = w[constant].sum()
        # a state that is never computed is 0 for ever, and one that is computed once is 0 before
        live = ~constant & (self.slot[src] >= 0)
        if self.once:
            live &= self.tick[src] < self.tick[self.neurons[row]]
        order = np.argsort(self.slot[src[live]], kind="stable")
        self.sources.append(self.slot[src[live]][order])
        self.row_weights.append(w[live][order])
        self.edges.append(np.arange(edges.start, edges.stop)[live][order])

    def _blocks(self, padded: bool) -> list[Block]:
        r = self.blueprint
        keys = []
        outputs = r.n_neurons - r.n_outputs
        for j in self.neurons.tolist():
            keys.append((int(self.tick[j]) if self.once else 0, r.activations[j - r.n_clamped], j >= outputs))
        ends = [k for k in range(1, len(keys)) if keys[k] != keys[k - 1]]
        blocks: list[Block] = []
        at = 0
        for begin, end in pairwise([0, *ends, len(keys)]):
            reads = self.sources[begin:end]
            edges = sum(map(len, reads))
            first = min((int(found[0]) for found in reads if len(found)), default=0)
            count = max((int(found[-1]) for found in reads if len(found)), default=-1) + 1 - first
            room = (end - begin) * count
            full = edges == room or (padded and room * self.size <= edges * (self.size + self.index_size))
            kind = keys[begin][1:]
            before = blocks[-1] if blocks else None
            if full:
                blocks.append(Block(begin, end, *kind, True, first, count, at))
                at += room
            elif before is not None and not before.full and (before.activation, before.outputs) == kind:
                blocks[-1] = Block(before.begin, end, *kind, False)  # one loop runs through both, in this order
            else:
                blocks.append(Block(begin, end, *kind, False))
        return blocks

    @property
    def index_size(self) -> int:
        """Bytes of the number of a slot."""
        return 1 if self.n_slots <= 256 else 2

    def _runs(self, rows: IntArray) -> list[tuple[int, int]]:
        """Rows that follow each other and are of one block."""
        cuts = {block.begin for block in self.blocks}
        ends = [k for k in range(1, len(rows)) if rows[k] != rows[k - 1] + 1 or int(rows[k]) in cuts]
        return [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise([0, *ends, len(rows)])]
