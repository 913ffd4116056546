"""Training on several workers: how rows are divided among them, and the part of one worker.

The rows are cut into consecutive *shards*; every batch takes as many rows from each. Consecutive shards form a
*bucket*: a bucket lies with one worker, which computes the bucket's part of a sum, and these are added in a fixed tree,

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A worker with the buckets 0 to 5 sends the sums (0 + 1 + 2 + 3) and (4 + 5): wherever numbers are added, the order is
the same. Shards, buckets and the order of the rows follow from the number of rows, the batch size and the seed. After
the exchange of its sums every worker takes the same step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.engine import Engine, Optimizer, cores
from meshnn.mesh import Mesh
from meshnn.training.dataset import LIMITS
from meshnn.training.samples import Epoch, InMemorySamples

#: A node of the tree: (level, number); its leaves are the `1 << level` buckets from `number << level` on.
Node = tuple[int, int]


class ShardPlan(NamedTuple):
    """How rows are divided."""

    sizes: tuple[int, ...]  # rows of each shard; a power of 2 of them
    buckets: int
    step: int  # rows that a batch takes from a shard

    @classmethod
    def of(cls, rows: int, size: int) -> ShardPlan:
        """Plan batches of about `size` rows, never fewer."""
        shards = 1 << (min(LIMITS.shards, size, rows).bit_length() - 1)
        buckets = 1 << (max(1, min(shards, size // LIMITS.bucket_rows)).bit_length() - 1)
        sizes = tuple((k + 1) * rows // shards - k * rows // shards for k in range(shards))
        return cls(sizes, buckets, -(-min(size, rows) // shards))

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    @property
    def batch_size(self) -> int:
        """Rows of a full batch."""
        return self.shards * self.step

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        return -(-max(self.sizes) // self.step)

    @property
    def root(self) -> Node:
        """The node of the total."""
        return self.buckets.bit_length() - 1, 0

    def count(self, batch: int) -> int:
        """Return the number of samples of a batch."""
        return int(np.clip(np.array(self.sizes) - batch * self.step, 0, self.step).sum())

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard, and the one after its last."""
        first = sum(self.sizes[:shard])
        return first, first + self.sizes[shard]

    def shards_of(self, bucket: int) -> range:
        """Return the shards of a bucket."""
        per = self.shards // self.buckets
        return range(bucket * per, (bucket + 1) * per)

    def by_shard(self, rows: IntArray) -> dict[int, IntArray]:
        """Group ascending rows by shard, as numbers in it."""
        return _grouped(rows, self.sizes)

    def by_bucket(self, rows: IntArray) -> dict[int, IntArray]:
        """Group ascending rows by bucket, as numbers in it."""
        return _grouped(rows, [sum(self.sizes[k] for k in self.shards_of(bucket)) for bucket in range(self.buckets)])

    def assignment(self, workers: int) -> list[range]:
        """Return the buckets of each worker."""
        return [range(a, b) for a, b in pairwise(self.buckets * k // workers for k in range(workers + 1))]

    def batch_rows(self, bucket: int, seed: int, batch: int) -> IntArray:
        """Return the rows of a bucket that a batch of the epoch with this seed takes, as numbers in the bucket."""
        found = _epoch_order(self, bucket, seed)[:, batch * self.step : (batch + 1) * self.step].ravel()
        return found if batch + 1 < self.batches else found[found >= 0]


def _grouped(rows: IntArray, sizes: Sequence[int]) -> dict[int, IntArray]:
    starts = np.cumsum([0, *sizes[:-1]])
    group = np.searchsorted(starts, rows, side="right") - 1
    return {int(k): rows[group == k] - starts[k] for k in np.unique(group)}


@lru_cache(128)
def _epoch_order(plan: ShardPlan, bucket: int, seed: int) -> IntArray:
    """Return the shuffled rows of each shard of a bucket (shards, rows); -1 fills up short ones."""
    shards, first = plan.shards_of(bucket), 0
    found = np.full((len(shards), plan.batches * plan.step), -1, np.int64)
    for k, shard in enumerate(shards):
        size = plan.sizes[shard]
        found[k, :size] = first + np.random.default_rng([seed, shard]).permutation(size)
        first += size
    return found


def covering_nodes(buckets: range) -> list[Node]:
    """Return the fewest nodes of the tree whose leaves are these buckets, in order.

    >>> covering_nodes(range(0, 6)), covering_nodes(range(3, 8))
    ([(2, 0), (1, 2)], [(0, 3), (2, 1)])
    """
    found, at = [], buckets.start
    while at < buckets.stop:
        level = 0
        while at % (2 << level) == 0 and at + (2 << level) <= buckets.stop:
            level += 1
        found.append((level, at >> level))
        at += 1 << level
    return found


def tree_sum(sums: dict[Node, FloatArray], node: Node) -> FloatArray:
    """Return the sum at a node from sums at nodes that cover it.

    >>> leaves = {(0, k): np.array([10.0**k]) for k in range(4)}
    >>> tree_sum(leaves, (2, 0))
    array([1111.])
    """
    if node in sums:
        return sums[node]
    level, number = node
    found: FloatArray = tree_sum(sums, (level - 1, 2 * number)) + tree_sum(sums, (level - 1, 2 * number + 1))
    return found


class Transport(ABC):
    """Sums over all workers, added in the order of the tree.

    Every worker gets the sums of all others; of large sums each adds up one slice, which all others then get.
    """

    def __init__(self, plan: ShardPlan, workers: int, rank: int) -> None:
        self.root, self.rank = plan.root, rank
        self.nodes = [covering_nodes(buckets) for buckets in plan.assignment(workers)]

    @abstractmethod
    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send a message to each worker; return the one that came from each, flat."""

    def __call__(self, sums: dict[Node, FloatArray]) -> FloatArray:
        """Return the total, from the sums at the nodes of this worker."""
        count = len(self.nodes)
        if count == 1:
            return tree_sum(sums, self.root)
        mine = np.stack([sums[node] for node in self.nodes[self.rank]])
        width = mine.shape[1]
        if 8 * width <= LIMITS.sliced_bytes:
            return self._total(self.exchange([mine] * count), width)
        cuts = [width * k // count for k in range(count + 1)]
        received = self.exchange([np.ascontiguousarray(mine[:, a:b]) for a, b in pairwise(cuts)])
        slice_ = self._total(received, cuts[self.rank + 1] - cuts[self.rank])
        return np.concatenate(self.exchange([slice_] * count))

    def _total(self, received: list[FloatArray], width: int) -> FloatArray:
        sums: dict[Node, FloatArray] = {}
        for nodes, message in zip(self.nodes, received, strict=True):
            sums.update(zip(nodes, message.reshape(len(nodes), width), strict=True))
        return tree_sum(sums, self.root)


@dataclass
class WorkerState:
    """The buckets of one worker; sums are returned by node of the tree."""

    plan: ShardPlan
    data: dict[int, InMemorySamples]  # by bucket, consecutive; weights are shares of those of all rows
    n_jobs: int | None = None

    def _sums(self, task: Callable[[int], FloatArray]) -> dict[Node, FloatArray]:
        """Run a task for each bucket and add up what it returns."""
        mine = list(self.data)
        threads = min(self.n_jobs if self.n_jobs is not None else cores(), max(len(mine), 1))
        with ThreadPoolExecutor(threads) as pool:
            leaves = {(0, bucket): found for bucket, found in zip(mine, pool.map(task, mine), strict=True)}
        buckets = range(mine[0], mine[-1] + 1) if mine else range(0)
        return {node: tree_sum(leaves, node) for node in covering_nodes(buckets)}

    def gradient(self, engine: Engine, values: Array, seed: int, batch: int) -> dict[Node, FloatArray]:
        """Sum gradient, loss and correct samples of one batch."""

        def task(bucket: int) -> FloatArray:
            rows = self.plan.batch_rows(bucket, seed, batch)
            if len(rows) == 0:
                return np.zeros(len(values) + 2)
            samples = self.data[bucket].take(rows)
            found = engine.gradient(values, samples.X, samples.targets, 1)
            return np.append(found.grad, (found.loss, found.correct))

        return self._sums(task)

    def evaluate(self, mesh: Mesh) -> dict[Node, FloatArray]:
        """Sum loss and correct samples of all rows."""
        return self._sums(lambda bucket: np.array(self.data[bucket].evaluate(mesh, 1)))

    def curvature(self, mesh: Mesh, method: str, live: IntArray) -> dict[Node, FloatArray]:
        """Sum loss, correct samples, gradient and Gauss-Newton matrix of all rows, concatenated."""
        from threadpoolctl import threadpool_limits

        engine = mesh.engine("curvature", method, LIMITS.bucket_rows)

        def task(bucket: int) -> FloatArray:
            samples = self.data[bucket]
            model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
            return np.concatenate([[model.loss, model.correct], model.grad, model.matrix.ravel()])

        with threadpool_limits(1, "blas"):
            return self._sums(task)


class EpochPart(NamedTuple):
    """Some batches of an epoch."""

    seed: int
    rates: Array  # of all batches
    begun: Epoch  # pieces are batches
    last: int  # the batch after the last one


def run_steps(
    state: WorkerState, total: Callable[[dict[Node, FloatArray]], FloatArray], engine: Engine, values: Array,
    optimizer: Optimizer, part: EpochPart,
) -> Epoch:  # fmt: skip
    """Take the steps of a part of an epoch in place, the same on all workers; stop after a loss that is not finite."""
    plan, learned, now = state.plan, len(optimizer.first), part.begun
    for batch in range(now.piece, part.last):
        share = plan.count(batch) / plan.rows
        found = total(state.gradient(engine, values, part.seed, batch)) / share
        norm = optimizer.step(values[:learned], found[:learned].astype(values.dtype), float(part.rates[batch]))
        now = now.plus((found[-2], found[-1], norm), share)
        if not np.isfinite(now.sums[0]):
            break
    return now
