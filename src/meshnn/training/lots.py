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

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.engine import Engine, Optimizer, cores
from meshnn.losses import Targets
from meshnn.mesh import Mesh
from meshnn.training.far import Look, Raw
from meshnn.training.samples import Epoch, InMemoryDataset

__all__ = [
    "PART_ROWS",
    "Key",
    "Parts",
    "ShardData",
    "ShardPlan",
    "Total",
    "Transport",
    "WorkerState",
    "agreement",
    "covering",
    "joined_held",
    "root",
    "run_steps",
]

#: Most lots, and rows of a batch that are worth a part of their own.
LOTS, PART_ROWS = 64, 1024
#: Bytes of a sum above which every worker adds up a slice of it, instead of all of it.
SLICED = 2**20

#: A node of the tree: (level, number); its leaves are the parts `number << level` and following, `1 << level` of them.
Key = tuple[int, int]
#: Sums of some nodes to the sum of all: among workers, or without any.
Total = Callable[[dict[Key, FloatArray]], FloatArray]


class ShardPlan(NamedTuple):
    """How rows are cut, which follows from how many there are and how many a batch is to have."""

    sizes: tuple[int, ...]  # rows of each lot
    parts: int
    each: int  # rows that a batch takes from a lot

    @classmethod
    def of(cls, rows: int, size: int) -> ShardPlan:
        """For batches of about `size` rows, never fewer."""
        lots = 1 << (min(LOTS, size, rows).bit_length() - 1)
        parts = 1 << (max(1, min(lots, size // PART_ROWS)).bit_length() - 1)
        sizes = tuple((lot + 1) * rows // lots - lot * rows // lots for lot in range(lots))
        return cls(sizes, parts, -(-min(size, rows) // lots))

    @property
    def lots(self) -> int:
        """How many there are, a power of 2."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """Of all lots."""
        return sum(self.sizes)

    @property
    def batches(self) -> int:
        """Steps of an epoch."""
        return -(-max(self.sizes) // self.each)

    def count(self, batch: int) -> int:
        """Samples of a batch."""
        return int(np.clip(np.array(self.sizes) - batch * self.each, 0, self.each).sum())

    def bounds(self, lot: int) -> tuple[int, int]:
        """The first row of a lot, and the one after its last."""
        first = sum(self.sizes[:lot])
        return first, first + self.sizes[lot]

    def of_part(self, part: int) -> range:
        """The lots of a part."""
        per = self.lots // self.parts
        return range(part * per, (part + 1) * per)

    def by_lot(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Rows in ascending order, by lot, as numbers there."""
        return _sorted_out(rows, self.sizes)

    def by_part(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """The same by part."""
        return _sorted_out(rows, [sum(self.sizes[lot] for lot in self.of_part(part)) for part in range(self.parts)])

    def dealt(self, workers: int) -> list[range]:
        """Which parts each of so many workers has."""
        cuts = [self.parts * k // workers for k in range(workers + 1)]
        return [range(a, b) for a, b in pairwise(cuts)]


def _sorted_out(rows: NDArray[np.int64], sizes: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    starts = np.cumsum([0, *sizes[:-1]])
    of = np.searchsorted(starts, rows, side="right") - 1
    return {int(place): rows[of == place] - starts[place] for place in np.unique(of)}


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

    cut: ShardPlan
    mine: range

    @property
    def top(self) -> Key:
        """The node that is the sum of all."""
        return self.cut.parts.bit_length() - 1, 0

    def gathered(self, leaves: Iterable[FloatArray]) -> dict[Key, FloatArray]:
        """Sums at the nodes that cover these parts, from those of each part in order."""
        known: dict[Key, FloatArray] = {(0, part): leaf for part, leaf in zip(self.mine, leaves, strict=True)}
        return {key: root(known, key) for key in covering(self.mine)}


class Transport(ABC):
    """Sums over a crew: everybody gets the sums of all others, or of large ones a slice, which all then get added up.

    Either way it is added in the order of the tree.
    """

    def __init__(self, cut: ShardPlan, dealt: list[range], rank: int) -> None:
        self.dealt, self.rank = dealt, rank
        self.keys = [covering(parts) for parts in dealt]
        self.top = Parts(cut, dealt[rank]).top

    @abstractmethod
    def swap(self, letters: list[FloatArray]) -> list[FloatArray]:
        """Send a letter to each of the crew; what came from each, in one row."""

    def __call__(self, nodes: dict[Key, FloatArray]) -> FloatArray:
        """The sum of all, from the sums at the nodes of this worker."""
        count = len(self.dealt)
        if count == 1:
            return root(nodes, self.top)
        mine = np.stack([nodes[key] for key in self.keys[self.rank]])
        width = mine.shape[1]
        if 8 * width <= SLICED:
            return self._added(self.swap([mine] * count), width)
        cuts = [width * k // count for k in range(count + 1)]
        came = self.swap([np.ascontiguousarray(mine[:, a:b]) for a, b in pairwise(cuts)])
        added = self._added(came, cuts[self.rank + 1] - cuts[self.rank])
        return np.concatenate(self.swap([added] * count))

    def _added(self, came: list[FloatArray], width: int) -> FloatArray:
        known: dict[Key, FloatArray] = {}
        for keys, letter in zip(self.keys, came, strict=True):
            known.update(zip(keys, letter.reshape(len(keys), width), strict=True))
        return root(known, self.top)


class ShardData(NamedTuple):
    """The rows of a part as a net sees them, lot after lot."""

    X: Array  # (n, n_inputs)
    values: Array  # (n, m)
    weight: Array  # (n, 1), 1 on average over all parts

    @classmethod
    def of(cls, raw: Raw, look: Look, mean: float) -> ShardData:
        """From raw rows; `mean` is the mean weight of all there are."""
        X, y, weight = raw
        weights = look.weights(y, weight)
        each = np.ones(len(X)) if weights is None else weights / mean
        return cls(look.inputs(X), look.outputs(y), each.astype(look.dtype)[:, None])

    def at(self, rows: Array) -> ShardData:
        """Some of them."""
        return ShardData(*(array.take(rows, axis=0) for array in self))

    def samples(self, look: Look, rows: int, mass: float) -> InMemoryDataset:
        """As samples among so many of such a weight."""
        share = self.weight * self.weight.dtype.type(1.0 / rows)
        targets = Targets(look.loss, self.values, share)
        return InMemoryDataset(self.X[None], targets, mass * float(share.sum(dtype=np.float64)))


def joined_held(pieces: Sequence[ShardData]) -> ShardData:
    """Rows one after the other."""
    return ShardData(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True)))


@dataclass
class WorkerState:
    """What one worker has: some parts.

    Parameters
    ----------
    parts : Parts
    held : dict of int to Held
        By part.
    look : Look
    """

    parts: Parts
    held: dict[int, ShardData]
    look: Look
    n_threads: int | None = None
    _rooms: dict[int, tuple[ShardData, FloatArray]] = field(default_factory=dict)

    def _each(self, task: Callable[[int], FloatArray]) -> dict[Key, FloatArray]:
        """Sums at the nodes of this worker, of what a task returns for each part."""
        mine = self.parts.mine
        threads = min(self.n_threads if self.n_threads is not None else cores(), max(len(mine), 1))
        with ThreadPoolExecutor(threads) as pool:
            return self.parts.gathered(list(pool.map(task, mine)))

    def gradient(self, engine: Engine, values: Array, seed: int, batch: int) -> dict[Key, FloatArray]:
        """Return gradient, loss and share of correct samples of one batch, each times the number of its samples."""
        cut, loss = self.parts.cut, self.look.loss

        def task(part: int) -> FloatArray:
            rows = rows_of_batch(cut, part, seed, batch)
            room, found = self._room(part, len(values) + 2)
            if len(rows) == 0:
                found[:] = 0
                return found
            X, y, weight = (
                array.take(rows, axis=0, out=into[: len(rows)], mode="clip")
                for array, into in zip(self.held[part], room, strict=True)
            )
            gradient = engine.gradient(values, X[None], Targets(loss, y, weight), 1)
            found[:-2], found[-2:] = gradient.grad, (gradient.loss, gradient.correct)
            return found

        return self._each(task)

    def _room(self, part: int, width: int) -> tuple[ShardData, FloatArray]:
        """Where a batch of a part and its sum go, always the same: workers of Dask give memory back at once."""
        if part not in self._rooms or len(self._rooms[part][1]) != width:
            most = len(self.parts.cut.of_part(part)) * self.parts.cut.each
            room = ShardData(*(np.empty((most, *array.shape[1:]), array.dtype) for array in self.held[part]))
            self._rooms[part] = room, np.empty(width)
        return self._rooms[part]

    def evaluate(self, mesh: Mesh) -> dict[Key, FloatArray]:
        """Loss and correct of all samples."""
        engine, rows = mesh.engine(), self.parts.cut.rows

        def task(part: int) -> FloatArray:
            samples = self.held[part].samples(self.look, rows, 1.0)
            return np.array(engine.evaluate(mesh.values, samples.X, samples.targets, 1))

        return self._each(task)

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> dict[Key, FloatArray]:
        """Loss, correct, gradient and Gauss-Newton matrix of all samples, one after the other."""
        from threadpoolctl import threadpool_limits

        engine, rows = mesh.engine("curvature", method, PART_ROWS), self.parts.cut.rows

        def task(part: int) -> FloatArray:
            samples = self.held[part].samples(self.look, rows, 1.0)
            model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
            return np.concatenate([[model.loss, model.correct], model.grad, model.matrix.ravel()])

        with threadpool_limits(1, "blas"):
            return self._each(task)


@lru_cache(2 * LOTS)
def _order(cut: ShardPlan, part: int, seed: int) -> NDArray[np.int64]:
    """The rows of a part in the order of an epoch: a batch takes the next `each` of every row, -1 is none."""
    lots, first = cut.of_part(part), 0
    found = np.full((len(lots), cut.batches * cut.each), -1, np.int64)
    for k, lot in enumerate(lots):
        size = cut.sizes[lot]
        found[k, :size] = first + np.random.default_rng([seed, lot]).permutation(size)
        first += size
    return found


def rows_of_batch(cut: ShardPlan, part: int, seed: int, batch: int) -> NDArray[np.int64]:
    """The rows of a part that a batch of an epoch takes, as numbers within the part."""
    found = _order(cut, part, seed)[:, batch * cut.each : (batch + 1) * cut.each].ravel()
    return found if batch + 1 < cut.batches else found[found >= 0]


def agreement(mesh: Mesh) -> str:
    """A word that is the same for all who have the same graph and weights."""
    return hashlib.blake2b(mesh.values.tobytes() + mesh.topology._digest, digest_size=16).hexdigest()


def run_steps(
    desk: WorkerState, total: Total, engine: Engine, values: Array, optimizer: Optimizer, seed: int, rates: Array,
    begun: Epoch, last: int,
) -> Epoch:  # fmt: skip
    """Steps of an epoch from where it stands up to batch number `last`; everybody takes the same, in place.

    `begun.piece` counts batches. Ends early after a loss that is not finite.
    """
    cut, learned, now = desk.parts.cut, len(optimizer.first), begun
    for batch in range(begun.piece, last):
        count = cut.count(batch)
        found = total(desk.gradient(engine, values, seed, batch)) / count
        grad = found[:learned].astype(values.dtype)
        norm = optimizer.step(values[:learned], grad, float(rates[batch]))
        share = count / cut.rows
        loss, correct, _ = now.sums
        now = Epoch(batch + 1, (loss + share * float(found[-2]), correct + share * float(found[-1]), norm))
        if not np.isfinite(now.sums[0]):
            break
    return now
