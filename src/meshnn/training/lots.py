"""Samples on several workers, and sums that do not depend on how many there are.

The rows are cut into *lots*, one after the other; every batch takes as many rows from each. Some lots that follow each
other are a *part* of every batch: a part lies with one worker, who computes its share of a sum, and the shares of all
parts are added in a fixed tree,

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A worker that has the parts 0 to 5 sends the sums (0 + 1 + 2 + 3) and (4 + 5): whatever is added here or there, it is
added in the same order. Lots, parts and the order of the rows follow from the number of rows, the size of a batch and
the seed; who has what does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.losses import Targets
from meshnn.mesh import Mesh
from meshnn.program import Optimizer, Program, cores, in_threads
from meshnn.training.far import Look
from meshnn.training.samples import Epoch, Samples

__all__ = ["Cut", "Desk", "Key", "Parts", "Total", "covering", "root", "run_steps"]

#: Most lots, and rows of a batch that are worth a part of their own.
LOTS, PART_ROWS = 64, 256

#: A node of the tree: (level, number); its leaves are the parts `number << level` and following, `1 << level` of them.
Key = tuple[int, int]
#: Sums of some nodes to the sum of all: among workers, or without any.
Total = Callable[[dict[Key, FloatArray]], FloatArray]


class Cut(NamedTuple):
    """How rows are cut, which follows from how many there are and how many a batch is to have."""

    rows: int
    lots: int
    parts: int
    each: int  # rows that a batch takes from a lot

    @classmethod
    def of(cls, rows: int, size: int) -> Cut:
        """For batches of about `size` rows, never fewer."""
        lots = 1 << (min(LOTS, size, rows).bit_length() - 1)
        parts = 1 << (max(1, min(lots, size // PART_ROWS)).bit_length() - 1)
        return cls(rows, lots, parts, -(-min(size, rows) // lots))

    def bounds(self, lot: int) -> tuple[int, int]:
        """The first row of a lot, and the one after its last."""
        return lot * self.rows // self.lots, (lot + 1) * self.rows // self.lots

    def of_part(self, part: int) -> range:
        """The lots of a part."""
        per = self.lots // self.parts
        return range(part * per, (part + 1) * per)

    def by_lot(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Rows in ascending order, by lot, as numbers there."""
        starts = np.array([self.bounds(lot)[0] for lot in range(self.lots)])
        of = np.searchsorted(starts, rows, side="right") - 1
        return {int(lot): rows[of == lot] - starts[lot] for lot in np.unique(of)}

    def dealt(self, workers: int) -> list[range]:
        """Which parts each of so many workers has."""
        cuts = [self.parts * k // workers for k in range(workers + 1)]
        return [range(a, b) for a, b in pairwise(cuts)]


def covering(parts: range) -> list[Key]:
    """The fewest nodes of the tree whose leaves are these parts, in their order.

    >>> covering(range(0, 6)), covering(range(3, 8))
    ([(2, 0), (1, 2)], [(0, 3), (2, 1)])
    """
    found, at = [], parts.start
    while at < parts.stop:
        level = 0
        while at % (2 << level) == 0 and at + (2 << level) <= parts.stop:
            level += 1
        found.append((level, at >> level))
        at += 1 << level
    return found


def root(nodes: dict[Key, FloatArray], top: Key) -> FloatArray:
    """The sum at a node, from sums at nodes that cover it.

    >>> leaves = {(0, k): np.array([10.0**k]) for k in range(4)}
    >>> root(leaves, (2, 0))
    array([1111.])
    """
    if top in nodes:
        return nodes[top]
    level, number = top
    found: FloatArray = root(nodes, (level - 1, 2 * number)) + root(nodes, (level - 1, 2 * number + 1))
    return found


class Parts(NamedTuple):
    """Some parts of a cut."""

    cut: Cut
    mine: range

    @property
    def top(self) -> Key:
        """The node that is the sum of all."""
        return self.cut.parts.bit_length() - 1, 0

    def gathered(self, leaves: Iterable[FloatArray]) -> dict[Key, FloatArray]:
        """Sums at the nodes that cover these parts, from those of each part in order."""
        known: dict[Key, FloatArray] = {(0, part): leaf for part, leaf in zip(self.mine, leaves, strict=True)}
        return {key: root(known, key) for key in covering(self.mine)}


class Lot(NamedTuple):
    """Rows as a net sees them."""

    X: Array  # (n, n_inputs)
    values: Array  # (n, m)
    weight: Array  # (n, 1), 1 on average over all lots


@dataclass
class Desk:
    """What one worker has: some parts with their lots.

    Parameters
    ----------
    parts : Parts
    lots : dict of int to Lot
    look : Look
    mass : float
        Weight of all samples, of whoever.
    """

    parts: Parts
    lots: dict[int, Lot]
    look: Look
    mass: float
    n_threads: int | None = None

    @classmethod
    def of(cls, parts: Parts, raw: dict[int, Any], look: Look, mass: float, n_threads: int | None = None) -> Desk:
        """From raw rows of lots."""
        lots = {}
        for lot, (X, y, weight) in raw.items():
            weights = look.weights(y, weight)
            each = np.ones(len(X)) if weights is None else weights * (parts.cut.rows / mass)
            lots[lot] = Lot(look.inputs(X), look.outputs(y), each.astype(look.dtype)[:, None])
        return cls(parts, lots, look, mass, n_threads)

    def _each(self, task: Callable[[int], FloatArray]) -> dict[Key, FloatArray]:
        """Sums at the nodes of this worker, of what a task returns for each part."""
        mine = self.parts.mine
        threads = self.n_threads if self.n_threads is not None else cores()
        return self.parts.gathered(in_threads(len(mine), threads, lambda k: task(mine[k])))

    def gradient(self, program: Program, values: Array, orders: dict[int, Array], batch: int) -> dict[Key, FloatArray]:
        """Of batch number so many: gradient by the values, loss and hits, each times the number of samples."""
        each, cut = slice(batch * self.parts.cut.each, (batch + 1) * self.parts.cut.each), self.parts.cut

        def task(part: int) -> FloatArray:
            rows = [(self.lots[lot], orders[lot][each]) for lot in cut.of_part(part)]
            found = np.zeros(len(values) + 2)
            if any(len(chosen) for _, chosen in rows):
                X = np.concatenate([lot.X[chosen] for lot, chosen in rows])[None]
                y = np.concatenate([lot.values[chosen] for lot, chosen in rows])
                weight = np.concatenate([lot.weight[chosen] for lot, chosen in rows])
                gradient = program.gradient(values, X, Targets(self.look.loss, y, weight), 1)
                found[:-2], found[-2:] = gradient.grad, (gradient.loss, gradient.hits)
            return found

        return self._each(task)

    def _whole(self, lot: int) -> Samples:
        X, values, weight = self.lots[lot]
        share = weight * weight.dtype.type(1.0 / self.parts.cut.rows)
        return Samples(X[None], Targets(self.look.loss, values, share), 0.0)

    def evaluate(self, mesh: Mesh) -> dict[Key, FloatArray]:
        """Loss and hits of all samples."""
        program = mesh.program()

        def task(part: int) -> FloatArray:
            found = np.zeros(2)
            for lot in self.parts.cut.of_part(part):
                samples = self._whole(lot)
                if samples.count:
                    found += program.evaluate(mesh.values, samples.X, samples.targets, 1)
            return found

        return self._each(task)

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> dict[Key, FloatArray]:
        """Loss, hits, gradient and Gauss-Newton matrix of all samples, one after the other."""
        from threadpoolctl import threadpool_limits

        n, program = len(live), mesh.program("curvature", method, PART_ROWS)

        def task(part: int) -> FloatArray:
            found = np.zeros(2 + n + n * n)
            for lot in self.parts.cut.of_part(part):
                samples = self._whole(lot)
                if samples.count:
                    model = program.curvature(mesh.values, samples.X, samples.targets, live, 1)
                    found[:2] += model.loss, model.hits
                    found[2 : 2 + n] += model.grad
                    found[2 + n :] += model.matrix.ravel()
            return found

        with threadpool_limits(1, "blas"):
            return self._each(task)


def orders_of(cut: Cut, lots: Iterable[int], seed: int) -> dict[int, NDArray[np.int64]]:
    """The order of the rows of some lots in an epoch."""
    found = {}
    for lot in lots:
        first, last = cut.bounds(lot)
        found[lot] = np.random.default_rng([seed, lot]).permutation(last - first)
    return found


def batches_of(cut: Cut) -> int:
    """Steps of an epoch."""
    return -(-max(b - a for a, b in map(cut.bounds, range(cut.lots))) // cut.each)


def count_of(cut: Cut, batch: int) -> int:
    """Samples of a batch."""
    sizes = np.array([b - a for a, b in map(cut.bounds, range(cut.lots))])
    return int(np.clip(sizes - batch * cut.each, 0, cut.each).sum())


def run_steps(
    desk: Desk, total: Total, program: Program, values: Array, optimizer: Optimizer, seed: int, rates: Array,
    begun: Epoch, last: int,
) -> Epoch:  # fmt: skip
    """Steps of an epoch from where it stands up to batch number `last`; everybody takes the same, in place.

    `begun.piece` counts batches. Ends early after a loss that is not finite.
    """
    cut, learned, now = desk.parts.cut, len(optimizer.first), begun
    orders = orders_of(cut, desk.lots, seed)
    for batch in range(begun.piece, last):
        count = count_of(cut, batch)
        found = total(desk.gradient(program, values, orders, batch)) / count
        grad = found[:learned].astype(values.dtype)
        norm = optimizer.step(values[:learned], grad, float(rates[batch]))
        share = count / cut.rows
        loss, hits, _ = now.sums
        now = Epoch(batch + 1, (loss + share * found[-2], hits + share * found[-1], norm))
        if not np.isfinite(now.sums[0]):
            break
    return now
