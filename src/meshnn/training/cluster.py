"""Training on several workers: the division of rows among them, and the computation of one worker.

The rows are cut into consecutive *shards*; every batch takes the same number of rows from each shard. Consecutive
shards form a *bucket*. Each bucket is stored on one worker, which computes the bucket's sums. The sums of the buckets
are added in a fixed tree,

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A worker with the buckets 0 to 5 sends the sums (0 + 1 + 2 + 3) and (4 + 5), so that the order of additions, and
therefore every bit of the result, is independent of the number of workers. Shards, buckets and the order of the rows
depend only on the number of rows, the batch size and the seed. After the sums are exchanged, every worker takes the
same step.
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

#: A node of the tree: (level, number). Its leaves are `1 << level` buckets, the first of which is `number << level`.
Node = tuple[int, int]


class ShardPlan(NamedTuple):
    """The division of rows into shards, buckets and batches."""

    sizes: tuple[int, ...]  # rows per shard; the number of shards is a power of 2
    buckets: int
    step: int  # rows that a batch takes from each shard

    @classmethod
    def of(cls, rows: int, size: int) -> ShardPlan:
        """Plan batches of `size` rows or slightly more."""
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
        """Number of rows of a full batch."""
        return self.shards * self.step

    @property
    def batches(self) -> int:
        """Number of batches per epoch."""
        return -(-max(self.sizes) // self.step)

    @property
    def root(self) -> Node:
        """The root of the tree, the node of the total."""
        return self.buckets.bit_length() - 1, 0

    def count(self, batch: int) -> int:
        """Return the number of rows of a batch."""
        return int(np.clip(np.array(self.sizes) - batch * self.step, 0, self.step).sum())

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard and the row after its last."""
        first = sum(self.sizes[:shard])
        return first, first + self.sizes[shard]

    def shards_of(self, bucket: int) -> range:
        """Return the shards of a bucket."""
        per = self.shards // self.buckets
        return range(bucket * per, (bucket + 1) * per)

    def by_shard(self, rows: IntArray) -> dict[int, IntArray]:
        """Group ascending row numbers by shard; the results are relative to the start of the shard."""
        return _grouped(rows, self.sizes)

    def by_bucket(self, rows: IntArray) -> dict[int, IntArray]:
        """Group ascending row numbers by bucket; the results are relative to the start of the bucket."""
        return _grouped(rows, [sum(self.sizes[k] for k in self.shards_of(bucket)) for bucket in range(self.buckets)])

    def assignment(self, workers: int) -> list[range]:
        """Return the buckets of each worker."""
        return [range(a, b) for a, b in pairwise(self.buckets * k // workers for k in range(workers + 1))]

    def batch_rows(self, bucket: int, seed: int, batch: int) -> IntArray:
        """Return the rows of a bucket in one batch of the epoch with this seed, relative to the start of the bucket."""
        found = _epoch_order(self, bucket, seed)[:, batch * self.step : (batch + 1) * self.step].ravel()
        return found if batch + 1 < self.batches else found[found >= 0]


def _grouped(rows: IntArray, sizes: Sequence[int]) -> dict[int, IntArray]:
    starts = np.cumsum([0, *sizes[:-1]])
    group = np.searchsorted(starts, rows, side="right") - 1
    return {int(k): rows[group == k] - starts[k] for k in np.unique(group)}


@lru_cache(128)
def _epoch_order(plan: ShardPlan, bucket: int, seed: int) -> IntArray:
    """Return the shuffled rows of each shard of a bucket (shards, rows), padded with -1."""
    shards, first = plan.shards_of(bucket), 0
    found = np.full((len(shards), plan.batches * plan.step), -1, np.int64)
    for k, shard in enumerate(shards):
        size = plan.sizes[shard]
        found[k, :size] = first + np.random.default_rng([seed, shard]).permutation(size)
        first += size
    return found


def covering_nodes(buckets: range) -> list[Node]:
    """Return the smallest set of nodes of the tree whose leaves are these buckets, in order.

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
    """Return the sum at a node, from the sums at nodes that cover it.

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
    """A sum over all workers, added in the order of the tree.

    Every worker receives the sums of all others. For large sums each worker adds up one slice and sends the result to
    the others.
    """

    def __init__(self, plan: ShardPlan, workers: int, rank: int) -> None:
        self.root, self.rank = plan.root, rank
        self.nodes = [covering_nodes(buckets) for buckets in plan.assignment(workers)]

    @abstractmethod
    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send one message to each worker; return the flattened message received from each."""

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
    """The buckets of one worker; its methods return sums by node of the tree."""

    plan: ShardPlan
    data: dict[int, InMemorySamples]  # by bucket, consecutive; weights are relative to the total of all rows
    n_jobs: int | None = None

    def _sums(self, task: Callable[[int], FloatArray]) -> dict[Node, FloatArray]:
        """Run a task for each bucket and add up the results."""
        mine = list(self.data)
        threads = min(self.n_jobs if self.n_jobs is not None else cores(), max(len(mine), 1))
        with ThreadPoolExecutor(threads) as pool:
            leaves = {(0, bucket): found for bucket, found in zip(mine, pool.map(task, mine), strict=True)}
        buckets = range(mine[0], mine[-1] + 1) if mine else range(0)
        return {node: tree_sum(leaves, node) for node in covering_nodes(buckets)}

    def gradient(self, engine: Engine, values: Array, seed: int, batch: int) -> dict[Node, FloatArray]:
        """Return the sums of gradient, loss and correct samples over one batch, concatenated."""

        def task(bucket: int) -> FloatArray:
            rows = self.plan.batch_rows(bucket, seed, batch)
            if len(rows) == 0:
                return np.zeros(len(values) + 2)
            samples = self.data[bucket].take(rows)
            found = engine.gradient(values, samples.X, samples.targets, 1)
            return np.append(found.grad, (found.loss, found.correct))

        return self._sums(task)

    def evaluate(self, mesh: Mesh) -> dict[Node, FloatArray]:
        """Return the sums of loss and correct samples over all rows."""
        return self._sums(lambda bucket: np.array(self.data[bucket].evaluate(mesh, 1)))

    def curvature(self, mesh: Mesh, method: str, live: IntArray) -> dict[Node, FloatArray]:
        """Return the sums of loss, correct samples, gradient and Gauss-Newton matrix over all rows, concatenated."""
        from threadpoolctl import threadpool_limits

        engine = mesh.engine("curvature", method, LIMITS.bucket_rows)

        def task(bucket: int) -> FloatArray:
            samples = self.data[bucket]
            model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
            return np.concatenate([[model.loss, model.correct], model.grad, model.matrix.ravel()])

        with threadpool_limits(1, "blas"):
            return self._sums(task)


class EpochPart(NamedTuple):
    """Consecutive batches of an epoch."""

    seed: int
    rates: Array  # learning rate per batch of the epoch
    begun: Epoch  # progress so far; a piece is a batch
    last: int  # the batch at which to stop (exclusive)


def run_steps(
    state: WorkerState, total: Callable[[dict[Node, FloatArray]], FloatArray], engine: Engine, values: Array,
    optimizer: Optimizer, part: EpochPart,
) -> Epoch:  # fmt: skip
    """Take the steps of a part of an epoch in place, identically on all workers; stop if a loss is not finite."""
    plan, learned, now = state.plan, len(optimizer.first), part.begun
    for batch in range(now.piece, part.last):
        share = plan.count(batch) / plan.rows
        found = total(state.gradient(engine, values, part.seed, batch)) / share
        norm = optimizer.step(values[:learned], found[:learned].astype(values.dtype), float(part.rates[batch]))
        now = now.plus((found[-2], found[-1], norm), share)
        if not np.isfinite(now.sums[0]):
            break
    return now
